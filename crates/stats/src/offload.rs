//! Compares copy engines with a first one: their cost to the caller, their speed, and the size from
//! which they pay off. [`offload`] is for engines alone; for engines within a study see
//! `offloading.rs`.

use crate::estimate::{Effect, Summary};
use crate::rules::CONFIDENCE;
use bytepath_record::{grouped, is_model};
use schemars::JsonSchema;
use serde::Serialize;

/// A combination of engine, size and way to copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CopyCell<A = CopyAt> {
    /// The engine with its options, as typed by the user.
    pub engine: String,
    /// Whether its times are those of a model instead of a device.
    pub model: bool,
    /// Bytes per copy; in a study, per message.
    pub size: u64,
    /// How copies are done.
    #[serde(flatten)]
    pub at: A,
}

impl<A> CopyCell<A> {
    /// Creates a cell for an engine as typed.
    pub fn new(engine: &str, size: u64, at: A) -> CopyCell<A> {
        CopyCell { engine: engine.to_owned(), model: is_model(engine), size, at }
    }
}

/// How copies are done; only cells that have this in common are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CopyAt {
    pub depth: usize,
    /// Copies submitted together.
    pub batch: usize,
    /// Whether copies rotate through more memory than fits into the caches.
    pub rotate: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CopyTrial {
    /// Bytes per second.
    pub rate: f64,
    /// The caller's seconds per copy: within submissions, and polls that found a completion.
    pub caller: f64,
    /// The part of these within submissions.
    pub submitting: f64,
    /// Seconds from a submission to the poll that found it completed.
    pub latency: f64,
    /// Polls per copy, including those that found nothing.
    pub polls: f64,
    /// Page faults and full queues per copy.
    pub hindrances: f64,
}

/// A cell compared with that of the first engine with the same size and way to copy.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CopyComparison<A = CopyAt> {
    pub cell: CopyCell<A>,
    /// Ratio of its rate to the first engine's; `None` for that engine.
    pub faster: Option<Effect>,
    /// Ratio of its cost to the first engine's; `None` for that engine.
    pub dearer: Option<Effect>,
}

/// A cell of engines without a study, over all blocks.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CopyRow {
    /// The cell, compared with the first engine; the cost is the caller's time per copy.
    #[serde(flatten)]
    pub comparison: CopyComparison,
    /// Means over the blocks.
    pub mean: CopyTrial,
    /// Its rate over the blocks.
    pub rate: Summary,
}

/// The figure by which an engine can be better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Benefit {
    /// The caller's time for a copy.
    Time,
    /// Bytes per second.
    Rate,
    /// CPU time of the sender for what it sends.
    Cpu,
}

/// The size from which an engine pays off.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BreakEven<A = CopyAt> {
    pub engine: String,
    /// Whether its times are those of a model.
    pub model: bool,
    /// How copies are done.
    #[serde(flatten)]
    pub at: A,
    pub pays: Benefit,
    /// The smallest size such that it is significantly better there and at every larger size, with
    /// the effect at that size; `None` if it is not better even at the largest.
    pub from: Option<(u64, Effect)>,
    /// The largest size measured.
    pub largest: u64,
}

/// Compares every cell with the first engine's, and finds the size from which each engine pays off.
/// Trials are given by block; those of the same block are compared with each other.
pub fn offload(cells: &[(CopyCell, Vec<CopyTrial>)]) -> (Vec<CopyRow>, Vec<BreakEven>) {
    let first = cells.first().map_or("", |(cell, _)| cell.engine.as_str());
    let rows = cells.iter().filter_map(|(cell, trials)| {
        let alike = |other: &CopyCell| (other.size, other.at) == (cell.size, cell.at);
        let base = cells.iter().find(|(it, _)| it.engine == first && alike(it));
        let effect = |of: fn(&CopyTrial) -> f64| {
            let base = base.filter(|_| cell.engine != first)?;
            let pairs: Vec<(f64, f64)> =
                base.1.iter().zip(trials).map(|(a, b)| (of(a), of(b))).collect();
            Effect::of(&pairs, CONFIDENCE)
        };
        let (faster, dearer) = (effect(|trial| trial.rate), effect(|trial| trial.caller));
        Some(CopyRow {
            comparison: CopyComparison { cell: cell.clone(), faster, dearer },
            mean: mean(trials),
            rate: Summary::of(trials.iter().map(|trial| trial.rate))?,
        })
    });
    let rows: Vec<CopyRow> = rows.collect();
    let beside: Vec<&CopyComparison> = rows.iter().map(|row| &row.comparison).collect();
    let break_evens = break_evens(&beside, [Benefit::Time, Benefit::Rate]);
    (rows, break_evens)
}

/// Finds the size from which each engine other than the first pays off, for each of two benefits.
pub(crate) fn break_evens<A: Clone + PartialEq>(
    rows: &[&CopyComparison<A>],
    pays: [Benefit; 2],
) -> Vec<BreakEven<A>> {
    let faster = rows.iter().filter(|row| row.faster.is_some());
    let kinds = grouped(faster.map(|row| ((&row.cell.engine, &row.cell.at), &row.cell)));
    let each =
        kinds.iter().flat_map(|(_, cells)| pays.map(|pays| break_even(rows, cells[0], pays)));
    each.collect()
}

fn break_even<A: Clone + PartialEq>(
    rows: &[&CopyComparison<A>],
    cell: &CopyCell<A>,
    pays: Benefit,
) -> BreakEven<A> {
    let mut sizes: Vec<&CopyComparison<A>> = rows
        .iter()
        .copied()
        .filter(|row| row.cell.engine == cell.engine && row.cell.at == cell.at)
        .collect();
    sizes.sort_by_key(|row| row.cell.size);
    let effect = |row: &CopyComparison<A>| match pays {
        Benefit::Rate => row.faster.clone(),
        Benefit::Time | Benefit::Cpu => row.dearer.clone(),
    };
    let better = |row: &&&CopyComparison<A>| {
        let interval = effect(row).and_then(|effect| effect.interval);
        interval.is_some_and(|i| if pays == Benefit::Rate { i.low > 1.0 } else { i.high < 1.0 })
    };
    let least = sizes.iter().rev().take_while(better).last();
    let from = least.and_then(|row| Some((row.cell.size, effect(row)?)));
    let CopyCell { engine, model, at, .. } = cell.clone();
    let largest = sizes.last().map_or(0, |row| row.cell.size);
    BreakEven { engine, model, at, pays, from, largest }
}

fn mean(trials: &[CopyTrial]) -> CopyTrial {
    let mean =
        |of: fn(&CopyTrial) -> f64| trials.iter().map(of).sum::<f64>() / trials.len().max(1) as f64;
    CopyTrial {
        rate: mean(|trial| trial.rate),
        caller: mean(|trial| trial.caller),
        submitting: mean(|trial| trial.submitting),
        latency: mean(|trial| trial.latency),
        polls: mean(|trial| trial.polls),
        hindrances: mean(|trial| trial.hindrances),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made up: an engine that takes 100 ns of the caller whatever the size, and a CPU that takes 1
    /// ns per 10 bytes.
    fn cells(sizes: &[u64]) -> Vec<(CopyCell, Vec<CopyTrial>)> {
        let at = CopyAt { depth: 4, batch: 1, rotate: false };
        let trials = |caller: f64, rate: f64| -> Vec<CopyTrial> {
            let noise = [0.98, 1.0, 1.01, 1.02, 0.99, 1.0];
            let trial = |noise: f64| CopyTrial {
                rate: rate * noise,
                caller: caller / noise,
                submitting: caller,
                latency: caller,
                polls: 1.0,
                hindrances: 0.0,
            };
            noise.into_iter().map(trial).collect()
        };
        let cell = |engine: &str, size| CopyCell::new(engine, size, at);
        let cpu = sizes.iter().map(|size| (cell("cpu", *size), trials(*size as f64 * 1e-10, 1e10)));
        let other = sizes.iter().map(|size| {
            let mut all = trials(1e-7, 0.5e10);
            // One block differs.
            all[2].caller *= 1.1;
            (cell("dsa", *size), all)
        });
        cpu.chain(other).collect()
    }

    #[test]
    fn break_even_is_the_least_size_better_at_all_larger_ones() {
        let (rows, found) = offload(&cells(&[64, 512, 1000, 2048, 65536]));
        assert_eq!(rows.len(), 10);
        assert!(rows[0].comparison.dearer.is_none());
        let [time, rate] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((time.pays, rate.pays), (Benefit::Time, Benefit::Rate));
        let (size, effect) = time.from.as_ref().unwrap();
        assert_eq!(*size, 2048, "at 1000 it is not significantly better");
        let interval = effect.interval.unwrap();
        assert!(interval.low < 0.5 && interval.high > 0.488 && interval.high < 0.6, "{interval:?}");
        assert_eq!((rate.from.clone(), rate.largest), (None, 65536));
    }

    #[test]
    fn a_worse_size_moves_the_break_even_beyond_it() {
        let mut all = cells(&[2048, 4096, 65536]);
        let worse = all.iter_mut().find(|(cell, _)| cell.engine == "dsa" && cell.size == 4096);
        worse.unwrap().1.iter_mut().for_each(|trial| trial.caller = 1.0);
        let (_, found) = offload(&all);
        assert_eq!(found[0].from.as_ref().unwrap().0, 65536);
        assert!(offload(&[]).0.is_empty());
    }
}
