//! A study: the folder that a run creates.

use super::{Cell, CellId, Facts, KernelHosts, Load, Power, Profiling, SettingRecord, Trial};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The input of every report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Study {
    /// What was requested, and facts of the hosts.
    pub header: StudyHeader,
    /// The trials, in the order they were run.
    pub trials: Vec<Trial>,
    /// Trials that took profiles, in the order they were run. On disk they are among the others;
    /// here they are separate, because no figure may depend on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Trial>,
    /// Notes about the folder for the reader, such as a torn last line.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// What was requested and on which hosts: `experiment.toml` and `hosts.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyHeader {
    /// Version of this record.
    pub schema: u32,
    /// Version of bytepath that made it.
    pub bytepath: String,
    /// Title from the experiment file; may be empty.
    #[serde(default)]
    pub title: String,
    /// When it began, milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// The testbed as typed: "netns", "vm:cpus=4".
    pub testbed: String,
    /// Why this study measures no speed (for example because its hosts were emulated): it shows
    /// that things work, and gives no verdict. `None` if it measures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functional: Option<String>,
    /// Instructions represented by a second of the hosts' CPU time, if their clock counts
    /// instructions instead of time; `None` otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_per_second: Option<f64>,
    /// The cells, in the order requested.
    pub cells: Vec<Cell>,
    /// The cell all others are compared with.
    pub baseline: CellId,
    /// Blocks, window, seed.
    pub schedule: Schedule,
    /// Margin, confidence, exponents.
    #[serde(default)]
    pub judgement: Judgement,
    /// The rates of cells whose load is a part of their peak: `loads.json`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
    /// Names of the meters in use.
    pub meters: Vec<String>,
    /// The experiment file that was run; `None` if the study was requested by flags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The profiles to take; `None` for no profiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiling: Option<Profiling>,
    /// How power is measured.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub power: Power,
    /// Facts of the sender's and of the receiver's host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Facts>,
    /// The same for every kernel that cells name; empty if none does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelHosts>,
    /// Memory-copy bandwidth of one core, measured before the first trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<CopyCeiling>,
    /// Settings of the hosts that were made for the study, with old and new values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingRecord>,
    /// State of the controller's host when the first trial began, including the settings made for
    /// the study. It must not change while the study runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fingerprint: BTreeMap<String, String>,
}

impl StudyHeader {
    /// Returns the facts of the hosts that a cell runs on; those of the baseline if there are no
    /// others.
    pub fn facts_of(&self, cell: &Cell) -> &[Facts] {
        let own = self.kernels.iter().find(|hosts| cell.kernel.as_ref() == Some(&hosts.kernel));
        own.map_or(&self.facts, |hosts| &hosts.facts)
    }
}

/// An experiment file, kept so that the study can be run again from its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// Its name, without folders.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// The schedule of the trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Schedule {
    /// Passes over all cells.
    pub blocks: u32,
    /// Seconds of traffic before the window, not counted.
    pub warm_up: f64,
    /// Seconds of the measured window.
    pub window: f64,
    /// Seed of the random order.
    pub seed: u64,
    /// How the cells of a block share its time.
    #[serde(default)]
    pub design: Design,
    /// When to stop before all blocks are run; `None` runs them all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Stopping>,
    /// The time that the study was given; `None` if it is unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Whether the study ends as soon as every comparison is decided or cannot be, and runs each
    /// cell no longer than that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub until_sure: bool,
    /// Share of a role's CPU that other programs may use before a trial is rejected for it; `None`
    /// counts such trials, marked ([`Trial::disturbances`](crate::Trial)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_interference: Option<f64>,
    /// Whether cells run even though a probe of their hosts refuses them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

impl Schedule {
    /// A schedule of `blocks` whole trials of each cell, with warm-up and window in seconds.
    pub const fn trials(blocks: u32, warm_up: f64, window: f64) -> Schedule {
        Schedule {
            blocks,
            warm_up,
            window,
            seed: 0,
            design: Design::Trials,
            stopping: None,
            budget: None,
            until_sure: false,
            max_interference: None,
            force: false,
        }
    }

    /// Returns the seconds available for the blocks of a study that has a time limit.
    pub fn time_of_blocks(&self) -> Option<f64> {
        self.budget.filter(|_| self.until_sure).map(|budget| budget.seconds - budget.profiles)
    }

    /// Returns the number of blocks of the first of two passes, as in older studies with a budget;
    /// `None` if all cells run all blocks.
    pub fn first_pass(&self) -> Option<u32> {
        self.budget.map(|budget| budget.first).filter(|first| *first < self.blocks)
    }
}

/// Time available to a study.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Budget {
    /// Seconds in total.
    pub seconds: f64,
    /// Seconds of these that are reserved for the profiles after the last block, and for the pilots
    /// before the first.
    pub profiles: f64,
    /// Blocks of all cells that are run first. If fewer than `Schedule::blocks`, a second pass
    /// follows, with separate blocks of some cells.
    pub first: u32,
}

/// How the cells of a block share its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Design {
    /// Whole trials, one after the other.
    #[default]
    Trials,
    /// All cells of the block are open at once and take turns in slices of this many seconds, so
    /// that slow drift of the machine affects all of them equally.
    Slices {
        /// Seconds of one slice.
        slice: f64,
    },
}

/// A stopping rule, declared before the first trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Stopping {
    /// Stop when the interval of every comparison is within this share of its effect (0.01: plus or
    /// minus 1 %). `Schedule::blocks` is the upper limit.
    pub within: f64,
    /// Blocks to run before the rule is first evaluated.
    pub at_least: u32,
}

/// The rules of the verdicts, declared before the first trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Judgement {
    /// Differences within this share of the baseline do not matter (0.02: 2 %).
    pub margin: f64,
    /// Confidence of each printed interval by itself, and of the verdicts on one metric over the
    /// whole matrix (0.95).
    pub confidence: f64,
    /// Exponent of the throughput in the return on investment (ROI).
    pub roi_throughput: f64,
    /// Exponent of the power in the ROI by power.
    pub roi_power: f64,
}

impl Default for Judgement {
    fn default() -> Self {
        Judgement { margin: 0.02, confidence: 0.95, roi_throughput: 2.0, roi_power: 1.0 }
    }
}

/// Memory-copy bandwidth of one core, bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyCeiling {
    /// With buffers of the size that the workload uses (message to read buffer).
    pub workload: f64,
    /// Size of each of those buffers in bytes.
    pub workload_size: u64,
    /// With buffers far above the last-level cache.
    pub memory: f64,
    /// Size of each of those buffers in bytes.
    pub memory_size: u64,
}
