//! `rr`: a client sends requests and a server answers each. Measured: how many exchanges, and how
//! long each takes.
//!
//! Closed loop: a fixed number of requests are in flight, and each response is followed by the next
//! request. Open loop (`rate`): requests are due at predetermined times, and each exchange is timed
//! from when it was due, so that a stall counts for every request it delays and not just for one
//! (no coordinated omission).

use super::actor::{SINGLE_EVENTS, same_bytes};
use super::{
    Account, Actor, Direction, FlowEnd, HalfConfig, Phase, Recorder, Rx, Shares, Tx, Workload,
};
use bytepath_record::unit::bytes;
use bytepath_record::{Cell, Fault, OptionKind, OptionSpec, Protocol, Role, Stream, Work};
use bytepath_sys::clock;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;

pub(super) static WORKLOAD: Workload = Workload {
    name: "rr",
    summary: "a client sends requests, a server answers: exchanges, latency, cost per exchange",
    options: OPTIONS,
    work: Work::Exchanges,
    halves: |_| &[Direction::Send, Direction::Receive],
    job,
    protocol: |cell| cell.stream.protocol,
    most_mtu: None,
    no_slices: |_| Some(SINGLE_EVENTS),
    ends_by_itself: |_| false,
    check,
    play: [play, play],
    play_loop: Some(super::rr_loop::play),
    reconnects: false,
    settle: |ends, _, _| same_bytes(Work::Exchanges, ends),
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("request", OptionKind::Sizes(1, 1 << 30), "64")
        .help("bytes of a request; several sizes by weight need event loops: 64@90+16K@9+1M@1"),
    OptionSpec::new("response", OptionKind::Sizes(1, 1 << 30), "64")
        .help("bytes of a response, likewise"),
    OptionSpec::new("outstanding", OptionKind::Count(1, 1024), "1")
        .help("maximum requests in flight per connection"),
    OptionSpec::new("rate", OptionKind::Load(1, 100_000_000), "auto").help(
        "requests per second over all connections, timed from when they were due; auto: each response \
         is followed by the next request; 70%: of the lowest peak of the paths compared",
    ),
    OptionSpec::new("arrivals", OptionKind::Choice(&["even", "poisson"]), "even")
        .help("with a rate or think: equal gaps, or random ones as from independent users"),
    OptionSpec::new("think", OptionKind::Time(0, 60_000), "0ms").help(
        "pause between a response and the next request of its connection; needs an event loop at \
         the client",
    ),
    OptionSpec::new("idle", OptionKind::Count(0, 59_999), "0").help(
        "connections, the last of all, that exchange nothing; needs an event loop at the client",
    ),
    OptionSpec::new("incast", OptionKind::Flag, "off").help(
        "a thread of the client sends over all its connections at once, and again when it has all \
         responses; latency is of such a round; needs an event loop at the client",
    ),
];

/// How long the last answer may take to be acknowledged.
pub(super) const LAST_ANSWER: Duration = Duration::from_secs(5);

/// Unread bytes that fit into the peer's receive buffer and the own send buffer before a sender
/// blocks, if both are autotuned and the connection has just begun.
const UNREAD: [u64; 2] = [64 << 10, 32 << 10];

/// Longest sleep until a request is due or a message arrives: an end that sleeps longer would
/// notice the edges of the window late.
pub(super) const NAP: Duration = Duration::from_millis(10);

/// Largest UDP payload that the length field of IPv4 permits (RFC 791, RFC 768).
const DATAGRAM: u64 = 65_507;

/// Smallest receive buffer in bytes, so that small messages need no second system call.
const ROOM: u64 = 4096;

/// Largest receive buffer, in case many long answers may be in flight.
const MOST_ROOM: u64 = 1 << 20;

pub(super) fn job(cell: &Cell, role: Role, direction: Direction) -> HalfConfig {
    let plan = Plan::of(cell);
    // A request is what the client sends and the server receives.
    let is_request = (role == Role::Sender) == (direction == Direction::Send);
    let message_size = if is_request { plan.request } else { plan.response };
    let room = message_size.saturating_mul(plan.outstanding).clamp(ROOM, MOST_ROOM);
    HalfConfig {
        message_size,
        read_size: room.max(message_size),
        read_memory: cell.stream.read_memory.unwrap_or(0).max(room).max(message_size),
        batch: 1,
        options: cell.half(direction.role()).options.clone(),
        ..HalfConfig::stream(cell, role)
    }
}

/// Refuses values that do not work together. The client sends its requests before it reads answers:
/// if too many bytes may be in flight, both ends block in sending and neither ever reads.
fn check(cell: &Cell) -> Result<(), Fault> {
    let plan = Plan::of(cell);
    check_idle_flows(cell, &plan)?;
    suits_rounds(cell, &plan)?;
    suits_pauses(cell, &plan)?;
    suits_sizes(cell)?;
    if cell.stream.protocol == Protocol::Udp {
        fits_datagrams(cell, &plan)?;
    }
    let buffers = [cell.stream.receive_buffer, cell.stream.send_buffer];
    let room: u64 = UNREAD.iter().zip(buffers).map(|(n, b)| b.unwrap_or(*n).min(*n)).sum();
    let most = room / plan.request + room / plan.response + 1;
    if plan.outstanding <= most {
        return Ok(());
    }
    let [request, response] = [plan.request, plan.response].map(bytes);
    let text = format!(
        "with {} requests of {request} and responses of {response} in flight, both ends \
         may wait for each other to read",
        plan.outstanding
    );
    let remedy = format!("choose at most outstanding={most}, or smaller messages in one direction");
    Err(Fault::usage(text).remedy(remedy))
}

fn play(mut actor: Actor) -> Result<FlowEnd, Fault> {
    let (tx, rx) = (actor.tx()?, actor.rx()?);
    let plan = Plan::of(&actor.cell);
    let (sent, received) = (actor.recorder.companion(), actor.recorder.companion());
    let exchanges = match actor.role {
        Role::Sender => actor.recorder.with_latency(),
        Role::Receiver => actor.recorder,
    };
    actor.connection.send_at_once()?;
    let mut ends = Halves { tx, rx, sent, received, exchanges };
    ends.tx.begin()?;
    ends.rx.begin()?;
    match (actor.role, plan.gap) {
        (Role::Receiver, _) => serve(&mut ends, &plan)?,
        (Role::Sender, None) => closed_loop(&mut ends, &plan)?,
        (Role::Sender, Some(gap)) => {
            let index = actor.connection.index();
            // Staggers connections with equal gaps.
            let after = gap * f64::from(index) / f64::from(actor.cell.stream.flows);
            let arrivals = Arrivals::new(gap, plan.poisson, u64::from(index));
            open_loop(&mut ends, &plan, clock::monotonic() + after as u64, arrivals)?;
        }
    }
    match actor.role {
        Role::Sender => actor.connection.end_stream()?,
        // By now the client has ended its stream, which it does after the last answer; it closes
        // next.
        Role::Receiver => actor.connection.wait_acknowledged(LAST_ANSWER)?,
    }
    ends.finish()
}

/// Refuses so many idle connections that a thread would have no others.
fn check_idle_flows(cell: &Cell, plan: &Plan) -> Result<(), Fault> {
    if plan.active == cell.stream.flows {
        return Ok(());
    }
    let idle = cell.stream.flows.saturating_sub(plan.active);
    needs_loop(cell, &format!("of {idle} idle flows"))?;
    let threads = cell.threads(Role::Sender);
    if plan.active < threads {
        let text =
            format!("{idle} idle of {} flows leave {threads} threads without", cell.stream.flows);
        return Err(Fault::usage(text).remedy("choose more flows, or a smaller idle"));
    }
    Ok(())
}

/// Checks incast: a round has one request on each connection of a thread, and begins when the
/// previous round is over.
fn suits_rounds(cell: &Cell, plan: &Plan) -> Result<(), Fault> {
    let refuse = |text: String, remedy| Err(Fault::usage(text).remedy(remedy));
    if !plan.incast {
        return Ok(());
    }
    needs_loop(cell, "connection, and incast is of many")?;
    if is_open(cell) {
        let text = "with incast requests are due when all responses are there, and not at a rate";
        return refuse(text.into(), "leave rate out, or incast at off");
    }
    if plan.outstanding > 1 {
        let text = format!(
            "with incast a connection has one request of a round, not {}",
            plan.outstanding
        );
        return refuse(text, "leave outstanding at 1, or incast at off");
    }
    Ok(())
}

/// Checks think time: the pause follows a response, and the thread needs other connections to serve
/// meanwhile.
fn suits_pauses(cell: &Cell, plan: &Plan) -> Result<(), Fault> {
    if plan.think.is_none() {
        return Ok(());
    }
    needs_loop(cell, "connection, and think is of many")?;
    if is_open(cell) || plan.incast {
        let text = "with a rate or incast requests are due whether or not a connection has paused";
        return Err(Fault::usage(text).remedy("leave think at 0ms, or rate and incast out"));
    }
    Ok(())
}

/// Refuses mixed sizes without an event loop: a mover of one connection has messages of one size.
fn suits_sizes(cell: &Cell) -> Result<(), Fault> {
    let has_one = |name| cell.workload.options.sizes(name).all().len() == 1;
    if ["request", "response"].into_iter().all(has_one) {
        return Ok(());
    }
    let halves = [&cell.tx, &cell.rx];
    let Some(half) = halves.into_iter().find(|half| !half.is_event_loop()) else { return Ok(()) };
    let text = format!("path '{}' sends and receives messages of one size", half.path);
    Err(Fault::usage(text)
        .remedy("choose event loops for both ends, such as epoll+epoll, or one size"))
}

/// True if requests are due at a rate: one given by the options, or a fraction of the peak.
fn is_open(cell: &Cell) -> bool {
    cell.workload.options.number("rate").is_some() || cell.part_of_peak().is_some()
}

/// Refuses a client that is not an event loop; `what` is what it has a thread for.
fn needs_loop(cell: &Cell, what: &str) -> Result<(), Fault> {
    if cell.tx.is_event_loop() {
        return Ok(());
    }
    let text = format!("path '{}' has a thread for each {what}", cell.tx.path);
    Err(Fault::usage(text).remedy("choose an event loop for the client, such as epoll"))
}

/// Refuses what UDP does not support.
fn fits_datagrams(cell: &Cell, plan: &Plan) -> Result<(), Fault> {
    let largest = plan.request.max(plan.response);
    if largest > DATAGRAM {
        let text = format!("a message of {} does not fit into a datagram", bytes(largest));
        let remedy = format!("choose at most {DATAGRAM} bytes, or protocol=tcp");
        return Err(Fault::usage(text).remedy(remedy));
    }
    let congestion = &cell.stream.congestion;
    if *congestion != Stream::default().congestion {
        let text = format!("UDP has no congestion control, so it cannot be {congestion}");
        return Err(Fault::usage(text).remedy("leave congestion out"));
    }
    Ok(())
}

/// Resolved options of the workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Size in bytes of the largest request and the largest response.
    pub(super) request: u64,
    pub(super) response: u64,
    pub(super) outstanding: u64,
    /// Connections that are not idle: the first ones.
    pub(super) active: u32,
    /// Nanoseconds between two requests of one connection, or `None` in a closed loop.
    pub(super) gap: Option<f64>,
    /// Nanoseconds between a response and the next request of its connection, or `None` without a
    /// pause.
    pub(super) think: Option<f64>,
    pub(super) poisson: bool,
    /// Whether requests are sent in rounds.
    pub(super) incast: bool,
}

impl Plan {
    pub(super) fn of(cell: &Cell) -> Plan {
        let options = &cell.workload.options;
        let number = |name| options.number(name).unwrap_or(1);
        let largest = |name| options.sizes(name).largest();
        let idle = options.number("idle").map_or(0, |idle| idle as u32);
        let active = cell.stream.flows.saturating_sub(idle);
        let rate = options.number("rate").map(|rate| rate as f64 / f64::from(active));
        Plan {
            active,
            request: largest("request"),
            response: largest("response"),
            outstanding: number("outstanding"),
            gap: rate.map(|rate| 1e9 / rate),
            think: options.number("think").filter(|ms| *ms > 0).map(|ms| ms as f64 * 1e6),
            poisson: options.word("arrivals") == "poisson",
            incast: options.flag("incast"),
        }
    }
}

/// Both halves of one end and their recorders.
struct Halves {
    tx: Box<dyn Tx>,
    rx: Box<dyn Rx>,
    sent: Recorder,
    received: Recorder,
    exchanges: Recorder,
}

impl Halves {
    /// Updates all three recorders; returns the phase.
    #[inline(always)]
    fn phase(&mut self) -> Phase {
        self.sent.phase();
        self.received.phase();
        self.exchanges.phase()
    }

    #[inline(always)]
    fn send(&mut self, up_to: u64) -> Result<(), Fault> {
        self.tx.send_up_to(up_to, &mut self.sent)
    }

    /// Receives until the total is `up_to` bytes. False if the stream ended first.
    #[inline(always)]
    fn receive(&mut self, up_to: u64) -> Result<bool, Fault> {
        self.rx.receive_up_to(up_to, &mut self.received)
    }

    fn finish(mut self) -> Result<FlowEnd, Fault> {
        let mut account = self.tx.account(&mut self.sent)?;
        let received = self.rx.account(&mut self.received)?;
        account.add(Account { ledger: received.ledger.mark_received(), ..received });
        let bytes = self.sent.total() + self.received.total();
        let mut end = FlowEnd { account, bytes, ..self.exchanges.finish() };
        end.shares = Shares::of([end.window.count]);
        end.join(self.sent.finish());
        end.join(self.received.finish());
        Ok(end)
    }
}

/// Answers every request until the client ends the stream.
fn serve(ends: &mut Halves, plan: &Plan) -> Result<(), Fault> {
    let mut answered = 0;
    loop {
        ends.phase();
        if !ends.receive((answered + 1) * plan.request)? {
            return Ok(());
        }
        while ends.received.total() >= (answered + 1) * plan.request {
            answered += 1;
            ends.send(answered * plan.response)?;
            ends.exchanges.moved(1);
        }
    }
}

/// Requests in flight; `since` is when each was sent, or was due.
struct InFlight {
    since: Box<[u64]>,
    sent: u64,
    answered: u64,
}

impl InFlight {
    fn new(plan: &Plan) -> Self {
        let since = vec![0; plan.outstanding as usize].into();
        InFlight { since, sent: 0, answered: 0 }
    }

    #[inline(always)]
    fn count(&self) -> u64 {
        self.sent - self.answered
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.count() == self.since.len() as u64
    }

    #[inline(always)]
    fn send(&mut self, ends: &mut Halves, plan: &Plan, since: u64) -> Result<(), Fault> {
        self.since[(self.sent % self.since.len() as u64) as usize] = since;
        self.sent += 1;
        ends.send(self.sent * plan.request)
    }

    /// Waits for the next answer and takes all that arrived with it; returns the time of arrival.
    #[inline(always)]
    fn await_answer(&mut self, ends: &mut Halves, plan: &Plan) -> Result<u64, Fault> {
        if !ends.receive((self.answered + 1) * plan.response)? {
            let text = "the server closed the connection before it had answered";
            return Err(Fault::peer_lost(text));
        }
        let now = clock::monotonic();
        while ends.received.total() >= (self.answered + 1) * plan.response {
            let since = self.since[(self.answered % self.since.len() as u64) as usize];
            ends.exchanges.latency(now.saturating_sub(since));
            ends.exchanges.moved(1);
            self.answered += 1;
        }
        Ok(now)
    }
}

/// Keeps `outstanding` requests in flight until the gate is at stop.
fn closed_loop(ends: &mut Halves, plan: &Plan) -> Result<(), Fault> {
    let mut under_way = InFlight::new(plan);
    let mut now = clock::monotonic();
    while ends.phase() != Phase::Stop {
        while !under_way.is_full() {
            under_way.send(ends, plan, now)?;
        }
        now = under_way.await_answer(ends, plan)?;
    }
    while under_way.count() > 0 {
        under_way.await_answer(ends, plan)?;
    }
    Ok(())
}

/// How many nanoseconds before a request is due the client stops sleeping and polls the clock: more
/// than a sleep usually overshoots.
pub(super) const SPIN_BEFORE_DUE_NS: u64 = 100_000;

/// Sends requests when they are due, unless `outstanding` are in flight.
fn open_loop(
    ends: &mut Halves,
    plan: &Plan,
    mut due: u64,
    mut arrivals: Arrivals,
) -> Result<(), Fault> {
    let mut under_way = InFlight::new(plan);
    while ends.phase() != Phase::Stop {
        if under_way.is_full() {
            under_way.await_answer(ends, plan)?;
            continue;
        }
        let left = due.saturating_sub(clock::monotonic());
        if left == 0 {
            under_way.send(ends, plan, due)?;
            due += arrivals.gap();
            continue;
        }
        let sleep = Duration::from_nanos(left.saturating_sub(SPIN_BEFORE_DUE_NS)).min(NAP);
        if under_way.count() > 0 {
            match ends.rx.wait(sleep) {
                Some(Ok(true)) => drop(under_way.await_answer(ends, plan)?),
                Some(Ok(false)) => {}
                Some(Err(fault)) => return Err(fault),
                None => return Err(cannot_wait()),
            }
        } else if !sleep.is_zero() {
            std::thread::sleep(sleep);
        }
    }
    while under_way.count() > 0 {
        under_way.await_answer(ends, plan)?;
    }
    Ok(())
}

fn cannot_wait() -> Fault {
    let text = "this receiving half cannot wait for a response and for the clock at once";
    Fault::usage(text).remedy("leave rate out, or choose outstanding=1")
}

/// Gaps between requests.
pub(super) struct Arrivals {
    mean: f64,
    random: Option<StdRng>,
    /// Fraction of a nanosecond left over from the gaps so far.
    rest: f64,
}

impl Arrivals {
    pub(super) fn new(mean: f64, poisson: bool, seed: u64) -> Self {
        Arrivals { mean, random: poisson.then(|| StdRng::seed_from_u64(seed)), rest: 0.0 }
    }

    /// Returns the nanoseconds until the next request.
    #[inline(always)]
    pub(super) fn gap(&mut self) -> u64 {
        let gap = match &mut self.random {
            Some(random) => -(1.0 - random.random::<f64>()).ln() * self.mean,
            None => self.mean,
        };
        let whole = (gap + self.rest).floor();
        self.rest += gap - whole;
        whole as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Half, OptionValue};

    #[test]
    fn refuses_exchanges_that_could_deadlock() {
        let check = |request: u64, response: u64, outstanding: u64| {
            let mut cell = Cell::new("test", Half::plain("socket"), Half::plain("socket"));
            let values =
                [("request", request), ("response", response), ("outstanding", outstanding)];
            let values = values.map(|(name, n)| (name.to_owned(), OptionValue::Number(n)));
            cell.workload.options.0.extend(values);
            super::check(&cell)
        };
        for (request, response, outstanding) in
            [(1, 1, 1024), (16 << 10, 16 << 10, 8), (1 << 30, 1 << 30, 1), (1 << 20, 64, 64)]
        {
            check(request, response, outstanding).unwrap();
        }
        let fault = check(1 << 20, 1 << 20, 8).unwrap_err();
        assert!(fault.message.contains("8 requests of 1M"), "{fault}");
        assert!(fault.remedy.unwrap().contains("outstanding=1,"));
    }

    #[test]
    fn idle_connections_need_others_on_their_thread() {
        let refused = |tx: &str, threads: Option<u64>, idle: u64| {
            let mut cell = Cell::new("test", Half::plain(tx), Half::plain("socket"));
            cell.stream.flows = 10;
            let threads = threads.map(|n| ("threads".to_owned(), OptionValue::Number(n)));
            cell.tx.options.0.extend(threads);
            cell.workload.options.0.insert("idle".into(), OptionValue::Number(idle));
            super::check(&cell).map_err(|fault| fault.to_string()).err()
        };
        assert_eq!(refused("socket", None, 0), None);
        assert_eq!(refused("epoll", Some(2), 8), None);
        assert!(refused("socket", None, 8).unwrap().contains("each of 8 idle flows (choose an ev"));
        for idle in [9, 10, 11] {
            assert!(refused("epoll", Some(2), idle).unwrap().contains("leave 2 threads without"));
        }
    }

    #[test]
    fn gaps_add_up_to_the_rate() {
        for poisson in [false, true] {
            let mut arrivals = Arrivals::new(333.3, poisson, 7);
            let sum: u64 = (0..100_000).map(|_| arrivals.gap()).sum();
            let mean = sum as f64 / 1e5;
            assert!((mean / 333.3 - 1.0).abs() < 0.02, "{mean} ns, poisson {poisson}");
        }
    }
}
