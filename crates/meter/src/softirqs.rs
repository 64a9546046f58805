//! Where the kernel's receive work actually ran: how often each CPU ran the network softirqs
//! (`/proc/softirqs`), and on which CPU the threads that poll for the link's device ran
//! (`/proc/PID/stat`).
//!
//! A polling thread raises no softirq (`napi_threaded_poll`, net/core/dev.c), so the counts alone
//! would show next to nothing on a link with such a thread; and softirqs raised on behalf of the
//! sender (by acknowledgements that it receives) are counted like any others. The time of softirqs
//! is measured by the meter `cpu`.
//!
//! A thread's run time is attributed to the CPU that it is on at the end of each tick (100 ms). For
//! a pinned thread that is exact; for a migrating one it includes what the thread ran on other CPUs
//! in between.

use super::workers::polling_threads;
use super::{Context, Meter, Output, ProcFile, Running};
use bytepath_record::{Fault, Scope, Unit};
use bytepath_sys::procfs::{self, SoftirqRow};
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) static METER: Meter = Meter {
    name: "softirqs",
    summary: "where receive work ran: network softirqs and NAPI threads by CPU (/proc/softirqs)",
    start,
    ..Meter::BASE
};

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    let proc = &context.roots.proc;
    let polling = context.devices.iter().flat_map(|device| polling_threads(proc, device));
    let threads = polling.filter_map(|(dir, ..)| PollingThread::open(&dir).ok()).collect();
    let mut file = ProcFile::open(proc.join("softirqs"))?;
    let start = file.read(procfs::parse_softirqs)?;
    Ok(Box::new(Window { file, start, threads }))
}

struct Window {
    file: ProcFile,
    start: Vec<SoftirqRow>,
    threads: Vec<PollingThread>,
}

impl Running for Window {
    fn tick(&mut self) {
        self.threads.iter_mut().for_each(PollingThread::attribute);
    }

    fn stop(mut self: Box<Self>) -> Result<Output, Fault> {
        let stop = self.file.read(procfs::parse_softirqs)?;
        self.tick();
        let mut output = Output::default();
        for after in &stop {
            let Some(before) = self.start.iter().find(|before| before.cpu == after.cpu) else {
                continue;
            };
            let scope = Scope::Cpu(after.cpu);
            // 32-bit counters wrap.
            let rx = after.net_rx.wrapping_sub(before.net_rx);
            let tx = after.net_tx.wrapping_sub(before.net_tx);
            // A machine may have hundreds of possible CPUs that are not plugged in.
            if rx > 0 || tx > 0 || (after.net_rx, after.net_tx) != (0, 0) {
                output.add("softirqs.net_rx", Unit::Count, f64::from(rx), &scope);
                output.add("softirqs.net_tx", Unit::Count, f64::from(tx), &scope);
            }
        }
        let mut ran: BTreeMap<u32, u64> = BTreeMap::new();
        for (cpu, nanoseconds) in self.threads.iter().flat_map(|thread| &thread.ran) {
            *ran.entry(*cpu).or_default() += nanoseconds;
        }
        for (cpu, nanoseconds) in ran {
            output.add("softirqs.napi", Unit::Seconds, nanoseconds as f64 * 1e-9, &Scope::Cpu(cpu));
        }
        Ok(output)
    }
}

/// A thread that polls for the device.
struct PollingThread {
    stat: ProcFile,
    schedstat: ProcFile,
    /// Its run time when it was last attributed, in ns.
    last: u64,
    /// Its run time by CPU since the start, in ns.
    ran: BTreeMap<u32, u64>,
}

impl PollingThread {
    fn open(dir: &Path) -> Result<Self, Fault> {
        let stat = ProcFile::open(dir.join("stat"))?;
        let mut schedstat = ProcFile::open(dir.join("schedstat"))?;
        let last = schedstat.read(procfs::parse_schedstat)?.run;
        Ok(PollingThread { stat, schedstat, last, ran: BTreeMap::new() })
    }

    /// Attributes its run time since the last call to the CPU that it is on now. A thread that has
    /// ended, because its device was removed, has no further readings.
    fn attribute(&mut self) {
        let cpu = self.stat.read(|text| procfs::parse_task_stat(text).map(|stat| stat.cpu));
        let run = self.schedstat.read(procfs::parse_schedstat).map(|stat| stat.run);
        let (Ok(Some(cpu)), Ok(run)) = (cpu, run) else { return };
        let since = run.saturating_sub(self.last);
        self.last = run;
        let of_cpu = self.ran.entry(cpu).or_default();
        *of_cpu = of_cpu.saturating_add(since);
    }
}
