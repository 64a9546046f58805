//! io_uring: chains of linked zero-copy sends from a registered buffer.

use super::uring::{DEPTH, result, ring};
use super::{MESSAGE, memory};
use io_uring::squeue::Flags;
use io_uring::types::Fixed;
use io_uring::{cqueue, opcode};
use std::io;
use std::net::TcpStream;

/// Lends the message to the kernel repeatedly, four times per call. It is never written to, so
/// nothing waits for notifications.
pub fn send(stream: &TcpStream) -> io::Result<()> {
    let message = memory(MESSAGE)?;
    let mut ring = ring(stream)?;
    let part = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: MESSAGE };
    // SAFETY: the message lives as long as the process.
    unsafe { ring.submitter().register_buffers(&[part])? };
    loop {
        for left in (0..DEPTH).rev() {
            let link = if left > 0 { Flags::IO_LINK } else { Flags::empty() };
            let entry = opcode::SendZc::new(Fixed(0), message.as_ptr(), MESSAGE as u32)
                .buf_index(Some(0))
                .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
                .build()
                .flags(link);
            // SAFETY: as above.
            unsafe { ring.submission().push(&entry).map_err(io::Error::other)? };
        }
        let mut sends = DEPTH;
        while sends > 0 {
            ring.submit_and_wait(sends)?;
            for done in ring.completion() {
                if !cqueue::notif(done.flags()) {
                    result(&done)?;
                    sends -= 1;
                }
            }
        }
    }
}
