//! Connect, request, response, close on the real testbed: by every loop and by threads, and what a
//! report contains if ports run out or the queue of connections overflows.

use crate::isolated::{isolated, text};
use bytepath::record::{Role, Scope, Trial, TrialStatus};
use bytepath::study::load;
use bytepath_testing::shared;
use std::path::Path;
use std::process::{Command, Output};

fn run(paths: &[&str], stream: &str, more: &[&str], study: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.args(["run", "--stream", stream]);
    if !more.contains(&"--workload") {
        command.args(["--workload", "crr:response=300"]);
    }
    command.args(paths.iter().flat_map(|path| ["--path", path]));
    command.args(["--blocks", "1", "--warm-up", "200ms", "--profile", "none", "--cores", "none"]);
    command.args(more).arg("--study").arg(study).output().unwrap()
}

/// The trials of a study; checks that each has figures. A busy machine may reject a trial.
fn trials(study: &Path, output: &Output) -> Vec<Trial> {
    let study = load(study).unwrap_or_else(|fault| panic!("{fault}: {}", text(output)));
    for trial in &study.trials {
        let ran = matches!(trial.status, TrialStatus::Measured | TrialStatus::Rejected { .. });
        assert!(ran, "{}: {:?}", trial.cell, trial.status);
    }
    study.trials
}

fn of(trial: &Trial, metric: &str, role: Role) -> f64 {
    trial.reading(metric, &Scope::Role(role)).unwrap_or_else(|| panic!("no {metric} of {role}"))
}

#[test]
fn connections_come_and_go_by_every_loop_and_by_threads() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut paths = vec![
        "socket+socket",
        "epoll+epoll",
        "epoll:threads=2,trigger=edge+poll",
        "poll+epoll:threads=3,trigger=oneshot",
        "epoll+socket",
        "socket+epoll",
        "socket+epoll:threads=2",
    ];
    if crate::uring::path_for("uring-loop", Role::Receiver, &[]).is_some() {
        paths.extend(["uring-loop+uring-loop", "uring-loop:threads=2+uring-loop:threads=2"]);
    }
    let output = run(&paths, "flows=8", &["--window", "300ms"], &out);
    let all = trials(&out, &output);
    assert_eq!(all.len(), paths.len() + 1, "{}", text(&output));
    for trial in &all {
        let [client, server] = trial.roles.as_slice() else { panic!("two roles") };
        assert_eq!(client.total_bytes, server.total_bytes, "{}", trial.cell);
        assert_eq!(client.total_bytes % 364, 0, "{}: an exchange was cut", trial.cell);
        assert!(trial.count > 0, "{}: nothing", trial.cell);
        assert_eq!(trial.latency.as_ref().unwrap().count(), trial.count, "{}", trial.cell);
        assert_eq!(trial.label, "copied");
        for name in ["refused", "timed-out", "reset", "no-port"] {
            let count = of(trial, &format!("connections.{name}"), Role::Sender);
            assert_eq!(count, 0.0, "{}: {name}", trial.cell);
        }
        assert_eq!(of(trial, "connections.cut", Role::Receiver), 0.0, "{}", trial.cell);
        // One connection for each exchange, closed first by the client, so TIME_WAIT is at the
        // client.
        let [opened, accepted] = [("ActiveOpens", Role::Sender), ("PassiveOpens", Role::Receiver)]
            .map(|(name, role)| of(trial, &format!("tcp-stack.{name}"), role));
        let few = 0.5 * trial.count as f64;
        assert!(opened > few && accepted > few, "{}: {opened}, {accepted}", trial.cell);
        assert_eq!(of(trial, "tcp-stack.TW", Role::Receiver), 0.0, "{}", trial.cell);
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout.contains("crr: fastopen=off, handshake=none, request=64, response=300"),
        "{stdout}"
    );
}

/// The first connections request the cookie, all others use it.
#[test]
fn requests_go_out_with_the_syn_by_fast_open() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut paths = vec!["epoll+epoll", "socket+poll"];
    if crate::uring::path_for("uring-loop", Role::Receiver, &[]).is_some() {
        paths.push("uring-loop+uring-loop");
    }
    let more = ["--workload", "crr:fastopen=on", "--window", "300ms"];
    for trial in trials(&out, &run(&paths, "flows=8", &more, &out)) {
        let count = trial.count as f64;
        for (name, role) in [("Active", Role::Sender), ("Passive", Role::Receiver)] {
            let with_syn = of(&trial, &format!("tcp-stack.TCPFastOpen{name}"), role);
            assert!(with_syn > 0.5 * count, "{}: {with_syn} of {count}", trial.cell);
        }
    }
}

/// rustls at both ends makes each handshake, and both count the same number; a client resumes if it
/// has a ticket.
#[test]
fn connections_make_tls_handshakes() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let mut paths = vec!["epoll+epoll", "socket+poll", "epoll+socket"];
    if crate::uring::path_for("uring-loop", Role::Receiver, &[]).is_some() {
        paths.extend(["uring-loop+uring-loop", "epoll+uring-loop:threads=2"]);
    }
    for handshake in ["full", "resumed"] {
        let out = folder.path().join(handshake);
        let workload = format!("crr:handshake={handshake},response=20K");
        let more = ["--workload", &workload, "--window", "300ms"];
        for trial in trials(&out, &run(&paths, "flows=8", &more, &out)) {
            let [client, server] = trial.roles.as_slice() else { panic!("two roles") };
            assert_eq!(client.total_bytes, server.total_bytes, "{}", trial.cell);
            assert_eq!(client.total_bytes % (64 + (20 << 10)), 0, "{}: cut", trial.cell);
            assert!(trial.count > 0, "{}: nothing", trial.cell);
            assert_eq!(trial.latency.as_ref().unwrap().count(), trial.count, "{}", trial.cell);
            assert_eq!(trial.label, "copied (TLS by the program)");
            let both = |name: &str| {
                let ends = Role::ALL.map(|role| of(&trial, &format!("connections.{name}"), role));
                assert_eq!(ends[0], ends[1], "{}: {name}", trial.cell);
                ends[0]
            };
            let (made, resumed) = (both("handshakes"), both("resumed"));
            let tickets = if handshake == "full" { 0.0 } else { made - 8.0 };
            assert!(made > 8.0 && resumed == tickets, "{}: {resumed} of {made}", trial.cell);
            assert_eq!(both("tls"), 0.0, "{}: {:?}", trial.cell, trial.warnings);
        }
    }
}

#[test]
fn refuses_what_has_no_connections_to_make() {
    let folder = tempfile::tempdir().unwrap();
    for (path, stream, reason) in [
        ("splice", "flows=2", "path 'splice' opens connections once"),
        ("socket", "protocol=udp", "UDP has no connections to make"),
        ("socket", "tls=user", "crr:handshake=full"),
        ("socket:wait=spin", "flows=2", "wait is not set on connections that come and go"),
        ("socket:notsent-lowat=1M", "flows=2", "notsent-lowat is not set"),
    ] {
        let more = ["--window", "100ms"];
        let output = run(&[path], stream, &more, &folder.path().join("none"));
        assert!(!output.status.success(), "{path} {stream}");
        assert!(text(&output).contains(reason), "{path} {stream}: {}", text(&output));
    }
}

#[test]
fn ports_that_run_dry_are_counted_and_explained() {
    isolated(module_path!(), "ports_run_dry");
}

/// There are only 64 ports, and each is free again after a second.
#[test]
#[ignore = "needs namespaces of its own"]
fn ports_run_dry() {
    let folder = tempfile::tempdir().unwrap();
    let mut paths = vec!["epoll+epoll", "socket+socket"];
    if crate::uring::path_for("uring-loop", Role::Receiver, &[]).is_some() {
        paths.push("uring-loop+uring-loop");
    }
    let out = folder.path().join("study");
    let ports = ["--set", "sysctl net.ipv4.ip_local_port_range=40000 40063"];
    let output = run(&paths, "flows=4", &[&ports[..], &["--window", "300ms"]].concat(), &out);
    for trial in trials(&out, &output) {
        let dry = of(&trial, "connections.no-port", Role::Sender);
        assert!(dry > 0.0, "{}: {:?}", trial.cell, trial.warnings);
        let explained = |text: &String| {
            text.starts_with("sender: ")
                && text.contains("found no free port (EADDRNOTAVAIL)")
                && text.contains("net.ipv4.ip_local_port_range")
        };
        assert!(trial.warnings.iter().any(explained), "{:?}", trial.warnings);
        let [client, server] = trial.roles.as_slice() else { panic!("two roles") };
        assert_eq!(client.total_bytes, server.total_bytes, "{}", trial.cell);
    }
    // What can be calculated is refused before the study.
    let reuse = ["--set", "sysctl net.ipv4.tcp_tw_reuse=0", "--window", "300ms"];
    let output = run(&["epoll+epoll"], "flows=4", &reuse, &folder.path().join("none"));
    let shown = text(&output);
    assert!(!output.status.success(), "{shown}");
    assert!(shown.contains("connections a second") && shown.contains("tcp_tw_reuse=1"), "{shown}");
}

#[test]
fn a_queue_that_overflows_is_a_warning_with_its_remedy() {
    isolated(module_path!(), "queue_overflows");
}

/// A queue of one, and connections that arrive many at a time: dropped ones retry after a second,
/// all at once.
#[test]
#[ignore = "needs namespaces of its own"]
fn queue_overflows() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let queue = ["--set", "sysctl net.core.somaxconn=1", "--window", "2s"];
    let output = run(&["epoll+epoll"], "flows=200", &queue, &out);
    for trial in trials(&out, &output) {
        let warned = |warning: &String| {
            warning.starts_with("receiver: tcp-stack: ")
                && (warning.contains("ListenOverflows") || warning.contains("SyncookiesSent"))
                && warning.contains("raise net.core.somaxconn")
        };
        assert!(trial.warnings.iter().any(warned), "{:?}", trial.warnings);
    }
}
