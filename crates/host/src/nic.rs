//! The network cards of a host: what preparing one requires, and from
//! `/sys/class/net` the rest (Documentation/ABI/testing/sysfs-class-net, sysfs-bus-pci).

use bytepath_record::Fault;
use bytepath_record::wire::Nic;
use bytepath_sys::attribute::{names, text as read};
use bytepath_sys::device;
use bytepath_sys::netlink::Netlink;
use std::io;
use std::path::Path;

/// A device of the calling thread's network namespace; `None` if it is all software.
pub fn nic(name: &str) -> Result<Option<Nic>, Fault> {
    let fault = |e: io::Error| Fault::system(format!("cannot look at {name}"), &e);
    let Some(driver) = device::driver(name).map_err(fault)? else { return Ok(None) };
    let queues = match device::receive_queues(name) {
        // Before Linux 6.8 only ethtool's channels show it.
        Err(_) => channels(name).map_err(fault)?,
        Ok(queues) => queues,
    };
    let interrupts = interrupts(name).map_err(fault)?;
    Ok(Some(Nic { device: name.to_owned(), driver, queues, interrupts }))
}

/// Interrupts of a device's queues; before Linux 6.8, and of a device that is down, all
/// that the card has.
fn interrupts(device: &str) -> io::Result<Vec<u32>> {
    let mut netlink = Netlink::new();
    let link = netlink.link(device)?;
    let napis = link.and_then(|link| netlink.napis(link.index).ok()).unwrap_or_default();
    let mut all: Vec<u32> = napis.iter().filter_map(|napi| napi.interrupt).collect();
    if all.is_empty() {
        return device::interrupts(device);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Queues that receive, alone or in a pair; one, if the driver reports none.
fn channels(device: &str) -> io::Result<u32> {
    let mut netlink = Netlink::new();
    let Some(link) = netlink.link(device)? else {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    };
    let count = netlink.channels(link.index).map_or(1, |channels| {
        channels.rx.unwrap_or(0).saturating_add(channels.combined.unwrap_or(0))
    });
    Ok(count.max(1))
}

/// Whether a mask of CPUs, or a switch, is anything but zero.
pub(super) fn is_set(mask: &str) -> bool {
    mask.chars().any(|c| !matches!(c, '0' | ','))
}

/// Attributes of a card: name of the fact, path below the device's folder.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("speed", "speed"),
    ("mtu", "mtu"),
    ("node", "device/numa_node"),
    ("pcie_width", "device/current_link_width"),
    ("pcie_width_max", "device/max_link_width"),
    ("pcie_speed", "device/current_link_speed"),
    ("pcie_speed_max", "device/max_link_speed"),
];

/// Names of the hardware devices.
pub(crate) fn cards(folder: &Path) -> Vec<String> {
    let is_card = |name: &String| folder.join(name).join("device").exists();
    names(folder).into_iter().filter(is_card).collect()
}

/// Facts of every hardware device: "nic.eth0.speed" and the like.
/// A card that is down does not report its speed.
pub(crate) fn settings(folder: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for name in cards(folder) {
        let device = folder.join(&name);
        let mut keep = |what: &str, value: String| all.push((format!("nic.{name}.{what}"), value));
        for (what, path) in ATTRIBUTES {
            if let Some(value) = read(&device.join(path)) {
                keep(what, value);
            }
        }
        let uevent = read(&device.join("device/uevent")).unwrap_or_default();
        if let Some(driver) = uevent.lines().find_map(|line| line.strip_prefix("DRIVER=")) {
            keep("driver", driver.to_owned());
        }
        let queues = names(&device.join("queues"));
        let count = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count();
        keep("queues", format!("{} rx, {} tx", count("rx-"), count("tx-")));
        let steered = |queue: &&String| {
            let mask = read(&device.join("queues").join(queue).join("rps_cpus"));
            mask.is_some_and(|mask| is_set(&mask))
        };
        let rps = queues.iter().filter(|queue| queue.starts_with("rx-")).filter(steered).count();
        if rps > 0 {
            keep("rps", format!("{rps} queues"));
        }
    }
    all
}
