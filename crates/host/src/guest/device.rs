//! The network device of a guest that is one host: its link.

use bytepath_record::{Fault, FaultKind};
use bytepath_sys::ethtool::Channels;
use bytepath_sys::netlink::Netlink;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The device: the kernel's name for the first one of its kind.
pub const DEVICE: &str = "eth0";

/// The driver of the device.
const DRIVER: &str = "/sys/bus/virtio/drivers/virtio_net";

/// Renews the device, so that no setting of an earlier session is left.
pub(super) fn as_new() -> Result<(), Fault> {
    renew(Path::new(DRIVER))?;
    use_all_queues(DEVICE)
}

/// Takes every device from its driver and gives it back, after which it is as new
/// (Documentation/ABI/testing/sysfs-bus-virtio; drivers/base/bus.c).
fn renew(driver: &Path) -> Result<(), Fault> {
    let fault = |path: PathBuf| {
        move |e: io::Error| Fault::system(format!("renewing the device ({})", path.display()), &e)
    };
    let entries = fs::read_dir(driver).map_err(fault(driver.to_owned()))?;
    let names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let devices: Vec<&String> = names.iter().filter(|name| name.starts_with("virtio")).collect();
    if devices.is_empty() {
        let text = "the guest has no network device that virtio_net drives";
        return Err(Fault::new(FaultKind::Unsupported, text));
    }
    for device in devices {
        for verb in ["unbind", "bind"] {
            let path = driver.join(verb);
            fs::write(&path, device).map_err(fault(path))?;
        }
    }
    Ok(())
}

/// Puts every queue of the device to use: a driver that found fewer CPUs than queues
/// when it was bound leaves some alone.
fn use_all_queues(device: &str) -> Result<(), Fault> {
    let what = format!("the queues of {device}");
    let fail = |e: io::Error| Fault::system(&what, &e);
    let mut netlink = Netlink::new();
    let Some(link) = netlink.link(device).map_err(fail)? else {
        let text = format!("the guest's network device is not called {device}");
        return Err(Fault::new(FaultKind::Unsupported, text));
    };
    let channels = match netlink.channels(link.index) {
        // A driver that does not report it has one queue.
        Err(e) if e.kind() == io::ErrorKind::Unsupported => return Ok(()),
        channels => channels.map_err(fail)?,
    };
    match (channels.combined, channels.combined_max) {
        (Some(used), Some(most)) if used < most => {
            let all = Channels { combined: Some(most), ..Channels::default() };
            netlink.set_channels(link.index, &all).map_err(fail)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_without_a_device_says_so() {
        let driver = tempfile::tempdir().unwrap();
        assert!(renew(driver.path()).unwrap_err().message.contains("no network device"));
        fs::create_dir(driver.path().join("virtio3")).unwrap();
        renew(driver.path()).unwrap();
        assert_eq!(fs::read_to_string(driver.path().join("bind")).unwrap(), "virtio3");
        let fault = renew(&driver.path().join("gone")).unwrap_err();
        assert!(fault.message.contains("renewing the device"), "{fault}");
    }
}
