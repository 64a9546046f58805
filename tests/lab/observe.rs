//! Real programs under `bytepath observe`: exact counts of calls and bytes,
//! threads and children followed, exit codes kept.
//!
//! The program that is watched is mostly the double, whose calls are known ([`calls`]).

use crate::calls::{FAILURES, READS, SIZE, WRITES};
use bytepath::record::{CpuSource, Ending, Manner, Observation, ObservedCall};
use bytepath_testing::{run_copied, shared, skip};
use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// As with perf stat and strace, options after the program are its own.
#[test]
fn a_program_needs_no_dashes_before_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command
        .args(["observe", "--sample", "none", "--count", "none", "sh", "-c", "exit 3", "--json"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).starts_with("bytepath observe: sh -c "), "{output:?}");
}

#[test]
fn every_call_of_four_threads_and_three_children_is_counted() {
    if !works() {
        return;
    }
    let (seen, output) = watched(&["--count", "task-storage"], &double("family"));
    assert_eq!(seen.ending, Ending::Code(7));
    // Thread i makes i + 1 times as many calls; so does child i.
    for i in 0..4u64 {
        let times = i + 1;
        let thread = seen.threads.iter().find(|t| t.name == format!("known-{i}")).unwrap();
        let read = call(&seen, thread.tid, "read");
        assert_eq!((read.row.calls, read.row.bytes), (times * READS, times * READS * SIZE));
        let write = call(&seen, thread.tid, "write");
        assert_eq!((write.row.calls, write.row.bytes), (times * WRITES, times * WRITES * SIZE));
        let close = call(&seen, thread.tid, "close");
        assert_eq!((close.row.errors, close.row.bytes), (times * FAILURES, 0));
        assert!(thread.ended && thread.pid == seen.pid, "{thread:?}");
    }
    let children: Vec<u32> = text(&output.stdout)
        .lines()
        .filter_map(|line| line.strip_prefix("child ")?.parse().ok())
        .collect();
    assert_eq!(children.len(), 3);
    for (times, child) in (1..).zip(children) {
        let write = call(&seen, child, "write");
        assert_eq!((write.row.calls, write.row.bytes), (times * WRITES, times * WRITES * SIZE));
        let thread = seen.threads.iter().find(|t| t.tid == child).unwrap();
        assert!(thread.ended && thread.pid == child && thread.parent != 0, "{thread:?}");
    }
    sound(&seen);
    println!("{} calls in {} rows", total(&seen), seen.calls.len());
}

#[test]
fn bytes_of_sockets_go_to_their_ledger_by_the_way_they_took() {
    if !works() {
        return;
    }
    let (seen, _) = watched(&["--count", "task-storage"], &double("sockets"));
    assert_eq!(seen.ending, Ending::Code(0), "{seen:#?}");
    let entered = |sent: bool, manner: Manner, words: &str| {
        let ledger = if sent { &seen.sent.ledger } else { &seen.received.ledger };
        let found = ledger.evidence.iter().find(|e| e.source.contains(words));
        found.filter(|e| e.manner == manner).map_or((0, 0), |e| (e.bytes, e.events))
    };
    // The calls of `calls::sockets`, by their manner.
    assert_eq!(entered(true, Manner::Copied, "write and send"), (40_000 + 10_000 + 600 + 3_000, 7));
    assert_eq!(entered(true, Manner::Unknown, "MSG_ZEROCOPY"), (20_000, 1));
    assert_eq!(entered(true, Manner::Unknown, "sendfile"), (8_192, 1));
    let received = &seen.received.ledger;
    assert_eq!(entered(false, Manner::Discarded, "MSG_TRUNC").0, 5_000);
    assert_eq!(received.delivered, 40_000 + 10_000 + 20_000 + 8_192 + 600 + 3_000);
    assert_eq!(received.copied, received.delivered - 5_000);
    assert!(seen.warnings.iter().any(|w| w.starts_with("100 bytes were read with MSG_PEEK")));
    // Both ends are closed by now, but were still recorded.
    let tcp: Vec<_> = seen.sockets.iter().filter(|s| s.kind == "tcp").collect();
    assert_eq!(tcp.len(), 2, "{tcp:#?}");
    assert_eq!(tcp[0].local, tcp[1].remote);
    assert_eq!(tcp[0].remote, tcp[1].local);
    let unix: Vec<_> = seen.sockets.iter().filter(|s| s.kind == "unix").collect();
    assert_eq!(unix.iter().map(|s| s.sent).sum::<u64>(), 3_600);
    assert_eq!(unix.iter().map(|s| s.received).sum::<u64>(), 3_600);
    assert_eq!(seen.received.label, "94 % copied");
    sound(&seen);
}

#[test]
fn exit_codes_and_signals_are_the_program_s() {
    for (script, code, ending) in [
        ("exit 0", 0, Ending::Code(0)),
        ("exit 41", 41, Ending::Code(41)),
        ("kill -KILL $$", 128 + 9, Ending::Signal(9)),
        ("kill -SEGV $$", 128 + 11, Ending::Signal(11)),
    ] {
        let (seen, output) = watched(&["--count", "auto"], &["sh", "-c", script].map(String::from));
        assert_eq!((output.status.code(), seen.ending), (Some(code), ending), "{script}");
    }
    let output = bytepath(&["observe", "--", "/nowhere/to/be/found"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("/nowhere/to/be/found"), "{}", text(&output.stderr));
}

#[test]
fn the_program_keeps_its_streams() {
    let mut child = bytepath(&["observe", "--", "sh", "-c", "cat; echo complaint >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"through and through").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "through and through");
    let errors = text(&output.stderr);
    assert!(errors.starts_with("complaint\n"), "{errors}");
    assert!(errors.contains("bytepath observe: sh -c"), "{errors}");
}

#[test]
fn a_signal_for_us_reaches_the_program_and_the_report_follows() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("report");
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child =
        bytepath(&["observe", "--out", out.to_str().unwrap(), "--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    wait_for(child.stdout.as_mut().unwrap(), "ready");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert!(std::fs::read_to_string(&out).unwrap().contains("exit code 9"));
}

/// The signals from 1 to 31, as bits, that a program ignores when run by a shell that ignores
/// `signals`; `under` is what the shell runs the program with. (32 and 33 belong to the C library.)
fn ignored(signals: &str, under: &str) -> u64 {
    let script = format!("trap '' {signals}; exec {under} grep SigIgn /proc/self/status");
    let output =
        Command::new("env").args(["--default-signal", "sh", "-c", &script]).output().unwrap();
    let bits = text(&output.stdout);
    let bits = bits.strip_prefix("SigIgn:").unwrap_or_else(|| panic!("{}", text(&output.stderr)));
    u64::from_str_radix(bits.trim(), 16).unwrap() & 0x7fff_ffff
}

#[test]
fn program_inherits_ignored_signals() {
    let observed = format!("{} observe --sample none --", env!("CARGO_BIN_EXE_bytepath"));
    for (signals, bits) in
        [("USR1", 0x200), ("INT HUP QUIT", 0x7), ("INT PIPE TERM", 0x5002), ("PIPE", 0x1000)]
    {
        assert_eq!((ignored(signals, ""), ignored(signals, &observed)), (bits, bits), "{signals}");
    }
}

#[test]
fn ctrl_c_is_for_the_program_and_the_report_follows() {
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("report");
    let script = "trap 'exit 12' INT; echo ready; while :; do sleep 0.05; done";
    // Its own process group, as a shell gives to every job: a terminal sends Ctrl-C to the whole
    // group.
    let mut child =
        bytepath(&["observe", "--out", out.to_str().unwrap(), "--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
    wait_for(child.stdout.as_mut().unwrap(), "ready");
    let group = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process_group(group, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(12));
    assert!(std::fs::read_to_string(&out).unwrap().contains("exit code 12"));
}

#[test]
fn a_process_that_runs_is_watched_with_all_its_threads() {
    let _shared = shared();
    if !works() {
        return;
    }
    let words = double("endless");
    let mut program = Command::new(&words[0])
        .args(&words[1..])
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(program.stdout.as_mut().unwrap(), "ready");
    let pid = program.id().to_string();
    let output = bytepath(&["observe", "--json", "--count", "task-storage"])
        .args(["--pid", &pid, "--for", "400ms"])
        .output()
        .unwrap();
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let seen = parse(&output.stderr);
    assert_eq!(seen.ending, Ending::Running);
    for i in 0..3 {
        let name = format!("endless-{i}");
        let thread = seen.threads.iter().find(|t| t.name == name);
        let thread = thread.unwrap_or_else(|| panic!("no {name} in {seen:#?}"));
        let write = call(&seen, thread.tid, "write");
        assert!(write.row.calls > 10, "{write:?}");
        assert_eq!(write.row.bytes, write.row.calls * SIZE);
        let time = thread.time.as_ref().unwrap();
        assert!(time.run < seen.seconds * 1.5, "time from before counts: {time:?}");
    }
    assert_eq!(seen.used.unwrap().source, CpuSource::Threads);
    sound(&seen);
}

#[test]
fn counts_are_those_of_strace() {
    if Command::new("strace").arg("-V").output().is_err() || !works() {
        skip!("no strace, or nothing that counts");
        return;
    }
    let words = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1000", "count=345"];
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("strace");
    let traced = Command::new("env")
        .args(["--default-signal", "strace", "-f", "-c", "-U", "calls,errors,name", "-o"])
        .arg(&table)
        .args(words)
        .output()
        .unwrap();
    if !traced.status.success() {
        skip!("{}", text(&traced.stderr));
        return;
    }
    let table = std::fs::read_to_string(&table).unwrap();
    let mut compared = 0;
    let (seen, _) = watched(&["--count", "task-storage"], &words.map(String::from));
    for line in table.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some(Ok(calls)), Some(name)) =
            (fields.first().map(|n| n.parse::<u64>()), fields.last())
        else {
            continue;
        };
        if *name == "total" {
            continue;
        }
        let errors = if fields.len() > 2 { fields[1].parse().unwrap() } else { 0 };
        let ours = call(&seen, seen.pid, name);
        assert_eq!((ours.row.calls, ours.row.errors), (calls, errors), "{name}");
        compared += 1;
    }
    println!("compared {compared} rows");
    assert!(compared > 10, "{table}");
}

#[test]
fn mapped_bytes_are_those_that_the_program_knows_of() {
    if !works() {
        return;
    }
    // A program that keeps its own ledger, from the results of the same calls.
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("study");
    let program = env!("CARGO_BIN_EXE_bytepath");
    let words = [program, "run", "--path", "splice+tcp-zerocopy-receive", "--blocks", "1"]
        .into_iter()
        .chain(["--warm-up", "100ms", "--window", "300ms", "--study", study.to_str().unwrap()])
        .map(String::from);
    let (seen, output) = watched(&["--count", "task-storage"], &words.collect::<Vec<_>>());
    if seen.ending != Ending::Code(0) {
        // Other programs were busy, for example; the last line has the reason.
        let said = text(&output.stderr);
        let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        skip!("{why}");
        return;
    }
    let trials = std::fs::read_to_string(study.join("trials.jsonl")).unwrap();
    let mut mapped = 0;
    for line in trials.lines() {
        let trial: bytepath::record::Trial = serde_json::from_str(line).unwrap();
        let receiver = trial.role(bytepath::record::Role::Receiver).unwrap();
        mapped += receiver.ledger.not_copied;
    }
    assert!(mapped > 1 << 20, "{trials}");
    assert_eq!(seen.received.ledger.not_copied, mapped);
    assert_eq!(seen.received.label, "not copied");
    assert_eq!(seen.sent.label, "unknown", "splice is not proof");
    println!("{mapped} bytes mapped, by its ledger and by ours");
}

#[test]
fn functions_of_the_profile_are_in_the_json_as_in_the_text() {
    let words = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=4000"].map(String::from);
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("profile.pb.gz").display().to_string();
    let (seen, _) = watched(&["--sample", "499", "--profile-out", &kept], &words);
    let Some(profile) = &seen.profile else {
        let why = seen.absent.iter().find(|absent| absent.what == "profile").unwrap();
        return skip!("{why:?}");
    };
    let own: f64 = profile.functions.iter().map(|function| function.own).sum();
    assert!(profile.samples > 0 && (own / profile.total - 1.0).abs() < 1e-9, "{profile:?}");
    assert!(profile.functions.iter().any(|function| function.kernel == Some(true)), "{profile:?}");
    let shown = bytepath(&["profile", &kept, "--top", "1"]).output().unwrap();
    let first = &profile.functions[0].function;
    assert!(text(&shown.stdout).contains(first.as_str()), "{first}: {}", text(&shown.stdout));
}

#[test]
fn without_counting_the_program_still_runs_and_the_reason_is_there() {
    let (seen, output) = watched(&["--count", "none"], &["sh", "-c", "exit 5"].map(String::from));
    assert_eq!((output.status.code(), seen.counter), (Some(5), None));
    assert!(seen.calls.is_empty() && seen.absent[0].reason.contains("not requested"));
    assert!(seen.used.is_some());
}

/// Without counting of calls, the samples still show what the program's children did.
#[test]
fn without_counting_the_samples_of_children_are_there() {
    let burn = "i=0; while [ $i -lt 400000 ]; do i=$((i + 1)); done";
    let words = ["sh", "-c", &format!("({burn}) & ({burn}) & wait")].map(String::from);
    let (seen, _) = watched(&["--count", "none", "--sample", "499"], &words);
    let Some(profile) = &seen.profile else {
        let why = seen.absent.iter().find(|absent| absent.what == "profile").unwrap();
        return skip!("{why:?}");
    };
    let used = seen.used.unwrap();
    let used = used.user + used.system;
    assert!(profile.total > 0.5 * used, "{} of {used} CPU-s are in the profile", profile.total);
}

#[test]
fn an_ordinary_user_gets_reasons_and_remedies() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        skip!("not root, see the other tests");
        return;
    }
    // A copy in a folder that everyone may enter.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("bytepath");
    std::fs::copy(env!("CARGO_BIN_EXE_bytepath"), &program).unwrap();
    let mut command = Command::new(&program);
    command.args(["observe", "--json", "--", "sh", "-c", "exit 6"]);
    let nobody = command.uid(65_534).gid(65_534).current_dir("/");
    let output = run_copied(nobody).unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", text(&output.stderr));
    let seen = parse(&output.stderr);
    if seen.counter.is_none() {
        assert!(!seen.absent.is_empty(), "{:#?}", seen.absent);
        let bpf = &seen.absent[0];
        assert!(bpf.remedy.as_ref().is_some_and(|r| r.contains("CAP_BPF")), "{bpf:?}");
    }
    // What is requested by name must work.
    let output = Command::new(&program)
        .args(["observe", "--count", "task-storage", "--", "true"])
        .uid(65_534)
        .gid(65_534)
        .current_dir("/")
        .output()
        .unwrap();
    if seen.counter.is_none() {
        assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    }
}

/// Whether counting works here. If not, the message must be useful.
pub fn works() -> bool {
    let output = bytepath(&["observe", "--count", "task-storage", "--", "true"]).output().unwrap();
    match output.status.code() {
        Some(0) => true,
        Some(1 | 3 | 4) => {
            skip!("{}", text(&output.stderr));
            assert!(text(&output.stderr).len() > 20);
            false
        }
        other => panic!("{other:?}: {}", text(&output.stderr)),
    }
}

/// Runs a program under observation; the report is written to a file as JSON.
pub fn watched(options: &[&str], words: &[String]) -> (Observation, Output) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("observation.json");
    let output = bytepath(&["observe", "--json", "--out", out.to_str().unwrap()])
        .args(options)
        .arg("--")
        .args(words)
        .output()
        .unwrap();
    let bytes = std::fs::read(&out).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    (parse(&bytes), output)
}

/// The double's command line for `part`.
pub fn double(part: &str) -> Vec<String> {
    vec![bytepath_testing::double().to_str().unwrap().to_owned(), part.to_owned()]
}

fn bytepath(arguments: &[&str]) -> Command {
    // Tests that run in the background of a shell inherit an ignored SIGINT.
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_bytepath")]).args(arguments);
    command
}

pub fn parse(bytes: &[u8]) -> Observation {
    serde_json::from_slice(bytes).unwrap_or_else(|e| panic!("{e}: {}", text(bytes)))
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn call<'a>(seen: &'a Observation, tid: u32, name: &str) -> &'a ObservedCall {
    let mut calls = seen.calls.iter().filter(|call| call.tid == tid && call.row.name == name);
    calls.next().unwrap_or_else(|| panic!("{tid} made no {name}: {:#?}", seen.threads))
}

fn total(seen: &Observation) -> u64 {
    seen.calls.iter().map(|call| call.row.calls).sum()
}

/// Checks what holds for every table.
fn sound(seen: &Observation) {
    assert!(!seen.calls.is_empty());
    for call in &seen.calls {
        let row = &call.row;
        assert!(row.min <= row.avg * 1.000_001 && row.avg <= row.max * 1.000_001, "{call:?}");
        assert!(row.errors <= row.calls && row.total <= seen.seconds * 1.1, "{call:?}");
        assert_eq!(call.histogram.iter().sum::<u64>(), row.calls, "{call:?}");
        assert!(row.stddev_percent >= 0.0 && row.stddev_percent <= 100.1, "{call:?}");
    }
    for ledger in [&seen.sent.ledger, &seen.received.ledger] {
        let sum = ledger.copied + ledger.not_copied + ledger.discarded + ledger.unknown;
        assert_eq!(ledger.delivered, sum);
    }
    assert!(!seen.warnings.iter().any(|w| w.contains("no room")), "{:?}", seen.warnings);
}

/// Reads until a line contains `words`.
pub fn wait_for(from: &mut impl Read, words: &str) {
    let (begun, mut all) = (Instant::now(), Vec::new());
    let mut byte = [0];
    while !text(&all).contains(words) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", text(&all));
        assert_eq!(from.read(&mut byte).unwrap(), 1, "{}", text(&all));
        all.push(byte[0]);
    }
}

/// Tests that need a quiet machine: `make timing`.
mod timing {
    use super::*;
    use std::net::TcpListener;

    #[test]
    #[ignore = "timing"]
    fn iperf3_is_seen_as_it_sees_itself() {
        if Command::new("iperf3").arg("-v").output().is_err() || !works() {
            skip!("no iperf3, or nothing that counts");
            return;
        }
        let port =
            TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let mut server = Command::new("iperf3")
            .args(["-s", "-1", "-p", &port, "--forceflush"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for(server.stdout.as_mut().unwrap(), "listening");
        let words = ["iperf3", "-c", "127.0.0.1", "-p", &port, "-t", "1", "-P", "2", "-J"];
        let (seen, output) = watched(&[], &words.map(String::from));
        server.kill().unwrap();
        server.wait().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let itself = json["end"]["sum_sent"]["bytes"].as_u64().unwrap();
        let ours: u64 = seen.sockets.iter().filter(|s| s.sent > 1 << 20).map(|s| s.sent).sum();
        // iperf3 stops counting at the end of its time, with a block of each stream in flight.
        let apart = ours.abs_diff(itself);
        assert!(apart <= 2 * 128 * 1024 + 100, "we saw {ours}, iperf3 says {itself}");
        assert_eq!(seen.sockets.len(), 3, "two streams and the control connection");
        assert_eq!(seen.sent.label, "copied");
        assert!(seen.sockets[0].remote.as_ref().unwrap().ends_with(&format!(":{port}")));
        sound(&seen);
        println!("iperf3 says {itself} bytes, {ours} went through its sockets");
    }
}
