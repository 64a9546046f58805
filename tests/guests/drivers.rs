//! bytepath on NICs with drivers that do not come from this project: those of the NICs that QEMU
//! emulates, on the testbed `ports` inside a guest, whose NICs outlive the study. Without qemu, or
//! without a kernel that has the driver, these are skipped and reported.

use crate::command::{CommandRunner, DOUBLE};
use crate::guests::{able, able_alone};
use crate::links;
use bytepath::guest::{NIC_PAIRS, NicPair};
use bytepath_testing::skip;

/// A study of one block between the two NICs.
const BLOCK: &str = "/bin/bytepath run --testbed ports:sender=eth0,receiver=eth1 --blocks 1 \
                     --meters none --profile none --warm-up 200ms";

/// A very short one.
pub(crate) fn study(arguments: &str) -> String {
    format!("{BLOCK} --window 400ms {arguments}")
}

/// The NICs are as before after a study that ended well, one that was refused and one that was
/// killed.
#[test]
fn cards_come_home_as_they_were() {
    // An emulated guest of four CPUs is too slow beside other guests for the agents' deadlines.
    let Some(_machine) = able_alone() else { return };
    // QEMU has igb since 8.0, and e1000e for much longer.
    let Some(guest) = with_cards("igb").or_else(|| with_cards("e1000e")) else { return };
    let fresh = Cards::of(&guest);
    let shown = guest.output_of(&study("--path socket --path uring --study /tmp/well"));
    // The study itself is the first to open the NIC, which gives it its interrupts.
    assert!(!shown.contains("another program changed"), "{shown}");
    fresh.are_back(&guest);
    is_refused_whole(&guest);
    is_restored_after_a_kill(&guest);
    pinned_interrupts_stay_pinned(&guest);
    counts_of_frames_close(&guest);
    fresh.are_back(&guest);
}

/// A value that the driver rounds is refused, and does not stay.
fn is_refused_whole(guest: &CommandRunner) {
    let before = Cards::of(guest);
    let (code, text) = guest.outcome_of(&study("--path socket --set 'rings eth1 rx=300'"));
    let why = "asked for 300, the kernel accepted it, but it reads 304 now";
    assert!(code != 0 && text.contains(why), "{code}: {text}");
    before.are_back(guest);
    let text = guest.output_of("/bin/bytepath restore");
    assert!(text.contains("nothing to restore"), "{text}");
}

/// A NIC's settings are in force while it is lent, and restored after a crash.
fn is_restored_after_a_kill(guest: &CommandRunner) {
    let before = Cards::of(guest);
    let study = format!(
        "{BLOCK} --path socket --window 60s --cores sender=0,receiver=1,softirq=2 \
         --set 'spread eth1 queues=1' --set 'rings eth1 rx=512' --study /tmp/killed"
    );
    let killed = guest.output_of(&format!("{DOUBLE} killed /tmp/killed irq {study}"));
    assert!(killed.contains("signal: 9"), "{killed}");
    let lent = guest.output_of(&format!("{DOUBLE} card eth1"));
    for part in ["table Ok([0, 0, 0", "rx: Some(512)", "Some(\"2\")"] {
        assert!(lent.contains(part), "{part}: {lent}");
    }
    let restored = guest.output_of("/bin/bytepath restore");
    for setting in ["loan eth0", "loan eth1", "spread eth1", "rings eth1", "CPUs of interrupt"] {
        let line = restored.lines().find(|line| line.contains(setting));
        assert!(line.is_some_and(|line| line.contains("restored")), "{setting}: {restored}");
    }
    before.are_back(guest);
}

/// Drivers renew interrupts with the number of queues, which a table of the driver's own changes as well.
fn pinned_interrupts_stay_pinned(guest: &CommandRunner) {
    let interrupts = || -> Vec<(String, String)> {
        let shown = guest.output_of(&format!("{DOUBLE} card eth1"));
        let all = shown.lines().filter_map(|line| line.strip_prefix("interrupt ")?.split_once(' '));
        all.map(|(number, cpus)| (number.to_owned(), cpus.to_owned())).collect()
    };
    let before = interrupts();
    for ((number, _), cpu) in before.iter().zip([1, 2, 3, 1, 2].into_iter().cycle()) {
        guest.output_of(&format!("{DOUBLE} write /proc/irq/{number}/smp_affinity_list {cpu}"));
    }
    let cpus = || interrupts().into_iter().map(|(_, cpus)| cpus).collect::<Vec<_>>();
    let pinned = cpus();
    assert!(pinned.contains(&"Some(\"3\")".to_owned()), "{pinned:?}");
    let fewer = "--set 'channels eth1 combined=2' --set 'spread eth1 queues=1'";
    guest.output_of(&study(&format!("--path socket {fewer} --study /tmp/pinned")));
    assert_eq!(cpus(), pinned);
}

/// Each frame is accounted for, even if the NIC or the wire has lost it; and a program in the stack
/// copies.
fn counts_of_frames_close(guest: &CommandRunner) {
    let frames = study("--unshared-link --workload packets");
    guest.output_of(&format!("{frames} --path packet+packet-ring --study /tmp/frames"));
    every_frame_has_a_place(guest, &frames);
    let generic = "--path packet+af-xdp:mode=generic";
    let shown = guest.output_of(&format!("{frames}:rate=500 {generic} --study /tmp/generic"));
    assert!(shown.contains("copies each frame") && !shown.contains("zero-copy"), "{shown}");
}

/// A ring of 64 is too small, so the NIC drops frames, which it may not count at all (QEMU's igb):
/// they count as lost between the two devices, and all are accounted for.
fn every_frame_has_a_place(guest: &CommandRunner, frames: &str) {
    let small = "--path packet+packet-ring --set 'rings eth1 rx=64' --study /tmp/small";
    guest.output_of(&format!("{frames} {small}"));
    let trials = guest.output_of(&format!("{DOUBLE} read /tmp/small/trials.jsonl"));
    let mut lost = 0;
    for line in trials.lines() {
        let trial: serde_json::Value = serde_json::from_str(line).unwrap();
        let count = |hop: &str| trial["hops"][hop].as_u64().unwrap();
        let on_the_way = count("arrival_dropped") + count("wire_dropped");
        let elsewhere =
            ["refused", "qdisc_dropped", "device_dropped", "sink_dropped", "qdisc_queued"];
        let elsewhere: u64 = elsewhere.iter().map(|hop| count(hop)).sum();
        let found = count("received") + count("ring_queued") + on_the_way + elsewhere;
        assert_eq!(found, count("offered"), "{line}");
        lost += on_the_way;
    }
    assert!(lost > 0, "{trials}");
}

/// Tries each feature on each driver, for the table in `docs/reference/drivers.md`.
#[test]
#[ignore = "takes minutes: make test-drivers"]
fn every_feature_of_every_driver() {
    let Some(_machine) = able() else { return };
    let [driver, only] = ["DRIVER", "FEATURE"].map(|name| std::env::var(name).unwrap_or_default());
    let names = NIC_PAIRS.iter().filter(|pair| pair.emulated_device().is_some());
    for pair in names.filter(|pair| driver.is_empty() || pair.name == driver) {
        let Some(guest) = with_cards(pair.name) else { continue };
        let fresh = Cards::of(&guest);
        try_features(&guest, pair.name, &only, |arguments| {
            fresh.are_back(&guest);
            study(&for_pair(pair.name, arguments))
        });
        fresh.are_back(&guest);
    }
}

/// Tries each feature whose name contains `only`, with the study that `study` makes of its
/// arguments.
pub(crate) fn try_features(
    guest: &CommandRunner,
    name: &str,
    only: &str,
    study: impl Fn(&str) -> String,
) {
    let features = FEATURES.iter().filter(|(feature, _)| feature.contains(only));
    for (number, (feature, arguments)) in features.enumerate() {
        let line = format!("{} --study /tmp/{name}-{number}", study(arguments));
        println!("| {name} | {feature} | {} |", outcome(&guest.outcome_of(&line)));
    }
}

/// The features, and the arguments by which each is tried.
const FEATURES: &[(&str, &str)] = &[
    ("the default study", ""),
    ("cores=together", "--path socket --cores together"),
    ("cores=apart", "--path socket --cores apart"),
    ("request and response", "--workload rr --path socket --path uring"),
    ("rings", "--path socket --set 'rings eth1 rx=512'"),
    ("rings that are rounded", "--path socket --set 'rings eth1 rx=300'"),
    ("channels", "--path socket --set 'channels eth1 combined=2'"),
    ("spread", "--path socket --set 'spread eth1 queues=1'"),
    (
        "spread, then channels",
        "--path socket --set 'spread eth1 queues=1' --set 'channels eth1 combined=1'",
    ),
    ("coalescing", "--path socket --set 'coalescing eth1 rx-usecs=20'"),
    ("flow rules", "--path socket --set 'flow eth1 src=198.18.0.1 dst=198.18.0.2 queue=0'"),
    ("header split", "--path socket --set 'rings eth1 tcp-data-split=on'"),
    ("qdisc", "--path socket --link nic:qdisc=pfifo"),
    ("qdisc as a setting", "--path socket --set 'qdisc eth1 pfifo'"),
    ("MTU 9000", "--path socket --link nic:mtu=9000"),
    ("TSO off", "--path socket --link nic:tso=off"),
    ("GRO and LRO off", "--path socket --link nic:gro=off"),
    ("hardware GRO", "--path socket --link nic:hw-gro=on"),
    ("BIG TCP", "--path socket --link nic:gso-max=200000,gro-max=200000"),
    ("threaded NAPI", "--path socket --link nic:threaded-napi=on"),
    ("RPS", "--path socket --link nic:rps=2"),
    ("profile quiet", "--path socket --settings quiet"),
    ("profile battle-of-zcs", "--path socket --settings battle-of-zcs"),
    ("frames", "--workload packets --unshared-link --path packet+packet-ring"),
    ("frames by UDP GSO", "--workload packets:rate=2000 --unshared-link --path udp-gso+packet"),
    (
        "AF_XDP, copied",
        "--workload packets:rate=500 --unshared-link --path af-xdp:bind=copy+af-xdp:bind=copy",
    ),
    (
        "AF_XDP, zero-copy",
        "--workload packets:rate=500 --unshared-link --path af-xdp:bind=zero-copy+af-xdp:bind=zero-copy",
    ),
    (
        "AF_XDP in the stack",
        "--workload packets:rate=500 --unshared-link --path packet+af-xdp:mode=generic",
    ),
    (
        "AF_XDP at MTU 4148",
        "--workload packets:rate=500 --unshared-link --path af-xdp+af-xdp --link nic:mtu=4148",
    ),
    ("XDP drop", "--workload packets:rate=500 --unshared-link --path packet+xdp-drop"),
    ("XDP live frames", "--workload packets:count=2000 --unshared-link --path xdp-live+xdp-drop"),
];

/// The arguments, without segmentation offload for virtio-net: sockets carry packets one at a time,
/// so qemu offers it no TSO.
pub(crate) fn for_pair(name: &str, arguments: &str) -> String {
    match (name == "virtio", arguments.contains("--link nic:")) {
        (false, _) => arguments.to_owned(),
        (true, true) => arguments
            .replace("--link nic:", "--link nic:tso=off,")
            .replace("tso=off,tso=off", "tso=off"),
        (true, false) => format!("{arguments} --link nic:tso=off"),
    }
}

/// Formats a cell of the table: works, refused (why), or fails (how).
pub(crate) fn outcome((code, text): &(i32, String)) -> String {
    let words = ["bytepath: ", "failed: ", "not run"];
    let why = text.lines().find(|line| words.iter().any(|word| line.contains(word)));
    match code {
        0 => "works".to_owned(),
        1..=4 => format!("refused: {}", why.unwrap_or(text).trim()),
        _ => format!("fails ({code}): {}", why.unwrap_or(text).trim()),
    }
}

/// The state of both NICs.
pub(crate) struct Cards([String; 2]);

impl Cards {
    pub(crate) fn of(guest: &CommandRunner) -> Cards {
        Cards([0, 1].map(|number| state_of(guest, number)))
    }

    /// Checks that both are as they were.
    pub(crate) fn are_back(&self, guest: &CommandRunner) {
        [0, 1].into_iter().for_each(|number| self.is_back(guest, number));
    }

    /// Checks that one is as it was. A driver may have fewer queues once a device was open, an
    /// indirection table only since then, and interrupts only while it is open.
    pub(crate) fn is_back(&self, guest: &CommandRunner, number: usize) {
        let (before, now) = (&self.0[number], state_of(guest, number));
        let has = |head: &str| now.lines().any(|line| line.starts_with(head));
        for line in before.lines() {
            let head: Vec<&str> = line.splitn(3, ' ').take(2).collect();
            let is_gone = ["rx-", "tx-", "interrupt"].iter().any(|of| line.starts_with(of))
                && !has(&head.join(" "));
            let is_made_when_open = (line.starts_with("table") && !line.contains("1, "))
                || (line.starts_with("interrupt") && line.ends_with("None"));
            let is_meant = !is_gone && !is_made_when_open;
            assert!(!is_meant || now.contains(line), "{line} before: {now}");
        }
    }
}

fn state_of(guest: &CommandRunner, number: usize) -> String {
    guest.output_of(&format!("{DOUBLE} card eth{number}"))
}

/// Boots a guest with two NICs of a kind. Returns `None`, and skips the test, if that is impossible
/// here.
pub(crate) fn with_cards(name: &str) -> Option<CommandRunner> {
    let absent = ["no kernel", "no module", "no device"];
    match CommandRunner::boot("debian:newest", links::MODULES, NicPair::named(name)) {
        Ok(guest) => Some(guest),
        Err(fault) if absent.iter().any(|what| fault.message.contains(what)) => {
            skip!("{name}: {fault}");
            None
        }
        Err(fault) => panic!("{name}: {fault}"),
    }
}
