//! Frames of a device by a packet socket, many in each recvmmsg(2): each is copied into memory
//! of the program.

use super::packet::{self, bind, dropped, share, wait_readable};
use super::{check, tcp};
use rustix::net::SocketFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::time::Duration;

/// A packet socket with room for a batch of frames.
pub struct Receiver {
    socket: OwnedFd,
    memory: Box<[u8]>,
    /// What the headers point at.
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    dropped: u64,
}

// SAFETY: the pointers are to what it owns.
unsafe impl Send for Receiver {}

impl Receiver {
    /// Gets what a device receives of an EtherType, the addresses of other hosts included, up
    /// to `batch` frames of at most `room` bytes at once. Those of one `group`, if there is
    /// one, share it by a hash of its headers (`PACKET_FANOUT`). `buffer`: bytes that the
    /// socket may hold, as `SO_RCVBUFFORCE` takes them; none leaves the usual.
    pub fn open(
        index: u32,
        ethertype: u16,
        [batch, room]: [usize; 2],
        group: Option<u16>,
        buffer: Option<u64>,
    ) -> io::Result<Receiver> {
        let socket = packet::open(SocketFlags::empty())?;
        if let Some(bytes) = buffer {
            // The kernel doubles it.
            let half = i32::try_from(bytes / 2).map_err(|_| io::ErrorKind::InvalidInput)?;
            tcp::set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, half)?;
        }
        bind(&socket, index, ethertype)?;
        if let Some(group) = group {
            share(socket.as_fd(), group)?;
        }
        let vector = libc::iovec { iov_base: null_mut(), iov_len: room };
        // SAFETY: all-zero bytes are a valid `mmsghdr`: no name, no data, no control.
        let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Ok(Receiver {
            socket,
            memory: vec![0; batch * room].into(),
            vectors: vec![vector; batch].into(),
            headers: vec![header; batch].into(),
            dropped: 0,
        })
    }

    /// Takes what is there, at most `most` frames of the batch, and never waits; gives how many
    /// there were, for [`Receiver::frames`]. ENETDOWN: the device is down, or gone.
    #[inline]
    pub fn receive(&mut self, most: usize) -> io::Result<usize> {
        let most = most.min(self.headers.len());
        let room = self.room();
        let places = self.memory.chunks_exact_mut(room).zip(&mut *self.vectors);
        for ((place, vector), header) in places.zip(&mut *self.headers).take(most) {
            vector.iov_base = place.as_mut_ptr().cast();
            (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (vector, 1);
        }
        let (socket, headers) = (self.socket.as_raw_fd(), self.headers.as_mut_ptr());
        // SAFETY: each header points at one live vector, and that at a place in memory of ours
        // to which nothing else refers while the kernel writes there.
        let received = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::recvmmsg(socket, headers, most as libc::c_uint, flags as _, null_mut())
        };
        match check(received.into()) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            received => received,
        }
    }

    /// The frames that the last [`Receiver::receive`] took, which were this many; what did not
    /// fit into the room of one is cut off.
    pub fn frames(&self, received: usize) -> impl Iterator<Item = &[u8]> {
        let room = self.room();
        let places = self.memory.chunks_exact(room).zip(&self.headers).take(received);
        places.map(move |(place, header)| &place[..room.min(header.msg_len as usize)])
    }

    fn room(&self) -> usize {
        self.vectors.first().map_or(1, |vector| vector.iov_len)
    }

    /// Waits until there is a frame, at most this long.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        wait_readable(self.socket.as_fd(), timeout)
    }

    /// Frames for which the socket had no room, since it was opened.
    pub fn dropped(&mut self) -> io::Result<u64> {
        self.dropped += dropped(self.socket.as_fd())?;
        Ok(self.dropped)
    }
}
