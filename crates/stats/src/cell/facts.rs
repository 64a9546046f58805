//! Facts that explain the packet rate: the work of a cell's ends per frame, and how much it differs
//! between two cells.

use crate::estimate::Summary;
use crate::trial::{Costs, ENGINE_RUN, is_kernel_worker, sum_of};
use bytepath_math::welch;
use bytepath_record::{Cell, Hops, Reading, Role, Scope, Trial, TrialStatus, Work};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// A measured fact about a cell, over its trials.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Fact {
    #[serde(flatten)]
    pub what: FactKind,
    pub value: Summary,
}

/// What a [`Fact`] describes. Frames are those received within the window.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "fact")]
pub enum FactKind {
    /// Frames received per second.
    Rate,
    /// Part of the generated frames that was dropped anywhere.
    Lost,
    /// Part of the generator's offered frames that was turned back by a stopped queue, if the qdisc
    /// is bypassed. The generator tries again at once.
    TurnedBack,
    /// Part of the window that a thread of this end ran, or the kernel thread that works in its
    /// place.
    Busy { role: Role },
    /// CPU seconds of this end per frame, by the CPU meter.
    Cost { role: Role },
    /// Seconds spent spinning on kernel locks per frame, both ends together.
    Spinning,
    /// Frames that the qdisc requeued because the device had no room, per frame.
    Requeues,
    /// How often a queue of the device was stopped, per frame; only if its driver counts it.
    Stops,
    /// How often the threads of this end's flows slept, per frame.
    Sleeps { role: Role },
    /// How often the kernel threads that work in their place slept, per frame.
    WorkerSleeps { role: Role },
    /// Calls by which the sink waits for frames, per frame.
    Waits,
    /// Calls by which the sink reads, per frame.
    Reads,
    /// Waits of the sink that ended because a frame arrived, per frame.
    Wakes,
    /// How often the sink took frames out of vhost's queue, per frame.
    Batches,
    /// How often a thread of this end was woken, per frame, in the profile trials.
    Woken {
        role: Role,
        /// The group of its threads: "flows", "vhost", "pktgen".
        group: String,
        /// Whose threads woke it: "sender", "receiver", "vhost", "pktgen", "other".
        by: String,
        /// The CPU that woke it.
        from: u32,
        /// The CPU that it was put on.
        to: u32,
    },
    /// Rescheduling interrupts per frame, on all CPUs of the machine.
    Reschedules,
    /// Function-call interrupts, likewise.
    Calls,
    /// Softirqs NET_TX, likewise.
    NetTx,
    /// Softirqs NET_RX, likewise.
    NetRx,
}

/// Waits of a sink that ended because a frame arrived, from the first frame to the last.
const WAKES: &str = "sink.wakes";

/// Calls that wait for frames, and calls that read them.
const WAITS: [&str; 2] = ["poll", "ppoll"];
const READS: [&str; 4] = ["read", "readv", "recvmmsg", "io_uring_enter"];

/// Returns all facts of a cell that counts frames, from its measured trials and from those with
/// profiles; empty for other cells.
pub(crate) fn facts(
    cell: &Cell,
    measured: &[&Trial],
    profiles: &[Trial],
    confidence: f64,
) -> Vec<Fact> {
    let trials: Vec<(&Trial, Hops)> =
        measured.iter().filter_map(|trial| Some((*trial, trial.hops?))).collect();
    let mut all = Vec::new();
    let mut add = |what: FactKind, values: Vec<f64>| {
        let value = Summary::with_interval(values, confidence);
        all.extend(value.map(|value| Fact { what, value }));
    };
    let each = |of: &dyn Fn(&Trial, &Hops) -> Option<f64>| -> Vec<f64> {
        trials.iter().filter_map(|(trial, hops)| of(trial, hops)).collect()
    };
    let part = |some: u64, all: u64| (all > 0).then(|| some as f64 / all as f64);
    add(FactKind::Rate, each(&|trial, _| trial.rate()));
    add(FactKind::Lost, each(&|_, hops| part(hops.lost(), hops.generated())));
    add(FactKind::TurnedBack, each(&|_, hops| part(hops.returned(), hops.offered)));
    for role in Role::ALL {
        add(FactKind::Busy { role }, each(&|trial, _| busy(cell, trial, role)));
        add(FactKind::Cost { role }, each(&|trial, _| cost(cell, trial, role)));
        let slept = |workers| move |trial: &Trial| sleeps(trial, role, workers);
        add(FactKind::Sleeps { role }, each(&|trial, _| per_frame(trial, slept(false)(trial))));
        add(
            FactKind::WorkerSleeps { role },
            each(&|trial, _| per_frame(trial, slept(true)(trial))),
        );
    }
    for (what, metric) in [
        (FactKind::Spinning, "locks.spin"),
        (FactKind::Requeues, "nic.qdisc.requeues"),
        (FactKind::Reschedules, "ipis.reschedule"),
        (FactKind::Calls, "ipis.call"),
        (FactKind::NetTx, "softirqs.net_tx"),
        (FactKind::NetRx, "softirqs.net_rx"),
    ] {
        add(what, each(&|trial, _| per_frame(trial, sum(trial, metric))));
    }
    add(FactKind::Stops, each(&|trial, _| per_frame(trial, stops(trial))));
    add(FactKind::Waits, each(&|trial, _| per_frame(trial, calls(trial, &WAITS))));
    add(FactKind::Reads, each(&|trial, _| per_frame(trial, calls(trial, &READS))));
    // Counted from the first frame to the last.
    for (what, metric) in [(FactKind::Wakes, WAKES), (FactKind::Batches, "vhost.batches")] {
        let part = |trial: &Trial, hops: &Hops| {
            Some(sum(trial, metric)? / hops.received as f64).filter(|each| each.is_finite())
        };
        add(what, each(&part));
    }
    let taken = |trial: &&Trial| trial.cell == cell.id && trial.status == TrialStatus::Measured;
    let taken: Vec<&Trial> = profiles.iter().filter(taken).collect();
    if !trials.is_empty() {
        woken(&taken).into_iter().for_each(|(what, values)| add(what, values));
    }
    all
}

/// The difference between two cells in one fact.
#[derive(Clone, Debug, PartialEq)]
pub struct FactStep<'a> {
    pub what: &'a FactKind,
    pub before: Summary,
    pub after: Summary,
    /// Half the width of the interval of the difference (Welch's); `None` if either cell has fewer
    /// than two trials.
    pub half_width: Option<f64>,
}

impl FactStep<'_> {
    pub fn change(&self) -> f64 {
        self.after.mean - self.before.mean
    }

    /// Returns whether the interval excludes "no difference".
    pub fn resolved(&self) -> bool {
        self.half_width.is_some_and(|half| self.change().abs() > half)
    }
}

/// Compares the facts of two cells, in their order. Threads that were woken in only one of them
/// count as never woken in the other.
pub fn fact_steps<'a>(before: &'a [Fact], after: &'a [Fact], confidence: f64) -> Vec<FactStep<'a>> {
    let find = |all: &[Fact], what: &FactKind| {
        all.iter().find(|fact| fact.what == *what).map(|fact| fact.value)
    };
    let is_woken = |what: &FactKind| matches!(what, FactKind::Woken { .. });
    let never = |all: &[Fact], what: &FactKind| {
        let other = all.iter().find(|fact| is_woken(&fact.what) && is_woken(what))?;
        Summary::of(vec![0.0; other.value.n])
    };
    let only_after = after.iter().filter(|fact| find(before, &fact.what).is_none());
    let step = |fact: &'a Fact| {
        let of = |all| find(all, &fact.what).or_else(|| never(all, &fact.what));
        let (before, after) = (of(before)?, of(after)?);
        let errors = before.error().zip(after.error());
        let half_width = errors.and_then(|(a, b)| welch(&[a, b]).half_width(confidence));
        Some(FactStep { what: &fact.what, before, after, half_width })
    };
    before.iter().chain(only_after).filter_map(step).collect()
}

/// Returns an amount per frame of the window.
fn per_frame(trial: &Trial, amount: Option<f64>) -> Option<f64> {
    Some(amount? / trial.count as f64).filter(|each| each.is_finite())
}

/// Returns the sum of one metric over all scopes: the CPUs of a machine, flows or devices. Readings
/// by function are left out, since they are parts of these.
fn sum(trial: &Trial, metric: &str) -> Option<f64> {
    let is_function = |scope: &Scope| matches!(scope, Scope::Function(_) | Scope::FunctionOf(..));
    sum_of(trial, |r| r.metric == metric && !is_function(&r.scope))
}

/// Returns the sum of the sender's device counters like `nic.tx-0.tx-stop`.
fn stops(trial: &Trial) -> Option<f64> {
    sum_of(trial, |r| {
        let of_queue = r.metric.starts_with("nic.tx-") && r.metric.ends_with(".tx-stop");
        of_queue && matches!(r.scope, Scope::Link(Role::Sender, _))
    })
}

/// Returns the figures that all sinks of frames have in common, as far as they were measured:
/// within the window, the calls that read, the calls that waited, the sleeps of its threads, and
/// the frames per each of these; over the whole trial, the frames per wait that ended because a
/// frame arrived.
pub fn sink(trial: &Trial) -> Vec<(&'static str, f64)> {
    if trial.work != Work::Packets {
        return Vec::new();
    }
    let slept = sleeps(trial, Role::Receiver, false);
    let woken = sum(trial, WAKES).zip(trial.hops).map(|(wakes, hops)| hops.received as f64 / wakes);
    let each =
        |count: Option<f64>| Some(trial.count as f64 / count?).filter(|frames| frames.is_finite());
    let (reads, waits) = (calls(trial, &READS), calls(trial, &WAITS));
    let all = [
        ("sink.reads", reads),
        ("sink.waits", waits),
        ("sink.sleeps", slept),
        ("sink.frames-per-read", each(reads)),
        ("sink.frames-per-wait", each(waits)),
        ("sink.frames-per-sleep", each(slept)),
        ("sink.frames-per-wake", woken.filter(|frames| frames.is_finite())),
    ];
    all.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect()
}

fn calls(trial: &Trial, names: &[&str]) -> Option<f64> {
    let calls = &trial.role(Role::Receiver)?.calls;
    let named = calls.iter().filter(|call| names.contains(&call.name.as_str()));
    let sum: u64 = named.map(|call| call.calls).sum();
    (sum > 0).then_some(sum as f64)
}

fn cost(cell: &Cell, trial: &Trial, role: Role) -> Option<f64> {
    let cores = Costs::of(cell, trial, None).roles[role as usize]?.total;
    Some(cores / trial.rate()?).filter(|cost| cost.is_finite())
}

/// Returns the part of the window that a thread of an end ran, on average over its threads; or that
/// the kernel threads in their place ran, if that is more.
pub(crate) fn busy(cell: &Cell, trial: &Trial, role: Role) -> Option<f64> {
    let threads = f64::from(cell.threads(role));
    let run = trial.reading(ENGINE_RUN, &Scope::Role(role))?;
    let part = run / (trial.role(role)?.window * threads);
    let record = trial.role(role).map_or(&[][..], |record| &record.threads);
    let run: f64 = record.iter().filter(|one| is_kernel_worker(&one.name)).map(|one| one.run).sum();
    let wall = trial.reading("threads.wall", &Scope::Role(role)).filter(|wall| *wall > 0.0);
    let other = wall.map_or(0.0, |wall| run / wall);
    Some(part.max(other / threads)).filter(|part| part.is_finite())
}

/// Returns how often threads went to sleep voluntarily: those of an end's flows, or the workers in
/// their place. `None` if no meter reported such threads.
fn sleeps(trial: &Trial, role: Role, workers: bool) -> Option<f64> {
    let name = role.to_string();
    let is_flow =
        |thread: &str| thread.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('/'));
    let counts = |thread: &str| if workers { is_kernel_worker(thread) } else { is_flow(thread) };
    let threads = trial.role(role)?.threads.iter().filter(|thread| counts(&thread.name));
    threads.map(|thread| thread.voluntary as f64).reduce(|sum, one| sum + one)
}

/// Returns wakeups by waking group and by CPUs, as the meter `handoffs` reports them:
/// `handoffs.woken.BY.FROM-TO`.
fn woken(trials: &[&Trial]) -> BTreeMap<FactKind, Vec<f64>> {
    let mut all: BTreeMap<FactKind, Vec<f64>> = BTreeMap::new();
    for (at, trial) in trials.iter().enumerate().filter(|(_, trial)| trial.work == Work::Packets) {
        for reading in &trial.readings {
            let Some(what) = woken_by(reading) else { continue };
            let Some(each) = per_frame(trial, Some(reading.value)) else { continue };
            all.entry(what).or_insert_with(|| vec![0.0; trials.len()])[at] += each;
        }
    }
    all
}

fn woken_by(reading: &Reading) -> Option<FactKind> {
    let Scope::Threads(role, group) = &reading.scope else { return None };
    let (by, cpus) = reading.metric.strip_prefix("handoffs.woken.")?.split_once('.')?;
    let (from, to) = cpus.split_once('-')?;
    Some(FactKind::Woken {
        role: *role,
        group: group.clone(),
        by: by.to_owned(),
        from: from.parse().ok()?,
        to: to.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{cell, thread, trial};
    use bytepath_record::{CallRow, CellId, Unit};

    /// A made-up trial of 1000 frames in 2 s, during which the sink slept this often.
    fn frames(block: u32, slept: u64) -> Trial {
        let mut trial = trial("frames", block, 2.0, 1000);
        trial.work = Work::Packets;
        let hops = Hops { offered: 4000, refused: 2000, received: 2000, ..Hops::default() };
        trial.hops = Some(hops);
        let mut reader = thread("receiver/0", 1.0, 0.5, 0.5);
        reader.voluntary = slept;
        let mut worker = thread("vhost-7", 1.9, 0.0, 1.9);
        worker.voluntary = 2 * slept;
        trial.roles[1].threads = vec![reader, worker, thread("napi/x-1", 0.1, 0.0, 0.1)];
        let call = |name: &str, calls| CallRow {
            name: name.into(),
            calls,
            errors: 0,
            bytes: 0,
            total: 0.0,
            min: 0.0,
            avg: 0.0,
            max: 0.0,
            stddev_percent: 0.0,
        };
        trial.roles[1].calls = vec![call("read", 1100), call("poll", 100)];
        let scope = Scope::Flow(Role::Receiver, 0);
        trial.readings.push(Reading::sum(WAKES, Unit::Count, 40.0, scope));
        for cpu in 0..2 {
            let scope = Scope::Cpu(cpu);
            trial.readings.push(Reading::sum("ipis.reschedule", Unit::Count, 250.0, scope));
        }
        trial
    }

    fn value(facts: &[Fact], what: &FactKind) -> Option<f64> {
        facts.iter().find(|fact| fact.what == *what).map(|fact| fact.value.mean)
    }

    #[test]
    fn made_up_facts_are_for_each_frame() {
        let (one, two) = (frames(0, 10), frames(1, 30));
        let mut profile = frames(0, 10);
        let scope = Scope::Threads(Role::Receiver, "flows".into());
        let woken = Reading::sum("handoffs.woken.sender.0-1", Unit::Count, 500.0, scope);
        profile.readings.push(woken);
        let other = Trial { cell: CellId("other".into()), ..profile.clone() };
        let all = facts(&cell("frames"), &[&one, &two], &[profile, other], 0.95);
        let role = Role::Receiver;
        for (what, expected) in [
            (FactKind::Rate, 500.0),
            (FactKind::Lost, 0.0),
            (FactKind::TurnedBack, 0.5),
            (FactKind::Sleeps { role }, 0.02),
            (FactKind::WorkerSleeps { role }, 0.04),
            (FactKind::Reads, 1.1),
            (FactKind::Waits, 0.1),
            (FactKind::Reschedules, 0.5),
            (FactKind::Wakes, 0.02),
            (woken_fact(), 0.5),
        ] {
            assert_eq!(value(&all, &what), Some(expected), "{what:?}");
        }
        assert_eq!(
            value(&all, &FactKind::Spinning),
            None,
            "a meter that did not run is not a zero"
        );
        let sink = sink(&one);
        assert!(sink.contains(&("sink.sleeps", 10.0)), "{sink:?}");
        assert!(sink.contains(&("sink.frames-per-sleep", 100.0)), "{sink:?}");
        assert!(sink.contains(&("sink.frames-per-wake", 50.0)), "2000 in all: {sink:?}");
        assert!(sink.contains(&("sink.frames-per-wait", 10.0)), "{sink:?}");
        assert_eq!(value(&all, &FactKind::Sleeps { role: Role::Sender }), None);
        assert_eq!(facts(&cell("a"), &[&trial("a", 0, 1.0, 10)], &[], 0.95), []);
    }

    fn woken_fact() -> FactKind {
        let (role, group, by) = (Role::Receiver, "flows".into(), "sender".into());
        FactKind::Woken { role, group, by, from: 0, to: 1 }
    }

    #[test]
    fn a_step_is_resolved_by_the_spread_of_both_cells() {
        let fact = |what: FactKind, values: &[f64]| Fact {
            what,
            value: Summary::of(values.iter().copied()).unwrap(),
        };
        let before = [fact(FactKind::Rate, &[1.0, 2.0, 3.0]), fact(FactKind::Reads, &[1.0])];
        let mut after = vec![fact(FactKind::Rate, &[3.0, 5.0, 7.0]), fact(FactKind::Lost, &[0.5])];
        let steps = fact_steps(&before, &after, 0.95);
        // Only facts of both, with Welch's interval as in the crate `math`.
        let [step] = steps.as_slice() else { panic!("{steps:?}") };
        assert_eq!((step.what, step.change()), (&FactKind::Rate, 3.0));
        let half = step.half_width.unwrap();
        assert!(half > 4.1 && half < 4.2 && !step.resolved(), "{half}");
        after.push(fact(woken_fact(), &[0.5, 0.5]));
        let mut woken = before.to_vec();
        assert_eq!(fact_steps(&woken, &after, 0.95).len(), 1, "the meter ran in one alone");
        let elsewhere = FactKind::Woken {
            role: Role::Sender,
            group: "flows".into(),
            by: "other".into(),
            from: 1,
            to: 1,
        };
        woken.push(fact(elsewhere, &[0.25, 0.25]));
        let changes: Vec<f64> =
            fact_steps(&woken, &after, 0.95).iter().map(FactStep::change).collect();
        assert_eq!(changes, [3.0, -0.25, 0.5]);
    }
}
