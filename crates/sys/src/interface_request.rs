//! `struct ifreq`, which names a network device in ioctls (netdevice(7)), among them that of
//! ethtool (linux/ethtool.h), for what its netlink family lacks. Structures are laid out byte by
//! byte, as on every 64-bit Linux.

use super::bytes::u32_at;
use super::device::any_socket;
use super::ioctl;
use std::io;
use std::os::fd::OwnedFd;

/// Makes a request about the device with this name; everything else is zero.
pub(super) fn about(device: &str) -> io::Result<libc::ifreq> {
    let name = device.as_bytes();
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(&0) {
        let text = format!("'{device}' is not a device name of 1 to 15 bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // SAFETY: all-zero bytes are a valid `ifreq`: it is plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name) {
        *slot = *byte as libc::c_char;
    }
    Ok(request)
}

/// Ethtool commands to one device.
pub(super) struct Ethtool {
    socket: OwnedFd,
    request: libc::ifreq,
}

// SAFETY: the pointer in the request is set by each command and not used between commands.
unsafe impl Send for Ethtool {}

impl Ethtool {
    /// Prepares commands; whether the device exists shows with the first one.
    pub(crate) fn open(device: &str) -> io::Result<Ethtool> {
        let request = about(device)?;
        Ok(Ethtool { socket: any_socket()?, request })
    }

    /// Runs one command; its answer overwrites `data`.
    ///
    /// # Safety
    ///
    /// The data begin with the number of a command and have room for the kernel's whole answer.
    pub(crate) unsafe fn ask(&mut self, data: &mut [u8]) -> io::Result<()> {
        self.request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
        // SAFETY: the kernel reads and writes the request, which is live, and the
        // structure of the command, for which there is room by the caller's promise.
        unsafe { ioctl(&self.socket, libc::SIOCETHTOOL as u32, &raw mut self.request) }.map(drop)
    }
}

/// Concatenates numbers in native byte order.
pub(super) fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// Returns the number at an offset, or 0 beyond the end.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32_at(bytes, at).unwrap_or(0)
}
