//! `bytepath fleet` with made-up programs in Slurm's place: how they are called, and how their
//! replies are used. `tests/lab/slurm.rs` runs the real ones.

use crate::made_up;
use crate::schema::assert_fits;
use crate::shared::said;

use assert_cmd::Command;
use bytepath::fleet::slurm;
use bytepath::spec::parse_testbed;
use bytepath::study::{StudyWriter, load, testbed_spec};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder with an `sbatch` that writes down its arguments and a `squeue` that prints a file.
struct Cluster {
    folder: TempDir,
}

impl Cluster {
    fn new() -> Cluster {
        let cluster = Cluster { folder: TempDir::new().unwrap() };
        cluster.program("sbatch", "printf '%s\\n' \"$@\" > \"$0.words\"; echo '7;made-up'");
        cluster.program("squeue", "cat \"$0.says\"");
        cluster.queue("");
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    fn queue(&self, says: &str) {
        fs::write(self.path("squeue.says"), says).unwrap();
    }

    fn words(&self) -> Vec<String> {
        let words = fs::read_to_string(self.path("sbatch.words")).unwrap();
        words.lines().map(str::to_owned).collect()
    }

    fn bytepath(&self, words: &[&str]) -> (i32, String, String) {
        said(self.command().args(words))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        command.env("PATH", format!("{}:/usr/bin:/bin", self.folder.path().display()));
        command
    }
}

fn write(folder: &Path, blocks: u32) {
    write_of(folder, blocks, "hosts");
}

fn write_of(folder: &Path, blocks: u32, testbed: &str) {
    let mut study = made_up::study();
    study.header.testbed = testbed.to_owned();
    let mut writer = StudyWriter::create(folder, &study.header).unwrap();
    let trials: Vec<_> = study.trials.into_iter().filter(|trial| trial.block < blocks).collect();
    writer.append(&trials).unwrap();
}

#[test]
fn a_fleet_is_submitted_shown_submitted_again_and_collected() {
    let cluster = Cluster::new();
    let experiment = cluster.path("x.toml");
    fs::write(&experiment, "blocks = 3\nseed = 5\n[factors]\npath = 'socket'\n").unwrap();
    let (experiment, folder) = (experiment.to_str().unwrap(), cluster.path("fleet"));
    let fleet = folder.to_str().unwrap();
    let submit = ["fleet", "submit", experiment, fleet, "--shards", "3"];
    let more = ["--partition", "p", "--sbatch=--time=30", "--addresses", "n1=10.1.1.1"];
    let (code, text, errors) = cluster.bytepath(&[&submit[..], &more].concat());
    assert_eq!(code, 0, "{errors}");
    assert!(text.starts_with("job 7: 3 shards of 6 trials"), "{text}");
    let words = cluster.words();
    for word in ["--array=0,1,2", "--nodes=2", "--exclusive", "--requeue", "--partition=p"] {
        assert!(words.iter().any(|w| w == word), "{word}: {words:?}");
    }
    assert_eq!(words[words.len() - 2], "--time=30");
    assert!(words[words.len() - 1].ends_with("/fleet/job.sh"), "{words:?}");
    let text = fs::read_to_string(folder.join("experiment.toml")).unwrap();
    assert!(text.starts_with("blocks = 3"), "{text}");
    assert!(fs::read_to_string(folder.join("job.sh")).unwrap().starts_with("#!/bin/sh\n"));
    let mode = fs::metadata(folder.join("bytepath")).unwrap().permissions().mode();
    assert!(mode & 0o100 != 0, "{mode:o}");

    // One is complete, one is running, one is pending.
    write(&folder.join("shard-0"), 5);
    write(&folder.join("shard-1"), 2);
    cluster.queue("1|RUNNING|n[0-1]|None\n2|PENDING||Resources\n");
    let status = || cluster.bytepath(&["fleet", "status", fleet]);
    let (code, text, errors) = status();
    assert_eq!(code, 125, "{text}{errors}");
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines[1][..4], ["0", "complete", "-", "35/35"], "{text}");
    let (_, json, _) = cluster.bytepath(&["fleet", "status", fleet, "--json"]);
    assert_fits("fleet", &serde_json::from_str(&json).unwrap());
    assert_eq!(lines[2][..4], ["1", "running", "n[0-1]", "14/35"], "{text}");
    assert_eq!(lines[3], ["2", "pending", "-", "0/6", "-", "Resources"], "{text}");
    let (code, _, errors) = cluster.bytepath(&submit);
    assert_eq!(code, 2, "{errors}");

    // The job ended before its studies did, and Slurm has forgotten part of it.
    cluster.queue("2|NODE_FAIL|n0,n2|None\n");
    let (code, text, _) = status();
    assert!(code == 5 && text.contains("lost: node_fail") && text.contains("1  lost "), "{text}");
    cluster.program("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
    assert_eq!(status().0, 5);
    let (code, text, errors) = cluster.bytepath(&submit);
    assert!(code == 0 && text.starts_with("job 7: 2 shards"), "{text}{errors}");
    assert!(cluster.words().contains(&"--array=1,2".to_owned()), "{:?}", cluster.words());
    let other = [&submit[..5], &["4"]].concat();
    let (code, _, errors) = cluster.bytepath(&other);
    assert!(code == 2 && errors.contains("already holds a different fleet"), "{errors}");

    let (code, _, errors) = cluster.bytepath(&["fleet", "collect", fleet]);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("shard-1 has 14 of 35 trials; shard-2 has not started"), "{errors}");
    // Earlier trials of a shard on another pair count as a separate pair.
    write(&folder.join("shard-0.1"), 1);
    let (code, text, errors) = cluster.bytepath(&["fleet", "collect", fleet, "--partial"]);
    assert!(code == 0 && errors.contains("left out: shard-2 has not started"), "{text}{errors}");
    let study = load(&folder.join("study")).unwrap();
    assert_eq!(study.header.schedule.blocks, 6);
    let of = |pair| study.trials.iter().filter(|t| t.pair.as_deref() == Some(pair)).count();
    assert_eq!((of("shard-0"), of("shard-0.1"), of("shard-1")), (37, 9, 0));
}

#[test]
fn a_shard_continues_on_its_own_nodes_and_begins_again_on_others() {
    let cluster = Cluster::new();
    let addresses = "case $3 in n0) echo NodeAddr=10.9.0.1;; *) echo NodeAddr=10.9.0.2;; esac";
    let names = format!("case $2 in hostnames) echo n0; echo n1;; *) {addresses};; esac");
    cluster.program("scontrol", &names);
    cluster.program("srun", "echo 'made-up: no step' >&2; exit 1");
    let experiment = cluster.path("x.toml");
    fs::write(&experiment, "[factors]\npath = 'socket'\n").unwrap();
    let (experiment, folder) = (experiment.to_str().unwrap(), cluster.path("fleet"));
    let fleet = folder.to_str().unwrap();
    let submit = ["fleet", "submit", experiment, fleet, "--shards", "1"];
    assert_eq!(cluster.bytepath(&submit).0, 0);
    let shard = || {
        let mut command = cluster.command();
        command.env("SLURM_ARRAY_TASK_ID", "0").env("SLURM_JOB_NODELIST", "n[0-1]");
        said(command.current_dir(&folder).args(["fleet", "shard"]))
    };
    let is_there = |name: &str| folder.join(name).join("trials.jsonl").exists();

    write_of(&folder.join("shard-0"), 2, "hosts:receiver=ssh://another");
    let (code, _, errors) = shard();
    assert!(code != 0 && errors.contains("shard-0 on n0 and n1"), "{errors}");
    assert!(errors.contains("the nodes differ from before"), "{errors}");
    assert!(errors.contains("made-up: no step"), "it was begun again: {errors}");
    assert!(is_there("shard-0.1") && !is_there("shard-0"));

    let nodes = ["n0", "n1"].map(str::to_owned);
    let testbed = slurm::testbed(&nodes, ["10.9.0.1", "10.9.0.2"].map(|a| a.parse().unwrap()));
    let declared = testbed_spec(bytepath::testbed::CATALOG);
    let testbed = parse_testbed(&testbed, &declared).unwrap().text;
    write_of(&folder.join("shard-0"), 2, &testbed);
    let (code, _, errors) = shard();
    assert!(code != 0 && errors.contains("made-up: no step"), "it goes on: {errors}");
    assert!(is_there("shard-0") && !is_there("shard-0.2"), "{errors}");

    fs::remove_dir_all(folder.join("shard-0")).unwrap();
    write(&folder.join("shard-0"), 5);
    let (code, _, errors) = shard();
    assert_eq!(code, 0, "it is complete: {errors}");
}

#[test]
fn what_cannot_become_a_fleet_is_refused_before_anything_is_submitted() {
    let cluster = Cluster::new();
    let experiment = cluster.path("x.toml");
    let (name, out) = (experiment.to_str().unwrap(), cluster.path("out"));
    let submit = |text: &str, more: &[&str]| {
        fs::write(&experiment, text).unwrap();
        let words = ["fleet", "submit", name, out.to_str().unwrap(), "--shards", "2"];
        let (code, _, errors) = cluster.bytepath(&[&words[..], more].concat());
        assert!(!cluster.path("sbatch.words").exists());
        (code, errors)
    };
    let good = "[factors]\npath = 'socket'\n";
    let (code, errors) = submit("[factors]\npath = 'sockte'\n", &[]);
    assert!(code == 2 && errors.contains("did you mean 'socket'?"), "{errors}");
    let stop = format!("stop = {{ within = '1%', at-least = 2 }}\n{good}");
    let (code, errors) = submit(&stop, &[]);
    assert!(code == 2 && errors.contains("stop early"), "{errors}");
    assert_eq!(submit(good, &["--addresses", "n1:10.0.0.1"]).0, 2);
    fs::create_dir_all(out.join("something")).unwrap();
    let (code, errors) = submit(good, &[]);
    assert!(code == 6 && errors.contains("is not empty"), "{errors}");
    let (code, _, errors) = cluster.bytepath(&["fleet", "status", out.to_str().unwrap()]);
    assert!(code == 6 && errors.contains("the folder of a fleet"), "{errors}");
    let (code, _, errors) = cluster.bytepath(&["fleet", "shard"]);
    assert_ne!(code, 0, "{errors}");
}
