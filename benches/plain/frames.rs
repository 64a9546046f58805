//! Frames into a tap: a packet socket with sendmmsg(2), and a loop of read(2).

use super::Window;
use anyhow::{Context, Result};
use bytepath::sys::netlink::Netlink;
use bytepath::sys::packet::{self, wait_readable};
use bytepath::sys::tap::{self, Tap};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::null_mut;
use std::time::Duration;

/// Frames per call, and between two readings of the clock.
const BATCH: usize = 32;

/// Sends frames of 60 bytes to the device, past its qdisc, until it is killed.
pub fn generate(device: &str) -> Result<()> {
    let mut netlink = Netlink::new();
    let index = netlink.link(device)?.context("no such device")?.index;
    netlink.set_up(index)?;
    let socket = packet::sender(index)?;
    packet::bypass_qdisc(socket.as_fd())?;
    let mut frame = [0_u8; 60];
    frame[0] = 2;
    frame[12] = 0x88;
    let mut piece = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
    let header = libc::msghdr {
        msg_name: null_mut(),
        msg_namelen: 0,
        msg_iov: &raw mut piece,
        msg_iovlen: 1,
        msg_control: null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    };
    let mut batch = [libc::mmsghdr { msg_hdr: header, msg_len: 0 }; BATCH];
    loop {
        // SAFETY: all headers point to the one piece, and that to the frame, which are live.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), batch.as_mut_ptr(), BATCH as libc::c_uint, 0)
        };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOBUFS) => {}
            // The reader has ended, and the device with it.
            Some(libc::ENETDOWN | libc::ENXIO) if sent < 0 => return Ok(()),
            _ if sent < 0 => return Err(error).context("sendmmsg"),
            _ => {}
        }
    }
}

/// Makes a tap, whose device goes into the namespace of `process`, and reads it.
pub fn receive(device: &str, process: u32, window: &mut Window) -> Result<()> {
    let queue = tap::make(&Tap::new(device, 0, 1, 0)?)?.pop().context("no queue")?;
    let mut netlink = Netlink::new();
    let index = netlink.link(device)?.context("no device")?.index;
    netlink.set_namespace_of(index, process)?;
    println!("{device}");
    let mut frame = [0_u8; 4096];
    loop {
        for _ in 0..BATCH {
            // SAFETY: the kernel writes into the buffer, at most its length.
            let read =
                unsafe { libc::read(queue.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len()) };
            let error = io::Error::last_os_error();
            match read {
                0.. if !window.count(1) => return Ok(()),
                0.. => {}
                _ if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_readable(queue.as_fd(), Duration::from_secs(1))?;
                }
                // The device is not up yet.
                _ if error.raw_os_error() == Some(libc::EIO) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return Err(error).context("read"),
            }
        }
    }
}
