//! A command that is asked to end, or that may start no more threads, ends: soon, with all that it
//! started, and with the same result whenever it is asked.

use crate::host::{Host, LINES};
use crate::isolated::{isolated, text};
use crate::running::{Running, await_that};
use bytepath::host::differences;
use bytepath::record::TrialStatus;
use bytepath::study::load;
use bytepath_testing::{ControlGroup, shared, skip};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a command may take to end after a signal: its own 2 s, and slack for a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// Waits for the end of a command that was asked to end; returns the exit code and standard error.
fn end_soon(running: &mut Running) -> (Option<i32>, String) {
    let asked = Instant::now();
    while running.0.try_wait().unwrap().is_none() {
        assert!(asked.elapsed() < SOON, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    running.end()
}

#[test]
fn a_signal_to_all_processes_is_a_wish_and_no_fault() {
    isolated(module_path!(), "inside_signals_to_the_group");
}

#[test]
#[ignore = "started in a namespace by a_signal_to_all_processes_is_a_wish_and_no_fault"]
fn inside_signals_to_the_group() {
    let host = Host::new();
    let before = host.look();
    for attempt in 0..8 {
        let name = format!("stopped-{attempt}");
        let mut command = host.study_command(&name, ("4", "300ms"), &LINES[..2]);
        let mut study = Running::start(command.process_group(0));
        // Some are stopped before the first trial, most within one.
        match attempt {
            0 | 1 => std::thread::sleep(Duration::from_millis(300 * (attempt + 1))),
            _ => study.wait_for("[  1/"),
        }
        let group = Pid::from_raw(study.0.id() as i32).unwrap();
        kill_process_group(group, Signal::TERM).unwrap();
        let (code, said) = end_soon(&mut study);
        // A signal that arrives before signals are caught kills the process, which has set nothing
        // yet.
        assert!(code == Some(130) || attempt < 2 && code.is_none(), "{name}: {code:?}: {said}");
        assert_eq!(differences(&before, &host.look()), [""; 0], "{name}: {said}");
        let folder = host.dir.path().join(&name);
        let Ok(kept) = load(&folder) else { continue };
        let failed = |status: &TrialStatus| matches!(status, TrialStatus::Failed { .. });
        assert!(!kept.trials.iter().any(|trial| failed(&trial.status)), "{name}: {said}");
        if attempt == 2 {
            let resumed = host.run(&["resume", &name, "--quiet"]);
            assert!(resumed.status.success(), "{}", text(&resumed));
            assert_eq!(load(&folder).unwrap().trials.len(), 8);
        }
    }
}

#[test]
fn a_report_that_no_one_reads_keeps_no_process() {
    isolated(module_path!(), "inside_a_report_is_not_read");
}

#[test]
#[ignore = "started in a namespace by a_report_that_no_one_reads_keeps_no_process"]
fn inside_a_report_is_not_read() {
    let host = Host::new();
    let (reader, mut full) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    while !matches!(full.write(&[0; 4096]), Err(e) if e.kind() == ErrorKind::WouldBlock) {}
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    let mut command = host.study_command("unread", ("1", "100ms"), &[]);
    command.stdout(full).stderr(Stdio::null());
    let mut study = Running(command.spawn().unwrap());
    let trials = host.dir.path().join("unread/hosts-after.json");
    study.await_that("the study has ended", || trials.exists());
    study.signal(libc::SIGTERM);
    let asked = Instant::now();
    await_that("the process ends", || study.0.try_wait().unwrap().is_some());
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    assert_eq!(study.0.wait().unwrap().code(), Some(130));
    drop(reader);
}

fn fifo(path: &Path) -> &str {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    path.to_str().unwrap()
}

#[test]
fn a_fifo_without_its_other_end_keeps_no_process() {
    let _share = shared();
    let dir = tempfile::tempdir().unwrap();
    let name = |name: &str| dir.path().join(name);
    let fifo = fifo(&name("fifo")).to_owned();
    let out = name("study").to_str().unwrap().to_owned();
    let csv = format!("csv={fifo}");
    let run = ["run", "--path", "socket", "--profile", "none", "--study", &out];
    let kernel = format!("k={fifo}");
    for (arguments, why) in [
        ([&run[..], &["--power", &csv]].concat(), "it is not a regular file (Fifo)"),
        (
            [&run[..], &["--testbed", "vm", "--kernel", &kernel]].concat(),
            "it is not a regular file (Fifo)",
        ),
        (vec!["run", &fifo], ""),
        (vec!["observe", "--sample", "none", "--out", &fifo, "--", "true"], "no program reads"),
        (vec!["paths", "--json", "--out", &fifo], "no program reads from this pipe"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        let mut running = Running::start(command.args(&arguments));
        let begun = Instant::now();
        while running.0.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < 6 * SOON, "{arguments:?} does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let (code, said) = running.end();
        if said.contains("qemu") {
            skip!("{said}");
            continue;
        }
        assert!(!matches!(code, Some(0) | None), "{arguments:?}: {code:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}

#[test]
fn a_package_that_does_not_unpack_ends_with_the_command() {
    let _share = shared();
    let dir = tempfile::tempdir().unwrap();
    let name = |name: &str| dir.path().join(name);
    fs::create_dir(name("bin")).unwrap();
    fs::write(name("bin/dpkg-deb"), "#!/bin/sh\nsleep 600 & echo $! >\"$STARTED\"; wait\n")
        .unwrap();
    fs::set_permissions(name("bin/dpkg-deb"), Permissions::from_mode(0o755)).unwrap();
    fs::write(name("kernel.deb"), "").unwrap();
    let path = format!("{}:{}", name("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.args(["run", "--path", "socket", "--testbed", "vm", "--profile", "none"]);
    command.arg("--kernel").arg(format!("k={}", name("kernel.deb").display()));
    command.arg("--study").arg(name("study")).env("PATH", path).env("STARTED", name("started"));
    command.env("XDG_CACHE_HOME", name("cache"));
    let mut running = Running::start(&mut command);
    let started = || fs::read_to_string(name("started")).is_ok_and(|text| text.ends_with('\n'));
    await_that("the package is being unpacked", || {
        started() || running.0.try_wait().unwrap().is_some()
    });
    if !started() {
        return skip!("no guest can be started here: {}", running.end().1);
    }
    running.signal(libc::SIGTERM);
    let (code, said) = end_soon(&mut running);
    assert_eq!(code, Some(130), "{said}");
    let left = fs::read_dir(name("cache/bytepath/unpacked")).unwrap().count();
    assert_eq!(left, 0, "what was unpacked is gone");
    let pid = fs::read_to_string(name("started")).unwrap();
    await_that("what the program started has ended", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn limits_of_threads_and_memory_are_errors() {
    isolated(module_path!(), "inside_limits");
}

/// Runs a study in a shell after `first`, and checks that it ends with its settings restored.
fn limited(host: &Host, first: &str, words: &[&str]) -> Option<(Option<i32>, String)> {
    let before = host.look();
    let _ = fs::remove_dir_all(host.dir.path().join("limited"));
    let study = host.study_command("limited", ("1", "100ms"), &LINES[1..2]);
    let mut command = Command::new("sh");
    let script = format!("{first}; exec \"$@\"");
    command.args(["-c", &script]).args(words).arg(study.get_program()).args(study.get_args());
    command.current_dir(host.dir.path()).env("RUST_BACKTRACE", "1");
    command.env("BYTEPATH_STATE", host.dir.path().join("state"));
    let mut running = Running::start(&mut command);
    let begun = Instant::now();
    while running.0.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < 6 * SOON, "{first} {words:?}: it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (code, said) = running.end();
    assert!(!said.contains("panicked at"), "{first} {words:?}: {said}");
    code?;
    assert_eq!(differences(&before, &host.look()), [""; 0], "{first} {words:?}: {said}");
    Some((code, said))
}

#[test]
#[ignore = "started in a namespace by limits_of_threads_and_memory_are_errors"]
fn inside_limits() {
    let host = Host::new();
    let group = match ControlGroup::limited("pids", "pids.max", "max") {
        Ok(group) => group,
        Err(e) => return skip!("no control group can be made: {e}"),
    };
    let procs = group.procs();
    let (mut refused, limits) = (0, (1..14).chain([18, 24, 32]));
    let all = limits.clone().count();
    for most in limits {
        group.set("pids.max", most).unwrap();
        let first = "echo $$ >\"$0\"";
        let ended = limited(&host, first, &[procs.to_str().unwrap()]);
        let (code, said) = ended.unwrap_or_else(|| panic!("{most}: a signal ended it"));
        refused += usize::from(code != Some(0));
        let named = said.contains("pids.max");
        assert!(code == Some(0) || named, "{most}: {code:?}: {said}");
    }
    assert!(
        (1..all).contains(&refused),
        "some of these limits suffice, and some do not: {refused}"
    );
    // A limit on data, which includes stacks.
    for kib in [4000, 8000, 16_000] {
        let _ = limited(&host, &format!("ulimit -d {kib}"), &["sh"]);
        let restored = host.run(&["restore"]);
        assert!(restored.status.success(), "{kib}: {}", text(&restored));
    }
}

#[test]
fn a_small_stack_is_enough() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -s 64; exec \"$0\" paths --json", env!("CARGO_BIN_EXE_bytepath")]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}
