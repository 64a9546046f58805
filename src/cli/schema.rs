//! `bytepath schema`: JSON Schemas of the files that bytepath reads and writes.

use super::help::values;
use super::output::print_json;
use super::output_args::Document;
use bytepath_profile::Explanation;
use bytepath_profile::counts::Compared;
use bytepath_profile::diff::Diff;
use bytepath_record::{Fault, Observation, PowerLog, StudyHeader, Trial};
use bytepath_spec::experiment_schema;
use bytepath_study::{Hosts, HostsAfter, catalogues};
use clap::{Args, ValueEnum};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value;

#[derive(Debug, Args)]
#[command(after_long_help = values::<Subject>("Documents:"))]
pub(super) struct SchemaArgs {
    /// Document to print the schema of, as in study or experiment
    #[arg(hide_possible_values = true, value_name = "FILE", value_enum, default_value_t = Subject::Trial)]
    subject: Subject,
}

/// A kind of file.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Subject {
    /// A line of trials.jsonl in a study folder
    Trial,
    /// experiment.toml in a study folder: the resolved experiment
    Study,
    /// hosts.json in a study folder
    Hosts,
    /// power.json and power-ROLE.json in a study folder: the trials' power by an external meter's log
    Power,
    /// hosts-after.json in a study folder
    HostsAfter,
    /// Output of `bytepath observe --json`
    Observation,
    /// Output of `bytepath diff --json`
    Diff,
    /// Output of `bytepath diff --json` for counters
    Counters,
    /// Output of `bytepath diff --explain json`
    Explanation,
    /// An experiment file, as `bytepath run FILE` reads it
    Experiment,
}

/// Prints one schema (draft 2020-12).
pub(super) fn schema(arguments: &SchemaArgs) -> Result<(), Fault> {
    let schema = match arguments.subject {
        Subject::Trial => of::<Trial>(),
        Subject::Study => of::<StudyHeader>(),
        Subject::Hosts => of::<Hosts>(),
        Subject::Power => of::<PowerLog>(),
        Subject::HostsAfter => of::<HostsAfter>(),
        Subject::Observation => of::<Observation>(),
        Subject::Diff => of::<Document<Diff>>(),
        Subject::Counters => of::<Document<Compared>>(),
        Subject::Explanation => of::<Document<Explanation>>(),
        Subject::Experiment => experiment_schema(&catalogues()),
    };
    print_json(&schema)
}

/// The schema of a record as it is written.
fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    SchemaGenerator::new(settings).into_root_schema_for::<T>().to_value()
}
