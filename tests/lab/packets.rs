//! Frames into a tap and across a veth pair, by the built binary: every frame is accounted for, no
//! matter what was lost on its way, and trouble ends in a clear message.

use crate::running::{Running, said};
use crate::testbed::unavailable;
use bytepath::record::{Hops, Role, Scope, Study, Trial, TrialStatus};
use bytepath::study::load;
use bytepath::sys::namespace::privileged;
use bytepath::sys::netlink::Netlink;
use bytepath_testing::{shared, skip};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

/// Short trials that are not rejected for other programs' work.
const SHORT: &[&str] =
    &["--blocks=1", "--warm-up=50ms", "--window=200ms", "--profile=none", "--cores=unpinned"];

pub fn command(out: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.arg("run").arg("--study").arg(out).args(SHORT).args(arguments);
    if !arguments.iter().any(|argument| argument.starts_with("--meters")) {
        command.arg("--meters=none");
    }
    command
}

/// Runs a study of one cell and its copy; returns the first trial of the cell.
pub fn run(workload: &str, path: &str, link: &str, flows: u32) -> (Study, Trial, Hops) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let stream = format!("--stream=flows={flows},touch=verify");
    let workload = format!("--workload={workload}");
    let (path, link) = (format!("--path={path}"), format!("--link={link}"));
    let (code, _, stderr) = said(&mut command(&out, &[&workload, &path, &link, &stream]));
    assert_eq!(code, 0, "{workload} {path} {link}: {stderr}");
    let study = load(&out).unwrap();
    for trial in &study.trials {
        assert_eq!(trial.status, TrialStatus::Measured, "{workload} {path} {link}");
        let hops = trial.hops.expect("frames are counted at every hop");
        assert_eq!(hops.unaccounted(), 0, "{path} {link}: {hops:?}");
    }
    let trial = study.trials[0].clone();
    let hops = trial.hops.unwrap();
    (study, trial, hops)
}

#[test]
fn every_frame_is_found_again_under_overload() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    // Readers that stop early are overloaded even on a fast machine.
    for (workload, path, link, flows) in [
        ("packets", "packet+tap", "tap", 1),
        ("packets", "packet+tap:stop-after=5000", "tap", 1),
        ("packets", "packet+tap:stop-after=5000", "tap:qdisc=pfifo,queue-length=50", 4),
        ("packets", "packet+tap:stop-after=100", "tap:queues=2,vnet-header=on", 2),
        ("packets:frame=imix,burst=7", "packet:bypass=on+tap:stop-after=2000", "tap", 2),
        ("packets:frame=60-1514", "packet-ring+tap:stop-after=3000", "tap:qdisc=pfifo", 1),
        ("packets", "packet-ring:bypass=on+tap", "tap", 1),
        ("packets:frame=imix", "packet+tap:by=readv,stop-after=3000", "tap:vnet-header=on", 1),
        ("packets:frame=60-1514", "packet+tap:by=readv", "tap", 1),
        ("packets", "packet+tap:by=uring,depth=16,stop-after=3000", "tap:queues=2", 2),
        ("packets:frame=imix", "packet+tap:by=uring", "tap:vnet-header=on", 1),
    ] {
        let (_, trial, hops) = run(workload, path, link, flows);
        assert!(hops.received > 0, "{path} {link}: {hops:?}");
        assert_eq!(hops.strays, 0, "{path} {link}: {hops:?}");
        if path.contains("stop-after") {
            assert!(hops.device_dropped > 0, "{path} {link}: {hops:?}");
            assert!(hops.ring_queued > 0, "{path} {link}: {hops:?}");
        }
        let [sender, receiver] = trial.roles.as_slice() else { panic!("two roles") };
        assert_eq!(sender.ledger.delivered, sender.total_bytes);
        assert_eq!(receiver.ledger.delivered, receiver.total_bytes);
        assert_eq!(trial.window, receiver.window, "the sink's window is the trial's");
    }
}

#[test]
fn frames_cross_a_veth_pair_into_rings() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    for (path, link, flows) in [
        ("packet+packet-ring", "offload:qdisc=pfifo", 1),
        ("packet-ring+packet-ring:slots=64", "offload", 2),
        ("packet:bypass=on+packet-ring", "wire:mtu=1500,threaded-napi=off", 1),
        ("packet+packet", "offload", 2),
        ("packet+packet:buffer=64K", "offload", 1),
    ] {
        let (_, _, hops) = run("packets:frame=60-1514", path, link, flows);
        assert!(hops.received > 0, "{path} {link}: {hops:?}");
    }
}

#[test]
fn accounts_for_frames_that_a_sink_leaves() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    let link = "tap:qdisc=pfifo,queue-length=32";
    let (_, _, hops) = run("packets", "packet+tap:stop-after=0", link, 1);
    assert_eq!((hops.received, hops.ring_queued), (0, 32), "{hops:?}");
    assert_eq!(hops.lost() + 32, hops.generated(), "{hops:?}");
}

#[test]
fn a_trial_by_count_ends_with_the_last_frame() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    let (_, trial, hops) = run("packets:count=30001", "packet+tap", "tap", 2);
    assert_eq!(hops.sent(), 30_001, "{hops:?}");
    assert_eq!(trial.count, hops.received);
    let window = trial.role(Role::Sender).unwrap().window;
    assert!(window > 0.0 && trial.window == window, "{} {window}", trial.window);
    let paced = "packets:count=300,rate=1000";
    let (_, trial, hops) = run(paced, "packet+tap", "tap", 1);
    assert_eq!(hops.generated(), 300, "{hops:?}");
    assert!(trial.window > 0.29, "300 frames at 1000 a second took {} s", trial.window);
}

#[test]
fn reports_say_where_frames_went() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let arguments = ["--workload=packets", "--path=packet+tap", "--link=tap", "--stream=flows=2"];
    let (code, text, stderr) = said(&mut command(&out, &arguments));
    assert_eq!(code, 0, "{stderr}");
    assert!(text.contains("Where the frames went"), "{text}");
    assert!(text.contains("2 generating threads") && !text.contains("TCP"), "{text}");
    let mut show = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    let (code, mail, stderr) = said(show.arg("show").arg(&out).args(["--format", "netdev"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(mail.contains("| Transmitted |") && mail.contains("| a thread    |"), "{mail}");
    assert!(mail.lines().all(|line| line.len() <= 72), "{mail}");
}

/// Meters and profiles of two short cells; software events replace the machine's counters if it has
/// none.
#[test]
fn counters_sleeps_and_profiles_of_both_ends_explain_the_rate() {
    if unavailable() {
        return;
    }
    if !privileged() {
        return skip!("threads are counted by root alone");
    }
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.arg("run").arg("--study").arg(&out).args([
        "--workload=packets",
        "--path=packet+tap",
        "--path=packet:bypass=on+tap",
        "--link=tap",
        "--blocks=1",
        "--warm-up=50ms",
        "--window=200ms",
        "--meters=threads,syscalls,softirqs,ipis,counters",
        "--profile=all:trials=1,window=300ms",
        "--cores=unpinned",
    ]);
    let (code, text, stderr) = said(&mut command);
    assert_eq!(code, 0, "{stderr}");
    let study = load(&out).unwrap();
    for trial in &study.trials {
        assert_eq!(trial.status, TrialStatus::Measured, "{stderr}");
        for role in Role::ALL {
            let scope = Scope::Threads(role, "flows".into());
            let clock = trial.reading("counters.task-clock", &scope).unwrap();
            let wall = trial.reading("counters.wall", &Scope::Role(role)).unwrap();
            assert!(clock > 0.0 && clock < 1.05 * wall, "{role}: {clock} s of {wall} s");
            let switches = trial.reading("counters.context-switches", &scope).unwrap();
            let thread = &trial.role(role).unwrap().threads[0];
            // Counters are enabled before the meter `threads` reads, and disabled after it.
            let least = (thread.voluntary + thread.involuntary) as f64;
            assert!(switches >= least, "{role}: {switches} and {least}");
        }
        let calls = trial.readings.iter().filter(|r| r.metric == "ipis.call");
        assert!(calls.clone().count() > 0 && calls.map(|r| r.value).all(|count| count >= 0.0));
    }
    for words in
        ["Why the packet rate differs", "Counters of each group", "Per-packet cost by endpoint"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let names: Vec<String> = study.profiles.iter().map(|t| t.cell.to_string()).collect();
    let sides = [&names[0], &names[1]].map(|name| format!("{}#{name}", out.display()));
    let mut diff = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    let (code, text, stderr) = said(diff.arg("diff").args(&sides).args(["--explain", "text"]));
    assert_eq!(code, 0, "{stderr}");
    for words in
        ["Why the packet rate differs", "takes in", "CPU-ns/packet", "Per-packet cost by endpoint"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let mut show = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    let (_, csv, _) = said(show.arg("show").arg(&out).args(["--format", "csv"]));
    assert!(csv.contains("sink.frames-per-read") && csv.contains("sink.frames-per-wake,"), "{csv}");
}

#[test]
fn refuses_impossible_requests_by_name() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| {
        let (code, _, stderr) = said(&mut command(&folder.path().join("none"), arguments));
        assert_ne!(code, 0, "{arguments:?}: {stderr}");
        stderr
    };
    let packets = "--workload=packets";
    // No such devices are needed: the link is refused before any device is looked for.
    let ports = "--testbed=ports:sender=pa,receiver=pb";
    for (arguments, words) in [
        (&["--path=socket", "--link=tap"][..], "a tap does not carry TCP"),
        (&[packets, "--path=socket", "--link=offload"], "path 'socket' does not speak frames"),
        (&[packets, "--path=packet+tap", "--link=wire"], "the link is not a tap"),
        (&[packets, "--path=packet+packet-ring", "--link=tap"], "is not a device"),
        (&["--workload=packets:frame=1515", "--path=packet+tap", "--link=tap"], "an MTU of 1500"),
        (&["--workload=packets:frame=59", "--path=packet+tap", "--link=tap"], "frames of 59"),
        (&[packets, "--path=packet+tap", "--link=tap:queue-length=0"], "outside 1 to 65536"),
        (&[packets, "--path=packet+packet-ring", ports], "--unshared-link"),
        (&[packets, "--path=packet+tap", "--link=macvtap:backpressure=on"], "not of macvtap"),
    ] {
        let said = refused(arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let known = bytepath::sys::tap::known_flags();
    if known.is_ok_and(|flags| flags & bytepath::sys::tap::BACKPRESSURE == 0) {
        let said = refused(&[packets, "--path=packet+tap", "--link=tap:backpressure=on"]);
        assert!(said.contains("IFF_BACKPRESSURE") && said.contains("Linux 7.3"), "{said}");
    }
}

#[test]
fn a_device_that_vanishes_fails_the_trial_by_name() {
    for (path, link) in [
        ("packet+tap", "tap"),
        ("packet+tap:by=uring", "tap"),
        ("packet+tap", "macvtap"),
        ("packet+packet", "offload"),
    ] {
        vanishes(path, link);
    }
}

fn vanishes(path: &str, link: &str) {
    if unavailable() {
        return;
    }
    if !privileged() {
        return skip!("another's namespace is entered by root alone");
    }
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let path = format!("--path={path}");
    let link = format!("--link={link}");
    let arguments = ["--workload=packets:count=100000000", &path, &link];
    let mut running = Running::start(&mut command(&out, &arguments));
    // The agents are children of one of the controller's threads.
    let id = running.0.id();
    running.await_that("a device that takes frames is gone", || {
        children(id).into_iter().any(|agent| vanish(agent).unwrap_or(false))
    });
    let study = || load(&out).ok().filter(|study| !study.trials.is_empty());
    running.await_that("the trial has failed", || study().is_some());
    let study = study().unwrap();
    let TrialStatus::Failed { fault } = &study.trials[0].status else { panic!("{study:?}") };
    assert!(fault.message.contains("flow 0"), "{path}: {fault}");
    assert!(fault.remedy.as_ref().is_some_and(|remedy| remedy.contains("removed")), "{fault:?}");
    running.kill();
}

/// Process ids of the children of all threads of a process.
fn children(id: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
    let all: String = lists.collect();
    all.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Deletes the device of an agent's namespace once frames flow into it. `None` if there is no such
/// device or no frame yet.
fn vanish(agent: u32) -> Option<bool> {
    let namespace = File::open(format!("/proc/{agent}/ns/net")).ok()?;
    // A thread enters the namespace, and ends with it.
    let work = move || {
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), network).ok()?;
        let mut netlink = Netlink::new();
        let link = netlink.link("byte0").ok()??;
        let flows = std::fs::read_to_string("/proc/thread-self/net/dev").ok()?;
        let sent = flows.lines().find_map(|line| line.trim().strip_prefix("byte0:"))?;
        let packets: u64 = sent.split_whitespace().nth(9)?.parse().ok()?;
        (packets > 0).then(|| netlink.delete_link(link.index).is_ok())
    };
    std::thread::spawn(work).join().unwrap()
}
