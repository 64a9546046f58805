//! What happened to the frames of a cell, over its measured trials.

use super::facts::busy;
use crate::estimate::Summary;
use bytepath_record::{Cell, Hops, Role, Trial};
use schemars::JsonSchema;
use serde::Serialize;

/// A thread that runs for this part of its window is considered fully busy.
const FULL: f64 = 0.97;

/// Losses below this part of the generated frames do not indicate a limit.
const FEW: f64 = 0.01;

/// Frames of a cell; rates are per second, of all threads together.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HopsRow {
    /// Threads that generate, and threads that receive.
    pub threads: [u32; 2],
    /// Counts of all measured trials together, from the first frame to the last.
    pub hops: Hops,
    /// Rate of frames generated.
    pub generated: Option<Summary>,
    /// Rate of frames received.
    pub received: Option<Summary>,
    /// Rate of frames dropped anywhere.
    pub lost: Option<Summary>,
    /// Part of the window that a thread of each end ran, on average over its threads; or that the
    /// kernel threads in their place ran, if that is more.
    pub busy: [Option<Summary>; 2],
    /// Seconds that the frames of a trial took, if their number was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Summary>,
    /// What limits the rate.
    pub bound: RateLimit,
}

/// What limits the rate of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RateLimit {
    /// The rate that was requested.
    Rate,
    /// The generator has no time left, and everything it sends is received: a faster one would
    /// reach a higher rate.
    Generator,
    /// More is sent, or could be, than is received.
    Sink,
    /// Neither end is fully busy.
    Neither,
}

impl RateLimit {
    pub fn word(self) -> &'static str {
        match self {
            RateLimit::Rate => "rate",
            RateLimit::Generator => "generator",
            RateLimit::Sink => "sink",
            RateLimit::Neither => "neither",
        }
    }
}

impl HopsRow {
    /// Summarises the measured trials of a cell; `None` unless they count frames.
    pub fn of(cell: &Cell, measured: &[&Trial], confidence: f64) -> Option<HopsRow> {
        let trials: Vec<(&Trial, Hops)> =
            measured.iter().filter_map(|trial| Some((*trial, trial.hops?))).collect();
        trials.first()?;
        let mut hops = Hops::default();
        trials.iter().for_each(|(_, of_trial)| hops.add(of_trial));
        let over = |figure: &dyn Fn(&Trial, &Hops) -> Option<f64>| {
            let values = trials.iter().filter_map(|(trial, hops)| figure(trial, hops));
            Summary::with_interval(values, confidence)
        };
        // Counts cover the whole trial and rates its window, so scale by frames received.
        let rate = |count: fn(&Hops) -> u64| {
            over(&|trial, hops| {
                let each = count(hops) as f64 / hops.received as f64;
                Some(trial.rate()? * each).filter(|rate| rate.is_finite())
            })
        };
        let threads = Role::ALL.map(|role| cell.threads(role));
        let busy = Role::ALL.map(|role| over(&|trial, _| busy(cell, trial, role)));
        let options = &cell.workload.options;
        let is_counted = options.number("count").is_some();
        Some(HopsRow {
            threads,
            hops,
            generated: rate(Hops::generated),
            received: over(&|trial, _| trial.rate()),
            lost: rate(Hops::lost),
            busy,
            seconds: over(&|trial, _| is_counted.then_some(trial.window)),
            bound: limit(options.number("rate").is_some(), &hops, busy),
        })
    }

    /// Returns a count as a part of the generated frames.
    pub fn share(&self, count: u64) -> Option<f64> {
        let share = count as f64 / self.hops.generated() as f64;
        share.is_finite().then_some(share)
    }
}

fn limit(is_paced: bool, hops: &Hops, busy: [Option<Summary>; 2]) -> RateLimit {
    let is_full = |role: Role| busy[role as usize].is_some_and(|part| part.mean >= FULL);
    let generated = hops.generated() as f64;
    let held_back = (hops.lost() + hops.returned()) as f64 > FEW * generated;
    match () {
        () if is_paced => RateLimit::Rate,
        () if held_back => RateLimit::Sink,
        () if is_full(Role::Sender) => RateLimit::Generator,
        () if is_full(Role::Receiver) => RateLimit::Sink,
        () => RateLimit::Neither,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{cell, thread, trial};
    use crate::trial::ENGINE_RUN;
    use bytepath_record::{OptionValue, Reading, Scope, Unit, Work};

    /// A window of 2 s in which 1000 frames arrived; over the whole trial, twice as many.
    fn frames(block: u32, busy: [f64; 2], hops: Hops) -> Trial {
        let mut trial = trial("frames", block, 2.0, 1000);
        trial.work = Work::Packets;
        trial.hops = Some(hops);
        let run = |(role, part): (Role, f64)| {
            Reading::sum(ENGINE_RUN.to_owned(), Unit::Seconds, 2.0 * part, Scope::Role(role))
        };
        trial.readings = Role::ALL.into_iter().zip(busy).map(run).collect();
        trial
    }

    fn row(cell: &Cell, busy: [f64; 2], hops: Hops) -> HopsRow {
        let trials = [0, 1].map(|block| frames(block, busy, hops));
        HopsRow::of(cell, &trials.iter().collect::<Vec<_>>(), 0.95).unwrap()
    }

    /// pktgen generates while the engine sleeps, and vhost's worker copies what it only counts.
    #[test]
    fn kernel_worker_threads_count_as_busy_ends() {
        let hops = Hops { offered: 2000, received: 2000, ..Hops::default() };
        let mut trial = frames(0, [0.01, 0.5], hops);
        for (role, name) in [(0, "kpktgend_0"), (1, "vhost-77")] {
            trial.roles[role].threads.push(thread(name, 1.98, 0.0, 1.98));
            let wall =
                Reading::sum("threads.wall", Unit::Seconds, 2.0, Scope::Role(Role::ALL[role]));
            trial.readings.push(wall);
        }
        let row = HopsRow::of(&cell("frames"), &[&trial], 0.95).unwrap();
        assert_eq!(row.busy.map(|part| part.unwrap().mean), [0.99, 0.99]);
        assert_eq!(row.bound, RateLimit::Generator);
    }

    #[test]
    fn losses_are_at_the_rate_of_the_window() {
        let hops = Hops {
            offered: 6000,
            qdisc_dropped: 1000,
            device_dropped: 3000,
            received: 2000,
            ..Hops::default()
        };
        let row = row(&cell("frames"), [0.99, 0.99], hops);
        assert_eq!((row.received.unwrap().mean, row.lost.unwrap().mean), (500.0, 1000.0));
        assert_eq!((row.generated.unwrap().mean, row.hops.offered), (1500.0, 12_000));
        assert_eq!(row.share(row.hops.device_dropped), Some(0.5));
        assert_eq!((row.bound, row.seconds), (RateLimit::Sink, None));
    }

    #[test]
    fn the_busy_end_limits_the_rate() {
        let all = Hops { offered: 2000, received: 2000, ..Hops::default() };
        let plain = cell("frames");
        assert_eq!(row(&plain, [0.99, 0.4], all).bound, RateLimit::Generator);
        assert_eq!(row(&plain, [0.6, 1.0], all).bound, RateLimit::Sink);
        assert_eq!(row(&plain, [0.6, 0.4], all).bound, RateLimit::Neither);
        let turned = Hops { offered: 9000, refused: 7000, ..all };
        assert_eq!(row(&plain, [0.99, 0.4], turned).bound, RateLimit::Sink);
        let mut paced = plain.clone();
        paced.workload.options.0.insert("rate".into(), OptionValue::Number(100));
        assert_eq!(row(&paced, [1.0, 0.4], all).bound, RateLimit::Rate);
        let mut counted = plain;
        counted.workload.options.0.insert("count".into(), OptionValue::Number(2000));
        assert_eq!(row(&counted, [1.0, 0.4], all).seconds.unwrap().mean, 2.0);
    }

    #[test]
    fn other_work_has_no_hops() {
        assert_eq!(HopsRow::of(&cell("a"), &[&trial("a", 0, 1.0, 10)], 0.95), None);
    }
}
