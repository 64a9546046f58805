//! Generators and sinks of frames beyond packet socket and tap: AF_XDP, XDP, UDP GSO over a veth
//! pair and into a tap. Every frame has to be accounted for, which is so if a trial has not failed;
//! that other programs used the machine does not matter here.

use bytepath::record::{Hops, Study, Trial, TrialStatus};
use bytepath::study::load;
use bytepath_testing::{shared, skip};
use std::path::Path;
use std::process::{Command, Output};

fn bytepath(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bytepath")).args(words).output().unwrap()
}

fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Runs a study of some paths. Returns `None`, with the reason printed, if XDP is not available
/// here.
fn study(
    out: &Path,
    workload: &str,
    link: &str,
    more: &[&str],
    paths: &[&str],
) -> Option<(Study, String)> {
    if !rustix::process::geteuid().is_root() {
        skip!("XDP programs are root's to load");
        return None;
    }
    let mut words = vec!["run", "--workload", workload, "--link", link];
    paths.iter().for_each(|path| words.extend(["--path", path]));
    words.extend([
        "--blocks",
        "1",
        "--warm-up",
        "50ms",
        "--window",
        "200ms",
        "--cores",
        "unpinned",
    ]);
    words.extend(["--profile", "none", "--meters", "threads", "--study", out.to_str().unwrap()]);
    words.extend(more);
    let output = bytepath(&words);
    let text = shown(&output);
    match load(out) {
        Ok(study) => Some((study, text)),
        Err(_) if text.contains("AF_XDP") || text.contains("XDP program") => {
            skip!("{text}");
            None
        }
        Err(fault) => panic!("{fault}: {text}"),
    }
}

/// The result of the frames of a trial; checks that all are accounted for.
fn found(trial: &Trial, text: &str) -> Hops {
    let failed = matches!(trial.status, TrialStatus::Failed { .. });
    assert!(!failed, "{}: {:?}: {text}", trial.cell, trial.status);
    let hops = trial.hops.unwrap_or_else(|| panic!("{}: no hops: {text}", trial.cell));
    assert_eq!(hops.unaccounted(), 0, "{}: {hops:?}", trial.cell);
    assert!(hops.received > 0 && hops.generated() > 0, "{}: {hops:?}", trial.cell);
    hops
}

#[test]
fn frames_across_a_veth_pair_are_found_again() {
    let _shared = shared();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("study");
    let paths = [
        "packet+xdp-drop",
        "xdp-live:repeat=5000+xdp-drop",
        "xdp-live:repeat=5000+af-xdp",
        "udp-gso+xdp-drop:mode=generic",
    ];
    let Some((study, text)) = study(&out, "packets", "offload:qdisc=none", &[], &paths) else {
        return;
    };
    assert_eq!(study.trials.len(), paths.len() + 1, "{text}");
    for trial in &study.trials {
        let hops = found(trial, &text);
        let id = trial.cell.to_string();
        // A program that drops frames cannot keep up either, but loses nothing: the ring of the
        // veth keeps what it has not read.
        let discards = id.contains("+xdp-drop");
        assert_eq!(trial.label.contains("receive discarded"), discards, "{id}: {}", trial.label);
        assert_eq!(trial.label.contains("made in the kernel"), id.contains("xdp-live"));
        assert!(discards || hops.sink_dropped + hops.received == hops.generated(), "{hops:?}");
    }
}

/// AF_XDP at both ends, with the contents of frames compared; a veth has no zero-copy, and the mode
/// that was bound is reported.
#[test]
fn frames_between_af_xdp_sockets_arrive_as_they_were_sent() {
    let _shared = shared();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("study");
    let (workload, more) = ("packets:frame=60-1514,count=20000", ["--stream", "touch=verify"]);
    let made = study(&out, workload, "offload", &more, &["af-xdp+af-xdp"]);
    let Some((study, text)) = made else { return };
    for trial in &study.trials {
        let hops = found(trial, &text);
        assert_eq!(hops.generated(), 20_000, "{hops:?}");
        assert_eq!(trial.label, "copied", "{text}");
        let evidence = trial.roles.iter().flat_map(|role| &role.ledger.evidence);
        assert!(evidence.clone().all(|e| e.source.contains("bound as copy")), "{text}");
    }
}

#[test]
fn frames_into_a_tap_are_found_again() {
    let _shared = shared();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("study");
    let paths = ["udp-gso+tap", "af-xdp+tap", "xdp-live:repeat=20000+tap"];
    let Some((study, text)) = study(&out, "packets", "tap", &[], &paths) else { return };
    for trial in &study.trials {
        let hops = found(trial, &text);
        if trial.cell.to_string().contains("xdp-live") {
            // More frames than one reader takes; the tap itself counts one in 16 of those drops.
            assert!(hops.device_dropped > hops.received / 4, "{hops:?}");
            assert_eq!(hops.device_sent, hops.received + hops.strays, "{hops:?}");
        }
    }
}

#[test]
fn refuses_impossible_generators_before_the_study() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("study");
    let run = |words: &[&str]| {
        let short = ["--blocks", "1", "--window", "200ms", "--study", out.to_str().unwrap()];
        let output = bytepath(&[&["run", "--workload"][..], words, &short].concat());
        assert!(!output.status.success(), "{words:?}: {}", shown(&output));
        shown(&output)
    };
    for (words, reason) in [
        (&["packets", "--link", "tap", "--path", "packet+xdp-drop"][..], "is not a device"),
        (&["packets", "--link", "tap", "--path", "packet+af-xdp"], "is not a device"),
        (&["packets", "--link", "offload", "--path", "packet+vhost"], "the link is not a tap"),
        (
            &["packets:frame=imix", "--link", "tap", "--path", "xdp-live+tap"],
            "makes frames of one size",
        ),
        (
            &["packets", "--link", "tap:qdisc=pfifo", "--path", "udp-gso+tap"],
            "counts a message of several datagrams as one packet",
        ),
        (&["packets", "--link", "tap", "--path", "packet+vhost:ring=100"], "choose a power of two"),
        (
            &[
                "packets",
                "--link",
                "offload",
                "--path",
                "packet+xdp-drop",
                "--stream",
                "touch=read",
            ],
            "no application sees",
        ),
    ] {
        let text = run(words).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(reason), "{words:?}: {text}");
    }
}

/// On a host without either module, the remedy is printed.
#[test]
fn a_host_without_the_modules_reports_which() {
    for (path, file, remedy) in [
        ("packet+vhost", "/dev/vhost-net", "modprobe vhost_net"),
        ("pktgen+tap", "/proc/net/pktgen", "modprobe pktgen"),
    ] {
        if Path::new(file).exists() {
            skip!("this host has {file}");
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("study");
        let words = ["run", "--workload", "packets", "--link", "tap", "--path", path, "--study"];
        let output = bytepath(&[&words[..], &[out.to_str().unwrap()]].concat());
        let text = shown(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!output.status.success() && text.contains(remedy), "{path}: {text}");
    }
}
