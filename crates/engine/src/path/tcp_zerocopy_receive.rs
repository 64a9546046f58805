//! `tcp-zerocopy-receive`: received pages are mapped into the process instead
//! of copied (`TCP_ZEROCOPY_RECEIVE`, net/ipv4/tcp.c).
//!
//! The kernel maps a fragment only if it is exactly one page of its own: neither part of a larger
//! page nor page cache. In the same call it copies up to a page of what lies in between; the rest
//! is read with recv(2). If nothing can be mapped, the engine reads longer and longer stretches
//! with recv(2) before it tries again, so that a hopeless sender costs no more than the `socket`
//! path; the ledger distinguishes the bytes.

use super::{DataPath, HalfPath, Opened, Sum};
use crate::connection::{Connection, Flow};
use crate::workload::{Account, Call, Group, HalfConfig, Recorder, Rx, Toucher};
use bytepath_record::{Facts, Fault, Manner, OptionKind, OptionSpec, Support};
use bytepath_sys::memory::Region;
use bytepath_sys::tcp::{self, Ready};
use bytepath_sys::zerocopy::Mapping;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

pub(super) static PATH: DataPath = DataPath {
    name: "tcp-zerocopy-receive",
    summary: "pages of the receive queue mapped into the process, the rest by recv",
    attempt: |_| vec![super::tried(ATTEMPT, attempt())],
    rx: Some(HalfPath::rx(check, open).with_options(OPTIONS)),
    ..DataPath::EMPTY
};

const OPTIONS: &[OptionSpec] =
    &[OptionSpec::new("lowat", OptionKind::AutoSize(1, 1 << 30), "auto")
        .help("SO_RCVLOWAT: bytes to wait for before mapping (auto: see the docs)")];

/// Name of the attempt.
const ATTEMPT: &str = "tcp-zerocopy-receive";

const REMEDY: &str = "needs Linux 4.18 with CONFIG_MMU";

/// Bytes to wait for if the option is `auto`, at most half the read size: enough that a wake-up
/// costs little compared with mapping its pages, and few enough to leave the sender room in the
/// window while we map.
const AUTO_LOWAT: u64 = 512 << 10;

/// After a call that ended within a page, the next call is made at once if this many bytes are
/// queued: one packet, which is the most that such a call takes anyway.
const PACKET: usize = 64 << 10;

/// A call that maps less than this, and no more than it copies or leaves to be copied, was not
/// worth its cost.
const WORTH: usize = 32 << 10;

/// Fruitless calls in a row after which recv reads more than it must.
const TRIES: u32 = 4;

/// Maximum number of bytes that recv reads between two tries: a try costs less than a thousandth of
/// copying this much.
const LONGEST_STRETCH: usize = 4 << 20;

/// Bytes that recv reads before the first retry, once tries are fruitless.
const SHORTEST_STRETCH: usize = 128 << 10;

/// Share of mapped bytes below which a note explains what mapping requires.
const NEARLY_ALL: f64 = 0.95;

fn check(job: &HalfConfig, facts: &Facts) -> Support {
    super::fits(mappable(job.read_size))
        .and(super::reads_into_kernel_memory(job, PATH.name))
        .and(super::waits_within_messages(job, job.options.number("lowat")))
        .and(facts.require(ATTEMPT, REMEDY))
}

/// Errors if this many bytes cannot be mapped at once.
fn mappable(size: u64) -> Result<(), Fault> {
    let page = rustix::param::page_size() as u64;
    if (page..=LARGEST_READ).contains(&size) {
        return Ok(());
    }
    Err(Fault::usage(format!("tcp-zerocopy-receive cannot map {size} bytes at once"))
        .remedy(format!("choose a read size of {page} (one page) to {LARGEST_READ} bytes")))
}

fn open(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Rx> {
    let (flow, size) = (connection.kernel()?, job.read_size);
    mappable(size)?;
    let mapping = Mapping::new(flow.fd(), size as usize)
        .map_err(|e| flow.fault("mapping the receive queue", &e).remedy(REMEDY))?;
    // If each message is answered, waiting for more bytes could deadlock.
    let auto = if job.batch > 1 { AUTO_LOWAT.min(size / 2) } else { 1 };
    let lowat = job.options.number("lowat").unwrap_or(auto).min(size);
    Ok(Box::new(Receiver {
        mapping,
        buffer: super::buffer("the read buffer", size, false)?,
        toucher: Toucher::new(job.touch, job.message_size),
        lowat: lowat as usize,
        counts: Counts::default(),
        stretch: Stretch::default(),
        plain: 0,
        flow,
    }))
}

/// Maximum number of bytes that can be mapped at once; the kernel's length field has 32 bits.
const LARGEST_READ: u64 = 1 << 30;

struct Receiver {
    flow: Flow,
    mapping: Mapping,
    /// Where recv puts what cannot be mapped.
    buffer: Region,
    toucher: Toucher,
    lowat: usize,
    counts: Counts,
    stretch: Stretch,
    /// Bytes to read with recv before the next try.
    plain: usize,
}

/// Bytes by how they were received.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    mapped: Sum,
    leftover: Sum,
    by_recv: Sum,
}

const MAP: Call = Call(0, "getsockopt(zerocopy)");
const RECV: Call = Call(1, "recv");
const POLL: Call = Call(2, "poll");

impl Rx for Receiver {
    fn begin(&mut self) -> Result<(), Fault> {
        super::set_lowat(&self.flow, Some(self.lowat as u64))
    }

    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        if self.plain > 0 {
            match self.read(recorder, self.plain, 0)? {
                Read::Bytes(n) => self.plain -= n,
                Read::Nothing => {}
                Read::End => return self.flow.confirm_end().map(|()| false),
            }
            return Ok(true);
        }
        if self.mapping.queued < self.enough() {
            self.await_bytes(recorder)?;
        }
        if self.map(recorder)? {
            let (mapped, copied) = (self.mapping.mapped().len(), self.mapping.copied().len());
            self.plain = self.stretch.after(mapped, copied, self.mapping.skip);
            return Ok(true);
        }
        // Nothing is queued although poll reported it, or the kernel returned EIO:
        // only recv distinguishes the end, an error and a false alarm.
        match self.read(recorder, self.buffer.len(), libc::MSG_DONTWAIT)? {
            Read::End => self.flow.confirm_end().map(|()| false),
            Read::Bytes(_) | Read::Nothing => Ok(true),
        }
    }

    fn wait(&mut self, timeout: Duration) -> Option<Result<bool, Fault>> {
        Some(self.flow.wait(timeout))
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        Ok(self.sums())
    }
}

/// Outcome of a recv.
enum Read {
    Bytes(usize),
    Nothing,
    End,
}

impl Receiver {
    /// Bytes that must be queued for the next call to be worthwhile. If the last call took all
    /// there was, it pays to let much accumulate; if it ended because a packet ended inside a page,
    /// waiting gains nothing.
    #[inline]
    fn enough(&self) -> usize {
        let interrupted = !self.mapping.copied().is_empty() || self.mapping.skip > 0;
        if interrupted { self.lowat.min(PACKET) } else { self.lowat }
    }

    /// Maps what is queued and delivers it. False if there was nothing.
    #[inline]
    fn map(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let fd = self.flow.fd();
        match recorder.timed(MAP, || self.mapping.receive(fd)) {
            Ok(0) => return Ok(self.mapping.skip > 0),
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(false),
            Err(e) if e.raw_os_error() == Some(libc::EIO) => return Ok(false),
            Err(e) => return Err(self.flow.fault("TCP_ZEROCOPY_RECEIVE", &e)),
        }
        let Counts { mapped, leftover, .. } = &mut self.counts;
        for (bytes, count) in [(self.mapping.mapped(), mapped), (self.mapping.copied(), leftover)] {
            if !bytes.is_empty() {
                self.toucher.deliver(bytes, bytes.len(), recorder)?;
                count.enter(bytes.len());
            }
        }
        Ok(true)
    }

    /// Reads at most `want` bytes with recv and delivers them.
    #[inline]
    fn read(&mut self, recorder: &mut Recorder, want: usize, flags: i32) -> Result<Read, Fault> {
        let (fd, want) = (self.flow.fd(), want.min(self.buffer.len()));
        let buffer = &mut self.buffer[..want];
        match recorder.timed(RECV, || tcp::recv(fd, buffer, flags)) {
            Ok(0) => Ok(Read::End),
            Ok(n) => {
                self.toucher.deliver(&buffer[..n], n, recorder)?;
                self.counts.by_recv.enter(n);
                Ok(Read::Bytes(n))
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(Read::Nothing)
            }
            Err(e) => Err(self.flow.fault("recv", &e)),
        }
    }

    /// Sleeps until `lowat` bytes are queued, the window is full, or the stream ends.
    #[inline]
    fn await_bytes(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let fd = self.flow.fd();
        let waited = recorder.timed_with(POLL, || tcp::wait(fd, Ready::IN, None), |_| 0);
        self.flow.completed("poll", waited).map(drop)
    }

    fn sums(&self) -> Account {
        let Counts { mapped, leftover, by_recv } = self.counts;
        let mut account = Account::default();
        let ledger = &mut account.ledger;
        mapped.report(ledger, Manner::NotCopied, "TCP_ZEROCOPY_RECEIVE mapped length");
        let source = "TCP_ZEROCOPY_RECEIVE copied length: pieces of pages";
        leftover.report(ledger, Manner::Copied, source);
        let source = "recv(2): bytes that could not be mapped";
        by_recv.report(ledger, Manner::Copied, source);
        let share = ledger.not_copied_share();
        if ledger.delivered > 0 && share < NEARLY_ALL {
            account.notes.push(format!(
                "{:.1} % could be mapped: that requires packets whose payload \
                 is whole pages (MTU 4148 for 4 KiB) and a sender whose bytes lie in \
                 separate pages (splice, msg-zerocopy)",
                share * 100.0
            ));
        }
        account
    }
}

/// Decides how far recv reads between two tries to map.
#[derive(Debug, Default)]
struct Stretch {
    fruitless: u32,
    /// The last stretch was long, so it most likely ended inside a page, where
    /// nothing can be mapped before the next packet begins.
    misaligned: bool,
}

impl Stretch {
    /// Returns how many bytes to read with recv after a call that mapped `mapped`, copied `copied`
    /// and left `skip` to be copied: just `skip`, until mapping has proved fruitless; then twice as
    /// much after each try.
    #[inline]
    fn after(&mut self, mapped: usize, copied: usize, skip: usize) -> usize {
        let unmapped = copied + skip;
        if unmapped == 0 || mapped > unmapped || mapped >= WORTH {
            *self = Stretch::default();
            return skip;
        }
        if std::mem::take(&mut self.misaligned) {
            return skip;
        }
        self.fruitless = self.fruitless.saturating_add(1);
        if self.fruitless <= TRIES {
            return skip;
        }
        self.misaligned = true;
        let doublings = (self.fruitless - TRIES - 1).min(16);
        skip.max((SHORTEST_STRETCH << doublings).min(LONGEST_STRETCH))
    }
}

/// Maps the empty queue of a loopback connection. If loopback is down, only tests whether a socket
/// can be mapped at all.
fn attempt() -> io::Result<String> {
    const LEN: usize = 1 << 20;
    match tcp::loopback_pair() {
        Ok((_tx, rx)) => {
            Mapping::new(rx.as_fd(), LEN)?.receive(rx.as_fd())?;
            Ok("on a loopback connection".into())
        }
        Err(e) => {
            Mapping::new(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.as_fd(), LEN)?;
            Ok(format!("the mapping; not received, because there is no loopback connection: {e}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backs_off_after_failures_and_resets_on_success() {
        let mut stretch = Stretch::default();
        for _ in 0..TRIES {
            assert_eq!(stretch.after(0, 4096, 60_000), 60_000);
        }
        assert_eq!(stretch.after(0, 4096, 60_000), SHORTEST_STRETCH);
        // Inside a packet: reads to its end before judging the try.
        assert_eq!(stretch.after(0, 4096, 26_000), 26_000);
        assert_eq!(stretch.after(4096, 4096, 0), 2 * SHORTEST_STRETCH);
        for _ in 0..100 {
            assert!(stretch.after(0, 0, 1) <= LONGEST_STRETCH);
        }
        assert_eq!(stretch.after(WORTH, 0, WORTH), WORTH);
        assert_eq!(stretch.after(0, 0, 100), 100);
        assert_eq!(stretch.after(4096, 0, 100), 100);
        assert_eq!(stretch.after(4096, 0, 0), 0);
    }

    #[test]
    fn copied_packets_count_as_failures() {
        let mut stretch = Stretch::default();
        for _ in 0..TRIES {
            assert_eq!(stretch.after(0, 1448, 0), 0);
        }
        assert_eq!(stretch.after(0, 1448, 0), SHORTEST_STRETCH);
        // Whole pages with part of a page between packets do not count as failures.
        let mut stretch = Stretch::default();
        for _ in 0..100 {
            assert_eq!(stretch.after(0, 3000, 0), 0);
            assert_eq!(stretch.after(57_344, 1096, 0), 0);
        }
    }
}
