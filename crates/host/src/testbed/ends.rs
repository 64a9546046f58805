//! The ends of a link that a testbed creates: their addresses and devices.

use crate::Attachment;
use bytepath_record::Role;
use bytepath_record::wire::LinkEnd;
use std::net::IpAddr;

/// Length of the link's prefix in bits. It leaves room for addresses that are not the kernel's.
pub(super) const PREFIX: u8 = 24;
pub(super) const PREFIX_V6: u8 = 64;

/// Returns an address from 198.18.0.0/15, which RFC 2544 reserves for benchmarks of network
/// devices; no real network uses them.
pub(super) fn address(role: Role) -> IpAddr {
    IpAddr::from([198, 18, 0, role as u8 + 1])
}

/// Like [`address`] for IPv6, from 2001:2::/48, which RFC 5180 reserves likewise.
pub(super) fn address_v6(role: Role) -> IpAddr {
    IpAddr::from([0x2001, 2, 0, 0, 0, 0, 0, role as u16 + 1])
}

/// Returns the name of a role's end if the testbed creates the device.
pub(super) fn device(role: Role) -> &'static str {
    ["byte0", "byte1"][role as usize]
}

/// Returns the end of a role at another pair of devices of its link, by number: with other names
/// and another network.
pub(crate) fn of_adapter(end: &LinkEnd, adapter: u32) -> LinkEnd {
    let named = |device: &str| match adapter {
        0 => device.to_owned(),
        number => format!("{device}_{number}"),
    };
    let peer = end.peer.as_ref().map(|(device, process)| (named(device), *process));
    let address = of_network(end.address, adapter);
    LinkEnd { device: named(&end.device), peer, address, ..end.clone() }
}

/// Returns the address that the adapter of this number has instead of the first one's: in another
/// network, whose number is the third byte (IPv4) or the fourth group (IPv6).
pub(super) fn of_network(address: IpAddr, number: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::from((v4.to_bits() + (number << 8)).to_be_bytes()),
        IpAddr::V6(v6) => IpAddr::from((v6.to_bits() + (u128::from(number) << 64)).to_be_bytes()),
    }
}

/// Returns a role's end with an existing device.
pub(super) fn end(role: Role, device: impl Into<String>) -> LinkEnd {
    LinkEnd::plain(device, address(role), PREFIX)
}

/// The receiver's end of a veth pair if there is a macvtap on it, which then has the end's name.
const BELOW: &str = "below1";

/// Returns both ends between the namespaces of two processes: of a veth pair, which the first
/// process creates and on whose other end there may be a macvtap; or of a tap, whose device the
/// receiver creates and moves into the sender's namespace.
pub fn beside([sender, receiver]: [u32; 2]) -> [Attachment; 2] {
    let plain = |role| end(role, device(role));
    let to = |peer: &str| {
        let peer = Some((peer.to_owned(), receiver));
        LinkEnd { peer, ..plain(Role::Sender) }
    };
    let descriptors =
        LinkEnd { tap_for: Some(sender), ..end(Role::Receiver, device(Role::Sender)) };
    [
        Attachment::Beside {
            veth: Box::new(to(device(Role::Receiver))),
            tap: Box::new(plain(Role::Sender)),
            macvtap: Box::new(to(BELOW)),
        },
        Attachment::Beside {
            veth: Box::new(plain(Role::Receiver)),
            tap: Box::new(descriptors),
            macvtap: Box::new(LinkEnd {
                macvtap_on: Some(BELOW.to_owned()),
                ..plain(Role::Receiver)
            }),
        },
    ]
}
