//! How much of a study is done, and whether its stopping rule ends it.

use super::pilots::PilotTrials;
use super::profiles;
use super::request::{ProfileTrials, overhead};
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
    /// Seconds that the missing trials take at least.
    pub left: f64,
}

impl Progress {
    pub fn of(study: &Study) -> Progress {
        let (header, ended) = (&study.header, CompletedTrials::of(study));
        let stopped = stopped_early(study).is_some();
        let missing = if stopped { 0 } else { ended.missing(study) };
        let profiles = if missing == 0 { profiles::missing(study).len() } else { 0 };
        let each = header.profiling.as_ref().map_or(0.0, |p| header.schedule.warm_up + p.window);
        let pilots = if missing == 0 { 0.0 } else { PilotTrials::missing(study).seconds() };
        let trials = missing as f64 * time_of_trial(&header.schedule);
        let left = pilots + trials + profiles as f64 * each;
        Progress { ended: ended.trials.len(), missing, profiles, left }
    }

    /// True if nothing is left to run.
    pub fn is_all(&self) -> bool {
        self.missing + self.profiles == 0
    }
}

/// Returns the seconds that the profiles of a study take at most, without those that replace
/// rejected ones.
pub fn time_of_profiles(header: &StudyHeader) -> f64 {
    let profiles = ProfileTrials::of(&header.schedule, &header.cells, header.profiling.as_ref());
    profiles.trials * (profiles.seconds_each + overhead(header.schedule.design))
}

/// Returns why the declared rule ends a study at the end of a block, if it does. The rule is
/// applied to the last block that was started, once that is complete.
pub(super) fn stopped_early(study: &Study) -> Option<String> {
    let header = &study.header;
    if header.schedule.until_sure {
        let none = cells_to_run(study).is_empty();
        return none.then(|| "every comparison is decided, or out of reach".to_owned());
    }
    header.schedule.stopping?;
    let ended = CompletedTrials::of(study);
    let was_started = |block: &u32| ended.trials.iter().any(|(_, known)| known == block);
    let last = (0..header.schedule.blocks).take_while(was_started).last()?;
    let whole = header.cells.iter().all(|cell| !ended.is_missing(cell, last));
    if whole { stats::should_stop(study) } else { None }
}

/// Returns the cells that the next block runs: all, except in a study that ends once it is sure.
pub(super) fn cells_to_run(study: &Study) -> HashSet<CellId> {
    match study.header.schedule.until_sure {
        true => stats::cells_to_run(study),
        false => study.header.cells.iter().map(|cell| cell.id.clone()).collect(),
    }
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

    /// Returns the number of trials still to run, if all blocks run and no further cell is left
    /// out.
    pub(super) fn missing(&self, study: &Study) -> usize {
        let run = cells_to_run(study);
        let missing = |(block, cells): &Block| {
            let run = cells.iter().filter(|cell| run.contains(&cell.id));
            run.filter(|cell| self.is_missing(cell, *block)).count()
        };
        // A cell that an earlier block left out does not catch up on it.
        let begun = self.trials.iter().map(|(_, block)| *block).max().unwrap_or(0);
        let all = blocks(&study.header).into_iter();
        all.filter(|(block, _)| *block >= begun || !study.header.schedule.until_sure)
            .map(|block| missing(&block))
            .sum()
    }
}

/// Returns the blocks of a study, with all of its cells in the order in which they run. Cells that
/// cannot run are included, so that the order does not depend on the hosts.
pub(super) fn blocks(header: &StudyHeader) -> Vec<Block<'_>> {
    let StudyHeader { cells, schedule, .. } = header;
    let order = spec::order(cells.len(), schedule.blocks, schedule.seed);
    let blocks = order.chunks(cells.len().max(1));
    (0..).zip(blocks.map(|block| block.iter().map(|(_, at)| &cells[*at]).collect())).collect()
}
