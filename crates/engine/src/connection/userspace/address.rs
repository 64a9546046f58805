//! The address of a stack: a device of this end, and an IP address that the kernel does not have.

use bytepath_record::Fault;
use bytepath_sys::device;
use bytepath_sys::netlink::Netlink;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Distance of a stack's address from its host's, if none is named.
const AFTER: u32 = 64;

/// Networks for benchmarks, where every address is free to use: RFC 2544 and RFC 5180.
const FOR_TESTS: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0)), 15),
    (IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0)), 48),
];

/// An address on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackAddress {
    /// Interface index of the device.
    pub device: u32,
    /// Its MTU, bytes.
    pub mtu: u32,
    pub address: IpAddr,
    /// Length of the network's prefix in bits.
    pub prefix: u8,
}

/// Returns this host's address on the network that it shares with `peer`.
pub(super) fn towards(peer: IpAddr, device: Option<&str>) -> Result<IpAddr, Fault> {
    let read = |e: io::Error| Fault::system(format!("cannot read the way to {peer}"), &e);
    let all = device::addresses().map_err(read)?;
    let near = |(name, address, prefix): &&(String, IpAddr, u8)| {
        device.is_none_or(|device| device == name) && within(*address, peer, *prefix)
    };
    let found = all.iter().find(near).map(|(_, address, _)| *address);
    found.ok_or_else(|| {
        Fault::unsupported(format!("{peer} is not on the link of this host"))
            .remedy("the user-space TCP has no routes: choose hosts on one network")
    })
}

/// Returns the address of a stack on the link of `host`. `wanted` is an IP address or `auto`.
pub(super) fn of_stack(
    host: IpAddr,
    device: Option<&str>,
    wanted: &str,
) -> Result<StackAddress, Fault> {
    let read = |e: io::Error| Fault::system(format!("cannot read the device of {host}"), &e);
    let all = device::addresses().map_err(read)?;
    let has = |(name, address, _): &&(String, IpAddr, u8)| {
        *address == host && device.is_none_or(|device| device == name)
    };
    let (name, _, prefix) = all.iter().find(has).ok_or_else(|| {
        Fault::unsupported(format!("no device of this host has {host}"))
            .remedy("choose a testbed whose link ends in devices, such as netns")
    })?;
    let link = Netlink::new().link(name).map_err(read)?;
    let link = link.ok_or_else(|| Fault::peer_lost(format!("{name} went away")))?;
    let address = stack_address(host, *prefix, wanted)?;
    Ok(StackAddress { device: link.index, mtu: link.mtu, address, prefix: *prefix })
}

/// Returns the stack's IP address, in the same network as its host's.
fn stack_address(host: IpAddr, prefix: u8, wanted: &str) -> Result<IpAddr, Fault> {
    let usage = |text: String, remedy: &str| Fault::usage(text).remedy(remedy);
    let address = match wanted {
        "auto" | "" if FOR_TESTS.iter().any(|(net, bits)| within(*net, host, *bits)) => {
            match host {
                IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits().wrapping_add(AFTER)).into(),
                IpAddr::V6(v6) => {
                    Ipv6Addr::from_bits(v6.to_bits().wrapping_add(AFTER.into())).into()
                }
            }
        }
        "auto" | "" => {
            let text = format!(
                "which address in the network of {host} is free cannot be determined from here"
            );
            return Err(usage(text, "name one: userspace:address=ADDRESS"));
        }
        named => named.parse().map_err(|_| {
            usage(format!("'{named}' is not an IP address"), "name one such as 192.0.2.7")
        })?,
    };
    if address == host || !within(host, address, prefix) {
        let text = format!("{address} is not another address of the network {host}/{prefix}");
        return Err(usage(text, "choose a free one in that network: userspace:address=ADDRESS"));
    }
    Ok(address)
}

/// Whether two addresses are in the same network.
fn within(one: IpAddr, other: IpAddr, prefix: u8) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let differ = bits(one) ^ bits(other);
    one.is_ipv4() == other.is_ipv4() && differ.leading_zeros() >= u32::from(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derives_stack_address() {
        for (host, prefix, wanted, own) in [
            ("198.18.0.1", 24, "auto", "198.18.0.65"),
            ("2001:2::2", 64, "auto", "2001:2::42"),
            ("10.0.0.1", 24, "10.0.0.77", "10.0.0.77"),
        ] {
            let found = stack_address(host.parse().unwrap(), prefix, wanted).unwrap();
            assert_eq!(found, own.parse::<IpAddr>().unwrap());
        }
    }

    #[test]
    fn refuses_unsafe_addresses() {
        for (host, prefix, wanted, word) in [
            ("10.0.0.1", 24, "auto", "cannot be determined"),
            ("198.18.0.1", 30, "auto", "198.18.0.65 is not another address"),
            ("10.0.0.1", 24, "10.0.0.1", "is not another address"),
            ("10.0.0.1", 24, "fd00::1", "is not another address"),
            ("10.0.0.1", 24, "ten", "not an IP address"),
        ] {
            let fault = stack_address(host.parse().unwrap(), prefix, wanted).unwrap_err();
            assert!(fault.message.contains(word), "{fault}");
            assert!(fault.remedy.is_some(), "{fault}");
        }
    }
}
