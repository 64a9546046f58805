//! A fleet on a real Slurm of two nodes, which `tools/slurm` starts in its own namespaces and which
//! ends with the test. `docs/guide/fleet.md` shows the same by hand.

use crate::isolated::{isolated_by, text};
use crate::places::{assert_shaped_like_embedded, ran};
use crate::running::await_that;
use bytepath::record::{Fault, FaultKind, Role, Scope, TrialStatus};
use bytepath::study::load;
use bytepath_testing::{shared, skip};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Programs that `tools/slurm` starts.
const PROGRAMS: [&str; 5] = ["ip", "munged", "sbatch", "slurmctld", "slurmd"];

const EXPERIMENT: &str = "\
    title = 'A short fleet'\n\
    blocks = 2\n\
    warm-up = '500ms'\n\
    window = '200ms'\n\
    design = 'trials'\n\
    seed = 7\n\
    [factors]\n\
    path = ['socket', 'sendfile']\n\
    cores = 'unpinned'\n";

#[test]
fn a_fleet_runs_on_slurm_and_a_shard_that_is_requeued_continues() {
    let there = |folder: &str, name: &str| Path::new(folder).join(name).exists();
    let missing = |name: &&&str| !["/usr/bin", "/usr/sbin"].iter().any(|at| there(at, name));
    if let Some(name) = PROGRAMS.iter().find(missing) {
        return skip!("no {name}; `make tools-fleet` installs it");
    }
    let _shared = shared();
    let slurm = concat!(env!("CARGO_MANIFEST_DIR"), "/tools/slurm");
    let namespaces = ["--net", "--mount", "--pid", "--mount-proc", "--fork"];
    isolated_by(&mut Command::new(slurm), &namespaces, module_path!(), "inside_a_fleet_runs");
}

#[test]
#[ignore = "started in namespaces by a_fleet_runs_on_slurm_and_a_shard_that_is_requeued_continues"]
fn inside_a_fleet_runs() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = dir.path().join("short.toml");
    fs::write(&experiment, EXPERIMENT).unwrap();
    let (experiment, fleet) = (experiment.to_str().unwrap(), dir.path().join("fleet"));
    let folder = fleet.to_str().unwrap();

    let words = ["fleet", "submit", experiment, folder, "--shards", "2", "--partition", "main"];
    let submitted = bytepath(&words);
    assert!(submitted.status.success(), "{}", text(&submitted));
    let printed = text(&submitted);
    println!("{printed}");
    let job = printed.strip_prefix("job ").and_then(|rest| rest.split(':').next()).unwrap();

    // One shard is removed from its nodes while it runs, as by a preemption, and continues by
    // itself. The other one is cancelled, and continues when it is submitted again.
    let read = |name: &str| fs::read_to_string(fleet.join(name)).unwrap_or_default();
    let logs = || ["shard-0.log", "shard-1.log"].map(read).concat();
    let begun = |shard: &str| read(&format!("{shard}/trials.jsonl")).lines().count() > 0;
    await_that("the first trial of shard 0", || begun("shard-0"));
    ok("scontrol", &["requeue", &format!("{job}_0")]);
    await_that("the first trial of shard 1", || begun("shard-1"));
    ok("scancel", &[&format!("{job}_1")]);
    let follow = ["120", env!("CARGO_BIN_EXE_bytepath"), "fleet", "status", folder, "--follow"];
    let followed = said("timeout", &follow);
    println!("{}", text(&followed));
    assert_eq!(followed.status.code(), Some(5), "{}{}", text(&followed), logs());
    assert!(text(&followed).contains("lost: cancelled"), "{}", text(&followed));
    let status = bytepath(&["fleet", "status", folder, "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let states = [0, 1].map(|shard| shown["shards"][shard]["state"].clone());
    assert_eq!((states, status.status.code()), (["complete", "lost"].map(Into::into), Some(5)));
    let refused = bytepath(&["fleet", "collect", folder]);
    assert!(text(&refused).contains("shard-1 has "), "{}", text(&refused));

    let again = bytepath(&words);
    assert!(text(&again).contains(": 1 shard of 6 trials"), "{}", text(&again));
    let followed = said("timeout", &follow);
    assert!(followed.status.success(), "{}{}", text(&followed), logs());
    assert_eq!(text(&followed).matches(" complete ").count(), 2, "{}", text(&followed));

    let collected = bytepath(&["fleet", "collect", folder]);
    assert!(collected.status.success(), "{}", text(&collected));
    println!("{}", text(&collected));
    let study = load(&fleet.join("study")).unwrap();
    assert_eq!(study.trials.len(), 12, "two paths, the first one twice; two blocks; two shards");
    assert_eq!(study.header.schedule.blocks, 4);
    for trial in &study.trials {
        // On a busy machine a window may be missed, as anywhere; but no trial is lost with a shard.
        let lost = |fault: &Fault| fault.kind == FaultKind::PeerLost;
        let failed = matches!(&trial.status, TrialStatus::Failed { fault } if lost(fault));
        assert!(!failed, "{:?}: {}", trial.status, logs());
        let shard = if trial.block < 2 { "shard-0" } else { "shard-1" };
        assert_eq!(trial.pair.as_deref(), Some(shard), "block {}", trial.block);
        for role in Role::ALL.into_iter().filter(|_| ran(trial)) {
            let wall = trial.reading("cpu.wall", &Scope::MachineOf(role)).unwrap();
            assert!((0.1..5.0).contains(&wall), "{role}: {wall}");
        }
    }
    for shard in ["shard-0", "shard-1"] {
        let mut own = study.trials.iter().filter(|trial| trial.pair.as_deref() == Some(shard));
        assert!(own.any(|trial| ran(trial) && trial.count > 0), "{}", logs());
        let resumed = format!("{shard}: interrupted and resumed after ");
        assert!(study.remarks.iter().any(|r| r.starts_with(&resumed)), "{:?}", study.remarks);
    }
    let near = dir.path().join("embedded");
    let embedded = bytepath(&["run", experiment, "--study", near.to_str().unwrap()]);
    // A busy machine may leave nothing to compare.
    assert!(matches!(embedded.status.code(), Some(0 | 5)), "{}", text(&embedded));
    assert_shaped_like_embedded(&study, &load(&near).unwrap());
    let report = bytepath(&["show", fleet.join("study").to_str().unwrap(), "--details"]);
    assert!(report.status.success(), "{}", text(&report));

    // No agent outlives its trial, even if its srun was killed.
    await_that("every agent has ended", || programs_running().is_empty());
    // Everything is complete: nothing is left to submit.
    let again = bytepath(&words);
    assert!(text(&again).contains("is complete, waiting or running"), "{}", text(&again));
}

/// Processes of this namespace that run bytepath.
fn programs_running() -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let words = all.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    let words = words.map(|words| words.replace('\0', " "));
    words.filter(|words| words.split(' ').next().is_some_and(|w| w.ends_with("bytepath"))).collect()
}

fn bytepath(words: &[&str]) -> Output {
    said(env!("CARGO_BIN_EXE_bytepath"), words)
}

fn ok(program: &str, words: &[&str]) {
    let output = said(program, words);
    assert!(output.status.success(), "{}", text(&output));
}

fn said(program: &str, words: &[&str]) -> Output {
    Command::new(program).args(words).output().unwrap()
}
