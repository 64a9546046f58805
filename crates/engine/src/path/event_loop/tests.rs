//! Every event loop as a server, and threads with one connection each, over real connections:
//! clients receive what they requested, in order, whatever they do; and no turn of a loop
//! allocates.

mod ends;
pub(crate) mod loops;
mod streams;

use crate::connection::Connection;
use crate::path::{self, DataPath};
use crate::workload::{
    self, Account, Actor, Detail, Direction, EventLoop, Group, HalfConfig, Pattern, Recorder,
    Service,
};
use bytepath_record::{Cell, Facts, Fault, FaultKind, OptionValue, Role, Scope, Touch};
use bytepath_sys::allocations;
use bytepath_sys::tcp::{self, Ready};
use bytepath_testing::skip;
use ends::{Ends, Host};
use loops::{Given, LOOPS, Loop, STACK_LOOPS, THREADED_LOOPS, WAITING, is_short};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// All loops that can serve `rr`.
const SERVERS: &[&[Loop]] = &[LOOPS, STACK_LOOPS, THREADED_LOOPS, WAITING];

const REQUEST: u64 = 100;

/// Time limit of a client's waits.
const HANG: Duration = Duration::from_secs(20);

/// Clients, and the thread that serves them, which may start others.
struct Served {
    clients: Vec<TcpStream>,
    /// The other ends of their connections.
    servers: Vec<Arc<dyn Connection>>,
    thread: JoinHandle<Result<Account, Fault>>,
    _host: Option<Host>,
    /// Held by one test at a time: rings lock memory, of which an unprivileged user has little.
    _alone: MutexGuard<'static, ()>,
}

impl Served {
    fn start(name: &str, given: Given, clients: usize, response: u64) -> Option<Served> {
        Served::by(cell(name, given, response), clients, serve)
    }

    /// Like [`Served::start`], with another way to serve.
    fn by(
        mut cell: Cell,
        clients: usize,
        serve: impl FnOnce(&Cell, &[Arc<dyn Connection>]) -> Result<Account, Fault> + Send + 'static,
    ) -> Option<Served> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        cell.stream.flows = clients as u32;
        if !is_here(&cell) {
            return None;
        }
        let Ends { clients, servers, host } = Ends::of(&cell, clients)?;
        for client in &clients {
            client.set_read_timeout(Some(HANG)).unwrap();
            client.set_write_timeout(Some(HANG)).unwrap();
        }
        let connections = servers.clone();
        let thread = thread::spawn(move || {
            let served = serve(&cell, &connections);
            // Otherwise data in flight would be reset.
            if served.is_ok() {
                connections.iter().for_each(|connection| connection.close());
                let arrived = |one: &Arc<dyn Connection>| drop(one.wait_acknowledged(HANG));
                connections.iter().for_each(arrived);
            }
            served
        });
        Some(Served { clients, servers, thread, _host: host, _alone: alone })
    }

    /// Waits until nothing more can be sent to a client. Returns at once for the user-space stack,
    /// whose send buffer only its loop knows.
    fn await_full(&self, client: usize) {
        let Some(socket) = self.servers[client].socket() else { return };
        let no_room = || tcp::wait(socket, Ready::OUT, Some(Duration::ZERO)).unwrap().is_empty();
        wait_until("its connection is full", no_room);
    }

    /// Ends the streams of all clients; returns the account of the loop.
    fn end(self) -> Result<Account, Fault> {
        for client in &self.clients {
            let _ = client.shutdown(Shutdown::Write);
        }
        self.thread.join().unwrap()
    }
}

/// An `rr` cell with these sizes and a loop at both ends.
fn cell(name: &str, given: Given, response: u64) -> Cell {
    let mut cell = path::cell_of(name, given);
    cell.workload.name = "rr".into();
    let sizes = [("request", REQUEST), ("response", response), ("outstanding", 1)];
    let sizes = sizes.map(|(name, n)| (name.to_owned(), OptionValue::Number(n)));
    cell.workload.options.0.extend(sizes);
    cell
}

fn path_of(cell: &Cell) -> &'static DataPath {
    path::find(path::CATALOG, &cell.rx.path).unwrap()
}

/// The configuration of a server's half; here, reads may be shorter than messages.
fn job(cell: &Cell, direction: Direction) -> HalfConfig {
    let job = (workload::of(cell).unwrap().job)(cell, Role::Receiver, direction);
    HalfConfig { read_size: job.read_size.min(cell.stream.read_size), ..job }
}

/// Returns why this host cannot run a loop; empty if it can.
fn refusal(cell: &Cell) -> String {
    let loops = |path: &&&DataPath| {
        path.uses_io_uring || path.event_loop.is_some() || path.name == "socket"
    };
    let attempts = path::CATALOG.iter().filter(loops);
    let attempts = attempts.flat_map(|path| (path.attempt)(None)).collect();
    let facts = Facts { attempts, ..Facts::default() };
    let half = path_of(cell).half(Role::Receiver).unwrap();
    match (half.check)(&job(cell, Direction::Receive), &facts) {
        bytepath_record::Support::Yes => String::new(),
        bytepath_record::Support::No { reason, remedy } => format!("{reason} ({remedy})"),
    }
}

fn is_here(cell: &Cell) -> bool {
    let refusal = refusal(cell);
    if !refusal.is_empty() {
        skip!("{}: {refusal}", cell.id);
    }
    refusal.is_empty()
}

fn open(cell: &Cell, connections: &[Arc<dyn Connection>]) -> Result<Box<dyn EventLoop>, Fault> {
    let jobs = [&job(cell, Direction::Send), &job(cell, Direction::Receive)];
    path_of(cell).event_loop.unwrap()(jobs, connections, &Group::default())
}

/// Serves until all clients have ended their streams, by as many threads as the cell has.
fn serve(cell: &Cell, connections: &[Arc<dyn Connection>]) -> Result<Account, Fault> {
    let threads = cell.threads(Role::Receiver) as usize;
    let play = if cell.rx.is_event_loop() { play_loop } else { play_one };
    thread::scope(|scope| {
        let part = |first| connections.iter().skip(first).step_by(threads).cloned();
        let start = |first| {
            let part: Vec<_> = part(first).collect();
            scope.spawn(move || play(cell, &part))
        };
        let all: Vec<_> = (0..threads).map(start).collect();
        let mut sum = Account::default();
        for thread in all {
            sum.add(thread.join().unwrap()?);
        }
        Ok(sum)
    })
}

fn recorder() -> Recorder {
    Recorder::new(false, Arc::default(), Arc::default(), Detail::ALL)
}

fn play_loop(cell: &Cell, connections: &[Arc<dyn Connection>]) -> Result<Account, Fault> {
    let response = cell.workload.options.number("response").unwrap();
    answer(&mut *open(cell, connections)?, connections.len(), response)
}

/// Serves the connections of one loop.
fn answer(
    event_loop: &mut dyn EventLoop,
    connections: usize,
    response: u64,
) -> Result<Account, Fault> {
    let mut recorder = recorder();
    let mut answers = Answers { came: vec![0; connections], response, left: connections };
    event_loop.begin()?;
    let before = allocations::of_this_thread();
    while answers.left > 0 {
        event_loop.turn(&mut answers, &mut recorder, None)?;
    }
    assert_eq!(allocations::of_this_thread() - before, 0, "turns allocate");
    let account = event_loop.account()?;
    assert_eq!(account.ledger.delivered, recorder.total());
    Ok(account)
}

/// Serves the one connection of a thread.
fn play_one(cell: &Cell, connections: &[Arc<dyn Connection>]) -> Result<Account, Fault> {
    let [connection] = connections else { panic!("one connection") };
    let (path, group) = (path_of(cell), Group::default());
    let tx = (path.tx.unwrap().open)(&job(cell, Direction::Send), &**connection, &group)?;
    let rx = (path.rx.unwrap().open)(&job(cell, Direction::Receive), &**connection, &group)?;
    let end = (workload::of(cell).unwrap().play[Role::Receiver as usize])(Actor {
        role: Role::Receiver,
        cell: Arc::new(cell.clone()),
        connection: connection.clone(),
        tx: Some(tx),
        rx: Some(rx),
        recorder: recorder(),
    })?;
    assert_eq!(end.account.ledger.delivered, end.bytes);
    Ok(end.account)
}

/// Answers each request.
struct Answers {
    came: Vec<u64>,
    response: u64,
    left: usize,
}

impl Service for Answers {
    fn received(&mut self, connection: usize, bytes: u64) -> u64 {
        self.came[connection] += bytes;
        let whole = self.came[connection] / REQUEST;
        self.came[connection] %= REQUEST;
        whole * self.response
    }

    fn ended(&mut self, _: usize) -> Result<(), Fault> {
        self.left -= 1;
        Ok(())
    }
}

/// Reads `count` responses and compares them with the expected bytes.
fn read_responses(mut client: &TcpStream, count: usize, size: u64) {
    let (mut expected, mut got) = (vec![0; size as usize], vec![0; size as usize]);
    Pattern::new(size).fill(&mut expected, 0);
    for number in 0..count {
        client.read_exact(&mut got).unwrap_or_else(|e| panic!("response {number}: {e}"));
        assert!(got == expected, "response {number} is another");
    }
}

fn requests(mut client: &TcpStream, count: usize) {
    client.write_all(&vec![1; REQUEST as usize * count]).unwrap();
}

fn counted(account: &Account, metric: &str) -> f64 {
    let of_server = |r: &&bytepath_record::Reading| {
        r.metric == metric && r.scope == Scope::Role(Role::Receiver)
    };
    account.readings.iter().find(of_server).expect(metric).value
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn many_clients_get_what_each_has_asked_for() {
    for (name, given) in loops::all(SERVERS) {
        let Some(served) = Served::start(name, given, 50, 300) else { continue };
        for round in 1..=4 {
            served.clients.iter().for_each(|client| requests(client, round));
            served.clients.iter().for_each(|client| read_responses(client, round, 300));
        }
        let account = served.end().unwrap();
        assert_eq!(account.ledger.copied, 50 * 10 * (REQUEST + 300), "{name} {given:?}");
        if *name == "socket" {
            continue;
        }
        assert_eq!(counted(&account, "loop.connections"), 50.0);
        assert!(counted(&account, "loop.events") >= counted(&account, "loop.waits"));
        // Buffers and state, averaged over connections. Buffers of kernel sockets do not count.
        let each = counted(&account, "loop.memory") / 50.0;
        let most = if *name == "userspace-loop" { 2.5e6 } else { 64e3 };
        assert!((1.0..most).contains(&each), "{name} {given:?}: {each} bytes a connection");
        if is_short(given, 4 * REQUEST) {
            assert!(counted(&account, "loop.short") > 0.0, "50 clients and {given:?}");
        }
    }
}

#[test]
fn client_that_ends_its_stream_still_gets_its_answers() {
    for (name, given) in loops::all(SERVERS) {
        let Some(served) = Served::start(name, given, 3, 1 << 20) else { continue };
        let client = &served.clients[1];
        requests(client, 4);
        (&*client).write_all(&[1; 50]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        read_responses(client, 4, 1 << 20);
        requests(&served.clients[2], 1);
        read_responses(&served.clients[2], 1, 1 << 20);
        let account = served.end().unwrap();
        // An incomplete request is not answered.
        assert_eq!(account.ledger.copied, 5 * (REQUEST + (1 << 20)) + 50, "{name} {given:?}");
    }
}

/// The slow client's responses fill the buffers of both ends; others are served meanwhile.
#[test]
fn slow_client_delays_no_other() {
    for (name, given) in loops::all(SERVERS) {
        // With two threads, one has the slow client and another one, the other has the third.
        let Some(served) = Served::start(name, given, 3, 64 << 10) else { continue };
        let [slow, others @ ..] = served.clients.as_slice() else { panic!("three clients") };
        requests(slow, 400);
        served.await_full(0);
        for other in others.iter().cycle().take(50) {
            requests(other, 1);
            read_responses(other, 1, 64 << 10);
        }
        served.await_full(0);
        read_responses(slow, 400, 64 << 10);
        let account = served.end().unwrap();
        if has_full(name) {
            assert!(counted(&account, "loop.full") > 0.0, "{name} {given:?}: there was room");
        }
    }
}

/// True if sends that find no room are counted. Sends of a ring or of a blocking thread complete
/// only once they have found room.
fn has_full(name: &str) -> bool {
    !["uring-loop", "socket"].contains(&name)
}

/// Read size in bytes, of which no multiple is a request.
const SHORT: u64 = 64;

/// Reads return less than a request, so requests arrive in parts; sends have room for less than a
/// response.
#[test]
fn buffers_smaller_than_messages_lose_nothing() {
    const RESPONSE: u64 = 1 << 18;
    for (name, given) in loops::all(SERVERS) {
        let cell = with_short_buffers(cell(name, given, RESPONSE));
        let Some(served) = Served::by(cell, 2, serve) else { continue };
        let mut client = &served.clients[1];
        client.write_all(&[1; REQUEST as usize + 30]).unwrap();
        read_responses(client, 1, RESPONSE);
        // The rest of the incomplete request, and four more.
        client.write_all(&[1; 5 * REQUEST as usize - 30]).unwrap();
        served.await_full(1);
        read_responses(client, 5, RESPONSE);
        let account = served.end().unwrap();
        assert_eq!(account.ledger.copied, 6 * (REQUEST + RESPONSE), "{name} {given:?}");
        let came = account.ledger.evidence.iter().find(|evidence| evidence.came_in).unwrap();
        assert!(came.bytes <= SHORT * came.events, "{name} {given:?}: {came:?}");
        if has_full(name) {
            assert!(counted(&account, "loop.full") > 0.0, "{name} {given:?}: there was room");
        }
        // A bundle ends with the last free buffer, and the next receive begins only once buffers
        // are returned.
        let returns_first =
            [("sqpoll", "on"), ("bundle", "on")].iter().any(|one| given.contains(one));
        if *name == "uring-loop" && !returns_first {
            assert!(counted(&account, "loop.short") > 0.0, "{name} {given:?}: buffers were left");
        }
    }
}

/// Gives a cell reads and, if the path has them, provided buffers that are shorter than a request,
/// and socket buffers that hold less than a response at both ends.
fn with_short_buffers(mut cell: Cell) -> Cell {
    let stream = &mut cell.stream;
    (stream.read_size, stream.send_buffer, stream.receive_buffer) =
        (SHORT, Some(16 << 10), Some(64 << 10));
    for (name, n) in [("buffers", 2), ("buffer-size", SHORT)] {
        let halves = [&mut cell.tx, &mut cell.rx].into_iter();
        let set = halves.filter_map(|half| half.options.0.get_mut(name));
        set.for_each(|option| *option = OptionValue::Number(n));
    }
    cell
}

#[test]
fn client_that_resets_its_connection_is_lost_by_name() {
    for (name, given) in loops::all(SERVERS) {
        let Some(mut served) = Served::start(name, given, 3, 300) else { continue };
        requests(&served.clients[1], 1);
        read_responses(&served.clients[1], 1, 300);
        let client = served.clients.remove(1);
        tcp::reset_on_close(client.as_fd(), true).unwrap();
        drop(client);
        let fault = served.end().unwrap_err();
        assert_eq!(fault.kind, FaultKind::PeerLost, "{name} {given:?}: {fault}");
        assert!(fault.message.starts_with("flow 1: "), "{name} {given:?}: {fault}");
    }
}

#[test]
fn connection_that_is_cut_here_is_no_end() {
    for (name, given) in loops::all(&[LOOPS, STACK_LOOPS]) {
        let cell = cell(name, given, 300);
        if !is_here(&cell) {
            continue;
        }
        let Some(ends) = Ends::of(&cell, 1) else { continue };
        let mut opened = open(&cell, &ends.servers).unwrap();
        ends.servers[0].cut();
        let fault = answer(&mut *opened, 1, 300).unwrap_err();
        assert!(fault.message.contains("was cut"), "{name} {given:?}: {fault}");
    }
}

#[test]
fn connection_that_is_cut_here_while_it_is_served_is_no_end() {
    for (name, given) in loops::all(SERVERS) {
        let Some(served) = Served::start(name, given, 1, 300) else { continue };
        requests(&served.clients[0], 1);
        read_responses(&served.clients[0], 1, 300);
        served.servers[0].cut();
        let fault = served.thread.join().unwrap().unwrap_err();
        assert!(fault.message.contains("was cut"), "{name} {given:?}: {fault}");
    }
}

/// Connections of the user-space stack are made before its loop is opened, so a refusal is reported
/// then. `crr` tests refusals of connections that a loop makes itself.
#[test]
fn connection_of_the_stack_that_is_refused_is_lost_by_name() {
    let cell = cell("userspace-loop", &[], 300);
    if !is_here(&cell) {
        return;
    }
    let Some(host) = Host::new() else { return };
    let fault = host.refuse(&cell);
    assert_eq!(fault.kind, FaultKind::PeerLost, "{fault}");
    let text = "cannot connect to 198.18.7.1:9 from 198.18.7.66: the peer refused the connection";
    assert_eq!(fault.message, text);
}

#[test]
fn refuses_what_no_loop_can_do() {
    for (name, given) in loops::all(&[LOOPS, STACK_LOOPS]) {
        let mut cell = cell(name, given, 300);
        if !is_here(&cell) {
            continue;
        }
        cell.stream.touch = Touch::Verify;
        let refused = refusal(&cell);
        assert!(refused.contains("(choose touch=none or touch=read)"), "{name}: {refused}");
        cell.workload.name = "packets".into();
        let packets = workload::of(&cell).unwrap();
        let fault = path::suits_workload(packets, path_of(&cell)).unwrap_err();
        assert!(fault.to_string().contains("--workload rr"), "{fault}");
    }
    let forever = cell("uring-loop", &[("wait", "8")], 300);
    assert!(refusal(&forever).contains("choose a min-wait, or wait=1"));
    for name in ["epoll", "uring-loop"] {
        let idle = cell(name, &[("prefer-busy-poll", "on")], 300);
        assert!(refusal(&idle).contains("no effect without busy-poll (choose a"), "{name}");
    }
    let twice = cell("uring-loop", &[("sqpoll", "on"), ("task-run", "coop")], 300);
    assert!(refusal(&twice).contains("(leave task-run at auto, or sqpoll off)"));
    let large = cell("uring-loop", &[("buffers", "32768"), ("buffer-size", "1M")], 300);
    assert!(refusal(&large).contains("too many"), "{}", refusal(&large));
}
