//! `TCP_ZEROCOPY_RECEIVE`: pages of a receive queue mapped into the process
//! (tcp_zerocopy_receive() in net/ipv4/tcp.c, include/uapi/linux/tcp.h).

use super::memory::{MappedMemory, Region};
use super::tcp::get_option;
use rustix::mm::ProtFlags;
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::slice;

/// `struct tcp_zerocopy_receive`. An older kernel fills in only the fields it knows; the length it
/// returns shows which.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    address: u64,
    length: u32,
    recv_skip_hint: u32,
    inq: u32,
    err: i32,
    copybuf_address: u64,
    copybuf_len: i32,
    flags: u32,
    msg_control: u64,
    msg_controllen: u64,
    msg_flags: u32,
    reserved: u32,
}

/// An address range into which the kernel maps received pages. The range is reused: each call of
/// [`Mapping::receive`] makes the kernel drop the pages of the previous call as it needs room, so
/// nothing has to be unmapped in between. Next to it is a page for bytes that the kernel copies in
/// the same call.
#[derive(Debug)]
pub struct Mapping {
    range: MappedMemory,
    leftover: Region,
    mapped: usize,
    copied: usize,
    /// How many of the next bytes cannot be mapped and have to be read with recv(2). The kernel
    /// considers only bytes up to the end of one packet.
    pub skip: usize,
    /// Bytes still queued after the last call (also 1 at the end of the stream).
    pub queued: usize,
    /// Whether packets end inside pages, judging by the last call.
    pieces: bool,
    pending: Option<i32>,
}

impl Mapping {
    /// Reserves a range of `len` bytes, rounded down to whole pages, for the
    /// pages of a TCP socket. EINVAL: less than a page, or 4 GiB and more.
    /// ENODEV: the kernel has no `TCP_ZEROCOPY_RECEIVE` (built without an MMU,
    /// or older than 4.18).
    pub fn new(socket: BorrowedFd, len: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let len = len / page * page;
        if len == 0 || u32::try_from(len).is_err() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let leftover = Region::new(page, false)?;
        Ok(Mapping {
            range: MappedMemory::on_demand(socket, len, ProtFlags::READ)?,
            leftover,
            mapped: 0,
            copied: 0,
            skip: 0,
            queued: 0,
            pieces: false,
            pending: None,
        })
    }

    /// Takes as many whole pages at the front of the queue as there are and fit, by mapping them,
    /// and up to a page after them by copying (`copybuf`, Linux 5.11), without waiting. Returns the
    /// number of bytes; [`Mapping::mapped`] and [`Mapping::copied`] return these bytes, in this
    /// order. 0 with nothing to [`Mapping::skip`] means that nothing is queued.
    ///
    /// Packets whose payload is not whole pages end in a partial one. Copying it in the same call
    /// saves a separate call. This is requested only after a call that ended at such a piece: if
    /// the range is full, the kernel copies a page that it could have mapped. A whole page may then
    /// be copied, because after part of one nothing more of the packet could be mapped.
    ///
    /// EIO: nothing is queued and the peer has ended its stream; the kernel has no other use for
    /// EIO here. An error that came with bytes is kept for the next call.
    pub fn receive(&mut self, socket: BorrowedFd) -> io::Result<usize> {
        let offered = if self.pieces { self.leftover.len() } else { 0 };
        (self.mapped, self.copied, self.skip, self.queued) = (0, 0, 0, 0);
        if let Some(errno) = self.pending.take() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let mut request = Request {
            address: self.range.start().as_ptr() as u64,
            length: self.range.len() as u32,
            copybuf_address: self.leftover.as_mut_ptr() as u64,
            copybuf_len: offered as i32,
            ..Request::default()
        };
        let (level, option) = (libc::IPPROTO_TCP, libc::TCP_ZEROCOPY_RECEIVE);
        // SAFETY: the kernel writes the request, the page table of our own range and the page next
        // to it; all are exclusively ours, and no slice of them is alive, because `self` is
        // borrowed mutably.
        let size = unsafe { get_option(socket, level, option, &mut request) }?;
        self.mapped = (request.length as usize).min(self.range.len());
        // A kernel that does not know the field leaves it unchanged; one that could not copy puts
        // an error there, and the bytes are still to be read.
        if size > offset_of!(Request, copybuf_len) {
            let copied = usize::try_from(request.copybuf_len).unwrap_or(0);
            self.copied = copied.min(self.leftover.len());
        }
        self.skip = request.recv_skip_hint as usize;
        self.queued = request.inq as usize;
        self.pieces = match offered {
            0 => (1..=self.leftover.len()).contains(&self.skip),
            _ => self.mapped < self.range.len() && self.skip == 0,
        };
        match (request.err, self.mapped + self.copied) {
            (0, taken) => Ok(taken),
            (error, 0) => Err(io::Error::from_raw_os_error(error.saturating_abs())),
            (error, taken) => {
                self.pending = Some(error.saturating_abs());
                Ok(taken)
            }
        }
    }

    /// Returns the bytes that the last call mapped.
    pub fn mapped(&self) -> &[u8] {
        // SAFETY: the kernel has mapped this part of the range, readable, and it stays mapped until
        // `self` is borrowed mutably. It maps only whole pages that belong only to the receive
        // queue: neither page cache nor memory of a process, so no one writes to them.
        unsafe { slice::from_raw_parts(self.range.start().as_ptr(), self.mapped) }
    }

    /// Returns the bytes that the last call copied; they come after the mapped ones.
    pub fn copied(&self) -> &[u8] {
        &self.leftover[..self.copied]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tcp;
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn the_request_has_the_size_of_the_kernels() {
        assert_eq!(size_of::<Request>(), 64);
    }

    #[test]
    fn less_than_a_page_is_left_at_first_then_copied_and_the_end_is_eio() {
        let (mut tx, rx) = tcp::loopback_pair().unwrap();
        let mut mapping = Mapping::new(rx.as_fd(), 1 << 20).unwrap();
        assert_eq!((mapping.receive(rx.as_fd()).unwrap(), mapping.skip), (0, 0));
        tx.write_all(b"a few bytes").unwrap();
        tcp::wait(rx.as_fd(), tcp::Ready::IN, None).unwrap();
        assert_eq!((mapping.receive(rx.as_fd()).unwrap(), mapping.skip), (0, 11));
        assert_eq!((mapping.mapped(), mapping.queued), (&b""[..], 11));
        assert_eq!(tcp::recv(rx.as_fd(), &mut [0; 64], 0).unwrap(), 11);
        tx.write_all(b"a few bytes").unwrap();
        tcp::wait(rx.as_fd(), tcp::Ready::IN, None).unwrap();
        assert_eq!((mapping.receive(rx.as_fd()).unwrap(), mapping.skip), (11, 0));
        assert_eq!((mapping.mapped(), mapping.copied()), (&b""[..], &b"a few bytes"[..]));
        assert_eq!(mapping.queued, 0);
        drop(tx);
        tcp::wait(rx.as_fd(), tcp::Ready::IN, None).unwrap();
        let error = mapping.receive(rx.as_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }

    #[test]
    fn a_reset_is_not_taken_for_the_end() {
        let (tx, rx) = tcp::loopback_pair().unwrap();
        let mut mapping = Mapping::new(rx.as_fd(), 1 << 20).unwrap();
        tcp::reset_on_close(tx.as_fd(), true).unwrap();
        drop(tx);
        tcp::wait(rx.as_fd(), tcp::Ready::IN, None).unwrap();
        let error = mapping.receive(rx.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        let (_tx, rx) = tcp::loopback_pair().unwrap();
        for len in [0, 1, rustix::param::page_size() - 1, 4 << 30] {
            let error = Mapping::new(rx.as_fd(), len).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{len}");
        }
    }
}
