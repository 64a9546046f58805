//! The time of each CPU by kind: from `/proc/stat` at both edges of the window, and from the
//! kernel's account if there is one.

use super::account::Spent;
use super::programs::class;
use crate::Output;
use bytepath_record::{Role, Scope, Unit, joined};
use bytepath_sys::procfs::CpuTicks;

/// Returns how `wall` seconds were spent on each CPU that was online at both edges; `exact`
/// contains the kernel's own account for some CPUs, or none.
pub(super) fn account(
    start: &[CpuTicks],
    stop: &[CpuTicks],
    wall: f64,
    hz: f64,
    exact: &[Spent],
) -> Output {
    let mut output = Output::default();
    let mut doubts = Doubts::default();
    // The edges of the account are sharper, and differ by microseconds between CPUs.
    let walls = exact.iter().map(|spent| spent.wall).sum::<f64>() / exact.len() as f64;
    let wall = if exact.is_empty() { wall } else { walls };
    output.add("cpu.wall", Unit::Seconds, wall, &Scope::Machine);
    for after in stop {
        let Some(before) = start.iter().find(|before| before.cpu == after.cpu) else {
            doubts.came_or_went.push(after.cpu);
            continue;
        };
        let ticks = Kinds::by_ticks(before, after, hz);
        let taken_back = before.iowait.saturating_sub(after.iowait) as f64 / hz;
        let exact = exact.iter().find(|exact| exact.cpu == after.cpu);
        doubts.consider(after.cpu, &ticks, taken_back, wall, exact.is_some());
        match exact {
            Some(exact) => {
                Kinds::exact(exact, &ticks).enter(&mut output, after.cpu, exact.wall);
                enter_parts(&mut output, exact);
            }
            None => ticks.enter(&mut output, after.cpu, wall),
        }
    }
    let gone = |before: &&CpuTicks| !stop.iter().any(|after| after.cpu == before.cpu);
    doubts.came_or_went.extend(start.iter().filter(gone).map(|before| before.cpu));
    output.warnings = doubts.warnings();
    output
}

/// Seconds of one CPU by kind.
struct Kinds {
    user: f64,
    system: f64,
    softirq: f64,
    irq: f64,
    iowait: f64,
    idle: f64,
    steal: f64,
}

impl Kinds {
    fn by_ticks(before: &CpuTicks, after: &CpuTicks, hz: f64) -> Kinds {
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / hz;
        // Widened, because a file may contain any number.
        let resting = |c: &CpuTicks| u128::from(c.idle) + u128::from(c.iowait);
        let rest = resting(after).saturating_sub(resting(before)) as f64 / hz;
        let iowait = seconds(before.iowait, after.iowait).min(rest);
        Kinds {
            user: seconds(before.user, after.user) + seconds(before.nice, after.nice),
            system: seconds(before.system, after.system),
            softirq: seconds(before.softirq, after.softirq),
            irq: seconds(before.irq, after.irq),
            iowait,
            idle: rest - iowait,
            steal: seconds(before.steal, after.steal),
        }
    }

    /// Combines the account with ticks, which show how much of the foreign work was user time, and
    /// how much of the idle time was iowait.
    fn exact(exact: &Spent, ticks: &Kinds) -> Kinds {
        let of = |class| exact.of(class);
        let roles_user = of(class::SENDER) + of(class::RECEIVER);
        let inside = class::SYSTEM;
        let roles_system = of(class::SENDER + inside) + of(class::RECEIVER + inside);
        let foreign = of(class::FOREIGN);
        let foreign_user = (ticks.user - roles_user).clamp(0.0, foreign);
        let workers = of(class::NAPI) + of(class::SENDER_URING) + of(class::RECEIVER_URING);
        let rest = of(class::IDLE);
        let iowait = ticks.iowait.min(rest);
        Kinds {
            user: roles_user + foreign_user,
            system: roles_system + workers + foreign - foreign_user,
            softirq: of(class::SOFTIRQ) + of(class::KSOFTIRQD),
            irq: of(class::IRQ),
            iowait,
            idle: rest - iowait,
            steal: ticks.steal,
        }
    }

    fn sum(&self) -> f64 {
        self.user + self.system + self.softirq + self.irq + self.iowait + self.idle + self.steal
    }

    /// Returns the wall time minus idle, iowait and steal.
    fn busy(&self, wall: f64) -> f64 {
        (wall - self.idle - self.iowait - self.steal).max(0.0)
    }

    fn enter(&self, output: &mut Output, cpu: u32, wall: f64) {
        for (metric, value) in [
            ("cpu.user", self.user),
            ("cpu.system", self.system),
            ("cpu.softirq", self.softirq),
            ("cpu.irq", self.irq),
            ("cpu.iowait", self.iowait),
            ("cpu.idle", self.idle),
            ("cpu.steal", self.steal),
            ("cpu.busy", self.busy(wall)),
        ] {
            output.add(metric, Unit::Seconds, value, &Scope::Cpu(cpu));
        }
    }
}

/// Adds the readings of a CPU that only the kernel's account has; `cpu.foreign` shows that there
/// was an account.
fn enter_parts(output: &mut Output, exact: &Spent) {
    let mut add = |metric: &str, class| {
        output.add(metric, Unit::Seconds, exact.of(class), &Scope::Cpu(exact.cpu));
    };
    add("cpu.foreign", class::FOREIGN);
    add("cpu.ksoftirqd", class::KSOFTIRQD);
    add("cpu.napi", class::NAPI);
    for role in Role::ALL {
        add(&format!("cpu.{role}.user"), class::thread(role));
        add(&format!("cpu.{role}.system"), class::thread(role) + class::SYSTEM);
        add(&format!("cpu.{role}.uring"), class::uring(role));
    }
}

/// Reasons to doubt the numbers; one line per kind, however many CPUs.
#[derive(Default)]
struct Doubts {
    ticks: Vec<(u32, f64)>,
    steal: Vec<(u32, f64)>,
    taken_back: Vec<(u32, f64)>,
    came_or_went: Vec<u32>,
}

impl Doubts {
    fn consider(&mut self, cpu: u32, spent: &Kinds, taken_back: f64, wall: f64, exact: bool) {
        let off = (spent.sum() - wall).abs();
        // Several columns, each rounded to 10 ms: a short window proves nothing.
        if !exact && off > 0.1 * wall && off > 0.05 {
            self.ticks.push((cpu, spent.sum() / wall));
        }
        if spent.steal > 0.01 * wall {
            self.steal.push((cpu, spent.steal / wall));
        }
        // By how much iowait went down.
        if taken_back > 0.01 * wall {
            self.taken_back.push((cpu, taken_back / wall));
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
        say(&self.steal, "time stolen by the hypervisor");
        say(&self.taken_back, "iowait went down (counted as idle)");
        if !self.came_or_went.is_empty() {
            let list = joined(self.came_or_went.iter().map(|cpu| format!("CPU {cpu}")), ", ");
            lines.push(format!("cpu: left out, not online throughout: {list}"));
        }
        lines
    }
}

/// `CPU 0 81%, CPU 1 79%`; shortened, so that a large machine does not fill the screen.
fn shares(list: &[(u32, f64)]) -> String {
    const SHOWN: usize = 4;
    let mut parts: Vec<_> = list
        .iter()
        .take(SHOWN)
        .map(|(cpu, share)| format!("CPU {cpu} {:.0}%", share * 100.0))
        .collect();
    if list.len() > SHOWN {
        parts.push(format!("and {} more", list.len() - SHOWN));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_sys::procfs;
    use std::path::Path;

    /// The window of a recorded machine.
    fn window(machine: &str) -> Output {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/meters").join(machine);
        let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
        let cpus = |edge: &str| procfs::parse_stat(&read(&format!("{edge}/proc/stat"))).unwrap();
        let wall = read("wall").trim().parse().unwrap();
        account(&cpus("start"), &cpus("stop"), wall, 100.0, &[])
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
    fn reads_a_server_with_offline_cpu_and_decreasing_iowait() {
        let output = window("server-64cpu-irqtime");
        assert_eq!(output.readings.len(), 1 + 63 * 8);
        assert_cpu(&output, 0, [0.1, 1.2, 1.5, 0.2, 0.0, 0.0, 0.0, 3.0]);
        assert_cpu(&output, 1, [1.5, 1.0, 0.0, 0.0, 0.05, 0.45, 0.0, 2.5]);
        assert_cpu(&output, 2, [0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0]);
        assert_cpu(&output, 63, [0.0, 0.3, 0.3, 0.0, 0.0, 2.4, 0.0, 0.6]);
        assert!(output.readings.iter().all(|r| r.scope != Scope::Cpu(5)));
        assert_eq!(output.warnings, ["cpu: iowait went down (counted as idle): CPU 63 13%"]);
    }

    #[test]
    fn stolen_time_is_neither_idle_nor_busy() {
        let output = window("linux-3.10-4cpu");
        assert_cpu(&output, 0, [0.5, 1.0, 0.1, 0.0, 0.0, 0.4, 0.0, 1.6]);
        assert_cpu(&output, 1, [0.2, 0.3, 0.1, 0.0, 0.1, 1.3, 0.0, 0.6]);
        assert_cpu(&output, 3, [0.0, 0.0, 0.0, 0.0, 0.0, 1.6, 0.4, 0.0]);
        assert_eq!(output.warnings, ["cpu: time stolen by the hypervisor: CPU 3 20%"]);
    }

    #[test]
    fn warns_once_of_lost_ticks_and_cpus() {
        let output = window("arm-8cpu");
        assert_cpu(&output, 0, [0.25, 0.5, 0.05, 0.0, 0.0, 0.2, 0.0, 0.8]);
        assert_cpu(&output, 7, [0.0, 0.0, 0.0, 0.0, 0.0, 0.4, 0.0, 0.6]);
        let [ticks, lost] = &output.warnings[..] else { panic!("{:?}", output.warnings) };
        assert!(ticks.ends_with("CPU 5 40%, CPU 6 40%, CPU 7 40%"), "{ticks}");
        assert_eq!(lost, "cpu: left out, not online throughout: CPU 4");
    }

    /// A made-up CPU over one second, by class.
    fn spent(parts: &[(usize, f64)]) -> Spent {
        let mut spent = Spent::idle(0, 1.0);
        parts.iter().for_each(|(class, seconds)| spent.move_from_idle(*class, *seconds));
        spent
    }

    #[test]
    fn exact_kinds_add_up_despite_lost_ticks() {
        let exact = spent(&[
            (class::SENDER, 0.05),
            (class::SENDER + class::SYSTEM, 0.25),
            (class::SENDER_URING, 0.02),
            (class::NAPI, 0.03),
            (class::FOREIGN, 0.1),
            (class::SOFTIRQ, 0.2),
            (class::KSOFTIRQD, 0.04),
            (class::IRQ, 0.01),
        ]);
        // The ticks show 0.13 s of user time, 0.3 s of the rest, and 0.2 s of iowait.
        let after = CpuTicks { user: 13, system: 30, iowait: 20, idle: 99, ..CpuTicks::default() };
        let output = account(&[CpuTicks::default()], &[after], 0.98, 100.0, &[exact]);
        let find = |metric: &str, scope| {
            output.readings.iter().find(|r| r.metric == metric && r.scope == scope).unwrap().value
        };
        let read = |metric: &str| find(metric, Scope::Cpu(0));
        assert_eq!(find("cpu.wall", Scope::Machine), 1.0, "the account's own edges");
        for (metric, value) in [
            ("cpu.user", 0.13),
            ("cpu.system", 0.25 + 0.02 + 0.03 + 0.02),
            ("cpu.softirq", 0.24),
            ("cpu.irq", 0.01),
            ("cpu.iowait", 0.2),
            ("cpu.idle", 0.1),
            ("cpu.busy", 0.7),
            ("cpu.foreign", 0.1),
            ("cpu.ksoftirqd", 0.04),
            ("cpu.napi", 0.03),
            ("cpu.sender.user", 0.05),
            ("cpu.sender.system", 0.25),
            ("cpu.sender.uring", 0.02),
            ("cpu.receiver.system", 0.0),
        ] {
            assert!((read(metric) - value).abs() < 1e-9, "{metric}: {}", read(metric));
        }
        assert_eq!(output.warnings, [""; 0], "what the ticks lost does not matter");
    }

    #[test]
    fn ticks_split_at_most_all_foreign_work() {
        let exact = || spent(&[(class::RECEIVER, 0.3), (class::FOREIGN, 0.1)]);
        for (ticks, user) in [(10, 0.3), (90, 0.4)] {
            let after = CpuTicks { user: ticks, ..CpuTicks::default() };
            let kinds =
                Kinds::exact(&exact(), &Kinds::by_ticks(&CpuTicks::default(), &after, 100.0));
            assert!((kinds.user - user).abs() < 1e-9 && (kinds.busy(1.0) - 0.4).abs() < 1e-9);
        }
    }

    #[test]
    fn counts_idle_that_became_iowait_once() {
        // An idle phase of 0.2 s is reported as iowait, and another 0.5 s pass in it.
        let before = CpuTicks { idle: 1000, iowait: 50, ..CpuTicks::default() };
        let after = CpuTicks { idle: 980, iowait: 120, system: 50, ..CpuTicks::default() };
        let output = account(&[before], &[after], 1.0, 100.0, &[]);
        assert_cpu(&output, 0, [0.0, 0.5, 0.0, 0.0, 0.5, 0.0, 0.0, 0.5]);
    }

    #[test]
    fn absurd_counters_give_finite_readings() {
        let most =
            CpuTicks { idle: u64::MAX, iowait: u64::MAX, user: u64::MAX, ..CpuTicks::default() };
        for (before, after) in [(CpuTicks::default(), most), (most, CpuTicks::default())] {
            let output = account(&[before], &[after], 0.0, 100.0, &[]);
            assert!(output.readings.iter().all(|r| r.value.is_finite() && r.value >= 0.0));
        }
    }

    #[test]
    fn many_cpus_make_a_short_line() {
        let list: Vec<_> = (0..9).map(|cpu| (cpu, 0.5)).collect();
        assert_eq!(shares(&list), "CPU 0 50%, CPU 1 50%, CPU 2 50%, CPU 3 50%, and 5 more");
    }
}
