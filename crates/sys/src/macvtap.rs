//! Macvtaps: devices on top of another device whose frames are read from descriptors, like those of
//! taps (drivers/net/macvtap.c, drivers/net/tap.c).

use super::netlink::{Netlink, acknowledged, device_name};
use super::route_request::push_attribute;
use super::tap;
use netlink_bindings::rt_link;
use netlink_bindings::traits::Pusher;
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mknodat, unlink};
use std::io;
use std::os::fd::OwnedFd;

impl Netlink {
    /// Makes a macvtap that receives everything its lower device receives (mode `passthru`,
    /// ip-link(8)). EOPNOTSUPP: the kernel has no macvtap; EEXIST: the name is taken; EINVAL: the
    /// device already has another one on it.
    pub fn create_macvtap(&mut self, name: &str, lower: u32) -> io::Result<()> {
        // linux/if_link.h; the bindings have no macvlan.
        const IFLA_MACVLAN_MODE: u16 = 1;
        const PASSTHRU: u32 = 8;
        let header = rt_link::Ifinfomsg::new();
        let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&header);
        let attributes = request.encode().push_ifname(&device_name(name)?).push_link(lower);
        let mut info = attributes.nested_linkinfo().push_kind(c"macvtap");
        let mut data = Vec::new();
        push_attribute(&mut data, IFLA_MACVLAN_MODE, &PASSTHRU.to_ne_bytes());
        push_attribute(info.as_vec_mut(), libc::IFLA_INFO_DATA, &data);
        drop(info);
        acknowledged(&mut self.socket, &request)
    }
}

/// Opens another queue of a macvtap, with these tap flags; reading frames from it does not block.
/// `number` is that of its device file, `major:minor`, as in
/// `/sys/class/net/NAME/macvtap/tapINDEX/dev`. A device file is made briefly under a name of our
/// own, since the one in `/dev` may belong to another network namespace. EPERM: no CAP_MKNOD;
/// EINVAL: `number` is malformed.
pub fn open(number: &str, flags: u32) -> io::Result<OwnedFd> {
    let (major, minor) = number.split_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let parse = |text: &str| text.trim().parse().map_err(|_| io::ErrorKind::InvalidInput);
    let number = makedev(parse(major)?, parse(minor)?);
    let file = format!("/dev/bytepath-{}-{minor}", std::process::id());
    mknodat(CWD, &file, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, number)?;
    let options = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&file, options, Mode::empty());
    unlink(&file)?;
    let queue = opened?;
    // SAFETY: all-zero bytes are a valid `ifreq`: it is plain data.
    let unnamed: libc::ifreq = unsafe { std::mem::zeroed() };
    tap::open_queue(&queue, unnamed, flags | tap::TAP | libc::IFF_NO_PI as u32)?;
    Ok(queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_of_a_device_is_refused() {
        for text in ["", "246", "246:", "a:1", "246:1:2"] {
            assert_eq!(open(text, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{text}");
        }
    }
}
