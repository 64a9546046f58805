//! `bytepath run --pairs`: one experiment on several pairs of hosts at once. Each pair takes
//! the next block when it has ended one, so that none waits for another.

use super::bed::{Bed, choice};
use super::output::say;
use super::plan::{plan_on, read_text};
use super::progress::outcome;
use super::run::{RunArguments, own_program};
use super::show;
use super::signals::catch_signals;
use bytepath_engine::path;
use bytepath_meter as meter;
use bytepath_record::{CellId, Fault, FaultKind, StudyHeader, Trial};
use bytepath_spec::{Chosen, Inventory};
use bytepath_study::{Blocks, Laboratory, Observer, Plan, conduct, load, merge};
use bytepath_sys as sys;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Runs the blocks of an experiment over pairs of an inventory and merges them into one study.
pub(super) fn run(arguments: &RunArguments) -> Result<ExitCode, Fault> {
    let file = arguments.inventory.as_deref().unwrap_or(Path::new("hosts.toml"));
    let inventory = Inventory::parse(&file.display().to_string(), &read_text(file)?)?;
    let mut pairs = Vec::new();
    for Chosen { name, testbed, power } in inventory.chosen(&arguments.pairs)? {
        let (plan, bed) = plan_on(arguments, Some(choice(&testbed)?), power.as_deref())?;
        pairs.push(Pair { name, plan, bed });
    }
    let Some(first) = pairs.first() else {
        return Err(Fault::new(FaultKind::Usage, "no pair is named"));
    };
    // A trial is read by the CPUs of its cell, which is one for all pairs.
    if let Some(other) = pairs.iter().find(|pair| pair.plan.cells != first.plan.cells) {
        let text = format!(
            "the hosts of {} and {} differ in the CPUs to choose from",
            first.name, other.name
        );
        return Err(Fault::new(FaultKind::Usage, text)
            .remedy("name some that all have: --cores sender=2,receiver=3; or --cores unpinned"));
    }
    let (out, schedule) = (first.plan.folder.clone(), first.plan.schedule.clone());
    if schedule.stopping.is_some() || schedule.budget.is_some() {
        let text = "a study over several pairs has a fixed number of blocks";
        return Err(
            Fault::new(FaultKind::Usage, text).remedy("leave out the stopping rule and the budget")
        );
    }
    let parts = part_folder(&out);
    let blocks = Arc::new(Blocks::new(schedule.blocks));
    let seeds = (0..).map(|number| schedule.seed.wrapping_add(number) & i64::MAX as u64);
    for (pair, seed) in pairs.iter_mut().zip(seeds) {
        pair.plan.schedule.seed = seed;
        pair.plan.folder = parts.join(&pair.name);
        pair.plan.shared = Some(blocks.clone());
    }

    let stop = catch_signals()?;
    sys::process::report_file_size_limit();
    let program = own_program()?;
    let total = schedule.blocks as usize * pairs[0].plan.cells.len();
    let ended = AtomicUsize::new(0);
    let quiet = arguments.talk.quiet;
    if !quiet {
        say(format!("{total} trials over {} pairs", pairs.len()));
    }
    let results: Vec<Result<(), Fault>> = std::thread::scope(|scope| {
        let run = |pair: &Pair| {
            let laboratory = Laboratory {
                paths: path::CATALOG,
                meters: meter::CATALOG,
                testbed: pair.bed.as_ref(),
                program: program.clone(),
                stop: &stop,
            };
            let mut watcher = Watcher { pair: &pair.name, ended: &ended, total, quiet };
            conduct(&laboratory, &pair.plan, &mut watcher).1
        };
        let started: Vec<_> = pairs.iter().map(|pair| scope.spawn(move || run(pair))).collect();
        let panicked = |_| Err(Fault::new(FaultKind::System, "a thread of a pair ended early"));
        started.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });

    let (mut measured, mut printed) = (Vec::new(), Ok(()));
    let mut first_fault = Ok(());
    for (pair, result) in pairs.iter().zip(results) {
        if let Err(fault) = result {
            say(format!("{}: {fault}", pair.name));
            first_fault = first_fault.and(Err(fault));
        }
        // One that never began has no folder.
        if load(&pair.plan.folder).is_ok_and(|study| !study.trials.is_empty()) {
            measured.push((pair.name.clone(), pair.plan.folder.clone()));
        }
    }
    if !measured.is_empty() {
        // What differs between the hosts is in the study's remarks: each comparison is made
        // on one pair.
        merge(&measured, &out, true)?;
        printed = show::print(&out, &load(&out)?, &arguments.form, None);
        if !quiet {
            say(format!("study: {}\nof each pair: {}", out.display(), parts.display()));
        }
    }
    first_fault.and(printed).map(|()| ExitCode::SUCCESS)
}

struct Pair {
    name: String,
    plan: Plan,
    bed: Bed,
}

/// The folder for the studies of the pairs, next to the merged one.
fn part_folder(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push("-pairs");
    out.with_file_name(name)
}

/// Reports which pair ran what.
struct Watcher<'a> {
    pair: &'a str,
    /// Trials of all pairs that have ended.
    ended: &'a AtomicUsize,
    total: usize,
    quiet: bool,
}

impl Observer for Watcher<'_> {
    fn begins(&mut self, _: &StudyHeader, _: usize) {}

    fn trial_begins(&mut self, _: usize, _: &CellId, _: u32) {}

    fn trial_ends(&mut self, _: usize, trial: &Trial, _: Duration) {
        let number = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
        let (pair, total, cell) = (self.pair, self.total, &trial.cell);
        if !self.quiet {
            say(format!("[{number:>3}/{total}] {pair:<12} {cell:<28} {}", outcome(trial)));
        }
    }

    fn host_changed(&mut self, remark: &str) {
        say(format!("{}: {remark}", self.pair));
    }
}
