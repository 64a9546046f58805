//! Finds out what the kernel's io_uring supports by trying it: nothing here needs a network, and
//! nothing is left behind.

use super::{Arrival, BusyPoll, RecvRing, RecvShape, RingMode, SendEvent, SendRing, SocketRing};
use crate::memory::Region;
use io_uring::Probe;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Features that setting up a ring reveals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `IORING_SETUP_SINGLE_ISSUER` and `IORING_SETUP_DEFER_TASKRUN` (Linux 6.1).
    pub deferred: bool,
    /// `IORING_FEAT_RECVSEND_BUNDLE` (Linux 6.10).
    pub bundle: bool,
    /// `IORING_FEAT_NO_IOWAIT` (Linux 6.15): waiting can count as idle.
    pub no_iowait: bool,
    /// `IORING_OP_SEND_ZC` (Linux 6.0).
    pub send_zc: bool,
    /// `IORING_FEAT_MIN_TIMEOUT` (Linux 6.12): a wait can gather completions for some time.
    pub min_timeout: bool,
}

/// Sets up a ring and reads its features. ENOSYS: no io_uring in this kernel; EPERM: forbidden by
/// `kernel.io_uring_disabled` or by a seccomp filter.
pub fn features() -> io::Result<Features> {
    let ring = super::setup(1, 1, RingMode::default())?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let params = ring.params();
    Ok(Features {
        deferred: params.is_setup_single_issuer(),
        bundle: params.is_feature_recvsend_bundle(),
        no_iowait: params.is_feature_no_iowait(),
        send_zc: probe.is_supported(io_uring::opcode::SendZc::CODE),
        min_timeout: params.is_feature_min_timeout(),
    })
}

/// Makes a ring whose operations a kernel thread submits. EPERM: before Linux 5.11, without
/// privilege; ENOMEM: no more threads are allowed.
pub fn try_polled() -> io::Result<()> {
    super::setup(1, 1, RingMode::Polled { cpu: None }).map(drop)
}

/// Makes the waits of a ring poll devices: those its operations wait for or, if `listed`, those of
/// a list, which is empty. EINVAL: before Linux 6.9, or 6.13 with a list; EOPNOTSUPP: without
/// `CONFIG_NET_RX_BUSY_POLL`.
pub fn try_busy_poll(listed: bool) -> io::Result<()> {
    let queues = listed.then(Vec::new);
    let (socket, _peer) = UnixStream::pair()?;
    let ring = super::setup(1, 1, RingMode::default())?;
    let ring = SocketRing::new(ring, &[socket.as_fd()])?;
    ring.busy_poll(&BusyPoll { microseconds: 1, prefer: false, queues })
}

/// Registers a ring of provided buffers. EINVAL: before Linux 5.19, or before 6.12 for buffers that
/// are consumed incrementally.
pub fn try_buffer_ring(incremental: bool) -> io::Result<()> {
    let (socket, _peer) = UnixStream::pair()?;
    let shape = RecvShape { incremental, ..ONE };
    RecvRing::new(socket.as_fd(), shape).map(drop)
}

/// Receives a few bytes by a multishot receive, and then the end of the
/// stream. EINVAL: before Linux 6.0, or before 6.10 for bundles.
pub fn try_recv_multishot(bundle: bool) -> io::Result<()> {
    let (socket, mut peer) = UnixStream::pair()?;
    let shape = RecvShape { buffers: 2, bundle, ..ONE };
    let mut ring = RecvRing::new(socket.as_fd(), shape)?;
    ring.activate()?;
    peer.write_all(MESSAGE)?;
    drop(peer);
    let mut got = Vec::new();
    loop {
        ring.enter()?;
        while let Some(arrival) = ring.arrival() {
            match arrival {
                Arrival::Bytes(bytes) => got.extend_from_slice(bytes),
                Arrival::End if got == MESSAGE => return Ok(()),
                Arrival::End => return Err(io::ErrorKind::InvalidData.into()),
                Arrival::Failed(e) => return Err(e),
            }
        }
    }
}

/// Reads a message by a multishot read. EINVAL: before Linux 6.7.
pub fn try_read_multishot() -> io::Result<()> {
    let (pipe, mut writer) = io::pipe()?;
    let mut ring = RecvRing::of_file(pipe.as_fd(), RecvShape { buffers: 2, ..ONE })?;
    ring.activate()?;
    writer.write_all(MESSAGE)?;
    ring.wait(TIMEOUT)?;
    match ring.arrival() {
        Some(Arrival::Bytes(MESSAGE)) => Ok(()),
        Some(Arrival::Failed(e)) => Err(e),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Sends two messages by one bundle. EINVAL: before Linux 6.10.
pub fn try_send_bundle() -> io::Result<()> {
    let (socket, mut peer) = UnixStream::pair()?;
    let mut memory = Region::new(MESSAGE.len(), false)?;
    memory.copy_from_slice(MESSAGE);
    let mut ring = SendRing::new(socket.as_fd(), memory, 1, 0)?;
    ring.make_group(2, 0..MESSAGE.len())?;
    ring.activate()?;
    ring.send_bundle(0)?;
    first_result(&mut ring)?;
    drop(ring);
    drop(socket);
    let mut got = Vec::new();
    peer.read_to_end(&mut got)?;
    let whole = got == [MESSAGE, MESSAGE].concat();
    if whole { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Makes a zero-copy send that requests a usage report, on a TCP socket that is not connected:
/// EPIPE shows that the request itself was valid. EINVAL: before Linux 6.2 (or 6.0 for the
/// operation).
pub fn try_send_zc() -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut ring = SendRing::new(socket.as_fd(), Region::new(4096, false)?, 1, 1)?;
    ring.fix_memory()?;
    ring.activate()?;
    ring.send_zc(0..4096, 0, false)?;
    match first_result(&mut ring) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()),
        other => other,
    }
}

/// Time limit for an event that has already been triggered.
const TIMEOUT: Duration = Duration::from_secs(1);

const MESSAGE: &[u8] = b"eight of";

/// The smallest shape that can be registered.
const ONE: RecvShape =
    RecvShape { buffers: 1, buffer_size: 4096, bundle: false, incremental: false };

fn first_result(ring: &mut SendRing) -> io::Result<()> {
    loop {
        match ring.enter(1) {
            Err(e) if !super::is_transient(&e) => return Err(e),
            _ => {}
        }
        while let Some(event) = ring.event() {
            if let SendEvent::Sent { result, .. } = event {
                return result.map(drop);
            }
        }
    }
}
