//! Programs that move bytes in rare ways, under `bytepath observe`: counted, or named as not
//! counted. The programs are in `tests/double/uncommon.rs`.

use crate::observe::{double, text, watched, works};
use bytepath::record::{Ending, Observation};
use bytepath_testing::{ControlGroup, beside, skip};
use std::process::Command;

#[test]
fn positioned_calls_on_sockets_count() {
    let Some(seen) = observed("positioned") else { return };
    assert_eq!((seen.sent.ledger.copied, seen.received.ledger.copied), (3000, 3000));
    assert_eq!(seen.sockets.len(), 2);
}

#[test]
fn a_connection_by_fast_open_has_both_addresses_and_its_figures() {
    let Some(seen) = observed("fast-open") else { return };
    assert_eq!((seen.sent.ledger.delivered, seen.received.ledger.delivered), (4000, 4000));
    let [one, other] = &seen.sockets[..] else { panic!("{:#?}", seen.sockets) };
    assert!(one.local.is_some() && one.local == other.remote && one.remote == other.local);
    let tcp = seen.tcp.unwrap();
    assert_eq!(tcp.connections.len(), 2, "{tcp:#?}");
}

#[test]
fn both_ends_of_a_multipath_connection_have_tcp_figures() {
    let enabled = std::fs::read_to_string("/proc/sys/net/mptcp/enabled");
    if enabled.is_ok_and(|text| text.trim() != "1") || !has_multipath() {
        return skip!("this kernel has no MPTCP");
    }
    let Some(seen) = observed("multipath") else { return };
    let kinds: Vec<&str> = seen.sockets.iter().map(|socket| socket.kind.as_str()).collect();
    assert_eq!(kinds, ["mptcp", "mptcp"]);
    assert_eq!((seen.sent.ledger.copied, seen.received.ledger.copied), (5000, 5000));
    let tcp = seen.tcp.unwrap();
    let bytes = |of: fn(&bytepath::record::Connection) -> u64| {
        tcp.connections.iter().map(of).collect::<Vec<u64>>()
    };
    let mut received = bytes(|connection| connection.bytes_received);
    received.sort_unstable();
    // The end of the stream may be counted as a byte.
    assert!(matches!(received[..], [0 | 1, 5000 | 5001]), "{tcp:#?}");
    assert!(tcp.connections.iter().all(|c| !c.remote.ends_with(":0")), "{tcp:#?}");
}

#[test]
fn descendants_that_still_run_are_named() {
    if !works() {
        return;
    }
    let (seen, output) = watched(&["--sample", "none"], &uncommon("left-behind"));
    let child = text(&output.stdout);
    let child: i32 = child.split("child ").nth(1).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(child).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let warning = format!("bytepath observe --pid {child}");
    assert!(seen.warnings.iter().any(|text| text.contains(&warning)), "{:?}", seen.warnings);
}

#[test]
fn mapped_rings_are_named_as_not_counted() {
    if !rustix::process::geteuid().is_root() {
        return skip!("packet sockets need root");
    }
    let Some(seen) = observed("ring") else { return };
    let named = |text: &String| text.contains("maps rings of 1 packet or XDP sockets");
    assert!(seen.warnings.iter().any(named), "{:?}", seen.warnings);
}

#[test]
fn calls_of_32_bit_code_are_decoded() {
    if cfg!(not(target_arch = "x86_64")) || !has_compat() {
        return skip!("this kernel runs no 32-bit code");
    }
    let Some(seen) = observed("compat") else { return };
    assert_eq!((seen.sent.ledger.copied, seen.received.ledger.copied), (1000, 1000));
    let row = |name: &str| {
        let call = seen.calls.iter().find(|call| call.row.name == name);
        call.map(|call| (call.row.calls, call.row.bytes))
    };
    assert_eq!(row("write (32-bit)"), Some((1, 100)));
    assert_eq!(row("socketcall (32-bit)"), Some((1, 200)));
    assert_eq!(row("sendmmsg (32-bit)"), Some((1, 700)));
    assert_eq!(row("read (32-bit)"), Some((4, 1000)));
}

/// With 64 MiB of private memory (`RLIMIT_DATA`) for observer and program each.
#[test]
fn a_small_program_is_profiled_in_little_memory() {
    if !works() {
        return;
    }
    let bytepath = env!("CARGO_BIN_EXE_bytepath");
    let output = Command::new("sh")
        .args(["-c", "ulimit -d 65536; exec \"$0\" observe -- sh -c 'exit 5'", bytepath])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let report = text(&output.stderr);
    assert!(report.contains("Profile of the program"), "{report}");
}

/// Three thousand processes and many samples, under limits on the observer's own memory: the
/// program ends as it would without them, and what is missing is named.
#[test]
fn a_limit_of_memory_takes_from_the_report_alone() {
    if !works() {
        return;
    }
    let _share = beside();
    for limit in ["-d 131072", "-v 262144", "-d 65536", "-v 131072", "-d 40960", "-v 98304"] {
        let lines = format!("ulimit {limit}; exec \"$@\"");
        let output = under(&lines, &["--sample", "10000"], MANY).output().unwrap();
        let report = text(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{limit}: {report}");
        assert!(is_complete_or_names_what_is_missing(&report), "{limit}: {report}");
    }
}

/// Like [`a_limit_of_memory_takes_from_the_report_alone`], in a control group, whose memory limit
/// includes the program.
#[test]
fn a_control_group_s_limit_takes_from_the_report_alone() {
    let group = match ControlGroup::limited("memory", "memory.limit_in_bytes", "64M") {
        Ok(group) if works() => group,
        _ => return skip!("no control group with a limit of memory can be made here"),
    };
    let lines = format!("echo $$ > {}; exec \"$@\"", group.procs().display());
    let output = under(&lines, &["--sample", "10000"], MANY).output().unwrap();
    let report = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{report}");
    assert!(is_complete_or_names_what_is_missing(&report), "{report}");
}

/// A shell script that starts many processes, and exits with 5.
const MANY: &str = "i=0; while [ $i -lt 2000 ]; do (:); i=$((i+1)); done; exit 5";

/// Observes a script in a shell that runs `lines` first.
fn under(lines: &str, options: &[&str], script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", lines, "sh", env!("CARGO_BIN_EXE_bytepath"), "observe"]).args(options);
    command.args(["--", "sh", "-c", script]);
    command
}

fn is_complete_or_names_what_is_missing(report: &str) -> bool {
    ["Profile of the program", "samples are dropped", "no memory"]
        .iter()
        .any(|t| report.contains(t))
}

fn observed(part: &str) -> Option<Observation> {
    works().then(|| {
        let (seen, output) = watched(&["--sample", "none"], &uncommon(part));
        assert_eq!(seen.ending, Ending::Code(0), "{}", text(&output.stderr));
        seen
    })
}

fn uncommon(part: &str) -> Vec<String> {
    [double("uncommon"), vec![part.to_owned()]].concat()
}

fn has_multipath() -> bool {
    std::fs::exists("/proc/sys/net/mptcp").unwrap_or(false)
}

fn has_compat() -> bool {
    std::fs::exists("/proc/sys/abi/vsyscall32").unwrap_or(false)
}
