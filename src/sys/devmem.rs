//! Device memory for TCP: memory as a dmabuf, and its binding to the queues of
//! a network device. Documentation/networking/devmem.rst, the `netdev`
//! netlink family (Documentation/netlink/specs/netdev.yaml), and
//! include/uapi/linux/udmabuf.h.

use super::check;
use netlink_bindings::netdev::{QueueType, Request};
use netlink_socket2::NetlinkSocket;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The character device that makes dmabufs of memory files (`CONFIG_UDMABUF`).
pub const UDMABUF: &str = "/dev/udmabuf";

/// Bytes of the memory used in attempts.
const LEN: u64 = 1 << 20;

/// Index of a network device in the namespace of the caller. ENODEV: no such device.
pub fn device_index(name: &str) -> io::Result<u32> {
    let any = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok(netdevice::name_to_index(&any, name)?)
}

/// Whether the kernel has the `netdev` netlink family: lists the devices by
/// it. ENOENT: it has not (before Linux 6.3).
pub fn netdev_family() -> io::Result<()> {
    let request = Request::new().op_dev_get_dump();
    let mut socket = NetlinkSocket::new();
    let mut replies = socket.request(&request)?;
    while let Some(reply) = replies.recv() {
        reply?;
    }
    Ok(())
}

/// A memory file that a dmabuf can be made of: it cannot shrink, which
/// udmabuf asks for.
pub fn sealed_memory() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("bytepath-devmem", flags)?;
    ftruncate(&file, LEN)?;
    fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(file)
}

/// A dmabuf of a sealed memory file. ENOENT: the kernel has no udmabuf;
/// EACCES: its device is not ours to open.
pub fn udmabuf(memory: BorrowedFd) -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open(UDMABUF)?;
    create_udmabuf(&device, memory)
}

/// `struct udmabuf_create`.
#[repr(C)]
struct UdmabufCreate {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

/// `UDMABUF_CREATE`, `_IOW('u', 0x42, struct udmabuf_create)`.
const UDMABUF_CREATE: u32 = 0x4018_7542;
/// `UDMABUF_FLAGS_CLOEXEC`.
const CLOSE_ON_EXEC: u32 = 1;

fn create_udmabuf(device: &File, memory: BorrowedFd) -> io::Result<OwnedFd> {
    let create = UdmabufCreate {
        memfd: memory.as_raw_fd() as u32,
        flags: CLOSE_ON_EXEC,
        offset: 0,
        size: LEN,
    };
    // SAFETY: the request reads one `struct udmabuf_create`, which is live.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), UDMABUF_CREATE as _, &raw const create) };
    let fd = check(fd as libc::c_long)?;
    // SAFETY: the kernel has just returned this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Binds memory to receive queue 0 of a device and lets go of it at once. The
/// device restarts the queue for it: not for a device that is in use.
/// EOPNOTSUPP: the driver cannot; EPERM: `CAP_NET_ADMIN` is missing; EINVAL:
/// the driver could, but the memory is no dmabuf or the queue is set up otherwise.
pub fn bind_receive(device: u32, memory: BorrowedFd) -> io::Result<()> {
    let mut request = Request::new().op_bind_rx_do();
    request
        .encode()
        .push_ifindex(device)
        .push_fd(memory.as_fd().as_raw_fd() as u32)
        .nested_queues()
        .push_id(0)
        .push_type(QueueType::Rx as u32)
        .end_nested();
    // The binding lives as long as the socket.
    let mut socket = NetlinkSocket::new();
    let mut replies = socket.request(&request)?;
    replies.recv_one()?;
    Ok(())
}

/// Binds memory to a device for sending, and lets go of it at once. Errors as
/// for [`bind_receive`], but for EPERM: no capability is needed.
pub fn bind_send(device: u32, memory: BorrowedFd) -> io::Result<()> {
    let mut request = Request::new().op_bind_tx_do();
    request.encode().push_ifindex(device).push_fd(memory.as_raw_fd() as u32);
    let mut socket = NetlinkSocket::new();
    let mut replies = socket.request(&request)?;
    replies.recv_one()?;
    Ok(())
}
