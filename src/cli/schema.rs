//! `bytepath schema`: JSON Schemas of the files that bytepath reads and writes, and of the
//! documents that its commands print.

use super::catalogs::{Entry, Paths};
use super::compare::Comparison;
use super::copy::Measured;
use super::doctor::Examination;
use super::help::{Choice, choices, one_of};
use super::output::{print_json, print_text};
use super::output_args::Document;
use super::published::{WorkDocument, WorkEntry};
use super::settings::{Item, LeftBehind, Restored, SettingNames};
use super::sizing::Sizes;
use bytepath_profile::Explanation;
use bytepath_profile::counts::Compared;
use bytepath_profile::diff::Diff;
use bytepath_record::{Fault, Observation, PowerLog, ProfileSummary, StudyHeader, Trial};
use bytepath_report::{Advice, AnalysisDocument};
use bytepath_spec::experiment_schema;
use bytepath_stats::History;
use bytepath_study::fleet::Shard;
use bytepath_study::{Hosts, HostsAfter, Loads, Outline, catalogues};
use clap::Args;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Debug, Args)]
#[command(after_long_help = list())]
pub(super) struct SchemaArgs {
    /// Document to print the schema of, as in study or analysis [default: list them]
    #[arg(hide_possible_values = true, value_name = "DOCUMENT", value_parser = one_of(DOCUMENTS))]
    schema: Option<fn() -> Value>,
}

/// A document with one field, which is a list.
type List<T> = Document<BTreeMap<String, Vec<T>>>;

/// All kinds of files and documents, with their schemas.
const DOCUMENTS: &[Choice<fn() -> Value>] = &[
    ("experiment", "An experiment file, as `bytepath run FILE` reads it", || {
        experiment_schema(&catalogues())
    }),
    ("study", "experiment.toml in a study folder: the resolved experiment", of::<StudyHeader>),
    ("trial", "A line of trials.jsonl in a study folder", of::<Trial>),
    ("hosts", "hosts.json in a study folder", of::<Hosts>),
    (
        "loads",
        "loads.json in a study folder: rates that are a part of the peak, as they were found",
        of::<Loads>,
    ),
    ("hosts-after", "hosts-after.json in a study folder", of::<HostsAfter>),
    (
        "power",
        "power.json and power-ROLE.json in a study folder: the trials' power by an external meter's log",
        of::<PowerLog>,
    ),
    ("plan", "Output of `bytepath run --dry-run --json`", of::<Document<Outline>>),
    ("analysis", "Output of `bytepath run --json` and `show --json`", of::<AnalysisDocument>),
    ("comparison", "Output of `bytepath compare --json`", of::<Document<Comparison>>),
    (
        "published",
        "Output of `bytepath compare published:NAME --json`",
        of::<Document<WorkDocument>>,
    ),
    ("published-works", "Output of `bytepath compare published: --json`", of::<List<WorkEntry>>),
    ("history", "Output of `bytepath history --json`", of::<Document<History>>),
    ("fleet", "Output of `bytepath fleet status --json`", of::<List<Shard>>),
    ("observation", "Output of `bytepath observe --json`", of::<Observation>),
    ("advice", "Output of `bytepath advise --json`", of::<Advice>),
    ("profile-summary", "Output of `bytepath profile --json`", of::<Document<ProfileSummary>>),
    ("diff", "Output of `bytepath diff --json`", of::<Document<Diff>>),
    ("counters", "Output of `bytepath diff --json` for counters", of::<Document<Compared>>),
    ("explanation", "Output of `bytepath diff --explain json`", of::<Document<Explanation>>),
    ("copy", "Output of `bytepath copy --json`", of::<Document<Measured>>),
    ("size", "Output of `bytepath size --json`", of::<Document<Sizes>>),
    ("doctor", "Output of `bytepath doctor --json`", of::<Document<Examination>>),
    ("paths", "Output of `bytepath paths --json`", of::<Document<Paths>>),
    ("meters", "Output of `bytepath meters --json`", of::<List<Entry>>),
    ("settings", "Output of `bytepath settings PROFILE --json`", of::<List<Item>>),
    ("setting-names", "Output of `bytepath settings --json`", of::<Document<SettingNames>>),
    ("restoration", "Output of `bytepath restore --json`", of::<Document<Restored>>),
    ("journal", "Output of `bytepath restore --show --json`", of::<Document<LeftBehind>>),
];

/// Prints one schema (draft 2020-12), or the list of schemas.
pub(super) fn schema(arguments: &SchemaArgs) -> Result<(), Fault> {
    match arguments.schema {
        Some(schema) => print_json(&schema()),
        None => print_text(|out| out.write_all(list().as_bytes())),
    }
}

fn list() -> String {
    choices("Documents:", DOCUMENTS)
}

/// Returns the schema of a record in its serialized form.
fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    SchemaGenerator::new(settings).into_root_schema_for::<T>().to_value()
}
