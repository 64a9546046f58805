//! What TCP did that no single connection shows: the counters of the agent's own network
//! namespace, `/proc/self/net/netstat` and `/proc/self/net/snmp`
//! (Documentation/networking/snmp_counter.rst).
//!
//! The kernel has no counter for copies made in place of zero-copy sends: they are
//! in the ledger, by the completions.

use super::{Context, Meter, Output, ProcFile, Reach, Running, at_stop};
use bytepath_record::{Fault, Scope, Unit};
use bytepath_sys::netstat;
use std::path::Path;

/// Retransmissions by kind, packets that were pruned, collapsed or dropped in a socket's
/// queues, windows that closed, memory that ran short.
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
        for (name, gained, bad) in stack.gained()? {
            output.add(&format!("tcp-stack.{name}"), Unit::Count, gained as f64, &scope);
            if bad && gained > 0 {
                trouble.push(format!("{name} {gained}"));
            }
        }
        if !trouble.is_empty() {
            output.warnings.push(format!("tcp-stack: {}", trouble.join(", ")));
        }
        Ok(output)
    })
}

/// Protocol, counter, whether to warn of it.
const COUNTERS: &[(&str, &str, bool)] = &[
    ("Tcp", "InSegs", false),
    ("Tcp", "OutSegs", false),
    ("Tcp", "RetransSegs", false),
    ("Tcp", "InErrs", true),
    ("TcpExt", "ListenOverflows", true),
    ("TcpExt", "ListenDrops", true),
    ("TcpExt", "TCPLostRetransmit", false),
    ("TcpExt", "TCPFastRetrans", false),
    ("TcpExt", "TCPSlowStartRetrans", false),
    ("TcpExt", "TCPTimeouts", true),
    ("TcpExt", "TCPLossProbes", false),
    ("TcpExt", "TCPSpuriousRTOs", false),
    ("TcpExt", "TCPSpuriousRtxHostQueues", false),
    ("TcpExt", "PruneCalled", true),
    ("TcpExt", "RcvPruned", true),
    ("TcpExt", "OfoPruned", true),
    ("TcpExt", "TCPRcvCollapsed", true),
    ("TcpExt", "TCPBacklogDrop", true),
    ("TcpExt", "TCPRcvQDrop", true),
    ("TcpExt", "TCPZeroWindowDrop", true),
    ("TcpExt", "TCPOFOQueue", false),
    ("TcpExt", "TCPOFODrop", true),
    ("TcpExt", "PFMemallocDrop", true),
    ("TcpExt", "TCPMemoryPressures", true),
    ("TcpExt", "TCPAbortOnMemory", true),
    ("TcpExt", "TCPWqueueTooBig", true),
    ("TcpExt", "TCPFromZeroWindowAdv", false),
    ("TcpExt", "TCPToZeroWindowAdv", false),
    ("TcpExt", "TCPWantZeroWindowAdv", false),
    ("TcpExt", "TCPBacklogCoalesce", false),
    ("TcpExt", "TCPRcvCoalesce", false),
    ("TcpExt", "TCPAutoCorking", false),
    ("TcpExt", "TCPAckCompressed", false),
    ("TcpExt", "TCPOrigDataSent", false),
    ("TcpExt", "TCPDelivered", false),
];

/// The counters of a namespace since they were opened. They stay those of the namespace after
/// the process has ended from whose folder they were opened.
pub struct Stack {
    files: [ProcFile; 2],
    start: Counts,
}

impl Stack {
    /// From a folder like `/proc/self/net`.
    pub fn open(folder: &Path) -> Result<Stack, Fault> {
        let open = |name| ProcFile::open(folder.join(name));
        let mut files = [open("snmp")?, open("netstat")?];
        let start = read(&mut files)?;
        Ok(Stack { files, start })
    }

    /// What was counted since: name, count, and whether to warn of it. Counters that this
    /// kernel does not have are left out.
    pub fn gained(&mut self) -> Result<Vec<(&'static str, u64, bool)>, Fault> {
        let stop = read(&mut self.files)?;
        let counters = COUNTERS.iter().zip(self.start.iter().zip(stop));
        Ok(counters
            .filter_map(|((_, name, bad), (before, after))| {
                let (before, after) = before.zip(after)?;
                // Unsigned longs: they wrap where those have 32 bits.
                Some((*name, after.saturating_sub(before).max(0).unsigned_abs(), *bad))
            })
            .collect())
    }
}

/// In the order of [`COUNTERS`]; `None` if this kernel does not have the counter.
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
