//! Properties of a network device: which one has an address, its number of queues, and its driver.
//! Queried by netlink, because sysfs shows the devices of the namespace that it was mounted in,
//! which need not be ours.

use super::ethtool::DataSplit;
use super::netlink::{Netlink, named};
use super::pci::{self, Address, Nearness};
use netlink_bindings::netdev::{self, QueueType};
use netlink_socket2::NetlinkSocket;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
use std::ffi::CString;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Returns the name of the device with this address. ENODEV: there is none.
pub fn of_address(address: IpAddr) -> io::Result<String> {
    let found = Netlink::new().all_addresses()?.into_iter().find(|(_, known, _)| *known == address);
    let (index, ..) = found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    name(index)
}

/// Returns all addresses of the namespace: device, address, and prefix length in bits.
pub fn addresses() -> io::Result<Vec<(String, IpAddr, u8)>> {
    let named = |(index, address, prefix)| Ok((name(index)?, address, prefix));
    Netlink::new().all_addresses()?.into_iter().map(named).collect()
}

/// Returns the index of a device in the caller's namespace. ENODEV: no such device.
pub fn index(name: &str) -> io::Result<u32> {
    Ok(netdevice::name_to_index(any_socket()?, name)?)
}

/// Returns the name of a device in the caller's namespace. ENODEV: no such device.
pub fn name(index: u32) -> io::Result<String> {
    Ok(netdevice::index_to_name(any_socket()?, index)?)
}

/// Returns the number of receive queues that a device uses. ENOENT: before Linux 6.8.
pub fn receive_queues(name: &str) -> io::Result<u32> {
    let index = index(name)?;
    let mut request = netdev::Request::new().op_queue_get_dump();
    request.encode().push_ifindex(index);
    let receives = Netlink::new().dump(&request, |queue| {
        Ok(queue.get_type().ok().filter(|kind| *kind == QueueType::Rx as u32))
    })?;
    Ok(receives.len() as u32)
}

/// The device can send frames that have no socket buffer (`NETDEV_XDP_ACT_NDO_XMIT`,
/// linux/netdev.h).
pub const XDP_SENDS: u64 = 4;

/// Returns the XDP features of a device's driver, bits of `enum netdev_xdp_act`. ENOENT: before
/// Linux 6.3.
pub fn xdp_features(index: u32) -> io::Result<u64> {
    let mut request = netdev::Request::new().op_dev_get_do();
    request.encode().push_ifindex(index);
    let mut socket = NetlinkSocket::new();
    let mut reply = socket.request(&request)?;
    let attributes = reply.recv_one()?;
    attributes.get_xdp_features().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Returns the name of the driver of a device on a bus: a NIC, real or emulated. `None` for devices
/// that are pure software, and for those that do not exist.
pub fn driver(name: &str) -> io::Result<Option<String>> {
    let Some(folder) = on_bus(name)? else { return Ok(None) };
    let target = fs::read_link(folder.join("driver")).ok();
    let driver = target.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
    Ok(Some(driver.map_or_else(|| "unknown".into(), |name| name.into_owned())))
}

/// Whether a device currently receives headers into separate buffers; false if its driver does not
/// report it.
pub fn splits_headers(name: &str) -> io::Result<bool> {
    match Netlink::new().rings(index(name)?) {
        Ok(rings) => Ok(rings.tcp_data_split == Some(DataSplit::Enabled)),
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Returns the numbers of the message-signalled interrupts of such a device, including those that
/// do not belong to queues (Documentation/ABI/testing/sysfs-bus-pci, `msi_irqs`). Empty for other
/// devices.
pub fn interrupts(name: &str) -> io::Result<Vec<u32>> {
    Ok(interrupts_in(&folders(name)?))
}

/// Returns the interrupts in the first of these folders in sysfs that has any: a device's own, then
/// its parent's. The parent of any device but a virtio one is a bridge or a port, which has its own
/// interrupts.
pub fn interrupts_in(folders: &[PathBuf]) -> Vec<u32> {
    let names = |folder: &PathBuf| crate::attribute::names(&folder.join("msi_irqs"));
    let names = folders.iter().map(names).find(|names| !names.is_empty()).unwrap_or_default();
    let mut all: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    all.sort_unstable();
    all
}

/// Returns the NUMA node of such a device; `None` for other devices, and if the machine does not
/// report it (Documentation/ABI/testing/sysfs-bus-pci, `numa_node`).
pub fn node(name: &str) -> io::Result<Option<u32>> {
    let node = |folder: &PathBuf| crate::attribute::text(&folder.join("numa_node"));
    Ok(folders(name)?.iter().find_map(node).and_then(|text| text.parse().ok()))
}

/// Returns how near such a device is to a PCI device.
pub fn nearness(name: &str, other: Address) -> Nearness {
    let folder = on_bus(name).ok().flatten();
    folder.map_or(Nearness::Unknown, |folder| pci::nearness(&folder, &other.folder()))
}

/// Returns the sysfs folders of a device on a bus: its own and its parent's, which for a virtio
/// device is its PCI device.
fn folders(name: &str) -> io::Result<Vec<PathBuf>> {
    let Some(folder) = on_bus(name)? else { return Ok(Vec::new()) };
    let below = fs::canonicalize(&folder)?.join("..");
    Ok(vec![folder, below])
}

/// Returns the sysfs folder of a device on a bus; sysfs shows buses in every namespace.
fn on_bus(name: &str) -> io::Result<Option<PathBuf>> {
    let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    let folder = Netlink::new().get_link(&named(&name), |_, attributes| {
        let bus = attributes.get_parent_dev_bus_name().ok();
        let names = bus.zip(attributes.get_parent_dev_name().ok());
        let names = names.map(|(bus, parent)| (bus.to_string_lossy(), parent.to_string_lossy()));
        Ok(names
            .map(|(bus, parent)| Path::new("/sys/bus").join(&*bus).join("devices").join(&*parent)))
    });
    Ok(folder?.flatten())
}

/// Opens a socket for requests about devices.
pub(super) fn any_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;
    use std::net::Ipv4Addr;

    #[test]
    fn the_loopback_device_is_all_software() {
        assert_eq!(of_address(Ipv4Addr::LOCALHOST.into()).unwrap(), "lo");
        assert!(addresses().unwrap().contains(&("lo".into(), Ipv4Addr::LOCALHOST.into(), 8)));
        assert_eq!(index("lo").unwrap(), 1);
        assert_eq!(driver("lo").unwrap(), None);
        assert_eq!(interrupts("lo").unwrap(), [0; 0]);
        assert_eq!(node("lo").unwrap(), None);
        assert_eq!(nearness("lo", "65:00.0".parse().unwrap()), Nearness::Unknown);
        match receive_queues("lo") {
            Ok(queues) => assert_eq!(queues, 1),
            Err(e) => skip!("{e}"),
        }
    }

    #[test]
    fn what_does_not_exist_is_not_found() {
        // TEST-NET-1 of RFC 5737: no host has this address.
        let error = of_address(Ipv4Addr::new(192, 0, 2, 77).into()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert_eq!(driver("no-such-dev").unwrap(), None);
        assert!(receive_queues("no-such-dev").is_err());
    }
}
