//! How power is measured, and what an external meter recorded during a study.

use super::Role;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The options of the meter `power`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Power {
    /// Where the readings come from.
    #[serde(default)]
    pub source: PowerSource,
    /// The power to subtract from every reading.
    #[serde(default)]
    pub rest: Rest,
    /// Options for the receiver's host, if each host has its own source; the fields above are then
    /// the sender's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<Box<Power>>,
}

impl Power {
    /// Returns the options for a role's host.
    pub fn of(&self, role: Role) -> &Power {
        match (&self.receiver, role) {
            (Some(receiver), Role::Receiver) => receiver,
            _ => self,
        }
    }

    /// True for the default options.
    pub fn is_default(&self) -> bool {
        *self == Power::default()
    }
}

/// Source of power readings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum PowerSource {
    /// The best source of the host that needs no other program; no source if there is none.
    #[default]
    Auto,
    /// The processor's energy counters, read through the powercap class.
    Rapl,
    /// The same counters, read through perf's PMU `power`.
    Perf,
    /// Sensors of the hwmon class.
    Hwmon,
    /// The board's management controller (BMC), queried by `ipmitool dcmi power reading`.
    Ipmi,
    /// A program that prints one reading in watts per line, for as long as it runs.
    Command {
        /// The program and its arguments, without a shell.
        argv: Vec<String>,
    },
    /// The log of an external meter, read after the study.
    Csv {
        /// Path of the file.
        file: String,
        /// The offset of its clock from that of the study.
        clock: LogClock,
        /// The heading or the number (from 1) of its column of power; `None` if it is unambiguous.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        column: Option<String>,
    },
}

/// The offset of the clock of a log from the clock of the study.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "by")]
pub enum LogClock {
    /// Determined by matching steps of the power to the start and end times of trials.
    #[default]
    Steps,
    /// Given by the user.
    Offset {
        /// Seconds to add to the log's times.
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
    /// The given power.
    Given {
        /// Watts.
        watts: f64,
    },
    /// The power that it draws before the first trial.
    Measured,
}

/// `power.json`: the power of a study's trials by the log of an external meter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PowerLog {
    /// Version of this record.
    pub schema: u32,
    /// The role whose host was measured; `None` if the hosts share a machine or a meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Name of the log.
    pub file: String,
    /// The column that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Seconds added to the log's times.
    pub offset: f64,
    /// Fraction of the log's variation that the trials' start and end times explain at that offset;
    /// `None` if the offset was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<f64>,
    /// Power that was subtracted, in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<f64>,
    /// One entry per trial that the log covers.
    pub trials: Vec<LoggedTrial>,
    /// Warnings for the reader.
    pub remarks: Vec<String>,
}

/// The part of a log that covers one trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoggedTrial {
    /// `Trial::order` of the trial.
    pub order: u32,
    /// Energy over its windows in joules, after subtraction.
    pub joules: f64,
    /// Length of its windows in seconds.
    pub seconds: f64,
    /// Readings in its windows.
    pub readings: u32,
}

/// A period by the clock of the controller's host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeSpan {
    /// Start, in seconds since the Unix epoch.
    pub begin: f64,
    /// Its length in seconds.
    pub length: f64,
}
