//! Every event loop at either end of streams: each stream is complete and in order, whatever peers
//! do, and none takes more than its turn.

use super::super::TURN;
use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Not a multiple of anything relevant.
const MESSAGE: u64 = 100_003;

const STREAMS: &[&[Loop]] = &[LOOPS, STACK_LOOPS];

/// Bytes after which a stream is considered to be flowing.
const SOME: u64 = 4 << 20;

fn stream_cell(name: &str, given: Given) -> Cell {
    let mut cell = path::cell_of(name, given);
    cell.workload.name = "stream".into();
    (cell.stream.message_size, cell.stream.read_size) = (MESSAGE, 50_000);
    cell
}

/// Bytes that a loop has moved per connection: in total, and in this turn.
struct Moved {
    all: Vec<[u64; 2]>,
    ended: Vec<usize>,
    /// Total of the last connection that ended, at that time.
    ended_at: Arc<AtomicU64>,
    /// Whether the loop limits turns itself; for io_uring, the kernel does.
    takes_turns: bool,
}

impl Moved {
    fn new(connections: usize) -> Moved {
        let ended = Vec::with_capacity(connections);
        Moved {
            all: vec![[0; 2]; connections],
            ended,
            ended_at: Arc::default(),
            takes_turns: false,
        }
    }

    fn enter(&mut self, connection: usize, bytes: u64) {
        let [all, turn] = &mut self.all[connection];
        (*all, *turn) = (*all + bytes, *turn + bytes);
        let most = (TURN + MESSAGE as usize) as u64;
        assert!(!self.takes_turns || *turn <= most, "connection {connection}: {turn} in a turn");
    }
}

impl Service for Moved {
    fn received(&mut self, connection: usize, bytes: u64) -> u64 {
        self.enter(connection, bytes);
        0
    }

    fn sent(&mut self, connection: usize, bytes: u64) {
        self.enter(connection, bytes);
    }

    fn ended(&mut self, connection: usize) -> Result<(), Fault> {
        self.ended.push(connection);
        self.ended_at.store(self.all[connection][0], Ordering::Relaxed);
        Ok(())
    }
}

fn turn(
    event_loop: &mut dyn EventLoop,
    moved: &mut Moved,
    recorder: &mut Recorder,
) -> Result<(), Fault> {
    moved.all.iter_mut().for_each(|[_, turn]| *turn = 0);
    let before = allocations::of_this_thread();
    event_loop.turn(moved, recorder, Some(Duration::from_millis(10)))?;
    assert_eq!(allocations::of_this_thread() - before, 0, "turns allocate");
    Ok(())
}

/// Keeps all connections full until stopped.
fn send(
    event_loop: &mut dyn EventLoop,
    mut moved: Moved,
    stop: &AtomicBool,
) -> Result<(Account, Moved), Fault> {
    let mut recorder = recorder();
    event_loop.begin()?;
    (0..moved.all.len()).try_for_each(|connection| event_loop.stream(connection))?;
    while !stop.load(Ordering::Relaxed) {
        turn(event_loop, &mut moved, &mut recorder)?;
    }
    while !event_loop.stop()? {
        turn(event_loop, &mut moved, &mut recorder)?;
    }
    let account = event_loop.account()?;
    let sum: u64 = moved.all.iter().map(|[all, _]| all).sum();
    assert_eq!((account.ledger.delivered, recorder.total()), (sum, sum));
    Ok((account, moved))
}

/// Receives until all clients have ended their streams.
fn receive(event_loop: &mut dyn EventLoop, mut moved: Moved) -> Result<(Account, Moved), Fault> {
    let mut recorder = recorder();
    event_loop.begin()?;
    while moved.ended.len() < moved.all.len() {
        turn(event_loop, &mut moved, &mut recorder)?;
    }
    let account = event_loop.account()?;
    let sum: u64 = moved.all.iter().map(|[all, _]| all).sum();
    assert_eq!((account.ledger.delivered, recorder.total()), (sum, sum));
    Ok((account, moved))
}

/// Starts a sender for this many clients; also returns the flag that stops it.
fn sender(name: &str, given: Given, clients: usize) -> Option<(Served, Arc<AtomicBool>)> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let takes_turns = name != "uring-loop";
    let served = Served::by(stream_cell(name, given), clients, move |cell, connections| {
        let moved = Moved { takes_turns, ..Moved::new(connections.len()) };
        send(&mut *open(cell, connections)?, moved, &stopped).map(|(account, _)| account)
    });
    served.map(|served| (served, stop))
}

/// Reads a stream to its end and verifies it; `sum` is its total so far, which others read.
fn read_to_end(mut client: &TcpStream, sum: &AtomicU64) {
    let (pattern, mut buffer) = (Pattern::new(MESSAGE), vec![0; 70_000]);
    loop {
        let bytes = client.read(&mut buffer).unwrap();
        let before = sum.fetch_add(bytes as u64, Ordering::Relaxed);
        assert_eq!(pattern.check(&buffer[..bytes], before), Ok(()));
        if bytes == 0 {
            return;
        }
    }
}

/// One client reads nothing until the others have received their share, and then its whole stream.
#[test]
fn every_stream_is_whole_and_waits_for_no_slow_one() {
    for (name, given) in loops::all(STREAMS) {
        let Some((served, stop)) = sender(name, given, 4) else { continue };
        let sums: [AtomicU64; 4] = Default::default();
        let [slow, others @ ..] = &sums;
        thread::scope(|scope| {
            for (client, sum) in served.clients[1..].iter().zip(others) {
                scope.spawn(move || read_to_end(client, sum));
            }
            wait_until("streams flow", || others.iter().all(|sum| of(sum) > SOME));
            stop.store(true, Ordering::Relaxed);
            scope.spawn(|| read_to_end(&served.clients[0], slow));
        });
        let account = served.end().unwrap();
        let sum = sums.iter().map(of).sum::<u64>();
        assert_eq!(account.ledger.copied, sum, "{name} {given:?}");
        assert!(of(slow) > 0, "{name} {given:?}");
    }
}

fn of(sum: &AtomicU64) -> u64 {
    sum.load(Ordering::Relaxed)
}

/// That connection's stream ends normally, and no other does.
#[test]
fn peer_that_ends_its_stream_gets_no_more() {
    for (name, given) in loops::all(STREAMS) {
        let (stop, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, at) = (stop.clone(), ended.clone());
        let served = Served::by(stream_cell(name, given), 2, move |cell, connections| {
            let moved = Moved { ended_at: at, ..Moved::new(connections.len()) };
            let (account, moved) = send(&mut *open(cell, connections)?, moved, &stopped)?;
            assert_eq!(moved.ended, [1]);
            Ok(account)
        });
        let Some(served) = served else { continue };
        let sums: [AtomicU64; 2] = Default::default();
        thread::scope(|scope| {
            for (client, sum) in served.clients.iter().zip(&sums) {
                scope.spawn(move || read_to_end(client, sum));
            }
            wait_until("streams flow", || sums.iter().all(|sum| of(sum) > SOME));
            served.clients[1].shutdown(Shutdown::Write).unwrap();
            wait_until("it ends", || of(&ended) > 0);
            let before = of(&sums[0]);
            wait_until("the other flows", || of(&sums[0]) > before + SOME);
            stop.store(true, Ordering::Relaxed);
        });
        let account = served.end().unwrap();
        assert_eq!(of(&sums[1]), of(&ended), "{name} {given:?}: more after its end");
        assert_eq!(account.ledger.copied, sums.iter().map(of).sum::<u64>(), "{name} {given:?}");
    }
}

#[test]
fn stream_that_is_reset_is_lost_by_name() {
    for (name, given) in loops::all(STREAMS) {
        for sends in [true, false] {
            let cell = stream_cell(name, given);
            let served = Served::by(cell, 3, move |cell, connections| {
                let (mut event_loop, moved) =
                    (open(cell, connections)?, Moved::new(connections.len()));
                let never = AtomicBool::new(false);
                let ended = if sends {
                    send(&mut *event_loop, moved, &never)
                } else {
                    receive(&mut *event_loop, moved)
                };
                ended.map(|(account, _)| account)
            });
            let Some(mut served) = served else { continue };
            let mut client = served.clients.remove(1);
            match sends {
                true => client.read_exact(&mut vec![0; SOME as usize]).unwrap(),
                false => client.write_all(&vec![0; SOME as usize]).unwrap(),
            }
            tcp::reset_on_close(client.as_fd(), true).unwrap();
            drop(client);
            let fault = served.thread.join().unwrap().unwrap_err();
            assert_eq!(fault.kind, FaultKind::PeerLost, "{name} {given:?}: {fault}");
            assert!(fault.message.starts_with("flow 1: "), "{name} {given:?}: {fault}");
        }
    }
}

/// Bytes per write.
const PIECE: usize = 30_000;

/// Clients that write at once and in pieces, and end at different times, with too few buffers.
#[test]
fn all_that_clients_send_is_received_once() {
    for (name, given) in loops::all(STREAMS) {
        let cell = stream_cell(name, given);
        let (takes_turns, all) = (*name != "uring-loop", Arc::new(Mutex::new(Vec::new())));
        let received = all.clone();
        let served = Served::by(cell, 20, move |cell, connections| {
            let moved = Moved { takes_turns, ..Moved::new(connections.len()) };
            let (account, moved) = receive(&mut *open(cell, connections)?, moved)?;
            *received.lock().unwrap() = moved.all;
            Ok(account)
        });
        let Some(served) = served else { continue };
        let expected = |client: usize| if client == 7 { 2 * SOME } else { client as u64 * 10_001 };
        thread::scope(|scope| {
            for (number, mut client) in served.clients.iter().enumerate() {
                scope.spawn(move || {
                    let bytes = vec![1; expected(number) as usize];
                    let (first, rest) = bytes.split_at(bytes.len().min(1));
                    client.write_all(first).unwrap();
                    rest.chunks(PIECE).for_each(|piece| client.write_all(piece).unwrap());
                    client.shutdown(Shutdown::Write).unwrap();
                });
            }
        });
        let account = served.end().unwrap();
        let all = all.lock().unwrap();
        for (client, [bytes, _]) in all.iter().enumerate() {
            assert_eq!(*bytes, expected(client), "{name} {given:?}: client {client}");
        }
        if is_short(given, PIECE as u64) {
            assert!(counted(&account, "loop.short") > 0.0, "20 clients and {given:?}");
        }
    }
}

#[test]
fn stream_over_a_connection_that_is_cut_here_is_no_end() {
    for (name, given) in loops::all(STREAMS) {
        let cell = stream_cell(name, given);
        if !is_here(&cell) {
            continue;
        }
        let Some(ends) = Ends::of(&cell, 1) else { continue };
        let mut opened = open(&cell, &ends.servers).unwrap();
        ends.servers[0].cut();
        let fault = receive(&mut *opened, Moved::new(1)).map(drop).unwrap_err();
        assert!(fault.message.contains("was cut"), "{name} {given:?}: {fault}");
    }
}

#[test]
fn buffers_of_streams_are_the_memory_of_reads_or_one_for_each() {
    let refused = stream_cell("uring-loop", &[("buffers", "32768"), ("buffer-size", "1M")]);
    assert!(refusal(&refused).contains("too many"), "{}", refusal(&refused));
    let mut cell = stream_cell("uring-loop", &[]);
    cell.stream.read_memory = Some(8 << 30);
    assert!(refusal(&cell).contains("too many"), "{}", refusal(&cell));
}
