//! The results of a study: the numbers and verdicts that every report prints.

use super::factors::FactorView;
use super::offloading::Offloading;
use super::profiling::ProfilingNote;
use super::scaling::Scaling;
use crate::cell::{
    CountedText, Fact, Fragments, HopsRow, IdleShare, PooledCall, PooledCalls, ReceiveWork, Shares,
};
use crate::estimate::{Effect, Summary};
use crate::metric::Metric;
use crate::rules::Rules;
use crate::trial::{CpuRule, Headline, PerEnd, by_chance};
use crate::verdict::{Comparison, Noise};
use bytepath_record::{CellId, Fault, Percentile, Role, SizeDistribution, Work};
use schemars::JsonSchema;
use serde::Serialize;

/// Version of this record, as the `json` report prints it. It grows when a
/// field changes its name or meaning, not when one is added.
///
/// 2: rates are in work per second (bytes, not bits) and costs per unit of the row's
/// `work`; comparisons and noises are lists, one of each question.
pub const ANALYSIS_VERSION: u32 = 3;

/// Part of an open loop's requests that may be late.
const BEHIND: f64 = 0.02;

/// A study, analysed. Every number in it is finite; what is unknown is absent.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
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
    /// The cell that the null cell is a copy of: the one whose noise is known.
    pub noise_of: Option<CellId>,
    /// How far that cell is from itself, one of each question; none without two
    /// blocks of the null cell.
    pub noises: Vec<Noise>,
    /// What each level of the factors does; `None` unless two of them vary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factors: Option<FactorView>,
    /// From which size on copy engines pay; `None` unless engines and sizes vary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offloading: Option<Offloading>,
    /// The paths over the numbers of connections; `None` unless paths and three of these vary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// Why the study shows no speed; `None` if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functional: Option<String>,
    /// Instructions that a second of CPU time represents, where hosts counted those and
    /// not time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_per_second: Option<f64>,
    /// The stopping rule, where one was declared.
    pub stopping: Option<StoppingNote>,
    /// What profiles there are, and what it cost to take them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiling: Option<ProfilingNote>,
    /// Warnings of all trials, counted.
    pub warnings: Vec<CountedText>,
    /// What the reader should know of the study itself.
    pub remarks: Vec<String>,
}

impl Analysis {
    /// How far a cell is from itself in one question.
    pub fn noise(&self, question: Metric) -> Option<&Noise> {
        self.noises.iter().find(|noise| noise.question == question)
    }

    /// What a unit of work cost, as it is asked: CPU time, or instructions where they
    /// were counted.
    pub fn cost(&self) -> Metric {
        self.instructions_per_second.map_or(Metric::Cpu, |_| Metric::Instructions)
    }

    /// True if the cell has a profile that counts.
    pub fn has_profile(&self, cell: &CellId) -> bool {
        self.profiling.as_ref().is_some_and(|note| note.cells.contains(cell))
    }

    /// What the trials count: that of the baseline, or of the first row.
    pub fn work(&self) -> Work {
        let baseline = self.rows.iter().find(|row| row.baseline);
        baseline.or(self.rows.first()).map_or(Work::Bytes, |row| row.work)
    }
}

/// A stopping rule and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StoppingNote {
    /// Stop when every interval is within this part of its ratio.
    pub within: f64,
    /// Blocks before the rule was asked.
    pub at_least: u32,
    pub most: u32,
    /// Blocks that were started.
    pub run: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    pub cell: CellId,
    /// Path of the sender.
    pub tx: String,
    /// Path of the receiver.
    pub rx: String,
    /// True for the cell that others are compared with.
    pub baseline: bool,
    /// The outcome of its trials.
    pub status: Status,
    /// What its trials count.
    pub work: Work,
    /// Work per second over the measured trials.
    pub rate: Option<Summary>,
    /// Latency of all measured trials together; `None` if none was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyRow>,
    /// Requests per second that were due; `None` in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// The outcome of its frames; `None` if frames are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hops: Option<HopsRow>,
    /// What its ends did for each frame; empty of what counts no frames.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
    /// Mean rate of bytes as a part of the copy ceiling: bytes moved in a second over the
    /// bytes one core copies in a second, with buffers of the workload's size.
    pub ceiling_share: Option<f64>,
    /// The labels that its trials earned. More than one: they disagree.
    pub labels: Vec<CountedText>,
    pub sender: End,
    pub receiver: End,
    /// CPU seconds per unit of work, both ends together; see
    /// [`Analysis::instructions_per_second`].
    pub cpu_per_unit: Option<Summary>,
    /// CPU nanoseconds per packet that the receiver's device took in, both ends
    /// together; `None` if no meter counted packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_per_packet: Option<Summary>,
    /// Return on investment, T^n / C: the rate as reports show it (Gbit/s) to the
    /// power of [`Rules::roi_throughput`] over CPUs kept busy. An exponent above 1
    /// rewards the rate and hides cost, so it is shown next to its parts.
    pub roi: PerEnd,
    /// Return on investment by power, T^n / P^m, with P in watts to the power of
    /// [`Rules::roi_power`]; `None` if no meter reported
    /// `power.watts`.
    pub roi_power: PerEnd,
    /// Watts that both ends drew, less the idle power if that is subtracted; none
    /// where no meter reported any.
    pub watts: Option<Summary>,
    /// Joules per unit of work, both ends together.
    pub joules_per_unit: Option<Summary>,
    /// Service demand: CPU microseconds per KiB delivered; none but of bytes.
    pub service_demand: PerEnd,
    /// The rate as published work prints it; `None` below five trials.
    pub headline: Option<Headline>,
    /// TCP retransmits of all measured trials; `None` if nothing counted them.
    pub retransmits: Option<f64>,
    /// Evenness of the flow.
    pub pace: Option<Pace>,
    /// Where the kernel's receive work ran; `None` if no meter saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_work: Option<ReceiveWork>,
    /// Where the softirqs of the sender's device ran, if the ends have separate machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_work: Option<ReceiveWork>,
    /// Parts of its work that were put in each other's way, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collisions: Vec<String>,
    /// Against the baseline, one of each question that has figures of both; none for
    /// the baseline and for a cell that has no measured trial.
    pub comparisons: Vec<Comparison>,
    /// Warnings of its trials, counted.
    pub warnings: Vec<CountedText>,
}

impl Row {
    /// How it compares with the baseline in one question.
    pub fn comparison(&self, question: Metric) -> Option<&Comparison> {
        self.comparisons.iter().find(|comparison| comparison.question == question)
    }

    /// The requests per second that were due, where fewer were answered: by 2 % and more than chance
    /// explains. Its latency grows for as long as the load lasts then.
    pub fn behind(&self) -> Option<f64> {
        let (due, rate) = (self.offered?, self.rate.as_ref()?.mean);
        let answered = self.latency.as_ref().map_or(0, |latency| latency.count);
        // As many as were due while those were answered.
        let limit = BEHIND + by_chance(answered as f64 * due / rate);
        (rate < due * (1.0 - limit)).then_some(due)
    }

    /// Its ratio to the baseline in one question.
    pub fn effect(&self, question: Metric) -> Option<&Effect> {
        self.comparison(question)?.effect.as_ref()
    }

    /// Watts and joules per unit of work, each by the sender, the receiver and both; none
    /// where no meter reported power.
    pub fn energy(&self) -> Option<[[Option<Summary>; 3]; 2]> {
        let (tx, rx) = (&self.sender, &self.receiver);
        let watts = [tx.watts, rx.watts, self.watts];
        let joules = [tx.joules_per_unit, rx.joules_per_unit, self.joules_per_unit];
        watts.iter().any(Option::is_some).then_some([watts, joules])
    }

    /// One of its ends.
    pub fn end(&self, role: Role) -> &End {
        match role {
            Role::Sender => &self.sender,
            Role::Receiver => &self.receiver,
        }
    }
}

/// Latency of a cell's measured trials, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LatencyRow {
    /// Exchanges of all trials that brought a response.
    pub count: u64,
    /// Those that brought none: they count as longer than all others in the percentiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<u64>,
    /// Of those that brought a response; `None` if none did.
    pub mean: Option<f64>,
    pub max: Option<f64>,
    /// The percentiles that enough exchanges lie above, ascending.
    pub percentiles: Vec<PercentileRow>,
}

impl LatencyRow {
    /// A percentile of all trials together; `None` if too few exchanges lie above it.
    pub fn percentile(&self, percentile: Percentile) -> Option<&PercentileRow> {
        self.percentiles.iter().find(|row| row.percentile == percentile)
    }
}

/// One percentile of a cell's latency, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PercentileRow {
    pub percentile: Percentile,
    /// Of all trials together.
    pub pooled: f64,
    /// Of each trial by itself, with the interval of the mean; `None` if the
    /// trials were too short for it.
    pub trials: Option<Summary>,
}

/// The outcome of a cell's trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Status {
    /// Trials that ran and count.
    pub measured: u32,
    /// Trials that failed, by reason.
    pub failed: Vec<Failure>,
    /// Trials that an event invalidated: the events of each.
    pub rejected: Vec<String>,
    /// Mean rate of those; of no use for a comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_rate: Option<f64>,
    /// What others did while trials ran that count: the disturbances of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<String>,
    /// Why it cannot run here, if so: (reason, remedy).
    pub unavailable: Option<(String, String)>,
}

impl Status {
    pub fn failures(&self) -> u32 {
        self.failed.iter().map(|failure| failure.count).sum()
    }

    /// Trials that ended, whether they count or not.
    pub fn ended(&self) -> u32 {
        self.measured + self.failures() + self.rejected.len() as u32
    }

    /// True where no trial of the cell is on record.
    pub fn never_run(&self) -> bool {
        self.ended() == 0 && self.unavailable.is_none()
    }
}

/// One reason for failed trials.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Failure {
    /// The reason, of the first of them.
    pub fault: Fault,
    pub count: u32,
}

/// One end of a cell's stream, over its measured trials.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct End {
    pub role: Role,
    /// What it cost in CPU time; `None` if no meter saw it.
    pub cpu: Option<CpuCost>,
    /// What it took of the other end's host, if it is a guest there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestCost>,
    /// Watts that its host drew, less the idle power if that is subtracted; `None` if
    /// it shares a machine or a meter with the other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts: Option<Summary>,
    /// Joules of its host per unit of work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules_per_unit: Option<Summary>,
    /// System calls of the engine per unit of work; `None` if they were not counted.
    pub calls_per_unit: Option<Summary>,
    /// Copied or not, and by which evidence.
    pub ledger: Option<Shares>,
    /// What the witness page showed.
    pub witness: Witness,
    /// The system-call table, all trials together.
    pub calls: Vec<PooledCall>,
    /// The same of each thread, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls_by_thread: Vec<PooledCalls>,
    /// Transfer sizes, all trials together.
    pub sizes: SizeDistribution,
    /// Where its CPU rested; empty where no meter saw it or it has no CPU of its own.
    pub idle: Vec<IdleShare>,
    /// Fragments per receive, all trials together; `None` if nothing was received
    /// into device memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragments: Option<Fragments>,
    /// Notes of the engine, counted.
    pub notes: Vec<CountedText>,
}

/// CPU time of an end per work done. Means over the trials, in CPU seconds per unit
/// of work: `total.mean = user + system + softirq + unsplit`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CpuCost {
    /// How time was given to the role.
    pub rule: CpuRule,
    /// Whether the kinds come from the kernel's account, not from ticks.
    pub exact: bool,
    pub total: Summary,
    pub user: f64,
    /// In the kernel on behalf of a thread.
    pub system: f64,
    /// In softirq and interrupt context. By [`CpuRule::Threads`], softirq on top
    /// of the role's threads is in `system` instead.
    pub softirq: f64,
    /// Not attributed by any tick.
    pub unsplit: f64,
    /// CPUs kept busy, in CPU seconds per second.
    pub cores: Summary,
    /// Part of the role's CPU that was idle with a task in I/O wait; not in the
    /// total. `None` by [`CpuRule::Threads`].
    pub iowait: Option<f64>,
    /// Part of the total outside of the role's own threads, 0 to 1.
    pub other: f64,
}

/// What a guest took of its host: CPUs kept busy, in CPU seconds per second. The end's own time, as
/// the guest counts it, is part of what its virtual CPUs took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GuestCost {
    /// Its virtual CPUs.
    pub vcpu: f64,
    /// The other threads of its qemu.
    pub qemu: f64,
    /// vhost's workers.
    pub vhost: f64,
    /// All of these.
    pub total: Summary,
    /// What of the total was in programs and in the guest, and not in the host's kernel.
    pub user: f64,
    /// CPU seconds of a trial.
    pub seconds: Summary,
}

/// What the witness page showed, in trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Witness {
    /// Both ends shared the page.
    pub shared: u32,
    /// It had been copied.
    pub copied: u32,
}

/// How even the flow was, from the receiver's throughput in short steps.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Pace {
    /// Length of a step in seconds.
    pub step: f64,
    /// Slowest step of all trials, bytes per second.
    pub min: f64,
    /// Fastest step of all trials, bytes per second.
    pub max: f64,
    /// Seconds in steps below 5 % of their own trial's mean, all trials together.
    pub stalled: f64,
    /// Trials in which that happened.
    pub stalled_trials: u32,
    /// The steps of the trial with the middle rate, bytes per second.
    pub typical: Vec<f64>,
}
