//! The end of a tap that is descriptors: its device goes into the namespace of the other
//! end, and is there as long as one of the descriptors is open.

use super::link::refused;
use crate::record::wire::LinkEnd;
use crate::record::{Fault, FaultKind, TapSettings};
use crate::sys::netlink::Netlink;
use crate::sys::tap::{self, Tap};
use std::io;
use std::os::fd::OwnedFd;

/// Makes a tap and puts its device into the namespace of `process`. Gives its queues, all
/// with the flags that were asked for: the kernel leaves out what it does not know without a
/// word, so they are read back.
pub fn make(end: &LinkEnd, process: u32) -> Result<Vec<OwnedFd>, Fault> {
    let Some(settings) = &end.settings.tap else {
        let text = "an end of descriptors without the settings of a tap";
        return Err(Fault::new(FaultKind::System, text).remedy("report this as a bug"));
    };
    let what = format!("creating the tap {}", end.device);
    let flags = flags(settings, tap::known_flags().map_err(|e| cannot_make(&what, &e))?)?;
    let tap = Tap::new(&end.device, 0, settings.queues, flags);
    let queues = tap.and_then(|tap| tap::make(&tap)).map_err(|e| cannot_make(&what, &e))?;
    for queue in &queues {
        let now = tap::flags(queue).map_err(|e| refused("reading the flags of a tap", &e))?;
        if now & flags != flags {
            let text = format!("{what}: its flags are {now:#x} after {flags:#x} were set");
            return Err(Fault::new(FaultKind::Unsupported, text));
        }
    }
    let mut netlink = Netlink::new();
    let moving = |e| refused("putting the tap into the other end's namespace", &e);
    let link = netlink.link(&end.device).map_err(moving)?;
    let index = link.ok_or_else(|| moving(io::Error::from_raw_os_error(libc::ENODEV)))?.index;
    netlink.set_namespace_of(index, process).map_err(moving)?;
    Ok(queues)
}

/// The flags of a tap on a kernel that knows these.
fn flags(settings: &TapSettings, known: u32) -> Result<u32, Fault> {
    if settings.backpressure && known & tap::BACKPRESSURE == 0 {
        let text = "this kernel's taps have no back-pressure (IFF_BACKPRESSURE)";
        return Err(Fault::new(FaultKind::Unsupported, text)
            .remedy("use Linux 7.3 or later, or backpressure=off"));
    }
    let wanted =
        [(settings.backpressure, tap::BACKPRESSURE), (settings.vnet_header, tap::VNET_HDR)];
    Ok(wanted.iter().filter(|(on, _)| *on).fold(0, |all, (_, flag)| all | flag))
}

fn cannot_make(what: &str, error: &io::Error) -> Fault {
    refused(what, error).remedy(match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV) => {
            "modprobe tun; in a container, give it the device /dev/net/tun"
        }
        Some(libc::EBUSY) => "a device of that name is there already: remove it",
        Some(libc::E2BIG) => "choose fewer queues",
        _ => "run as root with CAP_NET_ADMIN, and let /dev/net/tun be opened (chmod 0666)",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_back_pressure_is_named() {
        let plain = TapSettings { queues: 1, backpressure: false, vnet_header: true };
        assert_eq!(flags(&plain, 0x7173).unwrap(), tap::VNET_HDR);
        let wanted = TapSettings { backpressure: true, ..plain };
        let fault = flags(&wanted, 0x7173).unwrap_err();
        assert!(fault.message.contains("IFF_BACKPRESSURE"), "{fault}");
        assert!(fault.remedy.unwrap().contains("7.3"));
        assert_eq!(flags(&wanted, 0x71f3).unwrap(), tap::VNET_HDR | tap::BACKPRESSURE);
    }

    #[test]
    fn what_keeps_a_tap_from_being_made_has_a_remedy() {
        for (code, remedy) in [
            (libc::ENOENT, "modprobe tun"),
            (libc::EBUSY, "there already"),
            (libc::EPERM, "CAP_NET_ADMIN"),
        ] {
            let fault = cannot_make("creating the tap x", &io::Error::from_raw_os_error(code));
            assert!(fault.remedy.as_ref().unwrap().contains(remedy), "{fault:?}");
        }
    }
}
