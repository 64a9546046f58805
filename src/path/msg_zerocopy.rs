//! `msg-zerocopy`: send(2) with MSG_ZEROCOPY pins the pages of the message,
//! and a completion on the error queue says when the kernel has let go of them
//! and whether it copied after all
//! (Documentation/networking/msg_zerocopy.rst).
//!
//! The ledger rests on the completions alone. A completion without the COPIED
//! flag is no proof by itself: with XDP on a local peer the kernel copies
//! behind it. So the witness page has the last word.

use super::{Account, DataPath, Endpoint, Flow, Recorder, WITNESS_LEN, WitnessPage};
use crate::record::{
    Attempt, Cell, Facts, Fault, Ledger, Manner, OptionKind, OptionSpec, Role, Support,
};
use crate::sys::errqueue::{self, Completion};
use crate::sys::memory::Region;
use crate::sys::tcp::{self, Ready};
use crate::workload::Phase;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The `msg-zerocopy` path.
pub struct MsgZerocopy;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "huge",
        kind: OptionKind::Flag,
        default: "off",
        help: "ask for transparent huge pages under the message",
    },
    OptionSpec {
        name: "reap",
        kind: OptionKind::Count(1, WINDOW as u64),
        default: "16",
        help: "sends between two looks at the error queue",
    },
];

/// What is tried on a host.
const ATTEMPT: &str = "so-zerocopy";

const REMEDY: &str = "raise sysctl net.core.optmem_max and the limit on locked memory \
                      (ulimit -l), or choose a smaller message size";

/// Sends that may be without completion at a time.
const WINDOW: usize = 1024;

/// Smallest send to which the engine gives way when the kernel has no memory
/// for more, bytes.
const SMALLEST: usize = 4096;

/// How long completions may lag behind the acknowledgement of the last byte.
const PATIENCE: Duration = Duration::from_secs(2);

impl DataPath for MsgZerocopy {
    fn name(&self) -> &'static str {
        "msg-zerocopy"
    }

    fn summary(&self) -> &'static str {
        "send with MSG_ZEROCOPY: pages pinned, completions on the error queue"
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Sender]
    }

    fn options(&self, _: Role) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn attempt(&self, _: Option<&str>) -> Vec<Attempt> {
        vec![super::tried(ATTEMPT, attempt())]
    }

    fn probe(&self, role: Role, facts: &Facts) -> Support {
        match role {
            Role::Sender => facts.require(ATTEMPT, "needs Linux 4.14 and some locked memory"),
            Role::Receiver => super::unsupported(super::lacks(self.name(), role)),
        }
    }

    fn open(&self, role: Role, cell: &Cell, flow: Flow) -> Result<Box<dyn Endpoint>, Fault> {
        if role != Role::Sender {
            return Err(super::lacks(self.name(), role));
        }
        flow.reset_on_death()?;
        tcp::set_int(flow.fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)
            .map_err(|e| flow.fault("SO_ZEROCOPY", &e).remedy("needs Linux 4.14"))?;
        let options = &cell.tx.options;
        let message = super::message(&cell.stream, options.flag("huge"))?;
        Ok(Box::new(Sender {
            piece: message.len(),
            message,
            reap: options.number("reap").map_or(16, |n| n as u32),
            in_flight: InFlight::new(),
            refusals: 0,
            flow,
        }))
    }
}

struct Sender {
    flow: Flow,
    message: Region,
    /// Most bytes of one send; less than the message once the kernel has
    /// refused to pin more.
    piece: usize,
    reap: u32,
    in_flight: InFlight,
    /// ENOBUFS so far.
    refusals: u64,
}

/// Slots of the calls.
const SEND: usize = 0;
const REAP: usize = 1;
const POLL: usize = 2;

impl Endpoint for Sender {
    fn calls(&self) -> &'static [&'static str] {
        &["send", "recvmsg(errqueue)", "poll"]
    }

    fn witness(&mut self) -> Result<(), Fault> {
        let mut page = super::buffer("the witness page", WITNESS_LEN as u64, false)?;
        WitnessPage::before(&mut page);
        let mut sent = 0;
        while sent < page.len() {
            match tcp::send(self.flow.fd(), &page[sent..], libc::MSG_ZEROCOPY) {
                Ok(n) => {
                    // It has a completion like any other, but is not of the stream.
                    self.in_flight.sent(0);
                    sent += n;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    let fault = self.flow.fault("MSG_ZEROCOPY of the witness page", &e);
                    return Err(if no_memory(&e) { fault.remedy(REMEDY) } else { fault });
                }
            }
        }
        WitnessPage::settle(&self.flow, |after| page.copy_from_slice(after))
    }

    fn run(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let (mut at, mut unreaped) = (0, 0);
        while recorder.phase() != Phase::Stop {
            if unreaped >= self.reap || self.in_flight.is_full() {
                self.reap(recorder)?;
                unreaped = 0;
                if self.in_flight.is_full() {
                    self.await_completion(recorder)?;
                    continue;
                }
            }
            let end = self.message.len().min(at + self.piece);
            let bytes = &self.message[at..end];
            let fd = self.flow.fd();
            match recorder.timed(SEND, || tcp::send(fd, bytes, libc::MSG_ZEROCOPY)) {
                Ok(n) => {
                    self.in_flight.sent(n as u64);
                    recorder.moved(n);
                    unreaped += 1;
                    at = if at + n == self.message.len() { 0 } else { at + n };
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if no_memory(&e) => self.make_room(recorder, &e)?,
                Err(e) => return Err(self.flow.fault("send with MSG_ZEROCOPY", &e)),
            }
        }
        self.flow.end_stream()?;
        self.await_all(recorder)?;
        Ok(self.account())
    }
}

impl Sender {
    /// Takes all completions that are there.
    fn reap(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        while !self.in_flight.is_empty() {
            let mut found = None;
            recorder
                .timed(REAP, || {
                    found = errqueue::completion(self.flow.fd())?;
                    // An empty queue is an error of the call, as the kernel has it.
                    found.map(|_| 0).ok_or_else(|| ErrorKind::WouldBlock.into())
                })
                .or_else(|e| if e.kind() == ErrorKind::WouldBlock { Ok(0) } else { Err(e) })
                .map_err(|e| self.flow.fault("the error queue", &e))?;
            match found {
                Some(completion) => self.in_flight.complete(completion),
                None => break,
            }
        }
        Ok(())
    }

    /// The kernel refused a send: it is out of memory for notifications or over
    /// the limit of pinned pages. Both come back with completions; with none
    /// outstanding only a smaller send can help.
    fn make_room(&mut self, recorder: &mut Recorder, error: &io::Error) -> Result<(), Fault> {
        self.refusals += 1;
        let before = self.in_flight.len();
        self.reap(recorder)?;
        if self.in_flight.len() < before {
            return Ok(());
        }
        if before > 0 {
            return self.await_completion(recorder);
        }
        if self.piece <= SMALLEST {
            return Err(self.flow.fault("send with MSG_ZEROCOPY", error).remedy(REMEDY));
        }
        self.piece = (self.piece / 2).next_multiple_of(SMALLEST);
        Ok(())
    }

    /// Sleeps until there is a completion or the connection is gone.
    fn await_completion(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let mut ready = Ready::empty();
        let fd = self.flow.fd();
        let polled = recorder.timed(POLL, || {
            ready = tcp::wait(fd, Ready::RDHUP, None)?;
            Ok(0)
        });
        match polled {
            Err(e) if e.kind() != ErrorKind::Interrupted => {
                return Err(self.flow.fault("poll", &e));
            }
            _ => {}
        }
        let before = self.in_flight.len();
        self.reap(recorder)?;
        if self.in_flight.len() == before && ready.intersects(Ready::RDHUP | Ready::HUP) {
            let gone = io::Error::from(ErrorKind::BrokenPipe);
            return Err(self.flow.fault("waiting for completions", &gone));
        }
        Ok(())
    }

    /// Waits for the completions of a stream that has arrived as a whole.
    fn await_all(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let start = Instant::now();
        loop {
            self.reap(recorder)?;
            let left = PATIENCE.saturating_sub(start.elapsed());
            if self.in_flight.is_empty() || left.is_zero() {
                return Ok(());
            }
            match tcp::wait(self.flow.fd(), Ready::empty(), Some(left)) {
                // Once the peer has closed, poll has nothing else to say.
                Ok(ready) if !ready.contains(Ready::ERR) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.flow.fault("poll", &e)),
            }
        }
    }

    fn account(&self) -> Account {
        let mut account = Account::default();
        self.in_flight.enter(&mut account.ledger);
        if self.refusals > 0 {
            account.notes.push(format!(
                "the kernel refused {} sends for want of memory for notifications or pinned pages",
                self.refusals
            ));
        }
        if self.piece < self.message.len() {
            account.notes.push(format!(
                "messages went in pieces of {} bytes, because no more could be pinned",
                self.piece
            ));
        }
        account
    }
}

fn no_memory(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Sends without completion, by number, and the sums of those with one.
struct InFlight {
    slots: Box<[Option<u64>]>,
    oldest: u32,
    next: u32,
    copied: Sum,
    not_copied: Sum,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    bytes: u64,
    sends: u64,
}

impl InFlight {
    fn new() -> Self {
        InFlight {
            slots: vec![None; WINDOW].into_boxed_slice(),
            oldest: 0,
            next: 0,
            copied: Sum::default(),
            not_copied: Sum::default(),
        }
    }

    #[inline]
    fn len(&self) -> u32 {
        self.next.wrapping_sub(self.oldest)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.len() as usize == WINDOW
    }

    /// A send took this many bytes of the stream. Must not be full.
    #[inline]
    fn sent(&mut self, bytes: u64) {
        self.slots[self.next as usize % WINDOW] = Some(bytes);
        self.next = self.next.wrapping_add(1);
    }

    /// Enters a range of sends; numbers that are not outstanding are ignored.
    fn complete(&mut self, completion: Completion) {
        let sum = if completion.copied { &mut self.copied } else { &mut self.not_copied };
        let outstanding = self.next.wrapping_sub(self.oldest);
        let start = completion.first.wrapping_sub(self.oldest);
        let count = completion.last.wrapping_sub(completion.first).saturating_add(1);
        for offset in start..start.saturating_add(count).min(outstanding) {
            let slot = self.oldest.wrapping_add(offset) as usize % WINDOW;
            if let Some(bytes) = self.slots[slot].take() {
                sum.bytes += bytes;
                sum.sends += u64::from(bytes > 0);
            }
        }
        while !self.is_empty() && self.slots[self.oldest as usize % WINDOW].is_none() {
            self.oldest = self.oldest.wrapping_add(1);
        }
    }

    fn enter(&self, ledger: &mut Ledger) {
        let (copied, not_copied) = (self.copied, self.not_copied);
        let source = "MSG_ZEROCOPY completion with COPIED";
        ledger.enter(Manner::Copied, copied.bytes, copied.sends, source);
        let source = "MSG_ZEROCOPY completion without COPIED";
        ledger.enter(Manner::NotCopied, not_copied.bytes, not_copied.sends, source);
        let lost = self.slots.iter().flatten().filter(|bytes| **bytes > 0);
        let (bytes, sends) = lost.fold((0, 0), |(b, n), bytes| (b + bytes, n + 1));
        ledger.enter(Manner::Unknown, bytes, sends, "MSG_ZEROCOPY without a completion");
    }
}

/// Sends a page over the loopback device, if that is up, and waits for its
/// completion.
fn attempt() -> io::Result<String> {
    let enable = |fd: BorrowedFd| tcp::set_int(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1);
    let (tx, _rx) = match tcp::loopback_pair() {
        Ok(pair) => pair,
        Err(e) => {
            let idle = tcp::listen(
                std::net::Ipv4Addr::UNSPECIFIED.into(),
                1,
                &tcp::FlowOptions::default(),
            )?;
            enable(idle.as_fd())?;
            return Ok(format!("the option; not sent, for want of a loopback connection: {e}"));
        }
    };
    enable(tx.as_fd())?;
    let page = Region::new(WITNESS_LEN, false)?;
    tcp::send(tx.as_fd(), &page, libc::MSG_ZEROCOPY)?;
    tcp::wait(tx.as_fd(), Ready::empty(), Some(PATIENCE))?;
    match errqueue::completion(tx.as_fd())? {
        Some(c) if c.copied => Ok("completed as copied on the loopback device".into()),
        Some(_) => Ok("completed as not copied".into()),
        None => Err(io::Error::other("a send had no completion")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Outcome;

    fn done(first: u32, last: u32, copied: bool) -> Completion {
        Completion { first, last, copied }
    }

    #[test]
    fn each_send_is_entered_once_and_only_when_completed() {
        let mut f = InFlight::new();
        for bytes in [0, 100, 200, 300, 400] {
            f.sent(bytes);
        }
        f.complete(done(0, 1, true));
        assert_eq!((f.len(), f.copied), (3, Sum { bytes: 100, sends: 1 }));
        // Out of order, repeated, and beyond what was sent.
        f.complete(done(3, 3, false));
        f.complete(done(3, 3, false));
        f.complete(done(0, 1, true));
        f.complete(done(7, 9, true));
        assert_eq!((f.len(), f.not_copied), (3, Sum { bytes: 300, sends: 1 }));
        f.complete(done(2, 2, true));
        assert_eq!(f.len(), 1);
        let mut ledger = Ledger::default();
        f.enter(&mut ledger);
        assert_eq!((ledger.copied, ledger.not_copied, ledger.unknown), (300, 300, 400));
        assert_eq!(ledger.delivered, 1000);
    }

    #[test]
    fn numbers_wrap() {
        let mut f = InFlight::new();
        (f.oldest, f.next) = (u32::MAX - 1, u32::MAX - 1);
        for _ in 0..WINDOW {
            f.sent(10);
        }
        assert!(f.is_full());
        f.complete(done(u32::MAX - 1, 1, false));
        assert_eq!((f.not_copied.bytes, f.len() as usize), (40, WINDOW - 4));
        f.complete(done(2, u32::MAX, true));
        assert!(f.is_empty());
        assert_eq!(f.copied.bytes, 10 * (WINDOW as u64 - 4));
    }

    #[test]
    fn the_probe_wants_the_attempt() {
        let mut facts = Facts::default();
        assert!(!MsgZerocopy.probe(Role::Sender, &facts).is_yes());
        for (outcome, yes) in
            [(Outcome::Works(String::new()), true), (Outcome::Errno(libc::ENOBUFS), false)]
        {
            facts.attempts = vec![Attempt { name: ATTEMPT.into(), outcome }];
            assert_eq!(MsgZerocopy.probe(Role::Sender, &facts).is_yes(), yes);
            assert!(!MsgZerocopy.probe(Role::Receiver, &facts).is_yes());
        }
    }

    #[test]
    fn this_host_passes_its_own_attempt() {
        let facts = Facts { attempts: MsgZerocopy.attempt(None), ..Facts::default() };
        assert!(MsgZerocopy.probe(Role::Sender, &facts).is_yes(), "{:?}", facts.attempts);
    }
}
