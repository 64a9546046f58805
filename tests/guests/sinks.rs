//! A guest's own network device as the sink: this host sends into a tap that qemu reads, and the
//! guest receives the frames. A macvtap by vhost-net, in a guest that has both. Without qemu or
//! such a kernel the tests are skipped and reported.

use crate::guests::{able, bytepath, guests_of, leftovers, shown};
use bytepath::profile::import::{PPROF, Times};
use bytepath::profile::{Owner, Sample};
use bytepath::record::{Hops, Role, TapSettings, Trial, TrialStatus};
use bytepath::stats::GuestCpu;
use bytepath::study::load;
use bytepath::sys::tap;
use rustix::process::{Signal, kill_process};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SHORT: &[&str] = &["--blocks", "1", "--meters", "none", "--profile", "none"];

/// Returns the trials of a study, and checks that all frames are accounted for.
fn found(words: &[&str], paths: &[&str]) -> Vec<(Trial, Hops)> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let paths = paths.iter().flat_map(|path| ["--path", path]);
    let words = ["run"].iter().chain(words).chain(SHORT).copied().chain(paths);
    let words: Vec<&str> = words.chain(["--study", out.to_str().unwrap()]).collect();
    let text = shown(&bytepath(&words));
    let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    let hops = |trial: Trial| {
        let failed = matches!(trial.status, TrialStatus::Failed { .. });
        assert!(!failed, "{}: {:?}: {text}", trial.cell, trial.status);
        let hops = trial.hops.unwrap();
        assert_eq!(hops.unaccounted(), 0, "{}: {hops:?}", trial.cell);
        assert!(hops.received > 0, "{}: {hops:?}", trial.cell);
        (trial, hops)
    };
    study.trials.into_iter().map(hops).collect()
}

/// One boot for all sinks.
#[test]
fn guest_receives_every_frame_of_its_host() {
    let Some(_machine) = able() else { return };
    let words = [
        "--testbed",
        "vm:host=sender",
        "--workload",
        "packets:count=5000",
        "--link",
        "offload",
        "--cores",
        "unpinned",
    ];
    let paths = ["packet+packet", "packet+packet-ring", "packet+xdp-drop", "udp-gso+packet-ring"];
    for (trial, hops) in found(&words, &paths) {
        let id = trial.cell.to_string();
        assert_eq!(hops.generated(), 5000, "{id}: {hops:?}");
        assert!(hops.device_sent >= hops.received + hops.sink_dropped, "{id}: {hops:?}");
        let in_driver = id.contains("xdp-drop");
        assert_eq!(hops.dropped_as_asked == hops.received, in_driver, "{id}: {hops:?}");
    }
    assert_eq!(leftovers(), []);
}

/// A generator that overruns the short ring of a tap whose reader is the guest's qemu, and cells
/// for which this host may lack something.
const GUEST_TAP: &str = r#"
testbed = "vm:host=sender"
workload = "packets:count=5000"
baseline = { vhost = false, backpressure = false }
blocks = 1
meters = "threads"
profile = "all:trials=1,event=cpu-clock"

[factors]
tx = "packet:bypass=on"
rx = "packet"
link = "guest-tap"
vhost = [false, true]
backpressure = [false, true]
qdisc = "pfifo"
queue-length = 32
cores = "unpinned"
"#;

#[test]
fn a_tap_that_a_guest_is_behind_drops_or_stops() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("tap.toml"), folder.path().join("study"));
    std::fs::write(&file, GUEST_TAP).unwrap();
    let output = bytepath(&["run", file.to_str().unwrap(), "--study", out.to_str().unwrap()]);
    let text = shown(&output);
    let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    let knows_flag = tap::known_flags().unwrap() & tap::BACKPRESSURE != 0;
    let has_vhost = Path::new("/dev/vhost-net").exists();
    let mut measured = 0;
    for trial in &study.trials {
        let cell = study.header.cells.iter().find(|cell| cell.id == trial.cell).unwrap();
        let TapSettings { vhost, backpressure, .. } = cell.link.tap.unwrap();
        let id = &trial.cell;
        if let TrialStatus::Unavailable { reason, .. } = &trial.status {
            let of_vhost = vhost && !has_vhost && reason.contains("vhost-net is not available");
            let of_flag = backpressure && !knows_flag && reason.contains("IFF_BACKPRESSURE");
            assert!(of_vhost || of_flag, "{id}: {reason}");
            continue;
        }
        measured += 1;
        assert_eq!(trial.status, TrialStatus::Measured, "{id}: {text}");
        let hops = trial.hops.unwrap();
        assert_eq!((hops.unaccounted(), hops.sent()), (0, 5000), "{id}: {hops:?}");
        assert!(hops.received > 0, "{id}: {hops:?}");
        let guest = GuestCpu::of(trial, Role::Receiver).unwrap();
        assert!(guest.vcpu > 0.0 && guest.qemu > 0.0, "{id}: {guest:?}");
        assert_eq!(guest.vhost > 0.0, vhost, "{id}: {guest:?}");
        let of_sender = &trial.role(Role::Sender).unwrap().threads;
        assert!(of_sender.iter().all(|thread| thread.name == "sender/0"), "{id}: {of_sender:?}");
        if backpressure {
            assert_eq!(hops.device_dropped, 0, "{id}: {hops:?}");
        } else if !vhost {
            assert!(hops.device_dropped > 0, "{id}: {hops:?}");
        }
    }
    assert!(measured >= 2, "{text}");
    // Where the host permits sampling.
    for trial in study.profiles.iter().filter(|trial| trial.status == TrialStatus::Measured) {
        let file = File::open(out.join(&trial.profile.as_ref().unwrap().file)).unwrap();
        let mut file = BufReader::new(file);
        let profile = (PPROF.read)("it", Times::LeftOut, &mut file).unwrap();
        let is_of_guest = |sample: &&Sample| sample.owner == Owner::VirtualCpu;
        let of_guest = profile.samples().iter().filter(is_of_guest);
        let names: Vec<&str> = of_guest.map(|s| profile.thread(s.thread).name.as_str()).collect();
        assert!(!names.is_empty(), "{}: no sample of its virtual CPUs", trial.cell);
        assert!(names.iter().all(|name| name.ends_with("/KVM") || name.ends_with("/TCG")));
    }
    let text = shown(&bytepath(&["show", out.to_str().unwrap(), "--details"]));
    assert!(text.contains("What a guest takes of the host that runs it"), "{text}");
    assert_eq!(leftovers(), []);
}

#[test]
fn a_macvtap_is_read_by_vhost_net_too() {
    let Some(_machine) = able() else { return };
    let words = [
        "--testbed",
        "vm",
        "--workload",
        "packets:count=5000",
        "--link",
        "macvtap:queue-length=64",
    ];
    for (trial, hops) in found(&words, &["packet+tap", "packet+vhost"]) {
        assert_eq!(hops.device_dropped, 0, "{}: a macvtap drops on arrival: {hops:?}", trial.cell);
    }
    assert_eq!(leftovers(), []);
}

#[test]
fn a_guest_that_dies_while_it_takes_frames_fails_its_trial() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.args(["run", "--testbed", "vm:host=sender", "--workload", "packets:count=100000000"]);
    command.args(["--link", "offload", "--path", "packet+packet", "--cores", "unpinned"]);
    command.args(SHORT).arg("--study").arg(&out).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let guests = loop {
        assert!(Instant::now() < deadline, "the study did not begin");
        assert!(child.try_wait().unwrap().is_none(), "the study ended at once");
        let guests = guests_of(child.id());
        if Path::new(&out).join("trials.jsonl").exists() && !guests.is_empty() {
            break guests;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // By then its agent is up, and frames flow.
    std::thread::sleep(Duration::from_secs(3));
    kill_process(guests[0], Signal::KILL).unwrap();
    let faults = || {
        let study = load(&out).ok()?;
        study.trials.first().map(|trial| trial.status.clone())
    };
    while faults().is_none() {
        assert!(Instant::now() < deadline, "the trial did not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    let Some(TrialStatus::Failed { fault }) = faults() else { panic!("{:?}", faults()) };
    assert!(fault.message.contains("qemu killed by signal 9 (SIGKILL)"), "{fault}");
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = || guests.iter().all(|guest| rustix::process::test_kill_process(*guest).is_err());
    while !gone() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(gone(), "the guest was reaped");
}
