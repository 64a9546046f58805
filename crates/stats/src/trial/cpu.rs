//! Attribution of CPU time to roles.
//!
//! **Roles pinned to different CPUs**: a role's time is what its CPU was busy, `cpu.busy` = wall -
//! idle - iowait - steal, over `cpu.wall`. Idle and iowait are exact on a tickless kernel. Busy
//! ticks are sampled, and a CPU that alternates between idle and busy loses some of them, so they
//! only give the proportions (user : system : softirq + irq) in which the exact total is split. A
//! kernel thread that polls the device (`napi/...`) runs with softirqs masked but outside of a
//! softirq, so the kernel counts its ticks as system (kernel/sched/cputime.c,
//! `account_system_time`); its own run time is moved to softirq here.
//!
//! **Otherwise**: a role's time is the run time of its own threads (exact, from schedstat), split
//! into user and system by ticks. A softirq that ran on top of a thread is included in its system
//! time; one that ran on an idle CPU is missed, which a report has to mention. Threads are read
//! before the window begins and after it ends, and the reader may take CPU time from them
//! meanwhile. The engine's own threads measure what they ran within the window themselves
//! ([`ENGINE_RUN`]); all others are assumed to have worked in the same proportion.
//!
//! **Exact.** Where the kernel kept an account for the meter `cpu` (indicated by a reading
//! `cpu.foreign` of the role's CPU), nothing is proportioned: user and system time are those of the
//! role's threads and io_uring workers on all CPUs, softirq is what softirqs and interrupts took of
//! its own CPU, and work of others is not in the total. Time that the hypervisor took is subtracted
//! from each in proportion. Under the second rule the account only splits the threads' run time
//! into user and system.
//!
//! **Work for a role's device on another CPU** still belongs to the role: see
//! [`super::device_work`]. If a thread that polls the device may run anywhere, no CPU belongs to
//! one role alone, and the second rule applies.
//!
//! **A guest** that plays the peer is run by threads of this host that may be on any of its CPUs
//! ([`super::guest`]), so the busy time of the role's CPU may include the guest's: the second rule
//! applies, plus the softirqs of CPUs that are reserved for them.
//!
//! **Helpers** are threads that work for one of the engine's threads and are named after it
//! (`sender/0 copy`); they avoid its CPU if there is another, and belong to the same role. A helper
//! that models a device (`sender/0 model`) is shown, but is in no sum.
//!
//! iowait is idle: no thread ran. It is kept apart and never added. ksoftirqd needs no special
//! care: its time is in its CPU's softirq ticks, once.

use super::device_work::{Correction, DeviceWork, softirq_time};
use super::guest::GuestCpu;
use super::sum_of;
use super::threads::{Threads, cores};
use bytepath_record::{Cell, Role, Trial};
use schemars::JsonSchema;
use serde::Serialize;

/// How CPU time was attributed to a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CpuRule {
    /// The role has this CPU to itself and is charged all of its busy time.
    WholeCpu(u32),
    /// Run time of the role's own threads.
    Threads,
}

/// CPU time of one role in one trial, in CPU seconds per second ("cores").
/// `total = user + system + softirq + unsplit`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RoleCpu {
    /// How it was attributed.
    pub rule: CpuRule,
    /// Whether the kinds come from the kernel's account of each CPU, not from ticks.
    pub exact: bool,
    pub total: f64,
    pub user: f64,
    /// In the kernel, on behalf of a thread.
    pub system: f64,
    /// In softirq or interrupt context, or in a thread that polls the device.
    pub softirq: f64,
    /// Not attributed by any tick.
    pub unsplit: f64,
    /// Time that the CPU was idle while a task waited for I/O; `None` under [`CpuRule::Threads`].
    /// Not part of the total.
    pub iowait: Option<f64>,
    /// Run time of the role's own threads.
    pub threads: f64,
    /// The part of the total outside of the role's own threads: interrupt work on an idle CPU, or
    /// something foreign. Zero under [`CpuRule::Threads`].
    pub other: f64,
}

/// Returns the CPU time of a role in a trial; `None` if no meter measured it.
pub fn role_cpu(cell: &Cell, trial: &Trial, role: Role) -> Option<RoleCpu> {
    let threads = Threads::of(trial, role);
    let apart =
        trial.has_hosts_apart() || cell.placement.cpu(role) != cell.placement.cpu(role.peer());
    let works = Role::ALL.map(|role| DeviceWork::of(cell, trial, role));
    if GuestCpu::of(trial, role.peer()).is_some() {
        return beside_guest(trial, role, &threads, &works[role as usize]);
    }
    let alone = cell.placement.cpu(role).filter(|_| {
        apart && cell.placement.cpu(role.peer()).is_some() && !works.contains(&DeviceWork::Anywhere)
    });
    alone
        .and_then(|cpu| {
            whole_cpu(trial, (role, cpu), &threads, Correction::of(trial, (role, cpu), &works)?)
        })
        .or_else(|| by_threads(&threads.within(trial, role), account_of(trial, role)))
}

/// Returns the CPU time of the role on the host of a guest: the guest's threads are on any CPU, and
/// softirqs on top of the role's threads are in their run time. Of CPUs that are reserved for
/// softirqs, only the softirqs are charged to the role.
fn beside_guest(
    trial: &Trial,
    role: Role,
    threads: &Threads,
    work: &DeviceWork,
) -> Option<RoleCpu> {
    let reserved = match work {
        DeviceWork::Softirqs { cpus, named: true } => softirqs_on(trial, role, cpus),
        _ => 0.0,
    };
    let own = by_threads(&threads.within(trial, role), account_of(trial, role))?;
    Some(RoleCpu { total: own.total + reserved, softirq: own.softirq + reserved, ..own })
}

/// Returns the softirqs and interrupts on these CPUs, in cores; zero if not measured.
fn softirqs_on(trial: &Trial, role: Role, cpus: &[u32]) -> f64 {
    let Some(wall) = trial.of_machine("cpu.wall", role).filter(|wall| *wall > 0.0) else {
        return 0.0;
    };
    cores(cpus.iter().filter_map(|cpu| softirq_time(trial, role, *cpu)).sum(), wall)
}

fn whole_cpu(
    trial: &Trial,
    (role, cpu): (Role, u32),
    threads: &Threads,
    correction: Correction,
) -> Option<RoleCpu> {
    let wall = trial.of_machine("cpu.wall", role).filter(|w| *w > 0.0)?;
    let of = |metric| trial.of_cpu(metric, role, cpu).map(|s| cores(s, wall));
    let ticks = |metric| of(metric).unwrap_or(0.0);
    let total = of("cpu.busy")?;
    let polling_here = if correction.polls_here { threads.polling } else { 0.0 };
    let own_threads = threads.run + polling_here;
    if let Some(account) = account_of(trial, role).filter(|_| of("cpu.foreign").is_some()) {
        // The account does not consider steal.
        let kept = total / (total + of("cpu.steal").unwrap_or(0.0));
        let part = |cores: f64| if kept.is_finite() { cores * kept } else { 0.0 };
        let [user, system] = account.without(threads.models);
        let (user, system) = (part(user), part(system + account.uring));
        let napi = of("cpu.napi").filter(|_| correction.polls_here).unwrap_or(0.0);
        let napi = (napi - correction.less).max(0.0);
        let softirq = part(ticks("cpu.softirq") + ticks("cpu.irq") + napi);
        let here = user + system + softirq;
        return Some(RoleCpu {
            rule: CpuRule::WholeCpu(cpu),
            exact: true,
            total: here + correction.more,
            user,
            system,
            softirq: softirq + correction.more,
            unsplit: 0.0,
            iowait: of("cpu.iowait"),
            threads: threads.run + threads.polling,
            other: (here - own_threads).max(0.0),
        });
    }
    let (user, system) = (ticks("cpu.user"), ticks("cpu.system"));
    let softirq = ticks("cpu.softirq") + ticks("cpu.irq");
    let all = user + system + softirq;
    let split = |part: f64| if all > 0.0 { total * (part / all) } else { 0.0 };
    let polling = polling_here.min(split(system));
    let less = correction.less.min(split(system) - polling);
    let total_here = total - less;
    // Helpers ran on other CPUs, and their own ticks are few.
    let elsewhere = threads.helpers;
    Some(RoleCpu {
        rule: CpuRule::WholeCpu(cpu),
        exact: false,
        total: total_here + correction.more + elsewhere,
        user: split(user),
        system: split(system) - polling - less,
        softirq: split(softirq) + polling + correction.more,
        unsplit: elsewhere + if all > 0.0 { 0.0 } else { total },
        iowait: of("cpu.iowait"),
        threads: threads.run + threads.polling,
        other: (total_here - own_threads).max(0.0),
    })
}

fn by_threads(threads: &Threads, account: Option<Account>) -> Option<RoleCpu> {
    let total = threads.run + threads.polling;
    if total <= 0.0 {
        return None;
    }
    let all = threads.user + threads.system;
    let split = |part: f64| if all > 0.0 { threads.run * (part / all) } else { 0.0 };
    let (user, system) = match &account {
        Some(account) => {
            let [user, _] = account.without(threads.models);
            (user.min(threads.run), (threads.run - user).max(0.0))
        }
        None => (split(threads.user), split(threads.system)),
    };
    Some(RoleCpu {
        rule: CpuRule::Threads,
        exact: account.is_some(),
        total,
        user,
        system,
        softirq: threads.polling,
        unsplit: if all > 0.0 || account.is_some() { 0.0 } else { threads.run },
        iowait: None,
        threads: total,
        other: 0.0,
    })
}

/// A role's threads and workers on all CPUs, by the kernel's account, in cores.
struct Account {
    user: f64,
    system: f64,
    uring: f64,
}

impl Account {
    /// Returns user and system time without that of modelled devices, whose threads are named like
    /// the role's.
    fn without(&self, models: [f64; 2]) -> [f64; 2] {
        [self.user - models[0], self.system - models[1]].map(|part| part.max(0.0))
    }
}

/// Returns the kernel's account; `None` if none was kept on the role's host.
fn account_of(trial: &Trial, role: Role) -> Option<Account> {
    let wall = trial.of_machine("cpu.wall", role).filter(|wall| *wall > 0.0)?;
    let sum = |kind: &str| {
        let metric = format!("cpu.{role}.{kind}");
        let sum = sum_of(trial, |r| r.metric == metric && r.scope.is_on_host_of(role));
        sum.map(|sum| cores(sum, wall))
    };
    Some(Account { user: sum("user")?, system: sum("system")?, uring: sum("uring")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{cell, near, thread, trial, wall, with_cpu};
    use crate::trial::ENGINE_RUN;
    use bytepath_record::{Placement, Reading, Scope, SoftirqCpu, Unit};

    #[test]
    fn a_pinned_role_pays_for_its_whole_cpu_in_proportion_of_the_ticks() {
        // Busy 2.4 of 3 s, but the ticks show only 2.0 of them: they give the proportions 1 : 6 :
        // 3, not the amount.
        let mut t = wall(trial("a", 0, 3.0, 0), 3.0);
        t.roles[0].threads = vec![thread("tx", 2.1, 0.2, 1.7)];
        let ticks =
            [("cpu.user", 0.2), ("cpu.system", 1.2), ("cpu.softirq", 0.5), ("cpu.irq", 0.1)];
        let t = with_cpu(t, 0, &ticks);
        let t = with_cpu(t, 0, &[("cpu.busy", 2.4), ("cpu.iowait", 0.3), ("cpu.idle", 0.3)]);
        let c = role_cpu(&cell("a"), &t, Role::Sender).unwrap();
        assert_eq!(c.rule, CpuRule::WholeCpu(0));
        assert!(near(c.total, 0.8) && near(c.user, 0.08));
        assert!(near(c.system, 0.48) && near(c.softirq, 0.24) && near(c.unsplit, 0.0));
        assert!(near(c.iowait.unwrap(), 0.1), "iowait is apart and not in the total");
        assert!(near(c.threads, 0.7) && near(c.other, 0.1));
    }

    #[test]
    fn thread_times_are_divided_by_their_own_interval() {
        let mut t = trial("a", 0, 1.0, 0);
        t.roles[0].threads = vec![thread("tx", 0.55, 0.11, 0.44)];
        let threads = |t: &Trial| Threads::of(t, Role::Sender).run;
        assert!(near(threads(&t), 0.55), "as it was before the interval was a reading");
        let scope = Scope::Role(Role::Sender);
        t.readings.push(Reading::sum("threads.wall".to_owned(), Unit::Seconds, 1.1, scope));
        assert!(near(threads(&t), 0.5), "{}", threads(&t));
    }

    #[test]
    fn engine_run_time_rescales_the_threads_to_the_window() {
        // Two roles on one CPU: both ran half of the window of 1 s, and less of the 0.2 s that it
        // took to read their run times. A worker and a polling thread are corrected too.
        let scope = || Scope::Role(Role::Receiver);
        let mut t = trial("a", 0, 1.0, 0);
        t.roles[1].threads = vec![
            thread("receiver/0", 0.42, 0.1, 0.3),
            thread("iou-wrk-1", 0.042, 0.0, 0.04),
            thread("napi/a-1", 0.084, 0.0, 0.08),
        ];
        t.readings.push(Reading::sum("threads.wall".to_owned(), Unit::Seconds, 1.2, scope()));
        let one = Cell { placement: Placement::pinned(0, 0), ..cell("a") };
        let total = |t: &Trial| role_cpu(&one, t, Role::Receiver).unwrap().total;
        assert!(near(total(&t), 0.546 / 1.2));
        t.readings.push(Reading::sum(ENGINE_RUN.to_owned(), Unit::Seconds, 0.4, scope()));
        assert!(near(total(&t), 0.4 + 0.04 + 0.08), "{}", total(&t));
    }

    #[test]
    fn pktgen_is_charged_whatever_the_engine_ran_that_waits_for_it() {
        let scope = || Scope::Role(Role::Sender);
        let mut t = trial("a", 0, 1.0, 0);
        t.roles[0].threads =
            vec![thread("sender/0", 0.02, 0.0, 0.02), thread("kpktgend_0", 1.0, 0.0, 1.0)];
        t.readings.push(Reading::sum("threads.wall".to_owned(), Unit::Seconds, 1.0, scope()));
        t.readings.push(Reading::sum(ENGINE_RUN.to_owned(), Unit::Seconds, 0.01, scope()));
        let free = Cell { placement: Placement::default(), ..cell("a") };
        let total = role_cpu(&free, &t, Role::Sender).unwrap().total;
        assert!(near(total, 1.02), "{total}");
    }

    #[test]
    fn helpers_are_charged_and_device_models_are_not() {
        let scope = || Scope::Role(Role::Sender);
        let mut t = wall(trial("a", 0, 1.0, 0), 1.0);
        t.roles[0].threads = vec![
            thread("sender/0", 0.8, 0.8, 0.0),
            thread("sender/0 copy", 0.5, 0.5, 0.0),
            thread("sender/0 model", 1.0, 0.75, 0.25),
        ];
        t.readings.push(Reading::sum(ENGINE_RUN.to_owned(), Unit::Seconds, 0.8, scope()));
        let free = Cell { placement: Placement::default(), ..cell("a") };
        let total = |cell: &Cell, t: &Trial| role_cpu(cell, t, Role::Sender).unwrap().total;
        assert!(near(total(&free, &t), 1.3), "{}", total(&free, &t));
        let ticks = with_cpu(t.clone(), 0, &[("cpu.busy", 0.9), ("cpu.user", 0.8)]);
        assert!(near(total(&cell("a"), &ticks), 1.4), "its CPU, and the helper elsewhere");
        // The kernel's account includes all three, since they are named after the role.
        let t = with_cpu(t, 0, &[("cpu.busy", 0.8)]);
        let t = accounted(t, 0, [2.05, 0.25, 0.0, 0.0]);
        let c = role_cpu(&cell("a"), &t, Role::Sender).unwrap();
        assert!(c.exact && near(c.user, 1.3) && near(c.system, 0.0), "{c:?}");
    }

    #[test]
    fn a_polling_kernel_thread_is_softirq_work_although_its_ticks_say_system() {
        let mut t = wall(trial("a", 0, 1.0, 0), 1.0);
        t.roles[1].threads =
            vec![thread("rx", 0.5, 0.1, 0.4), thread("napi/byte0-5", 0.3, 0.0, 0.3)];
        let t = with_cpu(t, 1, &[("cpu.busy", 0.8), ("cpu.user", 0.1), ("cpu.system", 0.7)]);
        let c = role_cpu(&cell("a"), &t, Role::Receiver).unwrap();
        assert!(near(c.user, 0.1) && near(c.system, 0.4) && near(c.softirq, 0.3), "{c:?}");
        assert!(near(c.other, 0.0));
    }

    #[test]
    fn unpinned_roles_are_charged_by_thread() {
        let mut t = wall(trial("a", 0, 2.0, 0), 2.0);
        t.roles[0].threads = vec![thread("tx", 1.0, 0.2, 0.6), thread("tx", 0.6, 0.0, 0.0)];
        let t = with_cpu(t, 0, &[("cpu.busy", 1.9), ("cpu.user", 1.0)]);
        for placement in [
            Placement::default(),
            Placement { sender: Some(0), ..Placement::default() },
            Placement::pinned(0, 0),
        ] {
            let mut c = cell("a");
            c.placement = placement;
            let cpu = role_cpu(&c, &t, Role::Sender).unwrap();
            assert_eq!((cpu.rule, cpu.iowait), (CpuRule::Threads, None));
            assert!(near(cpu.total, 0.8) && near(cpu.user, 0.2) && near(cpu.system, 0.6));
        }
        let unseen = trial("a", 0, 2.0, 0);
        assert_eq!(role_cpu(&cell("a"), &unseen, Role::Sender), None);
    }

    /// Adds a made-up kernel account of a role on a CPU.
    fn accounted(t: Trial, cpu: u32, [user, system, uring, foreign]: [f64; 4]) -> Trial {
        let role = Role::ALL[cpu as usize];
        let metric = |kind: &str| format!("cpu.{role}.{kind}");
        let (a, b, c) = (metric("user"), metric("system"), metric("uring"));
        with_cpu(t, cpu, &[(&a, user), (&b, system), (&c, uring), ("cpu.foreign", foreign)])
    }

    #[test]
    fn the_account_is_exact_and_excludes_others() {
        // 2 s: thread 0.9, softirqs 0.5 (0.1 of them on top of it), others 0.2, idle 0.4.
        let mut t = wall(trial("a", 0, 2.0, 0), 2.0);
        t.roles[0].threads = vec![thread("tx", 1.0, 1.0, 0.0)];
        let kinds = [("cpu.busy", 1.6), ("cpu.user", 0.3), ("cpu.system", 0.8)];
        let t = with_cpu(t, 0, &kinds);
        let t = with_cpu(t, 0, &[("cpu.softirq", 0.46), ("cpu.irq", 0.04), ("cpu.iowait", 0.1)]);
        let t = accounted(t, 0, [0.2, 0.7, 0.0, 0.2]);
        let c = role_cpu(&cell("a"), &t, Role::Sender).unwrap();
        assert!(c.exact && c.rule == CpuRule::WholeCpu(0));
        assert!(near(c.user, 0.1) && near(c.system, 0.35) && near(c.softirq, 0.25), "{c:?}");
        assert!(near(c.total, 0.7) && near(c.other, 0.2), "{c:?}");
        // An io_uring worker on another CPU belongs to the role; so does what the hypervisor left.
        let t = with_cpu(t, 3, &[("cpu.sender.uring", 0.4)]);
        let t = with_cpu(t, 0, &[("cpu.steal", 0.0)]);
        assert!(near(role_cpu(&cell("a"), &t, Role::Sender).unwrap().system, 0.55));
        let mut stolen = t.clone();
        stolen.readings.retain(|r| r.metric != "cpu.steal" && r.metric != "cpu.busy");
        let stolen = with_cpu(stolen, 0, &[("cpu.busy", 1.2), ("cpu.steal", 0.4)]);
        assert!(near(role_cpu(&cell("a"), &stolen, Role::Sender).unwrap().user, 0.075));
        // For an unpinned role, its threads' run time is split by the account.
        let mut free = cell("a");
        free.placement = Placement::default();
        let c = role_cpu(&free, &t, Role::Sender).unwrap();
        assert!(c.exact && near(c.total, 0.5) && near(c.user, 0.1) && near(c.system, 0.4));
    }

    #[test]
    fn a_polling_thread_is_receive_work_by_the_account_too() {
        let mut t = wall(trial("a", 0, 1.0, 0), 1.0);
        t.roles[1].threads =
            vec![thread("rx", 0.5, 0.1, 0.4), thread("napi/byte1-5", 0.3, 0.0, 0.3)];
        let t = with_cpu(t, 1, &[("cpu.busy", 0.9), ("cpu.softirq", 0.1), ("cpu.napi", 0.3)]);
        let t = accounted(t, 1, [0.1, 0.4, 0.0, 0.0]);
        let c = role_cpu(&cell("a"), &t, Role::Receiver).unwrap();
        assert!(near(c.softirq, 0.4) && near(c.total, 0.9) && near(c.other, 0.1), "{c:?}");
        // On a CPU of its own it is added once.
        let mut apart = cell("a");
        apart.link.threaded_napi = true;
        apart.placement.softirq = SoftirqCpu::Cpu(2);
        let mut elsewhere = t.clone();
        elsewhere
            .readings
            .iter_mut()
            .filter(|r| r.metric == "cpu.napi")
            .for_each(|r| r.value = 0.0);
        let c = role_cpu(&apart, &elsewhere, Role::Receiver).unwrap();
        assert!(near(c.softirq, 0.4) && near(c.total, 0.9), "{c:?}");
    }

    #[test]
    fn the_parts_add_up_even_without_a_tick() {
        let t = with_cpu(wall(trial("a", 0, 1.0, 0), 1.0), 0, &[("cpu.busy", 0.004)]);
        let c = role_cpu(&cell("a"), &t, Role::Sender).unwrap();
        assert!(near(c.unsplit, 0.004) && near(c.total, c.user + c.system + c.softirq + c.unsplit));
        let no_wall = with_cpu(trial("a", 0, 1.0, 0), 0, &[("cpu.busy", 0.5)]);
        assert_eq!(role_cpu(&cell("a"), &no_wall, Role::Sender), None);
    }
}
