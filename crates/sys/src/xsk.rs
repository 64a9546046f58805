//! AF_XDP sockets: frames of one device queue in memory of ours
//! (Documentation/networking/af_xdp.rst, linux/if_xdp.h).
//!
//! # Why this is safe to call
//!
//! The kernel keeps the pages of a socket's memory as long as the socket exists. It writes to a
//! frame only while that is in its fill ring, and a frame goes there only after the borrow by which
//! the caller read it has ended. Frames to be sent are written once, before the first is published.

mod ring;

use super::memory::Region;
use super::tcp;
use ring::{Filled, Ring};
use rustix::event::PollFd;
use rustix::io::Errno;
use rustix::net::sockopt::{set_xdp_umem_reg, xdp_mmap_offsets, xdp_options, xdp_statistics};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How frames move between the device and our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The kernel copies each.
    Copy,
    /// The device accesses the memory directly. EOPNOTSUPP, EINVAL: this one cannot.
    ZeroCopy,
    /// Zero-copy if the driver supports it; `binding()` of the end returns the outcome.
    Auto,
}

/// Bytes per frame; a page holds two.
pub const FRAME: usize = 2048;

/// Frames from the kernel that were lost, and frames of ours that it rejected (`struct
/// xdp_statistics`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// For other reasons than the two below: the fill ring was empty, or the frame was too large.
    pub dropped: u64,
    /// There was no room in the receive ring.
    pub ring_full: u64,
    /// Descriptors of ours that the kernel rejected.
    pub invalid: u64,
}

/// A socket bound to one queue of a device.
#[derive(Debug)]
struct Socket {
    // Dropped before the memory that it refers to.
    fd: OwnedFd,
    memory: Region,
    zero_copy: bool,
    wakes: u64,
}

/// Receives the frames of a queue that an XDP program redirects to it
/// ([`super::bpf::xdp::Redirector`]).
#[derive(Debug)]
pub struct Receiver {
    socket: Socket,
    fill: Ring<u64>,
    received: Ring<Filled>,
}

/// Sends the same frames repeatedly.
#[derive(Debug)]
pub struct Sender {
    socket: Socket,
    send: Ring<Filled>,
    completed: Ring<u64>,
    frames: Vec<Filled>,
    next: usize,
    /// The oldest frame that the kernel has not completed.
    oldest: usize,
    /// Frames that were published to the kernel and that it has not completed.
    under_way: u32,
}

/// Result of one call of [`Sender::send`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that were published to the kernel.
    pub shown: u32,
    /// Frames that the kernel has completed since the last call.
    pub completed: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the kernel dropped one of them because the device's queue was full (EBUSY).
    pub dropped: bool,
    /// Whether the kernel could take nothing for the moment (EAGAIN, ENOBUFS).
    pub no_room: bool,
}

impl Receiver {
    /// Binds to a queue of the device with this interface index, with a ring of `entries` frames: a
    /// power of two. EBUSY: another socket is bound to the queue; EPERM: no CAP_NET_RAW; EINVAL:
    /// there is no such queue; ENOBUFS: too much memory would be locked.
    pub fn bind(device: u32, queue: u32, entries: u32, binding: Binding) -> io::Result<Self> {
        let memory = memory_of(entries)?;
        let mut socket = Socket::new(memory)?;
        let mut fill = socket.ring(ring::Kind::Fill, entries)?;
        socket.ring::<u64>(ring::Kind::Completed, MOSTLY_UNUSED)?;
        let received = socket.ring(ring::Kind::Received, entries)?;
        for at in 0..entries {
            fill.put(u64::from(at) * FRAME as u64);
        }
        fill.show();
        socket.bind(device, queue, binding)?;
        Ok(Receiver { socket, fill, received })
    }

    /// Passes to `visit` what has arrived, up to `most` frames, and gives their memory back.
    /// Returns their number. EIO: the kernel reports a frame outside the memory.
    #[inline]
    pub fn take(&mut self, most: usize, mut visit: impl FnMut(&[u8])) -> io::Result<usize> {
        let count = (self.received.filled() as usize).min(most);
        for _ in 0..count {
            let frame = self.received.take();
            let bytes = self.socket.frame(frame).ok_or_else(|| {
                io::Error::other("the kernel reports a frame outside the socket's memory")
            })?;
            visit(bytes);
            // In aligned mode the kernel rounds down to the start of the frame.
            self.fill.put(frame.address);
        }
        self.received.release();
        self.fill.show();
        if count > 0 && self.fill.needs_wakeup() {
            self.socket.wakes += 1;
            rustix::net::recv(&self.socket.fd, &mut [0; 0], RecvFlags::DONTWAIT)?;
        }
        Ok(count)
    }

    /// Whether something has arrived.
    #[inline]
    pub fn has_received(&self) -> bool {
        self.received.filled() > 0
    }
}

/// Sleeps until something has arrived at one of these or `timeout` has passed; returns true if
/// something has. ENETDOWN, ENXIO: the device is down, or was removed.
pub fn wait_for_any(receivers: &[Receiver], timeout: Duration) -> io::Result<bool> {
    let polled = |one| PollFd::new(one, tcp::Ready::IN);
    wait(&mut receivers.iter().map(polled).collect::<Vec<_>>(), timeout)?;
    Ok(receivers.iter().any(Receiver::has_received))
}

impl Sender {
    /// Binds to a queue of the device with this interface index, with a ring of `entries` frames: a
    /// power of two. The frames are sent in this order, over and over. EINVAL: there are none, more
    /// than the ring has room for, one of them is larger than [`FRAME`], or there is no such queue.
    /// Other errors as for [`Receiver::bind`].
    pub fn bind(
        device: u32,
        queue: u32,
        entries: u32,
        binding: Binding,
        frames: &[&[u8]],
    ) -> io::Result<Self> {
        let fits = frames.iter().all(|frame| (1..=FRAME).contains(&frame.len()));
        if frames.is_empty() || frames.len() > entries as usize || !fits {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut memory = memory_of(entries)?;
        let place = |(at, frame): (usize, &&[u8])| {
            memory[at * FRAME..][..frame.len()].copy_from_slice(frame);
            let address = (at * FRAME) as u64;
            Filled { address, len: frame.len() as u32, options: 0 }
        };
        let frames = frames.iter().enumerate().map(place).collect();
        let mut socket = Socket::new(memory)?;
        socket.ring::<u64>(ring::Kind::Fill, MOSTLY_UNUSED)?;
        let completed = socket.ring(ring::Kind::Completed, entries)?;
        let send = socket.ring(ring::Kind::Send, entries)?;
        socket.bind(device, queue, binding)?;
        Ok(Sender { socket, send, completed, frames, next: 0, oldest: 0, under_way: 0 })
    }

    /// Collects completions, publishes up to `most` frames to the kernel, and wakes it if
    /// necessary. ENETDOWN, ENXIO: the device is down, or was removed.
    #[inline]
    pub fn send(&mut self, most: u32) -> io::Result<Sent> {
        let completed = self.completed.discard();
        self.under_way = self.under_way.saturating_sub(completed);
        // Frames in flight must fit into the completion ring.
        let room = self.send.room().min(self.completed.entries() - self.under_way).min(most);
        for _ in 0..room {
            self.send.put(self.frames[self.next]);
            self.next = self.after(self.next);
        }
        self.send.show();
        self.under_way += room;
        let mut sent = Sent { shown: room, completed, ..Sent::default() };
        for _ in 0..completed {
            sent.bytes += u64::from(self.frames[self.oldest].len);
            self.oldest = self.after(self.oldest);
        }
        if self.under_way > 0 && self.send.needs_wakeup() {
            self.socket.wakes += 1;
            match rustix::net::send(&self.socket.fd, &[], SendFlags::DONTWAIT) {
                Err(Errno::BUSY) => sent.dropped = true,
                Err(Errno::AGAIN | Errno::NOBUFS) => sent.no_room = true,
                other => _ = other?,
            }
        }
        Ok(sent)
    }

    /// Returns the next index in the order of the frames.
    #[inline]
    fn after(&self, place: usize) -> usize {
        if place + 1 == self.frames.len() { 0 } else { place + 1 }
    }

    /// Number of frames that were published to the kernel and that it has not completed.
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Waits at most `timeout` until the kernel can take more.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        wait(&mut [PollFd::new(&self.socket.fd, tcp::Ready::OUT)], timeout)
    }
}

/// Methods of both kinds of sockets.
macro_rules! of_the_socket {
    ($kind:ty) => {
        impl $kind {
            /// How it was bound: [`Binding::Copy`] or [`Binding::ZeroCopy`].
            pub fn binding(&self) -> Binding {
                if self.socket.zero_copy { Binding::ZeroCopy } else { Binding::Copy }
            }

            /// Returns the frames that were lost or rejected.
            pub fn lost(&self) -> io::Result<Lost> {
                self.socket.lost()
            }

            /// Number of system calls that woke the kernel.
            pub fn wakes(&self) -> u64 {
                self.socket.wakes
            }
        }

        impl AsFd for $kind {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.socket.fd.as_fd()
            }
        }
    };
}

of_the_socket!(Receiver);
of_the_socket!(Sender);

/// Entries of a ring that the kernel requires but that is not used.
const MOSTLY_UNUSED: u32 = 2;

impl Socket {
    /// Makes a socket with its memory registered.
    fn new(memory: Region) -> io::Result<Socket> {
        let kind = (AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC);
        let fd = rustix::net::socket_with(kind.0, kind.1, kind.2, None)?;
        let registered = XdpUmemReg {
            addr: memory.as_ptr() as u64,
            len: memory.len() as u64,
            chunk_size: FRAME as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(&fd, registered)?;
        Ok(Socket { fd, memory, zero_copy: false, wakes: 0 })
    }

    fn ring<T: Copy>(&mut self, kind: ring::Kind, entries: u32) -> io::Result<Ring<T>> {
        let (option, place, offsets) = kind.layout(&xdp_mmap_offsets(&self.fd)?);
        tcp::set_int(self.fd.as_fd(), libc::SOL_XDP, option, entries as i32)?;
        Ring::map(self.fd.as_fd(), place, offsets, entries)
    }

    fn bind(&mut self, device: u32, queue: u32, binding: Binding) -> io::Result<()> {
        let how = match binding {
            Binding::Copy => SocketAddrXdpFlags::XDP_COPY,
            Binding::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
            Binding::Auto => SocketAddrXdpFlags::empty(),
        };
        let flags = how | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        rustix::net::bind(&self.fd, &SocketAddrXdp::new(flags, device, queue))?;
        self.zero_copy = xdp_options(&self.fd)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        Ok(())
    }

    /// Returns a frame that the kernel has filled; `None` if it lies outside the memory.
    #[inline]
    fn frame(&self, frame: Filled) -> Option<&[u8]> {
        let start = usize::try_from(frame.address).ok()?;
        self.memory.get(start..start.checked_add(frame.len as usize)?)
    }

    fn lost(&self) -> io::Result<Lost> {
        let all = xdp_statistics(&self.fd)?;
        Ok(Lost {
            dropped: all.rx_dropped,
            ring_full: all.rx_ring_full.unwrap_or(0),
            invalid: all.tx_invalid_descs,
        })
    }
}

fn wait(sockets: &mut [PollFd], timeout: Duration) -> io::Result<()> {
    match tcp::wait_for_any(sockets, Some(timeout)) {
        Ok(now) if now.contains(tcp::Ready::ERR) => Err(Errno::NETDOWN.into()),
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(()),
    }
}

/// Allocates memory for `entries` frames, a power of two.
fn memory_of(entries: u32) -> io::Result<Region> {
    if !entries.is_power_of_two() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Region::new(entries as usize * FRAME, false)
}

#[cfg(test)]
mod tests;
