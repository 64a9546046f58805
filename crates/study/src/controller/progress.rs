//! How much of a study is done, and whether its stopping rule ends it.

use super::passes::CompletedTrials;
use super::profiles;
use super::slices::time_of_trial;
use bytepath_record::Study;
use bytepath_stats as stats;

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
