//! The record of an observed program.

use super::{CallRow, Facts, Ledger, Reading, ThreadTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A program, watched from its start to its end or for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    /// Version of this record.
    pub schema: u32,
    /// Version of bytepath that made it.
    pub bytepath: String,
    /// The command, word by word; for a process that was already running, as far as it can be read.
    pub command: Vec<String>,
    /// Its process id.
    pub pid: u32,
    /// When watching began, milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// How long it was watched, seconds.
    pub seconds: f64,
    /// The machine; `None` in older records, which lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Facts>,
    /// How it ended.
    pub ending: Ending,
    /// What counted the system calls; `None` if nothing could.
    pub counter: Option<Counter>,
    /// Every thread that was followed, including its children's. If there are very many, those of
    /// one name are merged.
    pub threads: Vec<ObservedThread>,
    /// The table of system calls, one entry for each thread and call.
    pub calls: Vec<ObservedCall>,
    /// Sockets that carried bytes, including those that were closed.
    pub sockets: Vec<ObservedSocket>,
    /// What it sent.
    pub sent: Traffic,
    /// What it received.
    pub received: Traffic,
    /// What TCP recorded about its connections; `None` if the kernel could not be queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<ObservedTcp>,
    /// What limited the program, in sentences, the most important first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// CPU time of the program.
    pub used: Option<CpuTime>,
    /// CPU time of the machine meanwhile: `cpu.user`, `cpu.softirq`, and so on.
    pub machine: Vec<Reading>,
    /// Bytes actually copied between kernel and program, measured independently of the ledgers.
    pub copies: CopyCount,
    /// Where its time went, by samples; `None` if none were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileSummary>,
    /// How the copies contradict the ledgers; `None` if they do not, or cannot be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<String>,
    /// Figures that are missing, and why.
    pub absent: Vec<Absent>,
    /// Warnings for the reader of the figures.
    pub warnings: Vec<String>,
}

impl Observation {
    /// Returns the process ids of the program: its own, and those of its threads and children.
    pub fn pids(&self) -> Vec<u32> {
        let threads = self.threads.iter().map(|thread| thread.pid).filter(|pid| *pid != 0);
        let mut pids: Vec<u32> = threads.chain([self.pid]).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// It exited with this code.
    Code(i32),
    /// A signal killed it.
    Signal(i32),
    /// It was still running when watching ended.
    Running,
    /// It exited, and only its parent knows the status.
    Gone,
}

/// What counts system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Counter {
    /// BPF at typed tracepoints, with per-thread state in task storage.
    TaskStorage,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedThread {
    /// Thread id.
    pub tid: u32,
    /// The process it belongs to; 0 if unknown.
    pub pid: u32,
    /// The thread that created it; 0 if it existed before.
    pub parent: u32,
    /// Its last name.
    pub name: String,
    /// Whether it ended while it was watched.
    pub ended: bool,
    /// CPU time and context switches while observed; `None` if unknown.
    pub time: Option<ThreadTime>,
    /// Number of other threads of the same name whose figures are included, if a program had very
    /// many.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub joined: u64,
}

/// All calls to one system call by one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedCall {
    /// Thread id.
    pub tid: u32,
    /// Number of the call on this architecture.
    pub number: u32,
    /// Calls, errors, times, bytes. Here `stddev_percent` is the standard deviation of the mean, as
    /// in `perf trace -s`.
    pub row: CallRow,
    /// Number of calls that took 2^i to 2^(i+1) nanoseconds; the last entry also has all longer
    /// ones.
    pub histogram: Vec<u64>,
}

/// A socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedSocket {
    /// Inode number, as in `/proc/PID/fd`; `None` if the entry stands for several sockets that
    /// could not be distinguished.
    pub inode: Option<u64>,
    /// Its kind: `tcp`, `udp`, `unix`, ...
    pub kind: String,
    /// The process that used it first.
    pub pid: u32,
    /// Own address, if there is one.
    pub local: Option<String>,
    /// The peer's address.
    pub remote: Option<String>,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Calls that sent.
    pub send_calls: u64,
    /// Calls that received.
    pub receive_calls: u64,
}

/// TCP connections of a program, and the counters of TCP meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedTcp {
    /// The connections, by bytes sent and received, most first.
    pub connections: Vec<Connection>,
    /// Counters of the network namespaces of these connections meanwhile, by the kernel's names
    /// (`/proc/net/snmp`, `/proc/net/netstat`). Every program in them contributes.
    pub counters: BTreeMap<String, u64>,
}

/// A TCP connection, as reported by the kernel (`TCP_INFO`) when it was closed or watching ended.
/// Counts and times begin when watching began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Inode number of its socket; `None` if it was closed before we could read it.
    pub inode: Option<u64>,
    /// Own address.
    pub local: String,
    /// The peer's address.
    pub remote: String,
    /// Whether the kernel had released it by then, so that these figures are final.
    pub closed: bool,
    /// Congestion control; empty if it was closed before we could read it.
    pub congestion: String,
    /// Bytes that the peer has acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Bytes of payload sent, including retransmissions.
    pub bytes_sent: u64,
    /// Bytes of payload retransmitted.
    pub bytes_retransmitted: u64,
    /// Segments with payload sent, including retransmissions.
    pub segments_sent: u64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Segments that the peer reported as received twice (DSACK).
    pub duplicates: u64,
    /// Retransmission timeouts (Linux 6.7).
    pub timeouts: u64,
    /// Number of times that sent segments turned out to have been reordered on their way.
    pub reorderings: u64,
    /// Segments received out of order.
    pub out_of_order: u64,
    /// Time with data unsent or not yet acknowledged, seconds.
    pub busy: f64,
    /// Part of it spent waiting for the peer's receive window, seconds.
    pub window_limited: f64,
    /// Part of it spent with a full send buffer, seconds.
    pub buffer_limited: f64,
    /// Smoothed round-trip time in seconds, last value.
    pub rtt: f64,
    /// Smallest round-trip time in seconds; `None` if none was measured.
    pub min_rtt: Option<f64>,
    /// Delivery rate in bytes per second, last value.
    pub delivery_rate: f64,
    /// Congestion window in segments, last value.
    pub cwnd: u64,
    /// Payload of the largest segment sent, bytes.
    pub mss: u64,
}

/// One direction of all sockets together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    /// Bytes by whether they were copied: one ledger over all sockets, TCP and others.
    pub ledger: Ledger,
    /// Its label, in a word or two.
    pub label: String,
    /// Bytes over TCP, by the kind of call that moved them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<Way>,
}

/// Bytes that one kind of call moved over TCP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Way {
    /// The data path of bytepath that makes the same calls: `socket`, `sendfile`, ...
    pub path: String,
    /// Bytes.
    pub bytes: u64,
    /// Calls.
    pub calls: u64,
}

/// CPU time in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTime {
    /// In the program's own code.
    pub user: f64,
    /// In the kernel on its behalf. It contains softirq time that ran on top of its threads, unless
    /// the kernel accounts interrupts separately.
    pub system: f64,
    /// Source of the figures.
    pub source: CpuSource,
}

/// Source of the CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CpuSource {
    /// wait4(2): the program and all of its children that were waited for.
    Wait,
    /// The sum over the threads that were followed.
    Threads,
}

/// Bytes copied between kernel and program for calls on sockets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CopyCount {
    /// Counted after the kernel's copy functions return.
    Counted {
        /// From the kernel to the program.
        to_program: u64,
        /// From the program to the kernel.
        from_program: u64,
    },
    /// Estimated from the time in copy functions: both directions together.
    Estimated {
        /// At least.
        low: f64,
        /// At most.
        high: f64,
        /// What it rests on.
        basis: String,
    },
    /// Unknown, for the reason in [`Observation::absent`].
    Unknown,
}

/// Functions by the time they take. Stacks are in the profile itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileSummary {
    /// The event that was sampled.
    pub event: String,
    /// Unit of the weights: `nanoseconds` of CPU time, `delay` (nanoseconds of waiting or of a wall
    /// clock), `bytes`, `events`, `samples` or `percent`.
    pub unit: String,
    /// Seconds of wall time that were sampled.
    pub seconds: Option<f64>,
    /// Number of samples.
    pub samples: u64,
    /// Samples that the kernel took and that were lost, on the whole machine.
    pub lost: u64,
    /// Weight of all samples.
    pub total: f64,
    /// Notes for the reader: what was left out or rounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Functions, by the weight of their own code, largest first.
    pub functions: Vec<ProfiledFunction>,
}

/// A function and its weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfiledFunction {
    /// Its name, or its address as `0x...`.
    pub function: String,
    /// The file or the module that contains it; empty if unknown.
    pub module: String,
    /// Whether it belongs to the kernel; `None` if unknown.
    pub kernel: Option<bool>,
    /// Whether the compiler inlined it into its caller.
    pub inlined: bool,
    /// The subsystem of the function itself; `None` for a helper, which counts for its callers, and
    /// if no rule matches.
    pub subsystem: Option<String>,
    /// Weight of its own code. These add up to the total of all samples.
    #[serde(rename = "self")]
    pub own: f64,
    /// Weight of its own code and of all that it called.
    pub total: f64,
    /// Weight of its own code, by the owner on whose behalf it ran.
    pub owners: BTreeMap<String, f64>,
}

/// A figure that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Absent {
    /// Name of the figure.
    pub what: String,
    /// Why.
    pub reason: String,
    /// What would help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Connection {
    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes_acked.saturating_add(self.bytes_received)
    }
}

impl ObservedSocket {
    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.sent.saturating_add(self.received)
    }
}
