//! Servers with many connections on the real testbed: ten thousand, by each event loop.

use bytepath::record::{Role, Scope, TrialStatus};
use bytepath::study::load;
use bytepath_testing::{shared, skip};
use std::process::Command;
use std::time::{Duration, Instant};

const CONNECTIONS: u32 = 10_000;

/// Longest time for both loops, with their set-up.
const HANG: Duration = Duration::from_secs(180);

/// More than the kernel lets wait to be accepted (`net.core.somaxconn`).
#[test]
fn ten_thousand_connections_exchange_by_each_loop() {
    let _shared = shared();
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
    if stderr.contains("files open") || stderr.contains("io_uring") {
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
