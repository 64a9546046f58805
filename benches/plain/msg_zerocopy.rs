//! send(2) with MSG_ZEROCOPY, after Documentation/networking/msg_zerocopy.rst and
//! the kernel's own tools/testing/selftests/net/msg_zerocopy.c.

use super::{MESSAGE, memory, set_option};
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::mem::{size_of_val, zeroed};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};

/// Sends between two reads of the error queue.
const REAP: u32 = 16;

/// Lends the message to the kernel repeatedly. It is never written to, so completions are read only
/// to free their memory.
pub fn send(stream: &TcpStream) -> io::Result<()> {
    set_option(stream, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)?;
    let message = memory(MESSAGE)?;
    let (mut at, mut unreaped) = (0, 0);
    loop {
        let rest = &message[at..];
        // SAFETY: the slice is live, and this function never writes to it.
        let sent = unsafe {
            let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
            libc::send(stream.as_raw_fd(), rest.as_ptr().cast(), rest.len(), flags)
        };
        if sent < 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::ENOBUFS) {
                return Err(error);
            }
            // No memory for another notification: one has to be read first.
            poll(&mut [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::empty())], None)?;
            unreaped = REAP;
        } else {
            at = (at + sent as usize) % MESSAGE;
            unreaped += 1;
        }
        if unreaped >= REAP {
            reap(stream);
            unreaped = 0;
        }
    }
}

/// Reads all pending completions; each may cover many sends.
fn reap(stream: &TcpStream) {
    let mut control = [0u64; 16];
    loop {
        // SAFETY: all zeros are a valid msghdr.
        let mut header: libc::msghdr = unsafe { zeroed() };
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the header and the control buffer are live and not shared.
        if unsafe { libc::recvmsg(stream.as_raw_fd(), &mut header, flags) } < 0 {
            return;
        }
    }
}
