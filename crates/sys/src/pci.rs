//! PCI addresses of devices, and how near devices are to each other.

use crate::attribute;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The address of a PCI device, as lspci(8) and nvidia-smi(1) print it: `0000:65:00.0`, `65:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl Address {
    /// Returns the device's folder in sysfs.
    pub fn folder(self) -> PathBuf {
        Path::new("/sys/bus/pci/devices").join(self.to_string())
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| format!("'{text}' is not the address of a PCI device"))
    }
}

fn parse(text: &str) -> Option<Address> {
    let number = |text: &str, digits: usize, most: u32| {
        let fits = (1..=digits).contains(&text.len());
        let is_hex = fits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u32::from_str_radix(text, 16).ok())?;
        number.filter(|number| *number <= most)
    };
    let (place, function) = text.split_once('.')?;
    let (bus, device) = place.rsplit_once(':')?;
    let (domain, bus) = bus.split_once(':').unwrap_or(("0", bus));
    Some(Address {
        domain: number(domain, 8, u32::MAX)?,
        bus: number(bus, 2, 0xff)? as u8,
        device: number(device, 2, 0x1f)? as u8,
        function: number(function, 1, 7)? as u8,
    })
}

/// Formats the address as sysfs does.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// How near two devices are, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nearness {
    /// One of them is on no bus, or sysfs does not show its place.
    Unknown,
    /// On different NUMA nodes and below different PCI roots.
    Apart,
    /// On the same NUMA node.
    Node,
    /// Below the same PCI root.
    Root,
    /// Behind this many common bridges.
    Bridge(usize),
}

/// Returns how near two devices are, given their folders in sysfs.
pub fn nearness(one: &Path, other: &Path) -> Nearness {
    let [Ok(one), Ok(other)] = [one, other].map(fs::canonicalize) else { return Nearness::Unknown };
    let shared = one.components().zip(other.components()).take_while(|(one, other)| one == other);
    let shared = shared.map(|(part, _)| part.as_os_str().to_string_lossy());
    match shared.skip_while(|part| !part.starts_with("pci")).count() {
        0 if node(&one).is_some() && node(&one) == node(&other) => Nearness::Node,
        0 => Nearness::Apart,
        1 => Nearness::Root,
        more => Nearness::Bridge(more - 1),
    }
}

/// Returns the NUMA node of a device, or of the PCI device that a virtio device sits on.
fn node(folder: &Path) -> Option<u32> {
    let text = |folder: &Path| attribute::text(&folder.join("numa_node"));
    text(folder).or_else(|| text(folder.parent()?))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    #[test]
    fn an_address_is_read_as_programs_print_it() {
        for (typed, read) in [
            ("0000:65:00.0", "0000:65:00.0"),
            ("65:00.0", "0000:65:00.0"),
            ("00000000:C1:1F.7", "0000:c1:1f.7"),
            ("10000:01:00.1", "10000:01:00.1"),
        ] {
            let address: Address = typed.parse().unwrap();
            assert_eq!(address.to_string(), read, "{typed}");
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        for wrong in [
            "",
            "1",
            "65:00",
            "65:00.8",
            "65:20.0",
            "165:00.0",
            "x:65:00.0",
            "0:0:65:00.0",
            "+1:00.0",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    /// A machine with two sockets. Behind the first root are a switch with a NIC and a GPU, and a
    /// port with a GPU; a third GPU has another root of the same node, and a fourth is on the other
    /// node.
    #[test]
    fn the_nearest_device_shares_most_bridges() {
        let folder = tempfile::tempdir().unwrap();
        let (devices, bus) = (folder.path().join("devices"), folder.path().join("bus/pci/devices"));
        create_dir_all(&bus).unwrap();
        let place = |path: &str, node: &str| {
            let at = devices.join(path);
            create_dir_all(&at).unwrap();
            write(at.join("numa_node"), format!("{node}\n")).unwrap();
            let link = bus.join(at.file_name().unwrap());
            symlink(&at, &link).unwrap();
            link
        };
        let switch = "pci0000:00/0000:00:01.0/0000:01:00.0";
        let nic = place(&format!("{switch}/0000:02:00.0/0000:03:00.0"), "0");
        let near = [
            (Nearness::Bridge(2), place(&format!("{switch}/0000:02:01.0/0000:04:00.0"), "0")),
            (Nearness::Root, place("pci0000:00/0000:00:02.0/0000:05:00.0", "0")),
            (Nearness::Node, place("pci0000:40/0000:40:01.0/0000:41:00.0", "0")),
            (Nearness::Apart, place("pci0000:80/0000:80:01.0/0000:81:00.0", "1")),
            (Nearness::Apart, place("pci0000:c0/0000:c0:01.0/0000:c1:00.0", "-1")),
            (Nearness::Unknown, bus.join("0000:ff:00.0")),
        ];
        for (expected, gpu) in &near {
            assert_eq!(nearness(&nic, gpu), *expected, "{}", gpu.display());
        }
        assert!(near.is_sorted_by(|(one, _), (other, _)| one >= other));
        // A virtio device has no node of its own.
        let virtio = devices.join("pci0000:40/0000:40:02.0/virtio0");
        create_dir_all(&virtio).unwrap();
        write(virtio.join("../numa_node"), "1\n").unwrap();
        assert_eq!(nearness(&virtio, &near[2].1), Nearness::Root);
        assert_eq!(nearness(&virtio, &near[3].1), Nearness::Node);
    }
}
