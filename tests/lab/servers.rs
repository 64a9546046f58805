//! Servers with many connections on the real testbed: ten thousand, by each event loop.

use bytepath::record::{Role, Scope, ThreadTime, Trial, TrialStatus};
use bytepath::study::load;
use bytepath_testing::{shared, skip};
use std::process::Command;
use std::time::{Duration, Instant};

const CONNECTIONS: u32 = 10_000;

/// Longest time for both loops, with their set-up.
const HANG: Duration = Duration::from_secs(180);

/// A server of which little is asked, and what polls for it.
const IDLE: &str = "epoll+uring-loop";
const POLLING: &str = "epoll+uring-loop:sqpoll=on";

/// The thread that submits never sleeps between requests, and is the server's.
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

/// One, many, and more than the kernel lets wait in its queue; in trials, and in turns where a study
/// takes them.
#[test]
fn streams_over_one_and_many_connections_are_accounted_for() {
    let _shared = shared();
    if crate::uring::path_for("uring-loop", Role::Receiver, &[]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (flows, design, workload) in [
        (1, "slices", "stream"),
        (256, "slices", "stream"),
        (2_000, "trials", "stream"),
        (1, "trials", "stream:direction=both"),
        (256, "trials", "stream:direction=both"),
        (2_000, "trials", "stream:direction=both"),
    ] {
        let out = folder.path().join(format!("{flows}{workload}"));
        let output = Command::new(env!("CARGO_BIN_EXE_bytepath"))
            .args(["run", "--path", "epoll+epoll:threads=2", "--path", "uring-loop+uring-loop"])
            .args(["--path", "poll:threads=2+epoll:trigger=edge", "--design", design])
            .args(["--workload", workload, "--stream", &format!("flows={flows}")])
            .args(["--blocks", "1", "--warm-up", "200ms", "--window", "600ms", "--profile", "none"])
            .args(["--cores", "none", "--study"])
            .arg(&out)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        if stderr.contains("files open") {
            skip!("{stderr}");
            return;
        }
        let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {stderr}"));
        assert_eq!(study.trials.len(), 4, "{stderr}");
        for trial in &study.trials {
            let ran = matches!(trial.status, TrialStatus::Measured | TrialStatus::Rejected { .. });
            assert!(ran, "{}: {:?}", trial.cell, trial.status);
            assert_eq!(trial.label, "copied", "{}", trial.cell);
            let [sender, receiver] = trial.roles.as_slice() else { panic!("two roles") };
            assert_eq!(sender.total_bytes, receiver.total_bytes, "{}", trial.cell);
            assert!(trial.count > 0 && trial.count < receiver.total_bytes, "{}", trial.cell);
            for role in Role::ALL {
                let of = |metric: &str| trial.reading(metric, &Scope::Role(role));
                assert_eq!(of("loop.connections"), Some(f64::from(flows)), "{}", trial.cell);
                assert_eq!(of("connections.fairness").is_some(), flows > 1, "{}", trial.cell);
            }
        }
        let stdout = String::from_utf8_lossy(&output.stdout);
        // Of a machine that is too busy there is no report.
        if study.trials.iter().all(|trial| trial.status == TrialStatus::Measured) {
            assert!(stdout.contains("bytes each"), "memory is in the report: {stdout}");
            let ways = stdout.contains("Throughput of each way");
            assert_eq!(ways, workload.ends_with("both"), "{stdout}");
        }
    }
}

#[test]
fn incast_over_one_and_many_connections_is_timed_by_rounds() {
    let _shared = shared();
    if crate::uring::path_for("uring-loop", Role::Receiver, &[]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for flows in [1_u32, 256, 2_000] {
        let out = folder.path().join(flows.to_string());
        let output = Command::new(env!("CARGO_BIN_EXE_bytepath"))
            .args(["run", "--path", "epoll+epoll", "--path", "uring-loop+uring-loop"])
            .args(["--workload", "rr:incast=on,response=4K", "--stream", &format!("flows={flows}")])
            .args(["--blocks", "1", "--warm-up", "200ms", "--window", "600ms", "--profile", "none"])
            .args(["--cores", "none", "--study"])
            .arg(&out)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        if stderr.contains("files open") {
            skip!("{stderr}");
            return;
        }
        let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {stderr}"));
        assert_eq!(study.trials.len(), 3, "{stderr}");
        for trial in &study.trials {
            let ran = matches!(trial.status, TrialStatus::Measured | TrialStatus::Rejected { .. });
            assert!(ran, "{}: {:?}", trial.cell, trial.status);
            let [client, server] = trial.roles.as_slice() else { panic!("two roles") };
            assert_eq!(client.total_bytes, server.total_bytes, "{}", trial.cell);
            let round = u64::from(flows) * (64 + 4096);
            assert_eq!(client.total_bytes % round, 0, "{}: a round was cut", trial.cell);
            let rounds = trial.latency.as_ref().map_or(0, |latency| latency.count());
            let apart = trial.count.abs_diff(rounds * u64::from(flows));
            assert!(rounds > 0 && apart <= 2 * u64::from(flows), "{}: {rounds}", trial.cell);
        }
        let stdout = String::from_utf8_lossy(&output.stdout);
        if study.trials.iter().all(|trial| trial.status == TrialStatus::Measured) {
            assert!(stdout.contains("With incast latency is of a round"), "{stdout}");
        }
    }
}

/// More than the kernel lets wait to be accepted (`net.core.somaxconn`).
#[test]
fn ten_thousand_connections_exchange_by_each_loop() {
    let _shared = shared();
    if crate::uring::path_for("uring-loop", Role::Receiver, &[]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let begin = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_bytepath"))
        .args(["run", "--path", "epoll+epoll", "--path", "uring-loop+uring-loop"])
        .args(["--workload", "rr", "--stream", &format!("flows={CONNECTIONS}")])
        .args(["--blocks", "1", "--warm-up", "300ms", "--window", "1s", "--profile", "none"])
        .args(["--cores", "none", "--study"])
        .arg(&out)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("files open") {
        skip!("{stderr}");
        return;
    }
    assert!(begin.elapsed() < HANG, "{:?}", begin.elapsed());
    let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {stderr}"));
    assert_eq!(study.trials.len(), 3, "{stderr}");
    for trial in &study.trials {
        // A busy machine spoils what it measured.
        let ran = matches!(trial.status, TrialStatus::Measured | TrialStatus::Rejected { .. });
        assert!(ran, "{}: {:?}", trial.cell, trial.status);
        let [client, server] = trial.roles.as_slice() else { panic!("two roles") };
        assert_eq!(client.total_bytes, server.total_bytes, "{}", trial.cell);
        for role in Role::ALL {
            let of = |metric: &str| trial.reading(metric, &Scope::Role(role)).expect(metric);
            assert_eq!(of("loop.connections"), f64::from(CONNECTIONS));
            let each = of("loop.memory") / f64::from(CONNECTIONS);
            println!("{} {role}: {each:.0} bytes a connection", trial.cell);
            assert!((32.0..8192.0).contains(&each), "{} {role}: {each}", trial.cell);
        }
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("bytes each"), "memory is in the report: {stdout}");
}
