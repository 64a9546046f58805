//! Many connections of a TCP stack in this process, as client and as server, against an event loop
//! over the kernel's TCP and against itself.

use crate::running::said;
use crate::testbed::unavailable;
use bytepath::record::{Role, Scope, Trial, TrialStatus};
use bytepath::study::load;
use bytepath_testing::shared;
use std::process::Command;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.args(["run", "--blocks=1", "--warm-up=100ms", "--window=300ms", "--design=trials"]);
    command.args(["--meters=none", "--profile=none", "--cores=unpinned"]).args(arguments);
    command
}

/// Runs a path and its copy over this many connections, and checks that both ends agree.
fn run(path: &str, flows: u32, arguments: &[&str]) -> Trial {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let flows_of = format!("--stream=flows={flows}");
    let mut command = command(arguments);
    let (code, _, stderr) = said(command.args(["--path", path, &flows_of, "--study"]).arg(&out));
    assert_eq!(code, 0, "{path} {arguments:?}: {stderr}");
    let study = load(&out).unwrap();
    for trial in &study.trials {
        assert_eq!(trial.status, TrialStatus::Measured, "{path} {arguments:?}");
        assert_eq!(trial.label, "copied", "{path} {arguments:?}");
        let [sender, receiver] = trial.roles.as_slice() else { panic!("two roles") };
        assert_eq!(sender.total_bytes, receiver.total_bytes, "{path} {arguments:?}");
        assert!(trial.count > 0, "{path} {arguments:?}: nothing moved");
        for role in Role::ALL {
            let connections = trial.reading("loop.connections", &Scope::Role(role));
            assert_eq!(connections, Some(f64::from(flows)), "{path} {arguments:?}");
        }
    }
    study.trials[0].clone()
}

const ENDS: [&str; 3] =
    ["epoll+userspace-loop", "userspace-loop+epoll", "userspace-loop+userspace-loop"];

#[test]
fn requests_over_many_connections_are_answered() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    for path in ENDS {
        for workload in ["rr", "rr:request=100,response=30000,outstanding=2", "rr:think=20ms"] {
            let trial = run(path, 64, &["--workload", workload]);
            assert_eq!(trial.latency.as_ref().unwrap().count(), trial.count, "{path} {workload}");
        }
        run(path, 64, &["--workload=rr:rate=2000"]);
        run(path, 64, &["--workload=rr:incast=on,response=4K"]);
        run(path, 1, &["--workload=rr"]);
    }
    // With a thread for each connection at the other end.
    run_with_threads();
}

fn run_with_threads() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut command = command(&["--workload=rr", "--path=socket+userspace-loop"]);
    let (code, _, stderr) = said(command.args(["--stream=flows=8", "--study"]).arg(&out));
    assert_eq!(code, 0, "{stderr}");
    assert!(load(&out).unwrap().trials.iter().all(|trial| trial.count > 0));
}

#[test]
fn streams_over_many_connections_are_whole() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    for path in ENDS {
        for workload in ["stream", "stream:direction=both"] {
            run(path, 64, &["--workload", workload]);
            run(path, 1, &["--workload", workload]);
        }
    }
}

/// The most connections that a stack may have.
#[test]
fn a_stack_has_a_thousand_connections() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    for path in ENDS {
        let trial = run(path, 1024, &["--workload=rr"]);
        for role in Role::ALL {
            let memory = trial.reading("loop.memory", &Scope::Role(role)).unwrap() / 1024.0;
            // A connection's buffers are in the kernel, or in the program.
            let half = path.split('+').nth(role as usize).unwrap();
            let least = if half.starts_with("userspace-loop") { 32e3 } else { 32.0 };
            assert!((least..200e3).contains(&memory), "{path} {role}: {memory} bytes each");
        }
    }
}

#[test]
fn what_is_lost_is_sent_again_on_every_connection() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    for path in ["epoll+userspace-loop:loss=20", "userspace-loop:loss=20+epoll"] {
        for workload in ["rr", "stream"] {
            let trial = run(path, 16, &["--workload", workload]);
            let notes: Vec<_> = trial.roles.iter().flat_map(|role| &role.notes).collect();
            let lost = |note: &&&String| note.contains("dropped or reordered on purpose");
            assert_eq!(notes.iter().filter(lost).count(), 1, "{path} {workload}: {notes:?}");
        }
    }
}

#[test]
fn refuses_by_name_what_one_stack_cannot() {
    if unavailable() {
        return;
    }
    for (path, arguments, words) in [
        (
            "epoll+userspace-loop:threads=2",
            ["--workload=rr", "--stream=flows=4"],
            "one thread polls",
        ),
        ("epoll+userspace-loop", ["--workload=crr", "--stream=flows=4"], "are made once"),
        ("userspace-loop+epoll", ["--workload=crr", "--stream=flows=4"], "are made once"),
        (
            "userspace-loop+epoll",
            ["--workload=rr", "--stream=flows=1025"],
            "at most 1024 connections",
        ),
        (
            "userspace-loop+epoll",
            ["--workload=rr", "--stream=flows=1024,send-buffer=16M"],
            "more than 2 GiB",
        ),
        ("userspace-loop+epoll", ["--workload=packets", "--stream=flows=1"], "event loop"),
        ("userspace-loop+epoll", ["--workload=rr", "--stream=touch=verify"], "touch=none"),
    ] {
        let out = tempfile::tempdir().unwrap();
        let mut command = command(&arguments);
        let (code, _, stderr) =
            said(command.args(["--path", path, "--study"]).arg(out.path().join("study")));
        assert_ne!(code, 0, "{path} {arguments:?}");
        assert!(stderr.contains(words), "{path} {arguments:?}: {stderr}");
    }
}
