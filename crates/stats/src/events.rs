//! What spoils a trial: an event that was recorded, never a value that is odd.
//!
//! A trial that was slow is a result. A trial whose CPU was taken away is not a
//! trial of its path. The list of events and their limits stands here, is applied
//! before anybody has looked at the throughput, and is printed in every report:
//!
//! | event | limit | why there |
//! |---|---|---|
//! | steal | [`STEAL_LIMIT`] of a role's CPU | what the hypervisor takes, the stream loses; but on rented machines a few percent are always gone, and meet all cells of a block alike, so only what one block alone may suffer counts |
//! | foreign CPU | [`FOREIGN_LIMIT`] of a role's CPU | work of others on a CPU the role has for itself; of 300 ends of real trials the quiet ones stayed below 3 % (up to 8 % in one study), those beside a compiler lay above 10 % |
//! | foreign CPU, a role left to the scheduler | [`FOREIGN_LIMIT`] of all CPUs | the same for cells that have no CPU of their own |
//! | meters out of step | 10 % and 50 ms | meters and stream measured different times, so no cost per byte holds |
//! | threads or flows lost | any | a role's figures then lack a part of it |
//! | a role's CPU came or went | any | its busy time is not known |
//! | a role's CPU was throttled | any | it ran at another speed than its neighbours in the block |
//! | clock source changed | any | times before and after do not compare |
//! | settings of the link changed | any | the rest of the trial ran over another link |
//! | settings of the host changed | any, by somebody else | the rest of the trial ran on another host |
//! | samples lost | any | a profile trial's own: what is missing is not missing at random |
//!
//! Packets dropped on the link and retransmits are results of the path, and no
//! events. Every time here is told to 10 ms by `/proc/stat`, at both ends of a
//! window, so a limit is passed only by more than that. The windows of a sliced
//! trial are many; their errors are as likely up as down and add up like the root of
//! their number.

use super::cpu::polls_for_device;
use crate::record::{Cell, Design, Role, Schedule, Scope, ThreadTime, Trial, TrialStatus};
use std::collections::BTreeSet;

/// Most time that the hypervisor may take from a role's CPU, as a part of the
/// window.
pub const STEAL_LIMIT: f64 = 0.10;

/// Most time that others may use of a role's own CPU, as a part of the window.
pub const FOREIGN_LIMIT: f64 = 0.10;

/// What a column of `/proc/stat` may be off over one window, seconds.
const TICK: f64 = 0.01;

/// How far the meters' window may be from the stream's: a part of it, and seconds.
const OUT_OF_STEP: (f64, f64) = (0.1, 0.05);

/// The events that spoil a trial, each in words; none if it counts. Only a
/// measured trial has any. What no meter saw cannot spoil it.
pub fn judge_events(trial: &Trial, cell: &Cell, schedule: &Schedule) -> Vec<String> {
    if trial.status != TrialStatus::Measured {
        return Vec::new();
    }
    let mut events = Vec::new();
    if let Some(wall) = trial.reading("cpu.wall", &Scope::Machine).filter(|w| *w > 0.0) {
        let expected = if trial.window > 0.0 { trial.window } else { schedule.window };
        let (part, seconds) = OUT_OF_STEP;
        if (wall - expected).abs() > part * expected + seconds {
            events.push(format!(
                "the meters' window was {wall:.2} s and the stream's {expected:.2} s"
            ));
        }
        let tick = match schedule.design {
            Design::Slices { slice } if slice > 0.0 => TICK * (wall / slice).max(1.0).sqrt(),
            _ => TICK,
        };
        let cpus: BTreeSet<u32> = Role::ALL.iter().filter_map(|r| cell.placement.cpu(*r)).collect();
        for cpu in cpus {
            events.extend(of_cpu(trial, cell, cpu, (wall, tick)));
        }
        if Role::ALL.iter().any(|role| cell.placement.cpu(*role).is_none()) {
            events.extend(stolen_anywhere(trial, (wall, tick)));
            events.extend(foreign_anywhere(trial, (wall, tick)));
        }
    }
    for role in Role::ALL {
        events.extend(lost(trial, cell, role));
    }
    events.extend(unsteady(trial, cell));
    if let Some(profile) = trial.profile.as_ref().filter(|profile| profile.lost > 0) {
        let all = profile.samples.saturating_add(profile.lost);
        events.push(format!("{} of {all} samples were lost", profile.lost));
    }
    events
}

/// What did not stay as it was, by the meter `steady`.
fn unsteady(trial: &Trial, cell: &Cell) -> Vec<String> {
    let concerns = |cpu: u32| {
        // A role without a CPU of its own may have run on any.
        Role::ALL.iter().any(|role| cell.placement.cpu(*role).is_none_or(|own| own == cpu))
    };
    let happened = trial.readings.iter().filter(|reading| reading.value > 0.0);
    happened
        .filter_map(|reading| match (reading.metric.as_str(), &reading.scope) {
            ("steady.throttled", Scope::Cpu(cpu) | Scope::CpuOf(_, cpu)) if concerns(*cpu) => {
                Some(format!("CPU {cpu} was throttled ({} events)", reading.value))
            }
            ("steady.clock_changes", _) => Some("the clock source changed".to_owned()),
            ("host.changes", _) => {
                let warnings = trial.warnings.iter();
                let names: Vec<&str> = warnings.filter_map(|w| w.strip_prefix("host: ")).collect();
                Some(format!("settings of the host changed: {}", names.join("; ")))
            }
            ("steady.link_changes", Scope::Link(role, device)) => {
                Some(format!("settings of the {role}'s link {device} changed"))
            }
            _ => None,
        })
        .collect()
}

/// What happened to a CPU that a role, or both, are pinned to.
fn of_cpu(trial: &Trial, cell: &Cell, cpu: u32, (wall, tick): (f64, f64)) -> Vec<String> {
    let read = |metric: &str| trial.reading(metric, &Scope::Cpu(cpu));
    let Some(busy) = read("cpu.busy") else {
        return vec![format!("CPU {cpu} was not online all the time")];
    };
    let mut events = Vec::new();
    let steal = read("cpu.steal").unwrap_or(0.0);
    if steal > STEAL_LIMIT * wall + tick {
        events.push(format!(
            "CPU {cpu} lost {} to the hypervisor (limit {})",
            percent(steal / wall),
            percent(STEAL_LIMIT)
        ));
    }
    let here = |role: &&Role| cell.placement.cpu(**role) == Some(cpu);
    let threads: Vec<&ThreadTime> = Role::ALL
        .iter()
        .filter(here)
        .filter_map(|role| trial.role(*role))
        .flat_map(|record| &record.threads)
        .collect();
    if threads.is_empty() {
        return events;
    }
    // Two lower bounds of what others used; either proves it. All interrupt work
    // is taken as the role's own. (1) Time that neither the role's threads nor
    // interrupts explain: busy is cut three times (idle, iowait, steal).
    let own: f64 = threads.iter().map(|t| t.run).sum::<f64>() + polling_elsewhere(trial, cell, cpu);
    let interrupts = read("cpu.softirq").unwrap_or(0.0) + read("cpu.irq").unwrap_or(0.0);
    let unexplained = busy - own - interrupts - 3.0 * tick;
    // (2) User time that is not of the role's threads: no kernel thread has any.
    let own_user: f64 = threads.iter().map(|t| t.user).sum();
    let user = read("cpu.user").unwrap_or(0.0) - own_user - 2.0 * tick;
    let foreign = unexplained.max(user);
    if foreign > FOREIGN_LIMIT * wall {
        events.push(format!(
            "others used {} of CPU {cpu} (limit {})",
            percent(foreign / wall),
            percent(FOREIGN_LIMIT)
        ));
    }
    events
}

/// Run time of the kernel threads that poll for the device of a role with another
/// CPU: such a thread may not be pinned, and may have run here.
fn polling_elsewhere(trial: &Trial, cell: &Cell, cpu: u32) -> f64 {
    let others = trial.roles.iter().filter(|r| cell.placement.cpu(r.role) != Some(cpu));
    let threads = others.flat_map(|r| &r.threads);
    threads.filter(|t| polls_for_device(t)).map(|t| t.run).sum()
}

/// Steal where a role is left to the scheduler, which may put it on any CPU.
fn stolen_anywhere(trial: &Trial, (wall, tick): (f64, f64)) -> Option<String> {
    let on_cpus = |metric: &str| -> Vec<f64> {
        let of_cpu =
            |r: &&crate::record::Reading| r.metric == metric && matches!(r.scope, Scope::Cpu(_));
        trial.readings.iter().filter(of_cpu).map(|r| r.value).collect()
    };
    let steal = on_cpus("cpu.steal");
    let share = steal.iter().sum::<f64>() / (wall * steal.len() as f64);
    (share > STEAL_LIMIT + tick / wall).then(|| {
        format!(
            "the machine lost {} of its CPU time to the hypervisor (limit {})",
            percent(share),
            percent(STEAL_LIMIT)
        )
    })
}

/// Work of others where a role is left to the scheduler: of all CPUs together, by the
/// same two lower bounds as of one. Pinned cells and free ones are then judged alike,
/// and a comparison of the two does not keep the disturbed trials of one side only.
fn foreign_anywhere(trial: &Trial, (wall, tick): (f64, f64)) -> Option<String> {
    let threads: Vec<&ThreadTime> = trial.roles.iter().flat_map(|role| &role.threads).collect();
    let of_cpus = |metric: &str| -> (f64, usize) {
        let of_cpu = |r: &&crate::record::Reading| {
            r.metric == metric && matches!(r.scope, Scope::Cpu(_)) && r.value.is_finite()
        };
        let values = trial.readings.iter().filter(of_cpu).map(|r| r.value);
        values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1))
    };
    let (busy, cpus) = of_cpus("cpu.busy");
    if threads.is_empty() || cpus == 0 {
        return None;
    }
    // Errors of so many CPUs are as likely up as down.
    let tick = tick * (cpus as f64).sqrt();
    let own: f64 = threads.iter().map(|t| t.run).sum();
    let interrupts = of_cpus("cpu.softirq").0 + of_cpus("cpu.irq").0;
    let unexplained = busy - own - interrupts - 3.0 * tick;
    let own_user: f64 = threads.iter().map(|t| t.user).sum();
    let user = of_cpus("cpu.user").0 - own_user - 2.0 * tick;
    let share = unexplained.max(user) / (wall * cpus as f64);
    (share > FOREIGN_LIMIT).then(|| {
        format!(
            "others used {} of the machine's CPUs (limit {})",
            percent(share),
            percent(FOREIGN_LIMIT)
        )
    })
}

/// What a meter should have seen of a role and did not.
fn lost(trial: &Trial, cell: &Cell, role: Role) -> Vec<String> {
    let mut events = Vec::new();
    let flows = cell.stream.flows as usize;
    if let Some(record) = trial.role(role) {
        // Every flow has a thread; workers of the kernel come on top.
        let seen = record.threads.len();
        if seen > 0 && seen < flows {
            events.push(format!("only {seen} of {flows} threads of the {role} were seen"));
        }
    }
    let mut metrics: BTreeSet<&str> = BTreeSet::new();
    let of_role = |r: &crate::record::Reading| matches!(r.scope, Scope::Flow(of, _) if of == role);
    for reading in trial.readings.iter().filter(|r| of_role(r)) {
        metrics.insert(&reading.metric);
    }
    let seen =
        |metric: &str| trial.readings.iter().filter(|r| of_role(r) && r.metric == metric).count();
    let fewest = metrics.into_iter().map(|m| (seen(m), m)).min();
    if let Some((seen, metric)) = fewest.filter(|(seen, _)| *seen < flows) {
        events.push(format!(
            "{metric} is missing of {} of {flows} flows of the {role}",
            flows - seen
        ));
    }
    events
}

fn percent(part: f64) -> String {
    let text = format!("{:.1}", part * 100.0);
    format!("{}%", text.trim_end_matches(".0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::tests::{cell, thread, trial};
    use crate::record::{Fault, FaultKind, Placement, ProfileRecord, Reading, Unit};

    const SCHEDULE: Schedule = Schedule {
        blocks: 1,
        warm_up: 1.0,
        window: 3.0,
        seed: 0,
        design: Design::Trials,
        stopping: None,
    };

    /// Three seconds in which both CPUs were busy with their role's thread for
    /// 2.7 s, 0.3 s of it under softirqs, and for 0.2 s with softirqs alone.
    fn quiet() -> Trial {
        let mut t = trial("a", 0, 3.0, 1_000_000);
        read(&mut t, "cpu.wall", Scope::Machine, 3.0);
        for (cpu, record) in (0u32..).zip(&mut t.roles) {
            record.threads = vec![thread("engine", 2.7, 0.1, 2.3)];
            for (metric, value) in [
                ("cpu.busy", 2.9),
                ("cpu.user", 0.11),
                ("cpu.system", 2.2),
                ("cpu.softirq", 0.5),
                ("cpu.irq", 0.0),
                ("cpu.steal", 0.0),
            ] {
                let (metric, unit) = (metric.to_owned(), Unit::Seconds);
                t.readings.push(Reading::sum(metric, unit, value, Scope::Cpu(cpu)));
            }
        }
        t
    }

    fn read(t: &mut Trial, metric: &str, scope: Scope, value: f64) {
        t.readings.retain(|r| !(r.metric == metric && r.scope == scope));
        t.readings.push(Reading::sum(metric, Unit::Seconds, value, scope));
    }

    fn events(t: &Trial) -> Vec<String> {
        judge_events(t, &cell("a"), &SCHEDULE)
    }

    #[test]
    fn a_quiet_trial_counts() {
        assert_eq!(events(&quiet()), [""; 0]);
        assert_eq!(events(&trial("a", 0, 3.0, 1)), [""; 0], "no meter, no event");
    }

    #[test]
    fn steal_beyond_its_limit() {
        let mut t = quiet();
        read(&mut t, "cpu.steal", Scope::Cpu(1), 0.305);
        assert_eq!(events(&t), [""; 0], "within the limit and a tick");
        read(&mut t, "cpu.steal", Scope::Cpu(1), 0.33);
        assert_eq!(events(&t), ["CPU 1 lost 11% to the hypervisor (limit 10%)"]);
        // Thirty slices of 0.1 s: 55 ms of it may be rounding.
        let sliced = Schedule { design: Design::Slices { slice: 0.1 }, ..SCHEDULE };
        assert_eq!(judge_events(&t, &cell("a"), &sliced), [""; 0]);
        read(&mut t, "cpu.steal", Scope::Cpu(1), 0.4);
        assert_eq!(judge_events(&t, &cell("a"), &sliced).len(), 1);
        // On a CPU that no role uses it is nothing to us.
        let mut t = quiet();
        read(&mut t, "cpu.steal", Scope::Cpu(5), 3.0);
        assert_eq!(events(&t), [""; 0]);
        // Unless the roles may be anywhere: two of six seconds.
        let mut t = quiet();
        read(&mut t, "cpu.steal", Scope::Cpu(1), 2.0);
        let mut free = cell("a");
        free.placement = Placement::default();
        assert_eq!(
            judge_events(&t, &free, &SCHEDULE),
            ["the machine lost 33.3% of its CPU time to the hypervisor (limit 10%)"]
        );
    }

    #[test]
    fn foreign_work_by_either_proof() {
        // Another process in user mode took turns with a sender that slept.
        let mut t = quiet();
        t.roles[0].threads = vec![thread("engine", 2.0, 0.1, 1.9)];
        read(&mut t, "cpu.user", Scope::Cpu(0), 0.5);
        assert_eq!(events(&t), ["others used 12.7% of CPU 0 (limit 10%)"]);
        // A kernel thread has no user time, but its time is unexplained.
        let mut t = quiet();
        t.roles[1].threads = vec![thread("engine", 2.0, 0.1, 1.8)];
        assert_eq!(events(&t), ["others used 12.3% of CPU 1 (limit 10%)"]);
        // Softirqs beside the thread are the role's own work.
        read(&mut t, "cpu.softirq", Scope::Cpu(1), 0.8);
        assert_eq!(events(&t), [""; 0]);
    }

    #[test]
    fn foreign_work_beside_roles_that_are_left_to_the_scheduler() {
        let mut free = cell("a");
        free.placement = Placement::default();
        let judge = |t: &Trial| judge_events(t, &free, &SCHEDULE);
        let mut t = quiet();
        assert_eq!(judge(&t), [""; 0], "two CPUs, each busy with a role");
        // Another process used 0.8 of the 6 seconds.
        read(&mut t, "cpu.user", Scope::Cpu(0), 0.91);
        assert_eq!(judge(&t), ["others used 13.2% of the machine's CPUs (limit 10%)"]);
        // On four CPUs it is less of them.
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
        assert_eq!(judge(&t), ["others used 42.8% of the machine's CPUs (limit 10%)"]);
        t.roles.iter_mut().for_each(|role| role.threads.clear());
        assert_eq!(judge(&t), [""; 0], "what no meter saw cannot spoil it");
    }

    #[test]
    fn the_peers_polling_thread_is_not_foreign() {
        // The receiver's NAPI thread was not pinned and ran beside the sender.
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
        assert_eq!(judge_events(&t, &shared, &SCHEDULE), [""; 0]);
        t.roles[1].threads = vec![thread("engine", 0.3, 0.05, 0.2)];
        let events = judge_events(&t, &shared, &SCHEDULE);
        assert_eq!(events, ["others used 25.7% of CPU 0 (limit 10%)"]);
    }

    #[test]
    fn what_meters_lost() {
        let mut t = quiet();
        read(&mut t, "cpu.wall", Scope::Machine, 3.6);
        assert_eq!(events(&t)[0], "the meters' window was 3.60 s and the stream's 3.00 s");
        let mut t = quiet();
        t.readings.retain(|r| r.scope != Scope::Cpu(1));
        assert_eq!(events(&t), ["CPU 1 was not online all the time"]);
        let mut t = quiet();
        let mut two = cell("a");
        two.stream.flows = 2;
        read(&mut t, "tcp.retransmits", Scope::Flow(Role::Sender, 0), 0.0);
        assert_eq!(
            judge_events(&t, &two, &SCHEDULE),
            [
                "only 1 of 2 threads of the sender were seen",
                "tcp.retransmits is missing of 1 of 2 flows of the sender",
                "only 1 of 2 threads of the receiver were seen",
            ]
        );
    }

    #[test]
    fn lost_samples_spoil_a_profile() {
        let mut t = quiet();
        let record = ProfileRecord {
            number: 1,
            file: "profiles/a-1.pb.gz".into(),
            event: "cycles".into(),
            rate: 999,
            samples: 5990,
            lost: 0,
        };
        t.profile = Some(record.clone());
        assert_eq!(events(&t), [""; 0]);
        t.profile = Some(ProfileRecord { lost: 10, ..record });
        assert_eq!(events(&t), ["10 of 6000 samples were lost"]);
    }

    #[test]
    fn values_are_no_events_and_what_is_not_measured_has_none() {
        let mut slow = quiet();
        slow.count = 1;
        read(&mut slow, "link.rx_dropped", Scope::Link(Role::Receiver, "veth".into()), 1e6);
        read(&mut slow, "tcp.retransmits", Scope::Flow(Role::Sender, 0), 1e5);
        assert_eq!(events(&slow), [""; 0]);
        let mut failed = quiet();
        read(&mut failed, "cpu.steal", Scope::Cpu(1), 3.0);
        failed.status = TrialStatus::Failed { fault: Fault::new(FaultKind::System, "x") };
        assert_eq!(events(&failed), [""; 0]);
    }

    #[test]
    fn what_did_not_stay_as_it_was() {
        let mut t = quiet();
        let link = Scope::Link(Role::Receiver, "byte1".into());
        read(&mut t, "steady.clock_changes", Scope::Machine, 0.0);
        read(&mut t, "steady.throttled", Scope::Cpu(7), 3.0);
        read(&mut t, "steady.link_changes", link.clone(), 0.0);
        assert_eq!(events(&t), [""; 0], "CPU 7 is nobody's");
        read(&mut t, "steady.throttled", Scope::Cpu(1), 2.0);
        read(&mut t, "steady.clock_changes", Scope::Machine, 1.0);
        read(&mut t, "steady.link_changes", link, 1.0);
        assert_eq!(
            events(&t),
            [
                "CPU 1 was throttled (2 events)",
                "the clock source changed",
                "settings of the receiver's link byte1 changed",
            ]
        );
        let free = crate::record::Cell { placement: Placement::default(), ..cell("a") };
        assert_eq!(judge_events(&t, &free, &SCHEDULE).len(), 4, "a role may be anywhere");
        let mut t = quiet();
        read(&mut t, "host.changes", Scope::Machine, 1.0);
        t.warnings.push("host: irq.24.cpus was 0-1 and is 1".into());
        assert_eq!(events(&t), ["settings of the host changed: irq.24.cpus was 0-1 and is 1"]);
    }
}
