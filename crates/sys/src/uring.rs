//! io_uring for sockets, one ([`SendRing`], [`RecvRing`]) or many ([`ManyRing`]): rings that send
//! from memory they own and receive into memory they own. io_uring(7), io_uring_setup(2),
//! io_uring_enter(2), io_uring_register(2).
//!
//! # Why this is safe to call
//!
//! The kernel reads and writes an operation's memory long after the call that requested the
//! operation, so that memory must outlive it whatever the caller does. Every ring here owns all
//! memory that its operations refer to, callers name parts of it by offset, and it is freed only
//! after the kernel has reported the end of every operation. If that is not possible (a ring is
//! dropped by a thread other than the one it is bound to, while operations are in flight), the
//! memory is leaked instead. Notifications of zero-copy sends are the one exception: they may stay
//! outstanding, because the kernel itself holds references to those pages.
//!
//! # Threads
//!
//! A ring is made disabled, may be moved, and is bound for good to the thread that calls `activate`
//! (`IORING_SETUP_R_DISABLED`, `SINGLE_ISSUER`, `DEFER_TASKRUN`): completions are then processed
//! only inside io_uring_enter(2), so no interrupt on behalf of io_uring goes unaccounted. Rings for
//! many sockets can be driven in other ways ([`RingMode`]).

mod attempt;
mod buffers;
mod group;
mod many;
mod recv;
mod send;
mod workers;
pub mod zcrx;

pub use attempt::{
    Features, features, try_buffer_ring, try_busy_poll, try_polled, try_read_multishot,
    try_recv_multishot, try_send_bundle, try_send_zc,
};
pub use buffers::RecvShape;
pub use many::{ManyEvent, ManyRing};
pub use recv::{Arrival, RecvRing};
pub use send::{SendEvent, SendRing};
pub use workers::pin_workers;

use super::memory::Region;
use io_uring::types::{CancelBuilder, Napi, NapiTracking, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, squeue};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// True if the call that returned this error should simply be repeated: it was interrupted by a
/// signal (EINTR), or completions have to be consumed first (EBUSY).
pub fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY))
}

/// How long to wait for cancelled operations to end. Cancelling a socket operation takes
/// microseconds; the limit only keeps a bug from becoming a hang.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// Set in the user data of operations that also post a notification.
const NOTIFIES: u64 = 1 << 63;
/// Set in the user data of sends that pick their buffers from a group.
const BUNDLE: u64 = 1 << 62;

/// Set in the user data of operations whose result is a descriptor.
const DESCRIPTOR: u64 = 1 << 60;

/// One completion queue entry.
#[derive(Clone, Copy, Debug)]
struct Completion {
    data: u64,
    result: i32,
    flags: u32,
}

impl Completion {
    /// Returns the number of bytes, or the error the operation ended with.
    fn bytes(&self) -> io::Result<u32> {
        u32::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(-self.result))
    }

    /// Returns the descriptor that the operation opened, or its error.
    ///
    /// # Safety
    ///
    /// The operation opens descriptors ([`DESCRIPTOR`]), and nothing else takes ownership of this
    /// one.
    unsafe fn descriptor(&self) -> io::Result<OwnedFd> {
        self.bytes()?;
        // SAFETY: by the caller's promise it is open and has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(self.result) })
    }

    fn more(&self) -> bool {
        cqueue::more(self.flags)
    }

    fn notification(&self) -> bool {
        cqueue::notif(self.flags)
    }
}

/// What all rings have in common: the ring with its registered sockets, the memory that operations
/// refer to, and the number of operations in flight.
struct Core {
    // Dropped before `kept`: no new operation can begin on memory that has been freed.
    ring: SocketRing<cqueue::Entry>,
    kept: Vec<Region>,
    gathered: VecDeque<Completion>,
    operations: u32,
    /// Number of operations ever queued.
    queued: u64,
    /// Descriptors to be closed by the operation with this number in the order of queueing, kept
    /// here as long as that operation may not have begun.
    closing: VecDeque<(u64, OwnedFd)>,
    /// Notifications announced minus notifications received: negative while one has overtaken the
    /// completion that announces it.
    notifications: i64,
}

impl Core {
    /// Makes a disabled ring for up to `entries` submissions at once, with the sockets registered
    /// as files from 0 on.
    fn new(
        sockets: &[BorrowedFd],
        entries: u32,
        completions: u32,
        mode: RingMode,
    ) -> io::Result<Self> {
        let ring = SocketRing::new(setup(entries, completions, mode)?, sockets)?;
        let gathered = VecDeque::with_capacity(ring.uring.params().cq_entries() as usize);
        let (kept, closing) = (Vec::with_capacity(2), VecDeque::new());
        Ok(Core { ring, kept, gathered, operations: 0, queued: 0, closing, notifications: 0 })
    }

    /// Keeps `memory` until the ring is closed, and returns its index in `kept`.
    fn keep(&mut self, memory: Region) -> usize {
        self.kept.push(memory);
        self.kept.len() - 1
    }

    /// Queues an operation; the kernel sees it at the next `enter`.
    ///
    /// # Safety
    ///
    /// All memory the entry refers to lies in a region of `self.kept` and, if
    /// the kernel may write it, is not referred to by any Rust reference until
    /// the operation's completion has been taken.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: by the caller's promise.
        unsafe { self.push_all(std::slice::from_ref(entry)) }
    }

    /// Like [`Core::push`], for several operations: all of them are queued, or none.
    ///
    /// # Safety
    ///
    /// Same as for [`Core::push`].
    unsafe fn push_all(&mut self, entries: &[squeue::Entry]) -> io::Result<()> {
        // SAFETY: the caller vouches for the memory and the files.
        unsafe { self.ring.push(entries) }?;
        self.operations += entries.len() as u32;
        self.queued += entries.len() as u64;
        Ok(())
    }

    /// Lets the operation queued last close `descriptor`, which stays ours until that operation
    /// begins.
    fn defer_close(&mut self, descriptor: OwnedFd) {
        self.hand_over();
        self.closing.push_back((self.queued, descriptor));
    }

    /// Gives up ownership of descriptors whose close has begun.
    fn hand_over(&mut self) {
        let begun = self.queued - self.ring.uring.submission().len() as u64;
        while self.closing.front().is_some_and(|(number, _)| *number <= begun) {
            let _ = self.closing.pop_front().map(|(_, closed)| closed.into_raw_fd());
        }
    }

    /// The one place where io_uring_enter(2) is called while bytes flow: submits what is queued,
    /// waits for `want` completions, and takes all that are available. Returns the bytes they
    /// report.
    fn enter(&mut self, want: u32) -> io::Result<usize> {
        let entered = self.ring.enter(want);
        let bytes = self.gather();
        entered.map(|_| bytes)
    }

    /// With a submitting kernel thread that is awake, takes the completions it has posted
    /// meanwhile, without a system call.
    #[inline]
    fn poll(&mut self) {
        if self.ring.polled && !self.ring.uring.submission().need_wakeup() {
            self.gather();
        }
    }

    /// Waits at most `timeout` for one completion and submits nothing. ETIME is not an error. Needs
    /// `IORING_FEAT_EXT_ARG` (Linux 5.11).
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let waited = self.ring.wait(timeout);
        self.gather();
        waited
    }

    /// Like [`Core::enter`], with limits on the wait; reaching the time limit is not an error.
    fn enter_within(&mut self, wait: &Wait) -> io::Result<usize> {
        let entered = self.ring.enter_within(wait);
        let bytes = self.gather();
        entered.map(|()| bytes)
    }

    /// Moves completions out of the kernel's queue; returns the bytes they report.
    fn gather(&mut self) -> usize {
        let mut bytes = 0;
        let room = self.gathered.capacity() - self.gathered.len();
        for entry in self.ring.uring.completion().take(room) {
            let (data, result, flags) = (entry.user_data(), entry.result(), entry.flags());
            let completion = Completion { data, result, flags };
            if completion.notification() {
                self.notifications -= 1;
            } else {
                bytes += if data & DESCRIPTOR == 0 { result.max(0) as usize } else { 0 };
                // The first completion of a zero-copy send ends the operation, and its flags show
                // whether a notification will follow; other operations continue as long as their
                // completions are flagged so.
                if data & NOTIFIES != 0 {
                    self.operations -= 1;
                    self.notifications += i64::from(completion.more());
                } else if !completion.more() {
                    self.operations -= 1;
                }
            }
            self.gathered.push_back(completion);
        }
        bytes
    }

    fn take(&mut self) -> Option<Completion> {
        self.gathered.pop_front()
    }

    /// Drops the completions that have been posted, and closes the descriptors they opened.
    fn discard(&mut self) {
        self.gather();
        for completion in self.gathered.drain(..).filter(|one| one.data & DESCRIPTOR != 0) {
            // SAFETY: the completion was removed from the queue, so nothing else takes its
            // descriptor.
            drop(unsafe { completion.descriptor() });
        }
    }

    /// Cancels all operations in flight and waits until the kernel is done with them; returns true
    /// if it is. Completions posted meanwhile are dropped.
    fn cancel(&mut self) -> bool {
        // Queued operations never begin, unless a kernel thread submits.
        let queued = |core: &mut Core| match core.ring.polled {
            true => 0,
            false => core.ring.uring.submission().len() as u32,
        };
        self.discard();
        let begin = Instant::now();
        while self.operations > queued(self) && begin.elapsed() < CANCEL_TIMEOUT {
            let limit = Some(Timespec::from(CANCEL_TIMEOUT));
            // ENOENT: nothing was found to cancel; completions may still have to be taken. EEXIST:
            // this is not the ring's own thread.
            match self.ring.uring.submitter().register_sync_cancel(limit, CancelBuilder::any()) {
                Err(e) if e.raw_os_error() == Some(libc::EEXIST) => return false,
                _ => {}
            }
            let waited = self.wait(Duration::from_millis(10));
            self.discard();
            if waited.is_err() {
                return false;
            }
        }
        self.operations == queued(self)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let is_over = self.cancel();
        // Operations still queued never begin: the descriptors they would close are closed with the
        // ring.
        self.hand_over();
        if !is_over {
            std::mem::forget(std::mem::take(&mut self.kept));
        }
        if !is_over && self.ring.polled {
            // A submitting kernel thread may still begin those operations.
            std::mem::forget(std::mem::take(&mut self.closing));
        }
        // Otherwise the kernel would release these only some time after the ring is closed: the
        // next ring would find its memory still charged, and the peer would have to wait for the
        // socket to close. Errors mean that there is nothing to release.
        let _ = self.ring.uring.submitter().unregister_buffers();
        let _ = self.ring.uring.submitter().unregister_files();
    }
}

/// How long a ring waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Completions to wait for.
    pub want: u32,
    /// Longest time to wait; `None` if there is no limit.
    pub limit: Option<Duration>,
    /// How long to wait for all of `want`; after that a single completion is enough
    /// (`IORING_FEAT_MIN_TIMEOUT`, Linux 6.12). Zero: wait for all of them up to `limit`.
    pub gather: Duration,
}

/// How a ring's waits poll device queues before they sleep. io_uring_register_napi(3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyPoll {
    pub microseconds: u32,
    /// Whether the queues' interrupts stay off meanwhile.
    pub prefer: bool,
    /// NAPI instances; `None` for those from which the sockets of waiting operations receive.
    pub queues: Option<Vec<u32>>,
}

/// `struct io_uring_getevents_arg` (include/uapi/linux/io_uring.h).
#[repr(C)]
struct GetEvents {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_microseconds: u32,
    timespec: u64,
}

/// Which thread submits the operations of a ring, and where their completions are processed.
/// io_uring_setup(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RingMode {
    /// The ring's thread; the best of the next three modes that the kernel supports.
    #[default]
    Best,
    /// Only the ring's thread, which processes completions only inside io_uring_enter(2)
    /// (`SINGLE_ISSUER`, `DEFER_TASKRUN`; Linux 6.1).
    Deferred,
    /// The ring's thread, which processes completions at its next system call of any kind
    /// (`COOP_TASKRUN`, Linux 5.19).
    Cooperative,
    /// The ring's thread, which is interrupted to process completions.
    Interrupted,
    /// A kernel thread, which polls for operations on this CPU (`None`: on any), and sleeps after a
    /// second without work (`SQPOLL`; Linux 5.11 without privilege).
    Polled { cpu: Option<u32> },
}

/// A ring with sockets registered as files from 0 on, for either size of completions.
struct SocketRing<C: cqueue::EntryMarker> {
    uring: IoUring<squeue::Entry, C>,
    /// Flags of each wait for completions.
    wait_flags: EnterFlags,
    /// Whether a kernel thread submits ([`RingMode::Polled`]).
    polled: bool,
}

impl<C: cqueue::EntryMarker> SocketRing<C> {
    fn new(uring: IoUring<squeue::Entry, C>, sockets: &[BorrowedFd]) -> io::Result<Self> {
        let files: Vec<RawFd> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
        uring.submitter().register_files(&files)?;
        let wait_flags = match uring.params().is_feature_no_iowait() {
            true => EnterFlags::GETEVENTS | EnterFlags::NO_IOWAIT,
            false => EnterFlags::GETEVENTS,
        };
        let polled = uring.params().is_setup_sqpoll();
        Ok(SocketRing { uring, wait_flags, polled })
    }

    /// Has the kernel count waits as iowait if `wanted`. Otherwise they count as idle, if the
    /// kernel supports that (Linux 6.15).
    fn count_iowait(&mut self, wanted: bool) {
        if wanted {
            self.wait_flags -= EnterFlags::NO_IOWAIT;
        }
    }

    /// Makes waits poll devices. EINVAL: before Linux 6.9, or 6.13 with `queues`; EOPNOTSUPP:
    /// without `CONFIG_NET_RX_BUSY_POLL`.
    fn busy_poll(&self, polling: &BusyPoll) -> io::Result<()> {
        let tracking = match polling.queues {
            Some(_) => NapiTracking::Static,
            None => NapiTracking::Dynamic,
        };
        let napi = Napi::new()
            .set_busy_poll_timeout(polling.microseconds)
            .set_prefer_busy_poll(polling.prefer)
            .set_tracking(tracking);
        let submitter = self.uring.submitter();
        submitter.register_napi(&mut { napi })?;
        polling.queues.iter().flatten().try_for_each(|id| submitter.register_napi_add_id(*id))
    }

    /// Binds the ring to the calling thread. Must be called before the first operation; a second
    /// call does nothing.
    fn activate(&self) -> io::Result<()> {
        match self.uring.submitter().register_enable_rings() {
            // EBADFD: the ring is not disabled (any more).
            Err(e) if e.raw_os_error() != Some(libc::EBADFD) => Err(e),
            _ => Ok(()),
        }
    }

    /// Queues operations; a submitting kernel thread sees all of them or none. EBUSY: the queue has
    /// no room for them.
    ///
    /// # Safety
    ///
    /// Same as for [`io_uring::SubmissionQueue::push_multiple`].
    unsafe fn push(&mut self, entries: &[squeue::Entry]) -> io::Result<()> {
        // SAFETY: by the caller's promise.
        let pushed = unsafe { self.uring.submission().push_multiple(entries) };
        pushed.map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// Returns the number of entries to submit, and the flags of a call that submits them and waits
    /// for `want` completions. A sleeping kernel thread is woken; if `want` is 0, the call waits
    /// for room in the queue.
    fn submission(&mut self, want: u32) -> (u32, EnterFlags) {
        let queue = self.uring.submission();
        let mut flags = self.wait_flags;
        flags.set(EnterFlags::SQ_WAKEUP, self.polled && queue.need_wakeup());
        flags.set(EnterFlags::SQ_WAIT, self.polled && want == 0);
        (queue.len() as u32, flags)
    }

    /// Submits what is queued, and waits for `want` completions.
    fn enter(&mut self, want: u32) -> io::Result<usize> {
        let (submit, flags) = self.submission(want);
        // SAFETY: no argument is passed, so there is no pointer to be valid.
        unsafe { self.uring.submitter().enter::<libc::sigset_t>(submit, want, flags.bits(), None) }
    }

    /// Submits what is queued, and waits within the limits of `wait`. ETIME is not an error.
    fn enter_within(&mut self, wait: &Wait) -> io::Result<()> {
        let (submit, flags) = self.submission(wait.want);
        let limit = wait.limit.map(Timespec::from);
        let args = GetEvents {
            sigmask: 0,
            sigmask_size: 0,
            min_wait_microseconds: wait.gather.as_micros().try_into().unwrap_or(u32::MAX),
            timespec: limit.as_ref().map_or(0, |time| std::ptr::from_ref(time) as u64),
        };
        let flags = (flags | EnterFlags::EXT_ARG).bits();
        // SAFETY: `args` is the structure that EXT_ARG announces, and it and the time it points to
        // live until the call returns.
        match unsafe { self.uring.submitter().enter(submit, wait.want, flags, Some(&args)) } {
            Err(e) if e.raw_os_error() != Some(libc::ETIME) => Err(e),
            _ => Ok(()),
        }
    }

    /// Waits at most `timeout` for one completion and submits nothing (a kernel thread may). ETIME
    /// is not an error.
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let limit = Timespec::from(timeout);
        let args = SubmitArgs::new().timespec(&limit);
        let flags = (self.submission(1).1 | EnterFlags::EXT_ARG).bits();
        // SAFETY: `args` is the structure that EXT_ARG announces, and it and the time it points to
        // live until the call returns.
        match unsafe { self.uring.submitter().enter(0, 1, flags, Some(&args)) } {
            Err(e) if e.raw_os_error() != Some(libc::ETIME) && !is_transient(&e) => Err(e),
            _ => Ok(()),
        }
    }
}

/// Makes a disabled ring. EINVAL: the kernel does not support `mode`.
fn setup(entries: u32, completions: u32, mode: RingMode) -> io::Result<IoUring> {
    // Each next mode leaves out what an older kernel refuses with EINVAL.
    let modes = match mode {
        RingMode::Best => &[RingMode::Deferred, RingMode::Cooperative, RingMode::Interrupted][..],
        _ => &[mode],
    };
    let mut refusal = io::Error::from_raw_os_error(libc::EINVAL);
    for mode in modes {
        let mut builder = IoUring::builder();
        builder.setup_r_disabled().setup_cqsize(completions.max(entries)).setup_clamp();
        match mode {
            RingMode::Best | RingMode::Interrupted => {}
            RingMode::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun();
            }
            RingMode::Cooperative => {
                builder.setup_coop_taskrun();
            }
            RingMode::Polled { cpu } => {
                builder.setup_sqpoll(SQ_IDLE);
                cpu.map(|cpu| builder.setup_sqpoll_cpu(cpu));
            }
        }
        match builder.build(entries) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => refusal = e,
            other => return other,
        }
    }
    Err(refusal)
}

/// Milliseconds without work after which a submitting kernel thread sleeps: the kernel's own
/// default.
const SQ_IDLE: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    const SHAPE: RecvShape =
        RecvShape { buffers: 2, buffer_size: 4096, bundle: false, incremental: false };

    /// `None`, with the reason printed, if this host has no io_uring.
    fn here() -> Option<Features> {
        features().map_err(|e| skip!("io_uring_setup: {e}")).ok()
    }

    /// Returns a stream socket whose send queue is full, and its peer.
    fn full() -> (UnixStream, UnixStream) {
        let (socket, peer) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &socket, &[0; 4096]).is_ok() {}
        socket.set_nonblocking(false).unwrap();
        (socket, peer)
    }

    #[test]
    fn parts_outside_the_memory_are_refused() {
        let Some(_) = here() else { return };
        let (socket, _peer) = UnixStream::pair().unwrap();
        let memory = Region::new(4096, false).unwrap();
        let mut ring = SendRing::new(socket.as_fd(), memory, 1, 0).unwrap();
        let invalid = |result: io::Result<()>| {
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        };
        invalid(ring.send(0..4097, 0, false));
        invalid(ring.send_zc(4097..4098, 0, false));
        #[allow(clippy::reversed_empty_ranges)]
        invalid(ring.send(2..1, 0, false));
        invalid(ring.send_bundle(0));
        invalid(ring.make_group(1, 0..0));
        invalid(ring.make_group(1, 0..4097));
        ring.send(0..4096, 0, false).unwrap();
        let busy = ring.send(0..4096, 0, false).unwrap_err();
        assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
    }

    /// A buffer that the kernel may still read is not offered a second time.
    #[test]
    fn a_group_is_filled_as_far_as_it_was_emptied() {
        let Some(Features { bundle: true, .. }) = here() else { return };
        let (socket, peer) = UnixStream::pair().unwrap();
        let mut memory = Region::new(3000, false).unwrap();
        memory.fill(7);
        let mut ring = SendRing::new(socket.as_fd(), memory, 4, 0).unwrap();
        ring.make_group(3, 0..3000).unwrap();
        ring.activate().unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut &peer, &mut all).map(|_| all).unwrap()
        });
        let mut sent = 0;
        for _ in 0..10 {
            // The second send finds the group empty, or only what is left in it.
            ring.send_bundle(1).unwrap();
            ring.send_bundle(2).unwrap();
            assert_eq!(ring.provided(), 3);
            while ring.operations() > 0 {
                ring.enter(1).unwrap();
            }
            let before = sent;
            while let Some(SendEvent::Sent { result, .. }) = ring.event() {
                sent += result.unwrap_or(0) as usize;
            }
            let taken = (sent - before).div_ceil(3000).min(3) as u16;
            assert_eq!(ring.provided(), 3 - taken);
        }
        drop((ring, socket));
        let got = reader.join().unwrap();
        assert_eq!((got.len(), got.iter().all(|byte| *byte == 7)), (sent, true));
        assert!(sent >= 10 * 3000, "{sent}");
    }

    #[test]
    fn a_completion_larger_than_its_buffer_is_refused() {
        let Some(_) = here() else { return };
        let (socket, _peer) = UnixStream::pair().unwrap();
        let mut ring = RecvRing::new(socket.as_fd(), SHAPE).unwrap();
        let completion = |result| Completion { data: 0, result, flags: 1 };
        assert!(ring.buffers.begin(&completion(4096)).is_ok());
        assert!(ring.buffers.begin(&completion(4097)).is_err());
    }

    #[test]
    fn shapes_out_of_range_are_refused() {
        let Some(_) = here() else { return };
        let (socket, _peer) = UnixStream::pair().unwrap();
        for shape in [
            RecvShape { buffers: 0, ..SHAPE },
            RecvShape { buffers: 40_000, ..SHAPE },
            RecvShape { buffer_size: 0, ..SHAPE },
            RecvShape { buffer_size: u32::MAX, ..SHAPE },
        ] {
            let error = RecvRing::new(socket.as_fd(), shape).err().unwrap();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{shape:?}");
        }
    }

    #[test]
    fn a_send_under_way_is_cancelled_and_the_peer_sees_no_more_of_it() {
        let Some(_) = here() else { return };
        let (socket, peer) = full();
        let mut memory = Region::new(1 << 20, false).unwrap();
        memory.fill(7);
        let mut ring = SendRing::new(socket.as_fd(), memory, 2, 0).unwrap();
        ring.activate().unwrap();
        ring.send(0..1 << 20, 0, true).unwrap();
        ring.send(0..1 << 20, 1, false).unwrap();
        ring.enter(0).unwrap();
        assert_eq!(ring.operations(), 2);
        ring.cancel();
        assert_eq!(ring.operations(), 0);
        drop((ring, socket));
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut &peer, &mut rest).unwrap();
        assert!(rest.iter().all(|byte| *byte == 0), "something was sent after the end");
    }

    /// A ring may be dropped by a thread that cannot cancel its operations: then its memory is
    /// leaked, and the receive in flight writes to nothing else.
    #[test]
    fn a_receive_under_way_survives_its_ring() {
        let Some(Features { deferred: true, .. }) = here() else { return };
        let (socket, peer) = UnixStream::pair().unwrap();
        let mut ring = RecvRing::new(socket.as_fd(), SHAPE).unwrap();
        let ring = std::thread::spawn(move || {
            ring.activate().unwrap();
            std::io::Write::write_all(&mut &peer, b"one").unwrap();
            ring.enter().unwrap();
            assert!(matches!(ring.arrival(), Some(Arrival::Bytes(b"one"))));
            assert_eq!(ring.core.operations, 1, "a multishot receive goes on");
            (ring, peer)
        });
        let (mut ring, peer) = ring.join().unwrap();
        assert!(!ring.core.cancel(), "this thread cannot cancel");
        let address = ring.core.kept[0].as_ptr() as usize;
        drop(ring);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mapped = maps.lines().any(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-')).unwrap();
            let bound = |text| usize::from_str_radix(text, 16).unwrap();
            (bound(range.0)..bound(range.1)).contains(&address)
        });
        assert!(mapped, "the buffers are still there");
        drop(peer);
    }

    #[test]
    fn waiting_for_nothing_ends() {
        let Some(_) = here() else { return };
        let (socket, _peer) = UnixStream::pair().unwrap();
        let memory = Region::new(1, false).unwrap();
        let mut ring = SendRing::new(socket.as_fd(), memory, 1, 0).unwrap();
        ring.activate().unwrap();
        ring.wait(Duration::from_millis(1)).unwrap();
        assert!(ring.event().is_none());
    }
}
