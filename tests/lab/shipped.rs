//! The shipped experiments: each runs, and which of its cells cannot run is known before.

use crate::threads::Silent;
use bytepath::record::{Cell, Design, OptionValue, Study, Trial, TrialStatus};
use bytepath::study::{Laboratory, Plan, RunRequest, run_study};
use bytepath_testing::{shared, skip};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Number of cells tried of an experiment: those that cover most levels of its factors.
const TRIED: usize = 3;

/// Experiments that `experiments.rs` runs in full.
const WHOLE: &[&str] = &["battle-quick", "gro", "null", "one-core-two-cores"];

/// Experiments whose cells that cannot run are compared with those that a dry run finds: their
/// links are made quickly.
const COMPARED: &[&str] = &["battle", "battle-huge-pages", "tap", "tls"];

/// Largest message or read in bytes: few larger ones fit into a short window.
const LARGEST: u64 = 256 << 10;

/// Reasons for which cells cannot run on a machine without hardware NICs, DSA, GPU, the modules
/// pktgen and sch_netem or many CPUs, or as a plain user.
const KNOWN: &[&str] = &[
    "'s CPU ",
    "softirqs",
    "no hardware GRO",
    "memory-provider queues",
    "/dev/udmabuf",
    "no driver of the link's device",
    "there is no work queue",
    "/proc/net/pktgen",
    "the queueing discipline netem",
    "no TLS for sockets",
];

#[test]
fn every_shipped_experiment_measures_or_refuses_its_cells() {
    let _shared = shared();
    let dir = tempfile::tempdir().unwrap();
    let (mut moved, mut measured) = (0, 0);
    for file in shipped() {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        if WHOLE.contains(&name.as_str()) {
            continue;
        }
        let request = RunRequest {
            blocks: Some(1),
            warm_up: Some(Duration::from_millis(100)),
            window: Some(Duration::from_millis(300)),
            design: Some(Design::Trials),
            profiling: Some(None),
            meters: Some(vec!["none".into()]),
            without_file_settings: true,
            ..RunRequest::of_file(file.clone(), dir.path().join(&name))
        };
        let (plan, deployment) = request.plan().unwrap();
        // Guests have their own tests.
        if deployment.testbed().properties().boots_kernels {
            continue;
        }
        let plan = Plan { cells: chosen(plan.cells, &plan.baseline.0), ..plan };
        let stop = AtomicBool::new(false);
        let laboratory = deployment.laboratory(&stop).unwrap();
        let program = env!("CARGO_BIN_EXE_bytepath").into();
        let (study, ended) = run_study(&Laboratory { program, ..laboratory }, &plan, &mut Silent);
        let Some(study) = study else {
            let fault = ended.unwrap_err();
            assert!(is_known(&fault.message) && fault.remedy.is_some(), "{name}: {fault}");
            continue;
        };
        ended.unwrap();
        moved += usize::from(study.trials.iter().any(|trial| trial.count > 0));
        if COMPARED.contains(&name.as_str()) {
            let (_, mut found) = by_dry_run(file.to_str().unwrap());
            found.retain(|cell, _| plan.cells.iter().any(|one| one.id.0 == *cell));
            assert_eq!(unavailable(&study), found, "{name}");
        }
        assert_eq!(study.trials.len(), plan.cells.len(), "{name}: a row for every cell");
        for trial in &study.trials {
            match &trial.status {
                TrialStatus::Measured => measured += 1,
                // A busy machine may reject it.
                TrialStatus::Rejected { .. } => {}
                // Threads that share a CPU with others may not run within a window this short. To
                // rule out that the path moves nothing at all, another cell must have moved
                // something.
                TrialStatus::Failed { fault }
                    if fault.message.ends_with("nothing moved")
                        && study.trials.iter().any(|trial| trial.count > 0) => {}
                TrialStatus::Unavailable { reason, remedy } => {
                    assert!(is_known(reason) && !remedy.is_empty(), "{name}: {reason}");
                }
                other => panic!("{name}: {}: {other:?}", trial.cell),
            }
        }
    }
    assert!(moved > 0, "no experiment moved a byte");
    if measured == 0 {
        skip!("this machine is busy: every trial was rejected");
    }
}

/// Cells that could not run in a study, with the reasons.
fn unavailable(study: &Study) -> BTreeMap<String, String> {
    let reason = |trial: &Trial| match &trial.status {
        TrialStatus::Unavailable { reason, .. } => Some((trial.cell.0.clone(), reason.clone())),
        _ => None,
    };
    study.trials.iter().filter_map(reason).collect()
}

/// Cells of a file that cannot run according to a dry run, with the reasons.
fn by_dry_run(file: &str) -> Found {
    let dry = ["run", file, "--dry-run", "--json"];
    found(&dry, "unable", "cell", |one| &one["fault"]["message"])
}

fn is_known(reason: &str) -> bool {
    KNOWN.iter().any(|known| reason.contains(known))
}

/// The baseline, and those of the other cells that are the first to have a level of a factor, with
/// their work reduced; none whose rate would have to be found before.
fn chosen(cells: Vec<Cell>, baseline: &str) -> Vec<Cell> {
    let (mut seen, mut tried) = (BTreeSet::new(), 0);
    let mut is_chosen = |cell: &Cell| {
        let levels: Vec<_> = cell.levels.clone().into_iter().collect();
        let is_new = levels.iter().any(|level| !seen.contains(level)) && tried < TRIED;
        let is_base = cell.id.0 == baseline;
        let is_chosen = is_base || is_new && !cell.null && cell.part_of_peak().is_none();
        if is_chosen {
            tried += usize::from(!is_base);
            seen.extend(levels);
        }
        is_chosen
    };
    let few = |mut cell: Cell| {
        if let Some(OptionValue::Number(count)) = cell.workload.options.0.get_mut("count") {
            *count = 10_000;
        }
        let sizes = [&mut cell.stream.message_size, &mut cell.stream.read_size];
        sizes.into_iter().for_each(|size| *size = LARGEST.min(*size));
        cell
    };
    cells.into_iter().filter(|cell| is_chosen(cell)).map(few).collect()
}

/// What a command found out about the cells of an experiment: its exit code, and the cells that
/// cannot run, with their reasons.
type Found = (Option<i32>, BTreeMap<String, String>);

/// The doctor and a dry run name the same cells for the same reasons, with the same exit code, no
/// matter where the experiment is to run; nothing is booted here.
#[test]
fn doctor_and_dry_run_agree_on_every_shipped_experiment() {
    let _shared = shared();
    let missing = "ports:sender=none0,receiver=none1";
    let mut asked: Vec<(PathBuf, Option<&str>)> = Vec::new();
    for file in shipped() {
        let text = std::fs::read_to_string(&file).unwrap();
        if !text.contains("testbed = \"vm") {
            asked.push((file.clone(), None));
        }
        if file.ends_with("battle.toml") || file.ends_with("tap-of-guest.toml") {
            let beds = [missing, "hosts", "vm:guests=2,host=sender", "vm:nic=zcnic,guests=2"];
            asked.extend(beds.map(|bed| (file.clone(), Some(bed))));
        }
    }
    let queue = Mutex::new(asked.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((file, bed)) = next() {
                    agree(&file, bed);
                }
            });
        }
    });
}

fn agree(file: &Path, bed: Option<&str>) {
    let file = file.to_str().unwrap();
    let bed: Vec<&str> = bed.map_or_else(Vec::new, |bed| vec!["--testbed", bed]);
    let doctor = [&["doctor", "--experiment", file, "--json"], &bed[..]].concat();
    let dry = [&["run", file, "--dry-run", "--json"], &bed[..]].concat();
    let doctor = found(&doctor, "cells", "name", |one| &one["reason"]);
    let dry = found(&dry, "unable", "cell", |one| &one["fault"]["message"]);
    assert_eq!(doctor, dry, "{file} {bed:?}");
}

fn found(words: &[&str], list: &str, name: &str, reason: fn(&Value) -> &Value) -> Found {
    let output = Command::new(env!("CARGO_BIN_EXE_bytepath")).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 2 | 3 | 5)), "{words:?}: {code:?}: {said}");
    // A refused experiment prints nothing.
    let json = serde_json::from_slice(&output.stdout);
    let json: Value = match code {
        Some(0) => json.unwrap_or_else(|e| panic!("{words:?}: {e}: {said}")),
        _ => json.unwrap_or_default(),
    };
    assert!(code != Some(0) || json[list].is_array(), "{words:?}: no list '{list}'");
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let cells = json[list].as_array().into_iter().flatten();
    (code, cells.map(|one| (word(&one[name]), word(reason(one)))).collect())
}

/// A workload that ends by a count has no known duration.
#[test]
fn the_time_of_a_count_is_not_known() {
    let _shared = shared();
    let plan = |workload: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        command.args(["run", "--dry-run", "--json", "--blocks", "1", "--path", "packet+packet"]);
        let output = command.args(["--workload", workload]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let counted = plan("packets:count=1000");
    assert!(counted["seconds"].is_null() && counted["seconds_per_trial"].is_null(), "{counted}");
    assert!(plan("packets")["seconds"].as_f64().is_some());
}

fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
    files.sort();
    files
}
