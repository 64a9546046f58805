//! Receiving: one multishot receive, or read, that takes its buffers from a ring and
//! posts a completion per arrival. io_uring_prep_recv_multishot(3),
//! io_uring_prep_read_multishot(3).

use super::group::{BufferGroup, GROUP};
use super::{Completion, Core};
use crate::memory::Region;
use io_uring::{cqueue, opcode, types};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::slice;
use std::time::Duration;

/// The parts of a receiving ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvShape {
    /// Number of buffers, 1 to 32768.
    pub buffers: u16,
    /// Bytes of each, 1 to 1 GiB.
    pub buffer_size: u32,
    /// One completion may fill several buffers
    /// (`IORING_RECVSEND_BUNDLE`, Linux 6.10).
    pub bundle: bool,
    /// A buffer is filled by several completions until it is full
    /// (`IOU_PBUF_RING_INC`, Linux 6.12).
    pub incremental: bool,
    /// By read(2) and not recv(2), of what is not a socket (Linux 6.7).
    pub read: bool,
}

#[derive(Debug)]
pub enum Arrival<'a> {
    /// The next bytes of the stream, of one buffer or piece of an area. It goes back to
    /// the kernel at the next call, or (zcrx) some time after it.
    Bytes(&'a [u8]),
    /// The receive direction is shut: by the peer, or by ourselves.
    End,
    Failed(io::Error),
}

/// A ring that receives from one stream socket, or reads what comes in messages, into buffers
/// of its own.
pub struct RecvRing {
    pub(super) core: Core,
    /// What is read: a multishot read of a registered file ends with EBADFD (Linux 6.18).
    file: Option<OwnedFd>,
    group: BufferGroup,
    shape: RecvShape,
    armed: bool,
    /// How often the receive was started.
    pub arms: u64,
    /// How often the buffers ran out.
    pub starved: u64,
    /// Bytes of the current completion that were not returned yet, and its flags.
    left: u32,
    flags: u32,
    /// The buffer that comes next, and how far it is filled. Buffers go back in
    /// the order they came, so the kernel uses them in one fixed cycle.
    next: u16,
    offset: u32,
    /// The buffer whose bytes the caller was given last.
    lent: Option<u16>,
}

/// Place of the buffers in `Core::kept`.
const BUFFERS: usize = 0;

impl RecvRing {
    /// A ring for the socket, with all memory taken and touched. EINVAL: the
    /// shape is out of range, or the kernel has no such buffer ring.
    pub fn new(socket: BorrowedFd, shape: RecvShape) -> io::Result<Self> {
        let sized =
            (1..=1 << 15).contains(&shape.buffers) && (1..=1 << 30).contains(&shape.buffer_size);
        if !sized {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // Room for a completion per buffer and the receive's own end, so that
        // the completion queue cannot overflow.
        let mut core = Core::new(&[socket], 4, u32::from(shape.buffers) + 4)?;
        let bytes = usize::from(shape.buffers) * shape.buffer_size as usize;
        let place = core.keep(Region::new(bytes, false)?);
        debug_assert_eq!(place, BUFFERS);
        let group = BufferGroup::new(&mut core, shape.buffers, shape.incremental)?;
        let file = shape.read.then(|| socket.try_clone_to_owned()).transpose()?;
        let mut ring = RecvRing {
            core,
            file,
            group,
            shape,
            armed: false,
            arms: 0,
            starved: 0,
            left: 0,
            flags: 0,
            next: 0,
            offset: 0,
            lent: None,
        };
        for id in 0..shape.buffers {
            ring.give_back(id);
        }
        Ok(ring)
    }

    /// Whether the kernel is to count waits as iowait; otherwise it is left out where the kernel
    /// can (Linux 6.15).
    pub fn count_iowait(&mut self, wanted: bool) {
        self.core.ring.count_iowait(wanted);
    }

    /// Binds the ring to the calling thread; see the module's documentation.
    pub fn activate(&self) -> io::Result<()> {
        self.core.ring.activate()
    }

    /// Waits until something has come in (io_uring_enter(2)), and starts the
    /// multishot receive where it is not running. The value is the bytes that
    /// came in; [`RecvRing::arrival`] hands them out.
    pub fn enter(&mut self) -> io::Result<usize> {
        self.take_back();
        if !self.armed {
            self.arm()?;
        }
        self.core.enter(1)
    }

    /// Waits at most this long until something has come in, as [`RecvRing::enter`] does
    /// without a limit. True where [`RecvRing::arrival`] has something to hand out.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        self.take_back();
        if !self.armed {
            self.arm()?;
            self.core.enter(0)?;
        }
        if !self.pending() {
            self.core.wait(timeout)?;
        }
        Ok(self.pending())
    }

    /// Whether something that came in has not been handed out.
    #[inline]
    pub fn pending(&self) -> bool {
        self.left > 0 || !self.core.gathered.is_empty()
    }

    fn arm(&mut self) -> io::Result<()> {
        let socket = types::Fixed(0);
        let entry = match &self.file {
            Some(file) => {
                // A length of 0 is that of the buffer.
                let file = types::Fd(file.as_raw_fd());
                opcode::ReadMulti::new(file, 0, GROUP).build()
            }
            None if self.shape.bundle => opcode::RecvMultiBundle::new(socket, GROUP).build(),
            None => opcode::RecvMulti::new(socket, GROUP).build(),
        };
        // SAFETY: the operation writes only to buffers of the group, which
        // `give_back` put there.
        unsafe { self.core.push(&entry)? };
        self.armed = true;
        self.arms += 1;
        Ok(())
    }

    /// The next thing that came in, in the order of the stream; none when
    /// `enter` has to be called again.
    #[inline]
    pub fn arrival(&mut self) -> Option<Arrival<'_>> {
        self.take_back();
        while self.left == 0 {
            let completion = self.core.take()?;
            self.armed &= completion.more();
            match completion.bytes() {
                Ok(0) => return Some(Arrival::End),
                Ok(_) => {
                    if let Err(e) = self.begin(&completion) {
                        return Some(Arrival::Failed(e));
                    }
                }
                // The buffers ran out: the receive is over, and is started
                // again once the caller has been through them all.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => self.starved += 1,
                Err(e) => return Some(Arrival::Failed(e)),
            }
        }
        Some(Arrival::Bytes(self.piece()))
    }

    /// A completion with bytes: checks that they are where they are expected.
    pub(super) fn begin(&mut self, completion: &Completion) -> io::Result<()> {
        let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        match cqueue::buffer_select(completion.flags) {
            Some(id) if id == self.next => {}
            other => {
                let next = self.next;
                return wrong(format!("the kernel filled buffer {other:?}, not {next}"));
            }
        }
        let bytes = completion.result as u32;
        let buffers = if self.shape.bundle { self.shape.buffers } else { 1 };
        let most = u64::from(buffers) * u64::from(self.shape.buffer_size);
        if u64::from(bytes) + u64::from(self.offset) > most {
            return wrong(format!("the kernel reports {bytes} bytes in {most}"));
        }
        self.left = bytes;
        self.flags = completion.flags;
        Ok(())
    }

    /// The bytes of the current completion that are in one buffer.
    fn piece(&mut self) -> &[u8] {
        let len = self.left.min(self.shape.buffer_size - self.offset);
        let at = usize::from(self.next) * self.shape.buffer_size as usize + self.offset as usize;
        self.left -= len;
        self.offset += len;
        // An incremental buffer is done with when the kernel marks it; for the
        // others, and for all but the last of a bundle, one filling is all.
        let full = self.offset == self.shape.buffer_size;
        let kept = self.shape.incremental && self.left == 0 && cqueue::buffer_more(self.flags);
        if full || !kept {
            self.lent = Some(self.next);
            self.next = (self.next + 1) % self.shape.buffers;
            self.offset = 0;
        }
        // SAFETY: `at + len` lies within buffer `next`, hence in the region.
        // The kernel has filled these bytes and writes to them again only after
        // `give_back`, which needs the exclusive borrow that this reference
        // holds.
        unsafe { slice::from_raw_parts(self.core.kept[BUFFERS].as_ptr().add(at), len as usize) }
    }

    fn take_back(&mut self) {
        if let Some(id) = self.lent.take() {
            self.give_back(id);
        }
    }

    fn give_back(&mut self, id: u16) {
        let size = self.shape.buffer_size;
        let at = u64::from(id) * u64::from(size);
        let address = self.core.kept[BUFFERS].as_ptr() as u64 + at;
        // SAFETY: the buffer lies within the region, and the caller of
        // `arrival` no longer borrows it.
        unsafe { self.group.provide(&self.core, address, size, id) };
    }

    /// Ends the receive; to be called by the ring's thread before it gives up
    /// a stream that has not ended.
    pub fn cancel(&mut self) {
        self.core.cancel();
    }
}
