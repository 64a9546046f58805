//! Whether bytes arrive between two hosts, and what is reported if they do not: namespaces that the
//! test makes, and joins well or badly. Needs root, unshare(1), nsenter(1) and ip(8); else it is
//! skipped and reported.

use crate::isolated::{isolated, text};
use crate::places::{Place, bytepath};
use bytepath::record::{Facts, Study};
use bytepath::study::load;
use bytepath_testing::skip;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Addresses of the sender and of the receiver.
const V4: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
const V6: [&str; 2] = ["fd09::1", "fd09::2"];

/// A hardware address that no host has.
const NOBODY: &str = "02:00:00:00:00:99";

#[test]
fn measures_between_hosts_that_reach_each_other() {
    isolated(module_path!(), "inside_bytes_arrive");
}

#[test]
#[ignore = "started in a namespace by measures_between_hosts_that_reach_each_other"]
fn inside_bytes_arrive() {
    let Some(lab) = Lab::joined() else { return };
    for addresses in [V4, V6] {
        let study = lab.study(addresses);
        assert_eq!(study.remarks, [""; 0]);
        let [sender, receiver] = study.header.facts.as_slice() else { panic!("two hosts") };
        let of = |facts: &Facts, name: &str| facts.settings[name].clone();
        assert_eq!([of(sender, "link.route"), of(receiver, "link.route")], ["end0", "end1"]);
        assert_eq!(of(sender, "link.mtu.path"), "1500");
        // The hosts share a kernel, and therefore a clock.
        let clocks = study.trials[0].clocks.as_ref().unwrap();
        for clock in [clocks.sender, clocks.receiver] {
            assert!(clock.offset.abs() <= clock.error && clock.error < 0.1, "{clocks:?}");
            assert!(clock.wall.abs() < 1.0, "{clocks:?}");
        }
        // On a busy machine an end may be late, but not by as much as clocks differ.
        assert!(clocks.out_of_step() < 2.0, "{clocks:?}");
    }
    let shown = bytepath(&["show", lab.out().to_str().unwrap()]).output().unwrap();
    let way = "sender by end0, packets of up to 1500 bytes; receiver by end1";
    assert!(text(&shown).split_whitespace().collect::<Vec<_>>().join(" ").contains(way));

    // Ends whose MTUs differ, then one whose kernel prefers another device.
    ip(&lab.sender, "link set end0 mtu 1400");
    let study = lab.study(V4);
    assert!(study.remarks[0].contains("up to 1400 bytes and the receiver's 1500"));
    ip(&lab.sender, "link set end0 mtu 1500");
    let remarks = lab.loaded(lab.run(V4, "lo")).remarks;
    assert_eq!(remarks, ["the sender's packets to 10.9.0.2 leave by end0, not by lo"]);
}

#[test]
fn clocks_far_apart_measure_at_the_same_time() {
    isolated(module_path!(), "inside_clocks_far_apart");
}

#[test]
#[ignore = "started in a namespace by clocks_far_apart_measure_at_the_same_time"]
fn inside_clocks_far_apart() {
    let apart = "unshare --time --monotonic 1000 --fork --kill-child";
    let mut able = Command::new("unshare");
    if !able.args(["--time", "--monotonic", "1000", "--fork", "true"]).status().unwrap().success() {
        return skip!("no time namespaces");
    }
    let Some(mut lab) = Lab::joined() else { return };
    lab.before_receiver = apart.into();
    let study = lab.study(V4);
    let trial = &study.trials[0];
    let clocks = trial.clocks.as_ref().unwrap();
    let off = (clocks.receiver.offset - 1000.0).abs();
    assert!(off <= clocks.receiver.error + 1e-6, "{clocks:?}");
    assert!(clocks.sender.offset.abs() <= clocks.sender.error, "{clocks:?}");
    assert!((trial.window - 0.3).abs() < 2.0 && clocks.out_of_step() < 2.0, "{trial:?}");
}

#[test]
fn explains_why_bytes_do_not_arrive() {
    isolated(module_path!(), "inside_bytes_do_not_arrive");
}

#[test]
#[ignore = "started in a namespace by explains_why_bytes_do_not_arrive"]
fn inside_bytes_do_not_arrive() {
    let Some(lab) = Lab::joined() else { return };
    let refused = |addresses, words: &str| {
        let output = lab.run(addresses, "end0");
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert!(text(&output).contains(words), "not '{words}': {}", text(&output));
        assert!(!lab.out().exists(), "no trial was begun");
    };
    // No route at one end.
    for (place, role, addresses, kind) in [
        (&lab.sender, "sender", [V4[1], V6[1]], "unreachable"),
        (&lab.receiver, "receiver", [V4[0], V6[0]], "prohibit"),
        (&lab.receiver, "receiver", [V4[0], V6[0]], "blackhole"),
    ] {
        for (pair, address) in [V4, V6].into_iter().zip(addresses) {
            let family = if address.contains(':') { "-6 " } else { "" };
            ip(place, &format!("{family}route add {kind} {address}"));
            refused(
                pair,
                &format!("{role}: this host has a route of the kind {kind} to {address}"),
            );
            ip(place, &format!("{family}route del {kind} {address}"));
        }
    }
    // First what the sender sends is lost, then the receiver's replies.
    let receiver = lab.receiver.within(|netlink| netlink.hardware_address("end1").unwrap());
    let receiver = receiver.map(|byte| format!("{byte:02x}")).join(":");
    for pair in [V4, V6] {
        let know = |place, at: &str, hardware| {
            ip(place, &format!("neigh replace {at} lladdr {hardware} nud permanent"));
        };
        let (peer, back) = (format!("{} dev end0", pair[1]), format!("{} dev end1", pair[0]));
        know(&lab.sender, &peer, NOBODY);
        refused(pair, "and nothing arrived there");
        know(&lab.sender, &peer, &receiver);
        know(&lab.receiver, &back, NOBODY);
        refused(pair, "one-way: what the sender");
        ip(&lab.sender, &format!("neigh del {peer}"));
        ip(&lab.receiver, &format!("neigh del {back}"));
    }
    // No host claims the address.
    ip(&lab.sender, "neigh flush dev end0");
    ip(&lab.receiver, "link set end1 arp off");
    refused(V4, "the sender cannot connect to 10.9.0.2, TCP port ");
    ip(&lab.receiver, "link set end1 arp on");

    let output = lab.run(["fe80::1", "fe80::2"], "end0");
    assert!(text(&output).contains("fe80::1 is a link-local address"), "{}", text(&output));
    ip(&lab.sender, "addr add 10.9.0.2 dev lo");
    let output = lab.run(V4, "end0");
    assert!(
        text(&output).contains("but it is an address of the sender's host"),
        "{}",
        text(&output)
    );
}

#[test]
fn large_packets_that_vanish_are_a_black_hole() {
    isolated(module_path!(), "inside_black_hole");
}

/// A switch that takes smaller packets than the ends, and reports that to no one.
#[test]
#[ignore = "started in a namespace by large_packets_that_vanish_are_a_black_hole"]
fn inside_black_hole() {
    let Some(lab) = Lab::apart() else { return };
    let switch = Place::new(&lab.folder, "switch");
    ip(&switch, "link add br0 type bridge");
    for (place, end, port) in [(&lab.sender, "end0", "port0"), (&lab.receiver, "end1", "port1")] {
        cable(place, end, &switch, port);
        ip(&switch, &format!("link set {port} master br0 up"));
        cut_to_mtu(place, end);
    }
    ip(&switch, "link set br0 up");
    lab.address();
    // One port has a smaller MTU than the ends.
    ip(&switch, "link set port1 mtu 1400");
    for addresses in [V4, V6] {
        let output = lab.run(addresses, "end0");
        let said = text(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(
            said.contains("black hole: packets of more than 1400 bytes from the sender"),
            "{said}"
        );
        assert!(said.contains("--set \"receiver: mtu end1 1400\""), "{said}");
    }
    ip(&switch, "link set port1 mtu 1500");
    assert!(lab.study(V4).trials[0].count > 0);
}

#[test]
fn a_router_with_a_smaller_mtu_is_remarked_on() {
    isolated(module_path!(), "inside_router");
}

#[test]
#[ignore = "started in a namespace by a_router_with_a_smaller_mtu_is_remarked_on"]
fn inside_router() {
    let Some(lab) = Lab::apart() else { return };
    let router = Place::new(&lab.folder, "router");
    let nets =
        [(&lab.sender, "end0", "port0", "10.9.1"), (&lab.receiver, "end1", "port1", "10.9.2")];
    for (place, end, port, net) in nets {
        cable(place, end, &router, port);
        cut_to_mtu(place, end);
        ip(place, &format!("addr add {net}.2/24 dev {end}"));
        ip(&router, &format!("addr add {net}.1/24 dev {port}"));
        ip(&router, &format!("link set {port} up"));
        ip(place, &format!("link set {end} up"));
        ip(place, &format!("route add default via {net}.1"));
    }
    router.within(|_| fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    ip(&router, "route replace 10.9.2.0/24 dev port1 mtu 1400");
    let study = lab.study(["10.9.1.2", "10.9.2.2"]);
    assert_eq!(
        study.remarks,
        ["the path from the sender accepts packets of 1400 bytes, its device end0 1500"]
    );
    let facts = &study.header.facts[0].settings;
    assert_eq!(facts["link.route"], "end0 via 10.9.1.1");
    assert_eq!(facts["link.mtu.path"], "1400");
    assert!(study.trials[0].count > 0);
}

/// Two hosts.
struct Lab {
    sender: Place,
    receiver: Place,
    folder: PathBuf,
    /// Command line that precedes that of the receiver's agent.
    before_receiver: String,
    _dir: tempfile::TempDir,
}

impl Lab {
    /// Two hosts without a link; `None`, with a report, without ip(8).
    fn apart() -> Option<Lab> {
        if Command::new("ip").arg("-V").output().is_err() {
            skip!("no ip(8)");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().to_owned();
        let [sender, receiver] = ["sender", "receiver"].map(|name| Place::new(&folder, name));
        Some(Lab { sender, receiver, folder, before_receiver: String::new(), _dir: dir })
    }

    /// Two hosts with a veth pair between them: `end0` and `end1`, IPv4 and IPv6.
    fn joined() -> Option<Lab> {
        let lab = Lab::apart()?;
        cable(&lab.sender, "end0", &lab.receiver, "end1");
        lab.address();
        Some(lab)
    }

    fn address(&self) {
        for (at, place) in [&self.sender, &self.receiver].into_iter().enumerate() {
            ip(place, &format!("addr add {}/24 dev end{at}", V4[at]));
            ip(place, &format!("addr add {}/64 dev end{at} nodad", V6[at]));
            ip(place, &format!("link set end{at} up"));
            // Without it the kernel does not notice that no host has the address.
            ip(place, "link set lo up");
        }
    }

    /// The study's folder.
    fn out(&self) -> PathBuf {
        self.folder.join("study")
    }

    /// Runs a study of one path, between these addresses and from this device.
    fn run(&self, [sender, receiver]: [&str; 2], device: &str) -> Output {
        let _ = fs::remove_dir_all(self.out());
        let host = |place: &Place, before: &str| {
            let (pid, state) = (place.pid(), place.state.display());
            let inside = format!("nsenter --target={pid} --net --mount {before}");
            format!("\"exec:{inside} env BYTEPATH_STATE={state}\"")
        };
        let testbed = format!(
            "hosts:sender={},sender-address={sender},sender-device={device},receiver={},\
             receiver-address={receiver},receiver-device=end1",
            host(&self.sender, ""),
            host(&self.receiver, &self.before_receiver),
        );
        let mut run = bytepath(&["run", "--path", "socket", "--testbed", &testbed]);
        run.args(["--cores", "unpinned", "--blocks", "1", "--warm-up", "0", "--window", "300ms"]);
        run.args(["--design", "trials", "--profile", "none", "--study"]).arg(self.out());
        run.output().unwrap()
    }

    /// Like [`Lab::run`] from `end0`; the study must succeed.
    fn study(&self, addresses: [&str; 2]) -> Study {
        self.loaded(self.run(addresses, "end0"))
    }

    fn loaded(&self, output: Output) -> Study {
        assert!(output.status.success(), "{}", text(&output));
        load(&self.out()).unwrap()
    }
}

/// A veth pair between two namespaces.
fn cable(one: &Place, name: &str, other: &Place, peer: &str) {
    ip(one, &format!("link add {name} type veth peer name {peer} netns {}", other.pid()));
}

/// Makes packets leave this device one by one, as they enter a wire: a veth pair hands over packets
/// that are still to be segmented as a whole, whatever the MTU.
fn cut_to_mtu(place: &Place, device: &str) {
    let off = ["tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp6-segmentation"];
    place.within(|netlink| {
        let index = netlink.link(device).unwrap().unwrap().index;
        netlink.set_features(index, &off.map(|name| (name, false))).unwrap();
    });
}

/// Runs `ip` in a place.
fn ip(place: &Place, arguments: &str) {
    let output = place.command("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", text(&output));
}
