//! Flags of a tap device that is there already: `/dev/net/tun`
//! (Documentation/networking/tuntap.rst, drivers/net/tun.c).

use super::check;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;

/// Packets carry a `struct virtio_net_hdr`.
pub const VNET_HDR: u32 = libc::IFF_VNET_HDR as u32;
/// The reader polls with NAPI.
pub const NAPI: u32 = libc::IFF_NAPI as u32;
/// A full ring stops the queue (Linux 7.3; linux/if_tun.h).
pub const BACKPRESSURE: u32 = 0x0080;

/// The device is a tap.
pub const TAP: u32 = libc::IFF_TAP as u32;

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
    let tun = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut flags: libc::c_uint = 0;
    // SAFETY: the request writes one `unsigned int`, which is live.
    let result = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNGETFEATURES as _, &raw mut flags) };
    check(result as libc::c_long)?;
    Ok(flags)
}

/// Gives a tap device of the caller's namespace the flags `flags`, which are
/// those that `/sys/class/net/NAME/tun_flags` shows, some changed. Opens a queue
/// for a moment, so the device must be one that stays when its last queue is
/// closed. EBUSY: a device with one queue, which a program has open. The kernel
/// leaves out what it does not know without a word, so read them back.
pub fn set_flags(device: &str, flags: u32) -> io::Result<()> {
    let name = device.as_bytes();
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        let text = format!("'{device}' is not a device name of 1 to 15 bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let tun = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: all-zero bytes are a valid `ifreq`: it is plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name) {
        *slot = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (flags & SETTABLE) as libc::c_short;
    // SAFETY: the kernel reads and writes one `ifreq`, which is live.
    let result = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    check(result as libc::c_long).map(drop)
}
