//! Where the time of each CPU went: by an account that the kernel keeps for us
//! where it lets programs in, otherwise by `/proc/stat`, and `ksoftirqd` by its
//! own run time.
//!
//! **Exact.** Programs at `sched_switch` and at the beginning and end of softirqs and
//! interrupts add up the time by what the CPU was doing ([`programs`]), from clock
//! to clock. They are attached for the window alone; those at system calls, which
//! divide a thread's time into user and system, for a part of it ([`account`]).
//! A CPU with `cpu.foreign` was accounted for in this way; its user, system,
//! softirq, irq, iowait and idle times add up to `cpu.wall`. The user
//! part of foreign work still comes from ticks, as does iowait; time
//! that the hypervisor took is in what it was taken from, and in `cpu.steal`.
//!
//! **Ticks.** `/proc/stat` has two kinds of numbers. User, system, irq and softirq
//! time are *sampled*, on most kernels: the tick charges whatever it happens to
//! interrupt (`CONFIG_TICK_CPU_ACCOUNTING` without `CONFIG_IRQ_TIME_ACCOUNTING`).
//! A CPU that alternates between idle and busy stops its tick whenever it
//! idles, so many of its busy phases are never sampled and its ticks add up to
//! well under a second each second. Idle and iowait time, in contrast, are
//! measured from clock to clock where idle CPUs stop their tick
//! (`CONFIG_NO_HZ_COMMON`, `get_cpu_idle_time_us`, kernel/time/tick-sched.c).
//!
//! So `cpu.busy = wall - idle - iowait - steal` is the figure to trust, and
//! user : system : softirq : irq are the proportions within it.
//!
//! Iowait is idle time too: nothing was there to run, and the kernel guesses
//! why. An idle phase still going on is called one or the other by what is
//! outstanding at the moment of reading, so iowait can go down between two
//! readings, by as much as idle goes up beyond the truth. Their sum holds, and
//! busy rests on the sum alone; a negative iowait is entered as idle.
//!
//! `cpu.ksoftirqd` is time that `cpu.softirq` has counted already: it says how much of the
//! softirq time ran in that thread, and must not be added to it.
//!
//! `/proc/stat` prints hundredths of a second, so every number of it is good to 10 ms.

mod account;
mod kinds;
mod programs;

use super::{Context, Meter, Output, Prepared, Reach, Running, Watched};
use account::{Account, Counting};
use bytepath_record::{Fault, Scope, Unit};
use bytepath_sys::Roots;
use bytepath_sys::procfs::{self, CpuTicks};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The meter `cpu`.
pub(crate) static CPU: Cpu = Cpu { ksoftirqd: Mutex::new(None), account: Mutex::new(None) };

/// CPU time of the machine, by CPU and kind.
pub(crate) struct Cpu {
    /// The `ksoftirqd` threads and the `/proc` they were found in. They live as
    /// long as the kernel, and to find them takes milliseconds on a large machine.
    ksoftirqd: Mutex<Option<(PathBuf, Vec<Ksoftirqd>)>>,
    /// The programs of this process, which has one role; or why there are none.
    account: Mutex<Option<Result<Arc<Account>, Fault>>>,
}

/// The thread that serves the softirqs of one CPU which do not fit between
/// other work.
#[derive(Clone, Copy)]
struct Ksoftirqd {
    cpu: u32,
    pid: u32,
}

impl Meter for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn summary(&self) -> &'static str {
        "time of every CPU by role and kind (BPF at scheduler and interrupts, else /proc/stat)"
    }

    fn reach(&self) -> Reach {
        Reach::Machine
    }

    /// Loads the programs, once in a process: it takes some ten milliseconds.
    fn prepare(&self, context: &Context) -> Result<Option<Box<dyn Prepared>>, Fault> {
        let proc = &context.roots.proc;
        if *proc == Roots::real().proc {
            let online = Watched::open(proc.join("stat"))?.read(procfs::parse_stat)?;
            let cpus = online.iter().map(|cpu| cpu.cpu + 1).max().unwrap_or(0);
            let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
            let load = || Account::load(&context.roots, context.role, cpus).map(Arc::new);
            account.get_or_insert_with(load);
        }
        Ok(None)
    }

    fn start(&self, context: &Context) -> Result<Box<dyn Running>, Fault> {
        let proc = &context.roots.proc;
        let mut stat = Watched::open(proc.join("stat"))?;
        let online = stat.read(procfs::parse_stat)?;
        let method = match self.count(proc, &online) {
            Some(Ok(counting)) => Method::Exact(counting),
            refused => Method::Ticks {
                ksoftirqd: self.watch_ksoftirqd(proc, online.len()),
                because: refused.and_then(Result::err),
            },
        };
        let start = Snapshot::take(&mut stat)?;
        Ok(Box::new(Window { stat, start, method }))
    }
}

impl Cpu {
    /// The kernel's account from now on, or why there is none; nothing where it was not
    /// prepared, or is not of the machine that is asked about.
    fn count(&self, proc: &Path, online: &[CpuTicks]) -> Option<Result<Counting, Fault>> {
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let account = account.filter(|_| *proc == Roots::real().proc)?;
        let cpus: Vec<u32> = online.iter().map(|cpu| cpu.cpu).collect();
        Some(account.and_then(|account| account.start(&cpus)))
    }

    fn watch_ksoftirqd(&self, proc: &Path, online: usize) -> Vec<(u32, Watched, u64)> {
        let watch = |thread: Ksoftirqd| {
            let path = proc.join(thread.pid.to_string()).join("schedstat");
            // Without CONFIG_SCHED_INFO there is no such file and no reading.
            let mut schedstat = Watched::open(path).ok()?;
            let start = schedstat.read(procfs::parse_schedstat).ok()?.run;
            Some((thread.cpu, schedstat, start))
        };
        self.ksoftirqd(proc, online).into_iter().filter_map(watch).collect()
    }

    fn ksoftirqd(&self, proc: &Path, online: usize) -> Vec<Ksoftirqd> {
        let mut known = self.ksoftirqd.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((root, threads)) if root == proc => threads.clone(),
            _ => {
                let threads = find_ksoftirqd(proc, online);
                *known = Some((proc.to_owned(), threads.clone()));
                threads
            }
        }
    }
}

/// They are among the first threads of a kernel, so the search ends early.
fn find_ksoftirqd(proc: &Path, online: usize) -> Vec<Ksoftirqd> {
    let thread = |pid: u32| {
        let name = procfs::name(&proc.join(pid.to_string()))?;
        Some(Ksoftirqd { cpu: name.strip_prefix("ksoftirqd/")?.parse().ok()?, pid })
    };
    let mut found: Vec<_> =
        procfs::kernel_threads(proc).into_iter().filter_map(thread).take(online).collect();
    found.sort_unstable_by_key(|thread| thread.cpu);
    found
}

struct Window {
    stat: Watched,
    start: Snapshot,
    method: Method,
}

/// How the time is found.
enum Method {
    Exact(Counting),
    Ticks {
        /// Each with its CPU and its run time at the start.
        ksoftirqd: Vec<(u32, Watched, u64)>,
        /// Why it is not exact; none if exactness was not requested.
        because: Option<Fault>,
    },
}

/// `/proc/stat` at one moment.
struct Snapshot {
    at: Instant,
    cpus: Vec<CpuTicks>,
}

impl Snapshot {
    /// The kernel adds the numbers up while it is asked, so the moment they are
    /// true of lies between the two readings of the clock.
    fn take(stat: &mut Watched) -> Result<Self, Fault> {
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
                output.warnings.extend(because.map(|fault| {
                    format!(
                        "cpu: times by kind come from ticks and are not exact: {}",
                        fault.message
                    )
                }));
                Ok(output)
            }
        }
    }
}
