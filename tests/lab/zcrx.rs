//! zcrx over real loopback connections, on a queue without a device (Linux 7.1): every byte is
//! compared with what was sent, the ledger agrees with what the kernel counted, and anything that
//! runs dry or breaks is reported and does not hang. On an older kernel, or without privileges, the
//! tests report that and are skipped; `docs/reference/paths/zcrx.md` shows how to run the whole
//! file in a guest.

use crate::ends::{End, Opens};
use bytepath::connection::Flow;
use bytepath::path::{self, DataPath};
use bytepath::record::{
    Attempt, Cell, Facts, Fault, FaultKind, Half, Options, Role, Stream, Support, Touch,
};
use bytepath::workload::{Account, Detail, FlowEnd, Gate, Group, Phase, Progress, Recorder};
use bytepath_testing::skip;
use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time that anything here may take before it counts as a hang: an
/// emulated machine is slow.
const HANG: Duration = Duration::from_secs(60);

type Set<'a> = &'a [(&'a str, &'a str)];

fn facts() -> &'static Facts {
    static FACTS: OnceLock<Facts> = OnceLock::new();
    FACTS.get_or_init(|| {
        let tried = path::CATALOG.iter().flat_map(|path| (path.attempt)(Some("lo")));
        Facts { kernel_release: "here".into(), attempts: tried.collect(), ..Default::default() }
    })
}

/// Returns the path, or `None`, with the reason printed, if this host lacks it.
fn zcrx() -> Option<&'static DataPath> {
    let zcrx = path::find(path::CATALOG, "zcrx").unwrap();
    match zcrx.check(Role::Receiver, facts()).unwrap() {
        Support::Yes => Some(zcrx),
        Support::No { reason, .. } => {
            skip!("{reason}");
            None
        }
    }
}

fn half(path: &str, role: Role, set: Set) -> Half {
    let specs = path::find(path::CATALOG, path).map(|p| p.options(role)).unwrap_or_default();
    let mut options = Options::default();
    for (name, _) in set {
        assert!(specs.iter().any(|spec| spec.name == *name), "{path} has no option {name}");
    }
    for spec in specs {
        let text = set.iter().find(|(name, _)| *name == spec.name).map_or(spec.default, |s| s.1);
        options.0.insert(spec.name.into(), spec.kind.parse(text).expect("a valid value"));
    }
    Half { path: path.into(), options }
}

fn cell(message: u64, read: u64, tx: &str, set: Set, flows: u32) -> Cell {
    let stream = Stream {
        message_size: message,
        read_size: read,
        congestion: "reno".into(),
        touch: Touch::Verify,
        flows,
        ..Stream::default()
    };
    let (tx, rx) = (half(tx, Role::Sender, &[]), half("zcrx", Role::Receiver, set));
    Cell { stream, ..Cell::new("test", tx, rx) }
}

/// The connections of one stream, all accepted at one address.
fn connect(flows: u32) -> Vec<(Flow, Flow)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let pair = |index| {
        let tx = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (rx, _) = listener.accept().unwrap();
        (Flow::tcp(tx, index), Flow::tcp(rx, index))
    };
    (0..flows).map(pair).collect()
}

type Ended = Result<(Account, FlowEnd), Fault>;

/// Runs an end in its own thread.
fn start(role: Role, mut endpoint: End, gate: &Arc<Gate>) -> (Receiver<Ended>, Arc<Progress>) {
    let (send, receive) = channel();
    let (gate, progress) = (gate.clone(), Arc::new(Progress::default()));
    let published = progress.clone();
    thread::spawn(move || {
        let mut recorder = Recorder::new(role == Role::Sender, gate, published, Detail::ALL);
        let ended = endpoint.run(&mut recorder);
        let total = recorder.total();
        let ended = ended.map(|account| {
            assert_eq!(account.ledger.delivered, total, "the ledger is of all bytes");
            (account, recorder.finish())
        });
        let _ = send.send(ended);
    });
    (receive, progress)
}

fn end(running: &Receiver<Ended>) -> Ended {
    running.recv_timeout(HANG).expect("the engine hangs or has panicked")
}

/// Runs a stream of at least this many bytes for each flow; returns the receivers' accounts.
fn stream(zcrx: &DataPath, cell: &Cell, bytes: u64) -> Vec<(Account, FlowEnd)> {
    let tx_path = path::find(path::CATALOG, &cell.tx.path).unwrap();
    let gate = Arc::new(Gate::default());
    gate.set(Phase::Window);
    let group = Group::default();
    // Both ends are opened before anything flows, the first flow first.
    let flows: Vec<_> = connect(cell.stream.flows)
        .into_iter()
        .map(|(tx, rx)| {
            let rx = zcrx.open_in(Role::Receiver, cell, rx, &group).unwrap();
            (tx_path.open(Role::Sender, cell, tx).unwrap(), rx)
        })
        .collect();
    let running: Vec<_> = flows
        .into_iter()
        .map(|(tx, rx)| (start(Role::Sender, tx, &gate), start(Role::Receiver, rx, &gate)))
        .collect();
    let begin = Instant::now();
    let enough = || running.iter().all(|(_, (_, got))| got.total() >= bytes);
    while !enough() && begin.elapsed() < HANG {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(enough(), "too few bytes within {HANG:?}: {:?}", {
        gate.set(Phase::Stop);
        running.iter().map(|(_, (rx, got))| (got.total(), rx.try_recv())).collect::<Vec<_>>()
    });
    gate.set(Phase::Stop);
    let ended = running.iter().map(|((tx, _), (rx, _))| {
        let (tx, rx) = (end(tx).unwrap(), end(rx).unwrap());
        assert_eq!(tx.1.total, rx.1.total, "both ends count the same bytes");
        assert!(rx.1.size_distribution().max <= cell.stream.read_size.max(1) * 101 / 100);
        rx
    });
    ended.collect()
}

fn reading(account: &Account, name: &str) -> u64 {
    let metric = format!("zcrx.{name}");
    let found = account.readings.iter().find(|reading| reading.metric == metric);
    found.unwrap_or_else(|| panic!("no {metric} in {:?}", account.readings)).value as u64
}

/// Checks what holds for every stream on a queue without a device.
fn check(account: &Account) {
    let ledger = &account.ledger;
    assert_eq!(ledger.copied, ledger.delivered, "{ledger:?}");
    assert_eq!(ledger.mode, "NODEV");
    let pieces = reading(account, "pieces");
    assert!(reading(account, "returned") <= pieces, "nothing goes back twice");
    assert!(reading(account, "arms") > 0 && pieces > 0);
}

const MIB: u64 = 1 << 20;

#[test]
fn streams_of_every_size_arrive_whole() {
    let Some(zcrx) = zcrx() else { return };
    for message in [MIB, 64 << 10, 3 * MIB, 5000] {
        for read in [MIB, 64 << 10, 1000] {
            let cell = cell(message, read, "uring", &[], 1);
            for (account, _) in stream(zcrx, &cell, 8 * MIB) {
                check(&account);
                let said = account.notes.iter().any(|note| note.contains("NODEV"));
                assert!(said, "{:?}", account.notes);
            }
        }
    }
}

#[test]
fn every_shape_of_a_queue_keeps_the_stream_whole() {
    let Some(zcrx) = zcrx() else { return };
    let shapes: [Set; 8] = [
        &[("area", "4096")],
        &[("area", "64K"), ("rq", "1")],
        &[("area", "64K"), ("recycle", "1")],
        &[("area", "1M"), ("rq-memory", "kernel")],
        &[("area", "16M"), ("recycle", "1024")],
        &[("area", "128M"), ("completions", "65536")],
        &[("device", "none"), ("area", "300000")],
        &[("area", "8M"), ("rq", "3"), ("completions", "100")],
    ];
    for set in shapes {
        let cell = cell(MIB, 64 << 10, "socket", set, 1);
        let ended = stream(zcrx, &cell, 8 * MIB);
        check(&ended[0].0);
        println!("{set:?}: {:?}", ended[0].0.notes);
    }
}

#[test]
fn huge_pages_hold_the_area_where_some_are_set_aside() {
    let Some(zcrx) = zcrx() else { return };
    let cell = cell(MIB, MIB, "socket", &[("memory", "huge"), ("area", "4M")], 1);
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let free: u64 = free.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    if free < 2 {
        skip!("{free} huge pages are free");
        let (_tx, rx) = connect(1).remove(0);
        let fault = zcrx.open(Role::Receiver, &cell, rx).err().unwrap();
        assert!(fault.remedy.unwrap().contains("vm.nr_hugepages=2"));
    } else {
        check(&stream(zcrx, &cell, 16 * MIB)[0].0);
    }
}

#[test]
fn ledger_equals_the_counts_of_the_kernel() {
    let Some(zcrx) = zcrx() else { return };
    for tx in ["socket", "uring", "uring-zc"] {
        let ended = stream(zcrx, &cell(MIB, MIB, tx, &[], 1), 8 * MIB);
        let (account, tally) = &ended[0];
        check(account);
        if !account.readings.iter().any(|reading| reading.metric == "zcrx.copied_bytes") {
            skip!("this kernel does not count copies (before Linux 7.2)");
            return;
        }
        let counted = reading(account, "copied_bytes");
        assert_eq!(reading(account, "copy_events"), 1, "the event said so, once");
        let evidence = &account.ledger.evidence;
        println!("{tx}: {} bytes, {counted} counted as copied: {evidence:?}", tally.total);
        let stats = evidence.iter().find(|e| e.source.contains("zcrx_stats: fragments")).unwrap();
        assert_eq!(stats.bytes, counted);
        assert_eq!(stats.events, reading(account, "copied_fragments"));
        // The kernel does not count the linear part of packets.
        let linear: u64 =
            evidence.iter().filter(|e| e.source.contains("linear")).map(|e| e.bytes).sum();
        assert_eq!(counted + linear, tally.total);
        assert!(linear < tally.total / 20, "nearly all payload is in fragments");
    }
}

#[test]
fn a_refill_ring_of_four_wraps_thousands_of_times() {
    let Some(zcrx) = zcrx() else { return };
    let set: Set = &[("area", "256K"), ("rq", "4"), ("recycle", "4")];
    let ended = stream(zcrx, &cell(MIB, MIB, "socket", set, 1), 32 * MIB);
    let account = &ended[0].0;
    check(account);
    let (returned, flushes) = (reading(account, "returned"), reading(account, "flushes"));
    assert!(returned > 4 * 1000, "{returned} buffers went through four entries");
    assert!(flushes >= returned / 4, "each full ring was flushed");
}

#[test]
fn an_area_that_runs_dry_is_reported_and_nothing_is_lost() {
    let Some(zcrx) = zcrx() else { return };
    let set: Set = &[("area", "32K")];
    let ended = stream(zcrx, &cell(MIB, MIB, "socket", set, 1), 8 * MIB);
    let account = &ended[0].0;
    check(account);
    let dry = reading(account, "no_buffer");
    assert!(dry > 0, "eight buffers are too few: {:?}", account.readings);
    assert_eq!(reading(account, "arms"), dry + reading(account, "queue_full") + 1);
    let said = account.notes.iter().any(|note| note.contains("larger area"));
    assert!(said, "{:?}", account.notes);
}

#[test]
fn a_full_completion_queue_is_reported_and_nothing_is_lost() {
    let Some(zcrx) = zcrx() else {
        return;
    };
    let set: Set = &[("completions", "4"), ("area", "4M")];
    let ended = stream(zcrx, &cell(MIB, MIB, "socket", set, 1), 8 * MIB);
    let account = &ended[0].0;
    check(account);
    let full = reading(account, "queue_full");
    assert!(full > 0, "four completions are too few: {:?}", account.readings);
    assert!(reading(account, "overflows") > 0, "{:?}", account.readings);
    let said = account.notes.iter().any(|note| note.contains("more completions"));
    assert!(said, "{:?}", account.notes);
}

#[test]
fn flows_share_one_queue_and_add_up_to_its_statistics() {
    let Some(zcrx) = zcrx() else { return };
    for set in [&[("share", "on"), ("area", "1M")] as Set, &[("share", "on"), ("area", "64K")]] {
        let ended = stream(zcrx, &cell(MIB, MIB, "socket", set, 3), 8 * MIB);
        assert_eq!(ended.len(), 3);
        let (mut total, mut copied, mut missed) = (0, 0, 0);
        for (account, tally) in &ended {
            check(account);
            total += tally.total;
            copied += reading(account, "copied_bytes");
            let evidence = account.ledger.evidence.iter();
            missed +=
                evidence.filter(|e| e.source.contains("misses")).map(|e| e.bytes).sum::<u64>();
            println!("{set:?}: {:?}", account.readings);
        }
        // The kernel's counters are not atomic: with rings on several CPUs they lose a few counts.
        assert_eq!(copied + missed, total);
        assert!(missed < total / 20, "what one flow claims is what the others received");
    }
}

#[test]
fn flows_have_queues_of_their_own_unless_they_share() {
    let Some(zcrx) = zcrx() else { return };
    for (account, tally) in stream(zcrx, &cell(MIB, MIB, "uring-zc", &[], 2), 8 * MIB) {
        check(&account);
        assert!(reading(&account, "copied_bytes") <= tally.total);
        assert_eq!(reading(&account, "contended"), 0);
    }
}

/// A receiver in the middle of a stream, its peer's end, and its own socket.
fn receiver(zcrx: &DataPath, touch: Touch) -> (Receiver<Ended>, Flow, TcpStream) {
    let mut cell = cell(MIB, MIB, "socket", &[("area", "1M")], 1);
    cell.stream.touch = touch;
    let (tx, rx) = connect(1).remove(0);
    let outside = rx.socket.try_clone().unwrap();
    let open = zcrx.open(Role::Receiver, &cell, rx).unwrap();
    let (running, progress) = start(Role::Receiver, open, &Arc::new(Gate::default()));
    (&*tx.socket).write_all(&[0; 100_000]).unwrap();
    if touch != Touch::Verify {
        let begin = Instant::now();
        while progress.total() < 100_000 {
            assert!(begin.elapsed() < HANG, "nothing arrives");
            thread::sleep(Duration::from_millis(1));
        }
    }
    (running, tx, outside.into())
}

#[test]
fn a_receiver_that_is_shut_down_from_outside_ends_in_a_fault() {
    let Some(zcrx) = zcrx() else {
        return;
    };
    let (running, _tx, outside) = receiver(zcrx, Touch::None);
    outside.shutdown(Shutdown::Both).unwrap();
    assert_eq!(end(&running).unwrap_err().kind, FaultKind::PeerLost);
}

#[test]
fn a_receiver_whose_peer_dies_reports_it() {
    let Some(zcrx) = zcrx() else { return };
    let (running, tx, _outside) = receiver(zcrx, Touch::None);
    // As the kernel does for a sender that is killed in the middle of its stream.
    tx.reset_on_death().unwrap();
    drop(tx);
    assert_eq!(end(&running).unwrap_err().kind, FaultKind::PeerLost);
}

#[test]
fn a_wrong_byte_ends_the_stream_as_corrupt() {
    let Some(zcrx) = zcrx() else { return };
    let (running, _tx, _outside) = receiver(zcrx, Touch::Verify);
    assert_eq!(end(&running).unwrap_err().kind, FaultKind::Corrupt);
}

#[test]
fn a_ring_that_is_dropped_in_the_middle_leaves_nothing_behind() {
    let Some(zcrx) = zcrx() else {
        return;
    };
    for _ in 0..20 {
        let cell = cell(MIB, MIB, "socket", &[("area", "1M")], 1);
        let (tx, rx) = connect(1).remove(0);
        let open = zcrx.open(Role::Receiver, &cell, rx).unwrap();
        (&*tx.socket).write_all(&[0; 10_000]).unwrap();
        drop(open);
        // The socket is released at once, not when the kernel gets around to it.
        let mut byte = [0];
        let begin = Instant::now();
        tx.socket.set_read_timeout(Some(HANG)).unwrap();
        let gone = std::io::Read::read(&mut &*tx.socket, &mut byte);
        assert!(!matches!(gone, Ok(1)) && begin.elapsed() < HANG / 2, "{gone:?}");
    }
}

#[test]
fn refuses_paths_that_need_a_nic() {
    let Some(zcrx) = zcrx() else { return };
    let cell = cell(MIB, MIB, "socket", &[("rx-buf-len", "8K")], 1);
    let (_tx, rx) = connect(1).remove(0);
    let fault = zcrx.open(Role::Receiver, &cell, rx).err().unwrap();
    assert_eq!(fault.kind, FaultKind::Usage, "{fault}");
    assert!(fault.message.contains("rx-buf-len") && fault.remedy.is_some());
}

/// Attempts are reported, whatever their outcome.
#[test]
fn zcrx_reports_what_the_host_supports() {
    let tried: Vec<&Attempt> =
        facts().attempts.iter().filter(|attempt| attempt.name.starts_with("zcrx.")).collect();
    for Attempt { name, outcome } in &tried {
        println!("{name}: {outcome:?}");
    }
    assert!(!tried.is_empty());
    match path::find(path::CATALOG, "zcrx").unwrap().check(Role::Receiver, facts()).unwrap() {
        Support::Yes => println!("zcrx can run here"),
        Support::No { reason, remedy } => {
            println!("zcrx: {reason} ({remedy})");
            assert!(!reason.contains("was not tried") && !remedy.is_empty(), "{reason}");
        }
    }
}
