//! TCP_ZEROCOPY_RECEIVE, after the kernel's own
//! tools/testing/selftests/net/tcp_mmap.c: wait for a chunk, map what can be
//! mapped, read what cannot.

use super::{MESSAGE, Window, memory, set_option};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::io::{self, Read};
use std::mem::size_of;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::null_mut;

/// Bytes to wait for: at most half of what is mapped, so that the sender has room in the window
/// while we map.
const LOWAT: libc::c_int = 512 << 10;

/// `struct tcp_zerocopy_receive`, include/uapi/linux/tcp.h, without the fields that request copies
/// and control messages.
#[repr(C)]
#[derive(Default)]
struct Request {
    address: u64,
    length: u32,
    recv_skip_hint: u32,
    inq: u32,
    err: i32,
}

/// Maps the pages of the receive queue over those of the previous call.
pub fn receive(mut stream: &TcpStream, window: &mut Window) -> io::Result<()> {
    set_option(stream, libc::SOL_SOCKET, libc::SO_RCVLOWAT, LOWAT)?;
    let buffer = memory(MESSAGE)?;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let place = unsafe { mmap(null_mut(), MESSAGE, ProtFlags::READ, MapFlags::SHARED, stream, 0)? };
    loop {
        poll(&mut [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)], None)?;
        let mut request =
            Request { address: place as u64, length: MESSAGE as u32, ..Request::default() };
        let mut size = size_of::<Request>() as libc::socklen_t;
        // SAFETY: the kernel writes to the request and to the page table of `place`, to which
        // nothing refers.
        let result = unsafe {
            let (fd, value) = (stream.as_raw_fd(), (&raw mut request).cast());
            libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_ZEROCOPY_RECEIVE, value, &mut size)
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        if request.length > 0 && !window.count(request.length as usize) {
            return Ok(());
        }
        let skip = (request.recv_skip_hint as usize).min(MESSAGE);
        if skip > 0 && !window.count(stream.read(&mut buffer[..skip])?) {
            return Ok(());
        }
    }
}
