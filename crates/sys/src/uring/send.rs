//! Sending: operations that refer to one piece of memory owned by the ring. io_uring_prep_send(3),
//! io_uring_prep_send_zc(3), io_uring_prep_send_bundle(3).

use super::group::{BufferGroup, GROUP};
use super::{BUNDLE, BusyPoll, Core, NOTIFIES, RingMode};
use crate::memory::Region;
use io_uring::squeue::Flags;
use io_uring::{opcode, types};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Makes the kernel continue a short send until all bytes are queued, so that a chain of sends
/// keeps its order.
const WHOLE: i32 = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;

/// `IORING_SEND_ZC_REPORT_USAGE` (Linux 6.2): the notification reports whether the kernel copied
/// after all.
const REPORT_USAGE: u16 = 1 << 3;

/// `IORING_NOTIF_USAGE_ZC_COPIED`: the top bit of a notification's result.
const COPIED: i32 = i32::MIN;

/// The outcome of sends.
#[derive(Debug)]
pub enum SendEvent {
    /// A send has ended, or has made progress.
    Sent {
        /// The caller's name for the send.
        tag: u64,
        /// Bytes queued at the socket. ECANCELED: an earlier one of its chain failed.
        result: io::Result<u32>,
        /// True if another event with this name will follow.
        more: bool,
    },
    /// The kernel no longer refers to the memory of a zero-copy send. May come
    /// before the send's own event.
    Notified {
        /// The caller's name for the send.
        tag: u64,
        /// True if at least part of it was copied on the way.
        copied: bool,
    },
}

/// A ring that sends parts of its memory to one stream socket.
pub struct SendRing {
    core: Core,
    len: usize,
    fixed: bool,
    bundle: Option<Bundle>,
    /// Flags of plain sends.
    flags: i32,
}

/// The buffers of sends of bundles.
struct Bundle {
    group: BufferGroup,
    /// The part of the memory that each buffer refers to.
    part: Range<usize>,
    buffers: u16,
    /// Number of buffers that the kernel may not have taken yet: never more than there is room for,
    /// so that none is overwritten while the kernel reads it.
    provided: u16,
}

/// Index of the memory in `Core::kept`.
const MEMORY: usize = 0;

impl SendRing {
    /// Makes a ring for the socket which sends from `memory`, up to `depth` operations at once. Up
    /// to `notifications` may be outstanding before completions have to be taken.
    pub fn new(
        socket: BorrowedFd,
        memory: Region,
        depth: u32,
        notifications: u32,
    ) -> io::Result<Self> {
        // Two completions for each zero-copy send, and a few for cancelling.
        let mut core =
            Core::new(&[socket], depth, 2 * depth + notifications + 4, RingMode::default())?;
        let len = memory.len();
        let place = core.keep(memory);
        debug_assert_eq!(place, MEMORY);
        Ok(SendRing { core, len, fixed: false, bundle: None, flags: WHOLE })
    }

    /// Makes plain sends queue what there is room for, as send(2) does, rather than everything: a
    /// kernel TLS socket refuses `MSG_WAITALL`. A short send then no longer cancels those linked to
    /// it.
    pub fn send_in_parts(&mut self) {
        self.flags = libc::MSG_NOSIGNAL;
    }

    /// Registers the memory as fixed buffer 0, so that zero-copy sends need not look up its pages.
    /// ENOMEM: above `RLIMIT_MEMLOCK`. EFAULT: above 1 GiB.
    pub fn fix_memory(&mut self) -> io::Result<()> {
        let base = self.core.kept[MEMORY].as_ptr().cast_mut().cast();
        let part = libc::iovec { iov_base: base, iov_len: self.len };
        // SAFETY: the region is kept until after the ring is closed, and the kernel pins its pages
        // as well.
        unsafe { self.core.ring.uring.submitter().register_buffers(&[part])? };
        self.fixed = true;
        Ok(())
    }

    /// Makes a buffer ring for bundles of up to `buffers` messages (1 to 32768), each of which is
    /// the same part of the memory. EINVAL: the part is empty or not within the memory, or the
    /// kernel has no buffer rings.
    pub fn make_group(&mut self, buffers: u16, part: Range<usize>) -> io::Result<()> {
        if part.is_empty() || buffers == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.locate(part.clone())?;
        let group = BufferGroup::new(&mut self.core, buffers, false)?;
        self.bundle = Some(Bundle { group, part, buffers, provided: 0 });
        Ok(())
    }

    /// Has the kernel count waits as iowait if `wanted`; otherwise they are left out, if the kernel
    /// supports that (Linux 6.15).
    pub fn count_iowait(&mut self, wanted: bool) {
        self.core.ring.count_iowait(wanted);
    }

    /// Makes waits poll devices. EINVAL: before Linux 6.9, or 6.13 with a list of queues;
    /// EOPNOTSUPP: without `CONFIG_NET_RX_BUSY_POLL`.
    pub fn busy_poll(&mut self, polling: &BusyPoll) -> io::Result<()> {
        self.core.ring.busy_poll(polling)
    }

    /// Binds the ring to the calling thread; see the module's documentation.
    pub fn activate(&self) -> io::Result<()> {
        self.core.ring.activate()
    }

    /// The memory. Bytes that are changed while a send refers to them may be sent in either
    /// version.
    pub fn memory_mut(&mut self) -> &mut [u8] {
        &mut self.core.kept[MEMORY]
    }

    /// Queues the send of a part of the memory (`IORING_OP_SEND`). A send that
    /// is `linked` holds back the one queued after it until it has succeeded
    /// in full. EINVAL: the part is not within the memory; EBUSY: the queue is full.
    pub fn send(&mut self, part: Range<usize>, tag: u64, linked: bool) -> io::Result<()> {
        let (address, len) = self.locate(part)?;
        let entry = opcode::Send::new(types::Fixed(0), address, len).flags(self.flags).build();
        let entry = entry.user_data(tag & !(NOTIFIES | BUNDLE)).flags(link(linked));
        // SAFETY: `locate` checked that the part lies within the region.
        unsafe { self.core.push(&entry) }
    }

    /// Queues a zero-copy send of a part of the memory (`IORING_OP_SEND_ZC`), which is followed by
    /// a notification. Otherwise like [`SendRing::send`].
    pub fn send_zc(&mut self, part: Range<usize>, tag: u64, linked: bool) -> io::Result<()> {
        let (address, len) = self.locate(part)?;
        let entry = opcode::SendZc::new(types::Fixed(0), address, len)
            .buf_index(self.fixed.then_some(0))
            .flags(WHOLE)
            .zc_flags(REPORT_USAGE)
            .build();
        let entry = entry.user_data(tag & !BUNDLE | NOTIFIES).flags(link(linked));
        // SAFETY: as above.
        unsafe { self.core.push(&entry) }
    }

    /// Fills the buffer ring and queues one send of its contents (`IORING_RECVSEND_BUNDLE`, Linux
    /// 6.10). A message that was sent in part counts as taken. The result is ENOBUFS if another
    /// send has emptied the ring. EINVAL: there is no buffer ring; EBUSY: the queue is full.
    pub fn send_bundle(&mut self, tag: u64) -> io::Result<()> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let part = self.bundle.as_ref().ok_or_else(invalid)?.part.clone();
        let (address, len) = self.locate(part)?;
        let bundle = self.bundle.as_mut().ok_or_else(invalid)?;
        while bundle.provided < bundle.buffers {
            // SAFETY: the part lies within the region, and the kernel only reads it.
            unsafe { bundle.group.provide(&self.core, address as u64, len, bundle.provided) };
            bundle.provided += 1;
        }
        let entry = opcode::SendBundle::new(types::Fixed(0), GROUP).flags(WHOLE).build();
        let entry = entry.user_data(tag & !NOTIFIES | BUNDLE);
        // SAFETY: the operation reads only buffers that were put into the group.
        unsafe { self.core.push(&entry) }
    }

    fn locate(&self, part: Range<usize>) -> io::Result<(*const u8, u32)> {
        let wrong = || io::Error::from_raw_os_error(libc::EINVAL);
        if part.start > part.end || part.end > self.len {
            return Err(wrong());
        }
        let len = u32::try_from(part.len()).map_err(|_| wrong())?;
        Ok((self.core.kept[MEMORY].as_ptr().wrapping_add(part.start), len))
    }

    /// Submits what is queued and waits for `want` events (io_uring_enter(2)). Returns the bytes
    /// they report; [`SendRing::event`] hands out the events.
    pub fn enter(&mut self, want: u32) -> io::Result<usize> {
        self.core.enter(want)
    }

    /// Waits at most `timeout` for an event, and submits nothing.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.core.wait(timeout)
    }

    /// Returns the next event, or `None` if `enter` has to be called again.
    #[inline]
    pub fn event(&mut self) -> Option<SendEvent> {
        let completion = self.core.take()?;
        let tag = completion.data & !(NOTIFIES | BUNDLE);
        if completion.data & BUNDLE != 0
            && let (Some(bundle), Ok(bytes)) = (&mut self.bundle, completion.bytes())
        {
            let taken = (bytes as usize).div_ceil(bundle.part.len());
            bundle.provided -= u16::try_from(taken).unwrap_or(u16::MAX).min(bundle.provided);
        }
        Some(if completion.notification() {
            SendEvent::Notified { tag, copied: completion.result & COPIED != 0 }
        } else {
            SendEvent::Sent { tag, result: completion.bytes(), more: completion.more() }
        })
    }

    /// Number of buffers of the group that the kernel may not have taken yet.
    #[cfg(test)]
    pub(super) fn provided(&self) -> u16 {
        self.bundle.as_ref().map_or(0, |bundle| bundle.provided)
    }

    /// Number of operations that have not ended, queued ones included.
    pub fn operations(&self) -> u32 {
        self.core.operations
    }

    /// Number of notifications still outstanding.
    pub fn notifications(&self) -> u32 {
        self.core.notifications.max(0) as u32
    }

    /// Cancels all sends, but does not wait for notifications; to be called by the ring's thread
    /// before it abandons a stream.
    pub fn cancel(&mut self) {
        self.core.cancel();
    }
}

fn link(linked: bool) -> Flags {
    if linked { Flags::IO_LINK } else { Flags::empty() }
}
