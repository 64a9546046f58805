//! Receiving frames of a device through a packet socket, many with each recvmmsg(2): each is copied
//! into memory of the program.

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
    /// Vectors that the headers point to.
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    dropped: u64,
}

// SAFETY: the pointers are to memory that it owns.
unsafe impl Send for Receiver {}

impl Receiver {
    /// Receives what a device receives of an EtherType, including frames for other hosts, up to
    /// `batch` frames of at most `room` bytes at once. Sockets with the same `group` share the
    /// frames by a hash of their headers (`PACKET_FANOUT`). `buffer`: bytes that the socket may
    /// hold, as with `SO_RCVBUFFORCE`; `None` for the default.
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

    /// Receives what is available, at most `most` frames of the batch, without waiting. Returns how
    /// many there were, for [`Receiver::frames`]. ENETDOWN: the device is down, or was removed.
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
        // SAFETY: each header points to one live vector, and that to a place in memory of ours to
        // which nothing else refers while the kernel writes there.
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

    /// Returns the `received` frames of the last [`Receiver::receive`]; a frame longer than its
    /// room is truncated.
    pub fn frames(&self, received: usize) -> impl Iterator<Item = &[u8]> {
        let room = self.room();
        let places = self.memory.chunks_exact(room).zip(&self.headers).take(received);
        places.map(move |(place, header)| &place[..room.min(header.msg_len as usize)])
    }

    fn room(&self) -> usize {
        self.vectors.first().map_or(1, |vector| vector.iov_len)
    }

    /// Waits at most `timeout` until there is a frame.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        wait_readable(self.socket.as_fd(), timeout)
    }

    /// Returns the number of frames for which the socket had no room since it was opened.
    pub fn dropped(&mut self) -> io::Result<u64> {
        self.dropped += dropped(self.socket.as_fd())?;
        Ok(self.dropped)
    }
}
