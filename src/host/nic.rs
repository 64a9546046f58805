//! What is known of the network cards of a host from `/sys/class/net`
//! (Documentation/ABI/testing/sysfs-class-net, sysfs-bus-pci).

use super::facts::read;
use crate::sys::attribute::names;
use std::path::Path;

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

/// Names of the devices with hardware behind them.
pub fn cards(folder: &Path) -> Vec<String> {
    let is_card = |name: &String| folder.join(name).join("device").exists();
    names(folder).into_iter().filter(is_card).collect()
}

/// Facts of every device with hardware behind it: "nic.eth0.speed" and the like.
/// A card that is down does not tell its speed.
pub fn settings(folder: &Path) -> Vec<(String, String)> {
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
            mask.is_some_and(|mask| mask.chars().any(|c| !matches!(c, '0' | ',')))
        };
        let rps = queues.iter().filter(|queue| queue.starts_with("rx-")).filter(steered).count();
        if rps > 0 {
            keep("rps", format!("{rps} queues"));
        }
    }
    all
}
