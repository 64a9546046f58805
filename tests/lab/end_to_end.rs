//! The built binary on its real testbed: every path moves verified bytes between two network
//! namespaces, as root and without root; every kind of trouble ends in a clear message and leaves
//! nothing behind.

use crate::running::{Running, await_that, children_of, signal};
use bytepath::record::{Manner, ProvenWitness, Role, Study, Trial, TrialStatus};
use bytepath::stats::{Metric, Rules, Verdict, analyse};
use bytepath::study::load;
use bytepath_testing::{run_copied, shared, skip};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Short trials: these tests check correctness, not speed.
const SHORT: &[&str] = &[
    "--blocks",
    "1",
    "--warm-up",
    "100ms",
    "--window",
    "300ms",
    "--design",
    "trials",
    "--profile",
    "none",
];

const MEASURABLE: &[&str] = &["socket", "sendfile", "splice", "msg-zerocopy", "uring", "uring-zc"];

#[test]
fn every_path_delivers_verified_bytes() {
    let _shared = shared();
    for link in ["wire", "offload", "wire:mtu=9000,threaded-napi=off"] {
        let study = run_paths(MEASURABLE, &["--stream", "touch=verify", "--link", link]);
        for trial in &study.trials {
            assert_measured(trial);
            let [tx, rx] = trial.roles.as_slice() else { panic!("two roles") };
            assert_eq!(tx.total_bytes, rx.total_bytes, "{link} {}", trial.cell);
            for role in [tx, rx] {
                assert_eq!(role.ledger.delivered, role.total_bytes, "{link} {}", trial.cell);
                assert!(!role.calls.is_empty(), "{link} {}: no system calls", trial.cell);
            }
        }
    }
}

#[test]
fn every_combination_of_halves_delivers_verified_bytes() {
    let _shared = shared();
    let senders = ["socket", "sendfile", "splice", "msg-zerocopy", "uring", "uring-zc"];
    let receivers = ["socket", "tcp-zerocopy-receive", "uring"];
    let pairs: Vec<String> = senders
        .iter()
        .flat_map(|tx| receivers.iter().map(move |rx| format!("{tx}+{rx}")))
        .collect();
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
    // Two flows, odd sizes, and a message that is not a multiple of a page.
    for stream in ["touch=verify,flows=2,read-size=100000", "touch=verify,message-size=3M"] {
        for trial in &run_paths(&pairs, &["--stream", stream]).trials {
            assert_measured(trial);
        }
    }
}

#[test]
fn zero_copy_is_proven_and_silent_copies_are_found() {
    let _shared = shared();
    let study = run_paths(MEASURABLE, &[]);
    let by_name = |name: &str| study.trials.iter().find(|t| t.cell.0 == name).unwrap();
    let share = |name: &str, role| by_name(name).role(role).unwrap().ledger.not_copied_share();
    let witness = |name: &str| by_name(name).role(Role::Sender).unwrap().witness.unwrap();

    // Pages from a pipe can be mapped into the receiver's page tables.
    assert!(share("splice", Role::Receiver) >= 0.95, "{}", share("splice", Role::Receiver));
    assert_eq!(witness("splice"), ProvenWitness::Shared);
    assert_eq!(by_name("splice").label, "zero-copy");
    // Over veth the kernel copies what MSG_ZEROCOPY pinned, but the receiver maps it.
    assert!(share("msg-zerocopy", Role::Receiver) >= 0.95);
    assert_eq!(share("msg-zerocopy", Role::Sender), 0.0);
    assert_eq!(witness("msg-zerocopy"), ProvenWitness::Copied);
    assert_eq!(by_name("msg-zerocopy").label, "zero-copy receive, send copied by the kernel");
    assert_eq!(by_name("sendfile").label, "zero-copy send, receive copied");
    assert_eq!(witness("sendfile"), ProvenWitness::Shared);
    for name in ["socket", "uring", "uring-zc"] {
        assert_eq!(by_name(name).label, "copied", "{name}");
        assert_eq!(witness(name), ProvenWitness::Copied, "{name}");
    }
    for trial in &study.trials {
        for role in &trial.roles {
            let l = &role.ledger;
            assert_eq!(l.delivered, l.copied + l.not_copied + l.unknown);
            let sum = |m| l.evidence.iter().filter(|e| e.manner == m).map(|e| e.bytes).sum::<u64>();
            assert_eq!(sum(Manner::Copied), l.copied);
            assert_eq!(sum(Manner::NotCopied), l.not_copied);
        }
    }
}

#[test]
fn receiver_that_cannot_map_reports_copied() {
    let _shared = shared();
    // An MTU whose segments are not whole pages: nothing can be mapped.
    let study = run_paths(&["splice"], &["--link", "wire:mtu=1500"]);
    let receiver = study.trials[0].role(Role::Receiver).unwrap();
    assert!(receiver.ledger.copied_share() > 0.95, "{:?}", receiver.ledger);
    assert_eq!(study.trials[0].label, "zero-copy send, receive copied");
}

#[test]
fn discarded_bytes_are_not_compared_with_delivered_ones() {
    let _shared = shared();
    let study = run_paths(&["socket", "splice+discard"], &["--blocks", "2"]);
    for trial in study.trials.iter().filter(|t| t.cell.0 == "splice+discard") {
        assert_measured(trial);
        assert_eq!(trial.label, "send zero-copy, receive discarded");
        let [tx, rx] = trial.roles.as_slice() else { panic!("two roles") };
        assert_eq!(tx.witness, Some(ProvenWitness::Shared), "the page itself is read");
        assert_eq!(tx.total_bytes, rx.total_bytes);
        assert_eq!(rx.ledger.discarded, rx.total_bytes, "{:?}", rx.ledger);
    }
    let analysis = analyse(&study, &Rules::default());
    let row = analysis.rows.iter().find(|row| row.cell.0 == "splice+discard").unwrap();
    let comparison = row.comparison(Metric::Rate).unwrap();
    assert_eq!(comparison.verdict, Verdict::NotComparable, "{comparison:?}");
    assert!(comparison.reasons.iter().any(|why| why.contains("discards")), "{comparison:?}");
}

#[test]
fn exchanges_whose_bytes_are_discarded_are_still_counted() {
    let _shared = shared();
    let rr = ["--workload", "rr:request=100,response=20000,outstanding=4"];
    let study = run_paths(&["socket+discard"], &rr);
    for trial in &study.trials {
        assert_measured(trial);
        assert_eq!(trial.label, "client discarded, server copied");
        let [client, server] = trial.roles.as_slice() else { panic!("two roles") };
        assert_eq!(client.total_bytes, server.total_bytes);
        // Only whole exchanges are made, so what both ends received is in this ratio.
        assert_eq!(client.ledger.discarded, server.ledger.discarded * 200);
        assert_eq!(client.ledger.copied, server.ledger.discarded);
    }
}

#[test]
fn refuses_to_verify_discarded_bytes_before_the_study() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let asked = ["--path", "socket+discard", "--stream", "touch=verify"];
    let output = bytepath(&out, &asked).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("cannot be read or verified"), "{stderr}");
    assert!(stderr.contains("touch=none"), "{stderr}");
    assert!(!out.join("trials.jsonl").exists(), "a trial was begun");
}

#[test]
fn without_root_the_same_paths_run() {
    let _shared = shared();
    if !rustix::process::geteuid().is_root() {
        skip!("already unprivileged, see the other tests");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("nobody");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534)).unwrap();
    // Other users may not be able to reach the test's own folder, so take a copy.
    let program = home.join("bytepath");
    std::fs::copy(env!("CARGO_BIN_EXE_bytepath"), &program).unwrap();
    let command = |out: &Path| {
        let mut command = Command::new(&program);
        command.args(["run", "--stream", "touch=verify", "--study"]).arg(out).args(SHORT);
        command.args(MEASURABLE.iter().flat_map(|path| ["--path", path]));
        command.uid(65534).gid(65534).current_dir(&home);
        command
    };
    for trial in &run_steady(&home, command).0.trials {
        assert_measured(trial);
        let refused = "cpu: times by kind come from ticks and are not exact: ";
        assert!(trial.warnings.iter().any(|w| w.contains(refused)), "{:?}", trial.warnings);
    }
}

/// A folder of the user nobody, with a copy of the program: other users may not be able to reach
/// the built one.
fn home_of_a_plain_user() -> Option<(TempDir, PathBuf)> {
    if !rustix::process::geteuid().is_root() {
        skip!("already unprivileged");
        return None;
    }
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(home.path(), Some(65534), Some(65534)).unwrap();
    let program = home.path().join("bytepath");
    std::fs::copy(env!("CARGO_BIN_EXE_bytepath"), &program).unwrap();
    Some((home, program))
}

/// As a plain user and as root of a user namespace, neither of whom can change settings of the
/// host: the study runs with those that its own namespaces have, and names the rest.
#[test]
fn without_root_optional_settings_are_made_where_they_can_be_and_named_elsewhere() {
    let _shared = shared();
    let Some((home, program)) = home_of_a_plain_user() else { return };
    let home = home.path();
    // In its own network namespace root also has that namespace's parameters.
    for (before, has_own) in [(&[][..], false), (&["unshare", "-rn"], true)] {
        let out = home.join(format!("study{}", before.len()));
        let words: Vec<&std::ffi::OsStr> = before.iter().map(std::ffi::OsStr::new).collect();
        let words = [&words[..], &[program.as_os_str()]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["run", "--settings", "battle-of-zcs", "--path", "socket"]);
        command.args(SHORT).arg("--study").arg(&out);
        command.uid(65534).gid(65534).current_dir(home).env("HOME", home);
        let output = run_copied(&mut command).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        // A rejection on a busy machine (8) does not matter here.
        assert!(matches!(output.status.code(), Some(0 | 8)), "{before:?}: {stderr}");
        assert!(stderr.contains("not set: sysctl vm.max_map_count=524240"), "{stderr}");
        let study = load(&out).unwrap();
        let is_set = !stderr.contains("not set: sysctl net.ipv4.tcp_rmem=");
        assert_eq!(is_set, has_own, "{before:?}: {stderr}");
        let own = "set in the testbed's namespace, not on the host: net.ipv4.tcp_rmem";
        for trial in &study.trials {
            let named = trial.warnings.iter().filter(|warning| warning.contains(own)).count();
            assert_eq!(named, if has_own { 0 } else { 2 }, "of each end: {:?}", trial.warnings);
        }
    }
}

/// Only the host's administrator may place softirqs: cells that name a CPU for them are refused,
/// each for its own reason, and the others run. `--cores` may replace all placements of a file by
/// one that needs no privileges.
#[test]
fn without_root_cells_that_place_softirqs_are_refused_one_by_one() {
    let _shared = shared();
    let Some((home, program)) = home_of_a_plain_user() else { return };
    let home = home.path();
    let run = |text: &str, more: &[&str]| {
        std::fs::write(home.join("x.toml"), text).unwrap();
        let mut command = Command::new(&program);
        let out = home.join(format!("study{}", more.len()));
        command.args(["run", "x.toml"]).args(SHORT).args(more).arg("--study").arg(&out);
        command.uid(65534).gid(65534).current_dir(home).env("HOME", home);
        let output = run_copied(&mut command).unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), load(&out))
    };
    let refused = |trial: &Trial| match &trial.status {
        TrialStatus::Unavailable { reason, remedy } => Some(format!("{reason} {remedy}")),
        _ => None,
    };
    let free = "baseline = { cores = 'two' }\n\
                [factors]\npath = 'socket'\ncores = ['two', 'together', 'one']\n";
    // Trials that a busy machine rejects do not matter here.
    let (_, stderr, study) = run(free, &[]);
    for trial in &study.expect(&stderr).trials {
        let placed = trial.cell.0.contains("together");
        let words = refused(trial);
        assert_eq!(words.is_some(), placed, "{}: {words:?}", trial.cell);
        let named = |words: String| words.contains("NAPI") && words.contains("--cores two");
        assert!(words.is_none_or(named), "{}: {:?}", trial.cell, trial.status);
    }
    let placed = "baseline = { path = 'socket', cores = 'together' }\n\
                  [factors]\npath = ['socket', 'zcrx']\ncores = ['together', 'apart']\n";
    let (code, stderr, study) = run(placed, &["--seed", "1"]);
    assert!(code == Some(4) && study.is_err(), "{code:?}: {stderr}");
    let baseline = "path socket cores=together cannot run here: sender: byte0: pinning the NAPI";
    let text = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(baseline), "{stderr}");
    let (_, stderr, study) = run(placed, &["--cores", "two", "--seed", "1"]);
    for trial in &study.expect(&stderr).trials {
        let why = refused(trial);
        assert_eq!(why.is_some(), trial.cell.0.contains("zcrx"), "{}: {why:?}", trial.cell);
        assert!(why.is_none_or(|why| !why.contains("NAPI")), "zcrx has its own reason");
    }
}

/// `-o` writes the report of `run`, as it does for every command.
#[test]
fn a_study_leaves_its_report_in_a_file() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let words = ["--path", "socket", "--blocks", "1", "-o", page.to_str().unwrap()];
    let (_, output) = run_steady(folder.path(), |out| bytepath(out, &words));
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(std::fs::read_to_string(page).unwrap().starts_with("<!DOCTYPE html>"));
}

#[test]
fn the_default_study_has_rows_for_what_cannot_run() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let (study, output) = run_steady(folder.path(), |out| bytepath(out, &["--json"]));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json.is_object(), "standard output is one JSON object");
    let special = |trial: &Trial| ["zcrx", "devmem"].contains(&trial.cell.0.as_str());
    assert_eq!(study.trials.iter().filter(|t| special(t)).count(), 2);
    // The baseline runs twice. Paths that need more than veth run on some machines only.
    let usual = study.trials.iter().filter(|t| !special(t));
    assert_eq!(usual.clone().count(), MEASURABLE.len() + 1);
    usual.for_each(assert_measured);
    for trial in study.trials.iter().filter(|t| special(t)) {
        let name = &trial.cell.0;
        let TrialStatus::Unavailable { reason, remedy } = &trial.status else {
            assert_measured(trial);
            continue;
        };
        assert!(!reason.is_empty() && !remedy.is_empty(), "{name}: {reason} / {remedy}");
        // Requested by name, it is an error, not a row.
        let output = bytepath(&folder.path().join(name), &["--path", name]).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
    }
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_leaves_nothing() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut command = bytepath(&out, &["--path", "socket", "--blocks", "50"]);
    let mut child = Running::start(&mut command);
    child.wait_for("[  2/");
    let agents = a_pair_of_agents(child.0.id());
    child.signal(libc::SIGINT);
    let (code, stderr) = child.end();
    assert_eq!(code, Some(130), "{stderr}");
    assert!(stderr.contains("interrupted by the user"), "{stderr}");
    assert!(load(&out).unwrap().trials.len() >= 2);
    assert!(agents.iter().all(|pid| !alive(*pid)), "an agent outlived its controller");
}

#[test]
fn quiet_run_prints_only_its_report() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let said = |name: &str, more: &[&str]| {
        let arguments = [&["--path", "socket"], more].concat();
        let output = bytepath(&folder.path().join(name), &arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let (report, progress) = said("usual", &[]);
    assert!(report.contains("placement  sender CPU"), "{report}");
    assert!(progress.contains("[  1/2]") && progress.contains("study: "), "{progress}");
    let (report, progress) = said("quiet", &["-q"]);
    assert!(report.contains("placement  sender CPU") && progress.is_empty(), "{progress}");
}

#[test]
fn sigkill_leaves_nothing_and_a_readable_study() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut command = bytepath(&out, &["--path", "socket", "--blocks", "50"]);
    let mut child = Running::start(&mut command);
    child.wait_for("[  1/");
    let agents = a_pair_of_agents(child.0.id());
    child.signal(libc::SIGKILL);
    child.end();
    assert!(!load(&out).unwrap().trials.is_empty());
    await_that("the agents are gone", || agents.iter().all(|pid| !alive(*pid)));
}

#[test]
fn a_killed_peer_is_a_failed_trial_with_its_reason() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let long = ["--path", "socket", "--blocks", "1", "--window", "4s"];
    let mut command = bytepath(&out, &long);
    let mut child = Running::start(&mut command);
    await_that("the stream flows", || {
        children_of(child.0.id()).iter().filter(|pid| has_thread(**pid, "receiver/0")).count() == 1
            && out.join("trials.jsonl").exists()
    });
    let receiver =
        children_of(child.0.id()).into_iter().find(|pid| has_thread(*pid, "receiver/0")).unwrap();
    signal(receiver, libc::SIGKILL);
    let (code, stderr) = child.end();
    assert_eq!(code, Some(5), "{stderr}");
    let study = load(&out).unwrap();
    let TrialStatus::Failed { fault } = &study.trials[0].status else { panic!("did not fail") };
    assert!(fault.message.contains("killed by signal 9"), "{fault}");
    assert_eq!(study.trials[0].rate(), None);
}

#[test]
fn names_a_full_disk_and_keeps_written_trials() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let command = bytepath(&out, &["--path", "socket", "--blocks", "20"]);
    // Simulates a full disk.
    let output = with_file_size_limit(&command, 32).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{stderr}");
    assert!(stderr.contains("trials.jsonl"), "{stderr}");
    assert!(!load(&out).unwrap().trials.is_empty());
}

/// Runs a study of these paths.
fn run_paths(paths: &[&str], arguments: &[&str]) -> Study {
    let folder = tempfile::tempdir().unwrap();
    let command = |out: &Path| {
        let mut command = bytepath(out, arguments);
        command.args(paths.iter().flat_map(|path| ["--path", path]));
        command
    };
    run_steady(folder.path(), command).0
}

/// Runs a study to its end. If a stream stalls for the whole of so short a window, its trial fails,
/// as it should; other programs on this machine can cause that, so such a study is run again.
fn run_steady(folder: &Path, command: impl Fn(&Path) -> Command) -> (Study, Output) {
    for attempt in 1.. {
        let out = folder.join(format!("study-{attempt}"));
        let mut command = command(&out);
        let output = run_copied(&mut command).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {stderr}"));
        let stood_still = |trial: &Trial| match &trial.status {
            TrialStatus::Failed { fault } => fault.message.contains("nothing moved"),
            _ => false,
        };
        if attempt < 3 && study.trials.iter().any(stood_still) {
            println!("attempt {attempt}, a stream stood still: {stderr}");
            continue;
        }
        assert!(output.status.success(), "{command:?}: {stderr}");
        return (study, output);
    }
    unreachable!("the last attempt returns or fails")
}

fn bytepath(out: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.arg("run").arg("--study").arg(out);
    let given = |flag: &str| arguments.contains(&flag);
    for pair in SHORT.chunks(2).filter(|pair| !given(pair[0])) {
        command.args(pair);
    }
    command.args(arguments);
    command
}

/// The same command under a limit on the size of each file.
fn with_file_size_limit(command: &Command, kilobytes: u32) -> Command {
    let mut limited = Command::new("bash");
    limited.arg("-c").arg("ulimit -f \"$0\"; exec \"$@\"").arg(kilobytes.to_string());
    limited.arg(command.get_program()).args(command.get_args());
    limited
}

/// Checks that a trial ended validly. On a busy machine its figure may have been rejected; its
/// bytes and its ledger are valid.
fn assert_measured(trial: &Trial) {
    match &trial.status {
        TrialStatus::Measured | TrialStatus::Rejected { .. } => {}
        other => panic!("{}: {other:?}", trial.cell),
    }
    assert!(trial.window > 0.0 && trial.count > 0, "{}", trial.cell);
}

fn has_thread(pid: u32, name: &str) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    tasks.flatten().any(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    })
}

fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until both agents are alive, and returns their process ids.
fn a_pair_of_agents(pid: u32) -> Vec<u32> {
    await_that("both agents live", || children_of(pid).len() == 2);
    children_of(pid)
}
