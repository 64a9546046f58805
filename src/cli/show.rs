//! `bytepath show`: the report of a study, now or long after.

use crate::record::{Fault, FaultKind, Study};
use crate::report::{self, Style};
use crate::run::load;
use crate::stats;
use clap::Args;
use std::io::{ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// Folder of the study
    #[arg(value_name = "STUDY")]
    study: PathBuf,
    #[command(flatten)]
    form: Form,
}

/// How a report is printed.
#[derive(Debug, Args)]
pub(super) struct Form {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Add system-call tables, sizes and rates over time
    #[arg(long)]
    details: bool,
}

/// Columns of a page that is no terminal.
const PAGE: usize = 100;

/// Prints the report of a study folder.
pub(super) fn show(arguments: &ShowArguments) -> Result<ExitCode, Fault> {
    let study = load(&arguments.study)?;
    print(&study, &arguments.form)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a report to standard output: coloured and as wide as the terminal
/// there, plain elsewhere.
pub(super) fn print(study: &Study, form: &Form) -> Result<(), Fault> {
    let name = if form.json { "json" } else { "text" };
    let Some(report) = report::find(name) else {
        return Err(Fault::new(FaultKind::Usage, format!("there is no report '{name}'")));
    };
    let analysis = stats::analyse(study, &stats::Rules::of(&study.header));
    let style = style(form.details);
    match report.render(study, &analysis, &style, &mut std::io::stdout().lock()) {
        // Whoever reads may stop early: `bytepath show STUDY | head`.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|e| Fault::system("cannot print the report", &e)),
    }
}

/// As wide as the terminal and coloured there, plain elsewhere.
pub(super) fn style(details: bool) -> Style {
    let terminal = std::io::stdout().is_terminal();
    let width = if terminal { console_width().unwrap_or(PAGE) } else { PAGE };
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    Style { width, colour, details }
}

fn console_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}
