//! One experiment on several pairs of hosts at once. Each pair runs the next block as soon as it
//! has ended one, so that none waits for another; then the studies of all pairs are merged.

use super::deployment::{Deployment, parse_testbed};
use super::request::{ExperimentRequest, RunRequest, read_text_and_stranger};
use super::trust::Acts;
use crate::{Blocks, Observer, Plan, load, merge, run_study};
use bytepath_host::spawn_scoped;
use bytepath_record::Fault;
use bytepath_spec::{Chosen, DEFAULT_BLOCKS, Inventory, parse_power, usage};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A study over pairs of hosts that was not started yet.
pub struct PairedStudy {
    pairs: Vec<Pair>,
    /// Folder for the merged study.
    pub folder: PathBuf,
    /// Folder for the studies of the pairs, next to the merged one.
    pub parts: PathBuf,
    /// Trials of all pairs.
    pub trials: usize,
}

struct Pair {
    name: String,
    plan: Plan,
    deployment: Deployment,
}

impl PairedStudy {
    /// Plans a run on these pairs of an inventory.
    pub fn plan(
        request: &RunRequest,
        inventory: &Path,
        names: &[String],
    ) -> Result<PairedStudy, Fault> {
        let blocks = match request.experiment {
            // Pairs share a number of blocks; a time of each would not add up.
            ExperimentRequest::Paths(_) if request.time.is_none() => {
                request.blocks.or(Some(DEFAULT_BLOCKS))
            }
            _ => request.blocks,
        };
        let (text, stranger) = read_text_and_stranger(inventory)?;
        let file = inventory.display().to_string();
        let inventory = Inventory::parse(&file, &text)?;
        let mut pairs = Vec::new();
        for Chosen { name, testbed, power } in inventory.chosen(names)? {
            let mut acts = Acts::default();
            acts.testbed(&testbed);
            let testbed = Some(parse_testbed(&testbed)?);
            let power = match (&request.power, power) {
                (None, Some(power)) => Some(parse_power(&power)?),
                (requested, _) => requested.clone(),
            };
            power.iter().for_each(|power| acts.power(power));
            acts.check(&file, stranger.clone(), request.trusted)?;
            let (plan, deployment) =
                RunRequest { testbed, power, blocks, ..request.clone() }.plan()?;
            pairs.push(Pair { name, plan, deployment });
        }
        let Some(first) = pairs.first() else { return Err(usage("no pair is named")) };
        // Reports interpret a trial by the CPUs of its cell, and all pairs share the cells.
        if let Some(other) = pairs.iter().find(|pair| pair.plan.cells != first.plan.cells) {
            let (first, other) = (&first.name, &other.name);
            let text =
                format!("the hosts of {first} and {other} differ in the CPUs to choose from");
            return Err(usage(&text).remedy(
                "name some that all have: --cores sender=2,receiver=3; or --cores unpinned",
            ));
        }
        let (folder, schedule) = (first.plan.folder.clone(), first.plan.schedule.clone());
        if schedule.stopping.is_some() || schedule.until_sure {
            return Err(usage("a study over several pairs has a fixed number of blocks")
                .remedy("leave out the stopping rule and the time"));
        }
        let trials = schedule.blocks as usize * first.plan.cells.len();
        let mut parts = folder.file_name().unwrap_or_default().to_owned();
        parts.push("-pairs");
        let parts = folder.with_file_name(parts);
        let blocks = Arc::new(Blocks::new(schedule.blocks));
        let seeds = (0..).map(|number| schedule.seed.wrapping_add(number) & i64::MAX as u64);
        for (pair, seed) in pairs.iter_mut().zip(seeds) {
            pair.plan.schedule.seed = seed;
            pair.plan.folder = parts.join(&pair.name);
            pair.plan.shared = Some(blocks.clone());
        }
        Ok(PairedStudy { pairs, folder, parts, trials })
    }

    /// Returns the number of pairs.
    pub fn count(&self) -> usize {
        self.pairs.len()
    }

    /// Runs all pairs, each in a thread and with its own observer. Returns the faults by name of
    /// pair.
    pub fn run<O: Observer>(
        &self,
        stop: &AtomicBool,
        observer: impl Fn(&str) -> O + Sync,
    ) -> Vec<(String, Fault)> {
        let run = |pair: &Pair| {
            let laboratory = pair.deployment.laboratory(stop)?;
            run_study(&laboratory, &pair.plan, &mut observer(&pair.name)).1
        };
        let panicked = |_| Err(Fault::failed("a thread of a pair ended early"));
        let results: Vec<Result<(), Fault>> = std::thread::scope(|scope| {
            let pairs = self.pairs.iter();
            let started: Vec<_> =
                pairs.map(|pair| spawn_scoped(scope, "pair", || run(pair))).collect();
            started.into_iter().map(|thread| thread?.join().unwrap_or_else(panicked)).collect()
        });
        let named = self.pairs.iter().zip(results);
        named.filter_map(|(pair, result)| Some((pair.name.clone(), result.err()?))).collect()
    }

    /// Merges the studies of the pairs. False if no pair measured anything.
    pub fn merge(&self) -> Result<bool, Fault> {
        // A pair that never began has no folder.
        let has_trials =
            |plan: &Plan| load(&plan.folder).is_ok_and(|study| !study.trials.is_empty());
        let measured = self.pairs.iter().filter(|pair| has_trials(&pair.plan));
        let measured: Vec<(String, PathBuf)> =
            measured.map(|pair| (pair.name.clone(), pair.plan.folder.clone())).collect();
        if !measured.is_empty() {
            // Differences between the hosts are remarks of the study: each comparison is made on
            // one pair.
            merge(&measured, &self.folder, true)?;
        }
        Ok(!measured.is_empty())
    }
}
