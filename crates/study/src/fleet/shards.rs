//! The states of shards, by Slurm and by their folders, and what they have measured.

use super::record::{Fleet, name, reached, studies};
use super::slurm::{self, Task};
use crate::{Reached, merge};
use bytepath_record::Fault;
use bytepath_spec::usage;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A shard of a fleet as it is now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shard {
    pub shard: u32,
    pub state: ShardState,
    /// The state of its task, as Slurm calls it; `None` if Slurm has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm_state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// Why Slurm has not started it yet.
    #[serde(skip)]
    pub reason: Option<String>,
    pub trials_ended: usize,
    /// All of its trials, ended or not.
    pub trials: usize,
    /// At least; `None` if it has not begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardState {
    /// It was never submitted.
    New,
    /// Slurm has it.
    Active,
    /// All trials have ended.
    Complete,
    /// Its job ended before its study was complete, or Slurm no longer knows it.
    Lost,
}

impl ShardState {
    fn of(task: Option<&Task>, reached: Option<&Reached>, submitted: bool) -> ShardState {
        match (task, reached) {
            // The report and the end of the job come after the last trial.
            (Some(task), _) if task.is_active() => ShardState::Active,
            (_, Some(reached)) if reached.is_all() => ShardState::Complete,
            _ if submitted => ShardState::Lost,
            _ => ShardState::New,
        }
    }

    /// Whether it has to be submitted, perhaps again.
    pub fn is_missing(self) -> bool {
        matches!(self, ShardState::New | ShardState::Lost)
    }
}

/// Every shard of the fleet in a folder.
pub fn shards(folder: &Path) -> Result<Vec<Shard>, Fault> {
    shards_of(folder, &Fleet::read(folder)?)
}

pub(super) fn shards_of(folder: &Path, fleet: &Fleet) -> Result<Vec<Shard>, Fault> {
    let mut tasks = slurm::tasks(&fleet.jobs)?;
    let submitted = !fleet.jobs.is_empty();
    let shard = |shard| -> Result<Shard, Fault> {
        let (task, reached) = (tasks.remove(&shard), reached(folder, shard)?);
        let state = ShardState::of(task.as_ref(), reached.as_ref(), submitted);
        let (slurm_state, nodes, reason) = match task {
            Some(Task { state, nodes, reason, .. }) => (Some(state), Some(nodes), Some(reason)),
            None => (None, None, None),
        };
        Ok(Shard {
            shard,
            state,
            reason: reason.filter(|_| slurm_state.as_deref() == Some("PENDING")),
            slurm_state,
            nodes: nodes.filter(|nodes| !nodes.is_empty()),
            trials_ended: reached.map_or(0, |reached| reached.ended),
            trials: reached.map_or(fleet.trials, |reached| reached.ended + reached.missing),
            seconds_left: reached.map(|reached| reached.left),
        })
    };
    (0..fleet.shards).map(shard).collect()
}

/// Merges the complete shards of a fleet into a folder. Returns how many studies that are, and
/// what was left out. Refuses an incomplete fleet unless `partial`.
pub fn collect(
    folder: &Path,
    out: &Path,
    partial: bool,
    different_hosts: bool,
) -> Result<(usize, Vec<String>), Fault> {
    let fleet = Fleet::read(folder)?;
    let mut complete: Vec<(String, PathBuf)> = Vec::new();
    let mut missing = Vec::new();
    for shard in 0..fleet.shards {
        match reached(folder, shard)? {
            Some(reached) if reached.is_all() => complete.extend(studies(folder, shard)),
            Some(Reached { ended, missing: left, .. }) => {
                missing.push(format!("{} has {ended} of {} trials", name(shard), ended + left));
            }
            None => missing.push(format!("{} has not started", name(shard))),
        }
    }
    if !missing.is_empty() && (!partial || complete.is_empty()) {
        let text = format!("the fleet is not complete: {}", missing.join("; "));
        return Err(usage(text).remedy(match complete.is_empty() {
            true => format!("see bytepath fleet status {}", folder.display()),
            false => "merge the others without them with --partial".to_owned(),
        }));
    }
    merge(&complete, out, different_hosts)?;
    Ok((complete.len(), missing))
}
