//! Ends of a link, including those that are descriptors: of a tap, whose device is moved into the
//! namespace of the other end and exists while one of the descriptors is open, or of a macvtap on
//! one end of a veth pair.

use super::link::{self, refused};
use bytepath_record::wire::LinkEnd;
use bytepath_record::{Fault, FaultKind, TapSettings};
use bytepath_sys::macvtap;
use bytepath_sys::namespace::Sysfs;
use bytepath_sys::netlink::Netlink;
use bytepath_sys::tap::{self, Tap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Sets up an end of a link. Returns the queues in which it ends (empty if it ends in a device),
/// and notes on optional requests that failed.
pub fn link_end(end: &LinkEnd) -> Result<(Vec<OwnedFd>, Vec<String>), Fault> {
    match (end.tap_for, &end.macvtap_on) {
        (Some(process), _) => Ok((make_tap(end, process)?, Vec::new())),
        (None, Some(below)) => {
            let notes = link::apply(&LinkEnd { device: below.clone(), ..end.clone() })?;
            Ok((make_macvtap(end, below)?, notes))
        }
        (None, None) => Ok((Vec::new(), link::apply(end)?)),
    }
}

/// Creates a tap and moves its device into the namespace of `process`. Its queues have all the
/// flags that were requested: the kernel silently ignores unknown ones, so they are read back.
fn make_tap(end: &LinkEnd, process: u32) -> Result<Vec<OwnedFd>, Fault> {
    let settings = settings(end)?;
    let what = format!("creating the tap {}", end.device);
    let flags = flags(settings, tap::known_flags().map_err(|e| cannot_make(&what, &e))?)?;
    let tap = Tap::new(&end.device, 0, settings.queues, flags);
    let queues = tap.and_then(|tap| tap::make(&tap)).map_err(|e| cannot_make(&what, &e))?;
    has_flags(&what, &queues, flags)?;
    take_messages(settings, &queues)?;
    let mut netlink = Netlink::new();
    let moving = |e| refused("moving the tap into the other end's namespace", &e);
    let link = netlink.link(&end.device).map_err(moving)?;
    let index = link.ok_or_else(|| moving(io::Error::from_raw_os_error(libc::ENODEV)))?.index;
    netlink.set_namespace_of(index, process).map_err(moving)?;
    Ok(queues)
}

/// Creates a macvtap on a device of this namespace, and returns its queues.
fn make_macvtap(end: &LinkEnd, below: &str) -> Result<Vec<OwnedFd>, Fault> {
    let settings = settings(end)?;
    let what = format!("creating the macvtap {} on {below}", end.device);
    let failed = |e: io::Error| no_macvtap(&what, &e);
    let gone = || failed(io::Error::from_raw_os_error(libc::ENODEV));
    let mut netlink = Netlink::new();
    let lower = netlink.link(below).map_err(failed)?.ok_or_else(gone)?;
    netlink.create_macvtap(&end.device, lower.index).map_err(failed)?;
    let index = netlink.link(&end.device).map_err(failed)?.ok_or_else(gone)?.index;
    if let Some(packets) = end.settings.queue_length {
        // The rings of queues take their length from it when they are opened.
        netlink.set_queue_length(index, packets).map_err(failed)?;
    }
    netlink.set_up(index).map_err(failed)?;
    let file = format!("class/net/{}/macvtap/tap{index}/dev", end.device);
    let number = Sysfs::open().and_then(|sysfs| sysfs.read(&file)).map_err(failed)?;
    let flags = if settings.vnet_header { tap::VNET_HDR } else { 0 };
    let queues = (0..settings.queues).map(|_| macvtap::open(&number, flags).map_err(failed));
    let queues: Vec<OwnedFd> = queues.collect::<Result<_, _>>()?;
    has_flags(&what, &queues, flags)?;
    take_messages(settings, &queues)?;
    Ok(queues)
}

fn settings(end: &LinkEnd) -> Result<&TapSettings, Fault> {
    end.settings.tap.as_ref().ok_or_else(|| {
        Fault::failed("a descriptor end without tap settings").remedy("report this as a bug")
    })
}

fn has_flags(what: &str, queues: &[OwnedFd], flags: u32) -> Result<(), Fault> {
    for queue in queues {
        let now = tap::flags(queue).map_err(|e| refused("reading the flags of a tap", &e))?;
        if now & flags != flags {
            let text = format!("{what}: its flags are {now:#x} after {flags:#x} were set");
            return Err(Fault::unsupported(text));
        }
    }
    Ok(())
}

/// Requests unsegmented UDP messages, if the settings do. This affects the whole device.
fn take_messages(settings: &TapSettings, queues: &[OwnedFd]) -> Result<(), Fault> {
    let Some(queue) = queues.first().filter(|_| settings.uso) else { return Ok(()) };
    tap::take_messages(queue.as_fd()).map_err(|e| {
        let fault = Fault::system("enabling unsegmented UDP messages (TUNSETOFFLOAD)", &e);
        match e.raw_os_error() {
            Some(libc::EINVAL) => Fault { kind: FaultKind::Unsupported, ..fault }
                .remedy("use Linux 6.2 or later, or uso=off"),
            _ => fault,
        }
    })
}

/// Returns the flags of a tap, given those that the kernel knows.
fn flags(settings: &TapSettings, known: u32) -> Result<u32, Fault> {
    if settings.backpressure {
        has_backpressure(known)?;
    }
    let requested =
        [(settings.backpressure, tap::BACKPRESSURE), (settings.vnet_header, tap::VNET_HDR)];
    Ok(requested.iter().filter(|(on, _)| *on).fold(0, |all, (_, flag)| all | flag))
}

/// Errors if the taps of a kernel that knows only these flags have no back-pressure.
pub(crate) fn has_backpressure(known: u32) -> Result<(), Fault> {
    if known & tap::BACKPRESSURE != 0 {
        return Ok(());
    }
    let text = "this kernel's taps have no back-pressure (IFF_BACKPRESSURE)";
    Err(Fault::unsupported(text).remedy("use Linux 7.3 or later, or backpressure=off"))
}

fn cannot_make(what: &str, error: &io::Error) -> Fault {
    refused(what, error).remedy(match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV) => {
            "modprobe tun; in a container, give it the device /dev/net/tun"
        }
        // EINVAL: it is not a tap.
        Some(libc::EBUSY | libc::EINVAL) => "a device of that name already exists: remove it",
        Some(libc::E2BIG) => "choose fewer queues",
        _ => "run as root with CAP_NET_ADMIN, and let /dev/net/tun be opened (chmod 0666)",
    })
}

fn no_macvtap(what: &str, error: &io::Error) -> Fault {
    use io::ErrorKind::{AlreadyExists, InvalidInput, ResourceBusy, Unsupported};
    refused(what, error).remedy(match error.kind() {
        Unsupported => "modprobe macvtap, or use a kernel with CONFIG_MACVTAP",
        AlreadyExists => "a device of that name already exists: remove it",
        ResourceBusy | InvalidInput => {
            "the lower device already has another upper device: remove that"
        }
        _ => "run as root, with CAP_NET_ADMIN and CAP_MKNOD, outside a user namespace",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_back_pressure_is_named() {
        let plain = TapSettings { queues: 1, vnet_header: true, ..TapSettings::default() };
        assert_eq!(flags(&plain, 0x7173).unwrap(), tap::VNET_HDR);
        let wanted = TapSettings { backpressure: true, ..plain };
        let fault = flags(&wanted, 0x7173).unwrap_err();
        assert!(fault.message.contains("IFF_BACKPRESSURE"), "{fault}");
        assert!(fault.remedy.unwrap().contains("7.3"));
        assert_eq!(flags(&wanted, 0x71f3).unwrap(), tap::VNET_HDR | tap::BACKPRESSURE);
    }

    #[test]
    fn failed_taps_have_a_remedy() {
        for (code, remedy) in [
            (libc::EOPNOTSUPP, "modprobe macvtap"),
            (libc::EEXIST, "already exists"),
            (libc::EBUSY, "another upper device"),
            (libc::EPERM, "CAP_MKNOD"),
        ] {
            let fault = no_macvtap("creating the macvtap x", &io::Error::from_raw_os_error(code));
            assert!(fault.remedy.as_ref().unwrap().contains(remedy), "{fault:?}");
        }
        for (code, remedy) in [
            (libc::ENOENT, "modprobe tun"),
            (libc::EBUSY, "already exists"),
            (libc::EINVAL, "already exists"),
            (libc::EPERM, "CAP_NET_ADMIN"),
        ] {
            let fault = cannot_make("creating the tap x", &io::Error::from_raw_os_error(code));
            assert!(fault.remedy.as_ref().unwrap().contains(remedy), "{fault:?}");
        }
    }
}
