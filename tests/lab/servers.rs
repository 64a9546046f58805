//! Servers with many connections on the real testbed: ten thousand, by each event loop.

use bytepath::record::{Role, Scope, Study, ThreadTime, Trial, TrialStatus};
use bytepath::study::load;
use bytepath_testing::{shared, skip};
use std::process::Command;
use std::time::{Duration, Instant};

const CONNECTIONS: u32 = 10_000;

/// Longest time for both loops, including their set-up.
const HANG: Duration = Duration::from_secs(180);

const LOOPS: [&str; 4] = ["--path", "epoll+epoll", "--path", "uring-loop+uring-loop"];

/// A server with little to do; [`POLLING`] is the same with a thread that polls.
const IDLE: &str = "epoll+uring-loop";
const POLLING: &str = "epoll+uring-loop:sqpoll=on";

/// The thread that polls for submissions never sleeps between requests, and belongs to the server.
#[test]
fn thread_that_polls_for_submissions_is_its_ends_cost() {
    let _shared = shared();
    if crate::uring::path_for("uring-loop", Role::Receiver, &[]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let output = Command::new(env!("CARGO_BIN_EXE_bytepath"))
        .args(["run", "--path", IDLE, "--path", POLLING, "--stream", "flows=4"])
        .args(["--workload", "rr:rate=500", "--blocks", "1", "--profile", "none"])
        .args(["--warm-up", "100ms", "--window", "1s", "--study"])
        .arg(&out)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {stderr}"));
    let servers = |path: &'static str| {
        let of = move |trial: &&Trial| trial.cell.0.split(' ').next() == Some(path);
        study.trials.iter().filter(of).map(|trial| (trial, &trial.roles[1].threads))
    };
    let run = |path| {
        let sum = |threads: &[ThreadTime]| threads.iter().map(|thread| thread.run).sum::<f64>();
        servers(path).map(|(_, threads)| sum(threads)).fold(0.0, f64::max)
    };
    for (trial, threads) in servers(POLLING) {
        let submits = |thread: &&ThreadTime| thread.name.starts_with("iou-sqp-");
        let submitter = threads.iter().find(submits).expect("its thread is among the server's");
        assert!(submitter.run > 0.1 * trial.window, "{threads:?}");
        let clients = &trial.roles[0].threads;
        assert_eq!(clients.iter().filter(submits).count(), 0, "{clients:?}");
    }
    assert!(run(POLLING) > 2.0 * run(IDLE), "{} s, {} s", run(POLLING), run(IDLE));
}

/// One connection, many, and more than the kernel's queue holds; in trials, and in slices for
/// streams.
#[test]
fn streams_over_one_and_many_connections_are_accounted_for() {
    let _shared = shared();
    for (flows, design, workload) in [
        (1, "slices", "stream"),
        (256, "slices", "stream"),
        (2_000, "trials", "stream"),
        (1, "trials", "stream:direction=both"),
        (256, "trials", "stream:direction=both"),
    ] {
        let paths = ["epoll+epoll:threads=2", "uring-loop+uring-loop"];
        let mut arguments = vec!["--path", paths[0], "--path", paths[1], "--path"];
        arguments.extend(["poll:threads=2+epoll:trigger=edge", "--design", design]);
        arguments.extend(["--workload", workload, "--warm-up", "200ms", "--window", "600ms"]);
        let Some((study, printed)) = study(&arguments, flows) else { return };
        assert_eq!(study.trials.len(), 4);
        for trial in &study.trials {
            assert_eq!(trial.label, "copied", "{}", trial.cell);
            let received = trial.roles[1].total_bytes;
            assert!(trial.count > 0 && trial.count < received, "{}", trial.cell);
            for role in Role::ALL {
                let of = |metric: &str| trial.reading(metric, &Scope::Role(role));
                assert_eq!(of("loop.connections"), Some(f64::from(flows)), "{}", trial.cell);
                assert_eq!(of("connections.fairness").is_some(), flows > 1, "{}", trial.cell);
            }
        }
        // If the machine is too busy, there is no report.
        if study.trials.iter().all(|trial| trial.status == TrialStatus::Measured) {
            assert!(printed.contains("bytes each"), "memory is in the report: {printed}");
            let ways = printed.contains("Throughput of each way");
            assert_eq!(ways, workload.ends_with("both"), "{printed}");
        }
    }
}

#[test]
fn incast_over_one_and_many_connections_is_timed_by_rounds() {
    let _shared = shared();
    for flows in [1_u32, 256, 2_000] {
        let mut arguments = LOOPS.to_vec();
        arguments.extend(["--workload", "rr:incast=on,response=4K"]);
        arguments.extend(["--warm-up", "200ms", "--window", "600ms"]);
        let Some((study, printed)) = study(&arguments, flows) else { return };
        assert_eq!(study.trials.len(), 3);
        for trial in &study.trials {
            let round = u64::from(flows) * (64 + 4096);
            let sent = trial.roles[0].total_bytes;
            assert_eq!(sent % round, 0, "{}: a round was cut", trial.cell);
            let rounds = trial.latency.as_ref().map_or(0, |latency| latency.count());
            let apart = trial.count.abs_diff(rounds * u64::from(flows));
            assert!(rounds > 0 && apart <= 2 * u64::from(flows), "{}: {rounds}", trial.cell);
        }
        if study.trials.iter().all(|trial| trial.status == TrialStatus::Measured) {
            assert!(printed.contains("With incast latency is of a round"), "{printed}");
        }
    }
}

/// More connections than the kernel's accept queue holds (`net.core.somaxconn`).
#[test]
fn ten_thousand_connections_exchange_by_each_loop() {
    let _shared = shared();
    let begin = Instant::now();
    let mut arguments = LOOPS.to_vec();
    arguments.extend(["--workload", "rr", "--warm-up", "300ms", "--window", "1s"]);
    let Some((study, printed)) = study(&arguments, CONNECTIONS) else { return };
    assert!(begin.elapsed() < HANG, "{:?}", begin.elapsed());
    assert_eq!(study.trials.len(), 3);
    for trial in &study.trials {
        for role in Role::ALL {
            let of = |metric: &str| trial.reading(metric, &Scope::Role(role)).expect(metric);
            assert_eq!(of("loop.connections"), f64::from(CONNECTIONS));
            let each = of("loop.memory") / f64::from(CONNECTIONS);
            println!("{} {role}: {each:.0} bytes a connection", trial.cell);
            assert!((32.0..8192.0).contains(&each), "{} {role}: {each}", trial.cell);
        }
    }
    assert!(printed.contains("bytes each"), "memory is in the report: {printed}");
}

/// Runs a study of one block over this many connections, each of whose trials has figures (a busy
/// machine may reject them); returns it with its output. `None`, and a skip, without io_uring or if
/// so many files cannot be open.
fn study(arguments: &[&str], flows: u32) -> Option<(Study, String)> {
    crate::uring::path_for("uring-loop", Role::Receiver, &[])?;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let output = Command::new(env!("CARGO_BIN_EXE_bytepath"))
        .arg("run")
        .args(arguments)
        .args(["--stream", &format!("flows={flows}"), "--blocks", "1", "--profile", "none"])
        .args(["--cores", "none", "--study"])
        .arg(&out)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains(" files, and this process may have ") {
        skip!("{stderr}");
        return None;
    }
    let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {stderr}"));
    for trial in &study.trials {
        let ran = matches!(trial.status, TrialStatus::Measured | TrialStatus::Rejected { .. });
        assert!(ran, "{}: {:?}", trial.cell, trial.status);
        let [sender, receiver] = trial.roles.as_slice() else { panic!("two roles") };
        assert_eq!(sender.total_bytes, receiver.total_bytes, "{}", trial.cell);
    }
    Some((study, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Paths are compared at the same rate, a part of the lowest peak, which a resumed study keeps.
#[test]
fn a_load_is_a_part_of_the_lowest_peak() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let bytepath = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        let output = command.args(arguments).arg(&out).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        (load(&out).unwrap_or_else(|fault| panic!("{fault}: {stderr}")), stderr.into_owned())
    };
    let run = [
        "run",
        "--path=epoll+epoll",
        "--path=epoll+socket",
        "--stream=flows=4",
        "--workload=rr:rate=20%,outstanding=2",
        "--blocks=2",
        "--profile=none",
        "--warm-up=50ms",
        "--window=300ms",
        "--study",
    ];
    let (study, stderr) = bytepath(&run);
    let [found] = &study.header.loads[..] else { panic!("{:?}: {stderr}", study.header.loads) };
    assert_eq!((found.percent, found.cells.len(), found.peaks.len()), (20, 3, 2), "{found:?}");
    assert!(found.peaks.iter().all(|peak| peak.pilots.len() == 3), "{found:?}");
    let lowest = found.peaks.iter().map(|peak| peak.rate()).fold(f64::MAX, f64::min);
    assert_eq!(found.rate, (lowest * 0.2) as u64, "{found:?}");
    assert!(study.remarks.contains(&found.to_string()), "{:?}", study.remarks);
    assert!(stderr.contains("6 pilots find the peaks"), "{stderr}");

    let at_rate = |study: &Study| {
        assert_eq!(study.trials.len(), 6, "pilots are no trials");
        let rates: Vec<f64> = study.trials.iter().filter_map(Trial::rate).collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        assert!(mean < 0.6 * lowest, "{mean}/s of {lowest}/s at the peak");
        assert!(study.header.cells[0].id.0.contains("rate=20%"), "{}", study.header.cells[0].id);
    };
    at_rate(&study);
    let trials = out.join("trials.jsonl");
    let first = std::fs::read_to_string(&trials).unwrap().lines().next().unwrap().to_owned();
    std::fs::write(&trials, first + "\n").unwrap();
    let (resumed, stderr) = bytepath(&["resume"]);
    assert_eq!(resumed.header.loads, study.header.loads, "{stderr}");
    at_rate(&resumed);
}
