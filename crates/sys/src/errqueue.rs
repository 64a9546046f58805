//! The error queue of a socket as the kernel uses it for `MSG_ZEROCOPY`
//! completions (Documentation/networking/msg_zerocopy.rst).

use super::check;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

/// `SO_EE_ORIGIN_ZEROCOPY`, include/uapi/linux/errqueue.h.
const ORIGIN_ZEROCOPY: u8 = 5;
/// `SO_EE_CODE_ZEROCOPY_COPIED`, the same file.
const CODE_COPIED: u8 = 1;

/// A range of sends whose memory the kernel has released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Number of the first send; on each socket, sends with `MSG_ZEROCOPY` that took bytes are
    /// numbered from 0, modulo 2^32.
    pub first: u32,
    /// Number of the last send, which may be the first.
    pub last: u32,
    /// True if the kernel copied the bytes after all.
    pub copied: bool,
}

/// Takes the oldest completion off the queue, without waiting. `None`: the queue is empty. Messages
/// of other origins are dropped.
pub fn completion(socket: BorrowedFd) -> io::Result<Option<Completion>> {
    // Room for one sock_extended_err with an address of either family, aligned for control
    // messages.
    let mut control = [0u64; 16];
    loop {
        // SAFETY: all zeros is a valid msghdr: no name, no data, no control.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the header and the control buffer it points to are live and
        // exclusively ours; there is no data buffer.
        let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, flags) };
        match check(result as libc::c_long) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        if let Some(found) = extended_error(&message).and_then(|error| parse(&error)) {
            return Ok(Some(found));
        }
    }
}

/// Returns the first extended error among the control messages of a header from recvmsg(2).
fn extended_error(message: &libc::msghdr) -> Option<libc::sock_extended_err> {
    // SAFETY: recvmsg filled in the header; the control buffer stays live in our only caller while
    // this runs, and the macros stay within its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: it is not null, so it points to a whole header within the buffer.
        let (level, kind, len) =
            unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len as usize) };
        let wanted = (level == libc::SOL_IP && kind == libc::IP_RECVERR)
            || (level == libc::SOL_IPV6 && kind == libc::IPV6_RECVERR);
        let payload = size_of::<libc::sock_extended_err>();
        // SAFETY: CMSG_LEN only computes.
        if wanted && len >= unsafe { libc::CMSG_LEN(payload as u32) } as usize {
            // SAFETY: the payload is as long as the struct, in which every bit pattern is valid; it
            // may be unaligned.
            let error = unsafe { libc::CMSG_DATA(header).cast::<libc::sock_extended_err>() };
            // SAFETY: as above.
            return Some(unsafe { error.read_unaligned() });
        }
        // SAFETY: both come from the header that recvmsg filled in.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

fn parse(error: &libc::sock_extended_err) -> Option<Completion> {
    (error.ee_origin == ORIGIN_ZEROCOPY && error.ee_errno == 0).then_some(Completion {
        first: error.ee_info,
        last: error.ee_data,
        copied: error.ee_code & CODE_COPIED != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tcp;
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn loopback_completes_every_send_as_copied() {
        let (tx, mut rx) = tcp::loopback_pair().unwrap();
        tcp::set_int(tx.as_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1).unwrap();
        assert_eq!(completion(tx.as_fd()).unwrap(), None);
        let mut next = 0;
        for _ in 0..3 {
            let page = [7; 4096];
            assert_eq!(tcp::send(tx.as_fd(), &page, libc::MSG_ZEROCOPY).unwrap(), page.len());
            rx.read_exact(&mut [0; 4096]).unwrap();
        }
        while next < 3 {
            let wait = tcp::wait(tx.as_fd(), tcp::Ready::empty(), Some(Duration::from_secs(5)));
            assert!(wait.unwrap().contains(tcp::Ready::ERR), "no completion within 5 s");
            while let Some(found) = completion(tx.as_fd()).unwrap() {
                assert_eq!(found.first, next);
                assert!(found.copied, "loopback delivery always copies");
                next = found.last + 1;
            }
        }
        assert_eq!(next, 3);
    }

    #[test]
    fn other_origins_are_not_completions() {
        // SAFETY: a plain struct of integers.
        let mut error: libc::sock_extended_err = unsafe { zeroed() };
        (error.ee_origin, error.ee_info, error.ee_data) = (ORIGIN_ZEROCOPY, 4, 9);
        assert_eq!(parse(&error), Some(Completion { first: 4, last: 9, copied: false }));
        error.ee_code = CODE_COPIED;
        assert!(parse(&error).unwrap().copied);
        error.ee_origin = 2;
        assert_eq!(parse(&error), None);
    }
}
