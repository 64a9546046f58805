//! `bytepath schema`: JSON Schemas of the files that bytepath reads and writes.

use super::help::{Choice, choices, one_of};
use super::output::print_json;
use super::output_args::Document;
use bytepath_profile::Explanation;
use bytepath_profile::counts::Compared;
use bytepath_profile::diff::Diff;
use bytepath_record::{Fault, Observation, PowerLog, StudyHeader, Trial};
use bytepath_spec::experiment_schema;
use bytepath_study::{Hosts, HostsAfter, catalogues};
use clap::Args;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value;

#[derive(Debug, Args)]
#[command(after_long_help = choices("Documents:", DOCUMENTS))]
pub(super) struct SchemaArgs {
    /// Document to print the schema of, as in study or experiment
    #[arg(hide_possible_values = true, value_name = "FILE", default_value = "trial", value_parser = one_of(DOCUMENTS))]
    schema: fn() -> Value,
}

/// Every kind of file, and its schema.
const DOCUMENTS: &[Choice<fn() -> Value>] = &[
    ("trial", "A line of trials.jsonl in a study folder", of::<Trial>),
    ("study", "experiment.toml in a study folder: the resolved experiment", of::<StudyHeader>),
    ("hosts", "hosts.json in a study folder", of::<Hosts>),
    (
        "power",
        "power.json and power-ROLE.json in a study folder: the trials' power by an external meter's log",
        of::<PowerLog>,
    ),
    ("hosts-after", "hosts-after.json in a study folder", of::<HostsAfter>),
    ("observation", "Output of `bytepath observe --json`", of::<Observation>),
    ("diff", "Output of `bytepath diff --json`", of::<Document<Diff>>),
    ("counters", "Output of `bytepath diff --json` for counters", of::<Document<Compared>>),
    ("explanation", "Output of `bytepath diff --explain json`", of::<Document<Explanation>>),
    ("experiment", "An experiment file, as `bytepath run FILE` reads it", || {
        experiment_schema(&catalogues())
    }),
];

/// Prints one schema (draft 2020-12).
pub(super) fn schema(arguments: &SchemaArgs) -> Result<(), Fault> {
    print_json(&(arguments.schema)())
}

/// The schema of a record as it is written.
fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    SchemaGenerator::new(settings).into_root_schema_for::<T>().to_value()
}
