//! TLS sessions of a loop's passing connections, by place. A session sits between the socket and
//! the workload: received records are decrypted, and the plaintext is counted; output is encrypted
//! piece by piece, as the previous pieces are sent. rustls allocates memory for each handshake and
//! each record, as in every program that uses it.

use super::Output;
use crate::connection::handshake::{self, TlsConfig};
use crate::workload::{Account, HalfConfig, Recorder, Toucher};
use bytepath_record::{Fault, Role, Scope, Unit};
use bytepath_sys::tcp;
use rustls::{Connection, HandshakeKind};
use std::io::{self, BufRead, IoSlice, Write};
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Maximum number of message bytes that are encrypted but not yet sent: four records.
const BATCH: usize = 1 << 16;

/// Returns the TLS configuration of an end, or `None` if its connections make no handshakes. Each
/// client thread has its own, with room for this many tickets; a server's threads share one.
pub(super) fn end_of(job: &HalfConfig, tickets: usize) -> Result<Option<TlsConfig>, Fault> {
    let handshake = job.passing.as_ref().and_then(|passing| passing.handshake);
    let end = handshake.map(|handshake| match job.role {
        Role::Sender => TlsConfig::client(handshake, tickets),
        Role::Receiver => TlsConfig::server(handshake),
    });
    end.transpose()
}

/// Sessions by place; empty if the loop has no TLS.
pub(in crate::path) struct Sessions {
    end: Option<TlsConfig>,
    /// The first place that may have a session.
    first: usize,
    all: Box<[Option<Box<Session>>]>,
    /// Handshakes completed, and how many of them resumed an earlier session.
    handshakes: u64,
    resumed: u64,
    /// Message of the first failure.
    failure: Option<String>,
}

impl Sessions {
    /// For `places` places, starting at `first`.
    pub(in crate::path) fn new(end: Option<TlsConfig>, first: usize, places: usize) -> Sessions {
        let places = if end.is_some() { places } else { 0 };
        let all = (0..places).map(|_| None).collect();
        Sessions { end, first, all, handshakes: 0, resumed: 0, failure: None }
    }

    /// True if passing connections are encrypted.
    #[inline]
    pub(in crate::path) fn are_used(&self) -> bool {
        !self.all.is_empty()
    }

    /// Returns the session of a place, if it has one.
    #[inline]
    pub(in crate::path) fn get(&mut self, place: usize) -> Option<&mut Session> {
        if self.all.is_empty() {
            return None;
        }
        self.all.get_mut(place.checked_sub(self.first)?)?.as_deref_mut()
    }

    /// Starts a session at a place with a new connection.
    #[inline]
    pub(in crate::path) fn begin(&mut self, place: usize) -> Result<(), Fault> {
        let Some(end) = &self.end else { return Ok(()) };
        let tls = end.begin().map_err(|e| Fault::system("cannot begin a TLS session", &e))?;
        let new = Session { tls, sealed: 0, staged: 0..0, is_made: false, is_closed: false };
        if let Some(slot) = place.checked_sub(self.first).and_then(|slot| self.all.get_mut(slot)) {
            *slot = Some(Box::new(new));
        }
        Ok(())
    }

    /// Drops the session of a place whose connection is closed.
    #[inline]
    pub(in crate::path) fn end(&mut self, place: usize) {
        if self.are_used()
            && let Some(slot) = place.checked_sub(self.first).and_then(|at| self.all.get_mut(at))
        {
            *slot = None;
        }
    }

    /// Delivers received bytes, decrypted if the connection has a session. Returns the number of
    /// bytes delivered, and whether the session has something to send. The inner error is the
    /// session's; an alert must be sent after it.
    #[inline]
    pub(in crate::path) fn deliver(
        &mut self,
        place: usize,
        came: &[u8],
        toucher: &mut Toucher,
        recorder: &mut Recorder,
    ) -> Result<io::Result<(u64, bool)>, Fault> {
        if self.get(place).is_some() {
            return self.decrypt(place, came, toucher, recorder);
        }
        toucher.deliver(came, came.len(), recorder)?;
        Ok(Ok((came.len() as u64, false)))
    }

    fn decrypt(
        &mut self,
        place: usize,
        mut came: &[u8],
        toucher: &mut Toucher,
        recorder: &mut Recorder,
    ) -> Result<io::Result<(u64, bool)>, Fault> {
        let Some(session) = self.get(place) else { return Ok(Ok((0, false))) };
        let mut total = 0;
        while !came.is_empty() && !session.is_closed {
            if let Err(error) = session.take(&mut came) {
                self.note(&error);
                return Ok(Err(error));
            }
            while let Some(plain) = session.plain() {
                toucher.deliver(plain, plain.len(), recorder)?;
                let bytes = plain.len();
                session.tls.reader().consume(bytes);
                total += bytes as u64;
            }
        }
        let has_output = session.tls.wants_write();
        if !session.is_made && !session.tls.is_handshaking() {
            session.is_made = true;
            let resumes = session.tls.handshake_kind() == Some(HandshakeKind::Resumed);
            self.handshakes += 1;
            self.resumed += u64::from(resumes);
        }
        Ok(Ok((total, has_output)))
    }

    /// Handles the end of the peer's stream. Errors if it came without close_notify.
    pub(in crate::path) fn ended(&mut self, place: usize) -> io::Result<()> {
        let Some(session) = self.get(place) else { return Ok(()) };
        let when = match (session.is_closed, session.tls.is_handshaking()) {
            (true, _) => return Ok(()),
            (false, true) => "the peer has closed in the middle of the handshake",
            (false, false) => "the peer has closed without close_notify",
        };
        let error = handshake::failure(rustls::Error::General(when.into()));
        self.note(&error);
        Err(error)
    }

    #[cold]
    fn note(&mut self, error: &io::Error) {
        self.failure.get_or_insert_with(|| error.to_string());
    }

    /// Returns the ledger sources of both directions: `plain` for a loop without TLS.
    pub(in crate::path) fn sources(&self, plain: [&'static str; 2]) -> [&'static str; 2] {
        match self.are_used() {
            false => plain,
            true => [
                "encrypted by the program (rustls) into memory that the kernel copied",
                "copied by the kernel to user memory, and decrypted by the program (rustls)",
            ],
        }
    }

    /// Adds the counters and the first failure to the account.
    pub(in crate::path) fn account(&self, role: Role, account: &mut Account) {
        if !self.are_used() {
            return;
        }
        let counts = [("handshakes", self.handshakes), ("resumed", self.resumed)];
        account.count("connections", &Scope::Role(role), Unit::Count, counts);
        account
            .notes
            .extend(self.failure.iter().map(|text| format!("TLS failed first by: {text}")));
    }

    /// Bytes of session state for so many passing connections, not counting what rustls allocates.
    pub(in crate::path) fn memory(&self, connections: usize) -> usize {
        let each = size_of::<Option<Box<Session>>>() + size_of::<Session>();
        if self.are_used() { connections * each } else { 0 }
    }
}

/// The TLS session of a connection.
pub(in crate::path) struct Session {
    tls: Connection,
    /// Bytes of messages that are encrypted but not all sent.
    sealed: usize,
    /// Remaining part of the records in the memory that a ring sends from.
    staged: Range<usize>,
    /// Whether the completed handshake was counted.
    is_made: bool,
    /// Whether the peer has sent close_notify.
    is_closed: bool,
}

impl Session {
    /// Decrypts some of the received bytes.
    fn take(&mut self, came: &mut &[u8]) -> io::Result<()> {
        self.tls.read_tls(came)?;
        let state = self.tls.process_new_packets().map_err(handshake::failure)?;
        self.is_closed = state.peer_has_closed();
        Ok(())
    }

    /// Returns the next decrypted bytes.
    fn plain(&mut self) -> Option<&[u8]> {
        self.tls.reader().into_first_chunk().ok().filter(|plain| !plain.is_empty())
    }

    /// Encrypts the next part of an output, unless too much is still unsent. Returns whether there
    /// is anything to send.
    pub(in crate::path) fn seal(
        &mut self,
        output: &mut Output,
        message: &[u8],
    ) -> io::Result<bool> {
        while self.sealed < BATCH && output.left > 0 && !self.tls.is_handshaking() {
            let part = &message[output.part(message.len())];
            let part = &part[..part.len().min(BATCH - self.sealed)];
            let taken = self.tls.writer().write(part)?;
            if taken == 0 {
                break;
            }
            output.sent(taken, message.len());
            self.sealed += taken;
        }
        Ok(self.tls.wants_write())
    }

    /// Sends records by sendmsg(2); returns their size in bytes.
    pub(in crate::path) fn send(&mut self, socket: BorrowedFd, flags: i32) -> io::Result<usize> {
        self.tls.write_tls(&mut Pieces { socket, flags })
    }

    /// Returns the message bytes that were sent since the last call.
    pub(in crate::path) fn gone(&mut self) -> usize {
        let is_gone = !self.tls.wants_write() && self.staged.is_empty();
        if is_gone { std::mem::take(&mut self.sealed) } else { 0 }
    }

    /// Queues the last record of a connection to be closed: an alert, or close_notify after the
    /// handshake. False if there is none.
    pub(in crate::path) fn close(&mut self) -> bool {
        if !self.tls.is_handshaking() {
            self.tls.send_close_notify();
        }
        self.tls.wants_write()
    }

    /// Puts the next records into memory that a ring sends from, and returns the part to send.
    /// Records staged earlier and not yet sent come first.
    pub(in crate::path) fn stage(&mut self, memory: &mut [u8]) -> io::Result<Range<usize>> {
        if self.staged.is_empty() {
            self.staged = 0..fill(&mut self.tls, memory)?;
        }
        Ok(self.staged.clone())
    }

    /// Like [`Self::stage`], for the last record, even if earlier ones were not sent.
    pub(in crate::path) fn stage_last(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        fill(&mut self.tls, memory)
    }

    /// Enters that `bytes` of the staged records were sent. Returns the message bytes that are now
    /// sent.
    pub(in crate::path) fn unstage(&mut self, bytes: usize) -> usize {
        self.staged.start += bytes.min(self.staged.len());
        self.gone()
    }
}

fn fill(tls: &mut Connection, memory: &mut [u8]) -> io::Result<usize> {
    let all = memory.len();
    let mut room = memory;
    while tls.wants_write() && !room.is_empty() {
        tls.write_tls(&mut room)?;
    }
    Ok(all - room.len())
}

/// Sends all pieces by one call.
struct Pieces<'a> {
    socket: BorrowedFd<'a>,
    flags: i32,
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice]) -> io::Result<usize> {
        tcp::send_pieces(self.socket, pieces, self.flags)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Memory that a ring sends records from, a part for each place. Its tail is reserved for the last
/// record, since the place's next connection may begin before the kernel has read that one.
#[derive(Clone, Copy)]
pub(in crate::path) struct Stages {
    first: usize,
    each: usize,
}

impl Stages {
    /// Room for a record that contains only an alert (RFC 8446, 5.2 and 6).
    const LAST: usize = 64;

    /// For places starting at `first`, over which messages of this size are sent.
    pub(in crate::path) fn new(first: usize, message: u64) -> Stages {
        // The server's first flight, or a record of maximum size.
        let each = message.saturating_add(1024).next_multiple_of(2048).min(18 << 10);
        Stages { first, each: each as usize }
    }

    /// Bytes for this many places.
    pub(in crate::path) fn bytes(self, places: usize) -> u64 {
        (self.each * places) as u64
    }

    /// Returns the parts of a place's memory: for its records, and for its last one.
    pub(in crate::path) fn of(self, place: usize) -> [Range<usize>; 2] {
        let start = self.each * place.saturating_sub(self.first);
        let (end, last) = (start + self.each, start + self.each - Stages::LAST);
        [start..last, last..end]
    }
}
