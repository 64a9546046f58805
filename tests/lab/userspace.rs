//! A TCP stack in this process against the kernel's, and against another instance of it: bytes
//! arrive as they were sent, no matter what the link does to them, and trouble ends in a clear
//! message.

use crate::agents::{self, Agent};
use crate::isolated::isolated;
use crate::places::{Place, join};
use crate::running::{await_that, said};
use crate::testbed::unavailable;
use bytepath::connection::userspace::Hold;
use bytepath::connection::{Connection, KERNEL_TCP, Terms, USERSPACE_TCP};
use bytepath::record::wire::{CloseWindow, Finish, OpenWindow, Stop, Token};
use bytepath::record::{
    Cell, FaultKind, Half, LinkSettings, OptionValue, Options, ProvenWitness, Role, Stream, Trial,
    TrialStatus, Work,
};
use bytepath::study::load;
use bytepath::sys::tcp::{self, unspecified};
use bytepath_testing::shared;
use std::fs;
use std::io::{ErrorKind, Write};
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Runs a path and its copy with these arguments, all bytes verified; returns the first trial.
fn run(path: &str, arguments: &[&str]) -> Trial {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.arg("run").arg("--study").arg(&out).args(["--path", path, "--stream=touch=verify"]);
    command.args(["--blocks=1", "--warm-up=50ms", "--window=300ms", "--design=trials"]);
    command.args(["--meters=none", "--profile=none", "--cores=unpinned"]).args(arguments);
    let (code, _, stderr) = said(&mut command);
    assert_eq!(code, 0, "{path} {arguments:?}: {stderr}");
    let study = load(&out).unwrap();
    for trial in &study.trials {
        assert_eq!(trial.status, TrialStatus::Measured, "{path} {arguments:?}");
        assert_eq!(trial.label, "copied");
        let [sender, receiver] = trial.roles.as_slice() else { panic!("two roles") };
        assert_eq!(sender.total_bytes, receiver.total_bytes, "{path} {arguments:?}");
        assert!(trial.count > 0, "{path} {arguments:?}: nothing moved");
    }
    study.trials[0].clone()
}

/// A counter of the stacks, summed over all ends.
fn counted(trial: &Trial, name: &str) -> f64 {
    let readings = trial.readings.iter().filter(|reading| reading.metric == name);
    readings.map(|reading| reading.value).sum()
}

#[test]
fn a_stream_meets_the_kernels_tcp_in_both_directions() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    for link in ["wire", "wire:mtu=1500,threaded-napi=off", "offload:mtu=9000"] {
        for path in ["userspace+socket", "socket+userspace", "userspace+userspace"] {
            let trial = run(path, &["--link", link]);
            let [sender, receiver] = trial.roles.as_slice() else { panic!("two roles") };
            assert_eq!(sender.ledger.copied, sender.total_bytes);
            assert_eq!(receiver.ledger.copied, receiver.total_bytes);
            assert_eq!(sender.witness, Some(ProvenWitness::Copied), "{path} {link}");
            let carried = if path.starts_with("userspace") { "bytes-out" } else { "bytes-in" };
            let carried = counted(&trial, &format!("userspace.{carried}"));
            assert!(carried >= sender.total_bytes as f64, "{path} {link}: {carried}");
        }
    }
}

#[test]
fn one_frame_stands_for_many_segments() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    for (path, end) in [("userspace+socket", "out"), ("socket+userspace", "in")] {
        let trial = run(path, &["--link=offload:mtu=1500"]);
        let of = |what: &str| counted(&trial, &format!("userspace.{what}-{end}"));
        let mean = of("bytes") / of("frames");
        assert!(mean > 3.0 * 1460.0, "{path}: {mean} bytes a frame");
        assert_eq!(counted(&trial, "userspace.checksums"), 0.0, "the kernel vouches for all");
    }
}

#[test]
fn resends_lost_and_reordered_packets() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    for path in ["userspace:loss=10,reorder=10+socket", "socket+userspace:loss=10,reorder=10"] {
        let trial = run(path, &["--link=offload:mtu=9000"]);
        let notes = trial.roles.iter().flat_map(|role| &role.notes);
        let spoilt = notes.filter(|note| note.contains("dropped or reordered on purpose")).count();
        assert_eq!(spoilt, 1, "{path}: {:?}", trial.roles);
        if path.starts_with("userspace") {
            assert!(counted(&trial, "userspace.frames-again") > 0.0, "{path}");
        }
    }
}

#[test]
fn requests_are_answered_by_and_to_the_kernels_tcp() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    for path in ["userspace+socket", "socket+userspace", "userspace+userspace"] {
        for workload in ["rr", "rr:request=100,response=30000,outstanding=2", "rr:rate=500"] {
            let trial = run(path, &["--workload", workload]);
            assert_eq!(trial.work, Work::Exchanges);
            assert_eq!(trial.latency.as_ref().unwrap().count(), trial.count, "{path} {workload}");
        }
    }
}

#[test]
fn refuses_unsupported_requests_before_the_study() {
    if unavailable() {
        return;
    }
    for (arguments, words) in [
        (["--stream=flows=2", "--link=wire"], "one connection, not 2"),
        (["--stream=congestion=bbr", "--link=wire"], "no congestion control 'bbr'"),
        (["--stream=flows=1", "--link=big-tcp"], "does not support packets of"),
    ] {
        let out = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        command.args(["run", "--path=userspace+socket", "--blocks=1", "--study"]);
        let (code, _, stderr) = said(command.arg(out.path().join("study")).args(arguments));
        assert_ne!(code, 0, "{arguments:?}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
}

/// A host with the user-space stack, one with the kernel's TCP, and a link between them.
pub struct Lab {
    ours: Place,
    theirs: Place,
    _folder: tempfile::TempDir,
}

/// Addresses of the two hosts.
pub const V4: [&str; 2] = ["198.18.7.1", "198.18.7.2"];
const V6: [&str; 2] = ["2001:2::1", "2001:2::2"];

impl Lab {
    pub fn new() -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let [ours, theirs] = ["ours", "theirs"].map(|name| Place::new(folder.path(), name));
        join(&ours, &theirs, "198.18.7");
        for (place, device, address) in [(&ours, "to-theirs", V6[0]), (&theirs, "to-ours", V6[1])] {
            place.within(|netlink| {
                let index = netlink.link(device).unwrap().unwrap().index;
                netlink.add_address(index, address.parse().unwrap(), 64).unwrap();
            });
        }
        Lab { ours, theirs, _folder: folder }
    }

    fn set_mtu(&self, mtu: u32) {
        for (place, device) in [(&self.ours, "to-theirs"), (&self.theirs, "to-ours")] {
            place.within(|netlink| {
                let index = netlink.link(device).unwrap().unwrap().index;
                netlink.set_mtu(index, mtu).unwrap();
            });
        }
    }

    /// Makes a connection between the stack, which listens or connects, and the kernel's TCP;
    /// returns the stack's end first.
    pub fn connect(&self, [ours, theirs]: [&str; 2], listens: bool, end: &End) -> Ends {
        let token = Token("7".repeat(32));
        let here = (&self.ours, USERSPACE_TCP, ours);
        let there = (&self.theirs, KERNEL_TCP, theirs);
        let (one, other) = if listens { (here, there) } else { (there, here) };
        let address = one.2.parse().unwrap();
        let listener = one.0.within(|_| (one.1.listen)(address, &end.terms()).unwrap());
        let at = listener.address;
        assert_eq!(at.ip() == address, !listens, "a stack has an address of its own");
        let shown = &token;
        let (accepted, connected) = thread::scope(|scope| {
            let accepted = scope.spawn(move || listener.accept(shown, 1).unwrap().remove(0));
            let connect = |_: &mut _| (other.1.connect)(&[at], &end.terms(), &token, 1).unwrap();
            let connected = other.0.within(connect).remove(0);
            (accepted.join().unwrap(), connected)
        });
        if listens { [accepted, connected] } else { [connected, accepted] }
    }
}

/// The stack's end of a connection, and the kernel's.
pub type Ends = [Arc<dyn Connection>; 2];

/// What both ends agree on.
pub struct End {
    contract: Stream,
    link: LinkSettings,
    options: Options,
}

impl End {
    pub fn new(options: &[(&str, u64)]) -> End {
        let number = |(name, value): &(&str, u64)| (name.to_string(), OptionValue::Number(*value));
        let options = Options(options.iter().map(number).collect());
        End { contract: Stream::default(), link: LinkSettings::default(), options }
    }

    fn terms(&self) -> Terms<'_> {
        let End { contract, link, options } = self;
        Terms { contract, link, device: None, ports: None, queues: &[], options, secret: None }
    }
}

/// Bytes that differ at each place of a buffer of this length.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).flat_map(|word| (word.wrapping_mul(2_654_435_761)).to_le_bytes()).collect()
}

/// Sends `sent` by one end, and checks that the other end receives it.
fn carry(sent: &[u8], from: &dyn Connection, to: &dyn Connection) {
    let mut got = vec![0; sent.len()];
    thread::scope(|scope| {
        scope.spawn(|| match Hold::of(from, Role::Sender, false) {
            Ok(stack) => stack.connection.write_all(sent).unwrap(),
            Err(_) => (&*from.kernel().unwrap().socket).write_all(sent).unwrap(),
        });
        to.read_exact(&mut got).unwrap();
    });
    assert!(got == sent, "other bytes have arrived");
}

#[test]
fn every_way_to_meet_carries_every_byte() {
    isolated(module_path!(), "inside_every_way");
}

#[test]
#[ignore = "started in a namespace by every_way_to_meet_carries_every_byte"]
fn inside_every_way() {
    let lab = Lab::new();
    let bytes = pattern(500_000);
    for hosts in [V4, V6] {
        for mtu in [1500, 9000] {
            lab.set_mtu(mtu);
            for options in [&[][..], &[("loss", 10), ("reorder", 30)]] {
                for listens in [true, false] {
                    let [ours, theirs] = lab.connect(hosts, listens, &End::new(options));
                    carry(&bytes, ours.as_ref(), theirs.as_ref());
                    carry(&bytes, theirs.as_ref(), ours.as_ref());
                    ours.end_stream().unwrap();
                    let flow = theirs.kernel().unwrap();
                    assert_eq!(tcp::recv(flow.fd(), &mut [0; 8], 0).unwrap(), 0);
                    flow.confirm_end().unwrap();
                    theirs.close();
                }
            }
        }
    }
}

#[test]
fn a_window_may_be_larger_than_64_kib() {
    isolated(module_path!(), "inside_a_window");
}

#[test]
#[ignore = "started in a namespace by a_window_may_be_larger_than_64_kib"]
fn inside_a_window() {
    let lab = Lab::new();
    let end = End::new(&[]);
    let contract =
        Stream { receive_buffer: Some(4 << 20), send_buffer: Some(4 << 20), ..Stream::default() };
    let [ours, theirs] = lab.connect(V4, true, &End { contract, ..end });
    // All of this is acknowledged before any of it is read.
    let bytes = pattern(750_000);
    let flow = theirs.kernel().unwrap();
    (&*flow.socket).write_all(&bytes).unwrap();
    theirs.wait_acknowledged(Duration::from_secs(10)).unwrap();
    let mut got = vec![0; bytes.len()];
    ours.read_exact(&mut got).unwrap();
    assert!(got == bytes, "other bytes have arrived");
}

/// An answer would cost more than what it answers: a flood would leave the stack no time for
/// acknowledgements.
#[test]
fn datagrams_are_dropped_without_an_answer() {
    isolated(module_path!(), "inside_datagrams");
}

#[test]
#[ignore = "started in a namespace by datagrams_are_dropped_without_an_answer"]
fn inside_datagrams() {
    const DISCARD: u16 = 9;
    let lab = Lab::new();
    for hosts in [V4, V6] {
        let [ours, theirs] = lab.connect(hosts, false, &End::new(&[]));
        let stack = theirs.kernel().unwrap().peer().unwrap().ip();
        let open = |_: &mut _| UdpSocket::bind((unspecified(stack), 0)).unwrap();
        let datagrams = lab.theirs.within(open);
        datagrams.connect((stack, DISCARD)).unwrap();
        for _ in 0..100 {
            // Fails if one before was rejected.
            datagrams.send(&[0; 1000]).unwrap();
        }
        // What was sent after them arrives after them.
        carry(&pattern(1000), theirs.as_ref(), ours.as_ref());
        carry(&pattern(1000), ours.as_ref(), theirs.as_ref());
        assert!(datagrams.take_error().unwrap().is_none(), "{stack} rejected one");
    }
}

#[test]
fn a_stack_answers_its_peer_until_that_has_ended() {
    isolated(module_path!(), "inside_answers");
}

#[test]
#[ignore = "started in a namespace by a_stack_answers_its_peer_until_that_has_ended"]
fn inside_answers() {
    let lab = Lab::new();
    let mut sender = lab.ours.within(|_| Agent::start());
    let mut receiver = lab.theirs.within(|_| Agent::start());
    let cell = Cell::new("stack", Half::plain("userspace"), Half::plain("socket"));
    agents::connect(&mut sender, &mut receiver, cell, V4[1].parse().unwrap());
    receiver.begin();
    sender.begin();
    for agent in [&mut receiver, &mut sender] {
        agent.call(OpenWindow { at: None });
        agent.call(CloseWindow { at: None });
    }
    sender.call(Stop {});
    // The receiver closes its socket after the sender has finished, so its end of stream comes
    // late.
    let begun = Instant::now();
    sender.call(Finish { timeout: 10.0 });
    assert!(begun.elapsed() < Duration::from_secs(4), "it has waited for the peer's end");
    receiver.call(Finish { timeout: 10.0 });
    const LAST_ACK: &str = " 09 ";
    let sockets =
        || lab.theirs.within(|_| fs::read_to_string("/proc/thread-self/net/tcp").unwrap());
    await_that("the peer's end is acknowledged", || !sockets().contains(LAST_ACK));
}

#[test]
fn a_broken_connection_is_not_an_end_of_stream() {
    isolated(module_path!(), "inside_breaks");
}

#[test]
#[ignore = "started in a namespace by a_broken_connection_is_not_an_end_of_stream"]
fn inside_breaks() {
    let lab = Lab::new();
    let connect = || lab.connect(V4, false, &End::new(&[]));
    let lost = |ours: &dyn Connection| {
        let began = Instant::now();
        let fault = ours.read_exact(&mut [0; 8]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::PeerLost, "{fault}");
        assert!(began.elapsed() < Duration::from_secs(2), "{fault}");
        fault
    };

    // The peer died: its kernel sends a reset.
    let [ours, theirs] = connect();
    theirs.kernel().unwrap().reset_on_death().unwrap();
    drop(theirs);
    assert!(lost(ours.as_ref()).message.contains("cut in the middle"));
    assert_eq!(ours.end_stream().unwrap_err().kind, FaultKind::PeerLost);
    drop(ours);

    // Our end was cut: waiting calls return, and the peer is notified.
    let [ours, theirs] = connect();
    let cut = ours.clone();
    let cutter = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        cut.cut();
    });
    lost(ours.as_ref());
    cutter.join().unwrap();
    let flow = theirs.kernel().unwrap();
    let reset = tcp::recv(flow.fd(), &mut [0; 8], 0).unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    drop(ours);

    // Our end died: the peer gets no regular end of stream.
    let [ours, theirs] = connect();
    carry(&pattern(1000), ours.as_ref(), theirs.as_ref());
    drop(ours);
    let flow = theirs.kernel().unwrap();
    assert!(!flow.wait(Duration::from_millis(300)).unwrap(), "the stream has ended");

    // The device went away.
    let [ours, _theirs] = connect();
    lab.ours.within(|netlink| {
        let index = netlink.link("to-theirs").unwrap().unwrap().index;
        netlink.delete_link(index).unwrap();
    });
    let fault = lost(ours.as_ref());
    assert!(fault.remedy.unwrap().contains("device"), "{}", fault.message);
}
