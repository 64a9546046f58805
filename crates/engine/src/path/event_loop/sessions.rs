//! TLS sessions of the passing connections of a loop, by their places. A session stands between the
//! socket and the workload: what comes in goes through it and is counted as it comes out, in the clear;
//! what goes out is encrypted piece by piece, when the piece before is gone. rustls allocates memory
//! for each handshake and each record, as it does in every program that uses it.

use super::Output;
use crate::connection::handshake::{self, End};
use crate::workload::{Account, HalfConfig, Recorder, Toucher};
use bytepath_record::{Fault, Role, Scope, Unit};
use bytepath_sys::tcp;
use rustls::{Connection, HandshakeKind};
use std::io::{self, BufRead, IoSlice, Write};
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Most bytes of messages that are encrypted before they are handed to the kernel: four records.
const BATCH: usize = 1 << 16;

/// The end of a job whose connections make handshakes. A client's is a thread's own, with room for so
/// many tickets; a server's is shared by its threads.
pub(super) fn end_of(job: &HalfConfig, tickets: usize) -> Result<Option<End>, Fault> {
    let handshake = job.passing.as_ref().and_then(|passing| passing.handshake);
    let end = handshake.map(|handshake| match job.role {
        Role::Sender => End::client(handshake, tickets),
        Role::Receiver => End::server(handshake),
    });
    end.transpose()
}

/// Sessions by place; none of a loop without TLS.
pub(in crate::path) struct Sessions {
    end: Option<End>,
    /// The first place that may have one.
    first: usize,
    all: Box<[Option<Box<Session>>]>,
    /// Handshakes that were made, and those of them that resumed an earlier session.
    handshakes: u64,
    resumed: u64,
    /// The first failure, in words.
    failure: Option<String>,
}

impl Sessions {
    /// For so many places from the first on.
    pub(in crate::path) fn new(end: Option<End>, first: usize, places: usize) -> Sessions {
        let places = if end.is_some() { places } else { 0 };
        let all = (0..places).map(|_| None).collect();
        Sessions { end, first, all, handshakes: 0, resumed: 0, failure: None }
    }

    /// Whether what passes is encrypted.
    #[inline]
    pub(in crate::path) fn are_used(&self) -> bool {
        !self.all.is_empty()
    }

    /// The session of a place, if it has one.
    #[inline]
    pub(in crate::path) fn get(&mut self, place: usize) -> Option<&mut Session> {
        if self.all.is_empty() {
            return None;
        }
        self.all.get_mut(place.checked_sub(self.first)?)?.as_deref_mut()
    }

    /// Begins a session at a place whose connection is new.
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

    /// The connection of a place is gone.
    #[inline]
    pub(in crate::path) fn end(&mut self, place: usize) {
        if self.are_used()
            && let Some(slot) = place.checked_sub(self.first).and_then(|at| self.all.get_mut(at))
        {
            *slot = None;
        }
    }

    /// Delivers what has come in over a connection, or what its session makes of it: how many bytes, and
    /// whether the session has something to send. The inner error is the session's, after which an
    /// alert is to go out.
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

    /// The peer has ended its stream: an error if it was not to.
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

    /// What goes the ledger's way, where a loop without TLS copies in these ways.
    pub(in crate::path) fn sources(&self, plain: [&'static str; 2]) -> [&'static str; 2] {
        match self.are_used() {
            false => plain,
            true => [
                "encrypted by the program (rustls) into memory that the kernel copied",
                "copied by the kernel to user memory, and decrypted by the program (rustls)",
            ],
        }
    }

    /// Enters what was counted.
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

    /// Bytes of sessions that a loop keeps for so many passing connections: without what rustls
    /// allocates for them.
    pub(in crate::path) fn memory(&self, connections: usize) -> usize {
        let each = size_of::<Option<Box<Session>>>() + size_of::<Session>();
        if self.are_used() { connections * each } else { 0 }
    }
}

/// The TLS session of a connection.
pub(in crate::path) struct Session {
    tls: Connection,
    /// Bytes of messages that are encrypted and not gone.
    sealed: usize,
    /// What is left of the records in the memory that a ring sends them from.
    staged: Range<usize>,
    /// Whether the handshake was counted.
    is_made: bool,
    /// Whether the peer has sent close_notify.
    is_closed: bool,
}

impl Session {
    /// Takes some of what has come in.
    fn take(&mut self, came: &mut &[u8]) -> io::Result<()> {
        self.tls.read_tls(came)?;
        let state = self.tls.process_new_packets().map_err(handshake::failure)?;
        self.is_closed = state.peer_has_closed();
        Ok(())
    }

    /// What has come out of it next, in the clear.
    fn plain(&mut self) -> Option<&[u8]> {
        self.tls.reader().into_first_chunk().ok().filter(|plain| !plain.is_empty())
    }

    /// Encrypts what comes next of an output, if what was before is gone: whether anything is to be
    /// sent.
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

    /// Sends records by sendmsg(2): how many bytes they have.
    pub(in crate::path) fn send(&mut self, socket: BorrowedFd, flags: i32) -> io::Result<usize> {
        self.tls.write_tls(&mut Pieces { socket, flags })
    }

    /// Bytes of messages that are gone since it was asked last.
    pub(in crate::path) fn gone(&mut self) -> usize {
        let is_gone = !self.tls.wants_write() && self.staged.is_empty();
        if is_gone { std::mem::take(&mut self.sealed) } else { 0 }
    }

    /// The last that is to go out over a connection that is given up: an alert, or close_notify over
    /// one that has done its work. False if there is none.
    pub(in crate::path) fn close(&mut self) -> bool {
        if !self.tls.is_handshaking() {
            self.tls.send_close_notify();
        }
        self.tls.wants_write()
    }

    /// Puts the records that come next into memory from which a ring sends them: which part of
    /// it is to be sent. What was put there before and did not go out comes first.
    pub(in crate::path) fn stage(&mut self, memory: &mut [u8]) -> io::Result<Range<usize>> {
        if self.staged.is_empty() {
            self.staged = 0..fill(&mut self.tls, memory)?;
        }
        Ok(self.staged.clone())
    }

    /// The same of what is the last, whatever became of the rest.
    pub(in crate::path) fn stage_last(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        fill(&mut self.tls, memory)
    }

    /// So much of what was staged is gone. Gives the bytes of messages that are.
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

/// Has all pieces go out by one call.
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

/// Memory that a ring sends records from: a part for each place, whose end is kept for the last that
/// goes out, since the next connection at the place may begin before the kernel has read that.
#[derive(Clone, Copy)]
pub(in crate::path) struct Stages {
    first: usize,
    each: usize,
}

impl Stages {
    /// Room for a record that has but an alert in it (RFC 8446, 5.2 and 6).
    const LAST: usize = 64;

    /// Of places from the first on, over which messages of this size go out.
    pub(in crate::path) fn new(first: usize, message: u64) -> Stages {
        // A flight of the server, or a record of the largest size.
        let each = message.saturating_add(1024).next_multiple_of(2048).min(18 << 10);
        Stages { first, each: each as usize }
    }

    /// Bytes for so many places.
    pub(in crate::path) fn bytes(self, places: usize) -> u64 {
        (self.each * places) as u64
    }

    /// Where records of a place are, and where the last of it is.
    pub(in crate::path) fn of(self, place: usize) -> [Range<usize>; 2] {
        let start = self.each * place.saturating_sub(self.first);
        let (end, last) = (start + self.each, start + self.each - Stages::LAST);
        [start..last, last..end]
    }
}
