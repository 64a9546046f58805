//! TCP events that no single connection shows: the counters of the agent's own network namespace,
//! `/proc/self/net/netstat` and `/proc/self/net/snmp` (Documentation/networking/snmp_counter.rst).
//!
//! The kernel has no counter for copies made in place of zero-copy sends: they are in the ledger,
//! from the completions.

use super::{Context, Meter, Output, ProcFile, Reach, Running, at_stop};
use bytepath_record::{Fault, Scope, Unit};
use bytepath_sys::netstat;
use std::path::Path;

/// Retransmissions by kind, packets that were pruned, collapsed or dropped in a socket's queues,
/// windows that closed, memory shortages.
pub(crate) static METER: Meter = Meter {
    name: "tcp-stack",
    summary: "retransmits by kind, pruned, collapsed and dropped packets, closed windows (netstat)",
    reach: Reach::Agent,
    start,
    ..Meter::BASE
};

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    let mut stack = Stack::open(&context.roots.proc.join("self/net"))?;
    let scope = Scope::Role(context.role);
    at_stop(move || {
        let mut output = Output::default();
        let mut trouble = Vec::new();
        for (name, gained, warning) in stack.gained()? {
            output.add(&format!("tcp-stack.{name}"), Unit::Count, gained as f64, &scope);
            match warning.filter(|_| gained > 0) {
                Some("") => trouble.push(format!("{name} {gained}")),
                Some(remedy) => trouble.push(format!("{name} {gained} ({remedy})")),
                None => {}
            }
        }
        if !trouble.is_empty() {
            output.warnings.push(format!("tcp-stack: {}", trouble.join(", ")));
        }
        Ok(output)
    })
}

/// No warning, and a warning without a remedy.
const QUIET: Option<&str> = None;
const WARN: Option<&str> = Some("");

/// Warning for an accept queue that overflowed (Documentation/networking/snmp_counter.rst).
const ACCEPT_QUEUE: Option<&str> =
    Some("the accept queue was full: raise net.core.somaxconn, or accept faster");
const SYN_QUEUE: Option<&str> = Some("raise net.ipv4.tcp_max_syn_backlog and net.core.somaxconn");

/// Protocol, counter, and, if an increase is worth a warning, the remedy.
const COUNTERS: &[(&str, &str, Option<&str>)] = &[
    ("Tcp", "ActiveOpens", QUIET),
    ("Tcp", "PassiveOpens", QUIET),
    ("Tcp", "AttemptFails", QUIET),
    ("Tcp", "InSegs", QUIET),
    ("Tcp", "OutSegs", QUIET),
    ("Tcp", "RetransSegs", QUIET),
    ("Tcp", "InErrs", WARN),
    ("TcpExt", "ListenOverflows", ACCEPT_QUEUE),
    ("TcpExt", "ListenDrops", WARN),
    ("TcpExt", "SyncookiesSent", SYN_QUEUE),
    ("TcpExt", "TCPReqQFullDrop", SYN_QUEUE),
    ("TcpExt", "TCPFastOpenActive", QUIET),
    ("TcpExt", "TCPFastOpenActiveFail", WARN),
    ("TcpExt", "TCPFastOpenPassive", QUIET),
    ("TcpExt", "TCPFastOpenPassiveFail", WARN),
    ("TcpExt", "TCPFastOpenListenOverflow", WARN),
    ("TcpExt", "TW", QUIET),
    ("TcpExt", "TWRecycled", QUIET),
    ("TcpExt", "TCPTimeWaitOverflow", Some("raise net.ipv4.tcp_max_tw_buckets")),
    ("TcpExt", "TCPLostRetransmit", QUIET),
    ("TcpExt", "TCPFastRetrans", QUIET),
    ("TcpExt", "TCPSlowStartRetrans", QUIET),
    ("TcpExt", "TCPTimeouts", WARN),
    ("TcpExt", "TCPLossProbes", QUIET),
    ("TcpExt", "TCPSpuriousRTOs", QUIET),
    ("TcpExt", "TCPSpuriousRtxHostQueues", QUIET),
    ("TcpExt", "PruneCalled", WARN),
    ("TcpExt", "RcvPruned", WARN),
    ("TcpExt", "OfoPruned", WARN),
    ("TcpExt", "TCPRcvCollapsed", WARN),
    ("TcpExt", "TCPBacklogDrop", WARN),
    ("TcpExt", "TCPRcvQDrop", WARN),
    ("TcpExt", "TCPZeroWindowDrop", WARN),
    ("TcpExt", "TCPOFOQueue", QUIET),
    ("TcpExt", "TCPOFODrop", WARN),
    ("TcpExt", "PFMemallocDrop", WARN),
    ("TcpExt", "TCPMemoryPressures", WARN),
    ("TcpExt", "TCPAbortOnMemory", WARN),
    ("TcpExt", "TCPWqueueTooBig", WARN),
    ("TcpExt", "TCPFromZeroWindowAdv", QUIET),
    ("TcpExt", "TCPToZeroWindowAdv", QUIET),
    ("TcpExt", "TCPWantZeroWindowAdv", QUIET),
    ("TcpExt", "TCPBacklogCoalesce", QUIET),
    ("TcpExt", "TCPRcvCoalesce", QUIET),
    ("TcpExt", "TCPAutoCorking", QUIET),
    ("TcpExt", "TCPAckCompressed", QUIET),
    ("TcpExt", "TCPOrigDataSent", QUIET),
    ("TcpExt", "TCPDelivered", QUIET),
    ("TcpExt", "BusyPollRxPackets", QUIET),
];

/// The counters of a namespace since they were opened. They remain those of that namespace after
/// the process from whose folder they were opened has ended.
pub struct Stack {
    files: [ProcFile; 2],
    start: Counts,
}

impl Stack {
    /// Opens the counters in a folder like `/proc/self/net`.
    pub fn open(folder: &Path) -> Result<Stack, Fault> {
        let open = |name| ProcFile::open(folder.join(name));
        let mut files = [open("snmp")?, open("netstat")?];
        let start = read(&mut files)?;
        Ok(Stack { files, start })
    }

    /// Returns the increases since: name, count, and the remedy if it is worth a warning. Counters
    /// that this kernel does not have are left out.
    pub fn gained(&mut self) -> Result<Vec<Gained>, Fault> {
        let stop = read(&mut self.files)?;
        let counters = COUNTERS.iter().zip(self.start.iter().zip(stop));
        Ok(counters
            .filter_map(|((_, name, warning), (before, after))| {
                let (before, after) = before.zip(after)?;
                // Unsigned longs: they wrap on machines where those have 32 bits.
                Some((*name, after.saturating_sub(before).max(0).unsigned_abs(), *warning))
            })
            .collect())
    }
}

/// A counter, its increase, and the remedy if that is worth a warning.
type Gained = (&'static str, u64, Option<&'static str>);

/// Counts in the order of [`COUNTERS`]; `None` if this kernel does not have the counter.
type Counts = Vec<Option<i64>>;

fn read(files: &mut [ProcFile; 2]) -> Result<Counts, Fault> {
    let mut counts = vec![None; COUNTERS.len()];
    for file in files {
        file.read(|text| {
            let counters = netstat::parse(text)?;
            for (count, (protocol, name, _)) in counts.iter_mut().zip(COUNTERS) {
                let this = counters.iter().find(|(p, n, _)| p == protocol && n == name);
                *count = count.or(this.map(|(.., value)| *value));
            }
            Ok(())
        })?;
    }
    Ok(counts)
}
