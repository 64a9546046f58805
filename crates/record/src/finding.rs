//! The result of examining a host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something about a host that matters to a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The finding.
    pub what: String,
    /// Its effect on a measurement.
    pub effect: String,
    /// The remedy; a command if there is one.
    pub command: String,
}

/// How much a finding matters.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Something cannot run.
    Blocks,
    /// Results are distorted, or favour one side.
    Distorts,
    /// Good to know when reading results.
    Note,
}
