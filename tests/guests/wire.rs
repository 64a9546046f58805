//! Connections of guests, in real runs: two guests by taps, one and this host; several queues,
//! packets that cross unsegmented, and nothing left behind. Without qemu, a kernel or taps each of
//! these is skipped and reported.

use crate::guests::{able, able_alone, guests_of, leftovers, shown, testbed};
use bytepath::record::{Role, Scope, Study, TrialStatus};
use bytepath::study::{load, testbed_spec};
use bytepath::{spec, testbed};
use bytepath_testing::{Share, skip};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// One boot of both, with packets segmented by the sender and not.
#[test]
fn taps_with_two_queues_carry_packets_whole() {
    let bed = "vm:guests=2,wire=tap,queues=2";
    let Some(_machine) = joined(bed, able) else { return };
    let folder = tempfile::tempdir().unwrap();
    let before = devices();
    let file = folder.path().join("links.toml");
    let experiment = format!(
        r#"
        testbed = "{bed}"
        blocks = 1
        warm-up = "200ms"
        window = "1s"
        meters = ["link"]
        profile = "none"
        [factors]
        path = "socket"
        link = ["offload:tso=off", "offload"]
        touch = "verify"
        message-size = "64K"
        read-size = "64K"
        "#
    );
    std::fs::write(&file, experiment).unwrap();
    let study = studied(&[file.to_str().unwrap()], folder.path());
    let [sender, receiver] = study.header.facts.as_slice() else { panic!("{study:?}") };
    assert_ne!(sender.machine, receiver.machine);
    for facts in [sender, receiver] {
        let fact = |name: &str| facts.settings.get(name).map_or("", String::as_str);
        assert_eq!(fact("link.wire"), "taps");
        assert_eq!(fact("link.queues"), "2");
        assert_eq!(fact("nic.eth0.queues"), "2 rx, 2 tx", "the guest uses both");
        assert!(fact("link.vhost").starts_with("o"), "{}", fact("link.vhost"));
    }
    let (cut, whole) = (packet_size(&study, false), packet_size(&study, true));
    println!("bytes of a received packet: {cut:.0} without TSO, {whole:.0} with it");
    assert!(cut <= 1514.0, "{cut}");
    assert!(whole > 4.0 * 1514.0, "{whole}");
    assert_eq!(devices(), before, "the host has the devices it had");
    assert_eq!(leftovers(), []);
}

/// Average bytes of a packet at the receiver's device, with segmentation offload or without.
fn packet_size(study: &Study, tso: bool) -> f64 {
    let cell = study.header.cells.iter().find(|cell| cell.link.tso == tso && !cell.null);
    let trial = study.trials.iter().find(|trial| trial.cell == cell.unwrap().id).unwrap();
    let of_receiver = |scope: &Scope| matches!(scope, Scope::Link(Role::Receiver, _));
    let reading = |metric: &str| -> f64 {
        let reading = trial.readings.iter().find(|r| r.metric == metric && of_receiver(&r.scope));
        reading.unwrap_or_else(|| panic!("no {metric}: {:?}", trial.readings)).value
    };
    reading("link.rx_bytes") / reading("link.rx_packets")
}

#[test]
fn a_guest_and_this_host_are_two_hosts() {
    let Some(_machine) = joined("vm:host=receiver", able) else { return };
    for (at, role) in ["sender", "receiver"].into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let before = devices();
        // Two trials: the second finds the tap as the first did.
        let study = measured(&format!("vm:host={role}"), &["--blocks", "1"], folder.path());
        let own = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let machines: Vec<&str> = study.header.facts.iter().map(|f| f.machine.as_str()).collect();
        assert_eq!(machines[at], own.trim(), "the {role} is on this host");
        assert_ne!(machines[1 - at], own.trim(), "the other one is not");
        let read = |scope: &Scope| study.trials[0].reading("cpu.wall", scope);
        assert_eq!(read(&Scope::Machine), None, "there is no one machine to measure");
        for role in Role::ALL {
            assert!(read(&Scope::MachineOf(role)).is_some_and(|wall| wall > 0.0), "{role}");
        }
        assert_eq!(devices(), before);
        assert_eq!(leftovers(), []);
    }
}

#[test]
fn killed_in_the_middle_nothing_stays() {
    let bed = "vm:host=receiver";
    let Some(_machine) = joined(bed, able_alone) else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.args(["run", "--testbed", bed, "--path", "socket", "--blocks", "1", "--window", "60s"]);
    command.args(["--profile", "none", "--meters", "none", "--study"]).arg(&out);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The study's folder exists once the first trial begins; then there is an agent.
    let own = namespace(child.id()).unwrap();
    let agent = wait_for("an agent on the wire", || {
        assert!(child.try_wait().unwrap().is_none(), "the study ended at once");
        let apart = |pid: &u32| namespace(*pid).is_some_and(|of| of != own);
        let agent = children(child.id()).into_iter().find(apart)?;
        out.join("trials.jsonl").exists().then_some(agent)
    });
    let guests = guests_of(child.id());
    assert_eq!(guests.len(), 1);
    let wire = namespace(agent).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the end of the agent and of the guest", || {
        let all = processes();
        let gone =
            ![agent, guests[0].as_raw_nonzero().get() as u32].iter().any(|pid| all.contains(pid));
        (gone && !all.iter().any(|pid| namespace(*pid).as_ref() == Some(&wire))).then_some(())
    });
}

#[test]
fn contradictions_are_reported_before_anything_is_booted() {
    for (bed, what) in [
        ("vm:wire=tap", "both roles are in one guest"),
        ("vm:queues=2", "both roles are in one guest"),
        ("vm:guests=2,host=sender", "host=sender has none for that role"),
        ("vm:guests=2,queues=4", "queues=4 are more than a guest's 2 CPUs"),
        ("vm:host=receiver,wire=socket", "wire=socket joins two guests"),
        ("vm:guests=2,wire=socket,queues=2", "one queue and no vhost"),
        ("vm:guests=2,wire=socket,vhost=on", "one queue and no vhost"),
        ("vm:nic=zcnic,guests=2", "joins two roles in one guest"),
        ("vm:count=instructions,cpus=2", "cpus=2 would share a clock"),
        ("vm:count=instructions,accel=kvm", "without counting instructions"),
        ("vm:count=instructions,guests=2", "in one guest that has both roles"),
        ("vm:count=instructions,host=sender", "in one guest that has both roles"),
        ("vm:count=cycles", "not one of time, instructions"),
        ("vm:guests=2,wire=sockets", "not one of auto, tap, socket"),
    ] {
        let output =
            crate::guests::bytepath(&["run", "--testbed", bed, "--path", "socket", "--dry-run"]);
        let text = shown(&output);
        assert_eq!(output.status.code(), Some(2), "{bed}: {text}");
        assert!(text.contains(what), "{bed}: {text}");
    }
}

/// Guests boot for the doctor and for a dry run, too: both find what the study finds, with the same
/// exit code.
#[test]
fn what_a_guest_cannot_run_is_known_before_it_is_run() {
    let Some(_machine) = joined("vm:host=sender", able) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    let experiment = r#"
        testbed = "vm:host=sender"
        workload = "packets"
        baseline = { rx = "vhost" }
        blocks = 1
        profile = "none"
        [factors]
        tx = "packet"
        rx = ["vhost", "packet"]
        link = "offload"
        cores = "unpinned,vhost=0"
    "#;
    std::fs::write(&file, experiment).unwrap();
    let (file, out) = (file.to_str().unwrap(), folder.path().join("study"));
    let run = ["run", file, "--study", out.to_str().unwrap()];
    let ended = |words: &[&str]| {
        let output = crate::guests::bytepath(words);
        (output.status.code(), shown(&output))
    };
    for words in [&["doctor", "--experiment", file][..], &["run", file, "--dry-run"], &run] {
        let (code, text) = ended(words);
        assert_eq!(code, Some(3), "{words:?}: {text}");
        assert!(text.contains("cannot run here: the link is not a tap"), "{words:?}: {text}");
    }
}

#[test]
fn vhost_that_is_requested_and_missing_is_named() {
    let Some(_machine) = able() else { return };
    if Path::new("/dev/vhost-net").exists() {
        skip!("there is a /dev/vhost-net");
        return;
    }
    let fault = unable("vm:guests=2,vhost=on").unwrap();
    assert!(fault.contains("/dev/vhost-net") && fault.contains("modprobe vhost_net"), "{fault}");
}

/// Turns at the machine; `None` if guests cannot be booted and connected like this.
fn joined(bed: &str, turns: fn() -> Option<Share>) -> Option<Share> {
    let machine = turns()?;
    if let Some(why) = unable(bed) {
        skip!("{why}");
        return None;
    }
    Some(machine)
}

/// Returns why a testbed with these options cannot be started, or `None` if it can.
fn unable(bed: &str) -> Option<String> {
    let choice = spec::parse_testbed(bed, &testbed_spec(testbed::CATALOG)).unwrap();
    match testbed().configured(&choice.options).unwrap().unwrap().probe() {
        bytepath::record::Support::Yes => None,
        bytepath::record::Support::No { reason, remedy } => Some(format!("{reason} ({remedy})")),
    }
}

/// Runs a study in which the receiver verifies every byte and every trial succeeds.
fn measured(bed: &str, more: &[&str], out: &Path) -> Study {
    let mut words = vec!["--testbed", bed, "--path", "socket", "--profile", "none"];
    // Small reads: on a busy machine an emulated guest does little in a second, and an edge of the
    // window is noticed between two reads.
    words.extend(["--stream", "touch=verify,message-size=64K,read-size=64K"]);
    words.extend(["--warm-up", "200ms", "--window", "1s"]);
    words.extend(more);
    studied(&words, out)
}

/// Runs a study in which every trial succeeds.
fn studied(words: &[&str], out: &Path) -> Study {
    let out = out.join("study");
    let words = [&["run", "--study", out.to_str().unwrap()], words].concat();
    let output: Output = crate::guests::bytepath(&words);
    let text = shown(&output);
    assert!(output.status.success(), "{words:?}: {text}");
    let study = load(&out).unwrap();
    assert!(!study.trials.is_empty(), "{text}");
    for trial in &study.trials {
        assert_eq!(trial.status, TrialStatus::Measured, "{text}");
        assert!(trial.count > 0, "{text}");
    }
    study
}

/// Network devices of this host.
fn devices() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").unwrap().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The network namespace of a process; `None` if it no longer exists.
fn namespace(pid: u32) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn children(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit(')').next().unwrap_or_default();
        rest.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    processes().into_iter().filter(is_child).collect()
}

/// Retries until there is a value, for a while.
fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
