//! Attribution of the work for a network device that ran on another CPU than its role's: it is
//! still charged to the role.
//!
//! The run time of a polling thread that was placed on another CPU is added to the role's, and
//! subtracted from its peer's if it was placed there. For softirqs that were placed on a CPU that
//! belongs to no role, by RPS or by a NIC's interrupts, that CPU's softirq time is added. If
//! nothing placed them, they are searched for: a NIC raises them on the CPU that its queue
//! interrupts. A CPU counts if it runs no role and at least [`A_PART`] of its machine's network
//! softirqs; if the hosts share the machine, it counts for the receiver.

use super::threads::{Threads, cores};
use bytepath_record::{Cell, Role, SoftirqCpu, Trial};

/// Smallest share of a machine's received network softirqs with which a CPU that was not named
/// counts.
pub(crate) const A_PART: f64 = 0.05;

/// Returns the CPUs that do work for the device of a role's host without belonging to a role: the
/// named ones, or else those observed.
pub fn softirq_cpus(cell: &Cell, trial: &Trial, role: Role) -> Vec<u32> {
    let apart = trial.has_hosts_apart();
    let on_this_machine = |of: &Role| !apart || *of == role;
    let roles = || Role::ALL.into_iter().filter(on_this_machine);
    let free = |cpu: &u32| roles().all(|of| !cell.placement.cpus(of).contains(cpu));
    let own = cell.softirq_cpus(role);
    if !own.is_empty() {
        // A CPU that serves both devices is counted once.
        let is_sender = role == Role::Sender && !apart;
        let twice = |cpu: &u32| is_sender && cell.softirq_cpus(Role::Receiver).contains(cpu);
        return own.into_iter().filter(|cpu| free(cpu) && !twice(cpu)).collect();
    }
    if role == Role::Sender && !apart {
        return Vec::new();
    }
    let named = |cpu: &u32| roles().any(|of| cell.softirq_cpus(of).contains(cpu));
    let counts: Vec<(u32, f64)> = trial
        .readings
        .iter()
        .filter(|r| r.metric == "softirqs.net_rx" && r.scope.is_on_host_of(role))
        .filter_map(|r| Some((r.scope.cpu()?, r.value)))
        .collect();
    let all: f64 = counts.iter().map(|(_, count)| count).sum();
    let part = |(cpu, count): (u32, f64)| (count >= A_PART * all && count > 0.0).then_some(cpu);
    counts.into_iter().filter_map(part).filter(|cpu| free(cpu) && !named(cpu)).collect()
}

/// Where one end's packets were taken from its device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DeviceWork {
    /// On a CPU whose busy time includes it.
    Counted,
    /// By a polling thread on another CPU than the role's, with its run time in cores.
    Thread { cpu: u32, run: f64 },
    /// By softirqs on CPUs that belong to no role; `named` if the CPUs were reserved for them.
    Softirqs { cpus: Vec<u32>, named: bool },
    /// By polling threads on several CPUs, or on unknown ones.
    Anywhere,
}

/// Correction of a role's own CPU time for device work, in cores.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Correction {
    /// Work done for it on other CPUs.
    pub more: f64,
    /// Work done on its CPU for its peer, by a polling thread.
    pub less: f64,
    /// Whether its own polling thread ran on its own CPU.
    pub polls_here: bool,
}

impl DeviceWork {
    pub(crate) fn of(cell: &Cell, trial: &Trial, role: Role) -> DeviceWork {
        let run = Threads::of(trial, role).polling;
        match cell.softirq_cpu(role) {
            Some(cpu) if cell.placement.cpu(role) == Some(cpu) => DeviceWork::Counted,
            Some(cpu) if run > 0.0 => DeviceWork::Thread { cpu, run },
            None if run > 0.0 && is_spread(cell.placement.softirq(role)) => DeviceWork::Anywhere,
            _ => match softirq_cpus(cell, trial, role) {
                cpus if cpus.is_empty() => DeviceWork::Counted,
                cpus => DeviceWork::Softirqs { cpus, named: !cell.softirq_cpus(role).is_empty() },
            },
        }
    }
}

/// Returns whether polling threads may run on more than one CPU.
fn is_spread(softirq: SoftirqCpu) -> bool {
    matches!(softirq, SoftirqCpu::Free | SoftirqCpu::Turns(_))
}

/// Returns the seconds that a CPU spent in softirqs and interrupts; `None` if not measured.
pub(crate) fn softirq_time(trial: &Trial, role: Role, cpu: u32) -> Option<f64> {
    let read = |metric| trial.of_cpu(metric, role, cpu);
    Some(read("cpu.softirq")? + read("cpu.irq").unwrap_or(0.0))
}

impl Correction {
    /// Computes the correction; `None` if a CPU that did the work was not measured.
    pub(crate) fn of(
        trial: &Trial,
        (role, own_cpu): (Role, u32),
        works: &[DeviceWork; 2],
    ) -> Option<Correction> {
        let less = match works[role.peer() as usize] {
            DeviceWork::Thread { cpu, run } if cpu == own_cpu && !trial.has_hosts_apart() => run,
            _ => 0.0,
        };
        Some(match &works[role as usize] {
            DeviceWork::Thread { run, .. } => Correction { more: *run, less, polls_here: false },
            DeviceWork::Softirqs { cpus, named } => {
                let wall = trial.of_machine("cpu.wall", role).filter(|w| *w > 0.0)?;
                let in_softirqs = |cpu: &u32| match trial.of_cpu("cpu.foreign", role, *cpu) {
                    // Ticks are sampled. A reserved CPU does nothing else, so all its busy time
                    // counts.
                    None if *named => trial.of_cpu("cpu.busy", role, *cpu),
                    _ => softirq_time(trial, role, *cpu),
                };
                let seconds: Option<f64> = cpus.iter().map(in_softirqs).sum();
                Correction { more: cores(seconds?, wall), less, polls_here: true }
            }
            _ => Correction { more: 0.0, less, polls_here: true },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{cell, near, thread, trial, wall, with_cpu};
    use crate::trial::{CpuRule, role_cpu};
    use bytepath_record::{Reading, Scope, Unit};

    #[test]
    fn receive_work_on_another_cpu_is_charged_to_the_receiver() {
        let mut t = wall(trial("a", 0, 1.0, 0), 1.0);
        t.roles[0].threads = vec![thread("tx", 0.5, 0.1, 0.4)];
        t.roles[1].threads =
            vec![thread("rx", 0.6, 0.1, 0.5), thread("napi/byte1-5", 0.3, 0.0, 0.3)];
        let ticks = |user, system| {
            [("cpu.busy", user + system), ("cpu.user", user), ("cpu.system", system)]
        };
        let t = with_cpu(t, 0, &ticks(0.1, 0.7));
        let t = with_cpu(t, 1, &ticks(0.1, 0.5));
        let t = with_cpu(t, 2, &ticks(0.0, 0.25));
        let mut c = cell("a");
        c.link.threaded_napi = true;
        // The polling thread shares the sender's CPU.
        c.placement.softirq = SoftirqCpu::Cpu(0);
        let [tx, rx] = Role::ALL.map(|role| role_cpu(&c, &t, role).unwrap());
        assert!(near(tx.total, 0.5) && near(tx.system, 0.4) && near(tx.other, 0.0), "{tx:?}");
        assert!(near(rx.total, 0.9) && near(rx.system, 0.5) && near(rx.softirq, 0.3), "{rx:?}");
        // On a CPU that belongs to no role, only the receiver's sum changes.
        c.placement.softirq = SoftirqCpu::Cpu(2);
        let [tx, rx] = Role::ALL.map(|role| role_cpu(&c, &t, role).unwrap());
        assert!(near(tx.total, 0.8) && near(rx.total, 0.9), "{tx:?} {rx:?}");
        // Unknown: it may have run on either role's CPU.
        c.placement.softirq = SoftirqCpu::Free;
        let [tx, rx] = Role::ALL.map(|role| role_cpu(&c, &t, role).unwrap());
        assert_eq!((tx.rule, rx.rule), (CpuRule::Threads, CpuRule::Threads));
        assert!(near(tx.total, 0.5) && near(rx.total, 0.9));
        // Without such a thread, softirqs on CPU 2 by RPS.
        let mut softirqs = t.clone();
        softirqs.roles[1].threads.truncate(1);
        c.link.threaded_napi = false;
        for rps in [false, true] {
            c.placement.softirq = if rps { SoftirqCpu::Link } else { SoftirqCpu::Cpu(2) };
            c.link.rps = rps.then_some(2);
            let rx = role_cpu(&c, &softirqs, Role::Receiver).unwrap();
            assert!(near(rx.total, 0.85) && near(rx.softirq, 0.25), "{rx:?}");
        }
    }

    /// Two ends with two CPUs each: threads on 0 and 1, the queues of their NICs interrupt 2 and 3.
    /// Made up.
    fn two_cores_an_end() -> Trial {
        let mut t = wall(trial("a", 0, 1.0, 0), 1.0);
        t.roles[0].threads = vec![thread("tx", 0.5, 0.1, 0.4)];
        t.roles[1].threads = vec![thread("rx", 0.6, 0.1, 0.5)];
        let cpu = |t, cpu, [user, system, softirq]: [f64; 3], net_rx| {
            let busy = user + system + softirq;
            let t = with_cpu(t, cpu, &[("cpu.busy", busy), ("cpu.user", user)]);
            let t = with_cpu(t, cpu, &[("cpu.system", system), ("cpu.softirq", softirq)]);
            with_cpu(t, cpu, &[("softirqs.net_rx", net_rx)])
        };
        let t = cpu(t, 0, [0.1, 0.4, 0.0], 0.0);
        let t = cpu(t, 1, [0.1, 0.5, 0.0], 10.0);
        let t = cpu(t, 2, [0.0, 0.0, 0.2], 3000.0);
        let t = cpu(t, 3, [0.0, 0.0, 0.7], 7000.0);
        cpu(t, 4, [0.9, 0.0, 0.1], 20.0)
    }

    #[test]
    fn softirqs_of_a_nic_on_other_cpus_are_charged_to_its_end() {
        let mut c = cell("a");
        c.link.threaded_napi = false;
        c.placement.sender_softirq = SoftirqCpu::Cpu(2);
        c.placement.softirq = SoftirqCpu::Cpu(3);
        let t = two_cores_an_end();
        let [tx, rx] = Role::ALL.map(|role| role_cpu(&c, &t, role).unwrap());
        assert!(near(tx.total, 0.7) && near(tx.softirq, 0.2), "{tx:?}");
        assert!(near(rx.total, 1.3) && near(rx.softirq, 0.7), "{rx:?}");
        // Both devices interrupt the same CPU: for which of them it worked is unknown, and it
        // counts once.
        c.placement.sender_softirq = SoftirqCpu::Cpu(3);
        let [tx, rx] = Role::ALL.map(|role| role_cpu(&c, &t, role).unwrap());
        assert!(near(tx.total, 0.5) && near(rx.total, 1.3), "{tx:?} {rx:?}");
        // The sender's adapters interrupt two CPUs in turn, which are reserved for that: all of
        // their time counts.
        c.link.adapters = 2;
        c.placement.sender_softirq = SoftirqCpu::Turns(vec![2, 4].try_into().unwrap());
        let [tx, rx] = Role::ALL.map(|role| role_cpu(&c, &t, role).unwrap());
        assert!(near(tx.total, 1.7) && near(rx.total, 1.3), "{tx:?} {rx:?}");
    }

    #[test]
    fn unplaced_softirqs_are_found_where_they_ran() {
        let mut c = cell("a");
        c.link.threaded_napi = false;
        let t = two_cores_an_end();
        assert_eq!(softirq_cpus(&c, &t, Role::Receiver), [2, 3], "CPU 4 did next to nothing");
        let [tx, rx] = Role::ALL.map(|role| role_cpu(&c, &t, role).unwrap());
        assert!(near(tx.total, 0.5) && near(rx.total, 1.5), "{tx:?} {rx:?}");
        // On separate machines each is charged for what its own NIC raised.
        let mut apart = t.clone();
        for reading in &mut apart.readings {
            let role = match reading.scope {
                Scope::Cpu(0 | 2) => Role::Sender,
                _ => Role::Receiver,
            };
            reading.scope = reading.scope.clone().at_host(role);
        }
        let other = Reading::sum("cpu.wall", Unit::Seconds, 1.0, Scope::MachineOf(Role::Sender));
        apart.readings.push(other);
        let [tx, rx] = Role::ALL.map(|role| role_cpu(&c, &apart, role).unwrap());
        assert!(near(tx.total, 0.7) && near(rx.total, 1.3), "{tx:?} {rx:?}");
    }
}
