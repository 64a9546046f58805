//! Every event loop as a server, over real connections: what arrives is what was asked for,
//! in order, whatever clients do; and no turn takes memory.

mod ends;
mod streams;

use crate::connection::Connection;
use crate::path::{self, DataPath};
use crate::workload::{
    self, Account, Detail, Direction, EventLoop, Group, Pattern, Recorder, Service,
};
use bytepath_record::{Cell, Facts, Fault, FaultKind, OptionValue, Role, Scope, Touch};
use bytepath_sys::{allocations, tcp};
use bytepath_testing::skip;
use ends::{Ends, Host};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

type Given = &'static [(&'static str, &'static str)];

const LOOPS: &[(&str, Given)] = &[
    ("epoll", &[]),
    ("epoll", &[("events", "1"), ("optimistic", "on")]),
    ("epoll", &[("optimistic", "off")]),
    ("epoll", &[("trigger", "edge")]),
    ("epoll", &[("trigger", "edge"), ("optimistic", "off")]),
    ("epoll", &[("trigger", "oneshot")]),
    ("epoll", &[("trigger", "oneshot"), ("optimistic", "off")]),
    ("epoll", &[("busy-poll", "50")]),
    ("epoll", &[("trigger", "edge"), ("busy-poll", "50"), ("prefer-busy-poll", "on")]),
    ("poll", &[]),
    ("poll", &[("optimistic", "off")]),
    ("uring-loop", &[]),
    ("uring-loop", &[("buffers", "1"), ("buffer-size", "64")]),
    ("uring-loop", &[("wait", "8"), ("min-wait", "200")]),
    ("uring-loop", &[("task-run", "defer"), ("bundle", "on")]),
    ("uring-loop", &[("task-run", "coop"), ("incremental", "on")]),
    ("uring-loop", &[("task-run", "default")]),
    ("uring-loop", &[("buffers", "3"), ("buffer-size", "64"), ("bundle", "on")]),
    ("uring-loop", &[("buffers", "2"), ("buffer-size", "70"), ("incremental", "on")]),
    ("uring-loop", &[("sqpoll", "on")]),
    ("uring-loop", &[("sqpoll", "on"), ("bundle", "on"), ("incremental", "on")]),
    ("uring-loop", &[("sqpoll", "on"), ("buffers", "1"), ("buffer-size", "64")]),
    ("uring-loop", &[("busy-poll", "50"), ("prefer-busy-poll", "on")]),
    ("uring-loop", &[("busy-poll", "50"), ("task-run", "coop"), ("bundle", "on")]),
    ("userspace-loop", &[]),
    ("userspace-loop", &[("wait", "spin")]),
    ("userspace-loop", &[("loss", "10")]),
];

/// Whether one has so few buffers that it runs out of them. A thread of the kernel that receives
/// beside the loop may find each given back in time.
fn is_short(given: Given) -> bool {
    let has = |name: &str, is: fn(&str) -> bool| given.iter().any(|(n, v)| *n == name && is(v));
    has("buffers", |value| value.len() == 1) && !has("sqpoll", |value| value == "on")
}

const REQUEST: u64 = 100;

/// Longest time that a client waits for anything.
const HANG: Duration = Duration::from_secs(20);

/// A loop that serves clients on a thread of its own.
struct Served {
    clients: Vec<TcpStream>,
    thread: JoinHandle<Result<Account, Fault>>,
    _host: Option<Host>,
    /// Rings lock memory, of which an unprivileged user has little.
    _alone: MutexGuard<'static, ()>,
}

impl Served {
    fn start(name: &str, given: Given, clients: usize, response: u64) -> Option<Served> {
        let cell = cell(name, given, response);
        Served::by(cell, clients, move |event_loop, clients| serve(event_loop, clients, response))
    }

    /// The same in another way, given the loop and the number of clients.
    fn by(
        cell: Cell,
        clients: usize,
        serve: impl FnOnce(&mut dyn EventLoop, usize) -> Result<Account, Fault> + Send + 'static,
    ) -> Option<Served> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_here(&cell) {
            return None;
        }
        let Ends { clients, servers: connections, host } = Ends::of(&cell, clients)?;
        for client in &clients {
            client.set_read_timeout(Some(HANG)).unwrap();
            client.set_write_timeout(Some(HANG)).unwrap();
        }
        let thread = thread::spawn(move || {
            let served = serve(&mut *open(&cell, &connections)?, connections.len());
            // Without it what is under way would be reset.
            if served.is_ok() {
                connections.iter().for_each(|connection| connection.close());
                let arrived = |one: &Arc<dyn Connection>| drop(one.wait_acknowledged(HANG));
                connections.iter().for_each(arrived);
            }
            served
        });
        Some(Served { clients, thread, _host: host, _alone: alone })
    }

    /// Ends the streams of clients that have not ended theirs; what the loop counted.
    fn end(self) -> Result<Account, Fault> {
        for client in &self.clients {
            let _ = client.shutdown(Shutdown::Write);
        }
        self.thread.join().unwrap()
    }
}

/// The `rr` of these sizes by a loop at both ends.
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

fn job(cell: &Cell, direction: Direction) -> workload::HalfConfig {
    (workload::of(cell).unwrap().job)(cell, Role::Receiver, direction)
}

/// What this host refuses of a loop; empty if nothing.
fn refusal(cell: &Cell) -> String {
    let loops = |path: &&&DataPath| path.uses_io_uring || path.event_loop.is_some();
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

/// Serves until all clients have ended their streams.
fn serve(
    event_loop: &mut dyn EventLoop,
    connections: usize,
    response: u64,
) -> Result<Account, Fault> {
    let mut recorder = Recorder::new(false, Arc::default(), Arc::default(), Detail::ALL);
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

/// Reads so many responses and compares them.
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

#[test]
fn many_clients_get_what_each_has_asked_for() {
    for (name, given) in LOOPS {
        let Some(served) = Served::start(name, given, 50, 300) else { continue };
        for round in 1..=4 {
            served.clients.iter().for_each(|client| requests(client, round));
            served.clients.iter().for_each(|client| read_responses(client, round, 300));
        }
        let account = served.end().unwrap();
        assert_eq!(account.ledger.copied, 50 * 10 * (REQUEST + 300), "{name} {given:?}");
        assert_eq!(counted(&account, "loop.connections"), 50.0);
        assert!(counted(&account, "loop.events") >= counted(&account, "loop.waits"));
        // Buffers and state, the same for all. Those of the kernel's sockets are not the loop's.
        let each = counted(&account, "loop.memory") / 50.0;
        let most = if *name == "userspace-loop" { 2.5e6 } else { 64e3 };
        assert!((1.0..most).contains(&each), "{name} {given:?}: {each} bytes a connection");
        if is_short(given) {
            assert!(counted(&account, "loop.short") > 0.0, "50 clients and {given:?}");
        }
    }
}

#[test]
fn client_that_ends_its_stream_still_gets_its_answers() {
    for (name, given) in LOOPS {
        let Some(served) = Served::start(name, given, 3, 1 << 20) else { continue };
        let client = &served.clients[1];
        requests(client, 4);
        (&*client).write_all(&[1; 50]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        read_responses(client, 4, 1 << 20);
        requests(&served.clients[2], 1);
        read_responses(&served.clients[2], 1, 1 << 20);
        served.end().unwrap();
    }
}

/// Its responses fill the buffers of both ends; others are served meanwhile.
#[test]
fn slow_client_delays_no_other() {
    for (name, given) in LOOPS {
        let Some(served) = Served::start(name, given, 2, 64 << 10) else { continue };
        let [slow, other] = served.clients.as_slice() else { panic!("two clients") };
        requests(slow, 400);
        for _ in 0..50 {
            requests(other, 1);
            read_responses(other, 1, 64 << 10);
        }
        read_responses(slow, 400, 64 << 10);
        let account = served.end().unwrap();
        if *name != "uring-loop" {
            assert!(counted(&account, "loop.full") > 0.0, "{name} {given:?}: there was room");
        }
    }
}

#[test]
fn client_that_resets_its_connection_is_lost_by_name() {
    for (name, given) in LOOPS {
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
    for (name, given) in LOOPS {
        let cell = cell(name, given, 300);
        if !is_here(&cell) {
            continue;
        }
        let Some(ends) = Ends::of(&cell, 1) else { continue };
        let mut opened = open(&cell, &ends.servers).unwrap();
        ends.servers[0].cut();
        let fault = serve(&mut *opened, 1, 300).unwrap_err();
        assert!(fault.message.contains("was cut"), "{name} {given:?}: {fault}");
    }
}

#[test]
fn refuses_what_no_loop_can_do() {
    for (name, given) in LOOPS {
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
