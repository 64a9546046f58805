//! Tap devices: `/dev/net/tun` (Documentation/networking/tuntap.rst,
//! drivers/net/tun.c). Flags of one that already exists, and new ones that live
//! as long as the descriptors of their queues.

use super::{interface_request, ioctl};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Packets carry a `struct virtio_net_hdr`.
pub const VNET_HDR: u32 = libc::IFF_VNET_HDR as u32;
/// The reader polls with NAPI.
pub const NAPI: u32 = libc::IFF_NAPI as u32;
/// A full ring stops the queue (Linux 7.3; linux/if_tun.h).
pub const BACKPRESSURE: u32 = 0x0080;

/// The device is a tap.
pub const TAP: u32 = libc::IFF_TAP as u32;

/// How rtnetlink calls the kind of a tap.
pub const KIND: &str = "tun";

/// Flags that are given when a queue is opened; the kernel takes those of the
/// last one that was. The device's kind and its number of queues cannot be changed.
const SETTABLE: u32 = VNET_HDR
    | NAPI
    | BACKPRESSURE
    | libc::IFF_NO_PI as u32
    | libc::IFF_MULTI_QUEUE as u32
    | libc::IFF_NAPI_FRAGS as u32
    | TAP;

/// Flags that this kernel knows (`TUNGETFEATURES`). ENOENT: there is no tun
/// driver; EACCES: its device is not ours to open.
pub fn known_flags() -> io::Result<u32> {
    let mut flags: libc::c_uint = 0;
    // SAFETY: the request writes one `unsigned int`, which is live.
    unsafe { ioctl(Tap::open_driver()?, libc::TUNGETFEATURES as u32, &raw mut flags) }?;
    Ok(flags)
}

/// Gives a tap device of the caller's namespace the flags `flags`, which are
/// those that `/sys/class/net/NAME/tun_flags` shows, some changed. Opens a queue
/// for a moment, so the device must be one that stays when its last queue is
/// closed. EBUSY: a device with one queue, which a program has open. The kernel
/// silently leaves out what it does not know, so read them back.
pub fn set_flags(device: &str, flags: u32) -> io::Result<()> {
    let request = interface_request::about(device)?;
    open_queue(Tap::open_driver()?, request, flags & SETTABLE)
}

/// Makes a descriptor of a driver a queue of the device that is named, or of a new one
/// (`TUNSETIFF`). A system call only.
pub(super) fn open_queue(
    driver: impl AsFd,
    mut request: libc::ifreq,
    flags: u32,
) -> io::Result<()> {
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the kernel reads and writes one `ifreq`, which is live.
    unsafe { ioctl(driver, libc::TUNSETIFF as u32, &raw mut request) }.map(drop)
}

/// Sets the bytes of the header that packets of a tap with [`VNET_HDR`] carry
/// (`TUNSETVNETHDRSZ`): 10, or 12 for the later one with a number of buffers.
pub(crate) fn set_header_size(queue: BorrowedFd, bytes: usize) -> io::Result<()> {
    let mut bytes = libc::c_int::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the request reads one `int`, which is live.
    unsafe { ioctl(queue, libc::TUNSETVNETHDRSZ as u32, &raw mut bytes) }.map(drop)
}

/// Has a tap or macvtap take UDP messages uncut from now on (`TUNSETOFFLOAD` with `TUN_F_USO4`
/// and `TUN_F_USO6`), which it says in the header of each. EINVAL: before Linux 6.2.
pub fn take_messages(queue: BorrowedFd) -> io::Result<()> {
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let number = std::ptr::without_provenance_mut::<u8>(offloads as usize);
    // SAFETY: the request takes a number, and no memory.
    unsafe { ioctl(queue, libc::TUNSETOFFLOAD as u32, number) }.map(drop)
}

/// Has reads of a queue wait for a frame, which those of [`make`] do not.
pub fn set_waiting(queue: BorrowedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(queue)?;
    Ok(rustix::fs::fcntl_setfl(queue, flags - OFlags::NONBLOCK)?)
}

/// Makes a tap in the caller's namespace: its queues, from which frames are read without
/// waiting. It is there as long as one of them is open, also in another namespace
/// ([`super::netlink::Netlink::set_namespace_of`]).
pub fn make(tap: &Tap) -> io::Result<Vec<OwnedFd>> {
    let queue = |number| {
        let driver = Tap::open_driver()?;
        tap.attach(&driver, number == 0)?;
        Ok(driver)
    };
    (0..tap.queues).map(queue).collect()
}

/// Flags of the device behind a queue, as they are in force (`TUNGETIFF`). EBADFD: the
/// device is gone.
pub fn flags(queue: &OwnedFd) -> io::Result<u32> {
    // SAFETY: all-zero bytes are a valid `ifreq`: it is plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `ifreq`, which is live.
    unsafe { ioctl(queue, libc::TUNGETIFF as u32, &raw mut request) }?;
    // SAFETY: the kernel has written this member, of which every bit pattern is valid.
    Ok(u32::from(unsafe { request.ifr_ifru.ifru_flags } as u16))
}

/// A tap device to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    name: [libc::c_char; libc::IFNAMSIZ],
    /// Its interface index, which must be free: so it is known before the device is
    /// there, and what is to become of it can be written down then. 0 leaves it to the kernel.
    pub index: u32,
    /// Descriptors to it, each with queues of its own.
    pub queues: u32,
    /// [`VNET_HDR`], [`NAPI`] and the like. It is a tap without the four bytes of
    /// `struct tun_pi`, and with several queues one of many.
    pub flags: u32,
}

impl Tap {
    /// A device of a name of 1 to 15 bytes.
    pub fn new(name: &str, index: u32, queues: u32, flags: u32) -> io::Result<Tap> {
        Ok(Tap { name: interface_request::about(name)?.ifr_name, index, queues, flags })
    }

    /// Opens the device by which taps are made. ENOENT: there is none; EACCES: it is
    /// not permitted to open; ENODEV: the kernel has no driver for it. A system call only.
    pub(super) fn open_driver() -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::open(c"/dev/net/tun", flags, Mode::empty())?)
    }

    /// Makes one queue of the device behind a descriptor of the driver, and the
    /// device with its first. Offloads are off until the reader of the queue says
    /// what it takes (TUNSETOFFLOAD). EPERM: no CAP_NET_ADMIN over the network
    /// namespace; EBUSY: the name or the index is taken. System calls only.
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
