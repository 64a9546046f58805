//! A study with a budget of time: a first pass over all cells, then fresh blocks for the
//! comparisons that matter, as many as there is time for.
//!
//! The first pass would favour what it chooses: the leader after three blocks was also lucky
//! in them. So a chosen cell is **judged by its later blocks alone**, and every other cell by the
//! first pass. Under no difference the p of a cell is then within x with a probability of at
//! most x from the one pass plus x from the other, whatever was chosen and why; twice that p is
//! a p-value, and Holm's rule holds for any dependence. So in such a study each interval and
//! each verdict of a comparison has half of the declared error
//! ([`Rules::in_two_passes`]). The effects of factors are taken from the first pass, in which
//! every cell has every block: nothing was chosen there.

use crate::estimate::Effect;
use crate::metric::{BetterDirection, Metric};
use crate::rules::Rules;
use crate::study::{Analysis, analyse};
use crate::verdict::Verdict;
use bytepath_record::{CellId, Study, Trial, TrialStatus, distinct};
use std::collections::{BTreeMap, HashSet};

/// Least blocks of a pass: an interval over two, with t at 12.7, shows next to nothing.
const LEAST: u32 = 3;

/// Blocks that each chosen cell is to have before another is chosen.
const ENOUGH: u32 = 5;

/// The baseline and its second copy, which are in every block.
const KEPT: usize = 2;

/// What this many seconds hold of a study, whose trials take this many seconds each: its blocks, and
/// those of its first pass, fewer where a second one follows. The blocks are fewer than requested
/// where some fit and nothing is left for a second pass. `None` if two do not fit, without which
/// there is no comparison.
pub fn allot(seconds: f64, trial: f64, cells: usize, blocks: u32) -> Option<(u32, u32)> {
    let block = trial * cells as f64;
    let fits = ((seconds / block) as u32).min(blocks);
    let left = seconds - f64::from(LEAST) * block;
    let smallest = f64::from(LEAST) * trial * (KEPT + 1) as f64;
    let two = fits >= LEAST && fits < blocks && cells > KEPT + 1 && left >= smallest;
    let (kept, first) = if two { (blocks, LEAST) } else { (fits, fits) };
    (fits >= blocks.min(2)).then_some((kept, first))
}

/// Cells that a second pass of this many seconds can hold with `ENOUGH` blocks each.
pub fn most_chosen(seconds: f64, trial: f64) -> usize {
    ((seconds / trial / f64::from(ENOUGH)) as usize).saturating_sub(KEPT).max(1)
}

/// What is run after the first pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondPass {
    /// The cells that were chosen, those that matter most first.
    pub chosen: Vec<CellId>,
    /// These, the baseline and its second copy, in the order of the study's cells.
    pub cells: Vec<CellId>,
    pub blocks: u32,
}

/// The second pass of a study with a budget. It follows from the trials of the first, so that a
/// resumed study continues as it began. `None` before the first pass is whole, and where no
/// time is left or nothing to be chosen.
pub fn second_pass(study: &Study) -> Option<SecondPass> {
    let header = &study.header;
    let budget = header.schedule.budget.filter(|_| header.functional.is_none())?;
    let first = header.schedule.first_pass()?;
    let of_first = |t: &&Trial| t.block < first;
    let trials: Vec<Trial> = study.trials.iter().filter(of_first).cloned().collect();
    let unable: HashSet<&CellId> =
        trials.iter().filter(|t| is_unavailable(t)).map(|t| &t.cell).collect();
    let able = header.cells.iter().filter(|cell| !unable.contains(&cell.id));
    let ran: HashSet<(&CellId, u32)> = trials.iter().map(|t| (&t.cell, t.block)).collect();
    let mut all = able.clone().flat_map(|cell| (0..first).map(move |b| (&cell.id, b)));
    if !all.all(|one| ran.contains(&one)) {
        return None;
    }
    let each = seconds_per_trial(&trials, header.schedule.warm_up + header.schedule.window);
    let left = budget.seconds - budget.profiles - each * (able.count() as f64 * f64::from(first));
    let first = Study { trials, header: header.clone(), profiles: Vec::new(), remarks: Vec::new() };
    let mut chosen = matter(&analyse(&first, &Rules::of(header)));
    let blocks_of = |count: usize| (left / (each * (KEPT + count) as f64)) as u32;
    let count = (1..=chosen.len()).rev().find(|count| blocks_of(*count) >= ENOUGH).unwrap_or(1);
    chosen.truncate(count);
    let blocks = blocks_of(count).min(header.schedule.blocks);
    if chosen.is_empty() || blocks < LEAST {
        return None;
    }
    let cells = header.cells.iter();
    let runs =
        cells.filter(|cell| cell.null || cell.id == header.baseline || chosen.contains(&cell.id));
    Some(SecondPass { cells: runs.map(|cell| cell.id.clone()).collect(), chosen, blocks })
}

/// Seconds from one trial to the next, with all that is around their windows: the shortest of
/// what the blocks took, because a study may have been interrupted in one.
pub fn seconds_per_trial(trials: &[Trial], least: f64) -> f64 {
    let mut blocks: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| !is_unavailable(trial)) {
        let block = blocks.entry(trial.block).or_insert((trial.started_ms, 0));
        *block = (block.0.min(trial.started_ms), block.1 + 1);
    }
    let blocks: Vec<(u64, u32)> = blocks.into_values().collect();
    let took = blocks
        .windows(2)
        .map(|pair| pair[1].0.saturating_sub(pair[0].0) as f64 * 1e-3 / f64::from(pair[0].1));
    took.reduce(f64::min).unwrap_or(least).max(least)
}

/// The cells whose comparisons matter, most first: the leader of each question, then those of
/// that the first pass left undecided, the nearest to an answer first.
fn matter(analysis: &Analysis) -> Vec<CellId> {
    let questions = [Metric::Rate, analysis.cost()];
    let effects = |question: Metric| {
        analysis.rows.iter().filter_map(move |row| {
            let comparison = row.comparison(question)?;
            Some((&row.cell, comparison.verdict, comparison.effect.as_ref()?))
        })
    };
    let gain = |question: Metric, effect: &Effect| match question.direction() {
        BetterDirection::Higher => effect.log_mean,
        BetterDirection::Lower => -effect.log_mean,
    };
    let leaders = questions.into_iter().filter_map(|question| {
        let better = effects(question).map(|(cell, _, effect)| (cell, gain(question, effect)));
        better.filter(|(_, gain)| *gain > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
    });
    let undecided = questions.into_iter().flat_map(effects).filter(|(_, verdict, _)| {
        matches!(verdict, Verdict::Inconclusive { .. } | Verdict::NoiseTooHigh { .. })
    });
    let open = undecided.map(|(cell, _, effect)| {
        let error = effect.log_stddev.unwrap_or(f64::INFINITY);
        (cell, effect.log_mean.abs() / error.max(f64::MIN_POSITIVE))
    });
    let mut open: Vec<(&CellId, f64)> = open.collect();
    open.sort_by(|a, b| b.1.total_cmp(&a.1));
    distinct(leaders.chain(open).map(|(cell, _)| cell.clone()))
}

fn is_unavailable(trial: &Trial) -> bool {
    matches!(trial.status, TrialStatus::Unavailable { .. })
}
