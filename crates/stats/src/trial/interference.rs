//! Foreign work during a trial: CPU time of other processes.
//!
//! **Exact** where the kernel kept an account for the meter `cpu`: `cpu.foreign` is what ran on the
//! CPU and was neither a thread or worker of a role nor a softirq, an interrupt or a thread that
//! serves them. It includes bytepath's own meters and pipes. The limit is the same for every path.
//!
//! **By ticks** otherwise, by the larger of two figures:
//!
//! 1. User time that does not belong to the roles' threads: kernel threads have none.
//! 2. Busy time that neither the roles' threads nor interrupts explain, above what is usual in this
//!    cell. It is not all foreign work: interrupts that wake an idle CPU make it busy but are
//!    missed by the ticks, so a path whose sender sleeps while the kernel works for it always has
//!    some, and more than another path. So a trial is compared with the median of the cell's
//!    earlier trials (at least [`MIN_EARLIER`], otherwise this figure is not used): no path is
//!    rejected for its own nature.

use super::guest::GuestCpu;
use super::threads::polls_for_device;
use crate::estimate::Summary;
use bytepath_record::{Cell, Reading, Role, RoleRecord, Scope, ThreadTime, Trial};

/// Fewest earlier trials whose median is taken as usual.
const MIN_EARLIER: usize = 3;

/// A machine that a trial ran on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// Both roles are on it.
    Shared,
    /// It is this role's alone.
    Of(Role),
}

impl Machine {
    /// Returns the machines of a trial.
    pub(crate) fn all_of(trial: &Trial) -> Vec<Machine> {
        match trial.has_hosts_apart() {
            true => Role::ALL.map(Machine::Of).to_vec(),
            false => vec![Machine::Shared],
        }
    }

    /// Returns the role that has it to itself.
    pub(crate) fn role(self) -> Option<Role> {
        match self {
            Machine::Shared => None,
            Machine::Of(role) => Some(role),
        }
    }

    /// True if a role is on it.
    pub(crate) fn has(self, role: Role) -> bool {
        self.role().is_none_or(|own| own == role)
    }

    /// Turns a scope of the machine that both roles share into that of this one.
    pub(crate) fn scope(self, scope: Scope) -> Scope {
        match self {
            Machine::Shared => scope,
            Machine::Of(role) => scope.at_host(role),
        }
    }

    /// True if a scope is one of its CPUs.
    pub(crate) fn has_cpu(self, scope: &Scope) -> bool {
        match scope {
            Scope::Cpu(_) => self == Machine::Shared,
            Scope::CpuOf(role, _) => self == Machine::Of(*role),
            _ => false,
        }
    }

    /// Returns the length of its meters' window in seconds; `None` if the meter `cpu` did not run.
    pub(crate) fn wall(self, trial: &Trial) -> Option<f64> {
        trial.reading("cpu.wall", &self.scope(Scope::Machine)).filter(|wall| *wall > 0.0)
    }

    /// Returns the records of the roles that are on it.
    fn roles(self, trial: &Trial) -> impl Iterator<Item = &RoleRecord> {
        trial.roles.iter().filter(move |record| self.has(record.role))
    }

    /// Returns the CPU time of the peer's guest, if the peer is a guest of this machine.
    pub(crate) fn guest(self, trial: &Trial) -> Option<GuestCpu> {
        GuestCpu::of(trial, self.role()?.peer())
    }

    pub(crate) fn title(self) -> String {
        self.role().map_or("the machine".to_owned(), |role| format!("the {role}'s host"))
    }

    pub(crate) fn cpus_title(self) -> String {
        match self {
            Machine::Shared => "the machine's CPUs".to_owned(),
            Machine::Of(_) => format!("the CPUs of {}", self.title()),
        }
    }

    pub(crate) fn cpu_title(self, cpu: u32) -> String {
        self.role().map_or(format!("CPU {cpu}"), |role| format!("the {role}'s CPU {cpu}"))
    }
}

/// Returns the foreign share of a CPU that one or both roles are pinned to. `tick` is the possible
/// error of a `/proc/stat` column, in seconds. `None` if not measured.
pub(crate) fn of_cpu(
    trial: &Trial,
    cell: &Cell,
    (machine, cpu): (Machine, u32),
    tick: f64,
    earlier: &[&Trial],
) -> Option<f64> {
    let cpu_use = |trial: &Trial| CpuUse::at_cpu(trial, cell, machine, cpu);
    share(cpu_use(trial)?, tick, earlier.iter().filter_map(|trial| cpu_use(trial)))
}

/// Returns the foreign share of all CPUs together, for cells in which a role is left to the
/// scheduler. So pinned and unpinned cells are judged alike, and a comparison of the two does not
/// keep the disturbed trials of one side only. The same where a guest that plays the peer may run
/// on any CPU.
pub(crate) fn anywhere(
    trial: &Trial,
    machine: Machine,
    tick: f64,
    earlier: &[&Trial],
) -> Option<f64> {
    let cpu_use = CpuUse::at_all(trial, machine)?;
    // The CPUs' errors are as likely positive as negative.
    let tick = tick * cpu_use.cpus.sqrt();
    share(cpu_use, tick, earlier.iter().filter_map(|trial| CpuUse::at_all(trial, machine)))
}

fn share(cpu_use: CpuUse, tick: f64, earlier: impl Iterator<Item = CpuUse>) -> Option<f64> {
    let time = cpu_use.wall * cpu_use.cpus;
    if let Some(foreign) = cpu_use.exact {
        return Some(foreign / time);
    }
    if !cpu_use.has_threads {
        return None;
    }
    let user = (cpu_use.user - 2.0 * tick) / time;
    let earlier: Vec<f64> =
        earlier.map(|cpu_use| cpu_use.unexplained / (cpu_use.wall * cpu_use.cpus)).collect();
    if earlier.len() < MIN_EARLIER {
        return Some(user);
    }
    // Three columns are subtracted for busy time: idle, iowait, steal.
    let unusual = (cpu_use.unexplained - 3.0 * tick) / time - Summary::of(earlier)?.median.max(0.0);
    Some(user.max(unusual))
}

/// CPU time of others during a trial, in seconds.
struct CpuUse {
    /// Length of the window.
    wall: f64,
    /// Number of CPUs.
    cpus: f64,
    /// Foreign time by the kernel's account.
    exact: Option<f64>,
    /// User time of others, by ticks.
    user: f64,
    /// Busy time that neither threads nor interrupts explain.
    unexplained: f64,
    has_threads: bool,
}

impl CpuUse {
    fn at_cpu(trial: &Trial, cell: &Cell, machine: Machine, cpu: u32) -> Option<CpuUse> {
        let here = |role: Role| cell.placement.cpu(role) == Some(cpu);
        let (own, others): (Vec<&RoleRecord>, Vec<&RoleRecord>) =
            machine.roles(trial).partition(|record| here(record.role));
        let threads: Vec<&ThreadTime> = own.iter().flat_map(|record| &record.threads).collect();
        // A thread that polls the device of a role on another CPU may be unpinned and may have run
        // here.
        let polling = others.iter().flat_map(|record| &record.threads);
        let polling = polling.filter(|thread| polls_for_device(thread));
        let polling = polling.map(|thread| thread.run).sum::<f64>();
        let scope = machine.scope(Scope::Cpu(cpu));
        CpuUse::at(trial, machine, &threads, polling, |other| *other == scope)
    }

    /// The CPU time of a guest that plays the peer is not foreign.
    fn at_all(trial: &Trial, machine: Machine) -> Option<CpuUse> {
        let threads: Vec<&ThreadTime> =
            machine.roles(trial).flat_map(|record| &record.threads).collect();
        let mut all = CpuUse::at(trial, machine, &threads, 0.0, |scope| machine.has_cpu(scope))?;
        if let Some(guest) = machine.guest(trial) {
            let [user, run] = [guest.user, guest.total()].map(|cores| cores * all.wall);
            all.exact = all.exact.map(|foreign| foreign - run);
            all.user -= user;
            all.unexplained -= run;
        }
        Some(all)
    }

    fn at(
        trial: &Trial,
        machine: Machine,
        threads: &[&ThreadTime],
        polling: f64,
        here: impl Fn(&Scope) -> bool,
    ) -> Option<CpuUse> {
        let wall = machine.wall(trial)?;
        let values = |metric: &str| -> Vec<f64> {
            let counts = |r: &&Reading| r.metric == metric && here(&r.scope) && r.value.is_finite();
            trial.readings.iter().filter(counts).map(|r| r.value).collect()
        };
        let sum = |metric: &str| values(metric).iter().sum::<f64>();
        let (busy, foreign) = (values("cpu.busy"), values("cpu.foreign"));
        let of_roles = threads.iter().map(|thread| thread.run).sum::<f64>() + polling;
        let user_of_roles: f64 = threads.iter().map(|thread| thread.user).sum();
        let interrupts = sum("cpu.softirq") + sum("cpu.irq");
        // Whether the peer is a guest of this machine is known by the threads.
        let known = machine == Machine::Shared || !threads.is_empty();
        let complete = known && !foreign.is_empty() && foreign.len() == busy.len();
        (!busy.is_empty()).then(|| CpuUse {
            wall,
            cpus: busy.len() as f64,
            exact: complete.then(|| foreign.iter().sum()),
            user: sum("cpu.user") - user_of_roles,
            unexplained: busy.iter().sum::<f64>() - of_roles - interrupts,
            has_threads: !threads.is_empty(),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{SCHEDULE, cell, quiet, read, thread};
    use crate::trial::judge_events;
    use bytepath_math::Random;
    use bytepath_record::{Placement, Role, Scope, Trial};

    fn judge(t: &Trial, earlier: &[&Trial]) -> Vec<String> {
        judge_events(t, &cell("a"), &SCHEDULE, earlier).invalidating
    }

    fn events(t: &Trial) -> Vec<String> {
        judge(t, &[&quiet(), &quiet(), &quiet()])
    }

    #[test]
    fn account_applies_the_same_limit_to_every_path() {
        let exact = |foreign| {
            let mut t = quiet();
            read(&mut t, "cpu.foreign", Scope::Cpu(0), foreign);
            // Ticks would say that all of it is unexplained.
            t.roles[0].threads = vec![thread("engine", 0.5, 0.1, 0.4)];
            t
        };
        assert_eq!(events(&exact(0.29)), [""; 0]);
        assert_eq!(events(&exact(0.33)), ["other processes used 11% of CPU 0 (limit 10%)"]);
        assert_eq!(judge(&exact(0.33), &[]).len(), 1, "it needs no other trials");
        // Unpinned: of both CPUs, and only if there is an account of both.
        let mut free = cell("a");
        free.placement = Placement::default();
        let mut t = exact(0.8);
        assert_eq!(judge_events(&t, &free, &SCHEDULE, &[]).invalidating, [""; 0]);
        read(&mut t, "cpu.foreign", Scope::Cpu(1), 0.1);
        assert_eq!(
            judge_events(&t, &free, &SCHEDULE, &[]).invalidating,
            ["other processes used 15% of the machine's CPUs (limit 10%)"]
        );
    }

    #[test]
    fn ticks_compare_a_trial_with_the_cells_own_median() {
        // A sender that sleeps while interrupts work for it: 0.9 of 3 s unexplained, always.
        let itself = |run| {
            let mut t = quiet();
            t.roles[0].threads = vec![thread("engine", run, 0.1, 1.4)];
            t
        };
        let usual = itself(1.5);
        let earlier = [&usual, &usual, &usual];
        assert_eq!(judge(&usual, &[]), [""; 0], "the first has nothing to be compared with");
        assert_eq!(judge(&usual, &earlier[..2]), [""; 0]);
        assert_eq!(judge(&usual, &earlier), [""; 0]);
        assert_eq!(
            judge(&itself(1.1), &earlier),
            ["other processes used 12.3% of CPU 0 (limit 10%)"]
        );
    }

    /// Ticks are drawn as the kernel draws them: one per hundredth of a second, charged to whatever
    /// is on the CPU then. A path whose interrupts they mostly miss is rejected no more often than
    /// one whose interrupts they catch, and the same disturbance is found in both.
    #[test]
    fn lost_ticks_neither_reject_nor_hide() {
        let mut random = Random::new(9);
        let mut rejected = |lost: f64, others: f64| {
            let mut trial = |others: f64| {
                let (run, interrupts) = (1.6 + 0.03 * random.normal(), 0.6);
                let ticks = (0..60).filter(|_| random.uniform() >= lost).count();
                let mut t = quiet();
                t.roles[0].threads = vec![thread("engine", run, 0.1, run - 0.1)];
                read(&mut t, "cpu.busy", Scope::Cpu(0), run + interrupts + others);
                read(&mut t, "cpu.softirq", Scope::Cpu(0), ticks as f64 * 0.01);
                t
            };
            let count = (0..300).filter(|_| {
                let earlier = [trial(0.0), trial(0.0), trial(0.0)];
                !judge(&trial(others), &earlier.each_ref()).is_empty()
            });
            count.count()
        };
        let [seen, missed] = [0.1, 0.9].map(|lost| rejected(lost, 0.0));
        assert!(seen <= 3 && missed <= 3, "of 300 quiet trials: {seen}, {missed}");
        let [seen, missed] = [0.1, 0.9].map(|lost| rejected(lost, 0.45));
        assert!(seen >= 295 && missed >= 295, "of 300 disturbed ones: {seen}, {missed}");
    }

    #[test]
    fn foreign_work_by_either_figure() {
        // Another process in user mode took turns with a sender that slept.
        let mut t = quiet();
        t.roles[0].threads = vec![thread("engine", 2.0, 0.1, 1.9)];
        read(&mut t, "cpu.user", Scope::Cpu(0), 0.5);
        assert_eq!(events(&t), ["other processes used 12.7% of CPU 0 (limit 10%)"]);
        // A kernel thread has no user time, but its time is unexplained.
        let mut t = quiet();
        t.roles[1].threads = vec![thread("engine", 2.0, 0.1, 1.8)];
        assert_eq!(events(&t), ["other processes used 12.3% of CPU 1 (limit 10%)"]);
        // Softirqs in addition to the thread are the role's own work.
        read(&mut t, "cpu.softirq", Scope::Cpu(1), 0.8);
        assert_eq!(events(&t), [""; 0]);
    }

    #[test]
    fn foreign_work_with_roles_left_to_the_scheduler() {
        let mut free = cell("a");
        free.placement = Placement::default();
        let judge = |t: &Trial| {
            judge_events(t, &free, &SCHEDULE, &[&quiet(), &quiet(), &quiet()]).invalidating
        };
        let mut t = quiet();
        assert_eq!(judge(&t), [""; 0], "two CPUs, each busy with a role");
        // Another process used 0.8 of the 6 seconds.
        read(&mut t, "cpu.user", Scope::Cpu(0), 0.91);
        assert_eq!(judge(&t), ["other processes used 13.2% of the machine's CPUs (limit 10%)"]);
        // On four CPUs its share is smaller.
        for cpu in [2, 3] {
            for metric in ["cpu.busy", "cpu.user", "cpu.softirq"] {
                read(&mut t, metric, Scope::Cpu(cpu), 0.0);
            }
        }
        assert_eq!(judge(&t), [""; 0]);
        // A kernel thread on a third CPU, without any user time.
        let mut t = quiet();
        read(&mut t, "cpu.busy", Scope::Cpu(2), 2.9);
        t.roles.iter_mut().for_each(|role| role.threads[0].run = 1.9);
        assert_eq!(judge(&t), ["other processes used 42.8% of the machine's CPUs (limit 10%)"]);
        t.roles.iter_mut().for_each(|role| role.threads.clear());
        assert_eq!(judge(&t), [""; 0], "what no meter saw cannot spoil it");
    }

    /// The roles of [`quiet`] on hosts of their own.
    fn apart() -> Trial {
        let mut t = quiet();
        t.readings.retain(|reading| reading.metric != "cpu.wall");
        for reading in &mut t.readings {
            let is_first = reading.scope == Scope::Cpu(0);
            let role = if is_first { Role::Sender } else { Role::Receiver };
            reading.scope = reading.scope.clone().at_host(role);
        }
        for role in Role::ALL {
            read(&mut t, "cpu.wall", Scope::MachineOf(role), 3.0);
        }
        t
    }

    #[test]
    fn each_of_two_hosts_is_judged() {
        assert_eq!(events(&apart()), [""; 0]);
        for (role, cpu) in [(Role::Sender, 0), (Role::Receiver, 1)] {
            let mut t = apart();
            read(&mut t, "cpu.foreign", Scope::CpuOf(role, cpu), 0.33);
            assert_eq!(
                events(&t),
                [format!("other processes used 11% of the {role}'s CPU {cpu} (limit 10%)")]
            );
            // By ticks.
            let mut t = apart();
            t.roles[role as usize].threads = vec![thread("engine", 2.0, 0.1, 1.9)];
            read(&mut t, "cpu.user", Scope::CpuOf(role, cpu), 0.5);
            assert_eq!(events(&t).len(), 1, "{:?}", events(&t));
            let mut t = apart();
            read(&mut t, "cpu.steal", Scope::CpuOf(role, cpu), 0.9);
            let lost = format!("the {role}'s CPU {cpu} lost 30% to the hypervisor (limit 10%)");
            assert_eq!(events(&t), [lost]);
        }
        let mut free = cell("a");
        free.placement = Placement::default();
        let mut t = apart();
        read(&mut t, "cpu.foreign", Scope::CpuOf(Role::Receiver, 1), 0.6);
        assert_eq!(
            judge_events(&t, &free, &SCHEDULE, &[]).invalidating,
            ["other processes used 20% of the CPUs of the receiver's host (limit 10%)"]
        );
    }

    /// The receiver is a guest that runs on both CPUs of the sender's host.
    #[test]
    fn a_guest_is_not_foreign_to_the_host_that_runs_it() {
        let beside = |foreign: [f64; 2]| {
            let mut t = apart();
            for (cpu, foreign) in [0, 1].into_iter().zip(foreign) {
                read(&mut t, "cpu.busy", Scope::CpuOf(Role::Sender, cpu), 2.9);
                read(&mut t, "cpu.foreign", Scope::CpuOf(Role::Sender, cpu), foreign);
            }
            read(&mut t, "threads.wall", Scope::Role(Role::Sender), 3.0);
            for (metric, value) in [("guest.run", 2.0), ("guest.user", 1.5), ("guest.system", 0.5)]
            {
                let scope = Scope::Threads(Role::Receiver, "vCPU".to_owned());
                read(&mut t, metric, scope, value);
            }
            t
        };
        assert_eq!(events(&beside([0.9, 1.3])), [""; 0]);
        let of_others = "other processes used 15% of the CPUs of the sender's host (limit 10%)";
        assert_eq!(events(&beside([1.6, 1.3])), [of_others]);
        // Without the meter `threads` nobody knows whose time that was.
        let mut t = beside([1.6, 1.3]);
        t.readings.retain(|reading| !reading.metric.starts_with("guest."));
        t.roles.iter_mut().for_each(|role| role.threads.clear());
        assert_eq!(events(&t), [""; 0]);
    }

    #[test]
    fn the_peers_polling_thread_is_not_foreign() {
        // The receiver's NAPI thread was not pinned and ran on the sender's CPU.
        let mut t = quiet();
        t.roles[0].threads = vec![thread("engine", 2.0, 0.1, 1.8)];
        assert_eq!(events(&t).len(), 1);
        t.roles[1].threads.push(thread("napi/byte0-7", 0.4, 0.0, 0.4));
        assert_eq!(events(&t), [""; 0]);
    }

    #[test]
    fn two_roles_on_one_cpu_are_not_foreign_to_each_other() {
        let mut shared = cell("a");
        shared.placement = Placement::pinned(0, 0);
        let mut t = quiet();
        for record in &mut t.roles {
            record.threads = vec![thread("engine", 1.3, 0.05, 1.1)];
        }
        let usual = t.clone();
        let judge =
            |t: &Trial| judge_events(t, &shared, &SCHEDULE, &[&usual, &usual, &usual]).invalidating;
        assert_eq!(judge(&t), [""; 0]);
        t.roles[1].threads = vec![thread("engine", 0.3, 0.05, 0.2)];
        assert_eq!(judge(&t), ["other processes used 25.7% of CPU 0 (limit 10%)"]);
    }
}
