//! `bytepath show`: the report of a study, now or long after.

use crate::record::{Fault, Study};
use crate::run::load;
use clap::Args;
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

/// Prints the report of a study folder.
pub(super) fn show(arguments: &ShowArguments) -> Result<ExitCode, Fault> {
    let study = load(&arguments.study)?;
    print(&study, &arguments.form)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a report to standard output.
pub(super) fn print(_study: &Study, _form: &Form) -> Result<(), Fault> {
    Ok(())
}
