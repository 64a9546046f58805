//! `crr`: connect, request, response, close, over and over. Measured: connections per second, and
//! how long each takes.
//!
//! The client closes first, as in netperf and neper, so its end of the connection is the one in
//! TIME-WAIT (RFC 9293, 3.6), which keeps its port for a minute. An exchange lasts from before
//! connect(2) until the whole response has arrived and the client closes. `flows` connections are
//! in progress at a time (closed loop); a failed one is counted, and is replaced after a short
//! pause.

use super::actor::{SINGLE_EVENTS, same_bytes};
use super::event_loop::{FAST_OPEN, HANDSHAKE, LoopActor, Passing, Service, Shares};
use super::rr_loop::{Thread, end_streams};
use super::{Actor, Direction, FlowEnd, HalfConfig, Phase, Recorder, Workload, rr};
use crate::connection::handshake::is_failure;
use bytepath_record::{
    Cell, Fault, FaultKind, Hops, OptionKind, OptionSpec, Protocol, Reading, Role, RoleRecord,
    Scope, Tls, Unit, Work,
};
use bytepath_sys::clock;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(super) static WORKLOAD: Workload = Workload {
    name: "crr",
    summary: "as rr, by a new connection for each exchange: connections per second and their latency",
    options: OPTIONS,
    work: Work::Exchanges,
    halves: |_| &[Direction::Send, Direction::Receive],
    job: |cell, role, direction| HalfConfig {
        passing: Some(Passing::of(cell)),
        ..rr::job(cell, role, direction)
    },
    protocol: |cell| cell.stream.protocol,
    most_mtu: None,
    no_slices: |_| Some(SINGLE_EVENTS),
    ends_by_itself: |_| false,
    check,
    play: [play_flow, play_flow],
    play_loop: Some(play),
    reconnects: true,
    settle,
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("request", OptionKind::Size(1, 1 << 20), "64").help("bytes of a request"),
    OptionSpec::new("response", OptionKind::Size(1, 1 << 20), "64").help("bytes of a response"),
    OptionSpec::new(FAST_OPEN, OptionKind::Flag, "off").help(
        "TCP Fast Open: a request goes out with the SYN, by a cookie of the server (RFC 7413)",
    ),
    OptionSpec::new(HANDSHAKE, OptionKind::Choice(&["none", "full", "resumed"]), "none").help(
        "TLS 1.3 by rustls: each connection makes a handshake, with a certificate or by the ticket of \
         an earlier one",
    ),
];

/// Name prefix of both ends' readings.
const METRICS: &str = "connections";

/// How long a place stays unused after its connection has failed: whatever refused one would refuse
/// the next, and searching for a port when none is free takes longer than anything else here.
const PAUSE: Duration = Duration::from_millis(10);

/// How long an end waits for events before it checks the phase, or the clients of other threads.
const LOOK: Duration = Duration::from_millis(10);

/// How long exchanges in progress at the end may take. Longer than retransmitting a SYN takes (RFC
/// 6298: 1 s, then 2 s).
const LAST_EXCHANGES: Duration = Duration::from_secs(5);

fn check(cell: &Cell) -> Result<(), Fault> {
    if cell.stream.protocol != Protocol::Tcp {
        let text = format!("{} has no connections to make", cell.stream.protocol);
        return Err(Fault::usage(text).remedy("choose protocol=tcp, or --workload rr"));
    }
    if cell.stream.tls != Tls::None {
        let text =
            "tls encrypts connections whose keys both ends were given; those of crr have none";
        let remedy = "choose tls=none, and crr:handshake=full to have each agree on its own";
        return Err(Fault::usage(text).remedy(remedy));
    }
    Ok(())
}

/// Both ends must report the same number of exchanges, except for those whose connection failed at
/// the client: the server may have answered them.
fn settle(ends: [&RoleRecord; 2], _: Option<&Hops>, readings: &[Reading]) -> Result<(), Fault> {
    let failed: f64 =
        Failures::NAMES.iter().map(|name| counted(readings, name, Role::Sender)).sum();
    if failed == 0.0 {
        return same_bytes(Work::Exchanges, ends).and_then(|()| same_handshakes(readings));
    }
    let [client, server] = Role::ALL.map(|role| counted(readings, "exchanges", role));
    if (client..=client + failed).contains(&server) {
        return Ok(());
    }
    let text = format!(
        "the client has {client} exchanges, {failed} connections failed, and the server has {server}"
    );
    Err(Fault::new(FaultKind::Corrupt, text))
}

/// If no connection failed, both ends must have counted the same handshakes.
fn same_handshakes(readings: &[Reading]) -> Result<(), Fault> {
    for name in ["handshakes", "resumed"] {
        let [client, server] = Role::ALL.map(|role| counted(readings, name, role));
        if client != server {
            let text =
                format!("the client has counted {client} as {name}, and the server {server}");
            return Err(Fault::new(FaultKind::Corrupt, text));
        }
    }
    Ok(())
}

fn counted(readings: &[Reading], name: &str, role: Role) -> f64 {
    let metric = format!("{METRICS}.{name}");
    let of = |one: &&Reading| one.metric == metric && one.scope == Scope::Role(role);
    readings.iter().find(of).map_or(0.0, |reading| reading.value)
}

/// Never called: every path plays this workload by a loop.
fn play_flow(_: Actor) -> Result<FlowEnd, Fault> {
    Err(Fault::failed("crr was to be played without a loop").remedy("report this as a bug"))
}

fn play(actor: LoopActor) -> Result<FlowEnd, Fault> {
    let LoopActor { role, cell, connections, event_loop, group, all, recorder } = actor;
    let first = connections.first().map_or(0, |connection| connection.index());
    let mut thread = Thread { event_loop, moved: recorder.companion() };
    thread.event_loop.begin()?;
    let plan = Plan::of(&cell, connections.len());
    let passing = Passing::of(&cell);
    let (mut end, counts, memory) = match role {
        Role::Sender => {
            let client = Client::new(plan, passing.at_client(first), recorder.with_latency());
            client.run(&mut thread)?
        }
        Role::Receiver => {
            let clients = group.share(|| Ok(AtomicUsize::new(all)))?;
            Server::new(plan, &passing, clients, recorder).run(&mut thread)?
        }
    };
    thread.event_loop.submit()?;
    end_streams(role, &connections, rr::LAST_ANSWER)?;
    let mut account = thread.event_loop.account()?;
    account.count(METRICS, &Scope::Role(role), Unit::Count, counts);
    account.count("loop", &Scope::Role(role), Unit::Bytes, [("memory", memory as u64)]);
    (end.account, end.bytes) = (account, thread.moved.total());
    end.join(thread.moved.finish());
    Ok(end)
}

/// Result of an end: its record, its named counters, and the bytes of its places.
type Ended = (FlowEnd, Vec<(&'static str, u64)>, usize);

#[derive(Clone, Copy)]
struct Plan {
    request: u64,
    response: u64,
    /// Lasting connections, which have the first places.
    lasting: usize,
}

impl Plan {
    fn of(cell: &Cell, lasting: usize) -> Plan {
        let rr::Plan { request, response, .. } = rr::Plan::of(cell);
        Plan { request, response, lasting }
    }
}

/// The client's end of the passing connections of a thread.
struct Client {
    plan: Plan,
    exchanges: Recorder,
    slots: Box<[Slot]>,
    /// Places whose response has arrived.
    done: Vec<u32>,
    /// When to connect which place.
    waiting: VecDeque<(u64, u32)>,
    open: usize,
    failures: Failures,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// Whether a response is outstanding.
    open: bool,
    /// When its connect was started.
    since: u64,
    /// Bytes of the response received so far.
    came: u64,
    /// Exchanges within the window.
    exchanges: u64,
}

impl Client {
    fn new(plan: Plan, places: usize, exchanges: Recorder) -> Client {
        let place = |slot: usize| (plan.lasting + slot) as u32;
        Client {
            plan,
            exchanges,
            slots: vec![Slot::default(); places].into(),
            done: Vec::with_capacity(places),
            waiting: (0..places).map(|slot| (0, place(slot))).collect(),
            open: 0,
            failures: Failures::default(),
        }
    }

    /// Keeps all places connected until the gate is at stop.
    fn run(mut self, thread: &mut Thread) -> Result<Ended, Fault> {
        while thread.phase(&mut self.exchanges) != Phase::Stop {
            self.reconnect(thread)?;
            let due = self.waiting.front().map(|(due, _)| *due);
            let until = due.map(|due| Duration::from_nanos(due.saturating_sub(clock::monotonic())));
            thread.turn(&mut self, Some(until.map_or(LOOK, |until| until.min(LOOK))))?;
        }
        self.finish(thread)?;
        let shares = Shares::of(self.slots.iter().map(|slot| slot.exchanges));
        let memory = size_of_val(&self.slots[..])
            + self.done.capacity() * size_of::<u32>()
            + self.waiting.capacity() * size_of::<(u64, u32)>();
        let mut counts = vec![("exchanges", self.exchanges.total())];
        counts.extend(self.failures.named());
        Ok((FlowEnd { shares, ..self.exchanges.finish() }, counts, memory))
    }

    /// Closes finished connections and starts those that are due.
    fn reconnect(&mut self, thread: &mut Thread) -> Result<(), Fault> {
        while let Some(place) = self.done.pop() {
            thread.close(place as usize)?;
            self.connect(thread, place)?;
        }
        while let Some((due, place)) = self.waiting.front().copied()
            && due <= clock::monotonic()
        {
            self.waiting.pop_front();
            self.connect(thread, place)?;
        }
        Ok(())
    }

    fn connect(&mut self, thread: &mut Thread, place: u32) -> Result<(), Fault> {
        let slot = &mut self.slots[place as usize - self.plan.lasting];
        *slot = Slot { open: true, since: clock::monotonic(), came: 0, ..*slot };
        self.open += 1;
        thread.connect(place as usize, self.plan.request)
    }

    /// Waits for the exchanges in progress.
    fn finish(&mut self, thread: &mut Thread) -> Result<(), Fault> {
        let deadline = clock::monotonic() + LAST_EXCHANGES.as_nanos() as u64;
        while self.open > 0 {
            let left = deadline.saturating_sub(clock::monotonic());
            if left == 0 {
                break;
            }
            self.close_done(thread)?;
            thread.turn(self, Some(Duration::from_nanos(left)))?;
        }
        self.close_done(thread)?;
        self.failures.timed_out += self.open as u64;
        let Client { slots, exchanges, .. } = self;
        slots.iter().filter(|slot| slot.open).for_each(|slot| exchanges.unanswered(slot.since));
        for place in 0..self.slots.len() {
            thread.close(self.plan.lasting + place)?;
        }
        Ok(())
    }

    /// Closes finished connections, before a turn may begin to receive more over them.
    fn close_done(&mut self, thread: &mut Thread) -> Result<(), Fault> {
        while let Some(place) = self.done.pop() {
            thread.close(place as usize)?;
        }
        Ok(())
    }

    /// Returns the slot of a passing connection.
    fn slot(&mut self, place: usize) -> Result<&mut Slot, Fault> {
        let slot = place.checked_sub(self.plan.lasting);
        slot.and_then(|at| self.slots.get_mut(at))
            .ok_or_else(|| Fault::peer_lost("the server ended the trial before the client did"))
    }

    /// Counts a failed connection, unless its exchange was already complete.
    fn lost(&mut self, place: usize, count: fn(&mut Failures) -> &mut u64) -> Result<(), Fault> {
        let slot = self.slot(place)?;
        let since = slot.since;
        if std::mem::take(&mut slot.open) {
            *count(&mut self.failures) += 1;
            self.exchanges.unanswered(since);
            self.open -= 1;
            let due = clock::monotonic() + PAUSE.as_nanos() as u64;
            self.waiting.push_back((due, place as u32));
        }
        Ok(())
    }
}

impl Service for Client {
    #[inline]
    fn received(&mut self, place: usize, bytes: u64) -> u64 {
        let (response, counting) = (self.plan.response, self.exchanges.counting());
        let Ok(slot) = self.slot(place) else { return 0 };
        slot.came += bytes;
        if slot.came < response || !std::mem::take(&mut slot.open) {
            return 0;
        }
        slot.exchanges += u64::from(counting);
        let since = slot.since;
        self.exchanges.latency(clock::monotonic().saturating_sub(since));
        self.exchanges.moved(1);
        self.open -= 1;
        self.done.push(place as u32);
        0
    }

    fn ended(&mut self, place: usize) -> Result<(), Fault> {
        self.lost(place, |failures| &mut failures.reset)
    }

    fn failed(&mut self, place: usize, error: &io::Error) -> Result<(), Fault> {
        let count = Failures::of(error).ok_or_else(|| cannot_connect(error))?;
        self.lost(place, count)
    }
}

/// Client connections that got no response, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Failures {
    refused: u64,
    timed_out: u64,
    reset: u64,
    no_port: u64,
    tls: u64,
}

impl Failures {
    const NAMES: [&str; 5] = ["refused", "timed-out", "reset", "no-port", "tls"];

    /// Returns the counter for an error, or `None` if it is not a network error.
    fn of(error: &io::Error) -> Option<fn(&mut Failures) -> &mut u64> {
        if is_failure(error) {
            return Some(|failures| &mut failures.tls);
        }
        Some(match error.raw_os_error()? {
            libc::ECONNREFUSED => |failures| &mut failures.refused,
            // A Fast Open send that timed out while connecting fails with EINPROGRESS.
            libc::ETIMEDOUT | libc::EINPROGRESS => |failures| &mut failures.timed_out,
            libc::ECONNRESET | libc::EPIPE => |failures| &mut failures.reset,
            libc::EADDRNOTAVAIL => |failures| &mut failures.no_port,
            _ => return None,
        })
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Failures { refused, timed_out, reset, no_port, tls } = *self;
        Failures::NAMES.into_iter().zip([refused, timed_out, reset, no_port, tls])
    }
}

fn cannot_connect(error: &io::Error) -> Fault {
    let mut fault = Fault::system("cannot make a connection", error);
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => {
            fault.remedy("raise 'ulimit -Hn' (RLIMIT_NOFILE) or fs.file-max, or choose fewer flows")
        }
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN) => {
            fault.kind = FaultKind::PeerLost;
            fault
        }
        _ => fault,
    }
}

/// Returns notes for the reader about failed connections, from the counters of both roles.
pub fn failures(readings: &[Reading]) -> Vec<String> {
    let sentence = |(name, meaning): (&str, &str)| {
        let count: f64 = Role::ALL.iter().map(|role| counted(readings, name, *role)).sum();
        (count > 0.0).then(|| format!("{count:.0} connections {meaning}"))
    };
    let all = [
        ("refused", "were refused (ECONNREFUSED): nothing listened at the server"),
        ("timed-out", "brought no response in time"),
        ("reset", "were ended by the server before it had answered (ECONNRESET)"),
        ("tls", "failed in TLS: in the handshake, by its end, or in a record"),
        ("cut", "ended at the server without a whole request"),
        (
            "no-port",
            "found no free port (EADDRNOTAVAIL): those before keep theirs in TIME-WAIT for 60 s; \
             widen net.ipv4.ip_local_port_range, or set net.ipv4.tcp_tw_reuse=1, by which a port \
             is free again after a second",
        ),
    ];
    all.into_iter().filter_map(sentence).collect()
}

/// The server's end of a thread's connections.
struct Server {
    plan: Plan,
    exchanges: Recorder,
    /// Bytes received over each passing connection.
    came: Box<[u64]>,
    /// Lasting connections whose client has not ended: of all threads, and of this one.
    clients: Arc<AtomicUsize>,
    left: usize,
    /// Passing connections that are open.
    open: usize,
    /// Maximum of `open`.
    most: usize,
    /// Passing connections that ended without a whole request, and those that failed in TLS.
    cut: u64,
    tls: u64,
}

impl Server {
    fn new(
        plan: Plan,
        passing: &Passing,
        clients: Arc<AtomicUsize>,
        exchanges: Recorder,
    ) -> Server {
        let came = vec![0; passing.at_server()].into();
        let left = plan.lasting;
        Server { plan, exchanges, came, clients, left, open: 0, most: 0, cut: 0, tls: 0 }
    }

    /// Answers until all clients have ended their lasting connections, including those of other
    /// threads: the kernel distributes new connections over the listening sockets of all threads,
    /// and closing one of those resets whatever waits there.
    fn run(mut self, thread: &mut Thread) -> Result<Ended, Fault> {
        while self.clients.load(Ordering::Acquire) > 0 || self.open > 0 {
            thread.phase(&mut self.exchanges);
            thread.turn(&mut self, Some(LOOK))?;
        }
        let memory = self.most * size_of::<u64>();
        let counts =
            vec![("exchanges", self.exchanges.total()), ("cut", self.cut), ("tls", self.tls)];
        Ok((self.exchanges.finish(), counts, memory))
    }

    /// Counts a passing connection that has ended.
    fn over(&mut self, place: usize) {
        self.open -= 1;
        let came = self.came[place - self.plan.lasting];
        self.cut += u64::from(came == 0 || !came.is_multiple_of(self.plan.request));
    }
}

impl Service for Server {
    fn accepted(&mut self, place: usize) {
        self.open += 1;
        self.most = self.most.max(self.open);
        self.came[place - self.plan.lasting] = 0;
    }

    #[inline]
    fn received(&mut self, place: usize, bytes: u64) -> u64 {
        let slot = place.checked_sub(self.plan.lasting);
        let Some(came) = slot.and_then(|slot| self.came.get_mut(slot)) else { return 0 };
        let before = *came / self.plan.request;
        *came += bytes;
        let requests = *came / self.plan.request - before;
        self.exchanges.moved(requests as usize);
        requests * self.plan.response
    }

    fn ended(&mut self, place: usize) -> Result<(), Fault> {
        match place < self.plan.lasting {
            true => {
                self.left -= 1;
                self.clients.fetch_sub(1, Ordering::Release);
            }
            false => self.over(place),
        }
        Ok(())
    }

    fn failed(&mut self, place: usize, error: &io::Error) -> Result<(), Fault> {
        match is_failure(error) {
            true => (self.open, self.tls) = (self.open - 1, self.tls + 1),
            false => self.over(place),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
