//! `bytepath power`: the log of an external meter beside a study that has ended.

use super::show::{self, Form};
use crate::record::{Fault, Power, PowerSource, Role};
use crate::run::import_power;
use crate::spec;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct PowerArguments {
    /// Folder of the study
    #[arg(value_name = "STUDY")]
    study: PathBuf,
    /// The meter's log: a table with a column of times and one of watts
    #[arg(value_name = "LOG")]
    log: String,
    /// What is added to the log's times: auto, or seconds
    #[arg(long, value_name = "SECONDS", default_value = "auto", allow_hyphen_values = true)]
    clock: String,
    /// What the machine draws anyway and is taken off: measure, or watts [default: nothing]
    #[arg(long, value_name = "WATTS")]
    rest: Option<String>,
    /// The role whose host the log is of, where each host has a meter
    #[arg(long, value_name = "ROLE", value_parser = role)]
    role: Option<Role>,
    #[command(flatten)]
    form: Form,
}

fn role(text: &str) -> Result<Role, String> {
    let found = Role::ALL.into_iter().find(|role| role.to_string() == text);
    found.ok_or_else(|| "write sender or receiver".to_owned())
}

const AFTER_HELP: &str = "\
Examples:
  bytepath power bytepath-studies/20260102-030405 wattmeter.csv
  bytepath power bytepath-studies/20260102-030405 wattmeter.csv --rest measure
  bytepath power bytepath-studies/20260102-030405 wattmeter.csv --clock -3.5
  bytepath power bytepath-studies/20260102-030405 rack-b.csv --role receiver

The log's clock is found by the begins and ends of the trials: begin the log some
seconds before the study and end it some seconds after it. Use --design trials and a
window that holds several readings. What the log says is kept with the study, in
power.json, or power-ROLE.json where it is of one host; no other file is changed.";

/// Lays a log beside a study and prints the study's report.
pub(super) fn power(arguments: &PowerArguments) -> Result<ExitCode, Fault> {
    let clock = spec::read_clock(&arguments.clock)?;
    let rest = arguments.rest.as_deref().map(spec::read_rest).transpose()?.unwrap_or_default();
    let source = PowerSource::Csv { file: arguments.log.clone(), clock };
    let (study, _) =
        import_power(&arguments.study, &Power { source, rest, receiver: None }, arguments.role)?;
    show::print(&arguments.study, &study, &arguments.form, None)?;
    Ok(ExitCode::SUCCESS)
}
