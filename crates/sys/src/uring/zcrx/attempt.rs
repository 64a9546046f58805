//! Probes what a host supports, with queues that are released at once.

use super::abi::{IfqReg, REGISTER_IFQ};
use super::register::{Abilities, AreaMemory, QueueShape, register};
use super::ring::RecvZcRing;
use crate::tcp;
use crate::uring::Arrival;
use io_uring::{IoUring, cqueue, squeue};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

/// Checks whether the kernel knows the request at all: it is made with an argument that cannot be
/// read, which a kernel with zcrx detects last. EINVAL: the request is unknown (before Linux 6.15);
/// EOPNOTSUPP: built without `CONFIG_IO_URING_ZCRX`; EPERM: `CAP_NET_ADMIN` in the initial user
/// namespace is missing.
pub fn zcrx_in_kernel() -> io::Result<()> {
    let ring: IoUring<squeue::Entry, cqueue::Entry32> =
        IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(4)?;
    // A null pointer would be refused as invalid before the kernel checks further.
    let nowhere: *mut IfqReg = std::ptr::without_provenance_mut(1);
    // SAFETY: nothing can be mapped at address 1, so the kernel returns EFAULT at the latest when
    // it reads the request.
    match unsafe { register(ring.as_raw_fd(), REGISTER_IFQ, nowhere, 1) } {
        Err(e) if e.raw_os_error() == Some(libc::EFAULT) => Ok(()),
        other => other.map(drop),
    }
}

/// Number of buffers and refill entries of an attempt.
const ENTRIES: u32 = 64;

fn shape(device: Option<(u32, u32)>, abilities: Option<Abilities>) -> QueueShape {
    QueueShape {
        device,
        area: AreaMemory::Normal(ENTRIES as usize * rustix::param::page_size()),
        entries: ENTRIES,
        buffer: None,
        kernel_ring: false,
        abilities,
    }
}

/// Registers a receive queue of the device with this index, and releases it at once. The device
/// restarts the queue for this: not for a device that is in use. Errors as for
/// [`RecvZcRing::register`], and ENODEV: no such device.
pub fn try_queue(device: u32, queue: u32) -> io::Result<()> {
    let (socket, _peer) = UnixStream::pair()?;
    RecvZcRing::register(socket.as_fd(), shape(Some((device, queue)), None), 64, 8).map(drop)
}

/// Registers a queue without a device and, if there is a loopback device, receives a few bytes and
/// the end of the stream through it. Returns true if it did. EINVAL: before Linux 7.1.
pub fn try_no_device(abilities: Abilities) -> io::Result<bool> {
    let Ok((mut tx, rx)) = tcp::loopback_pair() else {
        let (socket, _peer) = UnixStream::pair()?;
        RecvZcRing::register(socket.as_fd(), shape(None, Some(abilities)), 64, 8)?;
        return Ok(false);
    };
    let mut ring = RecvZcRing::register(rx.as_fd(), shape(None, Some(abilities)), 64, 8)?;
    ring.activate()?;
    tx.write_all(MESSAGE)?;
    drop(tx);
    let mut got = Vec::new();
    loop {
        ring.enter()?;
        while let Some(arrival) = ring.arrival() {
            match arrival {
                Arrival::Bytes(bytes) => got.extend_from_slice(bytes),
                Arrival::End if got == MESSAGE => return Ok(true),
                Arrival::End => return Err(io::ErrorKind::InvalidData.into()),
                Arrival::Failed(e) => return Err(e),
            }
        }
    }
}

const MESSAGE: &[u8] = b"into an area";
