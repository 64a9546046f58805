//! From the cost of one cell to that of another, in steps: the differences in CPU time per GiB, or
//! per packet, of every subsystem, with intervals over repeated profile trials, and the difference
//! that the samples do not account for.
//!
//! CPU time is that of all samples except idle and foreign ones.

use super::change::{CONFIDENCE, Change};
use super::subsystem::{Classes, Rules, Subsystem, is_idle};
use super::{Header, Profile, Weight, WorkUnit, normalise};
use bytepath_math::{Moments, holm};
use bytepath_record::unit::GIB;
use bytepath_record::{Fault, Role};
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most functions listed for each part.
const FUNCTIONS: usize = 5;

/// Least tolerance of the sum check, as a part of the larger cost: two clocks of one CPU do not
/// agree to the last digit.
const TOLERANCE: f64 = 0.02;

/// All profile trials of one cell.
#[derive(Clone, Copy, Debug)]
pub struct Trials<'a> {
    pub cell: &'a str,
    /// One profile per trial, each with the bytes that were delivered.
    pub profiles: &'a [Profile],
    /// The CPU meter's result for each of these trials, in the unit requested for the steps; empty
    /// unless known for all.
    pub metered: &'a [f64],
}

/// Cost of a cell by the CPU meter: CPU seconds per GiB, or nanoseconds per packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metered {
    /// Mean over its profile trials.
    pub mean: f64,
    /// Half the width of its interval; `None` for a single trial.
    pub half_width: Option<f64>,
}

/// The steps from one cell's cost to another's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waterfall {
    pub before: Bar,
    pub after: Bar,
    /// Unit of all amounts: `CPU-s/GiB`, `CPU-ns/packet`, or for a counted event `10^9 cycles/GiB`,
    /// `cycles/packet`.
    pub unit: String,
    /// Confidence of each interval by itself.
    pub confidence: f64,
    /// One step for each subsystem with samples, the largest first.
    pub parts: Vec<Part>,
    pub sampled: Change,
    /// Whether the steps add up to the meter's difference; `None` without a meter.
    pub check: Option<Check>,
    /// Caveats for the reader.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bar {
    pub cell: String,
    pub trials: usize,
    /// Cost by the samples, the mean over the trials.
    pub sampled: f64,
    /// Cost by the CPU meter.
    pub metered: Option<Metered>,
    /// Mean bytes per packet over the trials; `None` unless all record it. Packets of different
    /// size are different kinds of work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<f64>,
}

impl Bar {
    /// Returns the cost by the meter if there is one, else by the samples.
    pub fn cost(&self) -> f64 {
        self.metered.map_or(self.sampled, |metered| metered.mean)
    }
}

/// The cost of one subsystem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    pub subsystem: Subsystem,
    /// In the cell at the beginning of the waterfall.
    pub before: f64,
    /// In the cell at its end.
    pub after: f64,
    pub change: Change,
    /// Whether the step is significant among all steps together (Holm's rule).
    #[serde(default)]
    pub resolved: bool,
    /// The functions with the largest steps, largest first.
    pub functions: Vec<Function>,
}

/// One function's part of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Function {
    pub name: String,
    /// In the cell at the beginning of the waterfall.
    pub before: f64,
    /// In the cell at its end.
    pub after: f64,
}

/// Whether the steps add up to the difference measured by the CPU meter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    pub metered: Change,
    /// Unexplained rest: the meter's difference minus all steps.
    pub rest: f64,
    /// How large the rest may be: the half-width of its interval, or two hundredths of the larger
    /// cost, whichever is more. Meter and samples are from the same trials, so variation between
    /// trials is in both and cancels in the rest.
    pub tolerance: f64,
    /// Whether the rest is within the tolerance.
    pub holds: bool,
}

/// Computes the steps between two cells, in the cost of this unit of work. If an end is given, only
/// work done for that end counts, and nothing is compared with the meter.
pub fn waterfall(
    before: &Trials,
    after: &Trials,
    rules: &Rules,
    (unit, end): (WorkUnit, Option<Role>),
) -> Result<Waterfall, Fault> {
    let [before, after] = [before, after].map(|trials| match end {
        Some(_) => Trials { metered: &[], ..*trials },
        None => *trials,
    });
    let of = |trials| Costs::of(trials, rules, (unit, end));
    let costs = [of(&before)?, of(&after)?];
    if costs[0].unit != costs[1].unit {
        let what = format!(
            "the profiles of {} and {} are of different kinds: {} and {}",
            before.cell, after.cell, costs[0].unit, costs[1].unit
        );
        return Err(Fault::usage(what).remedy("take the profiles of all cells with one event"));
    }
    let bar = |trials: &Trials, costs: &Costs| Bar {
        cell: trials.cell.to_owned(),
        trials: trials.profiles.len(),
        sampled: costs.total(),
        metered: (costs.time && !trials.metered.is_empty())
            .then(|| Metered::of(trials.metered.iter().copied())),
        packet: packet(trials.profiles),
    };
    let [first, last] = [bar(&before, &costs[0]), bar(&after, &costs[1])];
    Ok(Waterfall {
        check: first
            .metered
            .and(last.metered)
            .map(|_| check([before.metered, after.metered], &costs, [&first, &last])),
        before: first,
        after: last,
        unit: costs[0].unit.clone(),
        confidence: CONFIDENCE,
        parts: parts(&costs),
        sampled: change(&costs, Cost::total),
        notes: costs.iter().flat_map(|costs| costs.notes.iter().cloned()).collect(),
    })
}

fn change(costs: &[Costs; 2], of: impl Fn(&Cost) -> f64) -> Change {
    let values = |costs: &Costs| costs.trials.iter().map(&of).collect::<Moments>();
    Change::between(values(&costs[0]), values(&costs[1]))
}

/// Returns the step of each subsystem with any cost, the largest first.
fn parts(costs: &[Costs; 2]) -> Vec<Part> {
    let part = |subsystem| {
        let [before, after] = [0, 1].map(|side: usize| costs[side].mean(subsystem));
        ([before, after] != [0.0; 2]).then(|| Part {
            subsystem,
            before,
            after,
            change: change(costs, |cost| cost.by.get(&subsystem).copied().unwrap_or(0.0)),
            resolved: false,
            functions: functions(costs, subsystem),
        })
    };
    let mut parts: Vec<Part> = Subsystem::ALL.iter().copied().filter_map(part).collect();
    parts.sort_by(|a, b| b.change.mean.abs().total_cmp(&a.change.mean.abs()));
    resolve(&mut parts);
    parts
}

/// Costs of one cell, trial by trial.
pub(super) struct Costs {
    pub(super) trials: Vec<Cost>,
    pub(super) unit: String,
    /// Whether the CPU meter measures in this unit too.
    time: bool,
    notes: Vec<String>,
}

/// Cost of one trial, per unit of work.
pub(super) struct Cost {
    pub(super) by: BTreeMap<Subsystem, f64>,
    pub(super) functions: HashMap<(Subsystem, String), f64>,
}

impl Cost {
    pub(super) fn total(&self) -> f64 {
        self.by.values().sum()
    }
}

impl Costs {
    /// Computes the costs of all ends together, or of one.
    pub(super) fn of(
        trials: &Trials,
        rules: &Rules,
        (per, end): (WorkUnit, Option<Role>),
    ) -> Result<Costs, Fault> {
        let Some(first) = trials.profiles.first() else {
            return Err(Fault::usage(format!("there is no profile of {}", trials.cell)));
        };
        let counts = first.header.weight;
        let mut costs = Costs {
            trials: Vec::new(),
            unit: unit_of(&first.header, per)?,
            time: counts == Weight::Nanoseconds,
            notes: Vec::new(),
        };
        for profile in trials.profiles {
            if profile.header.weight != counts || profile.header.event != first.header.event {
                let what = format!("the profiles of {} are of different kinds", trials.cell);
                return Err(Fault::usage(what));
            }
            if profile.header.lost > 0 {
                let (title, lost) = (&profile.header.title, profile.header.lost);
                costs.notes.push(format!("{title} lost {lost} samples: its parts are too small"));
            }
            costs.trials.push(cost(profile, rules, per, end)?);
        }
        Ok(costs)
    }

    fn mean(&self, subsystem: Subsystem) -> f64 {
        let values = self.trials.iter().filter_map(|trial| trial.by.get(&subsystem));
        values.sum::<f64>() / self.trials.len() as f64
    }

    fn total(&self) -> f64 {
        self.trials.iter().map(Cost::total).sum::<f64>() / self.trials.len() as f64
    }
}

/// Returns the name of the unit in which costs are shown.
fn unit_of(header: &Header, per: WorkUnit) -> Result<String, Fault> {
    let event = if header.event.is_empty() { "events" } else { &header.event };
    Ok(match (header.weight, per) {
        (Weight::Nanoseconds, WorkUnit::Gib) => "CPU-s/GiB".to_owned(),
        (Weight::Nanoseconds, WorkUnit::Packet) => "CPU-ns/packet".to_owned(),
        (Weight::Nanoseconds, WorkUnit::Run) => "CPU-s/run".to_owned(),
        (Weight::Events, WorkUnit::Gib) => format!("10^9 {event}/GiB"),
        (Weight::Events, WorkUnit::Packet) => format!("{event}/packet"),
        (Weight::Events, WorkUnit::Run) => format!("10^9 {event}/run"),
        (Weight::Delay | Weight::Bytes | Weight::Samples | Weight::Percent, _) => {
            let what = format!("{}: its samples do not measure CPU time", header.title);
            return Err(Fault::usage(what).remedy("profile by time or by an event that is counted"));
        }
    })
}

/// Returns the factor for the weights of a profile: per GiB and per run, nanoseconds become seconds
/// and events are shown in units of 10^9; per packet both stay.
fn scale(header: &Header, per: WorkUnit) -> Result<f64, Fault> {
    let (amount, unit, what, remedy) = match per {
        WorkUnit::Gib => (
            header.work.bytes,
            1e-9 * GIB,
            "bytes",
            "compare by --per run, for runs of the same work",
        ),
        WorkUnit::Packet => (
            header.work.packets,
            1.0,
            "packets",
            "compare by --per gib, or run the study with the meter `link`",
        ),
        WorkUnit::Run => return Ok(1e-9),
    };
    let amount = amount.filter(|amount| *amount > 0.0 && amount.is_finite());
    amount.map(|amount| unit / amount).ok_or_else(|| {
        let what =
            format!("{}: it does not record how many {what} it was taken over", header.title);
        Fault::usage(what).remedy(remedy)
    })
}

/// Returns the mean bytes per packet over the trials; `None` unless all record it.
fn packet(profiles: &[Profile]) -> Option<f64> {
    let size = |profile: &Profile| {
        let mean = profile.header.work.bytes? / profile.header.work.packets?;
        (mean.is_finite() && mean > 0.0).then_some(mean)
    };
    let sum: f64 = profiles.iter().map(size).sum::<Option<f64>>()?;
    (!profiles.is_empty()).then(|| sum / profiles.len() as f64)
}

fn cost(profile: &Profile, rules: &Rules, per: WorkUnit, end: Option<Role>) -> Result<Cost, Fault> {
    let scale = scale(&profile.header, per)?;
    let classes = Classes::of(profile, rules);
    let mut cost = Cost { by: BTreeMap::new(), functions: HashMap::new() };
    for sample in profile.samples() {
        let subsystem = classes.sample(sample);
        let apart = subsystem == Subsystem::Idle || is_idle(profile, &classes, sample);
        let other = end.is_some() && sample.owner.end() != end;
        if apart || other || sample.owner.is_apart() || !sample.weight.is_finite() {
            continue;
        }
        let amount = sample.weight * scale;
        *cost.by.entry(subsystem).or_default() += amount;
        if let Some(leaf) = profile.stack(sample.stack).first() {
            let name = normalise::of_frame(profile.frame(*leaf)).into_owned();
            *cost.functions.entry((subsystem, name)).or_default() += amount;
        }
    }
    Ok(cost)
}

/// Returns the functions of a subsystem with the largest differences.
fn functions(costs: &[Costs; 2], subsystem: Subsystem) -> Vec<Function> {
    let mut all: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for (side, costs) in costs.iter().enumerate() {
        for ((of, name), amount) in costs.trials.iter().flat_map(|trial| &trial.functions) {
            if *of == subsystem {
                all.entry(name).or_default()[side] += amount / costs.trials.len() as f64;
            }
        }
    }
    let function = |(name, [before, after]): (&str, [f64; 2])| {
        let name = name.to_owned();
        Function { name, before, after }
    };
    let mut functions: Vec<Function> = all.into_iter().map(function).collect();
    let size = |f: &Function| (f.after - f.before).abs();
    functions.sort_by(|a, b| size(b).total_cmp(&size(a)));
    functions.truncate(FUNCTIONS);
    functions
}

impl Metered {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Metered {
        let moments: Moments = values.collect();
        let half_width = moments.error().and_then(|error| error.half_width(CONFIDENCE));
        Metered { mean: moments.mean(), half_width }
    }
}

/// Marks the steps that are significant among all of them together.
fn resolve(parts: &mut [Part]) {
    let ps: Vec<f64> = parts.iter().filter_map(|part| part.change.p).collect();
    let known = parts.iter_mut().filter(|part| part.change.p.is_some());
    for (part, adjusted) in known.zip(holm(&ps, CONFIDENCE)) {
        part.resolved = adjusted.adjusted <= 1.0 - CONFIDENCE;
    }
}

fn check(metered: [&[f64]; 2], costs: &[Costs; 2], bars: [&Bar; 2]) -> Check {
    let moments = |values: &[f64]| values.iter().copied().collect::<Moments>();
    // The part of the cost that the samples do not explain, trial by trial.
    let rests = [0, 1].map(|side: usize| {
        let trials = costs[side].trials.iter().zip(metered[side]);
        trials.map(|(cost, metered)| metered - cost.total()).collect::<Moments>()
    });
    let [before, after] = rests;
    let rest = Change::between(before, after);
    let least = TOLERANCE * bars[0].cost().max(bars[1].cost());
    let tolerance = rest.half_width.unwrap_or(0.0).max(least);
    Check {
        metered: Change::between(moments(metered[0]), moments(metered[1])),
        rest: rest.mean,
        tolerance,
        holds: rest.mean.abs() <= tolerance,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Builder, Frame, FrameKind, Header, Owner, Sample, Thread, Work};

    /// A trial of two GiB from functions with CPU seconds per GiB.
    pub(crate) fn trial(functions: &[(&str, f64)]) -> Profile {
        let mut builder = Builder::new(Header {
            title: "trial".into(),
            event: "cpu-clock".into(),
            weight: Weight::Nanoseconds,
            work: Work { bytes: Some(2.0 * GIB), packets: Some(1e6) },
            ..Header::default()
        });
        for (name, seconds) in functions {
            let (owner, name) = match name.split_once('@') {
                Some(("foreign", name)) => (Owner::Foreign, name),
                Some(("idle", name)) => (Owner::Idle, name),
                _ => (Owner::Unknown, *name),
            };
            let thread = builder.thread(Thread { name: "t".into(), ..Thread::default() });
            let kind = FrameKind::Kernel;
            let frame = builder.frame(Frame { function: name.into(), kind, ..Frame::default() });
            let stack = builder.stack(&[frame]);
            let weight = seconds * 2e9;
            builder.add(Sample { stack, thread, owner, cpu: None, time: None, count: 1, weight });
        }
        builder.build()
    }

    fn steps(before: &[Profile], after: &[Profile], meters: [&[f64]; 2]) -> Waterfall {
        waterfall(
            &Trials { cell: "a", profiles: before, metered: meters[0] },
            &Trials { cell: "b", profiles: after, metered: meters[1] },
            Rules::built_in(),
            (WorkUnit::Gib, None),
        )
        .unwrap()
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn steps_lead_from_one_cost_to_the_other() {
        let a = [
            trial(&[("_copy_to_iter", 0.30), ("tcp_ack", 0.10), ("foreign@f", 9.0)]),
            trial(&[("_copy_to_iter", 0.32), ("tcp_ack", 0.12), ("idle@poll_idle", 9.0)]),
        ];
        let b = [
            trial(&[("_copy_to_iter", 0.05), ("tcp_ack", 0.11), ("vm_insert_pages", 0.06)]),
            trial(&[("_copy_to_iter", 0.07), ("tcp_ack", 0.10), ("vm_insert_pages", 0.06)]),
        ];
        let w = steps(&a, &b, [&[0.41, 0.45], &[0.23, 0.25]]);
        assert!(near(w.before.sampled, 0.42) && near(w.after.sampled, 0.225));
        assert!(near(w.before.cost(), 0.43) && w.unit == "CPU-s/GiB");
        let parts: Vec<Subsystem> = w.parts.iter().map(|p| p.subsystem).collect();
        assert_eq!(parts, [Subsystem::Copy, Subsystem::MemoryMapping, Subsystem::Tcp]);
        let copy = &w.parts[0];
        assert!(near(copy.change.mean, -0.25) && near(copy.before, 0.31));
        // Both variances are 0.0002: se = 0.014142, 2 degrees of freedom, t = 4.302653.
        assert!((copy.change.half_width.unwrap() - 0.060_848_7).abs() < 1e-6, "{copy:?}");
        // p of 17.7 standard errors with 2 degrees of freedom is 0.0032, three times that is below
        // 5 %; the second step is certain, the third within its interval.
        assert!((copy.change.p.unwrap() - 0.003_179).abs() < 1e-5, "{copy:?}");
        assert!(copy.resolved && w.parts[1].resolved && !w.parts[2].resolved, "{w:?}");
        assert_eq!(w.parts[1].change.half_width, Some(0.0), "trials that agree to the last bit");
        assert_eq!(copy.functions[0].name, "_copy_to_iter");
        // The steps and the rest add up to the meter's difference exactly.
        let sum: f64 = w.parts.iter().map(|p| p.change.mean).sum();
        let check = w.check.unwrap();
        assert!(near(sum, w.sampled.mean) && near(sum + check.rest, check.metered.mean));
        assert!(near(check.metered.mean, -0.19) && near(check.rest, 0.005));
        // The samples leave 0.01 and 0.01 of the one, 0.01 and 0.02 of the other: the
        // trials' own differences, eight times as large, are in neither.
        assert!(check.holds && (check.tolerance - 0.063_531).abs() < 1e-6, "{check:?}");
    }

    /// Of many steps each within its own interval, chance alone has some outside.
    #[test]
    fn a_step_that_only_its_own_interval_resolves_is_not_named() {
        let names = ["_copy_to_iter", "tcp_ack", "vm_insert_pages", "napi_poll", "kfree_skb"];
        let with =
            |amounts: [f64; 5]| trial(&names.iter().copied().zip(amounts).collect::<Vec<_>>());
        let a = [with([0.30, 0.1, 0.1, 0.1, 0.1]), with([0.31, 0.11, 0.12, 0.13, 0.11])];
        let b = [with([0.36, 0.1, 0.12, 0.11, 0.1]), with([0.37, 0.11, 0.1, 0.12, 0.11])];
        let w = steps(&a, &b, [&[], &[]]);
        let copy = &w.parts[0];
        assert!(copy.change.resolved() && copy.change.p.unwrap() > 0.01, "{copy:?}");
        assert!(!copy.resolved, "among {} steps: {copy:?}", w.parts.len());
    }

    #[test]
    fn a_rest_beyond_the_tolerance_is_reported() {
        let a = [trial(&[("tcp_ack", 0.10)])];
        let b = [trial(&[("tcp_ack", 0.20)])];
        let w = steps(&a, &b, [&[0.10], &[0.50]]);
        let check = w.check.unwrap();
        // One trial each has no interval: two hundredths of the larger cost remain.
        assert!(near(check.tolerance, 0.01) && !check.holds && near(check.rest, 0.3));
        assert_eq!((w.parts[0].change.half_width, w.parts[0].change.resolved()), (None, false));
        assert_eq!(steps(&a, &b, [&[], &[]]).check, None);
    }

    #[test]
    fn what_tells_no_cost_is_refused() {
        let good = [trial(&[("tcp_ack", 0.1)])];
        let mut idle = good.clone();
        idle[0].header.work.bytes = None;
        let mut counted = good.clone();
        counted[0].header.weight = Weight::Samples;
        let mut cycles = good.clone();
        cycles[0].header.weight = Weight::Events;
        cycles[0].header.event = "cycles".into();
        let of = |profiles: &[Profile]| {
            let (first, second) = (
                Trials { cell: "a", profiles: &good, metered: &[] },
                Trials { cell: "b", profiles, metered: &[] },
            );
            waterfall(&first, &second, Rules::built_in(), (WorkUnit::Gib, None))
        };
        for (profiles, expected) in [
            (&idle[..], "how many bytes"),
            (&counted, "do not measure CPU time"),
            (&cycles, "CPU-s/GiB and 10^9 cycles/GiB"),
            (&[], "no profile of b"),
        ] {
            let fault = of(profiles).unwrap_err();
            assert!(fault.message.contains(expected), "{fault}");
        }
        // Cycles are compared with each other, but not with a meter of seconds.
        let both = Trials { cell: "a", profiles: &cycles, metered: &[1.0] };
        let w = waterfall(&both, &both, Rules::built_in(), (WorkUnit::Gib, None)).unwrap();
        assert_eq!((w.check, w.before.metered, w.unit.as_str()), (None, None, "10^9 cycles/GiB"));
        let w = waterfall(&both, &both, Rules::built_in(), (WorkUnit::Packet, None)).unwrap();
        // 0.1 * 2e9 events over a million packets.
        assert_eq!(w.unit, "cycles/packet");
        assert!(near(w.before.sampled, 200.0), "{}", w.before.sampled);
    }

    #[test]
    fn a_cost_per_packet_is_divided_by_the_packets_of_each_trial() {
        let of = |seconds: f64, packets: f64| {
            let mut profile = trial(&[("tcp_ack", seconds)]);
            profile.header.work.packets = Some(packets);
            profile
        };
        // 0.1 CPU-s/GiB over 2 GiB are 0.2 s: 200 ns for each of a million packets.
        let a = [of(0.1, 1e6), of(0.2, 2e6)];
        let b = [of(0.1, 4e6), of(0.1, 4e6)];
        let first = Trials { cell: "a", profiles: &a, metered: &[209.0, 211.0] };
        let second = Trials { cell: "b", profiles: &b, metered: &[51.0, 53.0] };
        let rules = Rules::built_in();
        let w = waterfall(&first, &second, rules, (WorkUnit::Packet, None)).unwrap();
        assert_eq!(w.unit, "CPU-ns/packet");
        assert!(near(w.before.sampled, 200.0) && near(w.after.sampled, 50.0), "{w:?}");
        assert!(near(w.parts[0].change.mean, -150.0) && near(w.check.unwrap().rest, -8.0));
        // 2 GiB in one and two million packets, and in four million.
        assert!(near(w.before.packet.unwrap(), 0.75 * 2.0 * GIB / 1e6), "{:?}", w.before);
        assert!(near(w.after.packet.unwrap(), 2.0 * GIB / 4e6));
        let mut bare = of(0.1, 1.0);
        bare.header.work.packets = None;
        let bare = [bare];
        let third = Trials { cell: "c", profiles: &bare, metered: &[] };
        let fault = waterfall(&first, &third, rules, (WorkUnit::Packet, None)).unwrap_err();
        assert!(fault.message.contains("how many packets"), "{fault}");
        let per_gib = waterfall(&first, &third, rules, (WorkUnit::Gib, None)).unwrap();
        assert_eq!(per_gib.after.packet, None);
    }
}
