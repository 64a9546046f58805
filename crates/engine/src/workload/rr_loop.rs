//! `rr` over the connections of an event loop: the same exchanges as [`super::rr`], but a thread
//! has those of all its connections in flight at once.
//!
//! Open loop (`rate`): requests are due at the thread's share of the rate. Each goes to the
//! connection that has been free longest. If all have the maximum number in flight, it waits for
//! the next response, and is timed from when it was due.
//!
//! Think time: each response is followed by a pause and then the next request, which is timed from
//! when it was due.
//!
//! Incast: each connection of a thread has one request in flight; the last response ends the round
//! and the next round begins. The round is what is timed.

use super::event_loop::{LoopActor, Service, Shares};
use super::rr::{Arrivals, LAST_ANSWER, NAP, Plan, SPIN_BEFORE_DUE_NS};
use super::sizes::Sequence;
use super::{Account, EventLoop, FlowEnd, Phase, Recorder};
use crate::connection::Connection;
use bytepath_record::{Cell, Fault, Role, Scope, Unit};
use bytepath_sys::clock;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn play(actor: LoopActor) -> Result<FlowEnd, Fault> {
    let LoopActor { role, cell, connections, event_loop, recorder, .. } = actor;
    let plan = Plan::of(&cell);
    connections.iter().try_for_each(|connection| connection.send_at_once())?;
    let mut thread = Thread { event_loop, moved: recorder.companion() };
    thread.event_loop.begin()?;
    let exchanges = if role == Role::Sender { recorder.with_latency() } else { recorder };
    // The active connections are the first of the cell, dealt to the threads round-robin.
    let active = connections.iter().filter(|one| one.index() < plan.active).count();
    let indices = connections.iter().map(|connection| connection.index());
    let ends = Endpoints::new(role, &cell, (indices, active), exchanges);
    // The index of a thread's first connection is the number of the thread.
    let number = connections.first().map_or(0, |connection| connection.index());
    let arrivals = |mean| Arrivals::new(mean, plan.poisson, u64::from(number));
    let ends = match (role, plan.gap, plan.think) {
        (Role::Receiver, ..) => serve(&mut thread, ends)?,
        (Role::Sender, Some(gap), _) => {
            let after = gap * f64::from(number) / f64::from(plan.active);
            let first = clock::monotonic() + after as u64;
            open_loop(&mut thread, ends, first, arrivals(gap / active as f64))?
        }
        (Role::Sender, None, Some(think)) => think_time_loop(&mut thread, ends, arrivals(think))?,
        (Role::Sender, None, None) if plan.incast => rounds(&mut thread, ends)?,
        (Role::Sender, None, None) => closed_loop(&mut thread, ends)?,
    };
    end_streams(role, &connections, LAST_ANSWER)?;
    let mut account = thread.event_loop.account()?;
    account.add(ends.memory(role));
    let bytes = thread.moved.total();
    let shares = Shares::of(ends.all[..active].iter().map(|end| end.exchanges));
    let mut end = FlowEnd { account, bytes, shares, ..ends.exchanges.finish() };
    end.join(thread.moved.finish());
    Ok(end)
}

/// Ends the streams of a thread. Each end waits until the other has acknowledged the end of its
/// stream: a packet retransmitted to a closed socket would be answered by a reset. `limit` is how
/// long the receiver's remaining data may take to arrive.
pub(super) fn end_streams(
    role: Role,
    connections: &[Arc<dyn Connection>],
    limit: Duration,
) -> Result<(), Fault> {
    connections.iter().for_each(|connection| connection.close());
    connections.iter().try_for_each(|connection| match role {
        Role::Sender => connection.await_end(),
        Role::Receiver => connection.wait_acknowledged(limit),
    })
}

/// An event loop and the recorder of the bytes it moves.
pub(super) struct Thread {
    pub(super) event_loop: Box<dyn EventLoop>,
    pub(super) moved: Recorder,
}

impl Thread {
    /// Updates both recorders; returns the phase.
    pub(super) fn phase(&mut self, exchanges: &mut Recorder) -> Phase {
        self.moved.phase();
        exchanges.phase()
    }

    pub(super) fn turn(
        &mut self,
        service: &mut dyn Service,
        limit: Option<Duration>,
    ) -> Result<(), Fault> {
        self.event_loop.turn(service, &mut self.moved, limit)
    }

    pub(super) fn connect(&mut self, place: usize, bytes: u64) -> Result<(), Fault> {
        self.event_loop.connect(place, bytes, &mut self.moved)
    }

    pub(super) fn close(&mut self, place: usize) -> Result<(), Fault> {
        self.event_loop.close(place, &mut self.moved)
    }

    fn send(&mut self, connection: usize, bytes: u64) -> Result<(), Fault> {
        self.event_loop.send(connection, bytes, &mut self.moved)
    }
}

/// This end of all connections of a thread.
struct Endpoints {
    all: Box<[EndpointState]>,
    /// How many connections, from the first on, exchange anything.
    active: usize,
    exchanges: Recorder,
    /// Sizes of the messages sent and received.
    goes: Sequence,
    comes: Sequence,
    outstanding: usize,
    /// Whether each exchange is timed, rather than each round.
    times_each: bool,
    /// When each request in flight was sent, or was due: `outstanding` entries per connection.
    since: Box<[u64]>,
}

/// This end of one connection.
#[derive(Clone, Copy, Default)]
struct EndpointState {
    /// Bytes received of the current message.
    came: u64,
    /// Position in each sequence of sizes.
    out_at: u32,
    in_at: u32,
    /// Exchanges within the window.
    exchanges: u64,
    /// Which of the connection's entries in [`Endpoints::since`] the next request takes, and the
    /// next response frees.
    sent: u32,
    answered: u32,
}

impl Endpoints {
    /// For connections with these indices, of which the first `active` exchange messages.
    fn new(
        role: Role,
        cell: &Cell,
        (indices, active): (impl Iterator<Item = u32>, usize),
        exchanges: Recorder,
    ) -> Endpoints {
        let plan = Plan::of(cell);
        let sizes = |name, seed| Sequence::new(&cell.workload.options.sizes(name), seed);
        let (request, response) = (sizes("request", 1), sizes("response", 2));
        let (goes, comes) = match role {
            Role::Sender => (request, response),
            Role::Receiver => (response, request),
        };
        let end = |index| {
            let begin = Sequence::begin(index);
            EndpointState { out_at: begin, in_at: begin, ..EndpointState::default() }
        };
        let all: Box<[EndpointState]> = indices.map(end).collect();
        let outstanding = plan.outstanding as usize;
        Endpoints {
            since: vec![0; all.len() * outstanding].into(),
            all,
            active,
            exchanges,
            goes,
            comes,
            outstanding,
            times_each: !plan.incast,
        }
    }

    /// The memory of the workload's own state per connection; the loop accounts for its own.
    fn memory(&self, role: Role) -> Account {
        let mut account = Account::default();
        let bytes = size_of_val(&self.all[..]) + size_of_val(&self.since[..]);
        let bytes = bytes + self.goes.memory() + self.comes.memory();
        account.count("loop", &Scope::Role(role), Unit::Bytes, [("memory", bytes as u64)]);
        account
    }

    /// Enters received bytes; returns how many messages are now complete.
    #[inline]
    fn messages(&mut self, connection: usize, bytes: u64) -> u64 {
        let end = &mut self.all[connection];
        end.came += bytes;
        self.comes.take_complete(&mut end.in_at, &mut end.came)
    }

    /// Returns the size in bytes of the next `messages` messages to send.
    #[inline]
    fn outgoing(&mut self, connection: usize, messages: u64) -> u64 {
        self.goes.take(&mut self.all[connection].out_at, messages)
    }

    /// Enters completed exchanges.
    #[inline]
    fn complete(&mut self, connection: usize, exchanges: u64) {
        self.exchanges.moved(exchanges as usize);
        if self.exchanges.counting() {
            self.all[connection].exchanges += exchanges;
        }
    }

    /// Enters a request that is sent or was due at `since`.
    #[inline]
    fn sent(&mut self, connection: usize, since: u64) {
        let at = &mut self.all[connection].sent;
        self.since[connection * self.outstanding + *at as usize] = since;
        *at = (*at + 1) % self.outstanding as u32;
    }

    /// Enters a response that arrived at `now`.
    #[inline]
    fn answered(&mut self, connection: usize, now: u64) {
        let at = &mut self.all[connection].answered;
        let since = self.since[connection * self.outstanding + *at as usize];
        *at = (*at + 1) % self.outstanding as u32;
        if self.times_each {
            self.exchanges.latency(now.saturating_sub(since));
        }
    }
}

/// Answers every request until all clients have ended their streams.
fn serve(thread: &mut Thread, ends: Endpoints) -> Result<Endpoints, Fault> {
    let mut server = Server { left: ends.all.len(), ends };
    while server.left > 0 {
        thread.phase(&mut server.ends.exchanges);
        thread.turn(&mut server, Some(NAP))?;
    }
    Ok(server.ends)
}

struct Server {
    ends: Endpoints,
    /// Connections whose client has not ended its stream.
    left: usize,
}

impl Service for Server {
    #[inline]
    fn received(&mut self, connection: usize, bytes: u64) -> u64 {
        let requests = self.ends.messages(connection, bytes);
        self.ends.complete(connection, requests);
        self.ends.outgoing(connection, requests)
    }

    fn ended(&mut self, _: usize) -> Result<(), Fault> {
        self.left -= 1;
        Ok(())
    }
}

/// Keeps `outstanding` requests in flight on each connection until the gate is at stop.
fn closed_loop(thread: &mut Thread, ends: Endpoints) -> Result<Endpoints, Fault> {
    let mut client = Client::new(ends, true);
    while let Some(connection) = client.free.pop_front() {
        // While the gate is held, the sender blocks here until released.
        thread.phase(&mut client.ends.exchanges);
        let bytes = client.request(connection as usize, clock::monotonic());
        thread.send(connection as usize, bytes)?;
    }
    while thread.phase(&mut client.ends.exchanges) != Phase::Stop {
        thread.turn(&mut client, None)?;
    }
    drain(thread, client)
}

/// Sends a request over each connection, waits for all responses, and repeats until the gate is at
/// stop.
fn rounds(thread: &mut Thread, ends: Endpoints) -> Result<Endpoints, Fault> {
    let mut client = Client::new(ends, false);
    while thread.phase(&mut client.ends.exchanges) != Phase::Stop {
        let since = clock::monotonic();
        while let Some(connection) = client.free.pop_front() {
            let bytes = client.request(connection as usize, since);
            thread.send(connection as usize, bytes)?;
        }
        while client.in_flight > 0 {
            thread.phase(&mut client.ends.exchanges);
            // Everything outstanding may be waiting for a retransmission.
            thread.turn(&mut client, Some(NAP))?;
        }
        client.ends.exchanges.latency(clock::monotonic().saturating_sub(since));
    }
    Ok(client.ends)
}

/// After each response pauses, then sends the next request, which is due at the end of the pause.
fn think_time_loop(
    thread: &mut Thread,
    ends: Endpoints,
    mut pauses: Arrivals,
) -> Result<Endpoints, Fault> {
    let mut client = Client::new(ends, false);
    let mut due = BinaryHeap::with_capacity(client.free.len());
    // The first requests are spread over one pause, since users do not arrive all at once.
    let (begin, all) = (clock::monotonic(), client.free.len() as u64);
    for (number, connection) in (0..).zip(client.free.drain(..)) {
        due.push(Reverse((begin + pauses.gap() * number / all, connection)));
    }
    while thread.phase(&mut client.ends.exchanges) != Phase::Stop {
        let now = clock::monotonic();
        while let Some(connection) = client.free.pop_front() {
            due.push(Reverse((now + pauses.gap(), connection)));
        }
        let left = due.peek().map(|Reverse((at, _))| at.saturating_sub(now));
        if left == Some(0)
            && let Some(Reverse((at, connection))) = due.pop()
        {
            let bytes = client.request(connection as usize, at);
            thread.send(connection as usize, bytes)?;
            continue;
        }
        let sleep = left.map(|left| Duration::from_nanos(left.saturating_sub(SPIN_BEFORE_DUE_NS)));
        thread.turn(&mut client, Some(sleep.map_or(NAP, |sleep| sleep.min(NAP))))?;
    }
    drain(thread, client)
}

/// Sends requests when they are due, unless `outstanding` are in flight on each connection.
fn open_loop(
    thread: &mut Thread,
    ends: Endpoints,
    mut due: u64,
    mut arrivals: Arrivals,
) -> Result<Endpoints, Fault> {
    let mut client = Client::new(ends, false);
    while thread.phase(&mut client.ends.exchanges) != Phase::Stop {
        let left = due.saturating_sub(clock::monotonic());
        if left == 0
            && let Some(connection) = client.free.pop_front()
        {
            let bytes = client.request(connection as usize, due);
            thread.send(connection as usize, bytes)?;
            due += arrivals.gap();
            continue;
        }
        // An overdue request waits for a response, any other until it is due.
        let sleep = if left == 0 {
            NAP
        } else {
            Duration::from_nanos(left.saturating_sub(SPIN_BEFORE_DUE_NS))
        };
        thread.turn(&mut client, Some(sleep.min(NAP)))?;
    }
    drain(thread, client)
}

/// Waits for the outstanding responses.
fn drain(thread: &mut Thread, mut client: Client) -> Result<Endpoints, Fault> {
    client.repeats = false;
    while client.in_flight > 0 {
        thread.phase(&mut client.ends.exchanges);
        thread.turn(&mut client, None)?;
    }
    Ok(client.ends)
}

struct Client {
    ends: Endpoints,
    /// Whether each response is followed by the next request.
    repeats: bool,
    in_flight: u64,
    /// Connections that may send another request, listed once per request they may send.
    free: VecDeque<u32>,
}

impl Client {
    fn new(ends: Endpoints, repeats: bool) -> Client {
        let (active, outstanding) = (ends.active as u32, ends.outstanding);
        let free = (0..outstanding).flat_map(|_| 0..active).collect();
        Client { ends, repeats, in_flight: 0, free }
    }

    /// Enters a request, sent or due at `since`; returns its size in bytes.
    #[inline]
    fn request(&mut self, connection: usize, since: u64) -> u64 {
        self.ends.sent(connection, since);
        self.in_flight += 1;
        self.ends.outgoing(connection, 1)
    }
}

impl Service for Client {
    #[inline]
    fn received(&mut self, connection: usize, bytes: u64) -> u64 {
        let responses = self.ends.messages(connection, bytes);
        if responses == 0 {
            return 0;
        }
        let now = clock::monotonic();
        self.ends.complete(connection, responses);
        self.in_flight -= responses;
        let mut send = 0;
        for _ in 0..responses {
            self.ends.answered(connection, now);
            match self.repeats {
                true => send += self.request(connection, now),
                false => self.free.push_back(connection as u32),
            }
        }
        send
    }

    fn ended(&mut self, connection: usize) -> Result<(), Fault> {
        let text = format!("the server closed connection {connection} before it had answered");
        Err(Fault::peer_lost(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Half, OptionValue};

    fn ends(role: Role, connections: u32, outstanding: u64) -> Endpoints {
        let mut cell = Cell::new("test", Half::plain("epoll"), Half::plain("epoll"));
        let options = [("request", 10), ("response", 30), ("outstanding", outstanding)];
        let options = options.map(|(name, n)| (name.to_owned(), OptionValue::Number(n)));
        cell.workload.options.0.extend(options);
        let recorder = Recorder::new(false, Arc::default(), Arc::default(), Default::default());
        let all = (0..connections, connections as usize);
        Endpoints::new(role, &cell, all, recorder.with_latency())
    }

    /// 20 connections that pause for 20 ms send one request per millisecond, also at the start.
    #[test]
    fn users_pause_after_each_response() {
        let ends = ends(Role::Sender, 20, 1);
        ends.exchanges.gate().set(Phase::Window);
        let echo = Box::new(Echo::default());
        let moved = ends.exchanges.companion();
        let mut thread = Thread { event_loop: echo, moved };
        let gate = ends.exchanges.gate();
        let begun = clock::monotonic();
        let ended = std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                gate.set(Phase::Stop);
            });
            think_time_loop(&mut thread, ends, Arrivals::new(20e6, false, 0)).unwrap()
        });
        let passed = (clock::monotonic() - begun) as f64 / 1e6;
        let exchanges = ended.exchanges.total() as f64;
        assert!(
            exchanges > 0.4 * passed && exchanges <= passed + 1.0,
            "{exchanges} in {passed} ms"
        );
        let latency = ended.exchanges.finish().latency.unwrap();
        // Exchanges that are answered after the window are not timed.
        assert!((exchanges - 20.0..=exchanges).contains(&(latency.count() as f64)), "{latency:?}");
    }

    /// A loop whose peer answers immediately.
    #[derive(Default)]
    struct Echo {
        waiting: VecDeque<usize>,
    }

    impl EventLoop for Echo {
        fn witness(&mut self) -> Result<(), Fault> {
            Ok(())
        }

        fn send(&mut self, connection: usize, _: u64, _: &mut Recorder) -> Result<(), Fault> {
            self.waiting.push_back(connection);
            Ok(())
        }

        fn turn(
            &mut self,
            service: &mut dyn Service,
            _: &mut Recorder,
            limit: Option<Duration>,
        ) -> Result<(), Fault> {
            match self.waiting.pop_front() {
                Some(connection) => assert_eq!(service.received(connection, 30), 0),
                None => std::thread::sleep(limit.unwrap()),
            }
            Ok(())
        }

        fn account(&mut self) -> Result<Account, Fault> {
            Ok(Account::default())
        }
    }

    #[test]
    fn server_answers_whole_requests() {
        let mut server = Server { ends: ends(Role::Receiver, 2, 1), left: 2 };
        let pieces = [(0, 4, 0), (1, 10, 30), (0, 5, 0), (0, 1, 30), (0, 25, 60), (0, 5, 30)];
        for (connection, bytes, answer) in pieces {
            assert_eq!(server.received(connection, bytes), answer, "{bytes} over {connection}");
        }
        assert_eq!(server.ends.exchanges.total(), 5);
        server.ended(1).unwrap();
        assert_eq!(server.left, 1);
    }

    #[test]
    fn client_follows_each_response_with_a_request() {
        let mut client = Client::new(ends(Role::Sender, 2, 2), true);
        while let Some(connection) = client.free.pop_front() {
            assert_eq!(client.request(connection as usize, 0), 10);
        }
        assert_eq!(client.in_flight, 4);
        for (bytes, requests) in [(29, 0), (31, 2), (60, 2), (0, 0)] {
            assert_eq!(client.received(1, bytes), 10 * requests, "{bytes}");
        }
        assert_eq!((client.in_flight, client.ends.exchanges.total()), (4, 4));
        client.repeats = false;
        assert_eq!(client.received(0, 60), 0);
        assert_eq!((client.in_flight, client.free.len()), (2, 2));
        assert!(client.ended(0).unwrap_err().message.contains("connection 0"));
    }

    /// Responses are matched to requests in order, and timed from the matching request.
    #[test]
    fn each_request_keeps_its_time() {
        let mut ends = ends(Role::Sender, 3, 2);
        ends.exchanges.gate().set(Phase::Window);
        ends.exchanges.phase();
        for since in [100, 200] {
            ends.sent(2, since);
        }
        ends.answered(2, 1_000_100);
        ends.sent(2, 300);
        ends.answered(2, 3_000_200);
        ends.answered(2, 5_000_300);
        let latency = ends.exchanges.finish().latency.unwrap();
        assert_eq!(latency.count(), 3);
        assert!((latency.max().unwrap() / 5e-3 - 1.0).abs() < 0.01, "{latency:?}");
    }
}
