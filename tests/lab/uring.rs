//! The io_uring paths over real loopback connections: every byte is compared with what was sent,
//! both ends agree on the number of bytes, and every failure of the connection ends in a fault and
//! not in a hang.

use crate::ends::{End, Opens};
use bytepath::connection::{Flow, read_witness};
use bytepath::path::{self, DataPath};
use bytepath::record::{
    Attempt, Cell, Facts, Fault, FaultKind, Half, Options, Outcome, ProvenWitness, Role, Stream,
    Support, Touch,
};
use bytepath::workload::{Account, Detail, FlowEnd, Gate, Phase, Recorder, Toucher};
use bytepath_testing::skip;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Longest time that anything here may take before it counts as a hang.
const HANG: Duration = Duration::from_secs(20);
/// How long bytes flow.
const SPAN: Duration = Duration::from_millis(90);

const MESSAGES: [u64; 4] = [1 << 20, 64 << 10, 3 << 20, 5000];
const READS: [u64; 3] = [1 << 20, 64 << 10, 4096];

const BUNDLES: &[(&str, &str)] = &[("mode", "bundle")];
const SENDERS: [(&str, &[(&str, &str)]); 3] =
    [("uring", &[]), ("uring", BUNDLES), ("uring-zc", &[])];

/// Facts with the outcome of everything that the paths tried on this host.
fn facts() -> &'static Facts {
    static FACTS: OnceLock<Facts> = OnceLock::new();
    FACTS.get_or_init(|| {
        let tried = path::CATALOG.iter().flat_map(|path| (path.attempt)(Some("lo")));
        Facts { kernel_release: "here".into(), attempts: tried.collect(), ..Default::default() }
    })
}

/// Held while rings are up: they and zero-copy sends lock memory, of which an unprivileged user has
/// 8 MiB in all (`RLIMIT_MEMLOCK`), and tests run in parallel.
fn memory_lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the path, or `None`, with the reason printed, if this host lacks it.
pub fn path_for(name: &str, role: Role, set: &[(&str, &str)]) -> Option<&'static DataPath> {
    let path = path::find(path::CATALOG, name).expect("it is in the catalogue");
    let works = |attempt| matches!(facts().attempt(attempt), Some(Outcome::Works(_)));
    for (option, attempt) in [
        (("mode", "bundle"), "io_uring.send-bundle"),
        (("bundle", "on"), "io_uring.recv-bundle"),
        (("incremental", "on"), "io_uring.buffer-ring-incremental"),
    ] {
        if set.contains(&option) && !works(attempt) {
            skip!("{name} {set:?}: {attempt} does not work here");
            return None;
        }
    }
    match path.check(role, facts()).unwrap() {
        Support::Yes => Some(path),
        Support::No { reason, remedy } => {
            skip!("{name} as {role}: {reason} ({remedy})");
            None
        }
    }
}

fn half(path: &str, role: Role, set: &[(&str, &str)]) -> Half {
    let specs = path::find(path::CATALOG, path).map(|p| p.options(role)).unwrap_or_default();
    let mut options = Options::default();
    for spec in specs {
        let text = set.iter().find(|(name, _)| *name == spec.name).map_or(spec.default, |s| s.1);
        options.0.insert(spec.name.into(), spec.kind.parse(text).expect("a valid value"));
    }
    Half { path: path.into(), options }
}

fn cell(message_size: u64, read_size: u64, tx: Half, rx: Half) -> Cell {
    let stream = Stream {
        message_size,
        read_size,
        congestion: "reno".into(),
        touch: Touch::Verify,
        ..Stream::default()
    };
    Cell { stream, ..Cell::new("test", tx, rx) }
}

/// A cell with this sender and the receiver's defaults.
fn cell_of(path: &str, set: &[(&str, &str)], message_size: u64) -> Cell {
    let rx = half("uring", Role::Receiver, &[]);
    cell(message_size, 1 << 20, half(path, Role::Sender, set), rx)
}

fn connect() -> (Flow, Flow) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tx = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (rx, _) = listener.accept().unwrap();
    (Flow::tcp(tx, 0), Flow::tcp(rx, 0))
}

type Ended = Result<(Account, FlowEnd), Fault>;

/// Runs an end in its own thread, as an agent does: another thread than this one opened it.
fn start(role: Role, mut endpoint: End, gate: &Arc<Gate>) -> Receiver<Ended> {
    let (send, receive) = channel();
    let gate = gate.clone();
    thread::spawn(move || {
        let mut recorder = Recorder::new(role == Role::Sender, gate, Arc::default(), Detail::ALL);
        let ended = endpoint.run(&mut recorder);
        let total = recorder.total();
        let ended = ended.map(|account| {
            assert_eq!(account.ledger.delivered, total, "the ledger is of all bytes");
            (account, recorder.finish())
        });
        let _ = send.send(ended);
    });
    receive
}

fn end(running: Receiver<Ended>) -> Ended {
    running.recv_timeout(HANG).expect("the engine hangs or has panicked")
}

/// Goes through warm-up, window, drain and stop.
fn conduct(gate: &Gate) {
    thread::sleep(SPAN / 3);
    gate.set(Phase::Window);
    thread::sleep(SPAN);
    gate.set(Phase::Drain);
    thread::sleep(SPAN / 6);
    gate.set(Phase::Stop);
}

/// Runs a stream through both halves of the cell, over several connections at once.
fn stream(cell: &Cell, flows: u32) -> Option<Vec<(Account, Account)>> {
    let tx_path = path_for(&cell.tx.path, Role::Sender, &[])?;
    let rx_path = path_for(&cell.rx.path, Role::Receiver, &[])?;
    let _alone = memory_lock();
    let gate = Arc::new(Gate::default());
    let running: Vec<_> = (0..flows)
        .map(|_| {
            let (tx, rx) = connect();
            let rx = rx_path.open(Role::Receiver, cell, rx).unwrap();
            let tx = tx_path.open(Role::Sender, cell, tx).unwrap();
            (start(Role::Sender, tx, &gate), start(Role::Receiver, rx, &gate))
        })
        .collect();
    conduct(&gate);
    let ended = running.into_iter().map(|(tx, rx)| {
        let (tx, rx) = (end(tx).unwrap(), end(rx).unwrap());
        assert_eq!(tx.1.total, rx.1.total, "both ends count the same bytes");
        assert!(rx.1.window.count > 0, "bytes flow in the window");
        assert!(rx.1.size_distribution().max <= cell.stream.read_size.max(1) * 101 / 100);
        // On a busy machine the sender may have slept for the whole window.
        if tx.1.window.count > 0 {
            let calls = tx.1.calls[0].1.row("io_uring_enter", 1e-9);
            assert!(calls.calls > 0 && calls.bytes > 0, "{calls:?}");
        }
        (tx.0, rx.0)
    });
    Some(ended.collect())
}

/// Sends to a plain receive loop.
fn stream_to_plain(cell: &Cell) -> Option<Account> {
    let path = path_for(&cell.tx.path, Role::Sender, &[])?;
    let _alone = memory_lock();
    let gate = Arc::new(Gate::default());
    let (tx, rx) = connect();
    let tx = start(Role::Sender, path.open(Role::Sender, cell, tx).unwrap(), &gate);
    let size = cell.stream.message_size;
    let reader = thread::spawn(move || {
        let mut toucher = Toucher::new(Touch::Verify, size);
        let mut buffer = vec![0; 50_000];
        let mut total = 0;
        loop {
            match (&*rx.socket).read(&mut buffer).unwrap() {
                0 => return total,
                n => {
                    toucher.take(&buffer[..n]).unwrap();
                    total += n as u64;
                }
            }
        }
    });
    conduct(&gate);
    let (account, tally) = end(tx).unwrap();
    assert_eq!(reader.join().unwrap(), tally.total);
    Some(account)
}

#[test]
fn streams_of_every_size_arrive_whole() {
    for message in MESSAGES {
        for read in READS {
            let tx = half("uring", Role::Sender, &[]);
            let rx = half("uring", Role::Receiver, &[]);
            let Some(ends) = stream(&cell(message, read, tx, rx), 1) else { return };
            let (tx, rx) = &ends[0];
            assert_eq!(tx.ledger.copied, tx.ledger.delivered);
            assert_eq!(rx.ledger.copied, rx.ledger.delivered);
        }
    }
}

#[test]
fn every_way_to_send_keeps_the_order_of_the_stream() {
    let ways: [(&str, &[(&str, &str)]); 8] = [
        ("uring", &[("depth", "1")]),
        ("uring", &[("depth", "64")]),
        ("uring", &[("mode", "bundle"), ("depth", "1")]),
        ("uring", &[("mode", "bundle"), ("depth", "7")]),
        ("uring", &[("mode", "bundle"), ("depth", "1024")]),
        ("uring-zc", &[("depth", "1")]),
        ("uring-zc", &[("depth", "64")]),
        ("uring-zc", &[("fixed", "off")]),
    ];
    for (path, set) in ways {
        if path_for(path, Role::Sender, set).is_none() {
            continue;
        }
        for message in MESSAGES {
            let Some(account) = stream_to_plain(&cell_of(path, set, message)) else { return };
            println!("{path} {set:?} {message}: {account:?}");
        }
    }
}

#[test]
fn every_way_to_receive_keeps_the_order_of_the_stream() {
    let ways: [&[(&str, &str)]; 9] = [
        &[("buffers", "3"), ("buffer-size", "64K")],
        &[("buffers", "2"), ("buffer-size", "4096")],
        &[("buffers", "1"), ("buffer-size", "1000")],
        &[("bundle", "on")],
        &[("bundle", "on"), ("buffers", "1024"), ("buffer-size", "4K")],
        &[("bundle", "on"), ("buffers", "5"), ("buffer-size", "10000")],
        &[("incremental", "on")],
        &[("incremental", "on"), ("buffers", "3"), ("buffer-size", "100000")],
        &[("incremental", "on"), ("bundle", "on"), ("buffers", "4"), ("buffer-size", "64K")],
    ];
    for set in ways {
        if path_for("uring", Role::Receiver, set).is_none() {
            continue;
        }
        for (message, read) in [(1 << 20, 1 << 20), (5000, 4096), (3 << 20, 64 << 10)] {
            let rx = half("uring", Role::Receiver, set);
            let cell = cell(message, read, half("uring", Role::Sender, &[]), rx);
            let Some(ends) = stream(&cell, 1) else { return };
            println!("{set:?} {message} {read}: {:?}", ends[0].1);
        }
    }
}

#[test]
fn flows_do_not_disturb_each_other() {
    for (path, set) in SENDERS {
        if path_for(path, Role::Sender, set).is_some() {
            let Some(ends) = stream(&cell_of(path, set, 1 << 20), 2) else { return };
            assert_eq!(ends.len(), 2);
        }
    }
}

/// The kernel copies data delivered on the machine that sent it, and the notifications report so
/// (`skb_orphan_frags_rx`, include/linux/skbuff.h).
#[test]
fn zero_copy_over_loopback_is_entered_as_copied() {
    for message in MESSAGES {
        let Some(ends) = stream(&cell_of("uring-zc", &[], message), 1) else { return };
        let ledger = &ends[0].0.ledger;
        assert!(ledger.delivered > 0);
        assert_eq!(ledger.copied, ledger.delivered, "{ledger:?}");
        assert!(ledger.evidence[0].source.contains("with ZC_COPIED"), "{ledger:?}");
    }
}

#[test]
fn the_witness_page_is_copied_over_loopback_and_the_stream_follows_it() {
    let _alone = memory_lock();
    let ways: [(&str, &[(&str, &str)]); 4] =
        [("uring", &[]), ("uring", BUNDLES), ("uring-zc", &[]), ("uring-zc", &[("fixed", "off")])];
    for (path, set) in ways {
        let Some(tx_path) = path_for(path, Role::Sender, set) else { continue };
        let Some(rx_path) = path_for("uring", Role::Receiver, &[]) else { return };
        let cell = cell_of(path, set, 64 << 10);
        let (tx, rx) = connect();
        let before = Flow::tcp(rx.socket.try_clone().unwrap(), 0);
        let mut tx = tx_path.open(Role::Sender, &cell, tx).unwrap();
        let rx = rx_path.open(Role::Receiver, &cell, rx).unwrap();
        tx.witness().unwrap();
        assert_eq!(read_witness(&before).unwrap(), ProvenWitness::Copied, "{path} {set:?}");
        let gate = Arc::new(Gate::default());
        let (tx, rx) = (start(Role::Sender, tx, &gate), start(Role::Receiver, rx, &gate));
        conduct(&gate);
        assert_eq!(end(tx).unwrap().1.total, end(rx).unwrap().1.total);
    }
}

/// A sender in the middle of its stream, whose peer has stopped reading.
fn stuck_sender(path: &str, set: &[(&str, &str)]) -> Option<(Receiver<Ended>, Flow, TcpStream)> {
    let catalogued = path_for(path, Role::Sender, set)?;
    let (tx, rx) = connect();
    let outside = tx.socket.try_clone().unwrap();
    let gate = Arc::new(Gate::default());
    let cell = cell_of(path, set, 1 << 20);
    let running = start(Role::Sender, catalogued.open(Role::Sender, &cell, tx).unwrap(), &gate);
    (&*rx.socket).read_exact(&mut vec![0; 10 << 20]).unwrap();
    Some((running, rx, outside.into()))
}

#[test]
fn a_sender_whose_peer_dies_reports_it() {
    let _alone = memory_lock();
    for (path, set) in SENDERS {
        let Some((running, rx, _outside)) = stuck_sender(path, set) else { continue };
        // Unread bytes make the kernel reset the connection, as for a killed process.
        drop(rx);
        assert_eq!(end(running).unwrap_err().kind, FaultKind::PeerLost, "{path} {set:?}");
    }
}

#[test]
fn a_stuck_sender_that_is_shut_down_from_outside_ends_in_a_fault() {
    let _alone = memory_lock();
    for (path, set) in SENDERS {
        let Some((running, _rx, outside)) = stuck_sender(path, set) else { continue };
        outside.shutdown(Shutdown::Both).unwrap();
        let fault = end(running).unwrap_err();
        assert_eq!(fault.kind, FaultKind::PeerLost, "{path} {set:?}: {fault}");
    }
}

/// The stream has ended for the sender, but not all of it has reached the peer.
#[test]
fn a_sender_that_waits_for_its_peer_at_the_end_can_be_cut() {
    let _alone = memory_lock();
    for (path, set) in SENDERS {
        let Some(catalogued) = path_for(path, Role::Sender, set) else { continue };
        let (tx, rx) = connect();
        let outside = tx.socket.try_clone().unwrap();
        let gate = Arc::new(Gate::default());
        gate.set(Phase::Stop);
        // The peer's kernel is full before the engine starts.
        tx.socket.set_nonblocking(true).unwrap();
        while (&*tx.socket).write(&[0; 1 << 16]).is_ok() {}
        tx.socket.set_nonblocking(false).unwrap();
        let cell = cell_of(path, set, 5000);
        let running = start(Role::Sender, catalogued.open(Role::Sender, &cell, tx).unwrap(), &gate);
        thread::sleep(Duration::from_millis(50));
        assert!(running.try_recv().is_err(), "the peer does not have everything");
        outside.shutdown(Shutdown::Both).unwrap();
        let fault = end(running).unwrap_err();
        assert_eq!(fault.kind, FaultKind::PeerLost, "{path} {set:?}: {fault}");
        drop(rx);
    }
}

fn receiver(touch: Touch) -> Option<(Receiver<Ended>, Flow, TcpStream)> {
    let catalogued = path_for("uring", Role::Receiver, &[])?;
    let mut cell = cell_of("uring", &[], 1 << 20);
    cell.stream.touch = touch;
    let (tx, rx) = connect();
    let outside = rx.socket.try_clone().unwrap();
    let gate = Arc::new(Gate::default());
    let running = start(Role::Receiver, catalogued.open(Role::Receiver, &cell, rx).unwrap(), &gate);
    Some((running, tx, outside.into()))
}

#[test]
fn a_receiver_that_is_shut_down_from_outside_ends_in_a_fault() {
    let _alone = memory_lock();
    let Some((running, tx, outside)) = receiver(Touch::None) else { return };
    (&*tx.socket).write_all(&[0; 100_000]).unwrap();
    outside.shutdown(Shutdown::Both).unwrap();
    assert_eq!(end(running).unwrap_err().kind, FaultKind::PeerLost);
}

#[test]
fn a_receiver_whose_peer_resets_the_connection_reports_it() {
    let _alone = memory_lock();
    let Some((running, tx, outside)) = receiver(Touch::None) else { return };
    (&*tx.socket).write_all(&[0; 100_000]).unwrap();
    // Unread bytes at the peer make its kernel reset the connection.
    (&outside).write_all(b"unread").unwrap();
    drop(tx);
    assert_eq!(end(running).unwrap_err().kind, FaultKind::PeerLost);
}

#[test]
fn a_wrong_byte_ends_the_stream_as_corrupt() {
    let _alone = memory_lock();
    let Some((running, tx, _outside)) = receiver(Touch::Verify) else { return };
    (&*tx.socket).write_all(&[0; 100_000]).unwrap();
    assert_eq!(end(running).unwrap_err().kind, FaultKind::Corrupt);
}

#[test]
fn sizes_that_cannot_be_are_refused_with_a_remedy() {
    let _alone = memory_lock();
    if path_for("uring", Role::Receiver, &[]).is_none() {
        return;
    }
    let uring = path::find(path::CATALOG, "uring").unwrap();
    let large = cell_of("uring", &[], 4 << 30);
    let fault = uring.open(Role::Sender, &large, connect().0).err().unwrap();
    assert_eq!(fault.kind, FaultKind::Usage);
    assert!(fault.remedy.is_some());
    let rx = half("uring", Role::Receiver, &[("buffers", "32768"), ("buffer-size", "1M")]);
    let many = cell(1, 1, half("uring", Role::Sender, &[]), rx);
    let fault = uring.open(Role::Receiver, &many, connect().1).err().unwrap();
    assert_eq!(fault.kind, FaultKind::Usage);
    assert!(fault.remedy.is_some());
}

/// What is reported as missing was tried; what is reported to work worked.
#[test]
fn devmem_says_what_this_host_lacks() {
    for Attempt { name, outcome } in &facts().attempts {
        println!("{name}: {outcome:?}");
    }
    for (path, role) in [("devmem", Role::Receiver), ("devmem", Role::Sender)] {
        match path::find(path::CATALOG, path).unwrap().check(role, facts()).unwrap() {
            Support::No { reason, remedy } => {
                println!("{path} as {role}: {reason} ({remedy})");
                assert!(!reason.contains("was not tried"), "{reason}");
                assert!(!remedy.is_empty());
            }
            Support::Yes => {
                let bound = if role == Role::Sender { "devmem.bind-tx" } else { "devmem.bind-rx" };
                let outcome = facts().attempt(bound);
                assert!(matches!(outcome, Some(Outcome::Works(_))), "{bound}: {outcome:?}");
            }
        }
    }
}
