//! What the event loops have in common: their options, their counters, and [`ReadyLoop`], the loop
//! of those that wait until sockets are ready and then call send(2) and recv(2).

pub(super) mod blocking;
mod passing;
mod sessions;
mod sockets;

pub(super) use sessions::{Sessions, Stages};
pub(super) use sockets::{Origin, Sockets};

use super::Opened;
use super::common::{self, ReadBuffer, Sum, refuse_if};
use crate::connection::{Connection, Flow, WitnessPage};
use crate::workload::{
    Account, Call, ENDLESS, EventLoop, Group, HalfConfig, Recorder, Service, Toucher,
};
use bytepath_record::{
    Facts, Fault, Manner, OptionKind, OptionSpec, Role, Scope, Support, Touch, Unit,
};
use bytepath_sys::memory::Region;
use bytepath_sys::tcp;
use std::any::Any;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Threads of an end; `Cell::threads` recognises an event loop by this option.
pub(super) const THREADS: OptionSpec = OptionSpec::new("threads", OptionKind::Count(1, 256), "1")
    .help("threads that share the connections of an end, each with a loop of its own");

pub(super) const OPTIMISTIC: OptionSpec =
    OptionSpec::new("optimistic", OptionKind::Choice(&["off", "write", "on"]), "write").help(
        "what is tried before readiness was reported: nothing, sending, or receiving again, too",
    );

/// Checks what applies to every event loop.
pub(super) fn check(job: &HalfConfig, _: &Facts) -> Support {
    refuse_if(
        job.touch == Touch::Verify,
        "an event loop does not know where in its stream each connection is",
        "choose touch=none or touch=read",
    )
}

/// Opens nothing: event loops have no halves. Workloads that suit them open the loop for all
/// connections instead.
pub(super) fn open_half<T: ?Sized>(_: &HalfConfig, _: &dyn Connection, _: &Group) -> Opened<T> {
    let fault = Fault::failed("an event loop was to be opened for one flow alone");
    Err(fault.remedy("report this as a bug"))
}

/// Returns the kernel sockets of the connections, which from now on are reset if the process dies.
pub(super) fn sockets(connections: &[Arc<dyn Connection>]) -> Result<Vec<Arc<Flow>>, Fault> {
    let socket = |connection: &Arc<dyn Connection>| {
        let any: Arc<dyn Any + Send + Sync> = connection.clone();
        let flow = any.downcast::<Flow>().map_err(|_| {
            Fault::failed("an event loop over something else than sockets")
                .remedy("report this as a bug")
        })?;
        flow.reset_on_death()?;
        Ok(flow)
    };
    connections.iter().map(socket).collect()
}

/// Bytes that a connection may send of a stream, or receive, before the next connection has its
/// turn; a receive that has begun may exceed it.
pub(super) const TURN: usize = 1 << 20;

/// Output state of one connection.
#[derive(Clone, Copy, Default)]
pub(super) struct Output {
    /// Bytes still to be sent.
    pub(super) left: u64,
    /// Offset in the message of the next byte.
    pub(super) at: usize,
    /// Whether a send is in flight, or waits for room.
    pub(super) busy: bool,
    /// Whether the peer has ended its stream.
    pub(super) ended: bool,
}

impl Output {
    /// Returns the part of the message to send next.
    #[inline]
    pub(super) fn part(&self, message: usize) -> std::ops::Range<usize> {
        self.at..self.at + self.left.min((message - self.at) as u64) as usize
    }

    /// True if the connection is kept full.
    #[inline]
    pub(super) fn is_endless(&self) -> bool {
        self.left > ENDLESS / 2
    }

    /// Enters that `bytes` have been sent.
    #[inline]
    pub(super) fn sent(&mut self, bytes: usize, message: usize) {
        self.left -= bytes as u64;
        self.at = (self.at + bytes) % message;
    }
}

/// Totals over the lifetime of a loop.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) sent: Sum,
    pub(super) received: Sum,
    /// Waits that ended with events, and the number of those events.
    pub(super) waits: u64,
    pub(super) events: u64,
    /// Sends that found no room, and receives that found no buffer.
    pub(super) full: u64,
    pub(super) short: u64,
}

impl Counts {
    /// The account of a loop that copies; `connections` is the most at a time, `memory` is in
    /// bytes.
    pub(super) fn account(
        &self,
        role: Role,
        [sent, received]: [&str; 2],
        [connections, memory]: [usize; 2],
    ) -> Account {
        let of = |sum: Sum, source| Account::of(Manner::Copied, sum.bytes, sum.events, source);
        let (mut account, input) = (of(self.sent, sent), of(self.received, received));
        account.add(Account { ledger: input.ledger.mark_received(), ..input });
        let scope = Scope::Role(role);
        let counts = [
            ("connections", connections as u64),
            ("waits", self.waits),
            ("events", self.events),
            ("full", self.full),
            ("short", self.short),
        ];
        account.count("loop", &scope, Unit::Count, counts);
        account.count("loop", &scope, Unit::Bytes, [("memory", memory as u64)]);
        account
    }
}

/// A kernel interface that reports which sockets are ready.
pub(super) trait Readiness {
    /// Adds the socket of a new connection. `room`: also reports room to send from the start.
    fn watch(&mut self, on: &Watched, room: bool) -> io::Result<()>;

    /// Called before the socket of a place is closed.
    fn release(&mut self, place: usize);

    /// Waits, for at most `limit` if there is one; returns how many sockets are ready.
    fn wait(&mut self, limit: Option<Duration>, recorder: &mut Recorder) -> io::Result<usize>;

    /// Returns an event of the last wait, by number. The event remains in progress until
    /// [`Readiness::rearm`].
    fn event(&mut self, number: usize) -> Ready;

    /// Starts or stops reporting room to send. `tried`: a send has just found no room, so any room
    /// is yet to come.
    fn want_room(&mut self, on: &Watched, wanted: bool, tried: bool) -> io::Result<()>;

    /// Reports the socket's readiness again, because not everything was read or sent.
    fn repeat(&mut self, on: &Watched, room: bool) -> io::Result<()> {
        let _ = (on, room);
        Ok(())
    }

    /// Called after the event of a socket has been handled.
    fn rearm(&mut self, on: &Watched, room: bool) -> io::Result<()> {
        let _ = (on, room);
        Ok(())
    }

    /// Stops reporting a socket whose stream has ended.
    fn forget(&mut self, on: &Watched) -> io::Result<()>;

    /// True if it reports only new bytes (edge-triggered), rather than any bytes still queued.
    fn reports_once(&self) -> bool;

    /// Size of its memory in bytes.
    fn memory(&self) -> usize;
}

/// A socket and its place.
pub(super) struct Watched<'a> {
    pub(super) socket: BorrowedFd<'a>,
    pub(super) place: usize,
    /// Whether more input can still arrive.
    pub(super) input: bool,
}

/// A socket that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) place: usize,
    pub(super) input: bool,
    pub(super) room: bool,
    /// The peer has ended its stream, or there is an error: what remains is read to its end.
    pub(super) last: bool,
}

/// An event loop that waits until sockets are ready.
pub(super) struct ReadyLoop<R> {
    role: Role,
    sockets: Sockets,
    sessions: Sessions,
    outputs: Box<[Output]>,
    readiness: R,
    message: Region,
    buffer: ReadBuffer,
    toucher: Toucher,
    /// Whether connections wait to be accepted because there was no free place.
    unaccepted: bool,
    /// Whether to try sending, and receiving, before readiness is reported.
    tries: [bool; 2],
    counts: Counts,
}

/// Sends the witness page over the first flow by send(2).
fn send_witness(flows: &[Arc<Flow>]) -> Result<(), Fault> {
    let Some(flow) = flows.first() else { return Ok(()) };
    let mut page = common::witness_page()?;
    let send = |at: usize| tcp::send(flow.fd(), &page[at..], 0);
    common::send_page(flow, "send of the witness page", send)?;
    WitnessPage::settle(&**flow, |after| page.copy_from_slice(after))
}

const RECV: Call = Call(0, "recv");
const SEND: Call = Call(1, "send");
const SEND_PIECES: Call = Call(1, "sendmsg");

impl<R: Readiness> ReadyLoop<R> {
    /// Opens the loop for `sockets`; `readiness` already watches the lasting ones, in their order.
    pub(super) fn open(
        [send, receive]: [&HalfConfig; 2],
        sockets: Sockets,
        mut readiness: R,
        group: &Group,
    ) -> Result<Self, Fault> {
        let tried = send.options.word(OPTIMISTIC.name);
        if let Some((place, socket)) = sockets.listener() {
            let watched = readiness.watch(&Watched { socket, place, input: true }, false);
            watched.map_err(|e| Fault::system("watching the listening socket", &e))?;
        }
        Ok(ReadyLoop {
            role: send.role,
            outputs: vec![Output::default(); sockets.places()].into(),
            sessions: sockets.sessions(send, group)?,
            sockets,
            readiness,
            message: common::message(send.message_size, false)?,
            buffer: ReadBuffer::of(receive)?,
            toucher: Toucher::new(receive.touch, receive.message_size),
            unaccepted: false,
            tries: [tried != "off", tried == "on"],
            counts: Counts::default(),
        })
    }

    /// Sends as much as there is room for, within the connection's turn.
    #[inline]
    fn flush(
        &mut self,
        place: usize,
        mut service: Option<&mut dyn Service>,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        if self.sessions.get(place).is_some() {
            return self.flush_session(place, service, recorder);
        }
        let Some(socket) = self.sockets.get(place) else { return Ok(()) };
        let output = &mut self.outputs[place];
        let mut turn = if output.is_endless() { TURN } else { usize::MAX };
        while output.left > 0 {
            if turn == 0 {
                return self.reschedule(place, true);
            }
            let part = &self.message[output.part(self.message.len())];
            let part = &part[..part.len().min(turn)];
            let sent = recorder.timed(SEND, || tcp::send(socket, part, libc::MSG_DONTWAIT));
            match sent {
                Ok(bytes) => {
                    recorder.moved(bytes);
                    self.counts.sent.enter(bytes);
                    output.sent(bytes, self.message.len());
                    turn -= bytes;
                    if let Some(service) = &mut service {
                        service.sent(place, bytes as u64);
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return self.unsent(place, e, recorder),
            }
        }
        if output.busy { self.await_room(place, false, true) } else { Ok(()) }
    }

    /// Like [`Self::flush`], for a connection with a TLS session.
    fn flush_session(
        &mut self,
        place: usize,
        mut service: Option<&mut dyn Service>,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        while let (Some(socket), Some(session)) =
            (self.sockets.get(place), self.sessions.get(place))
        {
            match session.seal(&mut self.outputs[place], &self.message) {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => return self.fail(place, "TLS", e, recorder),
            }
            match recorder.timed(SEND_PIECES, || session.send(socket, libc::MSG_DONTWAIT)) {
                Ok(_) => {
                    let bytes = session.gone();
                    recorder.moved(bytes);
                    self.counts.sent.enter(bytes);
                    if let Some(service) = &mut service {
                        service.sent(place, bytes as u64);
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return self.unsent(place, e, recorder),
            }
        }
        self.await_room(place, false, true)
    }

    /// Handles a failed send: waits for room, or gives the connection up.
    #[cold]
    fn unsent(&mut self, place: usize, e: io::Error, recorder: &mut Recorder) -> Result<(), Fault> {
        match e.raw_os_error() {
            // A Fast Open send that only connected: the SYN carried no data.
            Some(libc::EINPROGRESS) => Ok(()),
            Some(libc::EAGAIN) => {
                self.counts.full += 1;
                self.await_room(place, true, true)
            }
            _ => self.fail(place, "send", e, recorder),
        }
    }

    #[cold]
    fn await_room(&mut self, place: usize, wanted: bool, tried: bool) -> Result<(), Fault> {
        let output = &mut self.outputs[place];
        if output.busy == wanted {
            return Ok(());
        }
        output.busy = wanted;
        let input = !output.ended;
        self.watched(place, input, "waiting for room", |readiness, on| {
            readiness.want_room(on, wanted, tried)
        })
    }

    /// A connection's turn ended with work left over: schedules another one. `room`: for sending.
    #[cold]
    fn reschedule(&mut self, place: usize, room: bool) -> Result<(), Fault> {
        let output = &mut self.outputs[place];
        let is_new = room && !output.busy;
        output.busy |= room;
        let (busy, input) = (output.busy, !output.ended);
        self.watched(place, input, "another turn", |readiness, on| match is_new {
            true => readiness.want_room(on, true, false),
            false => readiness.repeat(on, busy),
        })
    }

    /// Applies `change` to the readiness of a place.
    #[inline]
    fn watched(
        &mut self,
        place: usize,
        input: bool,
        what: &str,
        change: impl FnOnce(&mut R, &Watched) -> io::Result<()>,
    ) -> Result<(), Fault> {
        let Some(socket) = self.sockets.get(place) else { return Ok(()) };
        let changed = change(&mut self.readiness, &Watched { socket, place, input });
        changed.map_err(|e| Fault::system(format_args!("connection {place}: {what}"), &e))
    }

    /// Receives what is queued, within the connection's turn. `whole`: all of it, since it will not
    /// be reported again.
    fn receive(
        &mut self,
        place: usize,
        whole: bool,
        service: &mut dyn Service,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        let mut turn = 0;
        loop {
            let Some(socket) = self.sockets.get(place) else { return Ok(()) };
            let room = self.buffer.room();
            match recorder.timed(RECV, || tcp::recv(socket, room, libc::MSG_DONTWAIT)) {
                Ok(0) => return self.end(place, recorder),
                Ok(bytes) => {
                    let is_full = bytes == room.len();
                    let (came, toucher) = (&room[..bytes], &mut self.toucher);
                    let (plain, has_output) =
                        match self.sessions.deliver(place, came, toucher, recorder)? {
                            Ok(delivered) => delivered,
                            Err(e) => return self.fail(place, "TLS", e, recorder),
                        };
                    self.counts.received.enter(plain as usize);
                    self.buffer.advance();
                    let answer = service.received(place, plain);
                    if answer > 0 || has_output {
                        self.put(place, answer, Some(&mut *service), recorder)?;
                    }
                    // A short read of a stream means that nothing more is queued (epoll(7)).
                    let more = is_full && self.readiness.reports_once();
                    if !(more || whole || self.tries[1]) {
                        return Ok(());
                    }
                    turn += bytes;
                    if turn >= TURN {
                        return self.reschedule(place, false);
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return self.fail(place, "recv", e, recorder),
            }
        }
    }

    /// Queues `bytes` more to be sent.
    #[inline]
    fn put(
        &mut self,
        place: usize,
        bytes: u64,
        service: Option<&mut dyn Service>,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        let output = &mut self.outputs[place];
        output.left += bytes;
        match (output.busy, self.tries[0]) {
            (true, _) => Ok(()),
            (false, true) => self.flush(place, service, recorder),
            (false, false) => self.await_room(place, true, false),
        }
    }

    /// The peer has ended its stream; answers it has requested are still sent.
    #[cold]
    fn end(&mut self, place: usize, recorder: &mut Recorder) -> Result<(), Fault> {
        if let Err(e) = self.sessions.ended(place) {
            return self.fail(place, "TLS", e, recorder);
        }
        if let Some(flow) = self.sockets.lasting.get(place) {
            flow.confirm_end()?;
        }
        let output = &mut self.outputs[place];
        output.ended = true;
        if output.is_endless() {
            output.left = 0;
        }
        if output.left == 0 {
            return Ok(());
        }
        self.watched(place, false, "waiting for room", |readiness, on| {
            readiness.want_room(on, true, true)
        })
    }

    fn serve(
        &mut self,
        ready: Ready,
        service: &mut dyn Service,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        let place = ready.place;
        if self.sockets.listener().is_some_and(|(listener, _)| listener == place) {
            return self.accept(service, recorder);
        }
        let Output { busy, ended, .. } = self.outputs[place];
        if busy && (ready.room || (ended && ready.last)) {
            self.flush(place, Some(&mut *service), recorder)?;
        }
        if !ended && (ready.input || ready.last) {
            self.receive(place, ready.last && self.readiness.reports_once(), service, recorder)?;
        }
        let Output { left, busy, ended, .. } = self.outputs[place];
        if !(ended && left == 0) {
            return self.watched(place, !ended, "watching it again", |readiness, on| {
                readiness.rearm(on, busy)
            });
        }
        if self.sockets.is_lasting(place) {
            let what = "the end of its events";
            self.watched(place, false, what, |readiness, on| readiness.forget(on))?;
        } else if !self.release(place, recorder) {
            return Ok(());
        }
        service.ended(place)
    }
}

impl<R: Readiness> EventLoop for ReadyLoop<R> {
    fn witness(&mut self) -> Result<(), Fault> {
        send_witness(&self.sockets.lasting)
    }

    #[inline]
    fn send(&mut self, place: usize, bytes: u64, recorder: &mut Recorder) -> Result<(), Fault> {
        self.put(place, bytes, None, recorder)
    }

    fn stream(&mut self, place: usize) -> Result<(), Fault> {
        self.outputs[place].left = ENDLESS;
        self.await_room(place, true, false)
    }

    fn stop(&mut self) -> Result<bool, Fault> {
        for place in 0..self.outputs.len() {
            if self.outputs[place].is_endless() {
                self.outputs[place].left = 0;
                self.await_room(place, false, true)?;
            }
        }
        Ok(true)
    }

    fn connect(&mut self, place: usize, bytes: u64, recorder: &mut Recorder) -> Result<(), Fault> {
        self.begin_connection(place, bytes, recorder)
    }

    fn close(&mut self, place: usize, recorder: &mut Recorder) -> Result<(), Fault> {
        self.send_last(place, recorder);
        self.release(place, recorder);
        Ok(())
    }

    fn turn(
        &mut self,
        service: &mut dyn Service,
        recorder: &mut Recorder,
        limit: Option<Duration>,
    ) -> Result<(), Fault> {
        let limit = if self.sockets.has_failures() { Some(Duration::ZERO) } else { limit };
        let ready = match self.readiness.wait(limit, recorder) {
            Err(e) if e.kind() == ErrorKind::Interrupted => 0,
            ready => ready.map_err(|e| Fault::system("waiting for events", &e))?,
        };
        if ready > 0 {
            self.counts.waits += 1;
            self.counts.events += ready as u64;
        }
        for number in 0..ready {
            // Serving all events may take long.
            recorder.phase();
            let event = self.readiness.event(number);
            self.serve(event, service, recorder)?;
        }
        while let Some((place, error)) = self.sockets.failure() {
            service.failed(place, &error)?;
        }
        self.accept_left(service, recorder)
    }

    fn account(&mut self) -> Result<Account, Fault> {
        let memory = self.message.len() + self.buffer.len() + self.readiness.memory();
        let memory = memory + self.sockets.memory();
        let memory = memory + self.sessions.memory(self.sockets.most_passing());
        let sources = ["send(2): copied from user memory", "recv(2): copied to user memory"];
        let sources = self.sessions.sources(sources);
        let mut account = self.counts.account(self.role, sources, [self.sockets.most(), memory]);
        self.sessions.account(self.role, &mut account);
        Ok(account)
    }
}

#[cfg(test)]
pub(super) mod tests;
