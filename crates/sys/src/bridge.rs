//! Bridges and their ports: `IFLA_INFO_KIND` "bridge", `IFLA_MASTER` (rtnetlink(7),
//! net/bridge/br_netlink.c). Complete messages, for [`super::namespace::make`].

use super::netlink::{device_name, link_header, message, put};
use netlink_bindings::rt_link::{Ifinfomsg, Request};
use std::io;

/// Makes a bridge with this interface index, and brings it up. It forwards at once, because
/// spanning tree is off, and sends no multicast queries. EOPNOTSUPP: the kernel has no bridges.
pub fn bridge_message(name: &str, index: u32) -> io::Result<Vec<u8>> {
    let mut request = Request::new().set_create().set_excl().op_newlink_do(&up(index));
    let attributes = request.encode().push_ifname(&device_name(name)?);
    drop(attributes.nested_linkinfo().nested_data_bridge().push_mcast_snooping(0));
    Ok(message(libc::RTM_NEWLINK, &request))
}

/// Sets a device's MTU in bytes, makes it a port of `bridge` if that is given, and brings it up, in
/// this order.
pub fn port_message(index: u32, mtu: u32, bridge: Option<u32>) -> Vec<u8> {
    let mut request = Request::new().op_setlink_do(&up(index));
    let attributes = request.encode().push_mtu(mtu);
    drop(put(attributes, bridge, |attributes, bridge| attributes.push_master(bridge)));
    message(libc::RTM_SETLINK, &request)
}

/// The header of a request that brings a device up.
pub(super) fn up(index: u32) -> Ifinfomsg {
    let flag = libc::IFF_UP as u32;
    Ifinfomsg { ifi_flags: flag, ifi_change: flag, ..link_header(index) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_long_as_it_says() {
        let messages = [bridge_message("wire", 7).unwrap(), port_message(3, 1500, Some(7))];
        for message in messages {
            let length = u32::from_ne_bytes(message[..4].try_into().unwrap());
            assert_eq!(length as usize, message.len());
            assert_eq!(message[6], (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u8);
        }
        assert!(bridge_message("sixteen-bytes-12", 7).is_err());
    }
}
