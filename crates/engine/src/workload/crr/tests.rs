//! Both ends of `crr` over real loopback connections, by every loop; and a client without a server.

use super::super::{Account, Detail, EventLoop, Gate, Group, LoopActor, Progress, Service};
use super::*;
use crate::connection::{Connection, Flow, handshake};
use crate::path;
use crate::path::loops::{self, Given, LOOPS, Loop, THREADED_LOOPS, is_short};
use crate::workload::{self, Direction};
use bytepath_record::{Facts, Half, OptionValue, Support};
use bytepath_sys::allocations;
use bytepath_sys::namespace::{self, Enter};
use bytepath_sys::netlink::Netlink;
use bytepath_sys::tcp::{self, FlowOptions};
use bytepath_testing::skip;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

const FLOWS: u32 = 12;
const REQUEST: u64 = 700;
const RESPONSE: u64 = 9000;

/// Time limit of any wait.
const HANG: Duration = Duration::from_secs(20);

/// All loops that can play `crr`.
const ALL_LOOPS: &[&[Loop]] = &[LOOPS, THREADED_LOOPS];

#[test]
fn both_ends_exchange_over_connections_that_come_and_go_by_every_loop() {
    run_in_netns("exchanges_by_every_loop");
}

#[test]
#[ignore = "needs a namespace of its own"]
fn exchanges_by_every_loop() {
    set_up();
    for (name, given) in loops::all(ALL_LOOPS) {
        exchange(name, given, "none");
    }
}

#[test]
fn both_ends_make_handshakes_by_every_loop() {
    run_in_netns("handshakes_by_every_loop");
}

#[test]
#[ignore = "needs a namespace of its own"]
fn handshakes_by_every_loop() {
    set_up();
    for (name, given) in loops::all(ALL_LOOPS) {
        for handshake in ["full", "resumed"] {
            let Some(ends) = exchange(name, given, handshake) else { continue };
            let made = ends.each_ref().map(|end| count(end, "handshakes"));
            let resumed = ends.each_ref().map(|end| count(end, "resumed"));
            let exchanges = (ends[0].total - ends[0].bytes) as f64;
            assert_eq!(made, [exchanges; 2], "{name} {given:?}");
            // The first connection of each place has no ticket, unless it begins so late that
            // another place has left one.
            let full = if handshake == "full" { exchanges } else { exchanges - resumed[0] };
            let expected = if handshake == "full" { exchanges } else { f64::from(FLOWS) };
            assert!(full > 0.0 && full <= expected, "{name} {given:?}: {full} of {exchanges}");
            assert_eq!(resumed, [exchanges - full; 2], "{name} {given:?}: of {exchanges}");
        }
    }
}

fn count(end: &FlowEnd, name: &str) -> f64 {
    read(end, &format!("{METRICS}.{name}"))
}

fn read(end: &FlowEnd, metric: &str) -> f64 {
    let of = |reading: &&Reading| reading.metric == metric;
    end.account.readings.iter().find(of).unwrap_or_else(|| panic!("no {metric}")).value
}

/// Runs both ends for a while; `None` if the loop cannot run here.
fn exchange(name: &str, given: Given, handshake: &str) -> Option<[FlowEnd; 2]> {
    let mut cell = cell(name, given);
    if !is_here(&cell) {
        return None;
    }
    let options = &mut Arc::get_mut(&mut cell).unwrap().workload.options.0;
    options.insert(HANDSHAKE.into(), OptionValue::Word(handshake.into()));
    let (_, [clients, servers]) = lasting(cell.threads(Role::Sender));
    let (gate, progress) = (Arc::new(Gate::default()), Arc::new(Progress::default()));
    let shared = Shared { all: clients.len(), ..Shared::default() };
    let mut threads: [Vec<JoinHandle<FlowEnd>>; 2] = Default::default();
    for (role, all) in [(Role::Receiver, servers), (Role::Sender, clients)] {
        // One lasting connection for each thread.
        for lasting in all {
            let recorder = Recorder::new(false, gate.clone(), progress.clone(), Detail::ALL);
            let actor = (cell.clone(), role, vec![lasting], shared.clone(), recorder);
            threads[role as usize].push(started(actor));
        }
    }
    gate.set(Phase::Window);
    let begun = Instant::now();
    while progress.total() < 50 && begun.elapsed() < HANG {
        thread::sleep(Duration::from_millis(5));
    }
    // Lets a few more exchanges happen.
    thread::sleep(Duration::from_millis(10));
    gate.set(Phase::Drain);
    gate.set(Phase::Stop);
    let [client, server] = threads.map(|threads| {
        let mut sum = FlowEnd::default();
        threads.into_iter().for_each(|thread| sum.add(thread.join().unwrap()));
        sum
    });
    let [exchanges, answered] = [&client, &server].map(|end| end.total - end.bytes);
    assert!(exchanges > u64::from(2 * FLOWS), "{name} {given:?}: {exchanges} exchanges");
    assert_eq!((exchanges, client.bytes), (answered, server.bytes), "{name} {given:?}");
    assert_eq!(client.bytes, exchanges * (REQUEST + RESPONSE), "{name} {given:?}");
    let latency = client.latency.as_ref().unwrap();
    assert_eq!(latency.count(), client.window.count, "{name} {given:?}");
    assert_eq!(client.shares.connections, u64::from(FLOWS));
    if is_short(given, RESPONSE) {
        assert!(read(&client, "loop.short") > 0.0, "{name} {given:?}: buffers were left");
    }
    for end in [&client, &server] {
        assert_eq!(end.account.ledger.copied, end.bytes, "{name} {given:?}");
        let notes = &end.account.notes;
        let failed = failures(&end.account.readings);
        assert_eq!(failed, Vec::<String>::new(), "{name} {given:?}: {notes:?}");
    }
    Some([client, server])
}

#[test]
fn peers_without_tls_are_failures_of_it_in_every_loop() {
    run_in_netns("peers_without_tls");
}

/// Behaviours of a peer that does not speak TLS, once connected.
const ODD: [fn(TcpStream); 3] = [
    |mut peer| peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap(),
    // The header of a record whose body never arrives.
    |mut peer| peer.write_all(&[22, 3, 3, 0, 100]).unwrap(),
    drop,
];

/// Each such connection is counted under its cause, without a panic: at the client, and at the
/// server, which keeps serving others.
#[test]
#[ignore = "needs a namespace of its own"]
fn peers_without_tls() {
    set_up();
    for (name, given) in loops::all(ALL_LOOPS) {
        let mut cell = cell(name, given);
        if !is_here(&cell) {
            continue;
        }
        let contract = Arc::get_mut(&mut cell).unwrap();
        contract.stream.flows = 1;
        let options = &mut contract.workload.options.0;
        options.insert(HANDSHAKE.into(), OptionValue::Word("full".into()));
        let shared = Shared { all: 1, ..Shared::default() };
        let (peer, [clients, servers]) = lasting(1);
        let odd = TcpListener::bind(peer).unwrap();
        let client = Played::start(&cell, Role::Sender, clients, &shared);
        for behave in ODD {
            let mut stranger = odd.accept().unwrap().0;
            // The client has begun its handshake.
            assert!(stranger.read(&mut [0; 4096]).unwrap() > 0, "{name} {given:?}");
            behave(stranger);
        }
        drop(odd);
        let end = client.end();
        assert_eq!((count(&end, "tls"), count(&end, "handshakes")), (3.0, 0.0), "{name} {given:?}");
        assert_eq!((end.total, end.bytes), (0, 0), "{name} {given:?}");
        assert!(end.account.notes[0].starts_with("TLS failed first by: "), "{name} {given:?}");
        let text = failures(&end.account.readings).join("; ");
        assert!(text.contains("3 connections failed in TLS"), "{name} {given:?}: {text}");
        drop(servers);

        let (peer, [clients, servers]) = lasting(1);
        let server = Played::start(&cell, Role::Receiver, servers, &shared);
        for behave in ODD {
            let stranger = TcpStream::connect(peer).unwrap();
            let mut other = stranger.try_clone().unwrap();
            behave(stranger);
            other.shutdown(Shutdown::Write).unwrap();
            // An alert may arrive before the connection is closed.
            let _ = other.read_to_end(&mut Vec::new());
        }
        let client = Played::start(&cell, Role::Sender, clients, &shared);
        client.await_exchanges(20);
        let ends = [client.end(), server.end()];
        assert_eq!(ends.each_ref().map(|end| count(end, "tls")), [0.0, 3.0], "{name} {given:?}");
        assert_eq!(count(&ends[1], "cut"), 0.0, "{name} {given:?}");
        assert_eq!(
            count(&ends[0], "handshakes"),
            count(&ends[1], "handshakes"),
            "{name} {given:?}"
        );
    }
}

#[test]
fn listens_until_the_clients_of_all_threads_have_ended() {
    run_in_netns("clients_of_all_threads");
}

/// The kernel distributes the connections of all clients over the listening sockets of all threads;
/// closing one of those resets whatever waits there.
#[test]
#[ignore = "needs a namespace of its own"]
fn clients_of_all_threads() {
    set_up();
    for name in ["epoll", "poll", "uring-loop"] {
        let (server, client) = (cell(name, &[("threads", "2")]), cell("socket", &[]));
        if !is_here(&server) {
            continue;
        }
        let (_, [clients, servers]) = lasting(4);
        let shared = Shared { all: 4, ..Shared::default() };
        let play = |role, connections: &[Arc<dyn Connection>]| {
            let cell = if role == Role::Sender { &client } else { &server };
            Played::start(cell, role, connections.into(), &shared)
        };
        let servers: Vec<_> = servers.chunks(2).map(|two| play(Role::Receiver, two)).collect();
        let mut clients: Vec<_> = clients.chunks(1).map(|one| play(Role::Sender, one)).collect();
        clients.iter().for_each(|client| client.await_exchanges(100));
        // The clients of the first thread.
        let mut ends: Vec<FlowEnd> = clients.drain(..2).map(Played::end).collect();
        // Many more exchanges than a thread that ends by itself would still answer.
        servers[0].await_exchanges(1000);
        ends.extend(clients.into_iter().chain(servers).map(Played::end));
        let of = |ends: &[FlowEnd]| ends.iter().map(|end| end.total - end.bytes).sum::<u64>();
        assert_eq!(of(&ends[..4]), of(&ends[4..]), "{name}");
        for end in &ends {
            assert_eq!(failures(&end.account.readings), Vec::<String>::new(), "{name}");
        }
    }
}

#[test]
fn refusals_are_counted_and_no_storm() {
    run_in_netns("refusals");
}

/// Nothing is listening: each attempt is counted, and the next one follows a pause.
#[test]
#[ignore = "needs a namespace of its own"]
fn refusals() {
    set_up();
    for (name, given) in loops::all(ALL_LOOPS) {
        let mut cell = cell(name, given);
        if !is_here(&cell) {
            continue;
        }
        Arc::get_mut(&mut cell).unwrap().stream.flows = 1;
        let (_, [mut clients, servers]) = lasting(1);
        let gate = Arc::new(Gate::default());
        let recorder = Recorder::new(false, gate.clone(), Arc::default(), Detail::ALL);
        let connections = vec![clients.remove(0)];
        let begun = Instant::now();
        let client = started((cell, Role::Sender, connections, Shared::default(), recorder));
        thread::sleep(20 * PAUSE);
        gate.set(Phase::Stop);
        let end = client.join().unwrap();
        let most = begun.elapsed().as_millis() / PAUSE.as_millis() + 1;
        drop(servers);
        let refused = count(&end, "refused");
        assert!(refused >= 2.0 && refused <= most as f64, "{name} {given:?}: {refused} of {most}");
        assert_eq!((end.total, end.bytes), (0, 0), "{name} {given:?}");
        let text = failures(&end.account.readings).join("; ");
        assert!(
            text.contains("connections were refused (ECONNREFUSED)"),
            "{name} {given:?}: {text}"
        );
    }
}

#[test]
fn connections_without_an_answer_are_lost() {
    run_in_netns("hung");
}

/// A server accepts connections and never answers: the exchanges in progress at the end of the
/// window count as unanswered.
#[test]
#[ignore = "needs a namespace of its own"]
fn hung() {
    set_up();
    let silent = |(name, given): (&str, Given)| {
        let mut cell = cell(name, given);
        if !is_here(&cell) {
            return;
        }
        Arc::get_mut(&mut cell).unwrap().stream.flows = 3;
        let hung = Passing::of(&cell).at_client(0);
        let (peer, [mut clients, servers]) = lasting(1);
        let listener = TcpListener::bind(peer).unwrap();
        tcp::limit_blocking(listener.as_fd(), HANG).unwrap();
        let gate = Arc::new(Gate::default());
        gate.set(Phase::Window);
        let recorder = Recorder::new(false, gate.clone(), Arc::default(), Detail::ALL);
        let connections = vec![clients.remove(0)];
        let client = started((cell, Role::Sender, connections, Shared::default(), recorder));
        let taken: Vec<TcpStream> = (0..hung).map(|_| listener.accept().unwrap().0).collect();
        gate.set(Phase::Stop);
        let end = client.join().unwrap();
        drop((servers, taken));
        let latency = end.latency.as_ref().unwrap();
        assert_eq!((latency.count(), latency.unanswered()), (0, hung as u64), "{name} {given:?}");
        assert_eq!(count(&end, "timed-out"), hung as f64, "{name} {given:?}");
    };
    thread::scope(|all| {
        loops::all(ALL_LOOPS).for_each(|each| _ = all.spawn(move || silent(*each)));
    });
}

/// The server may have answered requests whose response was lost, but the client cannot have
/// exchanges that the server did not answer.
#[test]
fn ends_agree_but_for_connections_that_failed() {
    let settles = |[client, server]: [u64; 2], failed: u64| {
        let mut account = Account::default();
        let counts = [("exchanges", client), ("timed-out", failed)];
        account.count(METRICS, &Scope::Role(Role::Sender), Unit::Count, counts);
        let counts = [("exchanges", server)];
        account.count(METRICS, &Scope::Role(Role::Receiver), Unit::Count, counts);
        let record = |role, exchanges| RoleRecord {
            total_bytes: exchanges * (REQUEST + RESPONSE),
            count: exchanges,
            window: 1.0,
            ..RoleRecord::blank(role)
        };
        let ends = [&record(Role::Sender, client), &record(Role::Receiver, server)];
        settle(ends, None, &account.readings).map_err(|fault| fault.message)
    };
    assert_eq!(settles([5, 5], 0), Ok(()));
    assert!(settles([5, 6], 0).unwrap_err().contains("moved"));
    assert_eq!(settles([5, 7], 2), Ok(()));
    for wrong in [[5, 8], [5, 4]] {
        let text = settles(wrong, 2).unwrap_err();
        assert!(text.contains("5 exchanges, 2 connections failed"), "{text}");
    }
}

#[test]
fn errors_are_failures_of_connections_or_of_the_client() {
    let of = |code| Failures::of(&io::Error::from_raw_os_error(code));
    let mut failures = Failures::default();
    let timed_out = [libc::ETIMEDOUT, libc::EINPROGRESS];
    for code in timed_out.into_iter().chain([libc::ECONNREFUSED, libc::ECONNRESET, libc::EPIPE]) {
        *of(code).unwrap()(&mut failures) += 1;
    }
    *of(libc::EADDRNOTAVAIL).unwrap()(&mut failures) += 7;
    let tls = handshake::failure(rustls::Error::DecryptError);
    *Failures::of(&tls).unwrap()(&mut failures) += 1;
    assert_eq!(failures, Failures { refused: 1, timed_out: 2, reset: 2, no_port: 7, tls: 1 });
    assert!(of(libc::EMFILE).is_none());
    let fault = cannot_connect(&io::Error::from_raw_os_error(libc::EMFILE));
    assert!(fault.remedy.unwrap().contains("RLIMIT_NOFILE"));
    let lost = cannot_connect(&io::Error::from_raw_os_error(libc::EHOSTUNREACH));
    assert_eq!(lost.kind, FaultKind::PeerLost);
}

#[test]
fn places_are_dealt_to_all_threads_of_a_client() {
    let mut cell = Cell::new("test", Half::plain("epoll"), Half::plain("epoll"));
    cell.stream.flows = 10;
    for threads in 1..=10 {
        let options = &mut cell.tx.options.0;
        options.insert("threads".into(), OptionValue::Number(threads));
        let passing = Passing::of(&cell);
        let places: Vec<usize> =
            (0..threads).map(|first| passing.at_client(first as u32)).collect();
        assert_eq!(places.iter().sum::<usize>(), 10, "{places:?}");
        assert!(places.iter().max().unwrap() - places.iter().min().unwrap() <= 1, "{places:?}");
    }
}

#[test]
fn memory_is_that_of_connections_at_a_time() {
    run_in_netns("memory");
}

/// A server's memory per connection is counted for the connections it had, not for all its places.
#[test]
#[ignore = "needs a namespace of its own"]
fn memory() {
    set_up();
    for (name, most) in [("socket", 1), ("epoll", 4 * 1000 + 64)] {
        let mut cell = cell(name, &[]);
        Arc::get_mut(&mut cell).unwrap().stream.flows = 1000;
        assert_eq!(Passing::of(&cell).at_server(), most, "{name}");
    }
    for (name, given) in loops::all(ALL_LOOPS) {
        // Memory without per-connection state, with one connection at a time and with many.
        let memory = [1, 400].map(|flows| {
            let mut cell = cell(name, given);
            Arc::get_mut(&mut cell).unwrap().stream.flows = flows;
            is_here(&cell).then(|| {
                let connections = lasting(1).1[1].clone();
                let mut event_loop = open(&cell, Role::Receiver, &connections, &Group::default());
                let account = event_loop.account().unwrap();
                let of = |reading: &&Reading| reading.metric == "loop.memory";
                account.readings.iter().find(of).unwrap().value
            })
        });
        let [Some(one), Some(many)] = memory else { continue };
        // What poll(2) and a ring hold for each place is in use in every turn.
        let each = match *name {
            "poll" => 4.0 * 32.0,
            "uring-loop" => 10e3,
            _ => 0.0,
        };
        assert!(many - one <= 400.0 * each, "{name} {given:?}: {one}, and {many} of 400");
    }
}

#[test]
fn a_failure_is_reported_before_its_place_is_taken_again() {
    run_in_netns("failures_and_places");
}

/// A service's counts always refer to the place's current connection, never to its previous one.
#[test]
#[ignore = "needs a namespace of its own"]
fn failures_and_places() {
    set_up();
    for (name, given) in loops::all(ALL_LOOPS) {
        let cell = cell(name, given);
        if !is_here(&cell) {
            continue;
        }
        let (peer, [_clients, servers]) = lasting(1);
        let mut event_loop = open(&cell, Role::Receiver, &servers, &Group::default());
        let mut recorder = Recorder::new(false, Arc::default(), Arc::default(), Detail::ALL);
        let mut places = Places::default();
        event_loop.begin().unwrap();
        let mut await_counts = |accepted: usize, over: usize| {
            let begun = Instant::now();
            while (places.accepted, places.over) != (accepted, over) {
                assert!(begun.elapsed() < HANG, "{name} {given:?}: {places:?}");
                event_loop.turn(&mut places, &mut recorder, Some(LOOK)).unwrap();
            }
        };
        for round in 0..3 {
            let first = TcpStream::connect(peer).unwrap();
            await_counts(2 * round + 1, 2 * round);
            tcp::reset_on_close(first.as_fd(), true).unwrap();
            // The loop sees both at once: the end of one connection and the start of the other.
            drop(first);
            let second = TcpStream::connect(peer).unwrap();
            await_counts(2 * round + 2, 2 * round + 1);
            drop(second);
            await_counts(2 * round + 2, 2 * round + 2);
        }
    }
}

/// Which places currently have a connection.
#[derive(Debug, Default)]
struct Places {
    taken: Vec<usize>,
    accepted: usize,
    over: usize,
}

impl Service for Places {
    fn received(&mut self, _: usize, _: u64) -> u64 {
        0
    }

    fn accepted(&mut self, place: usize) {
        assert!(!self.taken.contains(&place), "{place} is taken: {self:?}");
        self.taken.push(place);
        self.accepted += 1;
    }

    fn ended(&mut self, place: usize) -> Result<(), Fault> {
        let at = self.taken.iter().position(|taken| *taken == place).expect("a connection");
        self.taken.remove(at);
        self.over += 1;
        Ok(())
    }

    fn failed(&mut self, place: usize, _: &io::Error) -> Result<(), Fault> {
        self.ended(place)
    }
}

/// Runs an ignored test of this module in its own network namespace: the ports that connections
/// leave in TIME-WAIT disappear with it, and settings of the host have no effect.
fn run_in_netns(name: &str) {
    let (_, module) = module_path!().split_once("::").unwrap();
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args([&format!("{module}::{name}"), "--exact", "--ignored", "--nocapture"]);
    test.stdout(Stdio::piped()).stderr(Stdio::piped());
    match namespace::spawn(test, Enter::New) {
        Err(refused) => skip!("no network namespace: {refused}"),
        Ok(child) => {
            let output = child.wait_with_output().unwrap();
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            println!("{text}");
            assert!(output.status.success() && text.contains("1 passed"), "{name}: {text}");
        }
    }
}

/// Sets up the loopback device of the new namespace.
fn set_up() {
    Netlink::new().set_up(1).unwrap();
}

fn is_here(cell: &Cell) -> bool {
    let path = path::find(path::CATALOG, &cell.rx.path).unwrap();
    let loops = path::CATALOG.iter().filter(|path| path.uses_io_uring || path.event_loop.is_some());
    let attempts = loops.flat_map(|path| (path.attempt)(None)).collect();
    let facts = Facts { attempts, ..Facts::default() };
    let job = (workload::of(cell).unwrap().job)(cell, Role::Receiver, Direction::Receive);
    match (path.half(Role::Receiver).unwrap().check)(&job, &facts) {
        Support::Yes => true,
        Support::No { reason, .. } => {
            skip!("{}: {reason}", cell.id);
            false
        }
    }
}

fn cell(name: &str, given: &[(&str, &str)]) -> Arc<Cell> {
    let mut cell = path::cell_of(name, given);
    cell.stream.flows = FLOWS;
    cell.workload.name = "crr".into();
    let sizes = [("request", REQUEST), ("response", RESPONSE)];
    let sizes = sizes.map(|(name, n)| (name.to_owned(), OptionValue::Number(n)));
    cell.workload.options.0.extend(sizes);
    Arc::new(cell)
}

/// Returns both ends of `count` lasting connections, by which a trial is ended, and the address at
/// which the server accepted them; nothing listens there afterwards.
fn lasting(count: u32) -> (SocketAddr, [Vec<Arc<dyn Connection>>; 2]) {
    let at = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = tcp::listen_at(at, count, &FlowOptions::default()).unwrap();
    let peer = listener.local_addr().unwrap();
    let pair = |index| {
        let client = tcp::connect(peer, None, &FlowOptions::default()).unwrap();
        let server = listener.accept().unwrap().0;
        let flow = |socket| Arc::new(Flow::tcp(socket, index)) as Arc<dyn Connection>;
        (flow(client), flow(server))
    };
    let (clients, servers) = (0..count).map(pair).unzip();
    (peer, [clients, servers])
}

/// Opens the loop of an end for these connections.
fn open(
    cell: &Cell,
    role: Role,
    connections: &[Arc<dyn Connection>],
    group: &Group,
) -> Box<dyn EventLoop> {
    let path = path::find(path::CATALOG, &cell.rx.path).unwrap();
    let job = |direction| (WORKLOAD.job)(cell, role, direction);
    let jobs = [&job(Direction::Send), &job(Direction::Receive)];
    path.loop_of(&WORKLOAD).unwrap()(jobs, connections, group).unwrap()
}

/// What the threads of an end share: groups of their loops and of the workload, and the total
/// number of connections.
#[derive(Clone, Default)]
struct Shared {
    groups: [Arc<Group>; 2],
    all: usize,
}

type Started = (Arc<Cell>, Role, Vec<Arc<dyn Connection>>, Shared, Recorder);

/// Plays an end on a new thread; returns once the loop is open.
fn started((cell, role, connections, shared, recorder): Started) -> JoinHandle<FlowEnd> {
    let (opened, is_open) = std::sync::mpsc::channel();
    let played = thread::spawn(move || {
        let opened_loop = open(&cell, role, &connections, &shared.groups[0]);
        let event_loop: Box<dyn EventLoop> = match Passing::of(&cell).handshake {
            None => Box::new(AssertNoAlloc(opened_loop)),
            // Handshakes allocate.
            Some(_) => opened_loop,
        };
        opened.send(()).unwrap();
        let (lasting, Shared { groups: [_, group], all }) = (connections.clone(), shared);
        let end =
            play(LoopActor { role, cell, connections: lasting, event_loop, group, all, recorder });
        connections.iter().for_each(|connection| connection.close());
        end.unwrap()
    });
    is_open.recv_timeout(HANG).unwrap();
    played
}

/// One end of some lasting connections, played with its own gate.
struct Played {
    gate: Arc<Gate>,
    progress: Arc<Progress>,
    thread: JoinHandle<FlowEnd>,
}

impl Played {
    fn start(
        cell: &Arc<Cell>,
        role: Role,
        connections: Vec<Arc<dyn Connection>>,
        shared: &Shared,
    ) -> Played {
        let (gate, progress) = (Arc::new(Gate::default()), Arc::new(Progress::default()));
        let recorder = Recorder::new(false, gate.clone(), progress.clone(), Detail::ALL);
        let thread = started((cell.clone(), role, connections, shared.clone(), recorder));
        Played { gate, progress, thread }
    }

    /// Waits until there are `more` further exchanges.
    fn await_exchanges(&self, more: u64) {
        let (wanted, begun) = (self.progress.total() + more, Instant::now());
        while self.progress.total() < wanted {
            assert!(begun.elapsed() < HANG, "{} of {wanted} exchanges", self.progress.total());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(self) -> FlowEnd {
        self.gate.set(Phase::Stop);
        self.thread.join().unwrap()
    }
}

/// Asserts that a loop allocates nothing once it has begun.
struct AssertNoAlloc(Box<dyn EventLoop>);

fn assert_no_alloc<T>(call: impl FnOnce() -> T) -> T {
    let before = allocations::of_this_thread();
    let result = call();
    assert_eq!(allocations::of_this_thread() - before, 0, "a loop allocates");
    result
}

impl EventLoop for AssertNoAlloc {
    fn witness(&mut self) -> Result<(), Fault> {
        self.0.witness()
    }

    fn begin(&mut self) -> Result<(), Fault> {
        self.0.begin()
    }

    fn send(&mut self, place: usize, bytes: u64, recorder: &mut Recorder) -> Result<(), Fault> {
        assert_no_alloc(|| self.0.send(place, bytes, recorder))
    }

    fn connect(&mut self, place: usize, bytes: u64, recorder: &mut Recorder) -> Result<(), Fault> {
        assert_no_alloc(|| self.0.connect(place, bytes, recorder))
    }

    fn close(&mut self, place: usize, recorder: &mut Recorder) -> Result<(), Fault> {
        assert_no_alloc(|| self.0.close(place, recorder))
    }

    fn submit(&mut self) -> Result<(), Fault> {
        self.0.submit()
    }

    fn turn(
        &mut self,
        service: &mut dyn Service,
        recorder: &mut Recorder,
        limit: Option<Duration>,
    ) -> Result<(), Fault> {
        assert_no_alloc(|| self.0.turn(service, recorder, limit))
    }

    fn account(&mut self) -> Result<Account, Fault> {
        self.0.account()
    }
}
