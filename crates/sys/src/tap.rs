//! Tap devices: `/dev/net/tun` (Documentation/networking/tuntap.rst, drivers/net/tun.c). Changing
//! the flags of existing ones, and making new ones that live as long as the descriptors of their
//! queues.

use super::{interface_request, ioctl};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Packets carry a `struct virtio_net_hdr`.
pub const VNET_HDR: u32 = libc::IFF_VNET_HDR as u32;
/// The queue is received through NAPI.
pub const NAPI: u32 = libc::IFF_NAPI as u32;
/// A full ring stops the queue (Linux 7.3; linux/if_tun.h).
pub const BACKPRESSURE: u32 = 0x0080;

/// The device is a tap.
pub const TAP: u32 = libc::IFF_TAP as u32;

/// The kind of a tap in rtnetlink.
pub const KIND: &str = "tun";

/// Flags that are passed when a queue is opened; those passed last apply. The device's kind and its
/// number of queues cannot be changed.
const SETTABLE: u32 = VNET_HDR
    | NAPI
    | BACKPRESSURE
    | libc::IFF_NO_PI as u32
    | libc::IFF_MULTI_QUEUE as u32
    | libc::IFF_NAPI_FRAGS as u32
    | TAP;

/// Returns the flags that this kernel knows (`TUNGETFEATURES`). ENOENT: there is no tun driver;
/// EACCES: this user may not open its device.
pub fn known_flags() -> io::Result<u32> {
    let mut flags: libc::c_uint = 0;
    // SAFETY: the request writes one `unsigned int`, which is live.
    unsafe { ioctl(Tap::open_driver()?, libc::TUNGETFEATURES as u32, &raw mut flags) }?;
    Ok(flags)
}

/// Sets the flags of a tap device of the caller's namespace; `flags` are those in
/// `/sys/class/net/NAME/tun_flags`, some of them changed. Opens a queue briefly, so the device must
/// be one that stays when its last queue is closed. EBUSY: a device with one queue, which a program
/// has open. The kernel silently ignores flags that it does not know, so read them back.
pub fn set_flags(device: &str, flags: u32) -> io::Result<()> {
    let request = interface_request::about(device)?;
    open_queue(Tap::open_driver()?, request, flags & SETTABLE)
}

/// Makes a driver descriptor a queue of the device that the request names, or of a new one
/// (`TUNSETIFF`). A single system call.
pub(super) fn open_queue(
    driver: impl AsFd,
    mut request: libc::ifreq,
    flags: u32,
) -> io::Result<()> {
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the kernel reads and writes one `ifreq`, which is live.
    unsafe { ioctl(driver, libc::TUNSETIFF as u32, &raw mut request) }.map(drop)
}

/// Sets the size of the header that packets of a tap with [`VNET_HDR`] carry (`TUNSETVNETHDRSZ`):
/// 10 bytes, or 12 for the later version with a number of buffers.
pub(crate) fn set_header_size(queue: BorrowedFd, bytes: usize) -> io::Result<()> {
    let mut bytes = libc::c_int::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the request reads one `int`, which is live.
    unsafe { ioctl(queue, libc::TUNSETVNETHDRSZ as u32, &raw mut bytes) }.map(drop)
}

/// Makes a tap or macvtap accept unsegmented UDP messages from now on (`TUNSETOFFLOAD` with
/// `TUN_F_USO4` and `TUN_F_USO6`), which are marked in their headers. EINVAL: before Linux 6.2.
pub fn take_messages(queue: BorrowedFd) -> io::Result<()> {
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let number = std::ptr::without_provenance_mut::<u8>(offloads as usize);
    // SAFETY: the request takes a number, and no memory.
    unsafe { ioctl(queue, libc::TUNSETOFFLOAD as u32, number) }.map(drop)
}

/// Makes reads of a queue wait for a frame; those of queues from [`make`] do not.
pub fn set_waiting(queue: BorrowedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(queue)?;
    Ok(rustix::fs::fcntl_setfl(queue, flags - OFlags::NONBLOCK)?)
}

/// Makes a tap in the caller's namespace and returns its queues; reading frames from them does not
/// block. The tap exists as long as one of them is open, even after it is moved to another
/// namespace ([`super::netlink::Netlink::set_namespace_of`]).
pub fn make(tap: &Tap) -> io::Result<Vec<OwnedFd>> {
    let queue = |number| {
        let driver = Tap::open_driver()?;
        tap.attach(&driver, number == 0)?;
        Ok(driver)
    };
    (0..tap.queues).map(queue).collect()
}

/// Returns the current flags of a queue's device (`TUNGETIFF`). EBADFD: the device was removed.
pub fn flags(queue: &OwnedFd) -> io::Result<u32> {
    // SAFETY: all-zero bytes are a valid `ifreq`: it is plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `ifreq`, which is live.
    unsafe { ioctl(queue, libc::TUNGETIFF as u32, &raw mut request) }?;
    // SAFETY: the kernel has written this member, of which every bit pattern is valid.
    Ok(u32::from(unsafe { request.ifr_ifru.ifru_flags } as u16))
}

/// Parameters of a tap device to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    name: [libc::c_char; libc::IFNAMSIZ],
    /// Its interface index, which must be free. Choosing it makes it known, and recordable, before
    /// the device exists. 0 lets the kernel choose.
    pub index: u32,
    /// Number of descriptors to it, each a queue of its own.
    pub queues: u32,
    /// [`VNET_HDR`], [`NAPI`] and the like. The device is always a tap without the four bytes of
    /// `struct tun_pi`, and with several queues a multi-queue one.
    pub flags: u32,
}

impl Tap {
    /// Describes a device with a name of 1 to 15 bytes.
    pub fn new(name: &str, index: u32, queues: u32, flags: u32) -> io::Result<Tap> {
        Ok(Tap { name: interface_request::about(name)?.ifr_name, index, queues, flags })
    }

    /// Opens the driver's device. ENOENT: there is none; EACCES: this user may not open it; ENODEV:
    /// the kernel has no driver for it. A single system call.
    pub(super) fn open_driver() -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::open(c"/dev/net/tun", flags, Mode::empty())?)
    }

    /// Attaches a queue to a descriptor of the driver, and makes the device if `first`. Offloads
    /// are off until the reader of the queue enables them (TUNSETOFFLOAD). EPERM: no CAP_NET_ADMIN
    /// over the network namespace; EBUSY: the name or the index is taken. System calls only.
    pub(super) fn attach(&self, driver: &OwnedFd, first: bool) -> io::Result<()> {
        if first {
            let mut index: libc::c_uint = self.index;
            // SAFETY: the request reads one `unsigned int`, which is live.
            unsafe { ioctl(driver, libc::TUNSETIFINDEX as u32, &raw mut index) }?;
        }
        // SAFETY: all-zero bytes are a valid `ifreq`: it is plain data.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        let several = if self.queues > 1 { libc::IFF_MULTI_QUEUE as u32 } else { 0 };
        open_queue(driver, request, self.flags | several | TAP | libc::IFF_NO_PI as u32)
    }
}
