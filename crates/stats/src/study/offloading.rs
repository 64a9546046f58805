//! Results of copy engines in a study whose cells differ in the sender's copy engine and in the
//! message size: compared with the first engine at each size, block by block.

use crate::estimate::Effect;
use crate::metric::Metric;
use crate::offload::{Benefit, BreakEven, CopyCell, CopyComparison, break_evens};
use crate::verdict::{Comparer, Side, plain_value, trial_differences, undeclared_differences};
use bytepath_record::{CellId, Levels, Role};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The factor whose levels are sizes.
const SIZE: &str = "message-size";

/// Factors that name the paths; the engine is an option of a path.
const PATHS: [&str; 2] = ["path", "tx"];

/// The engines of a study. Costs are CPU seconds of the sender per unit of work.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Offloading {
    /// The engine that the others are compared with.
    pub first: String,
    /// Every cell of another engine compared with the otherwise identical cell of the first.
    pub points: Vec<CopyComparison<Levels>>,
    /// The size from which each engine pays off: in throughput, and in CPU time of the sender.
    pub break_even: Vec<BreakEven<Levels>>,
}

/// Compares the engines; `None` unless at least two engines and two sizes were measured.
pub(crate) fn offloading(
    comparer: &Comparer,
    cells: &[Side],
    baseline: &CellId,
) -> Option<Offloading> {
    if comparer.is_silent(Metric::Rate) {
        return None;
    }
    let engine = |side: &Side| side.cell.tx.copy_engine().map(str::to_owned);
    let sides: Vec<Side> = cells.iter().filter(|side| engine(side).is_some()).copied().collect();
    let first = sides.iter().find(|side| side.cell.id == *baseline).or(sides.first())?;
    let first = engine(first)?;
    let varied = varied(&sides);
    let all: Vec<(CopyCell<Levels>, Side)> = sides
        .iter()
        .filter_map(|side| Some((place(side, &engine(side)?, &varied), *side)))
        .collect();
    let mut points = Vec::new();
    for (cell, side) in all.iter().filter(|(cell, _)| cell.engine != first) {
        let alike = |other: &CopyCell<Levels>| {
            other.engine == first && (other.size, &other.at) == (cell.size, &cell.at)
        };
        let paths = |side: &Side| (side.cell.tx.path.clone(), side.cell.rx.clone());
        let base = all.iter().find(|(other, base)| alike(other) && paths(base) == paths(side));
        let Some((_, base)) = base else { continue };
        let apart = undeclared_differences("", base.cell, side.cell).is_empty()
            && trial_differences("", base.trials, side.trials).is_empty();
        let faster = comparer.effect(Metric::Rate, *base, *side).filter(|_| apart);
        let dearer = sender_cost(comparer, *base, *side).filter(|_| faster.is_some());
        points.push(CopyComparison { cell: cell.clone(), faster, dearer });
    }
    points.retain(|point| point.faster.is_some());
    let sizes: BTreeSet<u64> = points.iter().map(|point| point.cell.size).collect();
    if sizes.len() < 2 {
        return None;
    }
    let break_even = break_evens(&points.iter().collect::<Vec<_>>(), [Benefit::Rate, Benefit::Cpu]);
    Some(Offloading { first, points, break_even })
}

/// Returns the coordinates of a cell: engine, size, and what it shares with the cells that it is
/// compared with (its other levels, and those of the sender's options that vary).
fn place(side: &Side, engine: &str, varied: &BTreeSet<&str>) -> CopyCell<Levels> {
    let cell = side.cell;
    let levels = cell.levels.iter().filter(|(factor, _)| {
        let factor = factor.as_str();
        factor != SIZE && !PATHS.contains(&factor)
    });
    let mut at: Levels = levels.map(|(k, v)| (k.clone(), v.clone())).collect();
    let options = cell.tx.options.0.iter().filter(|(name, _)| varied.contains(name.as_str()));
    at.extend(options.map(|(name, value)| (name.clone(), plain_value(value))));
    CopyCell::new(engine, cell.stream.message_size, at)
}

/// Returns the sender's options, except for the engine, in which the cells differ.
fn varied<'a>(sides: &[Side<'a>]) -> BTreeSet<&'a str> {
    let options = || sides.iter().flat_map(|side| &side.cell.tx.options.0);
    let differs = |name: &&String| {
        let values =
            options().filter(|(other, _)| other == name).map(|(_, value)| plain_value(value));
        values.collect::<BTreeSet<_>>().len() > 1
    };
    let names = sides.iter().flat_map(|side| side.cell.tx.options.0.keys());
    names.filter(|name| *name != "copy").filter(differs).map(String::as_str).collect()
}

/// Returns the CPU time of the sender per unit of work relative to the first engine, block by
/// block; `None` if the two were obtained by different rules.
fn sender_cost(comparer: &Comparer, base: Side, side: Side) -> Option<Effect> {
    if base.cost_rules() != side.cost_rules() {
        return None;
    }
    let figures = |side: Side| -> BTreeMap<u32, f64> {
        let each = side.costs.iter();
        each.filter_map(|costs| Some((costs.block, costs.role_per_unit(Role::Sender)?))).collect()
    };
    let (first, second) = (figures(base), figures(side));
    let pairs = first.iter().filter_map(|(block, a)| Some((*a, *second.get(block)?)));
    let looks = comparer.looks_at(base, side);
    Effect::looked_at(&pairs.collect::<Vec<_>>(), comparer.rules.confidence, looks)
}
