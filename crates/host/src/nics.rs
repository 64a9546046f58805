//! The NICs of a host: what is needed to prepare one, and its facts, which come from netlink and
//! from `/sys/class/net` (Documentation/ABI/testing/sysfs-class-net, sysfs-bus-pci).

use bytepath_record::wire::Nic;
use bytepath_record::{Fault, Hops, joined};
use bytepath_sys::attribute::{names, text};
use bytepath_sys::driver_info::driver_info;
use bytepath_sys::ethtool::{Channels, DataSplit};
use bytepath_sys::netlink::Netlink;
use bytepath_sys::qdisc::ROOT;
use bytepath_sys::{Roots, device};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Describes a device of the calling thread's network namespace; `None` if it is a software device.
pub fn nic(name: &str) -> Result<Option<Nic>, Fault> {
    let fault = |e: io::Error| Fault::system(format!("cannot look at {name}"), &e);
    if device::driver(name).map_err(fault)?.is_none() {
        return Ok(None);
    }
    let channels = channels(name).map_err(fault)?;
    let unpaired = channels.rx.unwrap_or(0);
    // Before Linux 6.8, only ethtool's channels report it, and some drivers report none.
    let all = || unpaired.saturating_add(channels.combined.unwrap_or(0)).max(1);
    // A device that is down lists none.
    let listed = device::receive_queues(name).ok().filter(|queues| *queues > 0);
    let queues = listed.unwrap_or_else(all);
    let interrupts = interrupts(name).map_err(fault)?;
    Ok(Some(Nic { device: name.to_owned(), queues, unpaired, interrupts }))
}

/// Returns the interrupts of a device's queues; before Linux 6.8, and for a device that is down,
/// all interrupts of the NIC.
fn interrupts(device: &str) -> io::Result<Vec<u32>> {
    let mut netlink = Netlink::new();
    let link = netlink.link(device)?;
    let napis = link.and_then(|link| netlink.napis(link.index).ok()).unwrap_or_default();
    let mut all: Vec<u32> = napis.iter().filter_map(|napi| napi.interrupt).collect();
    let every = device::interrupts(device)?;
    if all.is_empty() {
        return Ok(every);
    }
    all.extend(every.into_iter().filter(|irq| transmits(device, *irq)));
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// True for a transmit interrupt, by the name that the driver gave it (`eth0-tx-0`;
/// Documentation/ABI/testing/sysfs-kernel-irq): some belong to no NAPI instance.
fn transmits(device: &str, irq: u32) -> bool {
    let actions = text(Path::new(&format!("/sys/kernel/irq/{irq}/actions"))).unwrap_or_default();
    let of = |action: &str| action.strip_prefix(device).is_some_and(|rest| rest.starts_with("-tx"));
    actions.split(',').any(of)
}

/// Returns the numbers of a device's queues; empty if the driver reports none.
fn channels(device: &str) -> io::Result<Channels> {
    let mut netlink = Netlink::new();
    let Some(link) = netlink.link(device)? else {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    };
    Ok(netlink.channels(link.index).unwrap_or_default())
}

/// True if a mask of CPUs, or a switch, is not zero.
pub(super) fn is_set(mask: &str) -> bool {
    mask.chars().any(|c| !matches!(c, '0' | ','))
}

/// Attributes of a NIC: name of the fact, path below the device's folder.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("speed", "speed"),
    ("mtu", "mtu"),
    ("node", "device/numa_node"),
    ("pcie_width", "device/current_link_width"),
    ("pcie_width_max", "device/max_link_width"),
    ("pcie_speed", "device/current_link_speed"),
    ("pcie_speed_max", "device/max_link_speed"),
];

/// Returns the names of the hardware devices.
fn hardware_devices(folder: &Path) -> Vec<String> {
    let is_hardware = |name: &String| folder.join(name).join("device").exists();
    names(folder).into_iter().filter(is_hardware).collect()
}

/// Returns the facts of every NIC: "nic.eth0.speed", "nic.eth0.rx_ring" and so on. A NIC that is
/// down does not report its speed.
pub(super) fn settings(roots: &Roots) -> Vec<(String, String)> {
    let folder = roots.sys.join("class/net");
    let mut all = Vec::new();
    for name in hardware_devices(&folder) {
        let device = folder.join(&name);
        let mut keep = |what: &str, value: String| all.push((format!("nic.{name}.{what}"), value));
        for (what, path) in ATTRIBUTES {
            // The kernel reports -1 for values it does not know without a carrier.
            let value = text(&device.join(path));
            if let Some(value) = value.filter(|value| *what != "speed" || value != "-1") {
                keep(what, value);
            }
        }
        let uevent = text(&device.join("device/uevent")).unwrap_or_default();
        if let Some(driver) = uevent.lines().find_map(|line| line.strip_prefix("DRIVER=")) {
            keep("driver", driver.to_owned());
        }
        let queues = names(&device.join("queues"));
        let count = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count();
        keep("queues", format!("{} rx, {} tx", count("rx-"), count("tx-")));
        let steered = |queue: &&String| {
            let mask = text(&device.join("queues").join(queue).join("rps_cpus"));
            queue.starts_with("rx-") && mask.is_some_and(|mask| is_set(&mask))
        };
        let rps = queues.iter().filter(steered).count();
        if rps > 0 {
            keep("rps", format!("{rps} queues"));
        }
    }
    for (name, nic) in reports(roots) {
        let settings = nic.settings().into_iter();
        all.extend(settings.map(|(what, value)| (format!("nic.{name}.{what}"), value)));
    }
    all
}

/// Netlink's report on a NIC that is up. Fields that the driver does not report are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct NicReport {
    /// Name of the root qdisc.
    qdisc: String,
    /// Offloads that are on, by the kernel's names.
    features: Vec<String>,
    /// Offloads that can be changed.
    changeable: Vec<String>,
    /// Descriptors of a receive ring, and their maximum.
    rx_ring: Option<(u32, u32)>,
    /// Descriptors of a transmit ring, and their maximum.
    tx_ring: Option<(u32, u32)>,
    /// Queues that receive, and their maximum.
    queues: Option<(u32, u32)>,
    /// Microseconds and packets by which a receive interrupt is delayed.
    rx_coalescing: (Option<u32>, Option<u32>),
    /// Whether the driver adapts these to the load.
    adaptive: Option<bool>,
    /// Whether headers are received into separate buffers; `None` if the driver cannot do so or
    /// does not report it.
    header_split: Option<bool>,
    /// Packets up to this many bytes are not split.
    split_threshold: Option<u32>,
    /// Largest packets of segmentation offload and GRO, bytes.
    big: (Option<u32>, Option<u32>),
    /// Largest packet that the NIC can segment, bytes.
    most_segmented: Option<u32>,
    /// Version of the driver, as it reports it.
    driver_version: Option<String>,
    /// Version of the NIC's firmware.
    firmware: Option<String>,
}

/// Queries the kernel for these devices; those that are down or gone are left out.
fn query(devices: &[String]) -> BTreeMap<String, NicReport> {
    let mut netlink = Netlink::new();
    let mut report = |device: &String| -> Option<(String, NicReport)> {
        let link = netlink.link(device).ok()??;
        if !link.up {
            return None;
        }
        let mut nic = NicReport {
            qdisc: link.qdisc,
            big: (link.limits.gso, link.limits.gro),
            most_segmented: link.tso_max_size,
            ..NicReport::default()
        };
        if let Ok(info) = driver_info(device) {
            (nic.driver_version, nic.firmware) = (info.version, info.firmware);
        }
        if let Ok(features) = netlink.features(link.index) {
            (nic.features, nic.changeable) = (features.active, features.changeable);
        }
        if let Ok(rings) = netlink.rings(link.index) {
            nic.rx_ring = rings.rx.zip(rings.rx_max);
            nic.tx_ring = rings.tx.zip(rings.tx_max);
            nic.header_split = match rings.tcp_data_split {
                Some(DataSplit::Enabled) => Some(true),
                Some(DataSplit::Disabled) => Some(false),
                Some(DataSplit::Unknown) | None => None,
            };
            nic.split_threshold = rings.hds_thresh;
        }
        if let Ok(channels) = netlink.channels(link.index) {
            nic.queues = receiving(&channels);
        }
        if let Ok(coalescing) = netlink.coalescing(link.index) {
            nic.rx_coalescing = (coalescing.rx_usecs, coalescing.rx_frames);
            nic.adaptive = coalescing.adaptive_rx;
        }
        Some((device.clone(), nic))
    };
    devices.iter().filter_map(&mut report).collect()
}

impl NicReport {
    /// True if an offload is on.
    fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|name| name == feature)
    }

    /// Returns its facts, as settings of the host.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        let mut keep = |name, value: Option<String>| all.extend(value.map(|value| (name, value)));
        let of = |(now, most): (u32, u32)| format!("{now} of {most}");
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        keep("qdisc", Some(self.qdisc.clone()).filter(|qdisc| !qdisc.is_empty()));
        keep("rx_ring", self.rx_ring.map(of));
        keep("tx_ring", self.tx_ring.map(of));
        keep("channels", self.queues.map(of));
        let (micros, frames) = self.rx_coalescing;
        let waits = [micros.map(|n| format!("{n} us")), frames.map(|n| format!("{n} packets"))];
        let waits = joined(waits.iter().flatten(), ", ");
        // An adaptive driver may report its current delay, which is not a setting.
        let set = self.adaptive != Some(true);
        keep("rx_coalescing", Some(waits).filter(|text| set && !text.is_empty()));
        keep("adaptive_coalescing", self.adaptive.map(switch));
        for (name, feature) in OFFLOADS {
            let known = self.has(feature) || self.changeable.iter().any(|f| f == feature);
            keep(name, known.then(|| switch(self.has(feature))));
        }
        keep("header_split", self.header_split.map(switch));
        keep("header_split_threshold", self.split_threshold.map(|bytes| bytes.to_string()));
        keep("driver_version", self.driver_version.clone());
        keep("firmware", self.firmware.clone());
        let (gso, gro) = self.big;
        keep("gso_max_size", gso.map(|bytes| bytes.to_string()));
        keep("gro_max_size", gro.map(|bytes| bytes.to_string()));
        keep("tso_max_size", self.most_segmented.map(|bytes| bytes.to_string()));
        all
    }
}

/// Offloads that change the cost of a path: fact, kernel's name (net/ethtool/common.c).
const OFFLOADS: &[(&str, &str)] = &[
    ("gro", "rx-gro"),
    ("hw_gro", "rx-gro-hw"),
    ("lro", "rx-lro"),
    ("tso", "tx-tcp-segmentation"),
    ("gso", "tx-generic-segmentation"),
    ("rx_checksum", "rx-checksum"),
    ("scatter_gather", "tx-scatter-gather"),
];

/// Returns the number of queues that receive, and its maximum: receive-only queues and pairs.
fn receiving(channels: &Channels) -> Option<(u32, u32)> {
    let sum = |only: Option<u32>, pairs: Option<u32>| match (only, pairs) {
        (None, None) => None,
        (only, pairs) => Some(only.unwrap_or(0).saturating_add(pairs.unwrap_or(0))),
    };
    let now = sum(channels.rx, channels.combined)?;
    // A driver with pairs and single queues cannot have the maximum of both.
    Some((now, channels.combined_max.max(channels.rx_max)?.max(now)))
}

/// Returns netlink's reports on the NICs of a host, by name, or a recording of them; empty if the
/// recording cannot be read.
fn reports(roots: &Roots) -> BTreeMap<String, NicReport> {
    match &roots.nics {
        Some(file) => {
            text(file).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
        }
        None => query(&hardware_devices(&roots.sys.join("class/net"))),
    }
}

/// Returns the frames that a device of this namespace and its root qdisc have dropped, and those
/// that are queued. A multi-queue qdisc (mq) reports the sums of its children.
pub fn hops(device: &str) -> Result<Hops, Fault> {
    let failed = |e: io::Error| Fault::system(format!("counting the drops of {device}"), &e);
    let mut netlink = Netlink::new();
    let link = netlink.link(device).map_err(failed)?;
    let traffic = netlink.traffic(device).map_err(failed)?;
    let (Some(link), Some(traffic)) = (link, traffic) else {
        return Err(Fault::peer_lost(format!("device {device} no longer exists"))
            .remedy("find out what removed it; a tap disappears when its reader closes it"));
    };
    let all = netlink.qdiscs(link.index).map_err(failed)?;
    let root = all.iter().find(|qdisc| qdisc.parent == ROOT);
    let count = |name: &str| {
        let counts = root.map_or(&[][..], |root| &root.counts);
        counts.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    };
    Ok(Hops {
        device_sent: traffic.sent,
        device_dropped: traffic.dropped,
        device_received: traffic.received,
        arrival_dropped: traffic.dropped_on_arrival,
        qdisc_dropped: count("drops"),
        qdisc_queued: count("qlen"),
        ..Hops::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_recorded_nics() {
        let loopback = query(&["lo".into(), "no-such-dev".into()]);
        let nic = &loopback["lo"];
        assert!(loopback.len() == 1 && nic.qdisc == "noqueue" && nic.has("rx-gro"), "{nic:?}");
        assert_eq!((nic.rx_ring, nic.header_split), (None, None), "loopback has no rings");
        let text = serde_json::to_string(&loopback).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::recorded(dir.path());
        assert_eq!(reports(&roots), BTreeMap::new());
        std::fs::write(dir.path().join("cards.json"), text).unwrap();
        assert_eq!(reports(&roots), loopback);
        assert!(settings(&roots).contains(&("nic.lo.gro".into(), "on".into())));
        std::fs::write(dir.path().join("cards.json"), "{\"lo\": 3}").unwrap();
        assert_eq!(reports(&roots), BTreeMap::new());
    }

    #[test]
    fn queues_that_receive() {
        let channels = Channels {
            rx: Some(0),
            rx_max: Some(32),
            combined: Some(8),
            combined_max: Some(63),
            ..Channels::default()
        };
        assert_eq!(receiving(&channels), Some((8, 63)));
        assert_eq!(receiving(&Channels::default()), None);
    }
}
