//! A deployment with its two agents, as trials and probes use it.

use super::agents::{Agents, PROMPT};
use super::plan::Laboratory;
use bytepath_host::testbed::{Deployment, Properties};
use bytepath_host::{Adapter, Attachment, Place};
use bytepath_record::wire::{
    AwaitCarrier, CheckDevice, CountFrames, FindDevice, FindNic, HostAddress, LinkEnd,
    ListAddresses, Nic, Pass, PrepareSettings, Secret, SetUpLink, SteerLink, Token,
};
use bytepath_record::{
    Cell, Fault, Hops, Ports, Role, SettingRecord, WantedSetting, distinct, joined,
};
use rand::TryRngCore;
use rand::rngs::OsRng;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// How long a device may take to regain its carrier after it was set up.
const CARRIER: Duration = Duration::from_secs(20);

/// Both agents of a deployment. Dropping it takes the deployment down.
pub(super) struct Remotes<'a> {
    pub agents: Agents<'a, Deployment>,
    /// The ends of the link on each role's host, by adapter index; at least one.
    ends: [Vec<DeviceEnd>; 2],
    /// How many of the ends the cell's flows use.
    in_use: usize,
    /// The ends that the agents have set up, each on its role's host.
    set_up: Vec<(Role, LinkEnd)>,
    /// Process ids of the agents.
    pub pids: [u32; 2],
    /// Whether the hosts' clock counts instructions and so differs from this machine's.
    counted: bool,
    /// Properties of the testbed.
    pub properties: Properties,
    /// The ports that flows connect from, if NICs distinguish flows by them.
    pub connect_from: Option<Ports>,
    /// The ports that the receiver listens on, if NICs distinguish flows by them.
    pub listen_on: Option<Ports>,
    /// Whether the receiver's end of the link is descriptors, and no device.
    ends_in_descriptors: bool,
}

/// An end of the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceEnd {
    /// Its network device; `None` if it is unknown or there is none.
    pub device: Option<String>,
    pub address: IpAddr,
}

impl<'a> Remotes<'a> {
    /// Starts a deployment for a cell (with the testbed's own kernel if `None`) and greets both
    /// agents.
    pub(super) fn raise(laboratory: &Laboratory<'a>, cell: Option<&Cell>) -> Result<Self, Fault> {
        let Laboratory { testbed, program, stop, .. } = laboratory;
        let deployment = testbed.raise(&laboratory.site(cell))?;
        let emulation = testbed.emulation();
        let mut agents = Agents::open(deployment, &Role::ALL, false, stop)?;
        agents.slowness = emulation.as_ref().map_or(1.0, |emulation| emulation.slowness);
        let pids = each(|role| agents.greet(role, program))?;
        let ends = find_ends(&mut agents)?;
        Ok(Remotes {
            agents,
            ends,
            in_use: 1,
            set_up: Vec::new(),
            pids,
            counted: emulation.is_some_and(|one| one.instructions_per_second.is_some()),
            properties: testbed.properties(),
            connect_from: None,
            listen_on: None,
            ends_in_descriptors: false,
        })
    }

    /// Returns the address of a role's host on the link, that of its first end.
    pub(super) fn address(&self, role: Role) -> IpAddr {
        self.ends[role as usize][0].address
    }

    /// Returns the network device of a role's host on the link, or `None` if the end is
    /// descriptors.
    pub(super) fn device(&self, role: Role) -> Option<String> {
        self.devices(role).into_iter().next()
    }

    /// Returns all network devices of a role's host that the cell's flows use.
    pub(super) fn devices(&self, role: Role) -> Vec<String> {
        let in_use = self.ends(role).into_iter().take(self.in_use);
        in_use.filter_map(|end| end.device).collect()
    }

    /// Returns all ends on a role's host by adapter index, including those that the cell does not
    /// use.
    pub(super) fn ends(&self, role: Role) -> Vec<DeviceEnd> {
        let is_device = role == Role::Sender || !self.ends_in_descriptors;
        let seen = |end: &DeviceEnd| DeviceEnd {
            device: end.device.clone().filter(|_| is_device),
            address: end.address,
        };
        self.ends[role as usize].iter().map(seen).collect()
    }

    /// Returns the address that the receiver listens on: the wildcard if flows arrive at several.
    pub(super) fn listening_address(&self) -> IpAddr {
        match self.address(Role::Receiver) {
            one if self.in_use == 1 => one,
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// Returns the addresses at which the sender reaches a receiver that listens there, by adapter
    /// index.
    pub(super) fn addresses_of(&self, listens: SocketAddr) -> Vec<SocketAddr> {
        let in_use = self.ends[Role::Receiver as usize].iter().take(self.in_use);
        match self.in_use {
            1 => vec![listens],
            _ => in_use.map(|end| (end.address, listens.port()).into()).collect(),
        }
    }

    /// Returns the frame counters of a role's device on the link.
    pub(super) fn count_frames(&mut self, role: Role) -> Result<Hops, Fault> {
        let device = self.ends[role as usize][0].device.clone().ok_or_else(|| {
            Fault::usage(format!("the {role}'s device is not known"))
                .remedy("give it with the testbed")
        })?;
        self.agents.call(role, CountFrames { device }).map(|hops| *hops)
    }

    /// Sets up both ends of the link, first the one that creates the devices: the sender creates a
    /// veth pair, the receiver a tap. Returns optional parts that were not available.
    pub(super) fn set_up_link(&mut self, cell: &Cell) -> Result<Vec<String>, Fault> {
        let mut all = Vec::new();
        let is_tap = cell.link.descriptors().is_some_and(|tap| !tap.macvtap);
        let order = if is_tap { [Role::Receiver, Role::Sender] } else { Role::ALL };
        self.ends_in_descriptors = cell.link.descriptors().is_some();
        self.in_use = cell.link.adapters as usize;
        self.set_up.clear();
        for role in order {
            let host = self.agents.hosts.host(role);
            let softirq_cpu = |adapter| cell.softirq_cpu_of(role, adapter);
            let ends = host.attachment().ends(&cell.link, softirq_cpu);
            if ends.len() > self.ends[role as usize].len() {
                let of_end = |end: &LinkEnd| DeviceEnd {
                    device: Some(end.device.clone()),
                    address: end.address,
                };
                self.ends[role as usize] = ends.iter().map(of_end).collect();
            }
            let softirq_required = !cell.placement.softirq(role).cpus().is_empty();
            let second = role == order[1];
            for end in ends {
                // The steward moves the interrupts of a NIC.
                let interrupts_there = softirq_required
                    && self
                        .nic(role, Some(&end.device))?
                        .is_some_and(|nic| !nic.interrupts.is_empty());
                let end = LinkEnd { second, softirq_required, interrupts_there, ..end };
                self.set_up.push((role, end.clone()));
                all.extend(self.agents.call(role, SetUpLink { end: Box::new(end) })?);
            }
        }
        Ok(all)
    }

    /// Applies the placement of the link's receive work again at both ends: queues that a device
    /// got since have no RPS, and a driver may have recreated all of its polling threads.
    pub(super) fn steer_again(&mut self) -> Result<(), Fault> {
        for (role, end) in &self.set_up {
            // Failures were reported when the link was set up.
            self.agents.call(*role, SteerLink { end: Box::new(end.clone()) })?;
        }
        Ok(())
    }

    /// Returns the process id of the qemu that runs the peer, if that is a guest of a role's host.
    /// An agent in a guest sees no process of the host.
    pub(super) fn qemu_of_peer(&self, role: Role) -> Option<u32> {
        let qemu = |role: Role| self.agents.hosts.hosts[role as usize].qemu();
        qemu(role.peer()).filter(|_| qemu(role).is_none())
    }

    /// True if each host has its own clocks and can act at a given time. An emulated host does
    /// nothing on time.
    pub(super) fn has_clocks_apart(&self) -> bool {
        self.properties.hosts_apart && !self.counted && self.agents.slowness <= 1.0
    }

    /// Returns what has to be known of a NIC to prepare it; `None` if the device is only software.
    pub(super) fn nic(&mut self, role: Role, device: Option<&str>) -> Result<Option<Nic>, Fault> {
        match (self.agents.hosts.host(role).adapter(), device) {
            (Adapter::Known(nic), _) => Ok(Some(nic)),
            (Adapter::Asked, Some(device)) => {
                self.agents.call(role, FindNic { device: device.to_owned() })
            }
            _ => Ok(None),
        }
    }

    /// Makes the agents prepare NICs that are created with each deployment.
    pub(super) fn prepare(
        &mut self,
        wanted: &[WantedSetting],
    ) -> Result<Vec<SettingRecord>, Fault> {
        let mut all = Vec::new();
        for role in Role::ALL {
            let here = wanted.iter().filter(|wanted| wanted.host == Some(role));
            let settings: Vec<WantedSetting> = here.cloned().collect();
            if !settings.is_empty() {
                all.extend(self.agents.call(role, PrepareSettings { settings })?);
            }
        }
        Ok(all)
    }

    /// Waits until the NICs have their carriers.
    pub(super) fn await_carriers(&mut self) -> Result<(), Fault> {
        for role in Role::ALL {
            let is_remote = self.agents.hosts.host(role).adapter() == Adapter::Asked;
            for device in self.devices(role).into_iter().filter(|_| is_remote) {
                let timeout = self.agents.timeout(CARRIER).as_secs_f64();
                self.agents.call(role, AwaitCarrier { device, timeout })?;
            }
        }
        Ok(())
    }

    /// Waits while both agents work, by the hosts' clock if that is not this machine's. Errors at
    /// once if an agent is lost or the user cancels.
    pub(super) fn pass(&mut self, time: Duration) -> Result<(), Fault> {
        if !self.counted {
            return self.agents.pass(time);
        }
        let pass = Pass { seconds: time.as_secs_f64() };
        self.agents.call_within(Role::Receiver, pass, time + PROMPT)
    }
}

/// Finds the ends on both hosts; the testbed knows some of their parts.
fn find_ends(agents: &mut Agents<Deployment>) -> Result<[Vec<DeviceEnd>; 2], Fault> {
    let places = Role::ALL.map(|role| agents.hosts.host(role).attachment().places());
    check_devices(agents, &places)?;
    let addresses = find_addresses(agents, &places)?;
    check_addresses(&addresses)?;
    each(|role| {
        let ends = places[role as usize].iter().zip(&addresses);
        let find = |(place, pair): (&Place, &[IpAddr; 2])| {
            let address = pair[role as usize];
            Ok(DeviceEnd { device: find_device(agents, role, place, address)?, address })
        };
        ends.map(find).collect()
    })
}

/// Errors if a host lacks a device that the user named.
fn check_devices(agents: &mut Agents<Deployment>, places: &[Vec<Place>; 2]) -> Result<(), Fault> {
    for role in Role::ALL {
        if !matches!(agents.hosts.host(role).attachment(), Attachment::Given(_)) {
            continue;
        }
        for device in places[role as usize].iter().filter_map(|place| place.device.clone()) {
            agents.call(role, CheckDevice { device })?;
        }
    }
    Ok(())
}

/// Finds the addresses of each pair of ends. Those that the testbed does not know are chosen among
/// all addresses of both hosts.
fn find_addresses(
    agents: &mut Agents<Deployment>,
    [sender, receiver]: &[Vec<Place>; 2],
) -> Result<Vec<[IpAddr; 2]>, Fault> {
    let pairs = || sender.iter().zip(receiver).map(|(one, other)| [one, other]);
    let known = |[one, other]: [&Place; 2]| Some([one.address?, other.address?]);
    if let Some(all) = pairs().map(known).collect() {
        return Ok(all);
    }
    agents.send_both(|_| ListAddresses {})?;
    let all = agents.receive_both::<ListAddresses>()?;
    pairs().map(|pair| common(pair, &all)).collect()
}

/// Errors if two ends of a role share an address, or if pairs mix IPv4 and IPv6.
fn check_addresses(pairs: &[[IpAddr; 2]]) -> Result<(), Fault> {
    for role in Role::ALL {
        let all: Vec<IpAddr> = pairs.iter().map(|pair| pair[role as usize]).collect();
        if distinct(all.iter()).len() < all.len() {
            let text = format!("two ends of the {role} have one address: {}", joined(all, ", "));
            return Err(Fault::usage(text).remedy(REMEDY));
        }
    }
    // The settings of an end depend on its address family.
    let ends = || pairs.iter().flatten();
    if ends().any(IpAddr::is_ipv4) && ends().any(IpAddr::is_ipv6) {
        let text = format!("addresses of IPv4 and of IPv6: {}", joined(ends(), ", "));
        return Err(Fault::usage(text).remedy(REMEDY));
    }
    Ok(())
}

/// Finds the device that has the address, if the testbed does not know it and if there is hardware
/// to prepare or measure.
fn find_device(
    agents: &mut Agents<Deployment>,
    role: Role,
    place: &Place,
    address: IpAddr,
) -> Result<Option<String>, Fault> {
    match (&place.device, agents.hosts.host(role).adapter()) {
        (None, Adapter::Asked) => agents.call(role, FindDevice { address }).map(Some),
        (known, _) => Ok(known.clone()),
    }
}

/// Calls `of` for each role, the sender first.
pub(super) fn each<T>(mut of: impl FnMut(Role) -> Result<T, Fault>) -> Result<[T; 2], Fault> {
    Ok([of(Role::Sender)?, of(Role::Receiver)?])
}

const REMEDY: &str =
    "give the addresses: --testbed hosts:sender-address=10.0.0.1,receiver-address=10.0.0.2,...";

/// Returns addresses of sender and receiver in one network, chosen among all addresses of the two
/// hosts by what is known of their places: of a known device, if it has any address. If a network
/// has addresses of both families, IPv4 is chosen.
pub(super) fn common(
    known: [&Place; 2],
    all: &[Vec<HostAddress>; 2],
) -> Result<[IpAddr; 2], Fault> {
    let usable = |role: Role| -> Vec<&HostAddress> {
        let usable = |a: &&HostAddress| match known[role as usize].address {
            Some(known) => a.address == known,
            None => !is_local(a.address),
        };
        all[role as usize].iter().filter(usable).collect()
    };
    let of = |role: Role| {
        let device = &known[role as usize].device;
        let here = |a: &&HostAddress| device.as_ref().is_none_or(|name| *name == a.device);
        match usable(role).into_iter().filter(here).collect::<Vec<_>>() {
            none if none.is_empty() => usable(role),
            of_device => of_device,
        }
    };
    let mut pairs: Vec<[&HostAddress; 2]> = Vec::new();
    for sender in of(Role::Sender) {
        let peers = of(Role::Receiver).into_iter();
        let peers = peers.filter(|receiver| are_neighbours(sender, receiver));
        pairs.extend(peers.map(|receiver| [sender, receiver]));
    }
    let devices = |pair: &[&HostAddress; 2]| pair.map(|address| address.device.clone());
    let Some(first) = pairs.iter().min_by_key(|pair| pair[0].address.is_ipv6()) else {
        let listed = Role::ALL.map(|role| {
            let all = joined(of(role).into_iter().map(shown), ", ");
            format!("the {role} has {}", if all.is_empty() { "none" } else { &all })
        });
        let text = format!("the hosts share no network: {}", listed.join("; "));
        let in_order = of(Role::Sender).into_iter().find_map(|own| {
            let peers = usable(Role::Receiver);
            let peer = peers.into_iter().find(|peer| are_neighbours(own, peer))?;
            Some(format!(
                "name the devices in the order of their networks: {} of the sender is in that of \
                 {} of the receiver",
                own.device, peer.device
            ))
        });
        return Err(Fault::unsupported(text).remedy(in_order.unwrap_or_else(|| REMEDY.to_owned())));
    };
    if pairs.iter().any(|pair| devices(pair) != devices(first)) {
        let all = pairs.iter().map(|[one, other]| format!("{} - {}", shown(one), shown(other)));
        let text = format!("the hosts share several networks: {}", joined(all, ", "));
        return Err(Fault::usage(text).remedy(REMEDY));
    }
    Ok(first.map(|address| address.address))
}

fn shown(address: &HostAddress) -> String {
    format!("{} {}/{}", address.device, address.address, address.prefix)
}

/// True for addresses that mean the local host everywhere, or that need a device.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
    }
}

/// True if two addresses are in one network. The same address on both hosts is, for example, that
/// of a bridge for containers, and leads nowhere.
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

/// Returns 128 random bits.
pub(super) fn new_token() -> Result<Token, Fault> {
    let bytes = random::<16>()?;
    Ok(Token(bytes.iter().map(|b| format!("{b:02x}")).collect()))
}

/// Returns the secret that the two ends of a trial encrypt with.
pub(super) fn new_secret() -> Result<Secret, Fault> {
    Ok(Secret([random()?, random()?]))
}

fn random<const N: usize>() -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    let filled = OsRng.try_fill_bytes(&mut bytes);
    filled.map_err(|e| Fault::failed(format!("no random numbers: {e}")))?;
    Ok(bytes)
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

    fn at(address: &str) -> Place {
        Place { address: Some(address.parse().unwrap()), device: None }
    }

    const LOOPBACK: (&str, &str, u8) = ("lo", "127.0.0.1", 8);
    const DOCKER: (&str, &str, u8) = ("docker0", "172.17.0.1", 16);

    #[test]
    fn hosts_meet_in_their_only_network() {
        let one = host(&[LOOPBACK, DOCKER, ("eth1", "fd00::1", 64), ("eth1", "10.0.0.1", 24)]);
        let other = host(&[LOOPBACK, DOCKER, ("ens3", "10.0.0.2", 24), ("ens3", "fd00::2", 64)]);
        let any = &Place::default();
        let found = common([any, any], &[one.clone(), other.clone()]).unwrap();
        assert_eq!(found.map(|a| a.to_string()), ["10.0.0.1", "10.0.0.2"]);
        let found = common([any, &at("fd00::2")], &[one, other]).unwrap();
        assert_eq!(found.map(|a| a.to_string()), ["fd00::1", "fd00::2"]);
    }

    #[test]
    fn refuses_ambiguous_networks() {
        let one = host(&[("eth0", "192.168.0.1", 24), ("eth1", "10.0.0.1", 24)]);
        let other = host(&[("eth0", "192.168.0.2", 24), ("eth1", "10.0.0.2", 24)]);
        let any = &Place::default();
        let refusal =
            |all: &[Vec<HostAddress>; 2]| common([any, any], all).unwrap_err().to_string();
        let several = refusal(&[one.clone(), other.clone()]);
        assert!(several.contains("eth1 10.0.0.1/24 - eth1 10.0.0.2/24"), "{several}");
        let both = [one.clone(), other];
        assert_eq!(common([any, &at("10.0.0.2")], &both).unwrap()[0], one[1].address);
        // A device names its network, if it has an address.
        let on = |device: &str| Place { device: Some(device.into()), ..Place::default() };
        for (device, number) in [("eth0", 0), ("eth1", 1)] {
            assert_eq!(common([any, &on(device)], &both).unwrap()[0], one[number].address);
        }
        assert!(common([any, &on("br0")], &both).is_err());
        let crossed = common([&on("eth0"), &on("eth1")], &both).unwrap_err().to_string();
        assert!(crossed.contains("eth0 of the sender is in that of eth0 of"), "{crossed}");
        let none = refusal(&[one, host(&[LOOPBACK, ("eth0", "10.1.0.2", 16)])]);
        assert!(none.contains("the receiver has eth0 10.1.0.2/16"), "{none}");
        let empty = refusal(&[host(&[LOOPBACK]), host(&[DOCKER])]);
        assert!(empty.contains("the sender has none"), "{empty}");
    }

    #[test]
    fn refuses_pairs_that_share_an_address_or_a_kind() {
        let pair = |[one, other]: [&str; 2]| [one.parse().unwrap(), other.parse().unwrap()];
        let check = |pairs: &[[&str; 2]]| {
            let pairs: Vec<[IpAddr; 2]> = pairs.iter().copied().map(pair).collect();
            check_addresses(&pairs).map_err(|fault| fault.to_string())
        };
        let first = ["10.0.0.1", "10.0.0.2"];
        assert_eq!(check(&[first, ["10.0.1.1", "10.0.1.2"]]), Ok(()));
        let twice = check(&[first, ["10.0.1.1", "10.0.0.2"]]).unwrap_err();
        assert!(twice.contains("two ends of the receiver have one address"), "{twice}");
        let mixed = check(&[first, ["fd00::1", "fd00::2"]]).unwrap_err();
        assert!(
            mixed.contains("IPv4 and of IPv6: 10.0.0.1, 10.0.0.2, fd00::1, fd00::2"),
            "{mixed}"
        );
        let within = check(&[first, ["fd01::1", "10.0.1.2"]]).unwrap_err();
        assert!(within.contains("10.0.0.1, 10.0.0.2, fd01::1, 10.0.1.2"), "{within}");
    }
}
