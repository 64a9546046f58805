//! Computes the analysis of a study.

use super::analysis::{ANALYSIS_VERSION, Analysis, Row, StoppingNote};
use super::cell_trials::{CellTrials, cell_trials, grouped};
use super::factors::factor_view;
use super::offloading::offloading;
use super::profiling::profiling_note;
use super::row::row;
use super::scaling::scaling;
use crate::cell::{CountedText, count, without_numbers};
use crate::estimate::{Looks, ORDER_LEVEL, Order, Summary};
use crate::metric::Metric;
use crate::rules::Rules;
use crate::verdict::{Comparer, Noise, Side};
use bytepath_record::{Cell, CellId, HOST_CHANGE, Role, Schedule, Study, Trial, TrialStatus};
use std::collections::{BTreeMap, BTreeSet};

/// Analyses a study. Rules that differ from [`Rules::of`] its header were chosen after the fact,
/// which a report that prints them mentions.
pub fn analyse(study: &Study, rules: &Rules) -> Analysis {
    analyse_some(study, rules, |_| true)
}

/// Like [`analyse`], for some of the cells, including the baseline: the others are neither shown
/// nor counted among the comparisons. The noise is that of the whole study, whichever cell it was
/// measured with.
pub fn analyse_some(study: &Study, rules: &Rules, of: impl Fn(&Cell) -> bool) -> Analysis {
    let header = &study.header;
    let all = cell_trials(study);
    let first_pass = header.schedule.first_pass();
    let each = first_pass.map_or(*rules, |_| rules.in_two_passes());
    let (nulls, cells): (Vec<&CellTrials>, Vec<&CellTrials>) =
        all.iter().partition(|cell| cell.cell.null);
    let everything: Vec<Side> = cells.iter().map(|cell| cell.side()).collect();
    let cells: Vec<&CellTrials> = cells.into_iter().filter(|cell| of(cell.cell)).collect();
    let sides: Vec<Side> = cells.iter().map(|cell| cell.side()).collect();
    let comparer = Comparer {
        rules: &each,
        looks: looks(&header.schedule),
        planned: header.schedule.blocks,
        ceiling: header.ceiling,
        loads: &header.loads,
        functional: header.functional.is_some(),
    };
    let null = nulls.first().map(|null| null.side());
    let original = null.and_then(|null| original(null.cell, &everything, &header.baseline));
    let noise = |question| {
        let (original, null) = original.zip(null).filter(|_| !comparer.is_silent(question))?;
        Noise::of(question, comparer.effect(question, original, null)?, rules.confidence)
    };
    let noises: Vec<Noise> = Metric::ALL.into_iter().filter_map(noise).collect();
    let mut rows: Vec<Row> = cells.iter().map(|cell| row(study, rules, cell)).collect();
    add_comparisons(&mut rows, &comparer, &sides, &header.baseline, &noises);
    let baseline = sides.iter().find(|side| side.cell.id == header.baseline).map(|side| side.cell);
    let factors = match common_blocks(&header.schedule, &cells) {
        None => factor_view(&comparer, &sides, baseline, &noises),
        // In the blocks that all cells have, no cell had been chosen yet.
        Some(first) => {
            let all = grouped(study, |_, trials| {
                trials.into_iter().filter(|trial| trial.block < first).collect()
            });
            let cells = all.iter().filter(|cell| !cell.cell.null && of(cell.cell));
            let sides: Vec<Side> = cells.map(CellTrials::side).collect();
            factor_view(&Comparer { rules, ..comparer }, &sides, baseline, &noises)
        }
    };
    let warnings = warnings(study, &rows);
    let remarks = remarks(study).into_iter().chain(slow_blocks(&cells)).chain(in_order(&rows));
    let remarks = remarks.collect();
    let scaling = scaling(&comparer, &sides, &header.baseline, &noises);
    Analysis {
        schema: ANALYSIS_VERSION,
        rules: *rules,
        baseline: header.baseline.clone(),
        rows,
        null: nulls.first().map(|null| row(study, rules, null)),
        noise_of: original.map(|side| side.cell.id.clone()),
        noises,
        factors,
        offloading: offloading(&comparer, &sides, &header.baseline),
        scaling,
        functional: header.functional.clone(),
        instructions_per_second: header.instructions_per_second,
        stopping: stopping(study),
        profiling: profiling_note(study, rules),
        warnings,
        remarks,
    }
}

/// Returns how often the comparisons of a study are looked at.
fn looks(schedule: &Schedule) -> Looks {
    match schedule.stopping {
        Some(rule) => Looks::Spread { first: rule.at_least as usize },
        None if schedule.until_sure => Looks::EachBlock { last: false },
        None => Looks::Once,
    }
}

/// Returns the number of blocks that all runnable cells have; `None` if no cell can have more.
/// Factor effects are computed over these blocks only.
fn common_blocks(schedule: &Schedule, cells: &[&CellTrials]) -> Option<u32> {
    if !schedule.until_sure {
        return schedule.first_pass();
    }
    let ran = |t: &&&Trial| !matches!(t.status, TrialStatus::Unavailable { .. });
    let blocks =
        |cell: &&CellTrials| cell.trials.iter().filter(ran).map(|trial| trial.block + 1).max();
    cells.iter().filter_map(blocks).min()
}

/// Compares every cell with the baseline; `sides` are in the order of the rows.
fn add_comparisons(
    rows: &mut [Row],
    comparer: &Comparer,
    sides: &[Side],
    baseline: &CellId,
    noises: &[Noise],
) {
    let (baselines, others): (Vec<Side>, Vec<Side>) =
        sides.iter().partition(|side| side.cell.id == *baseline);
    for question in Metric::ALL {
        let noise = noises.iter().find(|noise| noise.question == question);
        let comparisons = comparer.compare(question, baselines.first().copied(), &others, noise);
        let rows = rows.iter_mut().filter(|row| row.cell != *baseline);
        rows.zip(comparisons).for_each(|(row, comparison)| row.comparisons.extend(comparison));
    }
}

/// Returns the cell that the null cell is a second copy of; the baseline if it is among several
/// candidates.
fn original<'a>(null: &Cell, sides: &[Side<'a>], baseline: &CellId) -> Option<Side<'a>> {
    let same = |c: &Cell| {
        (&c.workload, &c.stream, &c.tx, &c.rx) == (&null.workload, &null.stream, &null.tx, &null.rx)
            && (&c.link, c.placement, &c.kernel, &c.settings)
                == (&null.link, null.placement, &null.kernel, &null.settings)
    };
    let twins = || sides.iter().copied().filter(|side| same(side.cell));
    twins().find(|side| side.cell.id == *baseline).or_else(|| twins().next())
}

fn stopping(study: &Study) -> Option<StoppingNote> {
    let rule = study.header.schedule.stopping?;
    let ran = |t: &&Trial| !matches!(t.status, TrialStatus::Unavailable { .. });
    let blocks: BTreeSet<u32> = study.trials.iter().filter(ran).map(|t| t.block).collect();
    Some(StoppingNote {
        within: rule.within,
        at_least: rule.at_least,
        most: study.header.schedule.blocks,
        run: blocks.len() as u32,
    })
}

fn remarks(study: &Study) -> Vec<String> {
    let mut remarks = study.remarks.clone();
    let cells = &study.header.cells;
    if !cells.iter().any(|c| c.id == study.header.baseline) {
        remarks
            .push(format!("the baseline '{}' is not a cell of this study", study.header.baseline));
    }
    let stray = study.trials.iter().filter(|t| !cells.iter().any(|c| c.id == t.cell)).count();
    if stray > 0 {
        remarks.push(format!("{stray} trials belong to no cell of this study and are left out"));
    }
    remarks
}

/// In a slow block, all cells are below this part of their usual rate.
const SLOW: f64 = 0.75;

/// Returns the blocks in which every cell, so the whole machine, was slow, which no comparison
/// shows.
fn slow_blocks(cells: &[&CellTrials]) -> Vec<String> {
    let mut shares: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for cell in cells {
        let rates = cell.measured.iter().filter_map(|t| Some((t.block, t.rate()?)));
        let rates: Vec<(u32, f64)> = rates.collect();
        let Some(usual) = Summary::of(rates.iter().map(|(_, rate)| *rate)) else { continue };
        for (block, rate) in rates {
            shares.entry(block).or_default().push(rate / usual.median);
        }
    }
    // One or two cells may be slow by themselves.
    let is_slow = |all: &Vec<f64>| all.len() > 2 && all.iter().all(|share| *share < SLOW);
    let slow = shares.into_iter().filter(|(_, all)| is_slow(all));
    let line = |(block, all): (u32, Vec<f64>)| {
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        format!(
            "block {} ran at {:.0}% of the usual rate, all cells alike",
            block + 1,
            mean * 100.0
        )
    };
    slow.map(line).collect()
}

/// Returns the comparisons whose blocks do not seem to be independent.
fn in_order(rows: &[Row]) -> Vec<String> {
    let comparisons = rows.iter().flat_map(|row| row.comparisons.iter().map(move |c| (row, c)));
    let orders: Vec<_> = comparisons
        .filter_map(|(row, c)| Some((&row.cell, c.question, c.effect.as_ref()?.order?)))
        .collect();
    let level = ORDER_LEVEL / orders.len() as f64;
    let line = |(cell, question, order): &(&CellId, Metric, Order)| {
        let Order { neighbours, trend, p } = order;
        (*p <= level).then(|| {
            format!(
                "{cell}, {}: the ratios depend on the order of the blocks (correlation of \
                 neighbours {neighbours:.2}, with time {trend:.2}), but the interval assumes \
                 independent blocks: it may be too narrow",
                question.name()
            )
        })
    };
    orders.iter().filter_map(line).collect()
}

/// Returns the warnings of all trials, except the engines' notes, which are shown with their row,
/// and changes of settings, which a remark names.
fn warnings(study: &Study, rows: &[Row]) -> Vec<CountedText> {
    let ends = rows.iter().flat_map(|row| Role::ALL.map(|role| row.end(role)));
    let notes = ends.flat_map(|end| {
        end.notes.iter().map(move |note| without_numbers(&format!("{}: {}", end.role, note.text)))
    });
    let notes: BTreeSet<String> = notes.collect();
    let mut all = count(study.trials.iter().flat_map(|t| &t.warnings).map(String::as_str));
    all.retain(|warning| {
        !notes.contains(&without_numbers(&warning.text)) && !warning.text.starts_with(HOST_CHANGE)
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::study;

    #[test]
    fn a_block_in_which_everything_was_slow_is_named() {
        let rows = [[1000, 2000, 500], [520, 990, 240], [1010, 2010, 505], [990, 1990, 100]];
        let remarks = |rows: &[[u64; 3]]| {
            let study = study(0.01, rows);
            analyse(&study, &Rules::of(&study.header)).remarks
        };
        let found = remarks(&rows);
        assert_eq!(found, ["block 2 ran at 56% of the usual rate, all cells alike"]);
        assert_eq!(remarks(&rows[2..]), [""; 0], "one slow cell is its own matter");
    }
}
