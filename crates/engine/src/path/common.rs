//! What halves have in common: memory, attempts, and shared checks.

use super::busy_poll::BusyPoll;
use crate::connection::{Flow, WITNESS_LEN, WitnessPage};
use crate::workload::{Call, HalfConfig, Pattern, Recorder};
use bytepath_record::{
    Attempt, Fault, Ledger, Manner, OptionKind, OptionSpec, Outcome, Protocol, Support,
};
use bytepath_sys::memory::Region;
use bytepath_sys::tcp;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// An epoll instance that watches one socket for input, level-triggered.
pub(super) struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// Creates it; its waits busy poll first if `polling` is given.
    pub(super) fn of(flow: &Flow, polling: Option<BusyPoll>) -> Result<Epoll, Fault> {
        let make = || -> io::Result<OwnedFd> {
            let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let data = epoll::EventData::new_u64(0);
            epoll::add(&fd, flow.fd(), data, epoll::EventFlags::IN | epoll::EventFlags::RDHUP)?;
            Ok(fd)
        };
        let fd = make().map_err(|e| flow.fault("epoll", &e))?;
        polling.map_or(Ok(()), |polling| polling.set_on_epoll(&fd))?;
        Ok(Epoll { fd })
    }

    /// Waits for at most `limit`, if there is one. True if there is input. A signal may end it,
    /// too.
    pub(super) fn wait(
        &self,
        limit: Option<Duration>,
        recorder: &mut Recorder,
        call: Call,
    ) -> Result<bool, Fault> {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut events = [std::mem::MaybeUninit::uninit(); 1];
        let wait = || {
            let waited = epoll::wait(&self.fd, &mut events, limit.as_ref());
            waited.map(|(ready, _)| !ready.is_empty())
        };
        match recorder.timed_with(call, wait, |_| 0) {
            Err(Errno::INTR) => Ok(true),
            waited => waited.map_err(|e| Fault::system("epoll_wait", &e.into())),
        }
    }
}

/// Bytes moved in one way, and the number of events that reported them: calls, completions or
/// fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub bytes: u64,
    pub events: u64,
}

impl Sum {
    #[inline]
    pub(super) fn enter(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.events += 1;
    }

    pub(super) fn report(self, ledger: &mut Ledger, manner: Manner, source: &str) {
        ledger.enter(manner, self.bytes, self.events, source);
    }
}

pub(super) fn refuse_if(
    applies: bool,
    reason: impl Into<String>,
    remedy: impl Into<String>,
) -> Support {
    if applies { Support::no(reason, remedy) } else { Support::Yes }
}

/// Turns the result of a check into [`Support`].
pub(super) fn fits<T>(result: Result<T, Fault>) -> Support {
    match result {
        Ok(_) => Support::Yes,
        Err(fault) => Support::no(fault.message, fault.remedy.unwrap_or_default()),
    }
}

/// Refuses waiting for more than one message at once if the peer sends the next only after an
/// answer.
pub(super) fn waits_within_messages(job: &HalfConfig, bytes: Option<u64>) -> Support {
    let size = job.message_size;
    match bytes.map(|bytes| bytes.min(job.read_size)) {
        Some(bytes) if job.batch == 1 && bytes > size => Support::no(
            format!("a receive that waits for {bytes} bytes never returns with messages of {size}"),
            format!("choose at most {size} bytes to wait for"),
        ),
        _ => Support::Yes,
    }
}

/// Refuses a working set if the kernel chooses the memory that bytes arrive in.
pub(super) fn reads_into_kernel_memory(job: &HalfConfig, name: &str) -> Support {
    refuse_if(
        job.read_memory > job.read_size,
        format!("{name} does not read into memory of its own"),
        "leave read-memory at auto, or choose a receiver that copies, such as socket",
    )
}

/// Refuses an option that concerns only streams.
pub(super) fn needs_stream(job: &HalfConfig, option: &str, is_set: bool) -> Support {
    match (is_set, job.protocol) {
        (false, _) | (_, Protocol::Tcp) => Support::Yes,
        (true, other) => Support::no(
            format!("{option} has no meaning with {other}"),
            format!("leave {option} at its default, or choose TCP"),
        ),
    }
}

/// A message of this size in newly allocated memory, filled with the pattern.
pub(super) fn message(size: u64, huge: bool) -> Result<Region, Fault> {
    let mut message = buffer("the message buffer", size, huge)?;
    Pattern::new(size).fill(&mut message, 0);
    Ok(message)
}

/// Page-aligned, prefaulted memory.
pub(super) fn buffer(what: &str, bytes: u64, huge: bool) -> Result<Region, Fault> {
    let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
    usize::try_from(bytes).map_err(|_| too_large()).and_then(|len| Region::new(len, huge)).map_err(
        |e| {
            Fault::system(format_args!("{what} of {bytes} bytes"), &e)
                .remedy("choose a smaller message or read size, or fewer flows")
        },
    )
}

/// Memory that reads fill in turn.
pub(super) struct ReadBuffer {
    memory: Region,
    /// Bytes of a read, and the offset of the next one.
    read: usize,
    at: usize,
}

impl ReadBuffer {
    pub(super) fn of(job: &HalfConfig) -> Result<ReadBuffer, Fault> {
        let memory = buffer("the read buffer", job.read_memory, false)?;
        Ok(ReadBuffer { memory, read: job.read_size as usize, at: 0 })
    }

    /// Returns the memory for the next read.
    #[inline]
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.memory[self.at..self.at + self.read]
    }

    /// Advances to the memory of the next read: behind the last one, or at the beginning if there
    /// is no room.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.at += self.read;
        if self.at + self.read > self.memory.len() {
            self.at = 0;
        }
    }

    /// Total size in bytes.
    pub(super) fn len(&self) -> usize {
        self.memory.len()
    }
}

/// An attempt with this outcome; the text of a success is its detail.
pub(super) fn tried(name: &str, result: io::Result<String>) -> Attempt {
    let outcome = match result {
        Ok(detail) => Outcome::Works(detail),
        Err(e) => match e.raw_os_error() {
            Some(errno) => Outcome::Errno(errno),
            None => Outcome::Missing(e.to_string()),
        },
    };
    Attempt { name: name.to_owned(), outcome }
}

/// An attempt that only looks for something; `missing` is the text if it is not there.
pub(super) fn looked_for(name: &str, is_there: bool, missing: &str) -> Attempt {
    tried(name, is_there.then(String::new).ok_or_else(|| io::Error::other(missing)))
}

pub(super) const LOWAT: OptionSpec =
    OptionSpec::new("lowat", OptionKind::AutoSize(1, 1 << 30), "auto")
        .help("SO_RCVLOWAT: bytes to wait for, at most the read size (auto: any)");

/// Makes receives wait for this many bytes, if given. Must not be called before a mover begins,
/// since it would also delay reading the witness page.
pub(super) fn set_lowat(flow: &Flow, bytes: Option<u64>) -> Result<(), Fault> {
    let Some(bytes) = bytes else { return Ok(()) };
    tcp::set_int(flow.fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, clamp(bytes))
        .map_err(|e| flow.fault("SO_RCVLOWAT", &e))
}

/// Converts a number to a socket option's type, limited to its maximum.
pub(super) fn clamp(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Sends a whole page; `send` sends it from an offset on.
pub(super) fn send_page(
    flow: &Flow,
    call: &str,
    mut send: impl FnMut(usize) -> io::Result<usize>,
) -> Result<(), Fault> {
    let mut sent = 0;
    while sent < WITNESS_LEN {
        sent += flow.completed(call, send(sent))?.unwrap_or(0);
    }
    Ok(())
}

/// Memory with the initial contents of the witness page.
pub(super) fn witness_page() -> Result<Region, Fault> {
    let mut page = buffer("the witness page", WITNESS_LEN as u64, false)?;
    WitnessPage::before(&mut page);
    Ok(page)
}
