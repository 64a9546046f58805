//! zcrx end to end in a guest with a kernel that has queues without a device (Linux 7.1): a study
//! of several shapes, with every byte compared, its ledgers checked against the kernel's copy
//! statistics, and every shortage that was provoked reported. Without qemu or such a kernel it is
//! skipped and reported.

use crate::guests::able;
use bytepath::record::{Role, RoleRecord, Scope, Study, Trial, TrialStatus};
use bytepath::study::load;
use bytepath_testing::skip;
use std::process::Command;

const PATHS: [&str; 4] = [
    "uring-zc+zcrx",
    "uring-zc+zcrx:area=64K",
    "socket+zcrx:completions=4",
    "uring+zcrx:share=on,rq=64",
];

#[test]
fn a_guest_receives_through_queues_without_a_device() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.args(["run", "--testbed", "vm", "--study", out.to_str().unwrap()]);
    command.args([
        "--blocks",
        "1",
        "--design",
        "trials",
        "--warm-up",
        "200ms",
        "--window",
        "800ms",
    ]);
    command.args(["--meters", "none", "--profile", "none", "--stream", "touch=verify,flows=2"]);
    for path in PATHS {
        command.args(["--path", path]);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    for trial in &study.trials {
        if let TrialStatus::Unavailable { reason, .. } = &trial.status {
            assert!(reason.contains("7.1") || reason.contains("without a device"), "{reason}");
            skip!("{reason}");
            return;
        }
    }
    assert!(output.status.success(), "{text}");
    assert!(text.contains("copied (NODEV)"), "{text}");
    for path in PATHS {
        let trial = measured(&study, path).unwrap_or_else(|| panic!("{path} ran: {text}"));
        assert_eq!(trial.label, "copied (NODEV)");
        agrees_with_the_kernel(trial, path);
        assert!(trial.warnings.iter().any(|warning| warning.contains("NODEV")), "{trial:?}");
    }
    let sum = |path, metric| sum(measured(&study, path).unwrap(), metric);
    assert_eq!(sum(PATHS[0], "zcrx.queue_full"), 0, "16384 buffers have completions enough");
    let warned = |path: &str, what: &str| {
        let warnings = &measured(&study, path).unwrap().warnings;
        assert!(warnings.iter().any(|warning| warning.contains(what)), "{path}: {warnings:?}");
    };
    assert!(sum(PATHS[1], "zcrx.no_buffer") > 0, "16 buffers run dry");
    warned(PATHS[1], "larger area");
    assert!(sum(PATHS[2], "zcrx.queue_full") > 0, "4 completions are soon full");
    warned(PATHS[2], "more completions");
    let wraps = sum(PATHS[3], "zcrx.returned") / 64;
    assert!(wraps > 10, "64 entries went around {wraps} times");
}

/// The trial of a path, if it was measured.
fn measured<'a>(study: &'a Study, path: &str) -> Option<&'a Trial> {
    let is_it = |trial: &&Trial| {
        let cell = trial.cell.to_string();
        let name = cell.split(' ').next().unwrap_or_default();
        // This pair of halves has its own name, and options are in alphabetical order.
        let name = if name == "zcrx" { PATHS[0] } else { name };
        let wanted = path.replace("share=on,rq=64", "rq=64,share=on");
        name == wanted && !cell.contains("again") && trial.status == TrialStatus::Measured
    };
    study.trials.iter().find(is_it)
}

/// A counter of the path, summed over all flows.
fn sum(trial: &Trial, metric: &str) -> u64 {
    let of_metric = trial.readings.iter().filter(|reading| reading.metric == metric);
    let flows = of_metric.filter(|reading| matches!(reading.scope, Scope::Flow(Role::Receiver, _)));
    let values: Vec<u64> = flows.map(|reading| reading.value as u64).collect();
    assert_eq!(values.len(), 2, "{metric} of two flows: {trial:?}");
    values.iter().sum()
}

fn agrees_with_the_kernel(trial: &Trial, path: &str) {
    let receiver: &RoleRecord = trial.role(Role::Receiver).unwrap();
    let ledger = &receiver.ledger;
    assert_eq!(ledger.copied, receiver.total_bytes, "{path}: {ledger:?}");
    if !trial.readings.iter().any(|reading| reading.metric == "zcrx.copied_bytes") {
        skip!("{path}: this kernel does not count copies (before Linux 7.2)");
        return;
    }
    let counted = sum(trial, "zcrx.copied_bytes");
    let by_stats = ledger.evidence.iter().filter(|e| e.source.contains("zcrx_stats: fragments"));
    assert_eq!(by_stats.map(|e| e.bytes).sum::<u64>(), counted);
    // The kernel counts neither the linear parts of packets, nor everything that several rings of
    // one queue copy at the same moment.
    let rest = receiver.total_bytes - counted;
    println!("{path}: {} bytes, {rest} of them not counted as copied", receiver.total_bytes);
    assert!(rest <= receiver.total_bytes / 20, "{path}: {ledger:?}");
}
