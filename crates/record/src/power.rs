//! How power is measured, and what an external meter recorded during a study.

use super::Role;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a study measures power: the options of the meter `power`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Power {
    /// Where the readings come from.
    #[serde(default)]
    pub source: PowerSource,
    /// What is subtracted from every reading.
    #[serde(default)]
    pub rest: Rest,
    /// How that of the receiver's host is measured, where each host has a source of its own;
    /// the above is the sender's then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<Box<Power>>,
}

impl Power {
    /// How that of a role's host is measured.
    pub fn of(&self, role: Role) -> &Power {
        match (&self.receiver, role) {
            (Some(receiver), Role::Receiver) => receiver,
            _ => self,
        }
    }

    /// True for the default.
    pub fn is_default(&self) -> bool {
        *self == Power::default()
    }
}

/// Where readings of power come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum PowerSource {
    /// The best that the host has and that needs no other program; none if it has none.
    #[default]
    Auto,
    /// The processor's energy counters by the powercap class.
    Rapl,
    /// The same counters by perf's PMU `power`.
    Perf,
    /// Sensors of the hwmon class.
    Hwmon,
    /// The board's management controller, queried by `ipmitool dcmi power reading`.
    Ipmi,
    /// A program that prints one reading in watts a line, as long as it lives.
    Command {
        /// The program and its arguments; no shell reads them.
        argv: Vec<String>,
    },
    /// An external meter's log, read when the study has ended.
    Csv {
        /// Path of the file.
        file: String,
        /// The offset of its clock from that of the study.
        clock: LogClock,
        /// The heading or the number (from 1) of its column of power; `None` if only one can be
        /// meant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        column: Option<String>,
    },
}

/// The offset of the clock of a log from the clock of the study.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "by")]
pub enum LogClock {
    /// Found by matching steps of the power to the start and end times of trials.
    #[default]
    Steps,
    /// Given.
    Offset {
        /// What has to be added to the log's times, seconds.
        seconds: f64,
    },
}

/// What is subtracted from every reading: the machine's idle power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "rest")]
pub enum Rest {
    /// Nothing.
    #[default]
    Kept,
    /// A given power.
    Given {
        /// Watts.
        watts: f64,
    },
    /// What it draws before the first trial.
    Measured,
}

/// `power.json`: the trials' power by an external meter's log of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PowerLog {
    /// Version of this record.
    pub schema: u32,
    /// The role whose host it is of; `None` if the hosts share a machine, or a meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Name of the log.
    pub file: String,
    /// The column that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// What was added to the log's times, seconds.
    pub offset: f64,
    /// How much of the log's variation the trials' start and end times explain at that
    /// offset, as a part of one; none if the offset was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<f64>,
    /// What was subtracted, watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<f64>,
    /// One entry a trial that the log covers.
    pub trials: Vec<LoggedTrial>,
    /// What the reader should know.
    pub remarks: Vec<String>,
}

/// The part of a log that covers one trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoggedTrial {
    /// `Trial::order` of the trial.
    pub order: u32,
    /// Energy over its windows, joules, less what was subtracted.
    pub joules: f64,
    /// Length of its windows, seconds.
    pub seconds: f64,
    /// Readings in them.
    pub readings: u32,
}

/// A stretch of time by the clock of the controller's host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeSpan {
    /// When it began, seconds since the Unix epoch.
    pub begin: f64,
    /// Its length in seconds.
    pub length: f64,
}
