//! A ring that receives from one socket into the area of a queue.

use super::abi::{EVENT_ALLOC_FAIL, EVENT_COPY};
use super::arrivals::{DecodedCompletion, Owed, Piece, RECEIVE, RawCompletion};
use super::register::{self, Queue, QueueShape};
use crate::uring::{Arrival, BusyPoll, CANCEL_TIMEOUT, SocketRing};
use io_uring::types::{CancelBuilder, Fixed, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a receive that finds no buffer is restarted without success before it is an error.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait before a restart: other rings give their buffers back meanwhile.
const PAUSE: Duration = Duration::from_millis(1);

/// Event counts of one ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Completions with bytes.
    pub pieces: u64,
    /// Starts of the multishot receive.
    pub arms: u64,
    /// Times the receive ended because there was no buffer to copy into.
    pub no_buffer: u64,
    /// Times the receive ended because the completion queue was full.
    pub queue_full: u64,
    /// Times that the kernel had to keep completions aside for lack of space.
    pub overflows: u64,
    /// Events: the page pool of the NIC found no buffer. Counted once per notification, however
    /// often it happened in between.
    pub alloc_failures: u64,
    /// Events: a fragment was copied. Counted in the same way.
    pub copy_events: u64,
    /// Batches of buffers that were given back.
    pub batches: u64,
    /// Buffers that were given back.
    pub returned: u64,
    /// Flushes of the refill ring.
    pub flushes: u64,
    /// Times that the refill ring had no room for all of a batch.
    pub refill_full: u64,
    /// Times that this ring waited because another one was using the refill ring.
    pub contended: u64,
}

/// A ring that receives from one stream socket into the area of a queue, which
/// it has registered or imported.
pub struct RecvZcRing {
    ring: SocketRing<cqueue::Entry32>,
    queue: Arc<Queue>,
    id: u32,
    gathered: VecDeque<RawCompletion>,
    owed: Owed,
    /// What has happened so far.
    pub counts: Counts,
    armed: bool,
    /// Events that fired and have to be armed again.
    fired: [bool; 2],
    /// Since when receives have ended without a byte, and how many did.
    barren: Option<(Instant, u32)>,
    /// Whether the queue is shared with other rings.
    shared: bool,
    /// Whether the CPU is reading the area.
    looking: bool,
}

/// A queue that other rings of this process can import.
#[derive(Debug)]
pub struct Exported {
    descriptor: OwnedFd,
    queue: Arc<Queue>,
}

impl RecvZcRing {
    /// Registers a queue and makes the ring that receives from it. `completions` is the size of its
    /// completion queue, `batch` the number of buffers given back at once. Errors are those of the
    /// registration: EPERM without `CAP_NET_ADMIN` in the initial user namespace; EOPNOTSUPP if the
    /// driver has no memory providers; EINVAL if it has, but is not set up for them, and from
    /// kernels without zero-copy receive; ENOMEM for lack of memory, huge pages, or memory that may
    /// be locked.
    pub fn register(
        socket: BorrowedFd,
        shape: QueueShape,
        completions: u32,
        batch: usize,
    ) -> io::Result<Self> {
        let ring = ring(socket, completions)?;
        let (queue, id) = Queue::register(ring.uring.as_fd(), shape)?;
        Ok(Self::new(ring, Arc::new(queue), id, batch, false))
    }

    /// Makes a ring that receives from the queue of another ring.
    pub fn import(
        socket: BorrowedFd,
        from: &Exported,
        completions: u32,
        batch: usize,
    ) -> io::Result<Self> {
        let ring = ring(socket, completions)?;
        let id = register::import(ring.uring.as_fd(), from.descriptor.as_fd())?;
        Ok(Self::new(ring, from.queue.clone(), id, batch, true))
    }

    /// Lets other rings import the queue. To be called before [`RecvZcRing::activate`] or by the
    /// thread that called it. EINVAL: not supported by the kernel (before Linux 6.19).
    pub fn export(&mut self) -> io::Result<Exported> {
        let descriptor = register::export(self.ring.uring.as_fd(), self.id)?;
        self.shared = true;
        Ok(Exported { descriptor, queue: self.queue.clone() })
    }

    fn new(
        ring: SocketRing<cqueue::Entry32>,
        queue: Arc<Queue>,
        id: u32,
        batch: usize,
        shared: bool,
    ) -> Self {
        let completions = ring.uring.params().cq_entries() as usize;
        RecvZcRing {
            owed: Owed::new(queue.reader, batch, batch.saturating_add(completions)),
            gathered: VecDeque::with_capacity(completions),
            counts: Counts::default(),
            armed: false,
            fired: [false; 2],
            barren: None,
            ring,
            queue,
            id,
            shared,
            looking: false,
        }
    }

    /// Has the kernel count waits as iowait if `wanted`; otherwise they are left out, if the kernel
    /// supports that (Linux 6.15).
    pub fn count_iowait(&mut self, wanted: bool) {
        self.ring.count_iowait(wanted);
    }

    /// Makes waits poll devices. EINVAL: before Linux 6.9, or 6.13 with a list of queues;
    /// EOPNOTSUPP: without `CONFIG_NET_RX_BUSY_POLL`.
    pub fn busy_poll(&mut self, polling: &BusyPoll) -> io::Result<()> {
        self.ring.busy_poll(polling)
    }

    /// Binds the ring to the calling thread. Must be called before the first `enter`; a second call
    /// does nothing.
    pub fn activate(&self) -> io::Result<()> {
        self.ring.activate()
    }

    /// Number of fragments that the kernel reports as copied into this queue, whichever rings share
    /// it, and their bytes. `None` if it does not count them (before Linux 7.2). The linear part of
    /// a packet is copied too, and never counted there.
    pub fn copied(&self) -> Option<(u64, u64)> {
        self.queue.copied()
    }

    /// Whether giving buffers back takes a system call.
    pub fn flushes(&self) -> bool {
        self.queue.no_device
    }

    /// Waits until something has arrived (io_uring_enter(2)), and starts the multishot receive if
    /// it is not running. Returns the number of bytes that arrived; [`RecvZcRing::arrival`] hands
    /// them out.
    pub fn enter(&mut self) -> io::Result<usize> {
        self.owed.retire();
        if !self.gathered.is_empty() {
            // No more can be held until something is given back.
            self.give_all()?;
            return Ok(0);
        }
        if self.fired != [false; 2] {
            self.arm_events()?;
        }
        if !self.armed {
            self.start()?;
        }
        if self.queue.flush && self.owed.due() {
            // A small refill ring had no room for the rest, and nothing may arrive before the NIC
            // has it.
            self.give_all()?;
        }
        if self.ring.uring.submission().cq_overflow() {
            self.counts.overflows += 1;
        }
        if std::mem::take(&mut self.looking) {
            self.queue.sync(false)?;
        }
        let entered = self.ring.enter(1);
        let bytes = self.gather();
        entered?;
        self.queue.sync(true)?;
        self.looking = true;
        Ok(bytes)
    }

    /// Returns the next arrival, in the order of the stream, or `None` if `enter` has to be called
    /// again.
    #[inline]
    pub fn arrival(&mut self) -> Option<Arrival<'_>> {
        self.owed.retire();
        if self.owed.is_full() {
            return None;
        }
        loop {
            let completion = self.gathered.pop_front()?;
            if completion.data == RECEIVE {
                self.armed &= cqueue::more(completion.flags);
            }
            match self.queue.reader.read(&completion) {
                DecodedCompletion::Bytes(piece) => return Some(self.lend(piece)),
                DecodedCompletion::End => return Some(Arrival::End),
                DecodedCompletion::NoBuffer => self.ended_starved(|counts| counts.no_buffer += 1),
                DecodedCompletion::QueueFull => self.ended_starved(|counts| counts.queue_full += 1),
                DecodedCompletion::AllocFailed => {
                    self.counts.alloc_failures += 1;
                    self.fired[EVENT_ALLOC_FAIL as usize] = true;
                }
                DecodedCompletion::FragmentCopied => {
                    self.counts.copy_events += 1;
                    // Once is enough if statistics report the rest.
                    self.fired[EVENT_COPY as usize] = self.copied().is_none();
                }
                DecodedCompletion::Failed(errno) => {
                    return Some(Arrival::Failed(io::Error::from_raw_os_error(errno)));
                }
                DecodedCompletion::Malformed => {
                    let what = format!("the kernel posted {completion:x?}");
                    let error = io::Error::new(io::ErrorKind::InvalidData, what);
                    return Some(Arrival::Failed(error));
                }
            }
        }
    }

    #[inline]
    fn lend(&mut self, piece: Piece) -> Arrival<'_> {
        // `arrival` has checked that one more can be held.
        self.owed.lend(piece);
        self.barren = None;
        self.counts.pieces += 1;
        // SAFETY: the kernel has written the piece, and writes to it again only after it was given
        // back, which takes another call of a method that borrows `self` mutably.
        match unsafe { self.queue.bytes(piece) } {
            Some(bytes) => Arrival::Bytes(bytes),
            None => Arrival::Failed(io::Error::from_raw_os_error(libc::EFAULT)),
        }
    }

    /// Whether a batch of buffers is waiting to be given back.
    #[inline]
    pub fn due(&self) -> bool {
        self.owed.due()
    }

    /// Gives back the buffers that have gathered, by a system call only if the queue has no device.
    /// If another ring is just doing so, they stay for the next turn.
    pub fn give_back(&mut self) -> io::Result<()> {
        let given = self.give(false);
        if given > 0 && self.queue.no_device {
            self.flush()?;
        }
        Ok(())
    }

    fn give(&mut self, blocking: bool) -> usize {
        let want = self.owed.returning().len();
        let given = self.queue.give(self.owed.returning(), blocking);
        match given {
            0 if want > 0 && !blocking => self.counts.contended += 1,
            _ if given < want => self.counts.refill_full += 1,
            _ => {}
        }
        self.owed.mark_returned(given);
        self.counts.batches += u64::from(given > 0);
        self.counts.returned += given as u64;
        given
    }

    fn flush(&mut self) -> io::Result<()> {
        self.counts.flushes += 1;
        register::flush(self.ring.uring.as_fd(), self.id)
    }

    /// Gives back everything, and waits for room if there is none. Returns true if there was
    /// something to give back.
    fn give_all(&mut self) -> io::Result<bool> {
        let mut some = false;
        let deadline = Instant::now() + TIMEOUT;
        while !self.owed.returning().is_empty() {
            some |= self.give(true) > 0;
            if self.queue.flush && (self.queue.no_device || !self.owed.returning().is_empty()) {
                self.flush()?;
            } else if !self.owed.returning().is_empty() {
                // The NIC takes entries as it needs buffers.
                if Instant::now() > deadline {
                    return Err(starved("the NIC takes nothing from a full refill ring"));
                }
                self.pause()?;
            }
        }
        Ok(some)
    }

    fn ended_starved(&mut self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.counts);
        let barren = self.barren.get_or_insert_with(|| (Instant::now(), 0));
        barren.1 += 1;
    }

    /// Starts the receive, once everything of ours has been given back. If receives ended for lack
    /// of buffers without a single byte, waits a little for other rings to give theirs back; it is
    /// an error if there are none for seconds.
    fn start(&mut self) -> io::Result<()> {
        let gave = self.give_all()?;
        if let Some((since, times)) = self.barren {
            if since.elapsed() > TIMEOUT {
                return Err(starved("no buffer could be had to receive into"));
            }
            if times > 1 || (!gave && self.shared) {
                self.pause()?;
            }
        }
        let entry = opcode::RecvZc::new(Fixed(0), 0).ifq(self.id).build().user_data(RECEIVE);
        // SAFETY: the operation refers to no memory but the queue's, which the
        // kernel has pinned.
        unsafe { self.ring.push(&[entry]) }?;
        self.armed = true;
        self.counts.arms += 1;
        Ok(())
    }

    fn arm_events(&mut self) -> io::Result<()> {
        for event in [EVENT_ALLOC_FAIL, EVENT_COPY] {
            if std::mem::take(&mut self.fired[event as usize]) {
                register::arm_event(self.ring.uring.as_fd(), self.id, event)?;
            }
        }
        Ok(())
    }

    /// Waits a little for a completion, and submits nothing.
    fn pause(&mut self) -> io::Result<()> {
        let waited = self.ring.wait(PAUSE);
        self.gather();
        waited
    }

    /// Moves completions out of the kernel's queue; returns the bytes they report.
    fn gather(&mut self) -> usize {
        let mut bytes = 0;
        let room = self.gathered.capacity() - self.gathered.len();
        for entry in self.ring.uring.completion().take(room) {
            let result = entry.result();
            bytes += if entry.user_data() == RECEIVE { result.max(0) as usize } else { 0 };
            self.gathered.push_back(RawCompletion {
                data: entry.user_data(),
                result,
                flags: entry.flags(),
                off: entry.big_cqe()[0],
            });
        }
        bytes
    }

    /// Number of completions lost for good, which is 0 with a kernel that keeps them aside
    /// (`IORING_FEAT_NODROP`, Linux 5.5).
    pub fn lost(&mut self) -> u32 {
        self.ring.uring.completion().overflow()
    }

    /// Entries of the refill ring that the kernel has not taken.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.queue.waiting()
    }
}

impl Drop for RecvZcRing {
    fn drop(&mut self) {
        // Otherwise the kernel would release the socket only some time after the ring is closed,
        // and the peer would have to wait for that. Memory is not at risk. Errors mean that there
        // is nothing to cancel or to release.
        if self.armed {
            let limit = Some(Timespec::from(CANCEL_TIMEOUT));
            let submitter = self.ring.uring.submitter();
            let _ = submitter.register_sync_cancel(limit, CancelBuilder::any());
        }
        let _ = self.ring.uring.submitter().unregister_files();
    }
}

fn starved(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

/// Makes a disabled ring with the socket as file 0. zcrx requires deferred task work and
/// completions of 32 bytes.
fn ring(socket: BorrowedFd, completions: u32) -> io::Result<SocketRing<cqueue::Entry32>> {
    let uring = IoUring::builder()
        .setup_r_disabled()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(completions.max(ENTRIES))
        .setup_clamp()
        .build(ENTRIES)?;
    SocketRing::new(uring, &[socket])
}

/// Most submissions at once: a ring has one operation.
const ENTRIES: u32 = 2;

#[cfg(test)]
mod tests {
    use super::super::{AreaMemory, abilities};
    use super::*;
    use crate::tcp;
    use bytepath_testing::skip;
    use std::io::Write;

    /// A ring on a queue without a device, or `None` with the reason printed.
    fn ring_of(socket: BorrowedFd, pages: usize) -> Option<RecvZcRing> {
        let can = match abilities() {
            Ok(can) if can.no_device && can.events => can,
            Ok(can) => {
                skip!("{can:?}");
                return None;
            }
            Err(e) => {
                skip!("IORING_REGISTER_QUERY: {e}");
                return None;
            }
        };
        let shape = QueueShape {
            device: None,
            area: AreaMemory::Normal(pages * rustix::param::page_size()),
            entries: 16,
            buffer: None,
            kernel_ring: false,
            abilities: Some(can),
        };
        match RecvZcRing::register(socket, shape, 64, 1) {
            Ok(ring) => Some(ring),
            Err(e) => {
                skip!("{e}");
                None
            }
        }
    }

    /// Receives this many bytes.
    fn receive(ring: &mut RecvZcRing, mut bytes: usize) {
        while bytes > 0 {
            ring.enter().unwrap();
            while let Some(arrival) = ring.arrival() {
                match arrival {
                    Arrival::Bytes(piece) => bytes -= piece.len(),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn an_event_fires_again_when_it_was_armed_again() {
        let (mut tx, rx) = tcp::loopback_pair().unwrap();
        let Some(mut ring) = ring_of(rx.as_fd(), 64) else { return };
        ring.activate().unwrap();
        let mut round = |ring: &mut RecvZcRing| {
            tx.write_all(&[1; 10_000]).unwrap();
            receive(ring, 10_000);
            // The event is posted by separate task work, which may come after the bytes.
            ring.pause().unwrap();
            assert!(ring.arrival().is_none());
            ring.counts.copy_events
        };
        assert_eq!(round(&mut ring), 1);
        assert_eq!(round(&mut ring), 1, "it fires once");
        ring.fired[EVENT_COPY as usize] = true;
        assert_eq!(round(&mut ring), 2, "and once more");
        let (fragments, bytes) = ring.copied().unwrap();
        assert!(fragments >= 3 && bytes == 30_000, "{fragments} {bytes}");
    }

    #[test]
    fn what_is_not_given_back_is_missed_and_then_flushed() {
        let (mut tx, rx) = tcp::loopback_pair().unwrap();
        let Some(mut ring) = ring_of(rx.as_fd(), 4) else { return };
        ring.activate().unwrap();
        tx.write_all(&[1; 40_000]).unwrap();
        receive(&mut ring, 40_000);
        let counts = ring.counts;
        assert!(counts.no_buffer > 0 && counts.flushes > 0, "{counts:?}");
        assert_eq!(ring.waiting(), 0, "each batch was flushed");
    }
}
