//! CPU time that a guest playing one end uses on the host of the other end.
//!
//! The guest's agent measures the role's CPU time by the guest's clock, as on any host. The host
//! spends more on the guest: qemu, vhost, and everything the virtual CPUs do. The virtual CPUs'
//! time includes the role's, so the sum of both ends uses the host's figure instead of the guest's.
//! There, the seconds of an emulated guest are those of the emulating host's clock.

use super::sum_of;
use super::threads::cores;
use bytepath_record::{Role, Scope, Trial};
use schemars::JsonSchema;
use serde::Serialize;

/// CPU time of the threads that run a guest, in CPU seconds per second of its host, as the
/// scheduler counts it. `total() = vcpu + qemu + vhost = user + system`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct GuestCpu {
    /// The virtual CPUs: all that ran in the guest, and its exits.
    pub vcpu: f64,
    /// The other threads of its qemu, which move the frames if vhost does not.
    pub qemu: f64,
    /// vhost's workers.
    pub vhost: f64,
    /// Time in programs and in the guest, split by the ticks; all of the time if there were none.
    pub user: f64,
    /// Time in the host's kernel.
    pub system: f64,
    /// Length of the interval, in seconds.
    pub wall: f64,
}

impl GuestCpu {
    /// `None` unless a guest of the peer's host played the role and the meter `threads` ran there.
    pub fn of(trial: &Trial, role: Role) -> Option<GuestCpu> {
        let wall = trial.reading("threads.wall", &Scope::Role(role.peer()))?;
        let run = |group: &str| trial.reading("guest.run", &Scope::Threads(role, group.to_owned()));
        let part = |group| run(group).map_or(0.0, |run| cores(run, wall));
        let is_of = |scope: &Scope| matches!(scope, Scope::Threads(of, _) if *of == role);
        let ticks = |metric| sum_of(trial, |r| r.metric == metric && is_of(&r.scope));
        let [user, system] = [ticks("guest.user")?, ticks("guest.system")?];
        let mut guest = GuestCpu {
            vcpu: part("vCPU"),
            qemu: part("qemu"),
            vhost: part("vhost"),
            wall,
            ..GuestCpu::default()
        };
        let share = system / (user + system);
        guest.system = guest.total() * if share.is_finite() { share } else { 0.0 };
        guest.user = guest.total() - guest.system;
        Some(guest)
    }

    pub fn total(&self) -> f64 {
        self.vcpu + self.qemu + self.vhost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{cell, near, quiet, read, study, thread, wall, with_cpu};
    use crate::trial::{Costs, CpuRule, role_cpu};
    use crate::{Metric, between};
    use bytepath_record::SoftirqCpu;

    /// The receiver in a guest of the sender's host, 2 s: it counts 0.8 CPUs, its host 1.6. Made
    /// up.
    fn behind_a_tap() -> Trial {
        let mut t = quiet();
        t.readings.clear();
        t.roles[0].threads = vec![thread("sender/0", 1.0, 0.2, 0.8)];
        t.roles[1].threads = vec![thread("receiver/0", 1.6, 0.4, 1.2)];
        let mut t = wall(t, 2.0);
        // The sender's CPU was busy with the guest, too.
        t = with_cpu(t, 0, &[("cpu.busy", 1.9), ("cpu.user", 0.9), ("cpu.system", 1.0)]);
        for reading in &mut t.readings {
            reading.scope = reading.scope.clone().at_host(Role::Sender);
        }
        for role in Role::ALL {
            read(&mut t, "threads.wall", Scope::Role(role), 2.0);
        }
        for (group, [run, user, system]) in
            [("vCPU", [2.0, 1.5, 0.5]), ("qemu", [0.8, 0.2, 0.6]), ("vhost", [0.4, 0.0, 0.4])]
        {
            let scope = || Scope::Threads(Role::Receiver, group.to_owned());
            read(&mut t, "guest.run", scope(), run);
            read(&mut t, "guest.user", scope(), user);
            read(&mut t, "guest.system", scope(), system);
        }
        t
    }

    #[test]
    fn a_guest_is_counted_once_and_not_as_the_senders() {
        let t = behind_a_tap();
        let guest = GuestCpu::of(&t, Role::Receiver).unwrap();
        assert!(near(guest.vcpu, 1.0) && near(guest.qemu, 0.4) && near(guest.vhost, 0.2));
        assert!(near(guest.user, 0.85) && near(guest.system, 0.75), "{guest:?}");
        assert_eq!(GuestCpu::of(&t, Role::Sender), None);
        let [tx, rx] = Role::ALL.map(|role| role_cpu(&cell("a"), &t, role).unwrap());
        assert_eq!(tx.rule, CpuRule::Threads, "its CPU was not its own");
        assert!(near(tx.total, 0.5) && near(rx.total, 0.8), "{tx:?} {rx:?}");
        let both = |t: &Trial| {
            let costs = Costs::of(&cell("a"), t, None);
            costs.cpu_per_unit().unwrap() * costs.units_per_second()
        };
        assert!(near(both(&t), 2.1), "{}", both(&t));
        let mut unseen = t.clone();
        unseen.readings.retain(|reading| !reading.metric.starts_with("guest."));
        assert!(near(both(&unseen), 0.95 + 0.8), "{}", both(&unseen));
    }

    /// The meter `threads` failed in one trial: there both ends lack what the guest took.
    #[test]
    fn trials_with_and_without_what_a_guest_took_are_not_averaged() {
        let seen = behind_a_tap();
        let mut unseen = seen.clone();
        unseen.readings.retain(|reading| !reading.metric.starts_with("guest."));
        let both = |trials: [&Trial; 3]| {
            let costs = Costs::of_trials(&cell("a"), trials, None);
            let cores = |costs: &Costs| costs.cpu_per_unit().map(|c| c * costs.units_per_second());
            costs.iter().map(cores).collect::<Vec<_>>()
        };
        let [first, none, last] = both([&seen, &unseen, &seen])[..] else { panic!("three") };
        assert!(near(first.unwrap(), 2.1) && near(last.unwrap(), 2.1) && none.is_none());
        // The one that differs may be the first.
        let found = both([&unseen, &seen, &seen]);
        assert!(found[0].is_none() && near(found[1].unwrap(), 2.1), "{found:?}");
        // An end that no meter saw is not what the others are held against.
        let mut blind = seen.clone();
        blind.roles[1].threads.clear();
        let found = both([&blind, &seen, &seen]);
        assert!(found[0].is_none() && near(found[1].unwrap(), 2.1), "{found:?}");
    }

    /// A study from before what a guest takes was metered, and one of today.
    #[test]
    fn costs_with_and_without_what_a_guest_took_are_not_comparable() {
        let with = |seen: bool| {
            let mut study = study(0.1, &[[5_000, 5_000, 5_000]; 4]);
            for trial in &mut study.trials {
                let Trial { mut readings, roles, .. } = behind_a_tap();
                // By the run time of threads in both.
                readings.retain(|one| !one.metric.starts_with("cpu."));
                readings.retain(|one| seen || !one.metric.starts_with("guest."));
                (trial.readings, trial.roles) = (readings, roles);
            }
            study
        };
        let reasons = |first: bool, second: bool| {
            let found = between(&with(first), &with(second), false);
            let costs = found.pairings.into_iter().find(|one| one.question == Metric::Cpu);
            costs.unwrap().reasons
        };
        assert_eq!((reasons(true, true), reasons(false, false)), (vec![], vec![]));
        for [first, second] in [[false, true], [true, false]] {
            let [reason] = &reasons(first, second)[..] else { panic!("{first} {second}") };
            assert!(reason.contains("all that a guest takes of its host"), "{reason}");
        }
    }

    /// The run time of a guest's threads has what softirqs took on top of them.
    #[test]
    fn softirqs_on_top_of_a_guest_are_not_the_senders_as_well() {
        let mut t = behind_a_tap();
        for (metric, value) in [
            ("cpu.foreign", 0.9),
            ("cpu.sender.user", 0.2),
            ("cpu.sender.system", 0.8),
            ("cpu.sender.uring", 0.0),
            ("cpu.softirq", 0.3),
        ] {
            read(&mut t, metric, Scope::CpuOf(Role::Sender, 0), value);
        }
        for (metric, value) in
            [("cpu.foreign", 0.0), ("cpu.softirq", 0.4), ("softirqs.net_rx", 4000.0)]
        {
            read(&mut t, metric, Scope::CpuOf(Role::Sender, 3), value);
        }
        let tx = role_cpu(&cell("a"), &t, Role::Sender).unwrap();
        assert_eq!((tx.rule, tx.exact), (CpuRule::Threads, true));
        assert!(near(tx.total, 0.5) && near(tx.user, 0.1), "{tx:?}");
        // A CPU that is reserved for them has no other work.
        let mut placed = cell("a");
        placed.placement.sender_softirq = SoftirqCpu::Cpu(3);
        let tx = role_cpu(&placed, &t, Role::Sender).unwrap();
        assert!(near(tx.total, 0.7) && near(tx.softirq, 0.2), "{tx:?}");
        // The guest may have run there: of a busy CPU only its softirqs are the sender's.
        t.readings.retain(|reading| reading.metric != "cpu.foreign");
        read(&mut t, "cpu.busy", Scope::CpuOf(Role::Sender, 3), 1.8);
        let tx = role_cpu(&placed, &t, Role::Sender).unwrap();
        assert!(near(tx.total, 0.7), "{tx:?}");
        // Without the meter of CPUs the role's own threads are known.
        t.readings.retain(|reading| !reading.metric.starts_with("cpu."));
        let tx = role_cpu(&placed, &t, Role::Sender).unwrap();
        assert!(near(tx.total, 0.5), "{tx:?}");
    }
}
