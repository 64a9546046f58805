//! What invalidates a trial: a recorded event, never an odd value.
//!
//! A trial that was slow is a result. A trial whose CPU was taken away is not a trial of its path.
//! The events and their limits are listed here, are applied before anyone has looked at the
//! throughput, and are printed in every report:
//!
//! | event | limit | why there |
//! |---|---|---|
//! | steal (*) | [`STEAL_LIMIT`] of a role's CPU | what the hypervisor takes, the stream loses; but rented machines always lose a few percent, which meets all cells of a block alike, so the limit lies above that |
//! | foreign CPU (*) | [`FOREIGN_LIMIT`] of a role's CPU | other processes on a CPU that the role has for itself; `interference.rs` explains how this is found |
//! | foreign CPU, a role left to the scheduler (*) | [`FOREIGN_LIMIT`] of all CPUs | the same for cells that are not pinned |
//! | meters out of step | 10 % and 50 ms | the windows of meters and stream differ, so no cost per byte holds |
//! | separate hosts, windows out of step | 5 % and 50 ms, plus the error of their clocks | one end's cost is divided by the other end's count, so what happened while only one window was open is in just one of the two. The part is half of that for meters, because it comes on top; the seconds are the same, because the thread that opens a window may wake late |
//! | a role's process was kept from running | 0.1 s at once | stopped, frozen or suspended with its machine, it moved nothing, whatever its path |
//! | a role's thread may run on another CPU than it was pinned to | any | its placement is part of the contract |
//! | threads or flows lost | any | a role's figures then lack a part |
//! | a role's CPU went online or offline | any | its busy time is unknown |
//! | a role's CPU was throttled | any | it ran at another speed than its neighbours in the block |
//! | a control group's CPU quota used up | [`STEAL_LIMIT`] of the window, all CPUs together | the group's threads then wait for the next period, and how long depends on the quota, not on the path |
//! | clock source changed | any | times before and after are not comparable |
//! | settings of the link changed | any | the rest of the trial ran over another link |
//! | settings of the host changed | any, by someone else | the rest of the trial ran on another host |
//! | a client ran out of ports | any | its rate is the rate at which ports become free again, whatever its path |
//! | an open loop answered more than was due | [`BACKLOG`], plus the chance variation of that many requests | it worked off the backlog of a stall before the window, which its rate and latency then describe |
//! | samples lost | any | profile trials only: what is missing is not missing at random |
//!
//! (*) Such a trial is disturbed: it counts, with a mark, unless the study sets a limit
//! (`Schedule::max_interference`). The cells of a block take turns in random order, so disturbances
//! that come and go meet them alike. They are noise, which widens intervals; but the machine is not
//! the same as an idle one, so every report of such a study says so.
//!
//! Packets dropped on the link and retransmits are results of the path, not events. `/proc/stat`
//! gives every time used here to within 10 ms at both ends of a window, so a limit is exceeded only
//! by more than that. A sliced trial has many windows; their errors are as likely positive as
//! negative and add up like the root of their number.

use super::interference::{self, Machine};
use bytepath_record::{
    Cell, Design, HOST_CHANGE, Reading, Role, Schedule, Scope, Trial, TrialStatus, listed,
};
use std::collections::{BTreeMap, BTreeSet};

/// Seconds within the window for which a role's process was kept from running, as its agent
/// noticed.
pub const PAUSED: &str = "agent.paused";

/// Connections that found no free port at the client, over the whole trial.
const NO_PORT: &str = "connections.no-port";

/// Largest share of a role's CPU that the hypervisor may take during the window.
pub const STEAL_LIMIT: f64 = 0.10;

/// Largest share of a role's own CPU that other processes may use during the window. Where only
/// ticks are available, part of the figure is measured against the cell's earlier trials.
pub const FOREIGN_LIMIT: f64 = 0.10;

/// How long the window of one end alone may be open: as a part of the window, plus seconds, because
/// the thread that opens it may wake late.
const ALONE: (f64, f64) = (0.05, 0.05);

/// How many more requests an open loop may answer than are due, as a part of those.
const BACKLOG: f64 = 0.1;

/// Largest error of a `/proc/stat` column over one window, in seconds.
const TICK: f64 = 0.01;

/// How far the meters' window may differ from the stream's: as a part of it, plus seconds.
const OUT_OF_STEP: (f64, f64) = (0.1, 0.05);

/// The events of a trial, in words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Events {
    /// Events that invalidate the trial.
    pub invalidating: Vec<String>,
    /// Work of other processes on its CPUs, which does not invalidate it.
    pub disturbing: Vec<String>,
    limit: Option<f64>,
}

impl Events {
    fn invalidate(&mut self, events: impl IntoIterator<Item = String>) {
        self.invalidating.extend(events);
    }

    /// Enters that others took this share of a CPU.
    fn disturb(&mut self, share: f64, what: String) {
        match self.limit.filter(|limit| share > *limit) {
            Some(limit) => self.invalidate([format!("{what} (limit {})", percent(limit))]),
            None => self.disturbing.push(what),
        }
    }
}

/// Returns the events of a trial; only a measured trial has any. What no meter measured cannot
/// invalidate it. `earlier` are the earlier trials of the same cell that were measured undisturbed.
pub fn judge_events(trial: &Trial, cell: &Cell, schedule: &Schedule, earlier: &[&Trial]) -> Events {
    let mut events = Events { limit: schedule.max_interference, ..Events::default() };
    if trial.status != TrialStatus::Measured {
        return events;
    }
    for machine in Machine::all_of(trial) {
        on_machine(machine, (trial, cell, schedule), earlier, &mut events);
    }
    events.invalidate(out_of_step(trial));
    for role in Role::ALL {
        events.invalidate(lost(trial, cell, role));
    }
    events.invalidate(unsteady(trial, cell));
    events.invalidate(backlog(trial));
    let no_port = trial.reading(NO_PORT, &Scope::Role(Role::Sender)).filter(|count| *count > 0.0);
    let ran_out = |count| format!("the client ran out of ports: {count} connections had none");
    events.invalidate(no_port.map(ran_out));
    if let Some(profile) = trial.profile.as_ref().filter(|profile| profile.lost > 0) {
        let all = profile.samples.saturating_add(profile.lost);
        events.invalidate([format!("{} of {all} samples were lost", profile.lost)]);
    }
    events
}

/// Judges what happened to a machine and to the CPUs of its roles.
fn on_machine(
    machine: Machine,
    (trial, cell, schedule): (&Trial, &Cell, &Schedule),
    earlier: &[&Trial],
    events: &mut Events,
) {
    let Some(wall) = machine.wall(trial) else { return };
    let expected = if trial.window > 0.0 { trial.window } else { schedule.window };
    let (part, seconds) = OUT_OF_STEP;
    // Each of two hosts has a window of its own: see `out_of_step`.
    let is_same = machine == Machine::Shared;
    if is_same && (wall - expected).abs() > part * expected + seconds {
        events.invalidate([format!(
            "the windows of meters and stream differ: {wall:.2} s and {expected:.2} s"
        )]);
    }
    let tick = match schedule.design {
        Design::Slices { slice } if slice > 0.0 => TICK * (wall / slice).max(1.0).sqrt(),
        _ => TICK,
    };
    let roles = || Role::ALL.into_iter().filter(|role| machine.has(*role));
    // CPUs that the threads of one end use in turn are judged together with all others.
    let of_turns = |cpu: &u32| roles().any(|role| cell.placement.turns(role).cpus().contains(cpu));
    let cpus = roles().filter_map(|role| cell.placement.cpu(role));
    let cpus: BTreeSet<u32> = cpus.filter(|cpu| !of_turns(cpu)).collect();
    // A guest's threads are not pinned, so foreign work on one CPU may be the peer's.
    let has_guest = machine.guest(trial).is_some();
    for cpu in cpus {
        of_cpu(trial, (machine, cpu), (wall, tick), events);
        if !has_guest {
            let share = interference::of_cpu(trial, cell, (machine, cpu), tick, earlier);
            foreign(share, &machine.cpu_title(cpu), events);
        }
    }
    let is_free = roles().any(|role| cell.placement.cpu(role).is_none());
    if is_free {
        stolen_anywhere(trial, machine, (wall, tick), events);
    }
    if is_free || has_guest {
        let share = interference::anywhere(trial, machine, tick, earlier);
        foreign(share, &machine.cpus_title(), events);
    }
}

/// Detects an open loop that answers requests which were due before the window.
fn backlog(trial: &Trial) -> Option<String> {
    let (due, answered) = (trial.offered?, trial.rate()?);
    let limit = BACKLOG + by_chance(due * trial.window);
    (answered > due * (1.0 + limit)).then(|| {
        format!(
            "it answered {answered:.0} requests a second where {due:.0} were due: it worked off what a \
             stall before the window had left"
        )
    })
}

/// Returns how much a count varies by chance, as a part of it: four standard deviations of random
/// arrivals.
pub(crate) fn by_chance(count: f64) -> f64 {
    4.0 / count.max(1.0).sqrt()
}

/// Detects windows of the two ends that differ by more than the error of their clocks explains.
fn out_of_step(trial: &Trial) -> Option<String> {
    let clocks = trial.clocks.as_ref()?;
    let alone = clocks.out_of_step();
    let (part, seconds) = ALONE;
    let limit = part * trial.window + seconds;
    (alone > limit + 2.0 * clocks.error).then(|| {
        format!(
            "the ends' windows were out of step: one alone was open for {alone:.3} s (limit \
             {limit:.3} s)"
        )
    })
}

/// Changes during the trial, as reported by the meter `steady`.
fn unsteady(trial: &Trial, cell: &Cell) -> Vec<String> {
    // A role that is not pinned may have run on any CPU.
    let runs_on = |role: Role, cpu: u32| {
        let own = cell.placement.cpus(role);
        own.is_empty() || own.contains(&cpu)
    };
    let happened = trial.readings.iter().filter(|reading| reading.value > 0.0);
    happened
        .filter_map(|reading| match (reading.metric.as_str(), &reading.scope) {
            ("steady.throttled", Scope::Cpu(cpu))
                if Role::ALL.into_iter().any(|role| runs_on(role, *cpu)) =>
            {
                Some(format!("CPU {cpu} was throttled ({} events)", reading.value))
            }
            ("steady.throttled", Scope::CpuOf(role, cpu)) if runs_on(*role, *cpu) => {
                Some(format!("the {role}'s CPU {cpu} was throttled ({} events)", reading.value))
            }
            ("steady.quota", scope) if reading.value > STEAL_LIMIT * trial.window => {
                let of = match scope {
                    Scope::MachineOf(role) => format!(" on the {role}'s host"),
                    _ => String::new(),
                };
                Some(format!(
                    "the control group's CPU quota{of} took {:.2} s of CPU time in a window of \
                     {:.2} s (limit {})",
                    reading.value,
                    trial.window,
                    percent(STEAL_LIMIT)
                ))
            }
            (PAUSED, Scope::Role(role)) => Some(format!(
                "the {role}'s process was kept from running for {:.2} s of the window: stopped, \
                 frozen with its control group, or suspended with its machine",
                reading.value
            )),
            ("steady.moved", Scope::Role(role)) => Some(format!(
                "threads of the {role} may run on other CPUs than they were pinned to"
            )),
            ("steady.clock_changes", Scope::MachineOf(role)) => {
                Some(format!("the clock source of the {role}'s host changed"))
            }
            ("steady.clock_changes", _) => Some("the clock source changed".to_owned()),
            ("host.changes", _) => {
                Some(format!("settings of the host changed: {}", changed_settings(trial)))
            }
            ("steady.link_changes", Scope::Link(role, device)) => {
                Some(format!("settings of the {role}'s link {device} changed"))
            }
            _ => None,
        })
        .collect()
}

/// Names the first few settings that changed. Their values are in the trial's warnings and in a
/// remark on the study.
fn changed_settings(trial: &Trial) -> String {
    let changes = trial.warnings.iter().filter_map(|warning| warning.strip_prefix(HOST_CHANGE));
    // `NAME: BEFORE -> NOW`; in earlier studies `NAME was BEFORE and is NOW`.
    let name = |change: &'_ str| -> usize {
        change.find(": ").or_else(|| change.find(" was ")).unwrap_or(change.len())
    };
    let names = changes.map(|change| &change[..name(change)]);
    listed(&names.collect::<Vec<_>>(), MOST_SETTINGS)
}

/// Most changed settings that an event names.
const MOST_SETTINGS: usize = 3;

/// Judges a CPU that one or both roles are pinned to.
fn of_cpu(
    trial: &Trial,
    (machine, cpu): (Machine, u32),
    (wall, tick): (f64, f64),
    events: &mut Events,
) {
    let read = |metric: &str| trial.reading(metric, &machine.scope(Scope::Cpu(cpu)));
    let title = machine.cpu_title(cpu);
    if read("cpu.busy").is_none() {
        return events.invalidate([format!("{title} was not online throughout")]);
    }
    let steal = read("cpu.steal").filter(|steal| *steal > STEAL_LIMIT * wall + tick);
    if let Some(share) = steal.map(|steal| steal / wall) {
        events.disturb(share, format!("{title} lost {} to the hypervisor", percent(share)));
    }
}

fn foreign(share: Option<f64>, of: &str, events: &mut Events) {
    if let Some(share) = share.filter(|share| *share > FOREIGN_LIMIT) {
        events.disturb(share, format!("other processes used {} of {of}", percent(share)));
    }
}

/// Judges steal where a role is left to the scheduler, which may put it on any CPU.
fn stolen_anywhere(trial: &Trial, machine: Machine, (wall, tick): (f64, f64), events: &mut Events) {
    let of_cpu = |r: &&Reading| r.metric == "cpu.steal" && machine.has_cpu(&r.scope);
    let steal: Vec<f64> = trial.readings.iter().filter(of_cpu).map(|r| r.value).collect();
    let share = steal.iter().sum::<f64>() / (wall * steal.len() as f64);
    if share > STEAL_LIMIT + tick / wall {
        let lost = percent(share);
        let title = machine.title();
        events.disturb(share, format!("{title} lost {lost} of its CPU time to the hypervisor"));
    }
}

/// Returns the threads and flows of a role that the meters should have reported and did not.
fn lost(trial: &Trial, cell: &Cell, role: Role) -> Vec<String> {
    let mut events = Vec::new();
    // One thread for each flow, or the threads of an event loop, whose flows count as one; kernel
    // workers come on top.
    let flows = cell.threads(role) as usize;
    let threads = trial.role(role).map_or(0, |record| record.threads.len());
    if threads > 0 && threads < flows {
        events.push(format!("only {threads} of {flows} threads of the {role} were seen"));
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let of_role = |r: &&Reading| matches!(r.scope, Scope::Flow(of, _) if of == role);
    for reading in trial.readings.iter().filter(of_role) {
        *counts.entry(&reading.metric).or_default() += 1;
    }
    let fewest = counts.into_iter().min_by_key(|(_, count)| *count);
    if let Some((metric, count)) = fewest.filter(|(_, count)| *count < flows) {
        let missing = flows - count;
        events.push(format!("{metric} is missing for {missing} of {flows} flows of the {role}"));
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
    use crate::tests::{SCHEDULE, cell, quiet, read, trial};
    use bytepath_record::{Fault, Placement, ProfileRecord, Unit};

    fn events(t: &Trial) -> Vec<String> {
        judge_events(t, &cell("a"), &SCHEDULE, &[]).invalidating
    }

    #[test]
    fn an_open_loop_that_works_off_a_backlog_is_of_no_use() {
        let at = |offered, count| events(&Trial { offered, ..trial("a", 0, 1.0, count) });
        assert_eq!(at(Some(20_000.0), 22_000), [""; 0], "a tenth, and what chance makes");
        assert_eq!(at(Some(20_000.0), 1), [""; 0], "late, which is a result");
        assert_eq!(at(None, 54_109), [""; 0], "a closed loop");
        let [event] = &at(Some(20_000.0), 54_109)[..] else { panic!("one event") };
        assert!(event.starts_with("it answered 54109 requests a second where 20000"), "{event}");
        // With few requests that is chance.
        assert_eq!(at(Some(100.0), 140), [""; 0]);
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
        // Thirty slices of 0.1 s: 55 ms may be rounding.
        let sliced = Schedule { design: Design::Slices { slice: 0.1 }, ..SCHEDULE };
        assert_eq!(judge_events(&t, &cell("a"), &sliced, &[]).invalidating, [""; 0]);
        read(&mut t, "cpu.steal", Scope::Cpu(1), 0.4);
        assert_eq!(judge_events(&t, &cell("a"), &sliced, &[]).invalidating.len(), 1);
        // Steal on a CPU that no role uses does not matter.
        let mut t = quiet();
        read(&mut t, "cpu.steal", Scope::Cpu(5), 3.0);
        assert_eq!(events(&t), [""; 0]);
        // Unless the roles are not pinned: two of six seconds.
        let mut t = quiet();
        read(&mut t, "cpu.steal", Scope::Cpu(1), 2.0);
        let mut free = cell("a");
        free.placement = Placement::default();
        assert_eq!(
            judge_events(&t, &free, &SCHEDULE, &[]).invalidating,
            ["the machine lost 33.3% of its CPU time to the hypervisor (limit 10%)"]
        );
    }

    #[test]
    fn others_disturb_and_do_not_invalidate_unless_limited() {
        let mut t = quiet();
        read(&mut t, "cpu.steal", Scope::Cpu(1), 0.9);
        read(&mut t, "cpu.foreign", Scope::Cpu(0), 1.5);
        let judge = |max_interference| {
            let schedule = Schedule { max_interference, ..SCHEDULE };
            let events = judge_events(&t, &cell("a"), &schedule, &[]);
            (events.invalidating, events.disturbing)
        };
        let both = ["other processes used 50% of CPU 0", "CPU 1 lost 30% to the hypervisor"]
            .map(String::from);
        assert_eq!(judge(None), (vec![], both.to_vec()));
        let limited = vec![format!("{} (limit 40%)", both[0])];
        assert_eq!(judge(Some(0.4)), (limited, vec![both[1].clone()]));
        assert_eq!(judge(Some(0.1)).0.len(), 2);
    }

    #[test]
    fn a_used_up_quota() {
        let mut t = quiet();
        read(&mut t, "steady.quota", Scope::Machine, 0.29);
        assert_eq!(events(&t), [""; 0], "within the limit");
        read(&mut t, "steady.quota", Scope::Machine, 1.5);
        let event = "the control group's CPU quota took 1.50 s of CPU time in a window of 3.00 s \
                     (limit 10%)";
        assert_eq!(events(&t), [event]);
        let mut t = quiet();
        read(&mut t, "steady.quota", Scope::MachineOf(Role::Sender), 1.5);
        assert!(events(&t)[0].contains("quota on the sender's host took"), "{:?}", events(&t));
    }

    #[test]
    fn a_pause_and_a_moved_thread() {
        let mut t = quiet();
        read(&mut t, PAUSED, Scope::Role(Role::Sender), 2.0);
        read(&mut t, "steady.moved", Scope::Role(Role::Receiver), 1.0);
        let [paused, moved] = &events(&t)[..] else { panic!("{:?}", events(&t)) };
        assert!(paused.starts_with("the sender's process was kept from running for 2.00 s"));
        assert_eq!(moved, "threads of the receiver may run on other CPUs than they were pinned to");
    }

    #[test]
    fn reports_missing_threads_and_flows() {
        let mut t = quiet();
        read(&mut t, "cpu.wall", Scope::Machine, 3.6);
        assert_eq!(events(&t)[0], "the windows of meters and stream differ: 3.60 s and 3.00 s");
        let mut t = quiet();
        t.readings.retain(|r| r.scope != Scope::Cpu(1));
        assert_eq!(events(&t), ["CPU 1 was not online throughout"]);
        let mut t = quiet();
        let mut two = cell("a");
        two.stream.flows = 2;
        read(&mut t, "tcp.retransmits", Scope::Flow(Role::Sender, 0), 0.0);
        assert_eq!(
            judge_events(&t, &two, &SCHEDULE, &[]).invalidating,
            [
                "only 1 of 2 threads of the sender were seen",
                "tcp.retransmits is missing for 1 of 2 flows of the sender",
                "only 1 of 2 threads of the receiver were seen",
            ]
        );
    }

    #[test]
    fn windows_of_two_clocks_out_of_step() {
        use bytepath_record::{Clocks, HostClock};
        let clock = HostClock { offset: -1e6, error: 0.001, drift: 0.0, wall: 500.0 };
        let (opened, closed, error) = (-0.195, 0.008, 0.002);
        let clocks = Clocks { sender: clock, receiver: clock, opened, closed, error };
        let mut t = quiet();
        t.clocks = Some(clocks.clone());
        assert_eq!(events(&t), [""; 0], "within the limit and what the clocks may be off");
        t.clocks = Some(Clocks { closed: 0.01, ..clocks });
        assert_eq!(
            events(&t),
            ["the ends' windows were out of step: one alone was open for 0.205 s (limit 0.200 s)"]
        );
    }

    #[test]
    fn ports_that_ran_out_spoil_a_trial() {
        let with = |count| {
            let mut t = quiet();
            t.readings.push(Reading::sum(NO_PORT, Unit::Count, count, Scope::Role(Role::Sender)));
            events(&t)
        };
        assert_eq!(with(0.0), [""; 0]);
        assert_eq!(with(7.0), ["the client ran out of ports: 7 connections had none"]);
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
    fn slow_and_unmeasured_trials_have_no_events() {
        let mut slow = quiet();
        slow.count = 1;
        read(&mut slow, "link.rx_dropped", Scope::Link(Role::Receiver, "veth".into()), 1e6);
        read(&mut slow, "tcp.retransmits", Scope::Flow(Role::Sender, 0), 1e5);
        assert_eq!(events(&slow), [""; 0]);
        let mut failed = quiet();
        read(&mut failed, "cpu.steal", Scope::Cpu(1), 3.0);
        failed.status = TrialStatus::Failed { fault: Fault::failed("x") };
        assert_eq!(events(&failed), [""; 0]);
    }

    #[test]
    fn reports_throttling_and_changed_settings() {
        let mut t = quiet();
        let link = Scope::Link(Role::Receiver, "byte1".into());
        read(&mut t, "steady.clock_changes", Scope::Machine, 0.0);
        read(&mut t, "steady.throttled", Scope::Cpu(7), 3.0);
        read(&mut t, "steady.link_changes", link.clone(), 0.0);
        assert_eq!(events(&t), [""; 0], "CPU 7 belongs to no role");
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
        // Separate hosts each have their own.
        let mut apart = quiet();
        read(&mut apart, "steady.throttled", Scope::CpuOf(Role::Sender, 1), 2.0);
        assert_eq!(events(&apart), [""; 0], "CPU 1 is the receiver's");
        read(&mut apart, "steady.throttled", Scope::CpuOf(Role::Sender, 0), 1.0);
        read(&mut apart, "steady.clock_changes", Scope::MachineOf(Role::Sender), 1.0);
        assert_eq!(
            events(&apart),
            [
                "the sender's CPU 0 was throttled (1 events)",
                "the clock source of the sender's host changed",
            ]
        );
        let free = bytepath_record::Cell { placement: Placement::default(), ..cell("a") };
        assert_eq!(
            judge_events(&t, &free, &SCHEDULE, &[]).invalidating.len(),
            4,
            "a role may be anywhere"
        );
        let mut t = quiet();
        read(&mut t, "host.changes", Scope::Machine, 1.0);
        t.warnings.push("host: irq.24.cpus was 0-1 and is 1".into());
        assert_eq!(events(&t), ["settings of the host changed: irq.24.cpus"]);
        t.warnings.extend(["a", "b", "c", "d"].map(|name| format!("host: {name}: 0 -> 1")));
        assert_eq!(events(&t), ["settings of the host changed: irq.24.cpus, a, b and 2 more"]);
    }
}
