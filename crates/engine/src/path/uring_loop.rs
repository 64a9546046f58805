//! `uring-loop`: an event loop by io_uring. Each connection has a multishot receive, which takes
//! buffers from a pool shared by all, and one send at a time; one io_uring_enter submits what a
//! turn has queued and waits for the next events. See io_uring_prep_recv_multishot(3).

use super::busy_poll;
use super::event_loop::{self, Counts, Origin, Output};
use super::event_loop::{Sessions, Sockets, Stages, THREADS, TURN};
use super::ring::{self, ENTER};
use super::{DataPath, HalfPath, Opened};
use crate::connection::{Connection, WITNESS_LEN};
use crate::workload::{
    Account, Call, ENDLESS, EventLoop, Group, HalfConfig, Recorder, Service, Toucher,
};
use bytepath_record::{Facts, Fault, OptionKind, OptionSpec, Role, Support};
use bytepath_spec::MEMORY_LIMIT;
use bytepath_sys::memory::Region;
use bytepath_sys::tcp;
use bytepath_sys::uring::{ManyEvent, ManyRing, RecvShape, RingMode, SendRing, Wait};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

pub(super) static PATH: DataPath = DataPath {
    name: "uring-loop",
    summary: "an event loop: many connections a thread, by io_uring's multishot receives and sends",
    attempt: |_| ring::loop_attempts(),
    uses_io_uring: true,
    tx: Some(HalfPath::tx(check_sending, event_loop::open_half).with_options(OPTIONS)),
    rx: Some(HalfPath::rx(check, event_loop::open_half).with_options(OPTIONS)),
    event_loop: Some(open),
    ..DataPath::EMPTY
};

const OPTIONS: &[OptionSpec] = &[
    THREADS,
    OptionSpec::new("buffers", OptionKind::Count(0, 32768), "0").help(
        "buffers that a thread's connections share; 0: one for each, 64 to 4096 and at most 64M, or for \
         streams as many as fill read-memory",
    ),
    OptionSpec::new("buffer-size", OptionKind::AutoSize(64, 64 << 20), "auto")
        .help("bytes of a buffer; auto: a message, 4K to 1M, or of a stream read-size, 4K to 64K"),
    OptionSpec::new("bundle", OptionKind::Flag, "off")
        .help("one completion may fill several buffers (Linux 6.10)"),
    OptionSpec::new("incremental", OptionKind::Flag, "off")
        .help("several completions, of any connections, may fill one buffer (Linux 6.12)"),
    OptionSpec::new("task-run", OptionKind::Choice(&["auto", "defer", "coop", "default"]), "auto")
        .help(
            "where completions are processed: in the wait (Linux 6.1), at any system call, or at once",
        ),
    OptionSpec::new("sqpoll", OptionKind::Flag, "off")
        .help("a thread of the kernel polls for what to submit; its CPU time is this end's"),
    OptionSpec::new("wait", OptionKind::Count(1, 4096), "1")
        .help("completions to wait for, as long as min-wait"),
    OptionSpec::new("min-wait", OptionKind::Count(0, 1_000_000), "0")
        .help("microseconds for which fewer than 'wait' completions are not enough (Linux 6.12)"),
    busy_poll::MICROSECONDS,
    busy_poll::PREFER,
    busy_poll::TRACKING,
    ring::IOWAIT,
];

fn check(job: &HalfConfig, facts: &Facts) -> Support {
    let (wait, min_wait) = (job.options.number("wait"), job.options.number("min-wait"));
    let waits_forever = wait.is_some_and(|wait| wait > 1) && min_wait == Some(0);
    let gathers = match min_wait {
        None | Some(0) => Support::Yes,
        Some(_) => {
            facts.require(ring::MIN_WAIT, "boot Linux 6.12 or later, or leave min-wait at 0")
        }
    };
    super::refuse_if(
        waits_forever,
        "several completions may never come: each connection waits for an answer to its last message",
        "choose a min-wait, or wait=1",
    )
    .and(super::fits(ring::message_size(job)))
    .and(super::fits(mode(job)))
    .and(super::fits(shape(job, job.flows as usize)))
    .and(event_loop::check(job, facts))
    .and(ring::support(job, facts))
    .and(ring::needs(facts, ring::BUFFER_RING, "rings of provided buffers", "5.19"))
    .and(ring::needs(facts, ring::RECV_MULTISHOT, "multishot receive", "6.0"))
    .and(gathers)
    .and(extras(job, facts))
}

fn check_sending(job: &HalfConfig, facts: &Facts) -> Support {
    check(job, facts).and(super::fits(bounded_records(job)))
}

/// Refuses jobs whose TLS records, over all threads of an end, would take more memory than allowed
/// for buffers.
fn bounded_records(job: &HalfConfig) -> Result<(), Fault> {
    let encrypted = job.passing.as_ref().filter(|passing| passing.handshake.is_some());
    let Some(passing) = encrypted else { return Ok(()) };
    let threads = job.options.number(THREADS.name).unwrap_or(1).min(job.flows.into()) as u32;
    let bytes = Stages::new(0, job.message_size).bytes(passing.all_places(job.role, threads));
    if bytes <= MEMORY_LIMIT {
        return Ok(());
    }
    let gib = bytes.div_ceil(1 << 30);
    let text = format!("TLS records of all places at {threads} threads would take {gib} GiB");
    Err(Fault::usage(text)
        .remedy(format!("choose fewer flows or threads: at most {} GiB", MEMORY_LIMIT >> 30)))
}

/// Checks requested features that need later kernels.
fn extras(job: &HalfConfig, facts: &Facts) -> Support {
    let options = &job.options;
    let extras = [
        (options.flag("bundle"), ring::RECV_BUNDLE, "bundles of receives", "6.10"),
        (options.flag("incremental"), ring::INCREMENTAL, "incremental buffers", "6.12"),
        (options.word("task-run") == "defer", ring::DEFER_TASKRUN, "deferred task work", "6.1"),
        (options.flag("sqpoll"), ring::SQPOLL, "polled submission without privilege", "5.11"),
    ];
    let requested = extras.into_iter().filter(|(is_requested, ..)| *is_requested);
    requested.fold(Support::Yes, |support, (_, attempt, what, since)| {
        support.and(ring::needs(facts, attempt, what, since))
    })
}

/// Returns how the ring is driven.
fn mode(job: &HalfConfig) -> Result<RingMode, Fault> {
    match (job.options.flag("sqpoll"), job.options.word("task-run")) {
        (false, "defer") => Ok(RingMode::Deferred),
        (false, "coop") => Ok(RingMode::Cooperative),
        (false, "default") => Ok(RingMode::Interrupted),
        (false, _) => Ok(RingMode::Best),
        (true, "auto") => Ok(RingMode::Polled { cpu: job.io_wq }),
        (true, other) => Err(Fault::usage(format!(
            "task-run={other} has no effect with sqpoll: the thread that submits processes completions, too"
        ))
        .remedy("leave task-run at auto, or sqpoll off")),
    }
}

fn open(
    [send, receive]: [&HalfConfig; 2],
    connections: &[Arc<dyn Connection>],
    group: &Group,
) -> Opened<dyn EventLoop> {
    let lasting = event_loop::sockets(connections)?;
    let origin = Origin::of(send, &lasting, false)?;
    let sockets = Sockets::open(send, lasting, origin);
    let fds: Vec<BorrowedFd> = sockets.lasting.iter().map(|flow| flow.fd()).collect();
    let passing = sockets.places() - fds.len();
    let sessions = sockets.sessions(send, group)?;
    let message = super::message(send.message_size, false)?;
    // The ring sends the message itself, or the records into which it is encrypted.
    let stages = Stages::new(fds.len(), send.message_size);
    let (plain, sent) = match sessions.are_used() {
        false => (None, message),
        true => (Some(message), super::buffer("memory for records", stages.bytes(passing), false)?),
    };
    // Connections that a client has closed but the server has not yet noticed take no buffers.
    let shape = shape(receive, fds.len() + passing.min(send.flows as usize))?;
    let mut ring = ManyRing::new(&fds, passing, sent, shape, mode(send)?).map_err(|e| {
        let text = format!("cannot set up an io_uring for {} connections", sockets.places());
        ring::fault(text, &e)
    })?;
    ring.count_iowait(ring::counts_iowait(send));
    ring::busy_poll(send, &fds, |how| ring.busy_poll(how))?;
    let number = |name| send.options.number(name).unwrap_or(0);
    Ok(Box::new(RingLoop {
        role: send.role,
        outputs: vec![Output::default(); sockets.places()].into(),
        more: Vec::with_capacity(sockets.places()),
        sockets,
        sessions,
        stages,
        plain,
        ring,
        message: send.message_size as usize,
        stopped: false,
        toucher: Toucher::new(receive.touch, receive.message_size),
        wait: Wait {
            want: number("wait").max(1) as u32,
            limit: None,
            gather: Duration::from_micros(number("min-wait")),
        },
        counts: Counts::default(),
    }))
}

/// Limits of the defaults: number of buffers, size of one, and total bytes.
const BUFFERS: [u64; 2] = [64, 4096];
const BUFFER_SIZE: [u64; 2] = [4096, 1 << 20];
const POOL: u64 = 64 << 20;

/// Largest default buffer of a stream; a completion seldom delivers more.
const STREAM_BUFFER: u64 = 64 << 10;

/// Maximum number of buffers, and of bytes that they may take.
const MOST_BUFFERS: u64 = 1 << 15;
const MOST: u64 = 4 << 30;

/// Returns the shape of the buffer pool that a thread's connections share.
fn shape(job: &HalfConfig, connections: usize) -> Result<RecvShape, Fault> {
    let size = job.options.number("buffer-size");
    let size = size.unwrap_or(match job.is_stream() {
        true => job.read_size.clamp(BUFFER_SIZE[0], STREAM_BUFFER),
        false => job.message_size.clamp(BUFFER_SIZE[0], BUFFER_SIZE[1]),
    });
    let connections = connections as u64;
    let shared = connections.clamp(BUFFERS[0], BUFFERS[1]).min((POOL / size).max(2));
    let buffers = match job.options.number("buffers").unwrap_or(0) {
        // For a stream: as much as the contract gives to reads, and one per connection up to the
        // limit.
        0 if job.is_stream() => connections.min(shared).max(job.read_memory.div_ceil(size)).max(2),
        0 => shared,
        n => n,
    };
    if buffers > MOST_BUFFERS || buffers * size > MOST {
        return Err(Fault::usage(format!("{buffers} buffers of {size} bytes are too many"))
            .remedy("choose fewer or smaller ones: at most 32768, and at most 4G in total"));
    }
    Ok(RecvShape {
        buffers: buffers as u16,
        buffer_size: size as u32,
        bundle: job.options.flag("bundle"),
        incremental: job.options.flag("incremental"),
    })
}

const SOCKET: Call = Call(3, "socket");

/// Maximum number of events per turn, so that a new phase is noticed soon.
const MOST_EVENTS: usize = 256;

struct RingLoop {
    role: Role,
    sockets: Sockets,
    sessions: Sessions,
    stages: Stages,
    /// The plaintext message, if sessions encrypt it.
    plain: Option<Region>,
    outputs: Box<[Output]>,
    /// Connections made here that have received something, and may receive more.
    more: Vec<u32>,
    ring: ManyRing,
    /// Message size in bytes.
    message: usize,
    /// Whether endless streams are to end.
    stopped: bool,
    toucher: Toucher,
    wait: Wait,
    counts: Counts,
}

impl RingLoop {
    /// Queues the next send of a connection.
    #[inline]
    fn queue(&mut self, place: usize) -> Result<(), Fault> {
        if self.sessions.get(place).is_some() {
            return self.queue_records(place);
        }
        let output = &mut self.outputs[place];
        let (part, endless) = (output.part(self.message), output.is_endless());
        output.busy = !(part.is_empty() || endless && (self.stopped || output.ended));
        if !output.busy {
            return Ok(());
        }
        let queued = match endless {
            true => self.ring.send_some(place, part.start..part.end.min(part.start + TURN)),
            false => self.ring.send(place, part),
        };
        queued.map_err(|e| Fault::system(format!("connection {place}: cannot queue a send"), &e))
    }

    /// Like [`Self::queue`], for a connection with a TLS session.
    fn queue_records(&mut self, place: usize) -> Result<(), Fault> {
        let part = match self.stage(place) {
            Ok(part) => part,
            Err(e) => return self.fail(place, "TLS", e),
        };
        self.outputs[place].busy = !part.is_empty();
        if part.is_empty() {
            return Ok(());
        }
        let queued = self.ring.send(place, part);
        queued.map_err(|e| Fault::system(format!("connection {place}: cannot queue a send"), &e))
    }

    /// Stages the next records; returns their range in the memory that the ring sends from.
    fn stage(&mut self, place: usize) -> io::Result<Range<usize>> {
        let [room, _] = self.stages.of(place);
        let memory = self.ring.message(room.clone())?;
        let (Some(session), Some(plain)) = (self.sessions.get(place), &self.plain) else {
            return Ok(0..0);
        };
        session.seal(&mut self.outputs[place], plain)?;
        let part = session.stage(memory)?;
        Ok(room.start + part.start..room.start + part.end)
    }

    /// Stages the last record of a connection; returns its range, which is empty if there is none.
    fn stage_last(&mut self, place: usize) -> io::Result<Range<usize>> {
        let [_, room] = self.stages.of(place);
        let Some(session) = self.sessions.get(place) else { return Ok(0..0) };
        if !session.close() {
            return Ok(0..0);
        }
        let last = session.stage_last(self.ring.message(room.clone())?)?;
        Ok(room.start..room.start + last)
    }

    /// Handles a failed call of a connection; a passing connection is closed.
    fn fail(&mut self, place: usize, call: &str, error: io::Error) -> Result<(), Fault> {
        if let (Some(socket), Some(session)) = (self.sockets.get(place), self.sessions.get(place))
            && session.close()
        {
            // Sent at once, since operations in flight on the socket are about to be cancelled.
            let _ = session.send(socket, libc::MSG_DONTWAIT);
        }
        match self.sockets.fail(place, call, error)? {
            Some(failed) => self.shut(place, failed, 0..0),
            None => Ok(()),
        }
    }

    /// Ends a connection whose peer has ended its stream, once its requests are answered.
    fn end_if_done(&mut self, place: usize, service: &mut dyn Service) -> Result<(), Fault> {
        let Output { busy, ended, .. } = self.outputs[place];
        if busy || !ended {
            return Ok(());
        }
        self.release(place, 0..0)?;
        service.ended(place)
    }

    /// Closes a passing connection, if there is one, after sending the last record.
    fn release(&mut self, place: usize, last: Range<usize>) -> Result<(), Fault> {
        match self.sockets.empty(place) {
            Some(socket) => self.shut(place, socket, last),
            None => Ok(()),
        }
    }

    fn shut(&mut self, place: usize, socket: OwnedFd, last: Range<usize>) -> Result<(), Fault> {
        self.outputs[place] = Output::default();
        self.sessions.end(place);
        self.ring
            .close_after(place, socket, last)
            .map_err(|e| Fault::system("cannot queue a close", &e))
    }

    /// Starts receiving from an accepted connection.
    fn take_in(&mut self, connection: OwnedFd, service: &mut dyn Service) -> Result<(), Fault> {
        let place = self.sockets.free_place().ok_or_else(|| {
            let text = format!(
                "the server has {} connections open, and no place for another",
                self.sockets.most()
            );
            Fault::failed(text).remedy("see that nothing else connects to its port")
        })?;
        let taken = self.ring.add_accepted(place, connection.as_fd());
        taken.map_err(|e| Fault::system("cannot queue a receive", &e))?;
        self.outputs[place] = Output::default();
        self.sockets.fill(place, connection);
        self.sessions.begin(place)?;
        service.accepted(place);
        Ok(())
    }

    /// Starts accepting, if this end does.
    fn accept(&mut self) -> Result<(), Fault> {
        let Some((_, listener)) = self.sockets.listener() else { return Ok(()) };
        self.ring.accept(listener).map_err(|e| Fault::system("cannot queue an accept", &e))
    }

    /// Enters a completed send of `bytes`.
    #[inline]
    fn sent(
        &mut self,
        place: usize,
        bytes: usize,
        service: &mut dyn Service,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        let plain = match self.sessions.get(place) {
            Some(session) => session.unstage(bytes),
            None => {
                self.outputs[place].sent(bytes, self.message);
                bytes
            }
        };
        recorder.moved(plain);
        self.counts.sent.enter(plain);
        service.sent(place, plain as u64);
        self.queue(place)?;
        self.end_if_done(place, service)
    }

    /// Handles the end of a peer's stream.
    fn ended(&mut self, place: usize, service: &mut dyn Service) -> Result<(), Fault> {
        if let Err(e) = self.sessions.ended(place) {
            return self.fail(place, "TLS", e);
        }
        if let Some(flow) = self.sockets.lasting.get(place) {
            flow.confirm_end()?;
        }
        self.outputs[place].ended = true;
        self.end_if_done(place, service)
    }

    /// Handles the available events; what they queue is submitted once all have been handled.
    fn take(&mut self, service: &mut dyn Service, recorder: &mut Recorder) -> Result<(), Fault> {
        for _ in 0..MOST_EVENTS {
            let Some(event) = self.ring.event() else { break };
            self.counts.events += 1;
            recorder.phase();
            match event {
                ManyEvent::Received { socket, bytes } => {
                    let toucher = &mut self.toucher;
                    let (plain, has_output) =
                        match self.sessions.deliver(socket, bytes, toucher, recorder)? {
                            Ok(delivered) => delivered,
                            Err(e) => {
                                self.fail(socket, "TLS", e)?;
                                continue;
                            }
                        };
                    self.counts.received.enter(plain as usize);
                    let answer = service.received(socket, plain);
                    if answer > 0 || has_output {
                        self.send(socket, answer, recorder)?;
                    }
                    let is_passing = self.sockets.connects() && !self.sockets.is_lasting(socket);
                    // Only once per bundle.
                    if is_passing && self.more.last() != Some(&(socket as u32)) {
                        self.more.push(socket as u32);
                    }
                }
                ManyEvent::Sent { socket, bytes } => {
                    self.sent(socket, bytes as usize, service, recorder)?;
                }
                ManyEvent::Ended { socket } => self.ended(socket, service)?,
                ManyEvent::OutOfBuffers { .. } => self.counts.short += 1,
                // Concerns no connection: the position of received bytes in the buffers is unknown
                // from here on.
                ManyEvent::Failed { error, .. } if error.kind() == ErrorKind::InvalidData => {
                    return Err(Fault::system("io_uring", &error));
                }
                ManyEvent::Failed { socket, error } => {
                    self.fail(socket, "io_uring", error)?;
                }
                ManyEvent::Accepted { connection, last } => {
                    self.take_in(connection, service)?;
                    if last {
                        self.accept()?;
                    }
                }
                ManyEvent::NotAccepted { error } => {
                    if error.kind() != ErrorKind::ConnectionAborted {
                        return Err(Fault::system("accept", &error));
                    }
                    self.accept()?;
                }
            }
        }
        while let Some((place, error)) = self.sockets.failure() {
            service.failed(place, &error)?;
        }
        Ok(())
    }

    /// Queues receives on connections made here that are still open.
    fn receive_more(&mut self) -> Result<(), Fault> {
        while let Some(place) = self.more.pop() {
            let queued = self.ring.receive_more(place as usize);
            queued.map_err(|e| Fault::system("cannot queue a receive", &e))?;
        }
        Ok(())
    }
}

impl EventLoop for RingLoop {
    fn witness(&mut self) -> Result<(), Fault> {
        let Some(flow) = self.sockets.lasting.first() else { return Ok(()) };
        ring::witness(
            flow,
            |page| {
                SendRing::new(flow.fd(), page, 1, 0)
                    .map_err(|e| ring::fault("cannot set up a sending io_uring", &e))
            },
            |ring| ring.send(0..WITNESS_LEN, 0, false),
        )
    }

    fn begin(&mut self) -> Result<(), Fault> {
        self.ring.activate().map_err(|e| ring::fault("cannot start the io_uring", &e))?;
        self.accept()
    }

    fn connect(&mut self, place: usize, bytes: u64, recorder: &mut Recorder) -> Result<(), Fault> {
        let Some(Origin::Connect(peer, options)) = &self.sockets.origin else {
            return Err(Fault::failed("a server was to connect").remedy("report this as a bug"));
        };
        let peer = *peer;
        let socket =
            recorder.timed_with(SOCKET, || tcp::unconnected(peer.ip(), false, options), |_| 0);
        let socket = match socket {
            Ok(socket) => socket,
            Err(e) => return self.sockets.fail(place, "socket", e).map(drop),
        };
        self.outputs[place] = Output { left: bytes, busy: true, ..Output::default() };
        self.sessions.begin(place)?;
        let part = match self.sessions.are_used() {
            false => self.outputs[place].part(self.message),
            true => self.stage(place).map_err(|e| Fault::system("TLS", &e))?,
        };
        let queued = self.ring.connect(place, socket.as_fd(), &peer, part);
        queued.map_err(|e| Fault::system("cannot queue a connect", &e))?;
        self.sockets.fill(place, socket);
        Ok(())
    }

    fn close(&mut self, place: usize, _: &mut Recorder) -> Result<(), Fault> {
        let last = self.stage_last(place).map_err(|e| Fault::system("close_notify", &e))?;
        self.release(place, last)
    }

    fn submit(&mut self) -> Result<(), Fault> {
        self.ring.submit().map_err(|e| ring::fault("cannot submit to the io_uring", &e))
    }

    #[inline]
    fn send(&mut self, place: usize, bytes: u64, _: &mut Recorder) -> Result<(), Fault> {
        let output = &mut self.outputs[place];
        output.left += bytes;
        if output.busy { Ok(()) } else { self.queue(place) }
    }

    fn stream(&mut self, place: usize) -> Result<(), Fault> {
        self.outputs[place].left = ENDLESS;
        self.queue(place)
    }

    fn stop(&mut self) -> Result<bool, Fault> {
        self.stopped = true;
        Ok(!self.outputs.iter().any(|output| output.is_endless() && output.busy))
    }

    fn turn(
        &mut self,
        service: &mut dyn Service,
        recorder: &mut Recorder,
        limit: Option<Duration>,
    ) -> Result<(), Fault> {
        self.receive_more()?;
        let limit = if self.sockets.has_failures() { Some(Duration::ZERO) } else { limit };
        if !self.ring.pending() {
            let (ring, wait) = (&mut self.ring, Wait { limit, ..self.wait });
            ring::entered(recorder.timed(ENTER, || ring.enter(&wait)))?;
            self.counts.waits += u64::from(ring.pending());
        }
        self.take(service, recorder).inspect_err(|_| self.ring.cancel())
    }

    fn account(&mut self) -> Result<Account, Fault> {
        let sources = [
            "IORING_OP_SEND copies into socket buffers",
            "IORING_OP_RECV copies into provided buffers",
        ];
        let sources = self.sessions.sources(sources);
        let plain = self.plain.as_ref().map_or(0, |message| message.len());
        let memory = self.ring.memory() + plain + self.sockets.memory();
        let passing = self.sockets.places() - self.sockets.lasting.len();
        // Records of places that were never used are left out, like the places themselves.
        let unused = match self.sessions.are_used() {
            true => self.stages.bytes(passing - self.sockets.most_passing()) as usize,
            false => 0,
        };
        let memory = memory + self.sessions.memory(self.sockets.most_passing()) - unused;
        let mut account = self.counts.account(self.role, sources, [self.sockets.most(), memory]);
        self.sessions.account(self.role, &mut account);
        Ok(account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{self, Direction};
    use bytepath_record::{Attempt, Cell, Half, OptionValue, Outcome};

    /// Returns the refusal of a kernel that has every feature but `lacks`.
    fn refusal(option: (&str, &str), lacks: &str, outcome: Outcome) -> (String, String) {
        let works = [
            ring::SETUP,
            ring::BUFFER_RING,
            ring::RECV_MULTISHOT,
            ring::RECV_BUNDLE,
            ring::INCREMENTAL,
            ring::DEFER_TASKRUN,
            ring::SQPOLL,
        ];
        let works = works.iter().filter(|name| **name != lacks);
        let works = works.map(|name| (*name, Outcome::Works(String::new())));
        let attempts = works.chain([(lacks, outcome)]);
        let attempts = attempts.map(|(name, outcome)| Attempt { name: name.into(), outcome });
        let facts = Facts {
            kernel_release: "6.0.0".into(),
            attempts: attempts.collect(),
            ..Facts::default()
        };
        let mut cell = Cell::new("test", Half::plain("uring-loop"), Half::plain("uring-loop"));
        for spec in OPTIONS {
            let value = if spec.name == option.0 { option.1 } else { spec.default };
            cell.rx.options.0.insert(spec.name.into(), spec.kind.parse(value).unwrap());
        }
        match check(&HalfConfig::stream(&cell, Role::Receiver), &facts) {
            Support::Yes => ("yes".into(), String::new()),
            Support::No { reason, remedy } => (reason, remedy),
        }
    }

    #[test]
    fn records_of_all_threads_are_bounded() {
        let refusal = |flows: u32, threads: u64, handshake: &str| {
            let mut cell = Cell::new("test", Half::plain("uring-loop"), Half::plain("uring-loop"));
            for half in [&mut cell.tx, &mut cell.rx] {
                half.options.0.insert("threads".into(), OptionValue::Number(threads));
            }
            cell.stream.flows = flows;
            cell.workload.name = "crr".into();
            let options = [
                ("handshake", OptionValue::Word(handshake.into())),
                ("response", OptionValue::Number(20 << 10)),
            ];
            cell.workload.options.0.extend(options.map(|(name, value)| (name.into(), value)));
            let crr = workload::of(&cell).unwrap();
            let job = (crr.job)(&cell, Role::Receiver, Direction::Send);
            bounded_records(&job).err().map(|fault| fault.message)
        };
        assert_eq!(refusal(60_000, 1, "full"), None);
        let text = "TLS records of all places at 2 threads would take 9 GiB";
        assert_eq!(refusal(60_000, 2, "full").as_deref(), Some(text));
        assert_eq!(refusal(60_000, 2, "none"), None);
        assert_eq!(refusal(1000, 64, "resumed"), None);
    }

    #[test]
    fn what_came_later_is_refused_with_the_kernel_that_has_it() {
        let missing = |why: &str| Outcome::Missing(why.into());
        for (option, lacks, outcome, since) in [
            (("bundle", "on"), ring::RECV_BUNDLE, missing("bundles came with Linux 6.10"), "6.10"),
            (("incremental", "on"), ring::INCREMENTAL, Outcome::Errno(libc::EINVAL), "6.12"),
            (("task-run", "defer"), ring::DEFER_TASKRUN, missing("it came with Linux 6.1"), "6.1"),
            (("sqpoll", "on"), ring::SQPOLL, Outcome::Errno(libc::EPERM), "5.11"),
        ] {
            let (reason, remedy) = refusal(option, lacks, outcome.clone());
            assert!(remedy.contains(&format!("boot Linux {since} or later")), "{reason}: {remedy}");
            assert_eq!(refusal(("wait", "1"), lacks, outcome).0, "yes", "{option:?} is left out");
        }
    }
}
