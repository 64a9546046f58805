//! `bytepath attach`: attaches the log of an external meter to a study that has ended.

use super::show::{self, ReportArgs};
use bytepath_record::{Fault, Power, PowerSource, Role};
use bytepath_spec as spec;
use bytepath_study::import_power;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(super) struct AttachArgs {
    /// Folder of the study
    #[arg(value_name = "STUDY")]
    study: PathBuf,
    /// The meter's log: a table with a column of times and one of power
    #[arg(value_name = "LOG")]
    log: String,
    /// Offset added to the log's times: auto, or as in -3.5s
    #[arg(long, value_name = "TIME", default_value = "auto", allow_hyphen_values = true)]
    clock: String,
    /// Column of power: heading or number [default: the only one]
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Idle power to subtract: measure, or watts [default: nothing]
    #[arg(long, value_name = "WATTS")]
    rest: Option<String>,
    /// Role whose host the log covers, if each host has its own meter
    #[arg(long, value_name = "ROLE", value_parser = role)]
    role: Option<Role>,
    #[command(flatten)]
    report: ReportArgs,
}

fn role(text: &str) -> Result<Role, String> {
    text.parse().map_err(|_| "write sender or receiver".to_owned())
}

const AFTER_HELP: &str = "\
Examples:
  bytepath attach bytepath-studies/20260102-030405 wattmeter.csv
  bytepath attach bytepath-studies/20260102-030405 wattmeter.csv --rest measure
  bytepath attach bytepath-studies/20260102-030405 wattmeter.csv --clock -3.5s
  bytepath attach bytepath-studies/20260102-030405 rack-b.csv --role receiver
  bytepath attach bytepath-studies/20260102-030405 house.csv --column grid_power

The log's clock is aligned by the start and end times of the trials: start the log
some seconds before the study and end it some seconds after. Use --design trials
and a window that spans several readings. The result is kept with the study, in
power.json, or in power-ROLE.json if it covers one host; no other file is changed.";

/// Attaches a log to a study and prints the study's report.
pub(super) fn attach(arguments: &AttachArgs) -> Result<(), Fault> {
    let clock = spec::read_clock(&arguments.clock)?;
    let rest = arguments.rest.as_deref().map(spec::read_rest).transpose()?.unwrap_or_default();
    let source =
        PowerSource::Csv { file: arguments.log.clone(), clock, column: arguments.column.clone() };
    let (study, _) =
        import_power(&arguments.study, &Power { source, rest, receiver: None }, arguments.role)?;
    show::print(&arguments.study, &study, &arguments.report, None)
}
