//! What was observed of a foreign program.

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
    /// The command, word by word; of a process that was running already, as far as it can be read.
    pub command: Vec<String>,
    /// Its process id.
    pub pid: u32,
    /// When watching began, milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// How long it was watched, seconds.
    pub seconds: f64,
    /// The machine; none in records before it was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Facts>,
    /// How it ended.
    pub ending: Ending,
    /// What counted its system calls; none if nothing could.
    pub counter: Option<Counter>,
    /// Every thread that was followed, its children's too; of very many, those of one name are one.
    pub threads: Vec<ObservedThread>,
    /// The table of system calls, one entry for each thread and call.
    pub calls: Vec<ObservedCall>,
    /// Sockets that bytes went through, those that were closed too.
    pub sockets: Vec<ObservedSocket>,
    /// What it sent.
    pub sent: Traffic,
    /// What it received.
    pub received: Traffic,
    /// What TCP knew of its connections; none if the kernel could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<ObservedTcp>,
    /// What limited the program, in sentences, the most important first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// CPU time of the program.
    pub used: Option<CpuTime>,
    /// CPU time of the machine meanwhile: `cpu.user`, `cpu.softirq`, and so on.
    pub machine: Vec<Reading>,
    /// Bytes actually copied between kernel and program, by another source than
    /// the ledgers.
    pub copies: CopyCount,
    /// Where its time went, by samples; none if none were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileSummary>,
    /// In what the copies disagree with the ledgers; none if they do not, or
    /// cannot be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<String>,
    /// What is missing here, and why.
    pub absent: Vec<Absent>,
    /// What the reader of the figures should know.
    pub warnings: Vec<String>,
}

impl Observation {
    /// Processes of the program: its own, and those of its threads and children.
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
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Not before we stopped watching.
    Running,
    /// By itself, and only its parent knows how.
    Gone,
}

/// What counts system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Counter {
    /// BPF at typed tracepoints, the state of a thread kept with the thread.
    TaskStorage,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedThread {
    /// Thread id.
    pub tid: u32,
    /// The process it belongs to; 0 if unknown.
    pub pid: u32,
    /// The thread that made it; 0 if it was there before.
    pub parent: u32,
    /// Its last name.
    pub name: String,
    /// Whether it ended meanwhile.
    pub ended: bool,
    /// CPU time and context switches while observed; none if unknown.
    pub time: Option<ThreadTime>,
    /// Other threads of its name that are in its figures, where a program had very many.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub joined: u64,
}

/// All calls of one name by one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedCall {
    /// Thread id.
    pub tid: u32,
    /// Number of the call on this architecture.
    pub number: u32,
    /// Calls, errors, times, bytes. Here `stddev_percent` is the standard
    /// deviation of the mean, as `perf trace -s` has it.
    pub row: CallRow,
    /// How many calls took 2^i to 2^(i+1) nanoseconds; the last one holds all
    /// that took longer.
    pub histogram: Vec<u64>,
}

/// A socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedSocket {
    /// Inode number, as in `/proc/PID/fd`; none if it represents many that
    /// could not be distinguished.
    pub inode: Option<u64>,
    /// What it is: `tcp`, `udp`, `unix`, ...
    pub kind: String,
    /// The process that used it first.
    pub pid: u32,
    /// Own address, where there is one.
    pub local: Option<String>,
    /// The peer's.
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

/// TCP connections of a program, and what else TCP counted meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedTcp {
    /// The connections, those that sent and received most first.
    pub connections: Vec<Connection>,
    /// What the network namespaces of these connections counted meanwhile, by the kernel's
    /// names (`/proc/net/snmp`, `/proc/net/netstat`). Every program there adds to them.
    pub counters: BTreeMap<String, u64>,
}

/// A TCP connection, as the kernel knew it when it was closed or watching ended
/// (`TCP_INFO`). Counts and times are those since watching began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Inode number of its socket; none if it was closed before any was seen.
    pub inode: Option<u64>,
    /// Own address.
    pub local: String,
    /// The peer's.
    pub remote: String,
    /// Whether the kernel had given it up by then, so that these figures are its last.
    pub closed: bool,
    /// Congestion control; empty where it was closed before it was looked at.
    pub congestion: String,
    /// Bytes that the peer has acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Bytes of payload sent, those sent again included.
    pub bytes_sent: u64,
    /// Bytes of payload sent again.
    pub bytes_retransmitted: u64,
    /// Segments with payload sent, those sent again included.
    pub segments_sent: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Segments that the peer reported as received twice (DSACK).
    pub duplicates: u64,
    /// Retransmission timeouts (Linux 6.7).
    pub timeouts: u64,
    /// Times at which segments sent turned out to have been reordered on their way.
    pub reorderings: u64,
    /// Segments received out of order.
    pub out_of_order: u64,
    /// Time with data unsent or not yet acknowledged, seconds.
    pub busy: f64,
    /// Part of it spent waiting for the peer's receive window, seconds.
    pub window_limited: f64,
    /// Part of it spent with a full send buffer, seconds.
    pub buffer_limited: f64,
    /// Smoothed round-trip time, seconds, as last known.
    pub rtt: f64,
    /// Smallest round-trip time, seconds; none if none was measured.
    pub min_rtt: Option<f64>,
    /// Delivery rate as last known, bytes per second.
    pub delivery_rate: f64,
    /// Congestion window as last known, segments.
    pub cwnd: u64,
    /// Payload of the largest segment sent, bytes.
    pub mss: u64,
}

/// One direction of all sockets together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    /// Bytes and how they went. One ledger over all sockets, TCP and others.
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
    /// In the kernel on its behalf. Softirq time that ran on top of its threads
    /// is in it, unless the kernel accounts interrupts by themselves.
    pub system: f64,
    /// Where the figures are from.
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
    /// Not known, for the reason in [`Observation::absent`].
    Unknown,
}

/// The functions of a profile. Stacks are in the profile itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileSummary {
    /// The event that was sampled.
    pub event: String,
    /// What weights count: `nanoseconds` of CPU time, `delay` (nanoseconds of waiting or of a wall
    /// clock), `bytes`, `events`, `samples` or `percent`.
    pub unit: String,
    /// Seconds of wall time that were sampled.
    pub seconds: Option<f64>,
    /// How many samples.
    pub samples: u64,
    /// Samples that the kernel took and that were lost, of the whole machine.
    pub lost: u64,
    /// Weight of all samples.
    pub total: f64,
    /// What its reader should know: what was left out, what was rounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Functions, those that take most by themselves first.
    pub functions: Vec<ProfiledFunction>,
}

/// A function and what it takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfiledFunction {
    /// Its name, or its address as `0x...`.
    pub function: String,
    /// The file or the module it is from; empty if unknown.
    pub module: String,
    /// Whether it is of the kernel; none if unknown.
    pub kernel: Option<bool>,
    /// Whether the compiler had put it into its caller.
    pub inlined: bool,
    /// The subsystem of the function itself; none for a helper, which belongs to its
    /// callers, and where no rule knows it.
    pub subsystem: Option<String>,
    /// Weight of its own code. All of these add up to the whole.
    #[serde(rename = "self")]
    pub own: f64,
    /// Weight of its own code and all that it called.
    pub total: f64,
    /// Weight of its own code, by whom it was spent for.
    pub owners: BTreeMap<String, f64>,
}

/// A figure that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Absent {
    /// Which.
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
