//! Hosts that are lost while a study runs on them: connections that are cut in each phase of a
//! trial, a host that does not come back, a controller that is killed. The hosts are those of
//! `ssh.rs`.

use crate::agents::{self, Agent};
use crate::isolated::{isolated, text};
use crate::places::Place;
use crate::running::{Running, await_that, signal};
use crate::ssh::{Host, Lab, failure};
use bytepath::record::wire::Finish;
use bytepath::record::{Cell, Half, TrialStatus};
use bytepath::study::load;
use bytepath_testing::skip;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The setting made at the receiver, with its device.
const SET: &str = "receiver: mtu to-sender 1400";
const DEVICE: &str = "to-sender";

#[test]
fn a_cut_in_each_phase_costs_one_trial() {
    isolated(module_path!(), "inside_a_cut_in_each_phase");
}

#[test]
#[ignore = "started in a namespace by a_cut_in_each_phase_costs_one_trial"]
fn inside_a_cut_in_each_phase() {
    let Some(lab) = Lab::new() else { return };
    if !drains_slowly(&lab.hosts[0]) {
        return;
    }
    let out = lab.dir.path().join("cut");
    let options = ["--blocks", "4", "--warm-up", "2s", "--window", "2s", "--set", SET];
    let buffer = ["--stream", "send-buffer=8M"];
    let mut run = Running::start(&mut lab.run(&out, &[&options[..], &buffer].concat()));
    let [sender, receiver] = &lab.hosts;
    let cut = |host: &Host| {
        host.cut();
        if host.place.name == receiver.place.name {
            await_that("the MTU is restored", || receiver.place.mtu(DEVICE) == 1500);
        }
    };
    let flows = || await_that("a stream flows", || flow(&lab) == Some(ESTABLISHED));
    let ends = |count: usize| await_that("a trial has ended", || ended(&out) == count);

    ends(1);
    let slow = SlowLogin::at(receiver);
    await_that("an agent is being started", || slow.has_begun());
    drop(slow);
    cut(receiver);
    ends(2);
    for begun in [1, 3] {
        flows();
        sleep(Duration::from_secs(begun));
        assert_eq!(flow(&lab), Some(ESTABLISHED));
        cut(receiver);
        await_that("no stream flows", || flow(&lab).is_none());
    }
    ends(4);
    await_that("a stream drains", || flow(&lab) == Some(FIN_WAIT1));
    cut(sender);
    ends(5);
    ends(6);
    cut(receiver);

    let (code, said) = run.end();
    assert_eq!(code, Some(5), "{said}");
    let study = load(&out).unwrap();
    let failed: Vec<Option<String>> = study.trials.iter().map(failure).collect();
    let which: Vec<usize> = (0..failed.len()).filter(|at| failed[*at].is_some()).collect();
    assert_eq!((failed.len(), which), (8, vec![1, 2, 3, 4, 6]), "{failed:?}");
    for (at, role) in
        [(1, "receiver"), (2, "receiver"), (3, "receiver"), (4, "sender"), (6, "receiver")]
    {
        let why = failed[at].as_ref().unwrap();
        assert!(why.contains(role), "{at}: {why}");
    }
    let back = study.remarks.iter().filter(|remark| remark.contains("came back after")).count();
    assert_eq!(back, 5, "{:?}", study.remarks);
    assert_eq!(receiver.place.mtu(DEVICE), 1500);
    lab.nothing_is_left();
}

#[test]
fn a_host_that_does_not_come_back_ends_the_study_and_resume_continues() {
    isolated(module_path!(), "inside_does_not_come_back");
}

#[test]
#[ignore = "started by a_host_that_does_not_come_back_ends_the_study_and_resume_continues"]
fn inside_does_not_come_back() {
    let Some(mut lab) = Lab::new() else { return };
    let out = lab.dir.path().join("gone");
    let options = ["--blocks", "2", "--window", "1s", "--set", SET];
    let timeout = ["--testbed", "hosts:timeout=3s"];
    let mut run = Running::start(&mut lab.run(&out, &[&options[..], &timeout].concat()));
    run.await_that("a trial has ended", || ended(&out) == 1);
    run.await_that("a stream flows", || flow(&lab) == Some(ESTABLISHED));
    lab.hosts[1].stop();
    let (code, said) = run.end();
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("a host was lost and has not come back"), "{said}");
    assert!(said.contains("bytepath resume"), "{said}");
    assert_eq!(lab.hosts[1].place.mtu(DEVICE), 1500);
    lab.nothing_is_left();
    assert_eq!(load(&out).unwrap().trials.len(), 1, "the trial that was lost is to be repeated");

    lab.hosts[1].start_again();
    let output = lab.bytepath(&["resume", out.to_str().unwrap()]);
    // A busy machine may leave nothing to compare.
    assert!(matches!(output.status.code(), Some(0 | 5)), "{}", text(&output));
    let study = load(&out).unwrap();
    let failed: Vec<bool> = study.trials.iter().map(|trial| failure(trial).is_some()).collect();
    assert_eq!(failed, [false; 4], "{}", text(&output));
    lab.nothing_is_left();
}

#[test]
fn a_cut_while_settings_are_made_or_restored_leaves_none() {
    isolated(module_path!(), "inside_a_cut_while_restoring");
}

#[test]
#[ignore = "started by a_cut_while_settings_are_made_or_restored_leaves_none"]
fn inside_a_cut_while_restoring() {
    let Some(lab) = Lab::new() else { return };
    let settings = Settings::new(&lab);
    let options = settings.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    // A connection is cut once the first setting is restored: the receiver's are restored first.
    let out = lab.dir.path().join("restoring");
    let mut run = Running::start(&mut lab.run(&out, &options));
    run.await_that("all is set", || settings.are_made());
    run.await_that("the trials have ended", || ended(&out) == 4);
    let sessions = lab.hosts[0].sessions();
    await_that("the first is restored", || !settings.are_made());
    sessions.into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
    let (code, said) = run.end();
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("the steward on the sender's host is gone"), "{said}");
    await_that("all are restored", || settings.are_restored());
    lab.nothing_is_left();
    assert_eq!(load(&out).unwrap().trials.len(), 4, "{said}");
    let output = lab.bytepath(&["resume", out.to_str().unwrap()]);
    assert!(text(&output).contains("is complete"), "{}", text(&output));

    // The controller is killed once the first setting is made.
    let out = lab.dir.path().join("killed");
    let mut run = Running::start(&mut lab.run(&out, &options));
    run.await_that("the first is set", || !settings.are_restored());
    run.kill();
    await_that("all are restored", || settings.are_restored());
    lab.nothing_is_left();
    assert!(!out.join("trials.jsonl").exists());
}

#[test]
fn a_link_that_goes_down_and_up_costs_no_more_than_its_trial() {
    isolated(module_path!(), "inside_a_link_goes_down");
}

#[test]
#[ignore = "started in a namespace by a_link_that_goes_down_and_up_costs_no_more_than_its_trial"]
fn inside_a_link_goes_down() {
    let Some(lab) = Lab::new() else { return };
    let out = lab.dir.path().join("down");
    let options = ["--blocks", "3", "--warm-up", "200ms", "--window", "1s"];
    let mut run = Running::start(&mut lab.run(&out, &options));
    // For less than the window, and beyond its end.
    for (trial, away) in [(1, 300), (3, 1500)] {
        run.await_that("a trial has ended", || ended(&out) == trial);
        run.await_that("a stream flows", || flow(&lab) == Some(ESTABLISHED));
        sleep(Duration::from_millis(500));
        set_link(&lab.hosts[0].place, "to-receiver", false);
        sleep(Duration::from_millis(away));
        set_link(&lab.hosts[0].place, "to-receiver", true);
    }
    let (code, said) = run.end();
    assert!(matches!(code, Some(0 | 5)), "{said}");
    let study = load(&out).unwrap();
    assert_eq!(study.trials.len(), 6, "{said}");
    for (at, trial) in study.trials.iter().enumerate() {
        let spoiled = match &trial.status {
            TrialStatus::Rejected { events } => events.iter().any(|e| e.contains("link to-")),
            status => matches!(status, TrialStatus::Failed { .. }),
        };
        assert_eq!(spoiled, matches!(at, 1 | 3), "{at}: {:?}", trial.status);
    }
    lab.nothing_is_left();
}

#[test]
fn a_host_that_cannot_be_reached_for_a_while_is_waited_for() {
    isolated(module_path!(), "inside_cannot_be_reached");
}

#[test]
#[ignore = "started in a namespace by a_host_that_cannot_be_reached_for_a_while_is_waited_for"]
fn inside_cannot_be_reached() {
    let Some(lab) = Lab::new() else { return };
    let out = lab.dir.path().join("away");
    let options = ["--blocks", "2", "--warm-up", "200ms", "--window", "1s", "--set", SET];
    let mut run = Running::start(&mut lab.run(&out, &options));
    let receiver = &lab.hosts[1].place;
    run.await_that("a trial has ended", || ended(&out) == 1);
    run.await_that("a stream flows", || flow(&lab) == Some(ESTABLISHED));
    // Neither end is notified: packets just no longer pass that link.
    set_link(receiver, "to-steering", false);
    run.await_that("it is noticed", || lab.hosts[0].place.agents().len() < 2);
    set_link(receiver, "to-steering", true);
    let (code, said) = run.end();
    assert_eq!(code, Some(5), "{said}");
    let study = load(&out).unwrap();
    let failed: Vec<Option<String>> = study.trials.iter().map(failure).collect();
    assert!(
        failed[1].as_ref().is_some_and(|why| why.contains("did not answer a ping")),
        "{failed:?}"
    );
    assert_eq!(failed.iter().flatten().count(), 1, "{failed:?}");
    assert_eq!(receiver.mtu(DEVICE), 1500);
    lab.nothing_is_left();
}

/// Sets a device of a place down or up.
fn set_link(place: &Place, device: &str, up: bool) {
    place.within(|netlink| {
        let index = netlink.link(device).unwrap().unwrap().index;
        if up { netlink.set_up(index).unwrap() } else { netlink.set_down(index).unwrap() }
    });
}

#[test]
fn an_agent_ends_with_its_controller_while_a_stream_drains() {
    let [mut sender, mut receiver] = [(); 2].map(|()| Agent::start());
    let cell = Cell::new("socket", Half::plain("socket"), Half::plain("socket"));
    agents::connect(&mut sender, &mut receiver, cell, Ipv4Addr::LOCALHOST.into());
    receiver.begin();
    // The sender is never started, so it ends nothing; and somebody keeps reading the replies.
    receiver.send(Finish { timeout: 60.0 });
    sleep(Duration::from_millis(100));
    drop(receiver.to_agent);
    let ended = || receiver.thread.is_finished();
    let begin = Instant::now();
    while !ended() && begin.elapsed() < Duration::from_secs(10) {
        sleep(Duration::from_millis(10));
    }
    assert!(ended(), "it is still there");
}

/// Settings of both hosts, so many that making and restoring them takes a while.
struct Settings<'a> {
    lab: &'a Lab,
    /// Each with its original value.
    all: Vec<(String, String)>,
}

/// The value that they are set to.
const SAYS: &str = "8";

impl Settings<'_> {
    fn new(lab: &Lab) -> Settings<'_> {
        let folder = "/proc/sys/net/ipv4/neigh/lo";
        let all = lab.hosts[0].place.within(|_| {
            let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let read = |path: PathBuf| {
                let usual = fs::read_to_string(&path).unwrap().trim().to_owned();
                (path.display().to_string(), usual)
            };
            // Those that are another view of the same value in other units, or are rounded.
            let odd = ["retrans_time", "base_reachable_time", "unres_qlen", "unres_qlen_bytes"];
            let is_odd = |name: &PathBuf| odd.iter().any(|odd| name.ends_with(odd));
            names.filter(|name| !is_odd(name)).map(read).collect()
        });
        Settings { lab, all }
    }

    fn options(&self) -> Vec<String> {
        let set = |(name, _): &(String, String)| {
            let name = name.trim_start_matches("/proc/sys/").replace('/', ".");
            ["--set".to_owned(), format!("sysctl {name}={SAYS}")]
        };
        self.all.iter().flat_map(set).collect()
    }

    fn are_made(&self) -> bool {
        self.say(|_| SAYS)
    }

    fn are_restored(&self) -> bool {
        self.say(|usual| usual)
    }

    fn say<'a>(&'a self, expected: impl Fn(&'a str) -> &'a str + Sync) -> bool {
        let here = |(name, usual): &'a (String, String)| {
            fs::read_to_string(name).unwrap().trim() == expected(usual)
        };
        self.lab.hosts.iter().all(|host| host.place.within(|_| self.all.iter().all(here)))
    }
}

/// Number of trials that have ended.
fn ended(out: &Path) -> usize {
    fs::read_to_string(out.join("trials.jsonl")).map_or(0, |text| text.lines().count())
}

/// States of a connection, include/net/tcp_states.h.
const ESTABLISHED: u8 = 1;
const FIN_WAIT1: u8 = 4;

/// State of a stream's socket at the sender, or `None` if there is none.
fn flow(lab: &Lab) -> Option<u8> {
    let all = fs::read_to_string(format!("/proc/{}/net/tcp", lab.hosts[0].place.pid())).unwrap();
    let to_receiver = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let state = u8::from_str_radix(fields.get(3)?, 16).ok()?;
        fields[2].starts_with("0200090A:").then_some(state)
    };
    all.lines().filter_map(to_receiver).find(|state| [ESTABLISHED, FIN_WAIT1].contains(state))
}

/// Throttles what a host sends to the other one. False, with a report, if that cannot be done.
fn drains_slowly(host: &Host) -> bool {
    let mut tc = host.place.command("tc");
    tc.args(["qdisc", "add", "dev", "to-receiver", "root", "tbf"]);
    tc.args(["rate", "24mbit", "burst", "64kb", "latency", "2s"]);
    let done = tc.output().unwrap();
    if !done.status.success() {
        skip!("no tc(8), or no tbf: {}", text(&done));
    }
    done.status.success()
}

/// A host on which a login takes two seconds while this value lives.
struct SlowLogin {
    program: PathBuf,
    begun: PathBuf,
}

impl SlowLogin {
    fn at(host: &Host) -> SlowLogin {
        let folder = host.home.join("bin");
        fs::create_dir_all(&folder).unwrap();
        let (program, begun) = (folder.join("uname"), folder.join("begun"));
        let script =
            format!("#!/bin/sh\n: >{}\nsleep 2\nexec /usr/bin/uname \"$@\"\n", begun.display());
        let new = folder.join("new");
        fs::write(&new, script).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&new, &program).unwrap();
        SlowLogin { program, begun }
    }

    fn has_begun(&self) -> bool {
        self.begun.exists()
    }
}

impl Drop for SlowLogin {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.program);
    }
}
