//! What a study comes to: the numbers and words that every report prints.

use super::cpu::CpuRule;
use super::effect::Effect;
use super::pool::{Counted, Shares};
use super::summary::Summary;
use super::verdict::{DEFAULT_MARGIN, Noise, Verdict};
use crate::record::{CallRow, CellId, Fault, Role, SizeDistribution};
use serde::Serialize;

/// Version of this record, as the `json` report prints it. It grows when a
/// field changes its name or meaning, not when one is added.
pub const ANALYSIS_VERSION: u32 = 1;

/// A study, analysed. Every number in it is finite; what cannot be said is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// [`ANALYSIS_VERSION`].
    pub schema: u32,
    /// What was decided by.
    pub rules: Rules,
    /// The cell that others are compared with.
    pub baseline: CellId,
    /// One row per cell, in the order of the study's header; without the null cell.
    pub rows: Vec<Row>,
    /// The second copy of the baseline, where the study has one.
    pub null: Option<Row>,
    /// How far the baseline is from itself; none without two blocks of the null cell.
    pub noise: Option<Noise>,
    /// Warnings of all trials, counted.
    pub warnings: Vec<Counted>,
    /// What the reader should know of the study itself.
    pub remarks: Vec<String>,
}

/// What decides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rules {
    /// Differences within this part of one are too small to matter.
    pub margin: f64,
    /// Confidence of every interval, each by itself: no correction is made for the
    /// number of comparisons in the study.
    pub confidence: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { margin: DEFAULT_MARGIN, confidence: super::effect::CONFIDENCE }
    }
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub cell: CellId,
    /// Path of the sender.
    pub tx: String,
    /// Path of the receiver.
    pub rx: String,
    /// True for the cell that others are compared with.
    pub baseline: bool,
    /// What became of its trials.
    pub status: Status,
    /// Throughput at the receiver over the measured trials, bit/s.
    pub throughput: Option<Summary>,
    /// Mean throughput as a part of the copy ceiling: bytes moved in a second over the
    /// bytes one core copies in a second, with buffers of the workload's size.
    pub ceiling_share: Option<f64>,
    /// The labels that its trials earned. More than one: they disagree.
    pub labels: Vec<Counted>,
    /// The sending end.
    pub sender: End,
    /// The receiving end.
    pub receiver: End,
    /// CPU seconds per GiB delivered, both ends together.
    pub cpu_per_gib: Option<Summary>,
    /// Return on investment.
    pub roi: Roi,
    /// TCP retransmits of all measured trials; none where nothing counted them.
    pub retransmits: Option<f64>,
    /// Evenness of the flow.
    pub pace: Option<Pace>,
    /// Throughput against the baseline; none for the baseline and for a cell
    /// that has no measured trial.
    pub comparison: Option<Comparison>,
    /// Warnings of its trials, counted.
    pub warnings: Vec<Counted>,
}

impl Row {
    /// One of its ends.
    pub fn end(&self, role: Role) -> &End {
        match role {
            Role::Sender => &self.sender,
            Role::Receiver => &self.receiver,
        }
    }
}

/// What became of a cell's trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Trials that ran and count.
    pub measured: u32,
    /// Trials that came to no valid end, by reason.
    pub failed: Vec<Failure>,
    /// Trials that an event spoiled: the events of each.
    pub rejected: Vec<String>,
    /// Why it cannot run here, if so: (reason, remedy).
    pub unavailable: Option<(String, String)>,
}

impl Status {
    /// True where no trial of the cell is on record.
    pub fn never_run(&self) -> bool {
        self.measured == 0
            && self.failed.is_empty()
            && self.rejected.is_empty()
            && self.unavailable.is_none()
    }
}

/// One reason for failed trials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    /// The reason, of the first of them.
    pub fault: Fault,
    /// How many.
    pub count: u32,
}

/// One end of a cell's stream, over its measured trials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct End {
    /// Which end.
    pub role: Role,
    /// What it cost in CPU time; none where no meter saw it.
    pub cpu: Option<CpuCost>,
    /// System calls of the engine per GiB; none where they were not counted.
    pub calls_per_gib: Option<Summary>,
    /// Copied or not, and by which evidence.
    pub ledger: Option<Shares>,
    /// What the witness page showed.
    pub witness: Witness,
    /// The system-call table, all trials together.
    pub calls: Vec<CallRow>,
    /// Sizes handed over at once, all trials together.
    pub sizes: SizeDistribution,
    /// What the engine said, counted.
    pub notes: Vec<Counted>,
}

/// CPU time of an end per work done. Means over the trials, in CPU seconds per
/// GiB that the receiver got: `total.mean = user + system + softirq + unsplit`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuCost {
    /// How time was given to the role.
    pub rule: CpuRule,
    /// All of it.
    pub total: Summary,
    /// In user mode.
    pub user: f64,
    /// In the kernel on behalf of a thread.
    pub system: f64,
    /// In softirq and interrupt context. By [`CpuRule::Threads`], softirq on top
    /// of the role's threads is in `system` instead.
    pub softirq: f64,
    /// Not told apart by any tick.
    pub unsplit: f64,
    /// CPUs kept busy, in CPU seconds per second.
    pub cores: Summary,
    /// Part of the role's CPU that was idle with a task in I/O wait; not in the
    /// total. None by [`CpuRule::Threads`].
    pub iowait: Option<f64>,
    /// Part of the total outside of the role's own threads, 0 to 1.
    pub other: f64,
}

/// What the witness page showed, in trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Witness {
    /// Both ends shared the page.
    pub shared: u32,
    /// Somebody had copied it.
    pub copied: u32,
}

/// Return on investment: throughput squared over CPUs kept busy, (Gbit/s)^2 per
/// CPU. Squaring rewards throughput, so it stands beside its parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Roi {
    /// By the sender's CPU time.
    pub sender: Option<Summary>,
    /// By the receiver's.
    pub receiver: Option<Summary>,
    /// By both together.
    pub total: Option<Summary>,
}

/// How even the flow was, from the receiver's throughput in short steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pace {
    /// Length of a step in seconds.
    pub step: f64,
    /// Slowest step of all trials, bit/s.
    pub min: f64,
    /// Fastest step of all trials, bit/s.
    pub max: f64,
    /// Seconds in steps below 5 % of their own trial's mean, all trials together.
    pub stalled: f64,
    /// Trials in which that happened.
    pub stalled_trials: u32,
    /// The steps of the trial with the middle throughput, bit/s.
    pub typical: Vec<f64>,
}

/// A cell against the baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Ratio of throughputs; none where no block has both.
    pub effect: Option<Effect>,
    /// The word for it.
    pub verdict: Verdict,
}
