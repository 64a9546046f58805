//! Devices without hardware as the ends of a link, in a kernel with all their drivers: each kind
//! works, or is refused before the study, and nothing stays changed.

use crate::command::{CommandRunner, IP};
use crate::drivers::{study, try_features, with_cards};
use crate::guests::able;
use bytepath_testing::skip;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// The drivers' modules.
pub(crate) const MODULES: &[&str] = &["bonding", "8021q", "bridge", "macvlan", "ipvlan"];

/// A kind of device that can be lent.
struct Kind {
    name: &'static str,
    /// Arguments of ip(8) that make two of them which reach each other, `end0` and `end1`, from the
    /// connected `eth0` and `eth1`.
    made_by: &'static [&'static str],
    /// Devices that are left if `end0` and `end1` are deleted.
    leaves: &'static [&'static str],
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "VLAN",
        made_by: &[
            "link add link eth0 name end0 type vlan id 5",
            "link add link eth1 name end1 type vlan id 5",
        ],
        leaves: &[],
    },
    Kind {
        name: "macvlan",
        made_by: &[
            "link add link eth0 name end0 type macvlan mode bridge",
            "link add link eth1 name end1 type macvlan mode bridge",
        ],
        leaves: &[],
    },
    Kind {
        name: "ipvlan",
        made_by: &[
            "link add link eth0 name end0 type ipvlan mode l2",
            "link add link eth1 name end1 type ipvlan mode l2",
        ],
        leaves: &[],
    },
    Kind {
        name: "netkit",
        made_by: &["link add end0 type netkit", "link set nk0 name end1"],
        leaves: &[],
    },
    Kind {
        name: "bridged-veth",
        made_by: &[
            "link add between type bridge",
            "link set between mtu 9000 up",
            "link add end0 mtu 9000 type veth peer name port0 mtu 9000",
            "link add end1 mtu 9000 type veth peer name port1 mtu 9000",
            "link set port0 master between up",
            "link set port1 master between up",
        ],
        leaves: &["between"],
    },
];

/// Devices that cannot be lent: arguments of ip(8) that make them, the two that are named, and the
/// reason.
const REFUSED: [(&[&str], [&str; 2], &str); 5] = [
    (
        &["link add end0 type bond", "link add end1 type bond"],
        ["end0", "end1"],
        "end0 (a bond) cannot leave its network namespace",
    ),
    (
        &["link add end0 type bridge", "link add end1 type bridge"],
        ["end0", "end1"],
        "end0 (a bridge) cannot leave its network namespace",
    ),
    (
        &["link add end0 type bond", "link set eth0 down", "link set eth0 master end0"],
        ["eth0", "eth1"],
        "eth0 is a port of end0",
    ),
    (
        &["link add end0 type bridge", "link set eth0 master end0"],
        ["eth0", "eth1"],
        "eth0 is a port of end0",
    ),
    (&["link add link eth0 name end0 type vlan id 5"], ["eth0", "eth1"], "end0 is stacked on eth0"),
];

/// Over a veth pair in place of two NICs.
#[test]
#[ignore = "takes minutes: make test-drivers"]
fn kinds_work_or_are_refused() {
    let Some(_machine) = able() else { return };
    work_or_are_refused(&CommandRunner::boot("debian:newest", MODULES, None).unwrap());
}

fn work_or_are_refused(guest: &CommandRunner) {
    if !Path::new(IP).exists() {
        return skip!("no {IP}: devices without hardware are not tried as links");
    }
    ip(guest, "link add eth0 type veth peer name eth1");
    cards_are_up(guest);
    for kind in &KINDS {
        println!("{}", kind.name);
        let before = make(guest, kind);
        let text = guest.output_of(&of_ends(&study("--path socket --link nic:gro=off")));
        is_as_it_was(guest, &before, kind.name, &text);
        unmake(guest, kind);
    }
    are_refused(guest);
    names_the_device_below(guest);
    are_measured_where_they_are(guest);
    ip(guest, "link del eth0");
}

/// A refusal comes before anything is changed.
fn are_refused(guest: &CommandRunner) {
    for (made_by, ends, why) in REFUSED {
        made_by.iter().for_each(|words| ip(guest, words));
        let before = state(guest);
        let line = study("--path socket").replace("eth0", ends[0]).replace("eth1", ends[1]);
        let (code, text) = guest.outcome_of(&line);
        assert!(code == 3 && text.contains(why), "{made_by:?}: {code}: {text}");
        is_as_it_was(guest, &before, why, &text);
        ip(guest, "link del end0");
        let other = made_by.iter().any(|words| words.contains("end1"));
        other.then(|| ip(guest, "link del end1"));
        cards_are_up(guest);
    }
}

/// A device that is stacked on another takes no larger packets than that one, and needs it to be
/// up.
fn names_the_device_below(guest: &CommandRunner) {
    for kind in KINDS.iter().filter(|kind| kind.made_by[0].contains("link eth0")) {
        make(guest, kind);
        let is_refused = |arguments: &str, why: &str| {
            let (code, text) = guest.outcome_of(&of_ends(&study(arguments)));
            assert!(code == 3 && text.contains(why), "{}: {code}: {text}", kind.name);
        };
        let why = "end0: MTU 9001: that of the device below it is 9000";
        is_refused("--path socket --link nic:mtu=9001", why);
        ip(guest, "link set eth0 down");
        is_refused("--path socket", "end0: the device below it is down");
        cards_are_up(guest);
        unmake(guest, kind);
    }
}

/// Devices that cannot be lent are measured between two addresses, in the namespaces they are in.
fn are_measured_where_they_are(guest: &CommandRunner) {
    let hosts = [("one", "eth0", "10.9.0.1/24"), ("two", "eth1", "10.9.0.2/24")];
    for kind in ["bond miimon 100", "bridge"] {
        for (host, card, address) in hosts {
            ip(guest, &format!("netns add {host}"));
            ip(guest, &format!("link set {card} netns {host}"));
            ip(guest, &format!("-n {host} link add over type {kind}"));
            ip(guest, &format!("-n {host} link set {card} master over"));
            ip(guest, &format!("-n {host} link set {card} up"));
            ip(guest, &format!("-n {host} addr add {address} dev over"));
            ip(guest, &format!("-n {host} link set over up"));
        }
        let out = kind.split(' ').next().unwrap();
        guest.output_of(&format!(
            "/bin/bytepath run --sender 'exec:{IP} netns exec one' --receiver 'exec:{IP} netns exec two' \
             --path socket --blocks 1 --meters none --profile none --warm-up 200ms --window 400ms \
             --study /tmp/over-{out}"
        ));
        for (host, card, _) in hosts {
            ip(guest, &format!("-n {host} link set {card} nomaster"));
            ip(guest, &format!("-n {host} link set {card} netns 1"));
            ip(guest, &format!("netns del {host}"));
        }
    }
}

/// Tries each feature on each kind of device, for the table in `docs/reference/drivers.md`.
#[test]
#[ignore = "takes minutes: make test-drivers"]
fn every_feature_of_every_kind() {
    let Some(_machine) = able() else { return };
    let Some(guest) = with_cards("igb") else { return };
    let [wanted, only] = ["DRIVER", "FEATURE"].map(|name| std::env::var(name).unwrap_or_default());
    cards_are_up(&guest);
    for kind in KINDS.iter().filter(|kind| wanted.is_empty() || kind.name == wanted) {
        let before = make(&guest, kind);
        try_features(&guest, kind.name, &only, |arguments| {
            is_as_it_was(&guest, &before, kind.name, arguments);
            of_ends(&study(arguments))
        });
        is_as_it_was(&guest, &before, kind.name, "the last");
        unmake(&guest, kind);
    }
}

/// Replaces the two NICs of a study by the two devices.
fn of_ends(study: &str) -> String {
    study.replace("eth0", "end0").replace("eth1", "end1")
}

/// Sets the NICs up, with an MTU for large packets.
fn cards_are_up(guest: &CommandRunner) {
    ip(guest, "link set eth0 mtu 9000 up");
    ip(guest, "link set eth1 mtu 9000 up");
}

/// Makes the devices; returns the state of all.
fn make(guest: &CommandRunner, kind: &Kind) -> Vec<String> {
    kind.made_by.iter().for_each(|words| ip(guest, words));
    settled(guest)
}

/// Returns the state of all devices once it no longer changes: a bridge takes a second or two to
/// notice that its ports have no carrier (net/core/link_watch.c).
fn settled(guest: &CommandRunner) -> Vec<String> {
    let mut before = state(guest);
    loop {
        sleep(Duration::from_millis(1500));
        let now = state(guest);
        if now == before {
            return now;
        }
        before = now;
    }
}

fn unmake(guest: &CommandRunner, kind: &Kind) {
    // Deleting one end of a pair deletes the other.
    let other = if kind.name == "netkit" { None } else { Some("end1") };
    for device in ["end0"].into_iter().chain(other).chain(kind.leaves.iter().copied()) {
        ip(guest, &format!("link del {device}"));
    }
}

/// Everything that ip(8) shows about the devices, except timers, which change by themselves.
fn state(guest: &CommandRunner) -> Vec<String> {
    let shown = guest.output_of(&format!("{IP} -d -o link"));
    let mut lines: Vec<String> = Vec::new();
    for line in shown.lines() {
        let mut words = line.split_whitespace();
        let mut kept = Vec::new();
        while let Some(word) = words.next() {
            match word.ends_with("_timer") {
                true => drop(words.next()),
                false => kept.push(word),
            }
        }
        lines.push(kept.join(" "));
    }
    lines
}

fn is_as_it_was(guest: &CommandRunner, before: &[String], what: &str, text: &str) {
    let now = settled(guest);
    assert_eq!(now, before, "{what}: {text}");
}

fn ip(guest: &CommandRunner, words: &str) {
    guest.output_of(&format!("{IP} {words}"));
}
