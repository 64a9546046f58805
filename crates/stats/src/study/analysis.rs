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
/// 2: rates are in work per second (bytes, not bits) and costs per unit of the row's `work`;
/// comparisons and noises are lists, one entry per metric.
///
/// 3: the answer that the `json` report prints beside it has fields in place of sentences.
pub const ANALYSIS_VERSION: u32 = 3;

/// Part of an open loop's requests that may be late before the cell counts as behind.
const BEHIND: f64 = 0.02;

/// The results of a study. Every number in it is finite; unknown values are absent.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Analysis {
    /// [`ANALYSIS_VERSION`].
    pub schema: u32,
    /// The rules that verdicts follow.
    pub rules: Rules,
    /// The cell that the others are compared with.
    pub baseline: CellId,
    /// One row per cell, in the order of the study's header; without the null cell.
    pub rows: Vec<Row>,
    /// The second copy of the baseline, if the study has one.
    pub null: Option<Row>,
    /// The cell that the null cell is a copy of, whose noise is therefore known.
    pub noise_of: Option<CellId>,
    /// How far that cell differs from itself, one entry per metric; empty without two blocks of the
    /// null cell.
    pub noises: Vec<Noise>,
    /// The effect of each level of the factors; `None` unless at least two factors vary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factors: Option<FactorView>,
    /// The size from which copy engines pay off; `None` unless engines and sizes vary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offloading: Option<Offloading>,
    /// The paths over the numbers of connections; `None` unless paths and at least three numbers of
    /// connections vary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// Why the study shows no speed; `None` if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functional: Option<String>,
    /// Instructions that a second of CPU time represents, if hosts counted instructions instead of
    /// time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_per_second: Option<f64>,
    /// The stopping rule, if one was declared.
    pub stopping: Option<StoppingNote>,
    /// The available profiles, and the cost of taking them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiling: Option<ProfilingNote>,
    /// Warnings of all trials, with their counts.
    pub warnings: Vec<CountedText>,
    /// Remarks on the study itself, for the reader.
    pub remarks: Vec<String>,
}

impl Analysis {
    /// Returns the noise of the null comparison in one metric.
    pub fn noise(&self, question: Metric) -> Option<&Noise> {
        self.noises.iter().find(|noise| noise.question == question)
    }

    /// Returns the metric that states the cost of a unit of work: CPU time, or instructions if
    /// those were counted.
    pub fn cost(&self) -> Metric {
        self.instructions_per_second.map_or(Metric::Cpu, |_| Metric::Instructions)
    }

    /// Returns true if the cell has a profile that counts.
    pub fn has_profile(&self, cell: &CellId) -> bool {
        self.profiling.as_ref().is_some_and(|note| note.cells.contains(cell))
    }

    /// Returns the kind of work that the trials count: that of the baseline, or of the first row.
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
    /// Blocks before the rule was first applied.
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
    /// The outcomes of its trials.
    pub status: Status,
    /// The kind of work that its trials count.
    pub work: Work,
    /// Work per second, over the measured trials.
    pub rate: Option<Summary>,
    /// Latency of all measured trials together; `None` if none was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyRow>,
    /// Requests per second that were due; `None` for a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// What happened to its frames; `None` if frames are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hops: Option<HopsRow>,
    /// The work of its ends per frame; empty if it counts no frames.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
    /// Mean rate of bytes as a part of the copy ceiling: bytes moved per second over the bytes that
    /// one core copies per second with buffers of the workload's size.
    pub ceiling_share: Option<f64>,
    /// The labels that its trials earned. If there are several, the trials disagree.
    pub labels: Vec<CountedText>,
    pub sender: End,
    pub receiver: End,
    /// CPU seconds per unit of work, both ends together; see
    /// [`Analysis::instructions_per_second`].
    pub cpu_per_unit: Option<Summary>,
    /// CPU nanoseconds per packet received by the receiver's device, both ends together; `None` if
    /// no meter counted packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_per_packet: Option<Summary>,
    /// Return on investment, T^n / C: the rate as reports show it (Gbit/s) to the power of
    /// [`Rules::roi_throughput`], divided by the CPUs kept busy. An exponent above 1 rewards the
    /// rate and hides cost, so it is shown next to its parts.
    pub roi: PerEnd,
    /// Return on investment by power, T^n / P^m, with P in watts to the power of
    /// [`Rules::roi_power`]; `None` if no meter reported `power.watts`.
    pub roi_power: PerEnd,
    /// Watts that both ends drew, less the idle power if that is subtracted; `None` if no meter
    /// reported power.
    pub watts: Option<Summary>,
    /// Joules per unit of work, both ends together.
    pub joules_per_unit: Option<Summary>,
    /// Service demand: CPU microseconds per KiB delivered; defined for bytes only.
    pub service_demand: PerEnd,
    /// The rate as published work prints it; `None` below five trials.
    pub headline: Option<Headline>,
    /// TCP retransmits of all measured trials; `None` if nothing counted them.
    pub retransmits: Option<f64>,
    /// How even the flow was.
    pub pace: Option<Pace>,
    /// Where the kernel's receive work ran; `None` if no meter saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_work: Option<ReceiveWork>,
    /// Where the softirqs of the sender's device ran, if the ends have separate machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_work: Option<ReceiveWork>,
    /// Sentences about parts of its work that share a CPU or core and so slow each other down.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collisions: Vec<String>,
    /// Comparisons with the baseline, one per metric that both have; empty for the baseline and for
    /// a cell without measured trials.
    pub comparisons: Vec<Comparison>,
    /// Warnings of its trials, with their counts.
    pub warnings: Vec<CountedText>,
}

impl Row {
    /// Returns the comparison with the baseline in one metric.
    pub fn comparison(&self, question: Metric) -> Option<&Comparison> {
        self.comparisons.iter().find(|comparison| comparison.question == question)
    }

    /// Returns the requests per second that were due, if fewer were answered: by 2 % and more than
    /// chance explains. Then its latency grows for as long as the load lasts.
    pub fn behind(&self) -> Option<f64> {
        let (due, rate) = (self.offered?, self.rate.as_ref()?.mean);
        let answered = self.latency.as_ref().map_or(0, |latency| latency.count);
        // The number of requests that were due while those were answered.
        let limit = BEHIND + by_chance(answered as f64 * due / rate);
        (rate < due * (1.0 - limit)).then_some(due)
    }

    /// Returns the ratio to the baseline in one metric.
    pub fn effect(&self, question: Metric) -> Option<&Effect> {
        self.comparison(question)?.effect.as_ref()
    }

    /// Returns watts and joules per unit of work, each for the sender, the receiver and both;
    /// `None` if no meter reported power.
    pub fn energy(&self) -> Option<[[Option<Summary>; 3]; 2]> {
        let (tx, rx) = (&self.sender, &self.receiver);
        let watts = [tx.watts, rx.watts, self.watts];
        let joules = [tx.joules_per_unit, rx.joules_per_unit, self.joules_per_unit];
        watts.iter().any(Option::is_some).then_some([watts, joules])
    }

    /// Returns one of its ends.
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
    /// Exchanges of all trials that received a response.
    pub count: u64,
    /// Exchanges without a response: in the percentiles they count as longer than all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<u64>,
    /// Mean of those with a response; `None` if there were none.
    pub mean: Option<f64>,
    pub max: Option<f64>,
    /// The percentiles that enough exchanges lie above, in ascending order.
    pub percentiles: Vec<PercentileRow>,
}

impl LatencyRow {
    /// Returns a percentile of all trials together; `None` if too few exchanges lie above it.
    pub fn percentile(&self, percentile: Percentile) -> Option<&PercentileRow> {
        self.percentiles.iter().find(|row| row.percentile == percentile)
    }
}

/// One percentile of a cell's latency, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PercentileRow {
    pub percentile: Percentile,
    /// Over all trials together.
    pub pooled: f64,
    /// Over each trial by itself, with the interval of the mean; `None` if the trials were too
    /// short for it.
    pub trials: Option<Summary>,
}

/// The outcomes of a cell's trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Status {
    /// Trials that ran and count.
    pub measured: u32,
    /// Trials that failed, by reason.
    pub failed: Vec<Failure>,
    /// The events of each trial that they invalidated.
    pub rejected: Vec<String>,
    /// Mean rate of those; not for comparisons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_rate: Option<f64>,
    /// The disturbances of each trial that counts although other processes interfered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<String>,
    /// Why it cannot run here: (reason, remedy); `None` if it can.
    pub unavailable: Option<(String, String)>,
}

impl Status {
    pub fn failures(&self) -> u32 {
        self.failed.iter().map(|failure| failure.count).sum()
    }

    /// Returns the number of trials that ended, whether they count or not.
    pub fn ended(&self) -> u32 {
        self.measured + self.failures() + self.rejected.len() as u32
    }

    /// Returns true if no trial of the cell is on record.
    pub fn never_run(&self) -> bool {
        self.ended() == 0 && self.unavailable.is_none()
    }
}

/// One reason for failed trials.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Failure {
    /// The first trial's fault with this reason.
    pub fault: Fault,
    pub count: u32,
}

/// One end of a cell's stream, over its measured trials.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct End {
    pub role: Role,
    /// Its CPU time; `None` if no meter measured it.
    pub cpu: Option<CpuCost>,
    /// CPU time that it took on the other end's host, if it is a guest there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestCost>,
    /// Watts that its host drew, less the idle power if that is subtracted; `None` if it shares a
    /// machine or a meter with the other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts: Option<Summary>,
    /// Joules of its host per unit of work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules_per_unit: Option<Summary>,
    /// System calls of the engine per unit of work; `None` if not counted.
    pub calls_per_unit: Option<Summary>,
    /// Shares of bytes that were copied or not, with the evidence.
    pub ledger: Option<Shares>,
    /// What the witness page showed.
    pub witness: Witness,
    /// The system-call table, all trials together.
    pub calls: Vec<PooledCall>,
    /// The same for each thread, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls_by_thread: Vec<PooledCalls>,
    /// Transfer sizes, all trials together.
    pub sizes: SizeDistribution,
    /// Idle states of its CPU; empty if no meter measured them or it has no CPU of its own.
    pub idle: Vec<IdleShare>,
    /// Fragments per receive, all trials together; `None` if nothing was received into device
    /// memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragments: Option<Fragments>,
    /// Notes of the engine, with their counts.
    pub notes: Vec<CountedText>,
}

/// CPU time of an end per unit of work. Means over the trials, in CPU seconds per unit of work:
/// `total.mean = user + system + softirq + unsplit`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CpuCost {
    /// How time was attributed to the role.
    pub rule: CpuRule,
    /// Whether the kinds come from the kernel's account, not from ticks.
    pub exact: bool,
    pub total: Summary,
    pub user: f64,
    /// In the kernel on behalf of a thread.
    pub system: f64,
    /// In softirq and interrupt context. Under [`CpuRule::Threads`], softirqs on top of the role's
    /// threads are in `system` instead.
    pub softirq: f64,
    /// Not attributed by any tick.
    pub unsplit: f64,
    /// CPUs kept busy, in CPU seconds per second.
    pub cores: Summary,
    /// Part of the window in which the role's CPU was idle with a task waiting for I/O; not in the
    /// total. `None` under [`CpuRule::Threads`].
    pub iowait: Option<f64>,
    /// Part of the total outside of the role's own threads, 0 to 1.
    pub other: f64,
}

/// CPU time that a guest took on its host: CPUs kept busy, in CPU seconds per second. The end's own
/// time, as counted within the guest, is part of what its virtual CPUs took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GuestCost {
    /// Its virtual CPUs.
    pub vcpu: f64,
    /// The other threads of its qemu.
    pub qemu: f64,
    /// The vhost workers.
    pub vhost: f64,
    /// All of these.
    pub total: Summary,
    /// The part of the total in user space and in the guest, not in the host's kernel.
    pub user: f64,
    /// CPU seconds per trial.
    pub seconds: Summary,
}

/// What the witness page showed, in trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Witness {
    /// Both ends shared the page in this many.
    pub shared: u32,
    /// It had been copied in this many.
    pub copied: u32,
}

/// How even the flow was, from the receiver's throughput in short steps.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Pace {
    /// Length of a step in seconds.
    pub step: f64,
    /// Slowest step of all trials, in bytes per second.
    pub min: f64,
    /// Fastest step of all trials, in bytes per second.
    pub max: f64,
    /// Seconds in steps below 5 % of their own trial's mean, all trials together.
    pub stalled: f64,
    /// Number of trials with such steps.
    pub stalled_trials: u32,
    /// The steps of the trial with the median rate, in bytes per second.
    pub typical: Vec<f64>,
}
