//! The socket family of paths, each sender against each receiver, over real
//! TCP connections on the loopback device.

use crate::ends::{End, Opens};
use bytepath::connection::{Flow, read_witness};
use bytepath::path;
use bytepath::record::{
    Cell, Facts, Fault, FaultKind, Half, Options, ProvenWitness, Role, Stream, Support, Touch,
};
use bytepath::sys::tcp::{self, FlowOptions};
use bytepath::workload::{Account, Detail, FlowEnd, Gate, HalfConfig, Phase, Progress, Recorder};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const SENDERS: [&str; 4] = ["socket", "sendfile", "splice", "msg-zerocopy"];
const RECEIVERS: [&str; 3] = ["socket", "tcp-zerocopy-receive", "discard"];

/// An advertised segment size of 4096 bytes of payload and 12 of options, as on a wire of MTU 4148.
const PAGE_SEGMENTS: i32 = 4108;

/// How long anything may take before it counts as hung.
const TIMEOUT: Duration = Duration::from_secs(20);

type Given = &'static [(&'static str, &'static str)];

/// The stream that a test requests.
#[derive(Clone)]
struct Setup {
    tx: &'static str,
    tx_options: Given,
    rx: &'static str,
    rx_options: Given,
    message_size: u64,
    read_size: u64,
    read_memory: Option<u64>,
    /// `TCP_MAXSEG` of the connection; `None` keeps the loopback device's.
    max_segment: Option<i32>,
    run_for: Duration,
}

impl Setup {
    fn new(tx: &'static str, rx: &'static str) -> Self {
        Setup {
            tx,
            tx_options: &[],
            rx,
            rx_options: &[],
            message_size: 1 << 20,
            read_size: 1 << 20,
            read_memory: None,
            max_segment: None,
            run_for: Duration::from_millis(60),
        }
    }

    fn cell(&self) -> Cell {
        let stream = Stream {
            message_size: self.message_size,
            read_size: self.read_size,
            read_memory: self.read_memory,
            congestion: "reno".into(),
            touch: if self.rx == "discard" { Touch::None } else { Touch::Verify },
            ..Stream::default()
        };
        let tx = half(self.tx, Role::Sender, self.tx_options);
        let rx = half(self.rx, Role::Receiver, self.rx_options);
        Cell { stream, ..Cell::new("test", tx, rx) }
    }

    fn listen(&self) -> (TcpListener, SocketAddr) {
        let (at, options) = ((Ipv4Addr::LOCALHOST, 0).into(), FlowOptions::default());
        let listener = tcp::listen_at(at, 1, &options).unwrap();
        if let Some(bytes) = self.max_segment {
            tcp::set_int(listener.as_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, bytes).unwrap();
        }
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// The sender's and the receiver's socket.
    fn connect(&self) -> (TcpStream, TcpStream) {
        let (listener, address) = self.listen();
        let tx = tcp::connect(address, None, &FlowOptions::default()).unwrap();
        (tx, listener.accept().unwrap().0)
    }

    fn open(&self, role: Role, socket: TcpStream) -> Result<End, Fault> {
        let cell = self.cell();
        let path = path::find(path::CATALOG, &cell.half(role).path).unwrap();
        path.open(role, &cell, Flow::tcp(socket, 0))
    }

    /// Opens an end and runs it in a thread.
    fn start(&self, role: Role, socket: TcpStream, gate: &Arc<Gate>) -> Running {
        let clone = socket.try_clone().unwrap();
        Running::new(role, self.open(role, socket).unwrap(), clone, gate)
    }
}

/// One half with the defaults of its options filled in.
fn half(name: &str, role: Role, given: Given) -> Half {
    let path = path::find(path::CATALOG, name).unwrap();
    let mut options = Options::default();
    for spec in path.options(role) {
        let text = given.iter().find(|(n, _)| *n == spec.name).map_or(spec.default, |(_, t)| t);
        options.0.insert(spec.name.into(), spec.kind.parse(text).unwrap());
    }
    assert!(given.iter().all(|(n, _)| options.0.contains_key(*n)), "unknown option: {given:?}");
    Half { path: name.into(), options }
}

/// An engine that runs in its own thread.
struct Running {
    result: mpsc::Receiver<(Result<Account, Fault>, FlowEnd)>,
    socket: TcpStream,
    progress: Arc<Progress>,
}

impl Running {
    fn new(role: Role, mut endpoint: End, socket: TcpStream, gate: &Arc<Gate>) -> Self {
        let (send, result) = mpsc::channel();
        let progress = Arc::new(Progress::default());
        let mut recorder =
            Recorder::new(role == Role::Sender, gate.clone(), progress.clone(), Detail::ALL);
        thread::spawn(move || {
            let account = endpoint.run(&mut recorder);
            drop(endpoint);
            let _ = send.send((account, recorder.finish()));
        });
        Running { result, socket, progress }
    }

    fn wait(self) -> (Result<Account, Fault>, FlowEnd) {
        self.result.recv_timeout(TIMEOUT).unwrap_or_else(|_| {
            let _ = self.socket.shutdown(Shutdown::Both);
            panic!("an engine hung after {} bytes", self.progress.total());
        })
    }

    fn fault(self) -> FaultKind {
        self.wait().0.expect_err("this stream cannot have ended in order").kind
    }

    fn await_first_bytes(&self) {
        let begin = Instant::now();
        while self.progress.total() == 0 {
            assert!(begin.elapsed() < TIMEOUT, "nothing moves");
            thread::yield_now();
        }
    }
}

/// The outcome of a trial, by end.
struct Outcome {
    witness: ProvenWitness,
    tx: Account,
    rx: Account,
    rx_tally: FlowEnd,
}

/// Runs a whole trial of one flow, and checks what holds for every path.
fn trial(setup: &Setup) -> Outcome {
    let name = format!(
        "{} {:?} to {} {:?}, message {}, read {}",
        setup.tx, setup.tx_options, setup.rx, setup.rx_options, setup.message_size, setup.read_size
    );
    let (tx_socket, rx_socket) = setup.connect();
    let (tx_clone, rx_clone) = (tx_socket.try_clone().unwrap(), rx_socket.try_clone().unwrap());
    let early = Flow::tcp(rx_socket.try_clone().unwrap(), 0);
    let mut sender = setup.open(Role::Sender, tx_socket).unwrap();
    let receiver = setup.open(Role::Receiver, rx_socket).unwrap();
    sender.witness().unwrap();
    let witness = read_witness(&early).unwrap();

    let gate = Arc::new(Gate::default());
    let receiver = Running::new(Role::Receiver, receiver, rx_clone, &gate);
    let sender = Running::new(Role::Sender, sender, tx_clone, &gate);
    receiver.await_first_bytes();
    gate.set(Phase::Window);
    thread::sleep(setup.run_for);
    gate.set(Phase::Drain);
    thread::sleep(setup.run_for / 4);
    gate.set(Phase::Stop);
    let (tx, tx_tally) = sender.wait();
    let (rx, rx_tally) = receiver.wait();
    let tx = tx.unwrap_or_else(|fault| panic!("{name}: sender: {fault}"));
    let rx = rx.unwrap_or_else(|fault| panic!("{name}: receiver: {fault}"));
    assert_eq!(tx_tally.total, rx_tally.total, "{name}: sent and received");
    assert_eq!(tx.ledger.delivered, tx_tally.total, "{name}: {:?}", tx.ledger);
    assert_eq!(rx.ledger.delivered, rx_tally.total, "{name}: {:?}", rx.ledger);
    Outcome { witness, tx, rx, rx_tally }
}

#[test]
fn every_sender_reaches_every_receiver_unharmed() {
    for tx in SENDERS {
        for rx in RECEIVERS {
            for message_size in [1 << 20, 64 << 10, 3 << 20, 5000, (1 << 20) + 4097] {
                for read_size in [1 << 20, 64 << 10, 4096] {
                    let run_for = Duration::from_millis(12);
                    trial(&Setup { message_size, read_size, run_for, ..Setup::new(tx, rx) });
                }
            }
        }
    }
}

#[test]
fn page_sized_segments_arrive_unharmed_too() {
    for tx in SENDERS {
        for rx in RECEIVERS {
            for message_size in [1 << 20, 5000] {
                let max_segment = Some(PAGE_SEGMENTS);
                trial(&Setup { message_size, max_segment, ..Setup::new(tx, rx) });
            }
        }
    }
}

#[test]
fn several_flows_run_side_by_side() {
    for tx in SENDERS {
        for rx in RECEIVERS {
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| trial(&Setup::new(tx, rx)));
                }
            });
        }
    }
}

#[test]
fn the_witness_tells_references_from_copies() {
    for (tx, expected) in [
        ("socket", ProvenWitness::Copied),
        ("sendfile", ProvenWitness::Shared),
        ("splice", ProvenWitness::Shared),
        // Loopback delivery copies pinned user pages (skb_orphan_frags_rx).
        ("msg-zerocopy", ProvenWitness::Copied),
    ] {
        assert_eq!(trial(&Setup::new(tx, "socket")).witness, expected, "{tx}");
    }
}

#[test]
fn senders_account_for_their_bytes() {
    let ledger = |tx| trial(&Setup::new(tx, "socket")).tx.ledger;
    assert_eq!(ledger("socket").copied_share(), 1.0);
    assert_eq!(ledger("sendfile").not_copied_share(), 1.0);
    // One byte in each MiB ends a record, and is copied.
    let spliced = ledger("splice");
    assert!(spliced.copied <= spliced.delivered >> 20, "{spliced:?}");
    assert_eq!(spliced.unknown, 0);
    let pinned = ledger("msg-zerocopy");
    assert_eq!((pinned.copied_share(), pinned.unknown), (1.0, 0), "{pinned:?}");
}

#[test]
fn whole_pages_are_mapped_and_not_copied() {
    for tx in ["splice", "msg-zerocopy"] {
        for read_size in [1 << 20, 64 << 10] {
            let end = trial(&Setup {
                max_segment: Some(PAGE_SEGMENTS),
                run_for: Duration::from_millis(200),
                read_size,
                ..Setup::new(tx, "tcp-zerocopy-receive")
            });
            let share = end.rx.ledger.not_copied_share();
            // On a busy machine the start of a stream, which arrives in pieces, is a larger share
            // of it.
            assert!(share >= 0.9, "{tx} at {read_size}: {share} of {:?}", end.rx.ledger);
            assert!(share < 0.95 || end.rx.notes.is_empty(), "{:?}", end.rx.notes);
        }
    }
}

#[test]
fn unmappable_bytes_are_read_and_labelled_copied() {
    for tx in ["socket", "sendfile"] {
        let end = trial(&Setup {
            max_segment: Some(PAGE_SEGMENTS),
            run_for: Duration::from_millis(200),
            ..Setup::new(tx, "tcp-zerocopy-receive")
        });
        assert!(end.rx.ledger.copied_share() > 0.95, "{tx}: {:?}", end.rx.ledger);
        assert_eq!(end.rx.notes.len(), 1, "{tx}: {:?}", end.rx.notes);
        // Fewer than two calls for each packet: attempts to map become rare.
        let (map, recv) =
            (end.rx_tally.calls[0].1.row("map", 1.0), end.rx_tally.calls[1].1.row("recv", 1.0));
        assert!(map.calls < 20 + recv.calls * 3 / 4, "{tx}: {map:?} {recv:?}");
    }
}

#[test]
fn options_change_how_and_not_what() {
    let zero_copy_rx = "tcp-zerocopy-receive";
    let page_segments = Some(PAGE_SEGMENTS);
    for setup in [
        Setup { rx_options: &[("lowat", "256K")], ..Setup::new("socket", "socket") },
        Setup { rx_options: &[("lowat", "1G")], ..Setup::new("splice", "socket") },
        Setup { rx_options: &[("waitall", "on")], ..Setup::new("socket", "socket") },
        Setup { rx_options: &[("lowat", "256K")], ..Setup::new("splice", "discard") },
        Setup { rx_options: &[("lowat", "1G")], ..Setup::new("socket", "discard") },
        Setup { tx_options: &[("notsent-lowat", "128K")], ..Setup::new("socket", "socket") },
        Setup { tx_options: &[("pipe", "64K")], ..Setup::new("splice", "socket") },
        Setup { tx_options: &[("align", "off")], ..Setup::new("splice", zero_copy_rx) },
        Setup {
            tx_options: &[("pipe", "64K")],
            message_size: 100_000,
            ..Setup::new("splice", "socket")
        },
        Setup {
            tx_options: &[("huge", "on"), ("reap", "1")],
            message_size: 4 << 20,
            ..Setup::new("msg-zerocopy", "socket")
        },
        Setup {
            tx_options: &[("reap", "1024")],
            message_size: 5000,
            ..Setup::new("msg-zerocopy", zero_copy_rx)
        },
        Setup {
            rx_options: &[("lowat", "1")],
            max_segment: page_segments,
            ..Setup::new("splice", zero_copy_rx)
        },
        Setup {
            rx_options: &[("lowat", "1G")],
            max_segment: page_segments,
            read_size: 16 << 20,
            ..Setup::new("splice", zero_copy_rx)
        },
    ] {
        trial(&setup);
    }
}

#[test]
fn reads_fill_the_memory_that_was_requested_in_turn() {
    // The last size leaves a remainder that no whole read fits into.
    for (read_size, memory) in [(1 << 20, 1 << 20), (64 << 10, 4 << 20), (100_000, 1_000_001)] {
        trial(&Setup { read_size, read_memory: Some(memory), ..Setup::new("socket", "socket") });
    }
    for rx in ["discard", "tcp-zerocopy-receive"] {
        let cell = Setup { read_memory: Some(4 << 20), ..Setup::new("socket", rx) }.cell();
        let half = path::find(path::CATALOG, rx).unwrap().rx.unwrap();
        let answer = (half.check)(&HalfConfig::stream(&cell, Role::Receiver), &Facts::default());
        assert!(!answer.is_yes(), "{rx} chooses no memory");
    }
}

#[test]
fn a_receiver_that_dies_is_a_lost_peer() {
    for tx in SENDERS {
        let setup = Setup::new(tx, "socket");
        let (tx_socket, rx_socket) = setup.connect();
        let sender = setup.start(Role::Sender, tx_socket, &Arc::default());
        sender.await_first_bytes();
        drop(rx_socket);
        assert_eq!(sender.fault(), FaultKind::PeerLost, "{tx}");
    }
}

/// What the double does as the sender of `a_sender_that_is_killed_is_a_lost_peer`.
#[allow(dead_code, reason = "the double calls it")]
pub fn sender_double(address: &str, tx: &str) {
    let tx = SENDERS.into_iter().find(|name| *name == tx).unwrap();
    let socket = tcp::connect(address.parse().unwrap(), None, &FlowOptions::default()).unwrap();
    let _ = Setup::new(tx, "socket").start(Role::Sender, socket, &Arc::default()).wait();
}

#[test]
fn a_sender_that_is_killed_is_a_lost_peer() {
    for rx in RECEIVERS {
        for tx in SENDERS {
            let setup = Setup::new(tx, rx);
            let (listener, address) = setup.listen();
            let mut child = Command::new(bytepath_testing::double())
                .args(["sender", &address.to_string(), tx])
                .spawn()
                .unwrap();
            let socket = listener.accept().unwrap().0;
            let receiver = setup.start(Role::Receiver, socket, &Arc::default());
            receiver.await_first_bytes();
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(receiver.fault(), FaultKind::PeerLost, "{tx} to {rx}");
        }
    }
}

#[test]
fn a_shutdown_from_outside_frees_a_sender_whose_receiver_is_stuck() {
    for tx in SENDERS {
        // Both before the sender is asked to stop, and while it waits for the end.
        for stop_first in [false, true] {
            let setup = Setup::new(tx, "socket");
            let (tx_socket, _rx_socket) = setup.connect();
            let outside = tx_socket.try_clone().unwrap();
            let gate = Arc::new(Gate::default());
            let sender = setup.start(Role::Sender, tx_socket, &gate);
            sender.await_first_bytes();
            if stop_first {
                gate.set(Phase::Stop);
            }
            thread::sleep(Duration::from_millis(10));
            outside.shutdown(Shutdown::Both).unwrap();
            assert_eq!(sender.fault(), FaultKind::PeerLost, "{tx}");
        }
    }
}

#[test]
fn a_shutdown_from_outside_frees_a_waiting_receiver() {
    for rx in RECEIVERS {
        let setup = Setup::new("socket", rx);
        let (_tx_socket, rx_socket) = setup.connect();
        let outside = rx_socket.try_clone().unwrap();
        let receiver = setup.start(Role::Receiver, rx_socket, &Arc::default());
        thread::sleep(Duration::from_millis(20));
        outside.shutdown(Shutdown::Both).unwrap();
        assert_eq!(receiver.fault(), FaultKind::PeerLost, "{rx}");
    }
}

#[test]
fn refuses_missing_halves_and_impossible_sizes() {
    let half = |name, role| path::find(path::CATALOG, name).unwrap().half(role);
    for tx in ["sendfile", "splice", "msg-zerocopy", "uring-zc"] {
        assert!(half(tx, Role::Sender).is_some() && half(tx, Role::Receiver).is_none(), "{tx}");
    }
    let rx = "tcp-zerocopy-receive";
    assert!(half(rx, Role::Sender).is_none());
    let small = Setup { read_size: 4095, ..Setup::new("socket", rx) };
    let fault = small.open(Role::Receiver, small.connect().1).err().expect("this must be refused");
    assert_eq!(fault.kind, FaultKind::Usage);
    assert!(fault.to_string().contains("choose a read size"), "{fault}");
    // It is refused before anything is opened, too.
    let job = HalfConfig::stream(&small.cell(), Role::Receiver);
    let Support::No { reason, .. } =
        (half(rx, Role::Receiver).unwrap().check)(&job, &Facts::default())
    else {
        panic!("a read size of 4095 bytes passed the check")
    };
    assert!(reason.contains("4095 bytes"), "{reason}");
}

#[test]
fn a_receiver_of_messages_that_are_answered_does_not_wait_for_two() {
    for (rx, given) in [
        ("socket", &[("lowat", "65")][..]),
        ("socket", &[("waitall", "on")]),
        ("tcp-zerocopy-receive", &[("lowat", "65")]),
        ("discard", &[("lowat", "65")]),
    ] {
        let setup = Setup { rx_options: given, message_size: 64, ..Setup::new("socket", rx) };
        let stream = HalfConfig::stream(&setup.cell(), Role::Receiver);
        let path = path::find(path::CATALOG, rx).unwrap();
        let facts = Facts { attempts: (path.attempt)(None), ..Facts::default() };
        let check = |job: &HalfConfig| (path.half(Role::Receiver).unwrap().check)(job, &facts);
        assert!(check(&stream).is_yes(), "{rx}: more comes by itself");
        let Support::No { reason, remedy } = check(&HalfConfig { batch: 1, ..stream.clone() })
        else {
            panic!("{rx} {given:?}: each end would wait for the other")
        };
        assert!(reason.contains("messages of 64") && remedy.contains("64 bytes"), "{reason}");
    }
}

#[test]
fn a_flow_that_is_damaged_is_found_out() {
    for rx in RECEIVERS.into_iter().filter(|rx| *rx != "discard") {
        // The receiver expects messages of another size than the sender's.
        let setup = Setup { message_size: 5000, ..Setup::new("socket", rx) };
        let other = Setup { message_size: 5001, ..setup.clone() };
        let (tx_socket, rx_socket) = setup.connect();
        let gate = Arc::new(Gate::default());
        let receiver = setup.start(Role::Receiver, rx_socket, &gate);
        let sender = other.start(Role::Sender, tx_socket, &gate);
        let Running { result, socket, progress: _ } = receiver;
        let end = result.recv_timeout(TIMEOUT).expect("the receiver hangs");
        assert_eq!(end.0.unwrap_err().kind, FaultKind::Corrupt, "{rx}");
        drop(socket);
        assert_eq!(sender.fault(), FaultKind::PeerLost, "{rx}");
    }
}
