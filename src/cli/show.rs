//! `bytepath show`: the report of a study, now or long after, in any format.

use super::help::list;
use super::output;
use bytepath_profile::{Explanation, WorkUnit};
use bytepath_record::{Fault, FaultKind, Study, Work};
use bytepath_report::{self as report, CATALOG, Report, Style, Subject};
use bytepath_spec::suggest;
use bytepath_stats::{self as stats, Analysis};
use bytepath_study::{explanation, load};
use bytepath_sys::files::Folder;
use clap::{Args, ValueEnum};
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_long_help = formats_help())]
pub(super) struct ShowArguments {
    /// Folder of the study
    #[arg(value_name = "STUDY")]
    study: PathBuf,
    #[command(flatten)]
    form: Form,
    /// Unit of work for CPU time: gib or packet [default: gib]
    ///
    /// It is that of the explanation.
    #[arg(long, hide_possible_values = true, value_name = "UNIT")]
    per: Option<WorkName>,
    /// Write to this file; its suffix gives the format unless --format does
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// How a report is printed.
#[derive(Debug, Args)]
pub(super) struct Form {
    /// Format: text, netdev, html, json, csv or parquet [default: text]
    #[arg(long, value_name = "NAME", value_parser = format)]
    format: Option<&'static str>,
    /// Print JSON (same as --format json)
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Add system-call tables, sizes and rates over time
    #[arg(long)]
    details: bool,
}

/// What the CPU time of an explanation is divided by.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum WorkName {
    /// GiB delivered, as by default
    Gib,
    /// Packet, as the receiver's device counts them
    Packet,
}

/// Columns of a page that is not a terminal.
pub(super) const PAGE: usize = 100;

/// Writes the report of a study folder to the requested place.
pub(super) fn show(arguments: &ShowArguments) -> Result<ExitCode, Fault> {
    let study = load(&arguments.study)?;
    match &arguments.out {
        Some(file) => write(arguments, &study, file)?,
        None => print(&arguments.study, &study, &arguments.form, arguments.per)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a report to standard output: coloured and as wide as the terminal
/// there, plain elsewhere.
pub(super) fn print(
    folder: &Path,
    study: &Study,
    form: &Form,
    per: Option<WorkName>,
) -> Result<(), Fault> {
    let report = form.named().unwrap_or(CATALOG[0]);
    if report.binary && std::io::stdout().is_terminal() {
        let name = report.name;
        return Err(Fault::new(
            FaultKind::Usage,
            format!("refusing to write binary {name} to a terminal"),
        )
        .remedy(format!("name a file with `bytepath show STUDY --out FILE.{name}`")));
    }
    let style = style(form.details);
    let named = report.named(study);
    let analysis = stats::analyse(&named, &stats::Rules::of(&named.header));
    let explanation = explained(folder, &named, &analysis, per)?;
    let explanation = explanation.as_ref();
    let recorded = &study.header;
    let subject = Subject { study: &named, recorded, analysis: &analysis, explanation };
    output::print(|out| report.render(&subject, &style, out))
}

/// The explanation of a study. A fault if a unit was requested that its profiles
/// do not record; if none was, what is missing is in the explanation's notes.
pub(super) fn explained(
    folder: &Path,
    study: &Study,
    analysis: &Analysis,
    per: Option<WorkName>,
) -> Result<Option<Explanation>, Fault> {
    let unit = match per {
        // Exchanges are not bytes: their cost is compared by packets.
        None if analysis.work() != Work::Bytes => WorkUnit::Packet,
        None | Some(WorkName::Gib) => WorkUnit::Gib,
        Some(WorkName::Packet) => WorkUnit::Packet,
    };
    let found = explanation(folder, study, analysis, unit);
    if per.is_some() && found.as_ref().is_none_or(|found| found.waterfalls.is_empty()) {
        let why = found.map(|found| found.notes.join("; ")).filter(|why| !why.is_empty());
        let what = format!("{} has nothing to explain", folder.display());
        return Err(Fault::new(FaultKind::Usage, what).remedy(why.unwrap_or_else(|| {
            "profiles of two cells are needed: bytepath run --profile largest".to_owned()
        })));
    }
    Ok(found)
}

impl Form {
    /// Whether JSON was requested.
    pub(super) fn is_json(&self) -> bool {
        self.named().is_some_and(|report| report.name == "json")
    }

    /// The format requested by name.
    fn named(&self) -> Option<&'static Report> {
        report::find(if self.json { "json" } else { self.format? })
    }
}

/// Writes a report to a file, whole or not at all.
fn write(arguments: &ShowArguments, study: &Study, file: &Path) -> Result<(), Fault> {
    let ShowArguments { study: folder, form, per, .. } = arguments;
    let by_ending = || report::find_by_extension(file.extension()?.to_str()?);
    let report = form.named().or_else(by_ending).ok_or_else(|| {
        let endings: Vec<String> = CATALOG.iter().map(|r| format!(".{}", r.extension)).collect();
        let what = format!("cannot infer the format from '{}'", file.display());
        Fault::new(FaultKind::Usage, what)
            .remedy(format!("use one of the suffixes {}, or add --format", endings.join(", ")))
    })?;
    let style = Style { width: PAGE, colour: false, details: form.details };
    let storage = |e: std::io::Error| {
        Fault::new(FaultKind::Storage, format!("cannot write {}: {e}", file.display()))
    };
    let named = report.named(study);
    let analysis = stats::analyse(&named, &stats::Rules::of(&named.header));
    let explanation = explained(folder, &named, &analysis, *per)?;
    let explanation = explanation.as_ref();
    let recorded = &study.header;
    let subject = Subject { study: &named, recorded, analysis: &analysis, explanation };
    let mut content = Vec::new();
    report.render(&subject, &style, &mut content).map_err(storage)?;
    replace(file, &content).map_err(storage)
}

/// Replaces a file atomically. What is not a regular file,
/// such as a pipe, is written to as it is.
pub(super) fn replace(file: &Path, content: &[u8]) -> std::io::Result<()> {
    if fs::metadata(file).is_ok_and(|m| !m.is_file()) {
        return fs::OpenOptions::new().write(true).open(file)?.write_all(content);
    }
    let (folder, name) = Folder::around(file)?;
    folder.replace_shared(name, content)
}

/// A name of the catalogue.
fn format(text: &str) -> Result<&'static str, String> {
    report::find(text).map(|report| report.name).ok_or_else(|| {
        let names: Vec<&str> = CATALOG.iter().map(|r| r.name).collect();
        let fault = Fault::new(FaultKind::Usage, format!("there is no format '{text}'"));
        suggest(fault, text, &names).to_string()
    })
}

/// Every format with its purpose.
fn formats_help() -> String {
    let formats = CATALOG.iter().map(|report| (report.name, report.summary));
    let mut text = list("Formats (--format):", formats);
    text.push_str("\ndocs/reports.md describes each of them.");
    text
}

/// As wide as the terminal and coloured there, plain elsewhere.
pub(super) fn style(details: bool) -> Style {
    let width = output::size(std::io::stdout()).map_or(PAGE, |(columns, _)| columns);
    Style { width, colour: output::colours(&std::io::stdout()), details }
}
