//! How much of a study is done, and whether its stopping rule ends it.

use super::profiles;
use super::slices::time_of_trial;
use bytepath_record::{Cell, CellId, Study, StudyHeader, TrialStatus};
use bytepath_spec as spec;
use bytepath_stats as stats;
use std::collections::HashSet;

/// Progress of a study.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Trials that have ended.
    pub ended: usize,
    /// Trials that are missing.
    pub missing: usize,
    /// Profile trials that are missing; 0 until no other trial is.
    pub profiles: usize,
    /// Seconds that these take at least.
    pub left: f64,
}

impl Progress {
    pub fn of(study: &Study) -> Progress {
        let (header, ended) = (&study.header, CompletedTrials::of(study));
        let stopped = stopped_early(study).is_some();
        let missing = if stopped { 0 } else { ended.missing(study) };
        let profiles = if missing == 0 { profiles::missing(study).len() } else { 0 };
        let each = header.profiling.as_ref().map_or(0.0, |p| header.schedule.warm_up + p.window);
        let left = missing as f64 * time_of_trial(&header.schedule) + profiles as f64 * each;
        Progress { ended: ended.trials.len(), missing, profiles, left }
    }

    /// Whether there is nothing left to run.
    pub fn is_all(&self) -> bool {
        self.missing + self.profiles == 0
    }
}

/// Why the declared rule ends a study at the end of a block, if it does. It is applied to the last
/// block that was started, once that is complete.
pub(super) fn stopped_early(study: &Study) -> Option<String> {
    let header = &study.header;
    header.schedule.stopping?;
    let ended = CompletedTrials::of(study);
    let last = (0..header.schedule.blocks).take_while(|block| ended.has(*block)).last()?;
    let whole = header.cells.iter().all(|cell| !ended.is_missing(cell, last));
    if whole { stats::should_stop(study) } else { None }
}

/// A block of a study: its number, and its cells in the order in which they run.
pub(super) type Block<'s> = (u32, Vec<&'s Cell>);

/// The trials that a study already has.
pub(super) struct CompletedTrials {
    /// Trials that have ended, by cell and block.
    pub trials: HashSet<(CellId, u32)>,
    /// Cells that cannot run.
    pub unable: HashSet<CellId>,
}

impl CompletedTrials {
    pub(super) fn of(study: &Study) -> CompletedTrials {
        let mut completed = CompletedTrials { trials: HashSet::new(), unable: HashSet::new() };
        for trial in &study.trials {
            if matches!(trial.status, TrialStatus::Unavailable { .. }) {
                completed.unable.insert(trial.cell.clone());
            } else {
                completed.trials.insert((trial.cell.clone(), trial.block));
            }
        }
        completed
    }

    pub(super) fn is_missing(&self, cell: &Cell, block: u32) -> bool {
        !self.unable.contains(&cell.id) && !self.trials.contains(&(cell.id.clone(), block))
    }

    /// Trials still to be run if every block is; of the second pass once the first is whole.
    pub(super) fn missing(&self, study: &Study) -> usize {
        let passes = [first_pass(study), second_pass(study)];
        let missing = |(block, cells): &Block| {
            cells.iter().filter(|cell| self.is_missing(cell, *block)).count()
        };
        passes.iter().flatten().map(missing).sum()
    }

    /// Whether a block was started.
    pub(super) fn has(&self, block: u32) -> bool {
        self.trials.iter().any(|(_, known)| *known == block)
    }
}

/// The blocks of a study that all cells are in, with their cells in the order in which they
/// run. Those that cannot run are in it, too, so that it is the same whatever the hosts can do.
pub(super) fn first_pass(study: &Study) -> Vec<Block<'_>> {
    let StudyHeader { cells, schedule, .. } = &study.header;
    let blocks = schedule.first_pass().unwrap_or(schedule.blocks);
    in_order(0, &cells.iter().collect::<Vec<_>>(), blocks, schedule.seed)
}

/// The blocks after them, of the cells that the first pass of a study with a budget has chosen.
pub(super) fn second_pass(study: &Study) -> Vec<Block<'_>> {
    let StudyHeader { cells, schedule, .. } = &study.header;
    let Some((first, pass)) = schedule.first_pass().zip(stats::second_pass(study)) else {
        return Vec::new();
    };
    let cells: Vec<&Cell> = cells.iter().filter(|cell| pass.cells.contains(&cell.id)).collect();
    in_order(first, &cells, pass.blocks, schedule.seed.wrapping_add(1))
}

fn in_order<'c>(from: u32, cells: &[&'c Cell], count: u32, seed: u64) -> Vec<Block<'c>> {
    let order = spec::order(cells.len(), count, seed);
    let passes = order.chunks(cells.len().max(1));
    (from..).zip(passes.map(|pass| pass.iter().map(|(_, at)| cells[*at]).collect())).collect()
}
