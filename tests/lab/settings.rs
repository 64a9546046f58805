//! Settings of a real host, by the real binary: in its own network namespace, with a veth pair that
//! nothing else uses. The test restarts itself in there (unshare(1)); without root or unshare it is
//! skipped.

use crate::host::{Host, LINES};
use crate::isolated::{isolated, text};
use bytepath::host::differences;
use bytepath::study::{HostsAfter, load};
use std::fs;
use std::process::Command;

#[test]
fn a_study_that_is_killed_leaves_nothing_after_a_restore() {
    isolated(module_path!(), "inside_a_killed_study_is_restored");
}

#[test]
fn a_study_puts_back_what_it_set() {
    isolated(module_path!(), "inside_a_study_puts_back");
}

#[test]
fn names_foreign_changes_during_a_study() {
    isolated(module_path!(), "inside_a_change_is_named");
}

#[test]
fn settings_that_a_cell_requests_apply_where_its_sockets_are() {
    isolated(module_path!(), "inside_settings_are_a_factor");
}

#[test]
#[ignore = "started in a namespace by settings_that_a_cell_requests_apply_where_its_sockets_are"]
fn inside_settings_are_a_factor() {
    // Without timestamps a segment holds 12 bytes more (RFC 7323). The testbed's namespaces have
    // their own value, not the host's.
    let dir = tempfile::tempdir().unwrap();
    let experiment = "
        blocks = 1
        window = \"200ms\"
        warm-up = \"0\"
        profile = \"none\"
        [factors]
        path = \"socket\"
        cores = \"none\"
        settings = [\"none\", \"sysctl net.ipv4.tcp_timestamps=0; sysctl net.core.somaxconn=99\"]
    ";
    let file = dir.path().join("timestamps.toml");
    fs::write(&file, experiment).unwrap();
    let out = dir.path().join("study");
    let run = Command::new(env!("CARGO_BIN_EXE_bytepath"))
        .args(["run".as_ref(), file.as_os_str(), "--study".as_ref(), out.as_os_str()])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", text(&run));
    let study = load(&out).unwrap();
    assert_eq!(study.trials.len(), 3, "two cells, and one of them again: {}", text(&run));
    for trial in &study.trials {
        let own = trial.cell.0.contains("settings=sysctl/net.ipv4.tcp_timestamps=0+");
        let said: Vec<String> = trial.prepared.iter().map(ToString::to_string).collect();
        let expected = ["net.ipv4.tcp_timestamps: 1 -> 0", "net.core.somaxconn: 4096 -> 99"];
        assert_eq!(said, if own { &expected[..] } else { &[] }, "{:?}", trial.status);
        let mss = trial.readings.iter().find(|r| r.metric == "tcp.snd_mss").unwrap().value;
        assert_eq!(mss, if own { 4108.0 } else { 4096.0 }, "{}", trial.cell);
    }
    let timestamps = fs::read_to_string("/proc/sys/net/ipv4/tcp_timestamps").unwrap();
    assert_eq!(timestamps.trim(), "1", "restored");
}

#[test]
#[ignore = "started in a namespace by a_study_that_is_killed_leaves_nothing_after_a_restore"]
fn inside_a_killed_study_is_restored() {
    let host = Host::new();
    let before = host.look();

    // Killed while trials run.
    let mut study = host.study("killed", "2s", LINES);
    study.wait_for("[  1/");
    let changed = differences(&before, &host.look());
    assert!(changed.len() >= LINES.len(), "{changed:?}");
    for second in [host.run(&["restore"]), host.quick("second", &["mtu set0 9000"])] {
        assert_eq!(second.status.code(), Some(6), "{}", text(&second));
        let who = format!("another bytepath (process {}) is changing settings", study.0.id());
        assert!(text(&second).contains(&who), "{}", text(&second));
    }
    study.kill();
    assert_eq!(differences(&before, &host.look()), changed, "no one has restored anything");
    let shown = text(&host.run(&["restore", "--show"]));
    assert!(shown.contains("no longer running"), "{shown}");
    assert_eq!(shown.matches("  set   ").count(), LINES.len(), "{shown}");
    // Another run reports it, and leaves it alone.
    let stderr = text(&host.quick("teller", &[]));
    assert!(stderr.contains("`bytepath restore` restores them"), "{stderr}");
    let restored = host.run(&["restore"]);
    assert!(restored.status.success(), "{}", text(&restored));
    assert_eq!(text(&restored).matches(": restored: ").count(), LINES.len());
    assert_eq!(differences(&before, &host.look()), [""; 0]);
    assert!(text(&host.run(&["restore"])).starts_with("nothing to restore: "));

    // Killed once the journal has a given number of lines, one more each time.
    for lines in 1..=2 * LINES.len() + 1 {
        let study = host.study(&format!("killed-{lines}"), "2s", LINES);
        host.await_journal(lines);
        study.kill();
        let restored = host.run(&["restore"]);
        assert!(restored.status.success(), "{}", text(&restored));
        let left = differences(&before, &host.look());
        assert_eq!(left, [""; 0], "killed at line {lines}: {}", text(&restored));
    }
}

#[test]
#[ignore = "started in a namespace by a_study_puts_back_what_it_set"]
fn inside_a_study_puts_back() {
    let host = Host::new();
    let before = host.look();

    // Run to its end.
    let run = host.quick("whole", LINES);
    assert!(run.status.success(), "{}", text(&run));
    assert!(text(&run).contains("restored: 10 settings of the host"), "{}", text(&run));
    assert!(text(&run).contains("mtu set0: 1500 -> 4148"), "{}", text(&run));
    assert_eq!(differences(&before, &host.look()), [""; 0]);
    assert!(!host.dir.path().join("state/journal").exists());
    let study = load(&host.dir.path().join("whole")).unwrap();
    let texts: Vec<String> = study.header.settings.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), LINES.len());
    assert!(texts.iter().any(|t| t.starts_with("qdisc set0: noqueue handle=0: -> pfifo")));
    assert!(String::from_utf8_lossy(&run.stdout).contains("settings   made for the study"));
    let after = fs::read_to_string(host.dir.path().join("whole/hosts-after.json")).unwrap();
    let after: HostsAfter = serde_json::from_str(&after).unwrap();
    assert_eq!(after.settings.len(), LINES.len());
    assert_eq!(differences(&study.header.fingerprint, &after.fingerprint), [""; 0]);

    // Stopped by Ctrl-C, and resumed with the same settings.
    let mut study = host.study("stopped", "1s", LINES);
    study.wait_for("[  1/");
    study.signal(libc::SIGINT);
    assert_eq!(study.end().0, Some(130));
    assert_eq!(differences(&before, &host.look()), [""; 0]);
    let folder = host.dir.path().join("stopped");
    let resumed = host.run(&["resume", folder.to_str().unwrap()]);
    assert!(text(&resumed).contains("set: mtu set0: 1500 -> 4148"), "{}", text(&resumed));
    assert_eq!(differences(&before, &host.look()), [""; 0]);

    // A setting that cannot be made is an error before anything is changed.
    let refused = host.quick("refused", &["mtu set0 4148", "rings set0 rx=4096"]);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused));
    assert!(text(&refused).contains("cannot set 'rings set0 rx=4096'"), "{}", text(&refused));
    assert!(!host.dir.path().join("refused").exists(), "no study was begun");
    assert_eq!(differences(&before, &host.look()), [""; 0]);
}

#[test]
#[ignore = "started in a namespace by names_foreign_changes_during_a_study"]
fn inside_a_change_is_named() {
    let host = Host::new();
    let mut study = host.study("disturbed", "1s", &[]);
    study.wait_for("[  1/");
    fs::write("/proc/sys/net/ipv4/tcp_limit_output_bytes", "777777\n").unwrap();
    study.wait_for("changed settings of the host during block");
    study.signal(libc::SIGINT);
    study.end();
    let study = load(&host.dir.path().join("disturbed")).unwrap();
    let rejected = study.trials.iter().find(|t| {
        let status = serde_json::to_string(&t.status).unwrap();
        status.contains("settings of the host changed: net.ipv4.tcp_limit_output_bytes\"")
    });
    assert!(rejected.is_some(), "{:?}", study.trials.iter().map(|t| &t.status).collect::<Vec<_>>());
    assert!(study.remarks.iter().any(|remark| remark.contains("-> 777777")), "{study:?}");
}
