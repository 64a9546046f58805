//! A study that runs until its answer is certain: decides which cells the next block still runs.
//!
//! Every comparison is tested after each block, by an interval that is valid however often one
//! looks ([`Looks::EachBlock`](crate::estimate::Looks)). So the study may stop at any block and for
//! any reason, and a cell that is left out of later blocks keeps its verdict. These are the
//! reasons: a cell is left out once each of its comparisons is
//!
//! - decided: it has a verdict, and the study would not recommend the cell;
//! - out of reach: at the last planned block, whatever result is plausible by now, the interval
//!   would neither exclude 1 nor fit into the margin.
//!
//! The baseline and its second copy are in every block. When no other cell is left, the study
//! ends.

use crate::rules::Rules;
use crate::study::{Analysis, Row, analyse};
use crate::verdict::{Comparison, Verdict};
use bytepath_math::two_sided;
use bytepath_record::{CellId, Study};
use std::collections::HashSet;

/// Blocks before the first decision. Streams have moods that last for several connections: all of
/// three or four blocks may fall into one, and agree by chance.
pub const LEAST_BLOCKS: u32 = 5;

/// Returns the cells that the next block runs, of a study that ends when its answer is certain;
/// empty if it ends here.
pub fn cells_to_run(study: &Study) -> HashSet<CellId> {
    let header = &study.header;
    let analysis = analyse(study, &Rules::of(header));
    let planned = header.schedule.blocks;
    let mut open: HashSet<CellId> = analysis
        .rows
        .iter()
        .filter(|row| is_open(&analysis, row, planned))
        .map(|row| row.cell.clone())
        .collect();
    let is_new = |row: &Row| row.baseline && row.status.ended() < LEAST_BLOCKS;
    if open.is_empty() && !analysis.rows.iter().any(is_new) {
        return open;
    }
    // Recommended cells continue to be measured next to those that may yet turn out better.
    open.extend(analysis.choices().iter().map(|choice| choice.row.cell.clone()));
    let always = header.cells.iter().filter(|cell| cell.null || cell.id == header.baseline);
    open.extend(always.map(|cell| cell.id.clone()));
    open
}

fn is_open(analysis: &Analysis, row: &Row, planned: u32) -> bool {
    if row.baseline || row.status.unavailable.is_some() {
        return false;
    }
    if row.status.measured < LEAST_BLOCKS {
        // A cell that fails repeatedly does not keep a study running.
        return row.status.ended() < 2 * LEAST_BLOCKS;
    }
    let questions = analysis.deciding();
    let mut compared = questions.iter().filter_map(|question| row.comparison(*question));
    compared.any(|comparison| match comparison.verdict {
        Verdict::NotEnough { .. } => true,
        Verdict::Inconclusive { .. } | Verdict::NoiseTooHigh { .. } => {
            !is_beyond_reach(comparison, planned)
        }
        _ => false,
    })
}

/// Returns whether an undecided comparison would still be undecided after the planned blocks.
fn is_beyond_reach(comparison: &Comparison, planned: u32) -> bool {
    let Some((effect, test)) = comparison.effect.as_ref().zip(comparison.test) else {
        return false;
    };
    let (blocks, planned) = (effect.blocks as f64, f64::from(planned));
    let Some(stddev) = effect.log_stddev.filter(|_| effect.blocks >= LEAST_BLOCKS as usize) else {
        return false;
    };
    let size = effect.log_mean.abs();
    // How far the mean may move until then, in nine of ten cases on either side.
    let moves = 1.3 * stddev * (1.0 / blocks - 1.0 / planned).max(0.0).sqrt();
    let (nearest, farthest) = ((size - moves).max(0.0), size + moves);
    // Half of the error is spent on the earlier looks.
    let half = |confidence: f64| {
        let t = two_sided((1.0 + confidence) / 2.0, planned - 1.0).unwrap_or(f64::INFINITY);
        t * stddev / planned.sqrt()
    };
    let margin = test.margin.ln_1p();
    match comparison.verdict {
        Verdict::Inconclusive { .. } => {
            farthest < half(test.different.confidence)
                && nearest + half(test.equivalent.confidence) > margin
        }
        // The noise floor falls with the root of the number of blocks.
        Verdict::NoiseTooHigh { floor } => {
            floor.ln_1p() * (blocks / planned).sqrt() > farthest.max(margin)
        }
        _ => false,
    }
}
