//! Receiving: one multishot receive, or read, that takes its buffers from a ring and posts a
//! completion for each arrival. io_uring_prep_recv_multishot(3), io_uring_prep_read_multishot(3).

use super::buffers::{Buffers, RecvShape};
use super::group::GROUP;
use super::{BusyPoll, Core, RingMode};
use io_uring::{opcode, types};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

#[derive(Debug)]
pub enum Arrival<'a> {
    /// The next bytes of the stream, from one buffer or piece of an area, which goes back to the
    /// kernel at the next call, or (zcrx) some time after it.
    Bytes(&'a [u8]),
    /// The receive direction is shut down: by the peer, or by us.
    End,
    Failed(io::Error),
}

/// A ring that receives from one stream socket, or reads messages from a file, into its own
/// buffers.
pub struct RecvRing {
    pub(super) core: Core,
    /// The file to read: a multishot read of a registered file ends with EBADFD (Linux 6.18).
    file: Option<OwnedFd>,
    pub(super) buffers: Buffers,
    bundle: bool,
    armed: bool,
    /// How often the receive was started.
    pub arms: u64,
    /// How often the buffers ran out.
    pub starved: u64,
}

impl RecvRing {
    /// Makes a ring for the socket, with all memory allocated and touched. EINVAL: the shape is out
    /// of range, or the kernel has no such buffer ring.
    pub fn new(socket: BorrowedFd, shape: RecvShape) -> io::Result<Self> {
        shape.check()?;
        // Room for a completion per buffer and the receive's own end, so that
        // the completion queue cannot overflow.
        let mut core = Core::new(&[socket], 4, u32::from(shape.buffers) + 4, RingMode::default())?;
        let buffers = Buffers::new(&mut core, shape)?;
        let (bundle, armed, arms, starved) = (shape.bundle, false, 0, 0);
        Ok(RecvRing { core, file: None, buffers, bundle, armed, arms, starved })
    }

    /// Like [`Self::new`], for a descriptor that is not a socket, by read(2) (Linux 6.7).
    pub fn of_file(file: BorrowedFd, shape: RecvShape) -> io::Result<Self> {
        let copy = file.try_clone_to_owned()?;
        Ok(RecvRing { file: Some(copy), ..RecvRing::new(file, shape)? })
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

    /// Waits until something has arrived (io_uring_enter(2)), and starts the multishot receive if
    /// it is not running. Returns the number of bytes that arrived; [`RecvRing::arrival`] hands
    /// them out.
    pub fn enter(&mut self) -> io::Result<usize> {
        self.buffers.take_back(&self.core);
        if !self.armed {
            self.arm()?;
        }
        self.core.enter(1)
    }

    /// Like [`RecvRing::enter`], but waits at most `timeout`. Returns true if [`RecvRing::arrival`]
    /// has something to hand out.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        self.buffers.take_back(&self.core);
        if !self.armed {
            self.arm()?;
            self.core.enter(0)?;
        }
        if !self.pending() {
            self.core.wait(timeout)?;
        }
        Ok(self.pending())
    }

    /// Whether something that arrived has not been handed out.
    #[inline]
    pub fn pending(&self) -> bool {
        self.buffers.pending() || !self.core.gathered.is_empty()
    }

    fn arm(&mut self) -> io::Result<()> {
        let socket = types::Fixed(0);
        let entry = match &self.file {
            Some(file) => {
                // A length of 0 stands for that of the buffer.
                let file = types::Fd(file.as_raw_fd());
                opcode::ReadMulti::new(file, 0, GROUP).build()
            }
            None if self.bundle => opcode::RecvMultiBundle::new(socket, GROUP).build(),
            None => opcode::RecvMulti::new(socket, GROUP).build(),
        };
        // SAFETY: the operation writes only to buffers of the group, which belong to the kernel.
        unsafe { self.core.push(&entry)? };
        self.armed = true;
        self.arms += 1;
        Ok(())
    }

    /// Returns the next arrival, in the order of the stream, or `None` if `enter` has to be called
    /// again.
    #[inline]
    pub fn arrival(&mut self) -> Option<Arrival<'_>> {
        self.buffers.take_back(&self.core);
        while !self.buffers.pending() {
            let completion = self.core.take()?;
            self.armed &= completion.more();
            match completion.bytes() {
                Ok(0) => return Some(Arrival::End),
                Ok(_) => {
                    if let Err(e) = self.buffers.begin(&completion) {
                        return Some(Arrival::Failed(e));
                    }
                }
                // The buffers ran out: the receive is over, and is started again once the caller
                // has consumed them all.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => self.starved += 1,
                Err(e) => return Some(Arrival::Failed(e)),
            }
        }
        // SAFETY: `take_back` needs the exclusive borrow of `self` that the bytes hold.
        Some(Arrival::Bytes(unsafe { self.buffers.piece(&self.core) }))
    }

    /// Cancels the receive; to be called by the ring's thread before it abandons a stream that has
    /// not ended.
    pub fn cancel(&mut self) {
        self.core.cancel();
    }
}
