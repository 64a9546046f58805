//! Where the time of each CPU went: `/proc/stat`, and `ksoftirqd` by its own
//! run time.
//!
//! Two kinds of numbers stand in `/proc/stat`. User, system, irq and softirq
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
//! `cpu.ksoftirqd` is time that `cpu.softirq` has counted already (ticks in it
//! serve softirqs): it says how much of the softirq time ran in that thread,
//! and must not be added to it.
//!
//! `/proc/stat` prints hundredths of a second, so every number is good to 10 ms.

use super::{Context, Meter, Output, Reach, Running, Watched};
use crate::record::{Fault, Scope, Unit};
use crate::sys::procfs::{self, CpuTicks};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The meter `cpu`.
pub static CPU: Cpu = Cpu { ksoftirqd: Mutex::new(None) };

/// CPU time of the machine, by CPU and kind.
pub struct Cpu {
    /// The `ksoftirqd` threads and the `/proc` they were found in. They live as
    /// long as the kernel, and to find them takes milliseconds on a large machine.
    ksoftirqd: Mutex<Option<(PathBuf, Vec<Ksoftirqd>)>>,
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
        "time of every CPU: user, system, softirq, irq, iowait, idle, steal (/proc/stat)"
    }

    fn reach(&self) -> Reach {
        Reach::Machine
    }

    fn start(&self, context: &Context) -> Result<Box<dyn Running>, Fault> {
        let proc = &context.roots.proc;
        let mut stat = Watched::open(proc.join("stat"))?;
        let online = stat.read(procfs::parse_stat)?;
        let ksoftirqd = self
            .ksoftirqd(proc, online.len())
            .into_iter()
            .filter_map(|thread| {
                let path = proc.join(thread.pid.to_string()).join("schedstat");
                // Without CONFIG_SCHED_INFO there is no such file and no reading.
                let mut schedstat = Watched::open(path).ok()?;
                let start = schedstat.read(procfs::parse_schedstat).ok()?.run;
                Some((thread.cpu, schedstat, start))
            })
            .collect();
        let start = Snapshot::take(&mut stat)?;
        Ok(Box::new(Window { stat, start, ksoftirqd }))
    }
}

impl Cpu {
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
    ksoftirqd: Vec<(u32, Watched, u64)>,
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
    fn stop(mut self: Box<Self>) -> Result<Output, Fault> {
        let stop = Snapshot::take(&mut self.stat)?;
        let wall = (stop.at - self.start.at).as_secs_f64();
        let mut output = account(&self.start.cpus, &stop.cpus, wall, procfs::user_hz());
        for (cpu, schedstat, start) in &mut self.ksoftirqd {
            let run = schedstat.read(procfs::parse_schedstat)?.run.saturating_sub(*start);
            output.add("cpu.ksoftirqd", Unit::Seconds, run as f64 * 1e-9, &Scope::Cpu(*cpu));
        }
        Ok(output)
    }
}

/// What became of `wall` seconds on each CPU that was online at both ends.
fn account(start: &[CpuTicks], stop: &[CpuTicks], wall: f64, hz: f64) -> Output {
    let mut output = Output::default();
    let mut doubts = Doubts::default();
    output.add("cpu.wall", Unit::Seconds, wall, &Scope::Machine);
    for after in stop {
        let Some(before) = start.iter().find(|before| before.cpu == after.cpu) else {
            doubts.came_or_went.push(after.cpu);
            continue;
        };
        let spent = Spent::between(before, after, hz);
        let busy = (wall - spent.idle - spent.iowait - spent.steal).max(0.0);
        for (metric, value) in [
            ("cpu.user", spent.user),
            ("cpu.system", spent.system),
            ("cpu.softirq", spent.softirq),
            ("cpu.irq", spent.irq),
            ("cpu.iowait", spent.iowait),
            ("cpu.idle", spent.idle),
            ("cpu.steal", spent.steal),
            ("cpu.busy", busy),
        ] {
            output.add(metric, Unit::Seconds, value, &Scope::Cpu(after.cpu));
        }
        doubts.consider(after.cpu, &spent, wall);
    }
    let gone = |before: &&CpuTicks| !stop.iter().any(|after| after.cpu == before.cpu);
    doubts.came_or_went.extend(start.iter().filter(gone).map(|before| before.cpu));
    output.warnings = doubts.warnings();
    output
}

/// Seconds of one CPU by kind.
struct Spent {
    user: f64,
    system: f64,
    softirq: f64,
    irq: f64,
    iowait: f64,
    idle: f64,
    steal: f64,
    /// How far iowait went down.
    taken_back: f64,
}

impl Spent {
    fn between(before: &CpuTicks, after: &CpuTicks, hz: f64) -> Self {
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / hz;
        // Widened, because what a file says may be any number at all.
        let resting = |c: &CpuTicks| u128::from(c.idle) + u128::from(c.iowait);
        let rest = resting(after).saturating_sub(resting(before)) as f64 / hz;
        let iowait = seconds(before.iowait, after.iowait).min(rest);
        Spent {
            user: seconds(before.user, after.user) + seconds(before.nice, after.nice),
            system: seconds(before.system, after.system),
            softirq: seconds(before.softirq, after.softirq),
            irq: seconds(before.irq, after.irq),
            iowait,
            idle: rest - iowait,
            steal: seconds(before.steal, after.steal),
            taken_back: seconds(after.iowait, before.iowait),
        }
    }

    fn sum(&self) -> f64 {
        self.user + self.system + self.softirq + self.irq + self.iowait + self.idle + self.steal
    }
}

/// What limits the use of the numbers; one line a kind, however many CPUs.
#[derive(Default)]
struct Doubts {
    ticks: Vec<(u32, f64)>,
    steal: Vec<(u32, f64)>,
    taken_back: Vec<(u32, f64)>,
    came_or_went: Vec<u32>,
}

impl Doubts {
    fn consider(&mut self, cpu: u32, spent: &Spent, wall: f64) {
        let off = (spent.sum() - wall).abs();
        // Several columns, each cut to 10 ms: a short window proves nothing.
        if off > 0.1 * wall && off > 0.05 {
            self.ticks.push((cpu, spent.sum() / wall));
        }
        if spent.steal > 0.01 * wall {
            self.steal.push((cpu, spent.steal / wall));
        }
        if spent.taken_back > 0.01 * wall {
            self.taken_back.push((cpu, spent.taken_back / wall));
        }
    }

    fn warnings(self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut say = |list: &[(u32, f64)], words: &str| {
            if !list.is_empty() {
                lines.push(format!("cpu: {words}: {}", shares(list)));
            }
        };
        say(
            &self.ticks,
            "ticks do not add up to wall time (user, system, softirq and irq are then \
             proportions of busy, not seconds)",
        );
        say(&self.steal, "the hypervisor took time away");
        say(&self.taken_back, "iowait went down (counted as idle)");
        if !self.came_or_went.is_empty() {
            let list: Vec<_> = self.came_or_went.iter().map(|cpu| format!("CPU {cpu}")).collect();
            lines.push(format!("cpu: left out, not online all the time: {}", list.join(", ")));
        }
        lines
    }
}

/// `CPU 0 81 %, CPU 1 79 %`; a large machine does not fill the screen.
fn shares(list: &[(u32, f64)]) -> String {
    const SHOWN: usize = 4;
    let mut parts: Vec<_> = list
        .iter()
        .take(SHOWN)
        .map(|(cpu, share)| format!("CPU {cpu} {:.0} %", share * 100.0))
        .collect();
    if list.len() > SHOWN {
        parts.push(format!("and {} more", list.len() - SHOWN));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window of a recorded machine.
    fn window(machine: &str) -> Output {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/meters").join(machine);
        let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
        let cpus = |edge: &str| procfs::parse_stat(&read(&format!("{edge}/proc/stat"))).unwrap();
        let wall = read("wall").trim().parse().unwrap();
        account(&cpus("start"), &cpus("stop"), wall, 100.0)
    }

    /// user, system, softirq, irq, iowait, idle, steal, busy.
    fn assert_cpu(output: &Output, cpu: u32, expected: [f64; 8]) {
        let scope = Scope::Cpu(cpu);
        let found: Vec<_> = output.readings.iter().filter(|r| r.scope == scope).collect();
        let names = ["user", "system", "softirq", "irq", "iowait", "idle", "steal", "busy"];
        assert_eq!(found.len(), names.len(), "CPU {cpu}");
        for ((reading, name), value) in found.iter().zip(names).zip(expected) {
            assert_eq!(reading.metric, format!("cpu.{name}"));
            assert_eq!(reading.unit, Unit::Seconds);
            assert!((reading.value - value).abs() < 1e-9, "CPU {cpu}: {reading:?}, not {value}");
        }
    }

    #[test]
    fn a_recorded_window() {
        let output = window("linux-6.18-2cpu");
        assert_cpu(&output, 0, [0.38, 0.05, 0.01, 0.0, 0.0, 1.10, 0.0, 0.476734]);
        assert_cpu(&output, 1, [1.18, 0.03, 0.01, 0.0, 0.01, 0.34, 0.0, 1.226734]);
        assert_eq!(output.readings[0].value, 1.576734);
        assert_eq!(output.warnings, [""; 0]);
    }

    #[test]
    fn a_server_with_a_cpu_offline_and_an_iowait_that_went_down() {
        let output = window("server-64cpu-irqtime");
        assert_eq!(output.readings.len(), 1 + 63 * 8);
        assert_cpu(&output, 0, [0.1, 1.2, 1.5, 0.2, 0.0, 0.0, 0.0, 3.0]);
        assert_cpu(&output, 1, [1.5, 1.0, 0.0, 0.0, 0.05, 0.45, 0.0, 2.5]);
        assert_cpu(&output, 2, [0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0]);
        assert_cpu(&output, 63, [0.0, 0.3, 0.3, 0.0, 0.0, 2.4, 0.0, 0.6]);
        assert!(output.readings.iter().all(|r| r.scope != Scope::Cpu(5)));
        assert_eq!(output.warnings, ["cpu: iowait went down (counted as idle): CPU 63 13 %"]);
    }

    #[test]
    fn stolen_time_is_neither_idle_nor_busy() {
        let output = window("linux-3.10-4cpu");
        assert_cpu(&output, 0, [0.5, 1.0, 0.1, 0.0, 0.0, 0.4, 0.0, 1.6]);
        assert_cpu(&output, 1, [0.2, 0.3, 0.1, 0.0, 0.1, 1.3, 0.0, 0.6]);
        assert_cpu(&output, 3, [0.0, 0.0, 0.0, 0.0, 0.0, 1.6, 0.4, 0.0]);
        assert_eq!(output.warnings, ["cpu: the hypervisor took time away: CPU 3 20 %"]);
    }

    #[test]
    fn lost_ticks_and_a_lost_cpu_are_said_once() {
        let output = window("arm-8cpu");
        assert_cpu(&output, 0, [0.25, 0.5, 0.05, 0.0, 0.0, 0.2, 0.0, 0.8]);
        assert_cpu(&output, 7, [0.0, 0.0, 0.0, 0.0, 0.0, 0.4, 0.0, 0.6]);
        let [ticks, lost] = &output.warnings[..] else { panic!("{:?}", output.warnings) };
        assert!(ticks.ends_with("CPU 5 40 %, CPU 6 40 %, CPU 7 40 %"), "{ticks}");
        assert_eq!(lost, "cpu: left out, not online all the time: CPU 4");
    }

    #[test]
    fn idle_that_turned_into_iowait_is_at_rest_once() {
        // An idle phase of 0.2 s is called iowait, and 0.5 s more pass in it.
        let before = CpuTicks { idle: 1000, iowait: 50, ..CpuTicks::default() };
        let after = CpuTicks { idle: 980, iowait: 120, system: 50, ..CpuTicks::default() };
        let output = account(&[before], &[after], 1.0, 100.0);
        assert_cpu(&output, 0, [0.0, 0.5, 0.0, 0.0, 0.5, 0.0, 0.0, 0.5]);
    }

    #[test]
    fn absurd_counters_give_finite_numbers() {
        let most =
            CpuTicks { idle: u64::MAX, iowait: u64::MAX, user: u64::MAX, ..CpuTicks::default() };
        for (before, after) in [(CpuTicks::default(), most), (most, CpuTicks::default())] {
            let output = account(&[before], &[after], 0.0, 100.0);
            assert!(output.readings.iter().all(|r| r.value.is_finite() && r.value >= 0.0));
        }
    }

    #[test]
    fn many_cpus_make_a_short_line() {
        let list: Vec<_> = (0..9).map(|cpu| (cpu, 0.5)).collect();
        assert_eq!(shares(&list), "CPU 0 50 %, CPU 1 50 %, CPU 2 50 %, CPU 3 50 %, and 5 more");
    }
}
