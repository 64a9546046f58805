//! A trial: one cell, run once, with everything that was observed.

use super::{
    CellId, Clocks, Fault, FaultKind, FragmentCounts, Hops, Latency, Ledger, ProfileRecord,
    Reading, SCHEMA_VERSION, Scope, Series, SettingRecord, TimeSpan, Work,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Metric: packets that a role's network device received within the window.
pub const RX_PACKETS: &str = "link.rx_packets";

/// Metric: bytes per second that the sender receives, if the stream goes both ways.
pub const REVERSE: &str = "throughput.reverse";

/// One cell, run once. A line of `trials.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Version of this record.
    pub schema: u32,
    /// Which cell.
    pub cell: CellId,
    /// Which pass over all cells, counted from 0.
    pub block: u32,
    /// Position in the study, counted from 0, in the order actually run.
    pub order: u32,
    /// When it began, milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// Its outcome.
    pub status: TrialStatus,
    /// The kind of work that is counted. Records of version 1 lack this field and count bytes.
    #[serde(default)]
    pub work: Work,
    /// Length of the measured window in seconds, at the end that counts: the receiver
    /// of bytes and packets, the client of exchanges.
    pub window: f64,
    /// Work done in that window. Version 1 calls it `window_bytes`.
    #[serde(alias = "window_bytes")]
    pub count: u64,
    /// How long the exchanges of that window took; `None` for bytes and packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Requests per second that were due in an open loop; `None` for a closed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// The outcome of every frame; `None` for bytes and exchanges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<Hops>,
    /// When the window was open, by the controller's clock; several spans if the cells take turns.
    /// The log of an external meter is aligned with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<TimeSpan>,
    /// The hosts' clocks, if the hosts do not share a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<Clocks>,
    /// The earned label: "zero-copy", "copied", ... Empty unless measured.
    pub label: String,
    /// The record of each end.
    pub roles: Vec<RoleRecord>,
    /// All readings of the meters.
    pub readings: Vec<Reading>,
    /// Metrics over time.
    pub series: Vec<Series>,
    /// Warnings for the reader; none of them makes the trial invalid.
    pub warnings: Vec<String>,
    /// What other programs did on its CPUs meanwhile, in words. The trial still counts, as one of a
    /// busy machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbances: Vec<String>,
    /// Settings made on the NICs for this trial, as its paths require, and restored after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepared: Vec<SettingRecord>,
    /// The profile that was taken. Sampling costs throughput, so a trial with a
    /// profile is not a measurement of its cell: see `Study::profiles`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileRecord>,
    /// Name of the pair of hosts that ran it, if the study was merged from several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<String>,
}

/// Prefix of a trial's warning that another program changed a setting: `host: NAME was VALUE and is
/// VALUE`.
pub const HOST_CHANGE: &str = "host: ";

/// The outcome of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "is")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum TrialStatus {
    /// It ran and counts.
    #[default]
    Measured,
    /// It ran, but an event invalidates it. A value never does.
    Rejected {
        /// What happened, each in words: "CPU 1 lost 12 % to steal".
        events: Vec<String>,
    },
    /// It cannot run on this host.
    Unavailable {
        /// What is missing.
        reason: String,
        /// What would help.
        remedy: String,
    },
    /// It started and did not come to a valid end.
    Failed {
        /// Why.
        fault: Fault,
    },
}

/// The two ends of a stream.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum Role {
    /// Sends the stream.
    Sender,
    /// Receives it.
    Receiver,
}

impl Role {
    /// Both, in the order of the bytes.
    pub const ALL: [Role; 2] = [Role::Sender, Role::Receiver];

    /// The other end.
    pub fn peer(self) -> Role {
        match self {
            Role::Sender => Role::Receiver,
            Role::Receiver => Role::Sender,
        }
    }
}

/// What one end counted, all flows together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoleRecord {
    /// Which end.
    pub role: Role,
    /// Bytes of the whole flow, warm-up and drain included.
    pub total_bytes: u64,
    /// Work within the measured window, as this end counts it. Version 1 calls it
    /// `window_bytes`.
    #[serde(alias = "window_bytes")]
    pub count: u64,
    /// Length of that window in seconds, by this end's clock.
    pub window: f64,
    /// Bytes by whether they were copied, over the whole flow.
    pub ledger: Ledger,
    /// System calls of the engine within the window.
    pub calls: Vec<CallRow>,
    /// The same per thread, if there are several and at most [`MOST_TABLES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls_by_thread: Vec<ThreadCalls>,
    /// Sizes of the pieces that one call transferred within the window.
    pub sizes: SizeDistribution,
    /// Fragments per receive within the window; `None` if nothing was received
    /// into device memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragments: Option<FragmentCounts>,
    /// How long the exchanges of this end's flows took within the window. Used on the wire between
    /// agent and controller; on disk it is part of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Frames counted by this end. Used on the wire between agent and controller; on disk it is
    /// part of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<Hops>,
    /// The engine's threads within the window.
    pub threads: Vec<ThreadTime>,
    /// What the witness page showed about the sender's path; `None` at the receiver.
    #[serde(default)]
    pub witness: Option<ProvenWitness>,
    /// Notes of the engine for the reader.
    pub notes: Vec<String>,
}

impl RoleRecord {
    /// The record of an end that has done nothing.
    pub fn blank(role: Role) -> RoleRecord {
        RoleRecord {
            role,
            total_bytes: 0,
            count: 0,
            window: 0.0,
            ledger: Ledger::default(),
            calls: Vec::new(),
            calls_by_thread: Vec::new(),
            sizes: SizeDistribution::default(),
            fragments: None,
            latency: None,
            hops: None,
            threads: Vec::new(),
            witness: None,
            notes: Vec::new(),
        }
    }
}

/// Result of the witness page: the sender sends one page by its own path, waits
/// until the peer's kernel has it, overwrites it, and only then the receiver
/// reads it. What the receiver sees shows whether the page was copied on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProvenWitness {
    /// The receiver saw the new content: both ends shared one page.
    Shared,
    /// The receiver saw the old content: it had been copied by then.
    Copied,
}

/// Largest number of threads of a role for which each thread's system-call table is kept; with
/// more, only the sum remains.
pub const MOST_TABLES: usize = 16;

/// The system-call table of a thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadCalls {
    /// Name of the thread, by its role: `sender/0`.
    pub thread: String,
    /// System calls of the engine within the window.
    pub calls: Vec<CallRow>,
}

impl ThreadCalls {
    /// Selects the tables to keep: those of threads that made calls; none if there is only one
    /// thread or more than [`MOST_TABLES`]. Idle threads count towards that limit, too: which
    /// threads are idle differs between trials, and all trials of a cell should keep the same
    /// tables.
    pub fn select_tables(mut all: Vec<ThreadCalls>) -> Vec<ThreadCalls> {
        let few = (2..=MOST_TABLES).contains(&all.len());
        all.retain(|thread| few && !thread.calls.is_empty());
        all
    }
}

/// One line of the system-call table of a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallRow {
    /// Name of the call.
    pub name: String,
    /// How often it was made.
    pub calls: u64,
    /// How often it returned an error (would-block included).
    pub errors: u64,
    /// Sum of its return values, in bytes.
    pub bytes: u64,
    /// Time inside it, seconds.
    pub total: f64,
    /// Shortest, seconds.
    pub min: f64,
    /// Mean, seconds.
    pub avg: f64,
    /// Longest, seconds.
    pub max: f64,
    /// Within a trial: standard deviation of the mean, divided by the mean, in percent, as
    /// `perf trace -s` prints it. Over several trials: that of the trials' means.
    pub stddev_percent: f64,
}

/// Distribution of the sizes of pieces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SizeDistribution {
    /// How many pieces.
    pub count: u64,
    /// Smallest, bytes.
    pub min: u64,
    /// Mean, bytes.
    pub mean: f64,
    /// Largest, bytes.
    pub max: u64,
    /// (percentile, bytes): 10, 50, 90, 99.
    pub percentiles: Vec<(f64, u64)>,
}

/// Suffix of the names of threads that model a device. Their time is in no sum.
pub const MODEL: &str = " model";

/// Run time of one thread within the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadTime {
    /// Name of the thread.
    pub name: String,
    /// Thread id.
    pub tid: u32,
    /// Time on a CPU by `/proc/PID/task/TID/schedstat`, seconds. It contains softirq time that ran
    /// on top of the thread.
    pub run: f64,
    /// Time it waited for a CPU, seconds.
    pub wait: f64,
    /// User time by ticks, seconds.
    pub user: f64,
    /// System time by ticks, seconds. It contains softirq time on top of the thread.
    pub system: f64,
    /// Voluntary context switches.
    pub voluntary: u64,
    /// Involuntary context switches.
    pub involuntary: u64,
}

impl Trial {
    /// A trial before anything has been measured.
    pub fn blank(cell: CellId, block: u32, order: u32) -> Trial {
        let fault = Fault::new(FaultKind::Interrupted, "the trial has not ended");
        let status = TrialStatus::Failed { fault };
        Trial { schema: SCHEMA_VERSION, cell, block, order, status, ..Trial::default() }
    }

    /// Returns units of work (bytes, exchanges, packets) per second, or `None` unless it was
    /// measured.
    pub fn rate(&self) -> Option<f64> {
        self.rate_even_if_rejected().filter(|_| self.status == TrialStatus::Measured)
    }

    /// Like [`Self::rate`], but also for a rejected trial.
    pub fn rate_even_if_rejected(&self) -> Option<f64> {
        let ran = matches!(self.status, TrialStatus::Measured | TrialStatus::Rejected { .. });
        (ran && self.window > 0.0).then(|| self.count as f64 / self.window)
    }

    /// Returns the packets that the receiver's devices received within the window, as they count
    /// them: with segmentation offload, and nothing on the way that segments it, a packet of up to
    /// 64 KiB (with BIG TCP: 512 KiB) counts as one. If streams go both ways, the packets that the
    /// sender's devices received are added. `None` if no meter counted.
    pub fn packets(&self) -> Option<f64> {
        let of = |role| {
            let is_meant = |r: &&Reading| {
                r.metric == RX_PACKETS && matches!(r.scope, Scope::Link(at, _) if at == role)
            };
            let counts = self.readings.iter().filter(is_meant).map(|reading| reading.value);
            // There is one reading per adapter.
            counts.reduce(|one, other| one + other)
        };
        let mut count = of(Role::Receiver)?;
        if self.readings.iter().any(|reading| reading.metric == REVERSE) {
            count += of(Role::Sender)?;
        }
        (count.is_finite() && count > 0.0).then_some(count)
    }

    /// Returns the record of one end.
    pub fn role(&self, role: Role) -> Option<&RoleRecord> {
        self.roles.iter().find(|r| r.role == role)
    }

    /// True if each host has its own machine, judged by the clocks or by the scopes of readings.
    pub fn has_hosts_apart(&self) -> bool {
        let of_one = |r: &Reading| matches!(r.scope, Scope::MachineOf(_));
        self.clocks.is_some() || self.readings.iter().any(of_one)
    }

    /// Returns the value of a metric of the machine that a role's host runs on.
    pub fn of_machine(&self, metric: &str, role: Role) -> Option<f64> {
        self.value(metric, |scope| scope.is_machine() && scope.is_on_host_of(role))
    }

    /// Returns the value of a metric of one CPU of that machine.
    pub fn of_cpu(&self, metric: &str, role: Role, cpu: u32) -> Option<f64> {
        self.value(metric, |scope| scope.cpu() == Some(cpu) && scope.is_on_host_of(role))
    }

    /// Returns the value of the reading with exactly this scope.
    pub fn reading(&self, metric: &str, scope: &Scope) -> Option<f64> {
        self.value(metric, |other| other == scope)
    }

    fn value(&self, metric: &str, is_meant: impl Fn(&Scope) -> bool) -> Option<f64> {
        self.readings.iter().find(|r| r.metric == metric && is_meant(&r.scope)).map(|r| r.value)
    }
}
