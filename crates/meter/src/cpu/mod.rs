//! How the time of each CPU was spent: by the kernel's account, if it permits BPF programs,
//! otherwise by `/proc/stat`, and `ksoftirqd` by its own run time.
//!
//! **Exact.** Programs at `sched_switch` and at the beginning and end of softirqs and interrupts
//! add up the time by what the CPU was doing ([`programs`]), from clock to clock. They are attached
//! only for the window; those at system calls, which divide a thread's time into user and system,
//! only for a part of it ([`account`]). A CPU with `cpu.foreign` was accounted for in this way; its
//! user, system, softirq, irq, iowait and idle times add up to `cpu.wall`. The user part of foreign
//! work still comes from ticks, as does iowait; time stolen by the hypervisor is included in
//! whatever it interrupted, and also in `cpu.steal`.
//!
//! **Ticks.** `/proc/stat` has two kinds of numbers. User, system, irq and softirq time are
//! *sampled* on most kernels: the tick charges whatever it happens to interrupt
//! (`CONFIG_TICK_CPU_ACCOUNTING` without `CONFIG_IRQ_TIME_ACCOUNTING`). A CPU that alternates
//! between idle and busy stops its tick whenever it idles, so many of its busy phases are never
//! sampled and its ticks add up to well under a second per second. Idle and iowait time, in
//! contrast, are measured from clock to clock if idle CPUs stop their tick (`CONFIG_NO_HZ_COMMON`,
//! `get_cpu_idle_time_us`, kernel/time/tick-sched.c).
//!
//! So `cpu.busy = wall - idle - iowait - steal` is the figure to trust, and
//! user : system : softirq : irq are the proportions within it.
//!
//! Iowait is idle time too: nothing was runnable, and the kernel guesses why. An idle phase still
//! in progress is counted as one or the other by what is outstanding at the moment of reading, so
//! iowait can go down between two readings, by as much as idle goes up beyond the truth. Their sum
//! is correct, and busy depends only on the sum; a negative iowait is counted as idle.
//!
//! `cpu.ksoftirqd` is already included in `cpu.softirq`: it is the part of the softirq time that
//! ran in that thread, and must not be added to it.
//!
//! `/proc/stat` has hundredths of a second, so every number from it is accurate to 10 ms.

mod account;
mod kinds;
mod programs;

use super::shared_source::SharedSource;
use super::{Context, Meter, Output, Prepared, ProcFile, Running};
use account::{Account, Counting};
use bytepath_record::{Fault, Scope, Unit};
use bytepath_sys::Roots;
use bytepath_sys::procfs::{self, CpuTicks};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// CPU time of the machine, by CPU and kind.
pub(crate) static METER: Meter = Meter {
    name: "cpu",
    summary: "time of every CPU by role and kind (BPF at scheduler and interrupts, else /proc/stat)",
    prepare,
    start,
    ..Meter::BASE
};

/// The programs of this process, which has one role, or why there are none; `None` before `prepare`
/// was called.
static ACCOUNT: Mutex<Option<Result<Arc<Account>, Fault>>> = Mutex::new(None);

/// Loads the programs, once per process: it takes some ten milliseconds.
fn prepare(context: &Context) -> Result<Option<Prepared>, Fault> {
    let proc = &context.roots.proc;
    if *proc == Roots::real().proc {
        let online = ProcFile::open(proc.join("stat"))?.read(procfs::parse_stat)?;
        let cpus = online.iter().map(|cpu| cpu.cpu + 1).max().unwrap_or(0);
        let mut account = ACCOUNT.lock().unwrap_or_else(PoisonError::into_inner);
        let load = || Account::load(&context.roots, context.role, cpus).map(Arc::new);
        account.get_or_insert_with(load);
    }
    Ok(None)
}

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    let proc = &context.roots.proc;
    let mut stat = ProcFile::open(proc.join("stat"))?;
    let online = stat.read(procfs::parse_stat)?;
    let method = match start_account(proc, &online) {
        Some(Ok(counting)) => Method::Exact(counting),
        refused => Method::Ticks {
            ksoftirqd: watch_ksoftirqd(proc, online.len()),
            because: refused.and_then(Result::err),
        },
    };
    let start = Snapshot::take(&mut stat)?;
    Ok(Box::new(Window { stat, start, method }))
}

/// Starts the kernel's account, or returns why there is none; `None` if it was not prepared, or
/// `proc` is not that of this machine.
fn start_account(proc: &Path, online: &[CpuTicks]) -> Option<Result<Counting, Fault>> {
    let account = ACCOUNT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let account = account.filter(|_| *proc == Roots::real().proc)?;
    let cpus: Vec<u32> = online.iter().map(|cpu| cpu.cpu).collect();
    Some(account.and_then(|account| account.start(&cpus)))
}

/// Returns the threads that serve softirqs of a CPU that do not fit between other work, each with
/// its CPU and its run time at the start.
fn watch_ksoftirqd(proc: &Path, online: usize) -> Vec<(u32, ProcFile, u64)> {
    /// They live as long as the kernel, and finding them takes milliseconds on a large machine.
    static KSOFTIRQD: SharedSource<Vec<(u32, u32)>> = SharedSource::new();
    let watch = |(cpu, pid): (u32, u32)| {
        let path = proc.join(pid.to_string()).join("schedstat");
        // Without CONFIG_SCHED_INFO there is no such file and no reading.
        let mut schedstat = ProcFile::open(path).ok()?;
        let start = schedstat.read(procfs::parse_schedstat).ok()?.run;
        Some((cpu, schedstat, start))
    };
    let threads = KSOFTIRQD.get(proc, |proc| find_ksoftirqd(proc, online));
    threads.into_iter().filter_map(watch).collect()
}

/// Finds CPU and id of each. They are among the first threads of a kernel, so the search ends
/// early.
fn find_ksoftirqd(proc: &Path, online: usize) -> Vec<(u32, u32)> {
    let thread = |pid: u32| {
        let name = procfs::name(&proc.join(pid.to_string()))?;
        Some((name.strip_prefix("ksoftirqd/")?.parse().ok()?, pid))
    };
    let mut threads: Vec<_> =
        procfs::kernel_threads(proc).into_iter().filter_map(thread).take(online).collect();
    threads.sort_unstable();
    threads
}

struct Window {
    stat: ProcFile,
    start: Snapshot,
    method: Method,
}

/// How the time is measured.
enum Method {
    Exact(Counting),
    Ticks {
        /// Each with its CPU and its run time at the start.
        ksoftirqd: Vec<(u32, ProcFile, u64)>,
        /// Why it is not exact; `None` if exactness was not requested.
        because: Option<Fault>,
    },
}

/// `/proc/stat` at one moment.
struct Snapshot {
    at: Instant,
    cpus: Vec<CpuTicks>,
}

impl Snapshot {
    /// Reads the snapshot. The kernel adds up the numbers while they are read, so they are dated
    /// between the two clock readings.
    fn take(stat: &mut ProcFile) -> Result<Self, Fault> {
        let before = Instant::now();
        let cpus = stat.read(procfs::parse_stat)?;
        Ok(Snapshot { at: before + before.elapsed() / 2, cpus })
    }
}

impl Running for Window {
    fn tick(&mut self) {
        if let Method::Exact(counting) = &mut self.method {
            counting.tick();
        }
    }

    fn stop(mut self: Box<Self>) -> Result<Output, Fault> {
        let stop = Snapshot::take(&mut self.stat)?;
        let wall = (stop.at - self.start.at).as_secs_f64();
        let (start, stop) = (&self.start.cpus, &stop.cpus);
        match self.method {
            Method::Exact(counting) => {
                Ok(kinds::account(start, stop, wall, procfs::user_hz(), &counting.stop()?))
            }
            Method::Ticks { ksoftirqd, because } => {
                let mut output = kinds::account(start, stop, wall, procfs::user_hz(), &[]);
                for (cpu, mut schedstat, start) in ksoftirqd {
                    let run = schedstat.read(procfs::parse_schedstat)?.run.saturating_sub(start);
                    let run = run as f64 * 1e-9;
                    output.add("cpu.ksoftirqd", Unit::Seconds, run, &Scope::Cpu(cpu));
                }
                output.warnings.extend(because.map(|Fault { message, .. }| {
                    format!("cpu: times by kind come from ticks and are not exact: {message}")
                }));
                Ok(output)
            }
        }
    }
}
