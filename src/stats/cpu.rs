//! Whose CPU time it was.
//!
//! **Roles pinned to different CPUs**: a role's time is what its CPU was busy,
//! `cpu.busy` = wall - idle - iowait - steal, over `cpu.wall`. Idle and iowait
//! are exact on a tickless kernel. Busy ticks are sampled, and a CPU that
//! alternates between idle and busy loses some of them, so they only give the
//! proportions (user : system : softirq + irq) in which the exact total is
//! split. A kernel thread that polls for the device (`napi/...`) runs with
//! softirqs masked but outside of a softirq, so the kernel counts its ticks as
//! system (kernel/sched/cputime.c, `account_system_time`); its own run time is
//! moved to softirq here.
//!
//! **Otherwise**: a role's time is the run time of its own threads (exact, from
//! schedstat), split into user and system by ticks. A softirq that ran on top
//! of a thread is inside its system time, one that ran on an idle CPU is seen
//! nowhere; a report has to say so.
//!
//! iowait is idle: no thread ran. It is kept apart, never added. ksoftirqd
//! needs no care: its time is in its CPU's softirq ticks, once.

use crate::record::{Cell, Role, Scope, ThreadTime, Trial};
use serde::Serialize;

/// How CPU time was given to roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuRule {
    /// The role has this CPU to itself: all of its busy time.
    WholeCpu(u32),
    /// Run time of the role's own threads.
    Threads,
}

/// CPU time of one role in one trial, in CPU seconds per second ("cores").
/// `total = user + system + softirq + unsplit`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RoleCpu {
    /// How it was found.
    pub rule: CpuRule,
    /// All of it.
    pub total: f64,
    /// In user mode.
    pub user: f64,
    /// In the kernel, on behalf of a thread.
    pub system: f64,
    /// In softirq or interrupt context, or in a thread that polls for the device.
    pub softirq: f64,
    /// What no tick told apart.
    pub unsplit: f64,
    /// The CPU idle while a task waited for I/O; none by [`CpuRule::Threads`].
    /// Not part of the total.
    pub iowait: Option<f64>,
    /// Run time of the role's own threads.
    pub threads: f64,
    /// The part of the total outside of the role's own threads: interrupt work
    /// on an idle CPU, or something foreign. Zero by [`CpuRule::Threads`].
    pub other: f64,
}

/// CPU time of a role in a trial; none where no meter saw it.
pub fn role_cpu(cell: &Cell, trial: &Trial, role: Role) -> Option<RoleCpu> {
    let threads = Threads::of(trial, role);
    let apart = cell.placement.cpu(role) != cell.placement.cpu(role.peer());
    let alone =
        cell.placement.cpu(role).filter(|_| apart && cell.placement.cpu(role.peer()).is_some());
    alone.and_then(|cpu| whole_cpu(trial, cpu, &threads)).or_else(|| by_threads(&threads))
}

/// Run times of a role's threads, in cores.
#[derive(Clone, Copy, Debug, Default)]
struct Threads {
    /// The engine's.
    run: f64,
    user: f64,
    system: f64,
    /// Kernel threads that poll for the device.
    polling: f64,
}

impl Threads {
    fn of(trial: &Trial, role: Role) -> Threads {
        let mut sums = Threads::default();
        let Some(record) = trial.role(role) else { return sums };
        let window = if record.window > 0.0 { record.window } else { trial.window };
        for t in &record.threads {
            if polls_for_device(t) {
                sums.polling += cores(t.run, window);
            } else {
                sums.run += cores(t.run, window);
                sums.user += cores(t.user, window);
                sums.system += cores(t.system, window);
            }
        }
        sums
    }
}

/// Whether this is a kernel thread that polls for a device (threaded NAPI).
pub fn polls_for_device(thread: &ThreadTime) -> bool {
    thread.name.starts_with("napi/")
}

/// Seconds of CPU over seconds of wall; nonsense counts as nothing.
fn cores(seconds: f64, wall: f64) -> f64 {
    let cores = seconds / wall;
    if cores.is_finite() { cores.max(0.0) } else { 0.0 }
}

fn whole_cpu(trial: &Trial, cpu: u32, threads: &Threads) -> Option<RoleCpu> {
    let wall = trial.reading("cpu.wall", &Scope::Machine).filter(|w| *w > 0.0)?;
    let of = |metric| trial.reading(metric, &Scope::Cpu(cpu)).map(|s| cores(s, wall));
    let ticks = |metric| of(metric).unwrap_or(0.0);
    let total = of("cpu.busy")?;
    let (user, system) = (ticks("cpu.user"), ticks("cpu.system"));
    let softirq = ticks("cpu.softirq") + ticks("cpu.irq");
    let all = user + system + softirq;
    let split = |part: f64| if all > 0.0 { total * (part / all) } else { 0.0 };
    let polling = threads.polling.min(split(system));
    Some(RoleCpu {
        rule: CpuRule::WholeCpu(cpu),
        total,
        user: split(user),
        system: split(system) - polling,
        softirq: split(softirq) + polling,
        unsplit: if all > 0.0 { 0.0 } else { total },
        iowait: of("cpu.iowait"),
        threads: threads.run + threads.polling,
        other: (total - threads.run - threads.polling).max(0.0),
    })
}

fn by_threads(threads: &Threads) -> Option<RoleCpu> {
    let total = threads.run + threads.polling;
    if total <= 0.0 {
        return None;
    }
    let all = threads.user + threads.system;
    let split = |part: f64| if all > 0.0 { threads.run * (part / all) } else { 0.0 };
    Some(RoleCpu {
        rule: CpuRule::Threads,
        total,
        user: split(threads.user),
        system: split(threads.system),
        softirq: threads.polling,
        unsplit: if all > 0.0 { 0.0 } else { threads.run },
        iowait: None,
        threads: total,
        other: 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Placement, Reading, Unit};
    use crate::stats::pool::tests::{cell, thread, trial};

    fn with_cpu(mut t: Trial, cpu: u32, values: &[(&str, f64)]) -> Trial {
        for (metric, value) in values {
            let metric = (*metric).to_owned();
            t.readings.push(Reading {
                metric,
                unit: Unit::Seconds,
                value: *value,
                scope: Scope::Cpu(cpu),
            });
        }
        t
    }

    fn wall(mut t: Trial, seconds: f64) -> Trial {
        let metric = "cpu.wall".to_owned();
        t.readings.push(Reading {
            metric,
            unit: Unit::Seconds,
            value: seconds,
            scope: Scope::Machine,
        });
        t
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn a_pinned_role_pays_for_its_whole_cpu_in_proportion_of_the_ticks() {
        // Busy 2.4 of 3 s, but the ticks saw only 2.0 of them: they give the
        // proportions 1 : 6 : 3, not the amount.
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
    fn without_a_cpu_of_its_own_a_role_pays_for_its_threads() {
        let mut t = wall(trial("a", 0, 2.0, 0), 2.0);
        t.roles[0].threads = vec![thread("tx", 1.0, 0.2, 0.6), thread("tx", 0.6, 0.0, 0.0)];
        let t = with_cpu(t, 0, &[("cpu.busy", 1.9), ("cpu.user", 1.0)]);
        for placement in [
            Placement::default(),
            Placement { sender: Some(0), receiver: None },
            Placement { sender: Some(0), receiver: Some(0) },
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

    #[test]
    fn the_parts_add_up_even_without_a_tick() {
        let t = with_cpu(wall(trial("a", 0, 1.0, 0), 1.0), 0, &[("cpu.busy", 0.004)]);
        let c = role_cpu(&cell("a"), &t, Role::Sender).unwrap();
        assert!(near(c.unsplit, 0.004) && near(c.total, c.user + c.system + c.softirq + c.unsplit));
        let no_wall = with_cpu(trial("a", 0, 1.0, 0), 0, &[("cpu.busy", 0.5)]);
        assert_eq!(role_cpu(&cell("a"), &no_wall, Role::Sender), None);
    }
}
