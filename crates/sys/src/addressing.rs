//! Addresses and routes of a device, the route to an address, and permanent neighbour entries:
//! rtnetlink(7).

use super::netlink::{Netlink, acknowledged, explained, undecodable};
use netlink_bindings::rt_route::RtmType;
use netlink_bindings::{rt_addr, rt_neigh, rt_route};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Protocol of the link-local address that the kernel gives each device
/// (`include/uapi/linux/if_addr.h`, Linux 5.18).
const IFAPROT_KERNEL_LL: u8 = 3;

/// Bytes of `struct rtnexthop`; the last four are the device's index.
const HOP: usize = 8;

/// The route that packets to an address take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteTo {
    /// Index of the device that they leave through.
    pub device: u32,
    /// Their source address; `None` if the kernel reports none.
    pub source: Option<IpAddr>,
    /// The router that they go to first; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Whether the destination is an address of this namespace.
    pub own: bool,
}

impl Netlink {
    /// Returns the route that packets to an address would take now, as `ip route get` does.
    /// NetworkUnreachable: there is no route. HostUnreachable, PermissionDenied, InvalidInput: the
    /// route is `unreachable`, `prohibit`, `blackhole` (ip-route(8)).
    pub fn route_to(&mut self, to: IpAddr) -> io::Result<RouteTo> {
        let (family, bits) = match to {
            IpAddr::V4(_) => (libc::AF_INET, 32),
            IpAddr::V6(_) => (libc::AF_INET6, 128),
        };
        let header =
            rt_route::Rtmsg { rtm_family: family as u8, rtm_dst_len: bits, ..Default::default() };
        let mut request = rt_route::Request::new().op_getroute_do(&header);
        request.encode().push_dst(to);
        let mut reply = self.socket.request(&request)?;
        let (header, attributes) = reply.recv_one().map_err(explained)?;
        Ok(RouteTo {
            device: attributes.get_oif().map_err(undecodable)?,
            source: attributes.get_prefsrc().ok(),
            gateway: attributes.get_gateway().ok(),
            own: header.rtm_type == RtmType::Local as u8,
        })
    }

    /// Returns the addresses of a device with their prefix lengths in bits, without the link-local
    /// one, which the kernel adds and removes with the device.
    pub fn addresses(&mut self, index: u32) -> io::Result<Vec<(IpAddr, u8)>> {
        let header = rt_addr::Ifaddrmsg::default();
        let request = rt_addr::Request::new().op_getaddr_dump(&header);
        self.dump(&request, |(header, attributes)| {
            let of_kernel = attributes.get_proto().is_ok_and(|proto| proto == IFAPROT_KERNEL_LL);
            if header.ifa_index != index || of_kernel {
                return Ok(None);
            }
            let local = attributes.get_local().or_else(|_| attributes.get_address());
            Ok(Some((local.map_err(undecodable)?, header.ifa_prefixlen)))
        })
    }

    /// Returns the destinations of the routes through a device in all tables, except those made by
    /// the kernel, with their prefix lengths in bits: 0 is a default route.
    pub fn routes(&mut self, index: u32) -> io::Result<Vec<(IpAddr, u8)>> {
        let header = rt_route::Rtmsg::default();
        let request = rt_route::Request::new().op_getroute_dump(&header);
        self.dump(&request, |(header, attributes)| {
            let direct = attributes.get_oif().is_ok_and(|device| device == index);
            let one_of_several =
                || attributes.get_multipath().is_ok_and(|all| hops(all).any(|hop| hop == index));
            let any = match i32::from(header.rtm_family) {
                libc::AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            };
            let chosen = header.rtm_protocol != libc::RTPROT_KERNEL && (direct || one_of_several());
            Ok(chosen.then(|| (attributes.get_dst().unwrap_or(any), header.rtm_dst_len)))
        })
    }

    /// Gives a device a permanent neighbour entry with this hardware address.
    pub fn set_neighbour(
        &mut self,
        index: u32,
        address: IpAddr,
        hardware: [u8; 6],
    ) -> io::Result<()> {
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let header = rt_neigh::Ndmsg {
            ndm_family: family as u8,
            ndm_ifindex: index as i32,
            ndm_state: libc::NUD_PERMANENT,
            ..Default::default()
        };
        let request = rt_neigh::Request::new().set_create().set_replace();
        let mut request = request.op_newneigh_do(&header);
        request.encode().push_dst(address).push_lladdr(&hardware);
        acknowledged(&mut self.socket, &request)
    }
}

/// Returns the indices of the devices in the next hops of a route: each is a `struct rtnexthop`
/// with its attributes.
fn hops(mut rest: &[u8]) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk::<2>()?));
        let device = u32::from_ne_bytes(rest.get(4..HOP)?.try_into().ok()?);
        rest = rest.get(length.max(HOP).next_multiple_of(4)..).unwrap_or_default();
        Some(device)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address_and_only_routes_of_the_kernel() {
        let mut netlink = Netlink::new();
        let addresses = netlink.addresses(1).unwrap();
        assert!(addresses.contains(&(Ipv4Addr::LOCALHOST.into(), 8)), "{addresses:?}");
        assert_eq!(netlink.routes(1).unwrap(), []);
    }

    #[test]
    fn the_way_to_an_own_address_is_the_loopback_device() {
        let route = Netlink::new().route_to(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert!(route.own && route.device == 1 && route.gateway.is_none(), "{route:?}");
    }

    #[test]
    fn each_hop_of_a_route_has_a_device() {
        let hop = |length: u8, device: u32, more: &[u8]| {
            [&[length, 0, 0, 0][..], &device.to_ne_bytes(), more].concat()
        };
        if cfg!(target_endian = "little") {
            let several = [hop(16, 3, &[8, 0, 5, 0, 10, 0, 0, 1]), hop(8, 9, &[])].concat();
            assert_eq!(hops(&several).collect::<Vec<_>>(), [3, 9]);
        }
        assert_eq!(hops(&hop(0, 1, &[])).collect::<Vec<_>>(), [1], "a length of zero");
        assert_eq!(hops(&[8, 0, 0]).count(), 0, "cut off");
    }
}
