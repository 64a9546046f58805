//! The record of a fleet, `fleet.json`, and the folders of its shards.

use super::slurm::{self, Task};
use crate::{Progress, is_begun, load, merge, storage};
use bytepath_record::Fault;
use bytepath_spec::usage;
use bytepath_sys::files::{self, Folder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Most bytes of a record that are read.
const MOST: u64 = 1 << 20;

/// Name of the experiment in a fleet's folder.
pub(super) const EXPERIMENT: &str = "experiment.toml";

/// Name of the program in a fleet's folder.
pub(super) const PROGRAM: &str = "bytepath";

/// Most shards of a fleet: the default of Slurm's MaxArraySize.
pub const MOST_SHARDS: u32 = 1001;

const RECORD: &str = "fleet.json";

/// Version of `fleet.json`.
const SCHEMA: u32 = 1;

/// What is known about a fleet in addition to its experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fleet {
    schema: u32,
    /// How many shards it has, numbered from 0.
    pub shards: u32,
    /// Trials of a shard, if every cell can run.
    pub trials: usize,
    /// Seed of shard 0; the others follow.
    pub seed: u64,
    /// Addresses of nodes on the link, where Slurm's are not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addresses: BTreeMap<String, IpAddr>,
    /// Ids of the job arrays, in the order in which they were submitted.
    pub jobs: Vec<String>,
}

impl Fleet {
    /// One that was not submitted yet.
    pub fn new(
        shards: u32,
        trials: usize,
        seed: u64,
        addresses: BTreeMap<String, IpAddr>,
    ) -> Fleet {
        Fleet { schema: SCHEMA, shards, trials, seed, addresses, jobs: Vec::new() }
    }

    /// Reads the record of a folder.
    pub fn read(folder: &Path) -> Result<Fleet, Fault> {
        let path = folder.join(RECORD);
        let name = path.display().to_string();
        let text = files::open(&path).and_then(|file| files::bounded(file, MOST));
        let text = text.map_err(|e| unreadable(&name, &e))?;
        Fleet::parse(&name, &text)
    }

    /// Reads a record. Its schema comes first; then it has as many shards as a fleet can have, and
    /// ids of jobs that Slurm's programs can be given.
    pub fn parse(name: &str, text: &[u8]) -> Result<Fleet, Fault> {
        let wrong = |what: &dyn Display| unreadable(name, what);
        let fleet: Fleet = serde_json::from_slice(text).map_err(|e| wrong(&e))?;
        if fleet.schema != SCHEMA {
            let what = format!("{name} has schema {}; this bytepath reads {SCHEMA}", fleet.schema);
            return Err(Fault::unsupported(what));
        }
        if !(1..=MOST_SHARDS).contains(&fleet.shards) {
            return Err(wrong(&format!("{} shards; a fleet has 1 to {MOST_SHARDS}", fleet.shards)));
        }
        match fleet.jobs.iter().find(|job| !slurm::is_job(job)) {
            Some(job) => Err(wrong(&format!("{job:?} is not the id of a job"))),
            None => Ok(fleet),
        }
    }

    /// Whether a folder is that of a fleet.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(RECORD).exists()
    }

    /// Writes the record, whole or not at all.
    pub fn write(&self, folder: &Path) -> Result<(), Fault> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| Fault::failed(format!("cannot encode {RECORD}: {e}")))?;
        write(&folder.join(RECORD), text.as_bytes())
    }

    /// Seed of a shard: TOML has no larger numbers than 2^63.
    pub fn seed(&self, shard: u32) -> u64 {
        self.seed.wrapping_add(shard.into()) & i64::MAX as u64
    }
}

fn unreadable(name: &str, why: &dyn Display) -> Fault {
    Fault::storage(format!("cannot read {name}: {why}"))
        .remedy("name the folder of a fleet, which `bytepath fleet submit` makes")
}

/// Name of a shard, and of its folder.
pub(super) fn name(shard: u32) -> String {
    format!("shard-{shard}")
}

/// Progress of a shard's study; `None` if it was not begun.
pub(super) fn reached(folder: &Path, shard: u32) -> Result<Option<Progress>, Fault> {
    let folder = folder.join(name(shard));
    is_begun(&folder).then(|| Ok(Progress::of(&load(&folder)?))).transpose()
}

/// Moves away what a shard has measured on another pair of hosts.
pub(super) fn set_aside(folder: &Path, shard: u32) -> Result<PathBuf, Fault> {
    let from = folder.join(name(shard));
    let free = (1u32..).map(|n| folder.join(format!("{}.{n}", name(shard))));
    let to = free.into_iter().find(|to| !to.exists()).unwrap_or_else(|| from.clone());
    fs::rename(&from, &to).map_err(|e| storage("rename", &from, &e))?;
    Ok(to)
}

/// What a shard has measured: its study, and those of pairs that it had before, each with its
/// name.
pub(super) fn studies(folder: &Path, shard: u32) -> Vec<(String, PathBuf)> {
    let earlier = (1u32..).map(|n| format!("{}.{n}", name(shard)));
    let earlier = earlier.take_while(|name| folder.join(name).exists());
    let all = std::iter::once(name(shard)).chain(earlier);
    let all = all.map(|name| (name.clone(), folder.join(name)));
    all.filter(|(_, folder)| is_begun(folder)).collect()
}

/// Writes a file, whole or not at all.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<(), Fault> {
    let written =
        Folder::parent_folder(path).and_then(|(folder, name)| folder.replace_shared(name, content));
    written.map_err(|e| storage("write", path, &e))
}

/// A shard of a fleet as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
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
    fn of(task: Option<&Task>, reached: Option<&Progress>, submitted: bool) -> ShardState {
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
        let pending = task.as_ref().filter(|task| task.state == "PENDING");
        let placed = task.as_ref().filter(|task| !task.nodes.is_empty());
        Ok(Shard {
            shard,
            state,
            reason: pending.map(|task| task.reason.clone()),
            nodes: placed.map(|task| task.nodes.clone()),
            slurm_state: task.map(|task| task.state),
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
            Some(Progress { ended, missing: left, .. }) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!Fleet::is_in(folder.path()));
        assert!(Fleet::read(folder.path()).unwrap_err().to_string().contains("fleet submit"));
        let address = "10.0.0.1".parse().unwrap();
        let mut fleet = Fleet::new(3, 20, u64::MAX >> 1, [("n1".to_owned(), address)].into());
        fleet.jobs.push("12".into());
        fleet.write(folder.path()).unwrap();
        assert_eq!(Fleet::read(folder.path()).unwrap(), fleet);
        assert_eq!((fleet.seed(0), fleet.seed(1)), (u64::MAX >> 1, 0), "it stays a TOML number");
        let refused = |change: fn(&mut Fleet)| {
            let mut fleet = fleet.clone();
            change(&mut fleet);
            fleet.write(folder.path()).unwrap();
            Fleet::read(folder.path()).unwrap_err().to_string()
        };
        assert!(refused(|fleet| fleet.schema += 1).contains("schema 2"));
        let newer = refused(|fleet| (fleet.schema, fleet.shards) = (2, 5000));
        assert!(newer.contains("schema 2"), "{newer}");
        for shards in [0, u32::MAX] {
            let text = serde_json::to_string(&Fleet { shards, ..fleet.clone() }).unwrap();
            let fault = Fleet::parse("fleet.json", text.as_bytes()).unwrap_err();
            assert!(fault.to_string().contains("has 1 to 1001"), "{fault}");
        }
        assert!(refused(|fleet| fleet.shards = 1002).contains("has 1 to 1001"));
        assert!(refused(|fleet| fleet.jobs.push("7 --me".into())).contains("\"7 --me\" is not"));
    }

    #[test]
    fn keeps_the_study_of_another_pair_beside_the_shard() {
        let folder = tempfile::tempdir().unwrap();
        let begin = || {
            fs::create_dir(folder.path().join("shard-0")).unwrap();
            fs::write(folder.path().join("shard-0/trials.jsonl"), "").unwrap();
        };
        for expected in ["shard-0.1", "shard-0.2"] {
            begin();
            assert_eq!(set_aside(folder.path(), 0).unwrap(), folder.path().join(expected));
        }
        begin();
        let names: Vec<String> = studies(folder.path(), 0).into_iter().map(|(n, _)| n).collect();
        assert_eq!(names, ["shard-0", "shard-0.1", "shard-0.2"]);
        assert_eq!(studies(folder.path(), 1), []);
    }
}
