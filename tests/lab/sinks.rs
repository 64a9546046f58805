//! Sinks of frames other than a plain tap: a macvtap, and messages that cross a tap unsegmented.
//! What a sink lacks is reported.

use crate::isolated::isolated;
use crate::packets::{command, run};
use crate::running::said;
use crate::testbed::unavailable;
use bytepath::connection::{FRAMES, Terms};
use bytepath::host::link_end;
use bytepath::path;
use bytepath::record::wire::{LinkEnd, Token};
use bytepath::record::{Cell, FaultKind, Half, LinkSettings, OptionValue, Role, TapSettings};
use bytepath::stats;
use bytepath::study::load;
use bytepath::sys::bpf::xdp::{Dropper, Mark, Mode};
use bytepath::sys::namespace::privileged;
use bytepath::sys::netlink::{Netlink, Veth};
use bytepath::workload::{self, Direction, Group};
use bytepath_testing::{alone, shared, skip};
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn macvtap_delivers_every_frame_or_counts_the_drop() {
    if unavailable() {
        return;
    }
    if !privileged() {
        return skip!("the device file of a macvtap is root's to make");
    }
    let _shared = shared();
    for (path, link, flows) in [
        ("packet+tap", "macvtap:vnet-header=on", 1),
        ("packet-ring+tap:by=uring", "macvtap:queues=2,queue-length=32", 2),
        ("udp-gso+tap:by=readv,stop-after=500", "macvtap:queue-length=32", 1),
    ] {
        let (_, _, hops) = run("packets", path, link, flows);
        assert!(hops.received > 0, "{path} {link}: {hops:?}");
        let short = link.contains("queue-length");
        assert!(!short || hops.arrival_dropped > 0, "{path} {link}: {hops:?}");
    }
}

/// Every byte is compared, and the device counts 32 frames as one packet.
#[test]
fn messages_that_are_not_cut_are_counted_by_frame() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    let uncut = "tap:vnet-header=on,uso=on";
    for (workload, path, link) in [
        ("packets:frame=1000", "udp-gso+tap", uncut),
        ("packets:count=64000", "udp-gso+tap:by=uring", uncut),
        ("packets:rate=20000", "udp-gso+tap:by=readv,stop-after=320", uncut),
        ("packets", "packet+tap", uncut),
    ] {
        let (_, trial, hops) = run(workload, path, link, 1);
        assert!(hops.received > 0, "{path}: {hops:?}");
        let is_message = path.starts_with("udp-gso");
        assert_eq!(hops.merged, if is_message { 32 } else { 0 }, "{path}: {hops:?}");
        assert!(!is_message || hops.generated() % 32 == 0, "{path}: {hops:?}");
        assert_eq!(trial.roles[1].ledger.delivered % hops.received, 0, "of one size: {hops:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let refused = |path: &str, link: &str| {
        let link = format!("--link={link}");
        let arguments = ["--workload=packets:count=100", &format!("--path={path}"), &link];
        let (code, _, stderr) = said(&mut command(&folder.path().join("none"), &arguments));
        assert_ne!(code, 0, "{path} {link}: {stderr}");
        stderr
    };
    assert!(refused("udp-gso+tap", uncut).contains("not a whole number of messages"));
    assert!(refused("packet+vhost", uncut).contains("unsegmented"));
    assert!(refused("packet+tap", "tap:uso=on").contains("requires vnet-header"));
}

/// Frames that arrive one by one each wake a sink that sleeps, and never one that spins.
#[test]
fn a_sink_that_spins_never_sleeps() {
    if unavailable() {
        return;
    }
    let _alone = alone();
    let sleeps = |path: &str, link: &str| {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("study");
        let (path, link) = (format!("--path={path}"), format!("--link={link}"));
        let words = ["--workload=packets:rate=2000", "--meters=threads", &path, &link];
        let (code, _, stderr) = said(&mut command(&out, &words));
        assert_eq!(code, 0, "{path} {link}: {stderr}");
        let trial = load(&out).unwrap().trials.swap_remove(0);
        assert!(trial.count > 100, "{path}: {trial:?}");
        let sink = stats::sink(&trial);
        let slept = sink.iter().find(|(metric, _)| *metric == "sink.sleeps");
        slept.expect("the meter `threads`").1 / trial.count as f64
    };
    for (path, link) in [
        ("packet+packet-ring", "offload"),
        ("packet+af-xdp", "offload"),
        ("packet+tap:by=uring", "tap"),
    ] {
        let and = if path.contains(':') { ',' } else { ':' };
        let (blocks, spins) = (sleeps(path, link), sleeps(&format!("{path}{and}wait=spin"), link));
        assert!(blocks > 0.2, "{path}: {blocks}");
        assert!(spins < 0.05, "{path}: {spins}");
    }
}

#[test]
fn a_sink_that_stops_fills_its_own_queue() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    for path in
        ["packet+packet:buffer=64K,stop-after=100", "packet+packet-ring:slots=64,stop-after=100"]
    {
        let (_, _, hops) = run("packets", path, "offload", 1);
        assert_eq!(hops.received, 100, "{path}: {hops:?}");
        assert!(hops.ring_queued > 0 && hops.sink_dropped > 0, "{path}: {hops:?}");
    }
}

#[test]
fn a_name_that_is_taken_and_a_device_that_is_in_use_are_named() {
    isolated(module_path!(), "inside_a_name_is_taken");
}

#[test]
#[ignore = "started in namespaces by a_name_that_is_taken_and_a_device_that_is_in_use_are_named"]
fn inside_a_name_is_taken() {
    let mut netlink = Netlink::new();
    let pair = |name: &str, peer: &str| Veth {
        name: name.into(),
        peer: peer.into(),
        peer_process: None,
        mtu: None,
        queues: 1,
    };
    for (name, peer) in [("byte0", "byte1"), ("above", "below")] {
        netlink.create_veth(&pair(name, peer)).unwrap();
        let index = netlink.link(name).unwrap().unwrap().index;
        netlink.set_up(index).unwrap();
    }
    let settings = |macvtap| LinkSettings {
        qdisc: "none".into(),
        mtu: 1500,
        threaded_napi: false,
        wmem: None,
        tap: Some(TapSettings { queues: 1, macvtap, ..TapSettings::default() }),
        ..LinkSettings::default()
    };
    let plain = |device: &str, macvtap| LinkEnd {
        settings: settings(macvtap),
        ..LinkEnd::plain(device, "198.18.0.2".parse().unwrap(), 30)
    };
    let tap = LinkEnd { tap_for: Some(std::process::id()), ..plain("byte0", false) };
    let on =
        |device, below: &str| LinkEnd { macvtap_on: Some(below.into()), ..plain(device, true) };
    let held = link_end(&on("first", "below")).unwrap();
    assert_eq!(held.0.len(), 1);
    for (end, words) in [
        (tap, "a device of that name already exists"),
        (on("byte0", "byte1"), "a device of that name already exists"),
        (on("second", "below"), "another upper device"),
    ] {
        let fault = link_end(&end).unwrap_err();
        assert!(fault.message.contains(&end.device), "{fault:?}");
        assert!(fault.remedy.as_ref().is_some_and(|remedy| remedy.contains(words)), "{fault:?}");
    }
    assert!(netlink.link("second").unwrap().is_none(), "nothing is left");
}

#[test]
fn a_device_whose_program_is_another_s_is_named() {
    isolated(module_path!(), "inside_a_device_has_a_program");
}

#[test]
#[ignore = "started in namespaces by a_device_whose_program_is_another_s_is_named"]
fn inside_a_device_has_a_program() {
    let mut netlink = Netlink::new();
    let [name, peer] = ["byte0", "byte1"].map(String::from);
    netlink.create_veth(&Veth { name, peer, peer_process: None, mtu: None, queues: 1 }).unwrap();
    let index = netlink.link("byte1").unwrap().unwrap().index;
    let mark = Mark { at: 0, bytes: *b"none" };
    let _held = match Dropper::attach(index, mark, Mode::Native) {
        Ok(held) => held,
        Err(refused) => return skip!("no XDP here: {}", refused.error),
    };
    let mut cell = Cell::new("busy", Half::plain("packet"), Half::plain("xdp-drop"));
    cell.workload.name = "packets".into();
    cell.workload.options.0.insert("frame".into(), OptionValue::Word("60".into()));
    let terms = Terms {
        contract: &cell.stream,
        link: &cell.link,
        device: Some("byte1"),
        ports: None,
        queues: &[],
        options: &cell.rx.options,
        secret: None,
    };
    let address = "198.18.0.2".parse().unwrap();
    let listener = (FRAMES.listen)(address, &terms).unwrap();
    let flow = listener.accept(&Token("unused".into()), 1).unwrap().remove(0);
    for path in ["xdp-drop", "af-xdp"] {
        let rx = path::find(path::CATALOG, path).unwrap().rx.unwrap();
        let job = (workload::of(&cell).unwrap().job)(&cell, Role::Receiver, Direction::Receive);
        let fault = (rx.open)(&job, &*flow, &Group::default()).err().unwrap();
        let remedy = fault.remedy.as_ref().unwrap();
        assert!(
            remedy.contains("the device has a program attached: detach it"),
            "{path}: {fault:?}"
        );
    }
}

#[test]
fn refuses_taps_without_permission_with_a_remedy() {
    isolated(module_path!(), "inside_a_tap_without_permission");
}

#[test]
#[ignore = "started in namespaces by refuses_taps_without_permission_with_a_remedy"]
fn inside_a_tap_without_permission() {
    if unavailable() {
        return;
    }
    // A device file that only root may open, whatever the machine's permissions are.
    for words in ["mount -t tmpfs none /dev/net", "mknod -m 0600 /dev/net/tun c 10 200"] {
        let mut words = words.split(' ');
        assert!(Command::new(words.next().unwrap()).args(words).status().unwrap().success());
    }
    let home = tempfile::tempdir().unwrap();
    chown(home.path(), Some(65_534), Some(65_534)).unwrap();
    // Other users may not be able to reach the test's own folder, so take a copy.
    let program = home.path().join("bytepath");
    fs::copy(env!("CARGO_BIN_EXE_bytepath"), &program).unwrap();
    let out = home.path().join("study");
    let mut command = Command::new(&program);
    command.args(["run", "--workload=packets", "--path=packet+tap", "--link=tap", "--study"]);
    let nobody = command.arg(&out).uid(65_534).gid(65_534).current_dir(home.path());
    let (code, _, stderr) = said(nobody);
    assert_ne!(code, 0, "{stderr}");
    if stderr.contains("user namespace") {
        return skip!("{stderr}");
    }
    let text = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("creating the tap byte0") && text.contains("/dev/net/tun"), "{text}");
    assert!(!out.join("trials.jsonl").exists(), "a trial was begun: {text}");
}

#[test]
fn an_end_of_descriptors_without_settings_is_a_bug_that_is_named() {
    let end =
        LinkEnd { tap_for: Some(1), ..LinkEnd::plain("byte0", "198.18.0.2".parse().unwrap(), 30) };
    assert_eq!(link_end(&end).unwrap_err().kind, FaultKind::System);
}
