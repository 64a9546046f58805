//! Addresses and routes of a device as the kernel tells them, which is how it takes
//! them, too: rtnetlink(7), net/ipv4/devinet.c, net/ipv6/addrconf.c,
//! net/ipv4/fib_frontend.c, net/ipv6/route.c. What the kernel makes by itself (routes
//! to what is connected, autoconfigured addresses) is left out.
//!
//! Encoded here, because the bindings name each attribute, and what is to be put back
//! is every attribute, known or not.

use super::netlink::{Netlink, acknowledged, explained};
use super::route_request::request;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Length of its prefix in bits.
    pub prefix: u8,
    /// Good on the link alone (`RT_SCOPE_LINK`), as each IPv6 device has one.
    pub of_link: bool,
    /// Seconds that it is valid and preferred still; none if for ever.
    pub lifetimes: Option<(u32, u32)>,
    /// The rest: `struct ifaddrmsg` without the device's number, and attributes.
    pub message: Vec<u8>,
}

/// A route by a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where it leads, with the length of the prefix in bits; 0 for a default route.
    pub destination: (IpAddr, u8),
    /// Number of its table; 254 is the usual one.
    pub table: u32,
    /// By a router, which another route has to lead to.
    pub by_router: bool,
    /// It has several next hops, or one that is an object of its own: nothing that one
    /// message could put back.
    pub compound: bool,
    /// The rest: `struct rtmsg` and attributes without the device's number.
    pub message: Vec<u8>,
}

// include/uapi/linux/if_addr.h.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_CACHEINFO: u16 = 6;
const IFA_FLAGS: u16 = 8;
const IFA_PROTO: u16 = 11;
const KEPT_OF_ADDRESS: &[u16] = &[IFA_ADDRESS, IFA_LOCAL, 3, 4, IFA_FLAGS, 9, IFA_PROTO];
const IFA_F_PERMANENT: u32 = 0x80;
/// No DAD, home address, temporary addresses, no prefix route, multicast join: what a
/// user sets; the other flags are the kernel's.
const FLAGS_OF_USERS: u32 = 0x02 | 0x10 | 0x100 | 0x200 | 0x400;
/// Made by a router's advertisement, or for the link: both come back by themselves.
const IFAPROT_KERNEL_RA: u8 = 2;
const IFAPROT_KERNEL_LL: u8 = 3;
/// Bytes of `struct ifaddrmsg`: family, prefix, flags, scope, device.
const ADDRESS_HEADER: usize = 8;
const RT_SCOPE_LINK: u8 = 253;

// include/uapi/linux/rtnetlink.h.
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_NH_ID: u16 = 30;
const KEPT_OF_ROUTE: &[u16] = &[RTA_DST, 2, RTA_GATEWAY, 6, 7, 8, RTA_TABLE, RTA_VIA, 20, 21, 22];
const RTM_F_CLONED: u32 = 0x200;
const RTNH_F_ONLINK: u32 = 4;
const RTN_UNICAST: u8 = 1;
const RT_TABLE_LOCAL: u32 = 255;
/// By a redirect, by the kernel, by a router's advertisement.
const MADE_BY_ITSELF: &[u8] = &[1, 2, 9];
// include/uapi/linux/neighbour.h.
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;
/// Bytes of `struct rtmsg`: eight single ones, flags.
const ROUTE_HEADER: usize = 12;

impl Netlink {
    /// Addresses of a device, in the kernel's order.
    pub fn addresses(&mut self, index: u32) -> io::Result<Vec<Address>> {
        let mut reply = self.socket.request(&AllAddresses(vec![0; ADDRESS_HEADER]))?;
        let mut found = Vec::new();
        while let Some(message) = reply.recv() {
            found.extend(message.map_err(explained)?.and_then(|m| address(&m, index)));
        }
        Ok(found)
    }

    /// Gives a device an address back. One that it has already is left as it is.
    pub fn put_address(&mut self, index: u32, address: &Address) -> io::Result<()> {
        let mut payload = address.message.clone();
        let place = payload.get_mut(4..ADDRESS_HEADER).ok_or_else(invalid)?;
        place.copy_from_slice(&index.to_ne_bytes());
        if let Some((valid, preferred)) = address.lifetimes {
            let info = [preferred, valid, 0, 0].map(u32::to_ne_bytes).concat();
            attribute(&mut payload, IFA_CACHEINFO, &info);
        }
        there_already(acknowledged(&mut self.socket, &NewAddress(payload)))
    }

    /// Routes by a device, in all tables but the local one.
    pub fn routes(&mut self, index: u32) -> io::Result<Vec<Route>> {
        let mut reply = self.socket.request(&AllRoutes(vec![0; ROUTE_HEADER]))?;
        let mut found = Vec::new();
        while let Some(message) = reply.recv() {
            found.extend(message.map_err(explained)?.and_then(|m| route(&m, index)));
        }
        Ok(found)
    }

    /// Puts a route by a device back. One that is there already is left as it is.
    /// ENETUNREACH: what it leads over is not there, or the device is down.
    pub fn put_route(&mut self, index: u32, route: &Route) -> io::Result<()> {
        let mut payload = route.message.clone();
        attribute(&mut payload, RTA_OIF, &index.to_ne_bytes());
        there_already(acknowledged(&mut self.socket, &NewRoute(payload)))
    }

    /// Tells a device the hardware address of a neighbour, for good.
    pub fn set_neighbour(
        &mut self,
        index: u32,
        address: IpAddr,
        hardware: [u8; 6],
    ) -> io::Result<()> {
        let (family, bytes) = match address {
            IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
            IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
        };
        // struct ndmsg: family, padding, device, state, flags, type.
        let mut payload = vec![family as u8, 0, 0, 0];
        payload.extend(index.to_ne_bytes());
        payload.extend(NUD_PERMANENT.to_ne_bytes());
        payload.extend([0, 0]);
        attribute(&mut payload, NDA_DST, &bytes);
        attribute(&mut payload, NDA_LLADDR, &hardware);
        acknowledged(&mut self.socket, &NewNeighbour(payload))
    }
}

impl Address {
    /// From a message that was kept; none if it is none.
    pub fn kept(message: Vec<u8>, lifetimes: Option<(u32, u32)>) -> Option<Address> {
        let (&[family, prefix, _, scope], rest) = message.split_first_chunk::<4>()?;
        let rest = rest.get(4..)?;
        let of = |kind| attributes(rest).find(|(k, _)| *k == kind).map(|(_, value)| value);
        let ip = ip(family, of(IFA_LOCAL).or(of(IFA_ADDRESS))?)?;
        Some(Address { ip, prefix, of_link: scope == RT_SCOPE_LINK, lifetimes, message })
    }
}

impl Route {
    /// From a message that was kept; none if it is none.
    pub fn kept(message: Vec<u8>) -> Option<Route> {
        let header: [u8; ROUTE_HEADER] = *message.first_chunk()?;
        let [family, length, _, _, table, ..] = header;
        let rest = message.get(ROUTE_HEADER..)?;
        let of = |kind| attributes(rest).find(|(k, _)| *k == kind).map(|(_, value)| value);
        let any = if family as i32 == libc::AF_INET6 {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        };
        let destination = match of(RTA_DST) {
            Some(bytes) => ip(family, bytes)?,
            None => any,
        };
        let table = of(RTA_TABLE).and_then(word).unwrap_or(table.into());
        let by_router = of(RTA_GATEWAY).is_some() || of(RTA_VIA).is_some();
        Some(Route {
            destination: (destination, length),
            table,
            by_router,
            compound: false,
            message,
        })
    }
}

/// An address of this device that does not come by itself.
fn address(message: &[u8], index: u32) -> Option<Address> {
    let (&[family, prefix, flags, scope], rest) = message.split_first_chunk::<4>()?;
    let (device, rest) = rest.split_first_chunk::<4>()?;
    if u32::from_ne_bytes(*device) != index {
        return None;
    }
    let mut kept = vec![family, prefix, flags & FLAGS_OF_USERS as u8, scope, 0, 0, 0, 0];
    let (mut all_flags, mut proto, mut lifetimes) = (u32::from(flags), 0, None);
    for (kind, value) in attributes(rest) {
        match kind {
            IFA_FLAGS => all_flags = word(value)?,
            IFA_PROTO => proto = value.first().copied().unwrap_or_default(),
            IFA_CACHEINFO => {
                let preferred = value.get(..4).and_then(word);
                lifetimes = value.get(4..8).and_then(word).zip(preferred);
            }
            _ => {}
        }
        match kind {
            IFA_FLAGS => {
                let own = all_flags & FLAGS_OF_USERS;
                attribute(&mut kept, kind, &own.to_ne_bytes());
            }
            kind if KEPT_OF_ADDRESS.contains(&kind) => attribute(&mut kept, kind, value),
            _ => {}
        }
    }
    let permanent = all_flags & IFA_F_PERMANENT != 0;
    let advertised = family as i32 == libc::AF_INET6 && !permanent;
    if advertised || matches!(proto, IFAPROT_KERNEL_RA | IFAPROT_KERNEL_LL) {
        return None;
    }
    Address::kept(kept, lifetimes.filter(|_| !permanent))
}

/// A route by this device that somebody made.
fn route(message: &[u8], index: u32) -> Option<Route> {
    let header: [u8; ROUTE_HEADER] = *message.first_chunk()?;
    let rest = message.get(ROUTE_HEADER..)?;
    let [family, length, source, tos, table, protocol, scope, kind, a, b, c, d] = header;
    let flags = u32::from_ne_bytes([a, b, c, d]);
    let mut kept = vec![family, length, source, tos, table, protocol, scope, kind];
    kept.extend((flags & RTNH_F_ONLINK).to_ne_bytes());
    let (mut goes_by, mut compound) = (false, false);
    for (kind, value) in attributes(rest) {
        match kind {
            RTA_OIF => goes_by |= word(value) == Some(index),
            RTA_MULTIPATH => {
                compound = true;
                goes_by |= hops(value).any(|hop| hop == index);
            }
            RTA_NH_ID => compound = true,
            kind if KEPT_OF_ROUTE.contains(&kind) => attribute(&mut kept, kind, value),
            _ => {}
        }
    }
    let by_itself = flags & RTM_F_CLONED != 0 || MADE_BY_ITSELF.contains(&protocol);
    if !goes_by || by_itself || kind != RTN_UNICAST {
        return None;
    }
    let route = Route::kept(kept)?;
    (route.table != RT_TABLE_LOCAL).then_some(Route { compound, ..route })
}

/// Device numbers of the next hops of a route: `struct rtnexthop`, each with its
/// attributes.
fn hops(mut rest: &[u8]) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk::<2>()?));
        let device = rest.get(4..8).and_then(word)?;
        rest = rest.get(length.max(8).next_multiple_of(4)..).unwrap_or_default();
        Some(device)
    })
}

/// Attributes of a message (`struct rtattr`), as far as they are whole.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let &[a, b, c, d] = rest.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & 0x3fff, value))
    })
}

fn attribute(payload: &mut Vec<u8>, kind: u16, value: &[u8]) {
    payload.extend(((4 + value.len()) as u16).to_ne_bytes());
    payload.extend(kind.to_ne_bytes());
    payload.extend(value);
    payload.resize(payload.len().next_multiple_of(4), 0);
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

fn ip(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family as i32 {
        libc::AF_INET => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        libc::AF_INET6 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "that is no message of an address")
}

fn there_already(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn whole(message: &[u8]) -> Option<Vec<u8>> {
    Some(message.to_vec())
}

const NEW: i32 = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

request!(AllAddresses, libc::RTM_GETADDR, libc::NLM_F_DUMP, Option<Vec<u8>>, whole);
request!(NewAddress, libc::RTM_NEWADDR, NEW, (), |_| ());
request!(AllRoutes, libc::RTM_GETROUTE, libc::NLM_F_DUMP, Option<Vec<u8>>, whole);
request!(NewRoute, libc::RTM_NEWROUTE, NEW, (), |_| ());
request!(NewNeighbour, libc::RTM_NEWNEIGH, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, (), |_| ());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address_and_no_route_of_anybodys() {
        let mut netlink = Netlink::new();
        let addresses = netlink.addresses(1).unwrap();
        let known = |a: &Address| a.ip == Ipv4Addr::LOCALHOST && a.prefix == 8 && !a.of_link;
        assert!(addresses.iter().any(known), "{addresses:?}");
        assert_eq!(netlink.routes(1).unwrap(), [], "those of the kernel's own are left out");
    }

    /// An address with a lifetime and a label, as a DHCP client sets it.
    fn of_dhcp() -> Vec<u8> {
        let mut message = vec![libc::AF_INET as u8, 24, 0x80 >> 7, 0, 7, 0, 0, 0];
        attribute(&mut message, IFA_ADDRESS, &[10, 0, 0, 5]);
        attribute(&mut message, IFA_LOCAL, &[10, 0, 0, 5]);
        attribute(&mut message, 3, b"eth0\0");
        attribute(&mut message, IFA_FLAGS, &0x201u32.to_ne_bytes());
        let info = [1800u32, 3600, 5, 6].map(u32::to_ne_bytes).concat();
        attribute(&mut message, IFA_CACHEINFO, &info);
        message
    }

    #[test]
    fn what_changes_by_itself_is_not_part_of_an_address() {
        let found = address(&of_dhcp(), 7).unwrap();
        assert_eq!((found.ip, found.prefix), ("10.0.0.5".parse().unwrap(), 24));
        assert_eq!(found.lifetimes, Some((3600, 1800)));
        let kinds: Vec<u16> = attributes(&found.message[8..]).map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [IFA_ADDRESS, IFA_LOCAL, 3, IFA_FLAGS], "no time is kept");
        let flags = attributes(&found.message[8..]).last().unwrap().1;
        assert_eq!(word(flags), Some(0x200), "secondary is the kernel's to say");
        assert_eq!(address(&of_dhcp(), 8), None, "another device's");
        assert_eq!(Address::kept(found.message.clone(), found.lifetimes), Some(found));
    }

    fn default_route(protocol: u8) -> Vec<u8> {
        let mut message = vec![libc::AF_INET as u8, 0, 0, 0, 254, protocol, 0, RTN_UNICAST];
        message.extend(16u32.to_ne_bytes());
        attribute(&mut message, RTA_TABLE, &254u32.to_ne_bytes());
        attribute(&mut message, RTA_GATEWAY, &[10, 0, 0, 1]);
        attribute(&mut message, RTA_OIF, &7u32.to_ne_bytes());
        message
    }

    #[test]
    fn routes_that_somebody_made_are_told_from_the_kernels() {
        let found = route(&default_route(4), 7).unwrap();
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        assert_eq!((found.destination, found.table), ((any, 0), 254));
        assert!(found.by_router && !found.compound);
        assert_eq!(found.message[8..12], [0; 4], "that the link is down is no part of a route");
        assert_eq!(Route::kept(found.message.clone()), Some(found));
        assert_eq!(route(&default_route(4), 6), None);
        assert_eq!(route(&default_route(2), 7), None, "made by the kernel");
        let mut several = default_route(4);
        let hop = |device: u32| [&[8, 0, 0, 0][..], &device.to_ne_bytes()].concat();
        attribute(&mut several, RTA_MULTIPATH, &[hop(3), hop(9)].concat());
        assert!(route(&several, 9).unwrap().compound);
        assert_eq!(route(&several, 4), None);
    }

    #[test]
    fn messages_that_are_cut_off_or_lie_about_their_length() {
        for whole in [of_dhcp(), default_route(4)] {
            for length in 0..=whole.len() {
                let _ = (address(&whole[..length], 7), route(&whole[..length], 7));
                let kept = whole[..length].to_vec();
                let _ = (Address::kept(kept.clone(), None), Route::kept(kept));
            }
            for at in 8..whole.len() {
                let mut odd = whole.clone();
                odd[at] = if at % 2 == 0 { 0 } else { 255 };
                let _ = (address(&odd, 7), route(&odd, 7));
            }
        }
        assert_eq!(hops(&[0, 0, 0, 0, 1, 0, 0, 0]).collect::<Vec<_>>(), [1], "a length of zero");
    }
}
