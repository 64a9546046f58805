//! Where two hosts meet by default: at their addresses in the network that both are in.

use bytepath_record::wire::HostAddress;
use bytepath_record::{Fault, FaultKind, Role};
use std::net::IpAddr;

const REMEDY: &str =
    "give the addresses: --testbed hosts:sender-address=10.0.0.1,receiver-address=10.0.0.2,...";

/// The addresses of sender and receiver, of which some are known, by all that the two hosts
/// have. Of a network with addresses of both kinds those of IPv4 are taken.
pub(super) fn common(
    known: [Option<IpAddr>; 2],
    all: &[Vec<HostAddress>; 2],
) -> Result<[IpAddr; 2], Fault> {
    let of = |role: Role| {
        let known = known[role as usize];
        let usable = move |a: &&HostAddress| match known {
            Some(known) => a.address == known,
            None => !is_local(a.address),
        };
        all[role as usize].iter().filter(usable)
    };
    let mut pairs: Vec<[&HostAddress; 2]> = Vec::new();
    for sender in of(Role::Sender) {
        let peers = of(Role::Receiver).filter(|receiver| are_neighbours(sender, receiver));
        pairs.extend(peers.map(|receiver| [sender, receiver]));
    }
    let devices = |pair: &[&HostAddress; 2]| pair.map(|address| address.device.clone());
    let Some(first) = pairs.iter().min_by_key(|pair| pair[0].address.is_ipv6()) else {
        let listed = Role::ALL.map(|role| {
            let all: Vec<String> = of(role).map(shown).collect();
            let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
            format!("the {role} has {all}")
        });
        let text = format!("the hosts share no network: {}", listed.join("; "));
        return Err(Fault::new(FaultKind::Unsupported, text).remedy(REMEDY));
    };
    if pairs.iter().any(|pair| devices(pair) != devices(first)) {
        let all: Vec<String> =
            pairs.iter().map(|[one, other]| format!("{} - {}", shown(one), shown(other))).collect();
        let text = format!("the hosts share several networks: {}", all.join(", "));
        return Err(Fault::new(FaultKind::Usage, text).remedy(REMEDY));
    }
    Ok(first.map(|address| address.address))
}

fn shown(address: &HostAddress) -> String {
    format!("{} {}/{}", address.device, address.address, address.prefix)
}

/// Addresses that mean the same host everywhere, or need a device.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
    }
}

/// Two addresses of one network. The same address on both hosts is that of a bridge of
/// containers, say, and leads nowhere.
fn are_neighbours(one: &HostAddress, other: &HostAddress) -> bool {
    let network = |address: IpAddr, prefix: u8| match address {
        IpAddr::V4(v4) => (false, u128::from(v4.to_bits()) >> (32 - u32::from(prefix.min(32)))),
        IpAddr::V6(v6) => {
            (true, v6.to_bits().checked_shr(128 - u32::from(prefix.min(128))).unwrap_or(0))
        }
    };
    one.address != other.address
        && one.prefix == other.prefix
        && network(one.address, one.prefix) == network(other.address, other.prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(all: &[(&str, &str, u8)]) -> Vec<HostAddress> {
        let address = |(device, address, prefix): &(&str, &str, u8)| HostAddress {
            device: (*device).into(),
            address: address.parse().unwrap(),
            prefix: *prefix,
        };
        all.iter().map(address).collect()
    }

    const LOOPBACK: (&str, &str, u8) = ("lo", "127.0.0.1", 8);
    const DOCKER: (&str, &str, u8) = ("docker0", "172.17.0.1", 16);

    #[test]
    fn hosts_meet_in_their_only_network() {
        let one = host(&[LOOPBACK, DOCKER, ("eth1", "fd00::1", 64), ("eth1", "10.0.0.1", 24)]);
        let other = host(&[LOOPBACK, DOCKER, ("ens3", "10.0.0.2", 24), ("ens3", "fd00::2", 64)]);
        let found = common([None, None], &[one.clone(), other.clone()]).unwrap();
        assert_eq!(found.map(|a| a.to_string()), ["10.0.0.1", "10.0.0.2"]);
        let six = Some("fd00::2".parse().unwrap());
        let found = common([None, six], &[one, other]).unwrap();
        assert_eq!(found.map(|a| a.to_string()), ["fd00::1", "fd00::2"]);
    }

    #[test]
    fn what_is_not_clear_is_refused() {
        let one = host(&[("eth0", "192.168.0.1", 24), ("eth1", "10.0.0.1", 24)]);
        let other = host(&[("eth0", "192.168.0.2", 24), ("eth1", "10.0.0.2", 24)]);
        let said = |known, all: &[Vec<HostAddress>; 2]| common(known, all).unwrap_err().to_string();
        let several = said([None, None], &[one.clone(), other.clone()]);
        assert!(several.contains("eth1 10.0.0.1/24 - eth1 10.0.0.2/24"), "{several}");
        let named = Some("10.0.0.2".parse().unwrap());
        assert_eq!(common([None, named], &[one.clone(), other]).unwrap()[0], one[1].address);
        let none = said([None, None], &[one, host(&[LOOPBACK, ("eth0", "10.1.0.2", 16)])]);
        assert!(none.contains("the receiver has eth0 10.1.0.2/16"), "{none}");
        let empty = said([None, None], &[host(&[LOOPBACK]), host(&[DOCKER])]);
        assert!(empty.contains("the sender has none"), "{empty}");
    }
}
