//! Sends whose memory is lent to the kernel (`MSG_ZEROCOPY`,
//! Documentation/networking/msg_zerocopy.rst): the loop, and the account of what is still lent. The
//! path decides where the bytes are: [`Payload`].

use super::Sum;
use crate::connection::Flow;
use crate::workload::{Account, Call, Recorder, Tx};
use bytepath_record::{COMPLETED_AS_COPIED, Fault, Ledger, Manner};
use bytepath_sys::errqueue::{self, Completion};
use bytepath_sys::tcp::{self, Ready};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// Maximum number of sends without completion.
pub(super) const WINDOW: usize = 1024;

/// Smallest send, in bytes, to which the engine reduces sends when the kernel has no memory for
/// larger ones.
const SMALLEST: usize = 4096;

/// How long completions may lag behind the acknowledgement of the last byte.
pub(super) const COMPLETIONS: Duration = Duration::from_secs(2);

/// One message, in any kind of memory.
pub(super) trait Payload: Send + Sized {
    /// The send's entry in the system-call table: call 0 of the engine.
    const SEND: Call;

    /// Size of the message in bytes.
    fn len(&self) -> usize;

    /// Sends `len` bytes of it from `at` on with `MSG_ZEROCOPY`; returns how many the kernel
    /// accepted.
    fn send(&self, flow: &Flow, at: usize, len: usize) -> io::Result<usize>;

    /// Name of the send in faults.
    const CALL: &'static str;

    /// Remedy if the kernel has no memory for even the smallest send.
    const REMEDY: &'static str;

    /// See [`Tx::witness`].
    fn witness(sender: &mut ZerocopySender<Self>) -> Result<(), Fault>;

    /// Called before the first turn.
    fn begin(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Calls that the engine makes besides [`Payload::SEND`].
const REAP: Call = Call(1, "recvmsg(errqueue)");
const POLL: Call = Call(2, "poll");

/// Sends one message repeatedly.
pub(super) struct ZerocopySender<P> {
    pub flow: Flow,
    pub payload: P,
    /// Maximum number of bytes per send; less than the message once the kernel has refused to pin
    /// more.
    piece: usize,
    reap: u32,
    /// Position of the stream in the message.
    at: usize,
    /// Sends since the error queue was last read.
    unreaped: u32,
    in_flight: InFlight,
    refusals: u64,
}

impl<P: Payload> ZerocopySender<P> {
    /// A sender on a connection; enables `SO_ZEROCOPY`. `reap` is the number of sends between two
    /// reads of the error queue.
    pub(super) fn new(flow: Flow, payload: P, reap: u32) -> Result<Self, Fault> {
        flow.reset_on_death()?;
        tcp::set_int(flow.fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)
            .map_err(|e| flow.fault("SO_ZEROCOPY", &e).remedy("needs Linux 4.14"))?;
        let (piece, in_flight) = (payload.len(), InFlight::new());
        Ok(ZerocopySender {
            flow,
            payload,
            piece,
            reap,
            at: 0,
            unreaped: 0,
            in_flight,
            refusals: 0,
        })
    }

    /// Sends a page that does not belong to the stream; `send` sends it from an offset on.
    pub(super) fn send_aside(
        &mut self,
        len: usize,
        send: impl Fn(&P, &Flow, usize) -> io::Result<usize>,
    ) -> Result<(), Fault> {
        let mut sent = 0;
        while sent < len {
            match send(&self.payload, &self.flow, sent) {
                Ok(n) => {
                    // It has a completion like any other, but no bytes of the stream.
                    self.in_flight.sent(0);
                    sent += n;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    let fault = self.flow.fault(&format!("{} of the witness page", P::CALL), &e);
                    return Err(if no_memory(&e) { fault.remedy(P::REMEDY) } else { fault });
                }
            }
        }
        Ok(())
    }

    /// Reads all available completions.
    fn reap(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        while !self.in_flight.is_empty() {
            // The kernel returns EAGAIN for an empty queue, so it counts as a failed call.
            let empty = || io::Error::from(ErrorKind::WouldBlock);
            let take = || errqueue::completion(self.flow.fd())?.ok_or_else(empty);
            match recorder.timed_with(REAP, take, |_| 0) {
                Ok(completion) => self.in_flight.complete(completion),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(self.flow.fault("the error queue", &e)),
            }
        }
        Ok(())
    }

    /// Handles a refused send: the kernel is out of memory for notifications, or over the limit of
    /// pinned pages. Completions free both; if none are outstanding, only a smaller send can help.
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
            return Err(self.flow.fault(P::CALL, error).remedy(P::REMEDY));
        }
        self.piece = (self.piece / 2).next_multiple_of(SMALLEST);
        Ok(())
    }

    /// Sleeps until there is a completion or the connection is lost.
    fn await_completion(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let fd = self.flow.fd();
        let polled = recorder.timed_with(POLL, || tcp::wait(fd, Ready::RDHUP, None), |_| 0);
        let ready = self.flow.completed("poll", polled)?.unwrap_or(Ready::empty());
        let before = self.in_flight.len();
        self.reap(recorder)?;
        if self.in_flight.len() == before && ready.intersects(Ready::RDHUP | Ready::HUP) {
            let gone = io::Error::from(ErrorKind::BrokenPipe);
            return Err(self.flow.fault("waiting for completions", &gone));
        }
        Ok(())
    }

    /// Waits for the completions of a stream that has arrived completely.
    fn await_all(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let start = Instant::now();
        loop {
            self.reap(recorder)?;
            let left = COMPLETIONS.saturating_sub(start.elapsed());
            if self.in_flight.is_empty() || left.is_zero() {
                return Ok(());
            }
            match tcp::wait(self.flow.fd(), Ready::empty(), Some(left)) {
                // Once the peer has closed, poll always returns at once, even without completions.
                Ok(ready) if !ready.contains(Ready::ERR) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.flow.fault("poll", &e)),
            }
        }
    }

    fn sums(&self) -> Account {
        let mut account = Account::default();
        self.in_flight.enter(&mut account.ledger);
        if self.refusals > 0 {
            account.notes.push(format!(
                "the kernel refused {} sends for lack of memory for notifications or pinned pages",
                self.refusals
            ));
        }
        if self.piece < self.payload.len() {
            account.notes.push(format!(
                "messages were sent in pieces of {} bytes, because no more could be pinned",
                self.piece
            ));
        }
        account
    }
}

impl<P: Payload> Tx for ZerocopySender<P> {
    fn witness(&mut self) -> Result<(), Fault> {
        P::witness(self)
    }

    fn begin(&mut self) -> Result<(), Fault> {
        self.payload.begin()
    }

    /// Reads the error queue first, if that is due.
    #[inline]
    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        if self.unreaped >= self.reap || self.in_flight.is_full() {
            self.reap(recorder)?;
            self.unreaped = 0;
            if self.in_flight.is_full() {
                return self.await_completion(recorder);
            }
        }
        let (at, end) = (self.at, self.payload.len().min(self.at + self.piece));
        let (payload, flow) = (&self.payload, &self.flow);
        match recorder.timed(P::SEND, || payload.send(flow, at, end - at)) {
            Ok(n) => {
                self.in_flight.sent(n as u64);
                recorder.moved(n);
                self.unreaped += 1;
                self.at = if at + n == self.payload.len() { 0 } else { at + n };
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if no_memory(&e) => self.make_room(recorder, &e)?,
            Err(e) => return Err(self.flow.fault(P::CALL, &e)),
        }
        Ok(())
    }

    /// Waits until the kernel has released everything.
    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        self.await_all(recorder)?;
        Ok(self.sums())
    }
}

fn no_memory(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Sends without completion, by number, and the sums of completed ones.
#[derive(Default)]
struct InFlight {
    slots: Box<[Option<u64>]>,
    oldest: u32,
    next: u32,
    copied: Sum,
    not_copied: Sum,
}

impl InFlight {
    fn new() -> Self {
        InFlight { slots: vec![None; WINDOW].into(), ..InFlight::default() }
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

    /// Enters a send of this many bytes of the stream. Must not be called when full.
    #[inline]
    fn sent(&mut self, bytes: u64) {
        self.slots[self.next as usize % WINDOW] = Some(bytes);
        self.next = self.next.wrapping_add(1);
    }

    /// Enters the completion of a range of sends; numbers that are not outstanding are ignored.
    fn complete(&mut self, completion: Completion) {
        let sum = if completion.copied { &mut self.copied } else { &mut self.not_copied };
        let outstanding = self.next.wrapping_sub(self.oldest);
        let start = completion.first.wrapping_sub(self.oldest);
        let count = completion.last.wrapping_sub(completion.first).saturating_add(1);
        for offset in start..start.saturating_add(count).min(outstanding) {
            let slot = self.oldest.wrapping_add(offset) as usize % WINDOW;
            if let Some(bytes) = self.slots[slot].take() {
                sum.bytes += bytes;
                sum.events += u64::from(bytes > 0);
            }
        }
        while !self.is_empty() && self.slots[self.oldest as usize % WINDOW].is_none() {
            self.oldest = self.oldest.wrapping_add(1);
        }
    }

    fn enter(&self, ledger: &mut Ledger) {
        self.copied.report(ledger, Manner::Copied, COMPLETED_AS_COPIED[0]);
        let source = "MSG_ZEROCOPY completion without COPIED";
        self.not_copied.report(ledger, Manner::NotCopied, source);
        let lost = self.slots.iter().flatten().filter(|bytes| **bytes > 0);
        let (bytes, sends) = lost.fold((0, 0), |(b, n), bytes| (b + bytes, n + 1));
        ledger.enter(Manner::Unknown, bytes, sends, "MSG_ZEROCOPY without a completion");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(first: u32, last: u32, copied: bool) -> Completion {
        Completion { first, last, copied }
    }

    #[test]
    fn enters_each_send_once_completed() {
        let mut f = InFlight::new();
        for bytes in [0, 100, 200, 300, 400] {
            f.sent(bytes);
        }
        f.complete(done(0, 1, true));
        assert_eq!((f.len(), f.copied), (3, Sum { bytes: 100, events: 1 }));
        // Out of order, repeated, and beyond what was sent.
        f.complete(done(3, 3, false));
        f.complete(done(3, 3, false));
        f.complete(done(0, 1, true));
        f.complete(done(7, 9, true));
        assert_eq!((f.len(), f.not_copied), (3, Sum { bytes: 300, events: 1 }));
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
}
