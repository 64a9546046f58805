//! What a meter says: a number with its unit and what it is a number of.

use super::Role;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One number of one trial, taken over the measured window unless the metric
/// says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reading {
    /// Dotted name, the meter first: "cpu.softirq".
    pub metric: String,
    /// Unit of the value.
    pub unit: Unit,
    /// The value.
    pub value: f64,
    /// What it is a value of.
    pub scope: Scope,
}

/// Metrics that are levels: of several windows their mean is taken, not their sum.
const LEVELS: &[&str] = &[
    "tcp.cwnd",
    "tcp.snd_mss",
    "tcp.rcv_mss",
    "tcp.rtt",
    "tcp.min_rtt",
    "tcp.delivery_rate",
    "throughput.flow",
    "nic.qdisc.backlog",
    "nic.qdisc.qlen",
    "power.watts",
    "power.rest",
];

impl Reading {
    /// Whether the values of several windows add up to that of all of them.
    pub fn adds_up(&self) -> bool {
        !LEVELS.contains(&self.metric.as_str())
            && !matches!(self.unit, Unit::Ratio | Unit::BytesPerSecond | Unit::Hertz)
    }
}

/// Units in use. Every unit is a plain SI or IEC one; prefixes are for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Occurrences.
    Count,
    /// A part of one.
    Ratio,
    /// Joules.
    Joules,
    /// Watts.
    Watts,
    /// Hertz.
    Hertz,
}

/// What a reading is a reading of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole machine.
    Machine,
    /// One CPU of it.
    Cpu(u32),
    /// All of one role.
    Role(Role),
    /// One flow, counted from 0, seen from one role.
    Flow(Role, u32),
    /// A network device of one role, by name.
    Link(Role, String),
}

/// A metric over time: equal steps from the start of the measured window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Dotted name of the metric.
    pub metric: String,
    /// Unit of the values.
    pub unit: Unit,
    /// What they are values of.
    pub scope: Scope,
    /// Length of a step in seconds.
    pub step: f64,
    /// One value a step.
    pub values: Vec<f64>,
}
