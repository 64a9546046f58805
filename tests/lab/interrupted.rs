//! The processes of a study are stopped for a while, or their threads are moved: recorded events,
//! for which a trial does not count.

use crate::running::{Running, children_of, tasks_of};
use bytepath::record::{Study, TrialStatus};
use bytepath::study::load;
use bytepath::sys::thread::allowed;
use bytepath_testing::{shared, skip};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Longer than the shortest recorded pause, and short compared with a window.
const PAUSE: Duration = Duration::from_millis(400);
const BETWEEN: Duration = Duration::from_millis(300);

#[test]
fn a_trial_in_which_the_processes_were_stopped_does_not_count() {
    let _share = shared();
    let stopped_again_and_again = |study: &Running| {
        let group = Pid::from_raw(study.0.id() as i32).unwrap();
        // ESRCH: the group has ended.
        let _ = kill_process_group(group, Signal::STOP);
        sleep(PAUSE);
        let _ = kill_process_group(group, Signal::CONT);
        sleep(BETWEEN);
    };
    const EVENT: &str = "process was kept from running for";
    let whole = study(&["--design", "trials", "--meters", "none"], stopped_again_and_again);
    for trial in &whole.trials {
        assert!(is_rejected_for(&trial.status, EVENT), "{:?}", trial.status);
    }
    // A pause falls into a slice of one cell, or of the other.
    let sliced = study(&["--design", "slices"], stopped_again_and_again);
    let mut states = sliced.trials.iter().map(|trial| &trial.status);
    assert!(states.any(|status| is_rejected_for(status, EVENT)), "{:?}", sliced.trials);
}

#[test]
fn a_trial_whose_threads_were_moved_does_not_count() {
    let _share = shared();
    let cpus = allowed().unwrap();
    if cpus.len() < 2 {
        return skip!("a thread cannot be moved on one CPU");
    }
    let mut anywhere = CpuSet::new();
    cpus.iter().for_each(|cpu| anywhere.set(*cpu as usize));
    let moved = study(&["--design", "trials"], |study| {
        for tid in threads_of_roles(study.0.id()) {
            let _ = sched_setaffinity(Pid::from_raw(tid), &anywhere);
        }
        sleep(Duration::from_millis(50));
    });
    for trial in &moved.trials {
        let event = "may run on other CPUs than they were pinned to";
        assert!(is_rejected_for(&trial.status, event), "{:?}", trial.status);
    }
}

/// Runs a short study while `again_and_again` is done to its processes.
fn study(words: &[&str], again_and_again: impl Fn(&Running)) -> Study {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.args(["run", "--path", "socket", "--warm-up", "0", "--profile", "none"]);
    command.args(["--blocks", "1", "--window", "1500ms", "--study"]).arg(&out).args(words);
    let mut running = Running::start(command.process_group(0));
    while running.0.try_wait().unwrap().is_none() {
        again_and_again(&running);
    }
    let (_, printed) = running.end();
    let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {printed}"));
    assert!(!study.trials.is_empty(), "{printed}");
    study
}

fn is_rejected_for(status: &TrialStatus, text: &str) -> bool {
    let TrialStatus::Rejected { events } = status else { return false };
    events.iter().any(|event| event.contains(text))
}

/// Threads of senders and receivers among the children of a process.
fn threads_of_roles(pid: u32) -> Vec<i32> {
    let tasks = children_of(pid).into_iter().flat_map(tasks_of);
    let of_role = tasks.filter(|task| {
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        name.starts_with("sender/") || name.starts_with("receiver/")
    });
    of_role.filter_map(|task| task.file_name()?.to_str()?.parse().ok()).collect()
}
