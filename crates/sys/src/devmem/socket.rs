//! System calls on a TCP socket: recvmsg(2) with `MSG_SOCK_DEVMEM`, the option that frees
//! fragments, and sendmsg(2) from a dmabuf.

use super::message::{DMABUF, Fragment, Malformed, SPACE, fragments};
use super::tokens::{Freer, Lent, TokenRange};
use crate::check;
use crate::tcp::{set_option, set_value};
use std::io;
use std::mem::{size_of_val, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::slice;
use std::time::Duration;

/// `MSG_SOCK_DEVMEM`, include/linux/socket.h.
const MSG_SOCK_DEVMEM: i32 = 0x200_0000;

/// `ETOOSMALL`, include/linux/errno.h: not meant for user space, yet the error of a receive whose
/// control buffer has no room for a single fragment.
pub const ETOOSMALL: i32 = 525;

/// A reusable control buffer.
#[derive(Debug)]
pub struct Control {
    // Words, because control messages must be aligned.
    words: Box<[u64]>,
    filled: usize,
}

impl Control {
    /// Makes a buffer with room for this many fragments.
    pub fn new(fragments: usize) -> Self {
        let bytes = fragments.max(1).saturating_mul(SPACE);
        Control { words: vec![0; bytes.div_ceil(8)].into_boxed_slice(), filled: 0 }
    }

    /// Returns the control messages of the last call.
    pub fn bytes(&self) -> &[u8] {
        self.first(self.filled)
    }

    /// Returns what the last call received, in the order of the stream, once.
    #[inline]
    pub fn arrived(&mut self) -> impl Iterator<Item = Result<Arrived, Malformed>> + '_ {
        let filled = std::mem::take(&mut self.filled);
        fragments(self.first(filled)).map(|fragment| {
            Ok(match fragment? {
                Fragment::Linear { len } => Arrived::Linear(len),
                Fragment::Dmabuf { dmabuf, offset, len, token } => {
                    Arrived::Lent(Lent { dmabuf, offset, len, token })
                }
            })
        })
    }

    fn first(&self, bytes: usize) -> &[u8] {
        let all = size_of_val(&*self.words);
        // SAFETY: the words are live and initialised, and any byte is valid.
        unsafe { slice::from_raw_parts(self.words.as_ptr().cast(), bytes.min(all)) }
    }

    /// Writes messages into the buffer, for fake kernels. False: they do not fit, and the buffer
    /// contains only those that do.
    pub fn fill(&mut self, messages: &[u8]) -> bool {
        let all = size_of_val(&*self.words);
        // SAFETY: the words are live and exclusively ours, and any byte is valid.
        let room = unsafe { slice::from_raw_parts_mut(self.words.as_mut_ptr().cast::<u8>(), all) };
        self.filled = messages.len().min(all);
        room[..self.filled].copy_from_slice(&messages[..self.filled]);
        self.filled == messages.len()
    }
}

/// A piece of the stream that was received.
#[derive(Debug)]
pub enum Arrived {
    Lent(Lent),
    /// Bytes that the kernel copied into the buffer of the call.
    Linear(u32),
}

/// Result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the stream; 0 at its end.
    pub bytes: usize,
    /// `MSG_CTRUNC`: the control buffer was too small, and messages were lost.
    pub truncated: bool,
}

/// A TCP socket used with device memory.
#[derive(Clone, Copy, Debug)]
pub struct Socket<'a>(pub BorrowedFd<'a>);

impl Socket<'_> {
    /// Receives up to `linear.len()` bytes, wherever they are: those that the device wrote into a
    /// dmabuf stay there, the others are copied to the front of `linear`, in order. If a call
    /// leaves no fragment in `control`, its bytes came through a queue without a dmabuf.
    ///
    /// EFAULT: bytes are in device memory and cannot be described; ENODEV: they are in memory that
    /// another process bound; [`ETOOSMALL`].
    #[inline]
    pub fn receive(self, linear: &mut [u8], control: &mut Control) -> io::Result<Received> {
        let mut iov = libc::iovec { iov_base: linear.as_mut_ptr().cast(), iov_len: linear.len() };
        // SAFETY: all zeros is a valid msghdr.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut iov;
        message.msg_iovlen = 1;
        message.msg_control = control.words.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&*control.words) as _;
        control.filled = 0;
        // SAFETY: the header points to one buffer and one control buffer, both live and exclusively
        // ours, with the given lengths.
        let result = unsafe { libc::recvmsg(self.0.as_raw_fd(), &mut message, MSG_SOCK_DEVMEM) };
        let bytes = check(result as libc::c_long)?;
        control.filled = message.msg_controllen as usize;
        Ok(Received { bytes, truncated: message.msg_flags & libc::MSG_CTRUNC != 0 })
    }

    /// Sets how long a receive waits; zero is forever (`SO_RCVTIMEO`).
    pub fn set_timeout(self, timeout: Duration) -> io::Result<()> {
        use rustix::net::sockopt::{Timeout, set_socket_timeout};
        let timeout = (!timeout.is_zero()).then_some(timeout);
        Ok(set_socket_timeout(self.0, Timeout::Recv, timeout)?)
    }

    /// Sends bytes of a dmabuf, and waits while the socket has no room. As with any `MSG_ZEROCOPY`,
    /// the error queue reports when the device is done with them.
    ///
    /// EINVAL: no dmabuf is bound under this number, or `SO_ZEROCOPY` is off; ENODEV: it is bound
    /// to another device than that of the route; EFAULT: the range is not within it; EMSGSIZE,
    /// ENOBUFS: too much at once.
    #[inline]
    pub fn send(self, dmabuf: u32, offset: usize, len: usize) -> io::Result<usize> {
        /// Room for one control message, with its alignment.
        #[repr(C, align(8))]
        struct Room([u8; 24]);
        // In this call an address is an offset; it is never dereferenced.
        let base = std::ptr::without_provenance_mut(offset);
        let mut iov = libc::iovec { iov_base: base, iov_len: len };
        let mut room = Room([0; 24]);
        // SAFETY: all zeros is a valid msghdr.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut iov;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut room).cast();
        // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
        let (space, whole) = unsafe { (libc::CMSG_SPACE(4), libc::CMSG_LEN(4)) };
        debug_assert!(space as usize <= size_of_val(&room));
        message.msg_controllen = space as _;
        // SAFETY: the header has a control buffer with room for one message of four bytes, so the
        // pointer is to a whole header within it.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_len = whole as _;
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = DMABUF;
            libc::CMSG_DATA(header).cast::<u32>().write_unaligned(dmabuf);
        }
        let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
        // SAFETY: the header and what it points to are live. With this control message the kernel
        // interprets the address of the buffer as an offset into the dmabuf and does not read
        // memory there; a kernel that does not know the message refuses it (EINVAL).
        check(unsafe { libc::sendmsg(self.0.as_raw_fd(), &message, flags) } as libc::c_long)
    }

    /// Restricts the socket to one device, which must be the one that the dmabuf is bound to
    /// (`SO_BINDTODEVICE`). EPERM: it is already restricted to another one.
    pub fn keep_to(self, device: &str) -> io::Result<()> {
        set_option(self.0, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_bytes())
    }
}

impl Freer for Socket<'_> {
    /// EINVAL: more than 128 ranges; ENOPROTOOPT: before Linux 6.12.
    #[inline]
    fn free(&mut self, ranges: &[TokenRange]) -> io::Result<usize> {
        // SAFETY: the ranges are laid out as `struct dmabuf_token`, live, and
        // only read; the length is that of the slice.
        unsafe { set_value(self.0, libc::SOL_SOCKET, libc::SO_DEVMEM_DONTNEED, ranges) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devmem::{Fragment, Held, fragments};
    use crate::tcp;
    use bytepath_testing::skip;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn tokens_are_laid_out_as_the_kernels() {
        assert_eq!(size_of::<TokenRange>(), size_of::<libc::dmabuf_token>());
    }

    #[test]
    fn bytes_of_an_ordinary_queue_come_without_fragments() {
        let (mut tx, rx) = tcp::loopback_pair().unwrap();
        let mut control = Control::new(64);
        let mut linear = vec![0; 10_000];
        tx.write_all(&[7; 3000]).unwrap();
        let received = Socket(rx.as_fd()).receive(&mut linear, &mut control).unwrap();
        assert_eq!(received, Received { bytes: 3000, truncated: false });
        assert_eq!(fragments(control.bytes()).count(), 0);
        assert!(linear[..3000].iter().all(|b| *b == 7));
        Socket(rx.as_fd()).set_timeout(Duration::from_millis(1)).unwrap();
        let error = Socket(rx.as_fd()).receive(&mut linear, &mut control).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(tx);
        assert_eq!(Socket(rx.as_fd()).receive(&mut linear, &mut control).unwrap().bytes, 0);
    }

    #[test]
    fn the_kernel_frees_no_token_that_it_has_not_dealt_out() {
        let (_tx, rx) = tcp::loopback_pair().unwrap();
        let mut held = Held::with_room(4);
        [3, 4, 5].into_iter().for_each(|token| held.enter(token));
        match held.give_back(&mut Socket(rx.as_fd())).unwrap_err().raw_os_error() {
            // Our own error, because it freed none.
            Some(libc::EBADMSG) => {}
            Some(libc::ENOPROTOOPT) => skip!("SO_DEVMEM_DONTNEED: before Linux 6.12"),
            other => panic!("{other:?}"),
        }
        assert_eq!(held.len(), 3);
    }

    #[test]
    fn nothing_is_sent_from_a_dmabuf_that_is_not_bound() {
        let (tx, _rx) = tcp::loopback_pair().unwrap();
        tcp::set_int(tx.as_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1).unwrap();
        for (offset, len) in [(0, 4096), (1 << 20, 1)] {
            let error = Socket(tx.as_fd()).send(4711, offset, len).unwrap_err();
            let expected = [libc::EINVAL, libc::ENODEV].map(Some);
            assert!(expected.contains(&error.raw_os_error()), "{error}");
        }
    }

    #[test]
    fn a_control_buffer_holds_what_fits() {
        let mut control = Control::new(2);
        let mut messages = Vec::new();
        let two = [Fragment::Linear { len: 1 }; 2];
        crate::devmem::message::encode(&two, &mut messages);
        assert!(control.fill(&messages));
        assert_eq!(fragments(control.bytes()).flatten().count(), 2);
        crate::devmem::message::encode(&two, &mut messages);
        assert!(!control.fill(&messages));
        assert_eq!(fragments(control.bytes()).flatten().count(), 2);
    }
}
