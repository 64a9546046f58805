//! Checks the route between two hosts and whether bytes arrive: once, before the first trial, if
//! the testbed does not make the link.

use super::remote::{DeviceEnd, Remotes, new_token};
use bytepath_engine::connection::reach::CONNECTING;
use bytepath_record::wire::{EndProbe, FindRoute, ListenForProbe, Probe};
use bytepath_record::{
    Contact, Fault, Passage, ProbeResult, Role, Route, distinct, grouped, joined,
};
use std::net::IpAddr;
use std::time::Duration;

/// Time an agent has to find the largest packets that arrive, both ways: some twenty connections,
/// many of which fail.
const PROBING: Duration = Duration::from_secs(60);

/// Result of the connectivity check between two hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RouteReport {
    /// Facts of each role's host: names and values.
    pub facts: [Vec<(String, String)>; 2],
    /// Remarks for the reader of the study.
    pub remarks: Vec<String>,
}

/// Finds the routes between the hosts, and tries whether bytes arrive. Errors with the reason if
/// they do not.
pub(super) fn examine(remotes: &mut Remotes) -> Result<RouteReport, Fault> {
    if !remotes.properties.link_is_given {
        return Ok(RouteReport::default());
    }
    let [senders, receivers] = Role::ALL.map(|role| remotes.ends(role));
    let mut pairs = Vec::new();
    for (sender, receiver) in senders.into_iter().zip(receivers) {
        [sender.address, receiver.address].into_iter().try_for_each(refuse_link_local)?;
        let ends = [
            End::of(remotes, Role::Sender, &sender, receiver.address)?,
            End::of(remotes, Role::Receiver, &receiver, sender.address)?,
        ];
        refuse_own(&ends)?;
        pairs.push(ends);
    }
    refuse_one_way(&pairs)?;
    let reports = pairs.iter().map(|ends| connect(remotes, ends));
    Ok(RouteReport::of_pairs(reports.collect::<Result<_, Fault>>()?))
}

/// Tries whether bytes arrive between a pair of ends.
fn connect(remotes: &mut Remotes, ends: &[End; 2]) -> Result<RouteReport, Fault> {
    let (ports, token) = (remotes.agents.hosts.ports, new_token()?);
    let (agents, address) = (&mut remotes.agents, ends[1].address);
    let listen = ListenForProbe { address, ports, token: token.clone() };
    let port = agents.call_within(Role::Receiver, listen, PROBING)?;
    let mtu = [ends[0].route.mtu, ends[1].route.mtu];
    let probe = Probe { address, port, token, mtu };
    let contact = agents.call_within(Role::Sender, probe, PROBING)?;
    let met = agents.call_within(Role::Receiver, EndProbe {}, PROBING)?;
    verdict(ends, port, &contact, &met)
}

impl RouteReport {
    /// Combines the reports of all pairs of ends: each fact lists the values of all pairs, equal
    /// ones once.
    fn of_pairs(reports: Vec<RouteReport>) -> RouteReport {
        let facts = Role::ALL.map(|role| {
            let all = reports.iter().flat_map(|report| report.facts[role as usize].clone());
            let of_name =
                |(name, values): (String, Vec<String>)| (name, joined(distinct(values), ", "));
            grouped(all).into_iter().map(of_name).collect()
        });
        let remarks = reports.into_iter().flat_map(|report| report.remarks).collect();
        RouteReport { facts, remarks }
    }
}

/// One end of the route.
#[derive(Clone, Debug)]
struct End {
    role: Role,
    /// Its address, and the device that has it.
    address: IpAddr,
    device: Option<String>,
    /// The route that its kernel uses to the other end.
    route: Route,
}

impl End {
    fn of(remotes: &mut Remotes, role: Role, end: &DeviceEnd, to: IpAddr) -> Result<End, Fault> {
        let route = remotes.agents.call(role, FindRoute { to })?;
        let DeviceEnd { device, address } = end.clone();
        Ok(End { role, address, device, route })
    }

    /// "end0 via 10.0.0.1".
    fn route(&self) -> String {
        let via = self.route.gateway.map(|gateway| format!(" via {gateway}"));
        format!("{}{}", self.route.device, via.unwrap_or_default())
    }

    /// "the sender's packets to 10.0.0.2".
    fn packets(&self, ends: &[End; 2]) -> String {
        format!("the {}'s packets to {}", self.role, ends[self.role.peer() as usize].address)
    }
}

/// Errors for an address that is only valid with a device.
fn refuse_link_local(address: IpAddr) -> Result<(), Fault> {
    if !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
        return Ok(());
    }
    let text = format!("{address} is a link-local address, which could mean any device of a host");
    Err(Fault::usage(text)
        .remedy("give both devices addresses such as fd00::1 and fd00::2, and use those"))
}

fn refuse_own(ends: &[End; 2]) -> Result<(), Fault> {
    let Some(end) = ends.iter().find(|end| end.route.own) else { return Ok(()) };
    let peer = &ends[end.role.peer() as usize];
    let text = format!(
        "{} is given as the {}'s address, but it is an address of the {}'s host",
        peer.address, peer.role, end.role
    );
    Err(Fault::usage(text).remedy("check whether the two addresses are swapped"))
}

/// Errors if the packets of several pairs of ends leave by one device, so that the others would be
/// idle, or by another device than the named one, which alone would be set up. For a single pair
/// this is only a remark: the device may be a port of a bridge.
fn refuse_one_way(pairs: &[[End; 2]]) -> Result<(), Fault> {
    for role in Role::ALL {
        let ends = || pairs.iter().map(|pair| (&pair[role as usize], &pair[role.peer() as usize]));
        let by_device = grouped(ends().map(|(own, peer)| (&own.route.device, peer.address)));
        let shared = by_device.into_iter().find(|(_, to)| to.len() > 1);
        if let Some((device, to)) = shared {
            let text =
                format!("the {role}'s packets to {} all leave by {device}", joined(to, " and "));
            return Err(Fault::unsupported(text).remedy(
                "give each pair of devices addresses in a network of its own, or a route by its \
                 own device (ip route add ADDRESS dev DEVICE)",
            ));
        }
    }
    if pairs.len() == 1 {
        return Ok(());
    }
    pairs.iter().flat_map(detours).next().map_or(Ok(()), |detour| {
        Err(Fault::unsupported(detour).remedy(
            "name the devices in the order of the addresses, or add a route by its own device \
             (ip route add ADDRESS dev DEVICE)",
        ))
    })
}

/// Returns remarks on packets that leave by another device than that of their end.
fn detours(ends: &[End; 2]) -> Vec<String> {
    let detour = |end: &End| {
        let (device, used) = (end.device.as_ref()?, &end.route.device);
        let packets = end.packets(ends);
        (device != used).then(|| format!("{packets} leave by {used}, not by {device}"))
    };
    ends.iter().filter_map(detour).collect()
}

/// Decides from the observations of both ends.
fn verdict(
    ends: &[End; 2],
    port: u16,
    contact: &Contact,
    met: &ProbeResult,
) -> Result<RouteReport, Fault> {
    let Contact::Made { forth, back, mtu } = contact else {
        return Err(no_contact(ends, port, contact, met));
    };
    for (passage, end) in [forth, back].into_iter().zip(ends) {
        if let Passage::UpTo(largest) = passage {
            return Err(black_hole(end, ends, *largest));
        }
    }
    let path = [*mtu, met.mtu.unwrap_or(ends[1].route.mtu)];
    let facts = [0, 1].map(|at| facts(&ends[at], path[at]));
    Ok(RouteReport { facts, remarks: remarks(ends, path) })
}

/// Returns why there is no contact, as far as the two ends can determine it.
fn no_contact(
    [sender, receiver]: &[End; 2],
    port: u16,
    contact: &Contact,
    met: &ProbeResult,
) -> Fault {
    let (from, to) = (sender.address, receiver.address);
    let at = format!("{to}, TCP port {port}");
    let firewall = format!(
        "let TCP and UDP from {from} to {to} through the firewalls of both hosts and on the \
         way; ports=LOW-HIGH of the testbed keeps the receiver to ports that are open"
    );
    let (sender_route, receiver_route) = (sender.route(), receiver.route());
    let (text, remedy) = match contact {
        Contact::Refused => (
            format!(
                "the connection from {from} to {at}, is refused although the receiver's agent \
                 listens there: a firewall rejects it"
            ),
            firewall,
        ),
        Contact::Silent if met.half_open => (
            format!(
                "one-way: what the sender ({from}) sends arrives at {at}, but the receiver's \
                 answers by {receiver_route} do not come back"
            ),
            format!(
                "find out what drops them: a firewall that lets only one direction through, a \
                 wrong entry of `ip neigh` at the receiver, rp_filter of {} at the sender",
                sender.route.device
            ),
        ),
        Contact::Silent => (
            format!(
                "no answer from {at}, within {} s, and nothing arrived there: what the sender \
                 ({from}) sends through {sender_route} is dropped on the way",
                CONNECTING.as_secs()
            ),
            format!(
                "{firewall}; otherwise check the VLANs, `ip neigh` at the sender, and rp_filter \
                 of {} at the receiver",
                receiver.route.device
            ),
        ),
        Contact::Failed { error } => (
            format!("the sender cannot connect to {at}, by {sender_route}: {error}"),
            "no host on the link has that address (is it up, is the cable plugged in, is the VLAN \
             the same?), or a router on the way refuses"
                .into(),
        ),
        _ if met.accepted == 0 => (
            format!(
                "a connection to {at}, is established, but not with the receiver's agent: \
                 something in between answers in its place"
            ),
            "remove the proxy or load balancer, or use other addresses".into(),
        ),
        _ => (
            format!("a connection to {at}, is established, but nothing sent over it is answered"),
            "find out what on the way drops packets with data: a firewall that tracks connections"
                .into(),
        ),
    };
    Fault::unsupported(text).remedy(remedy)
}

fn black_hole(end: &End, ends: &[End; 2], largest: u32) -> Fault {
    let End { role, route, .. } = end;
    let peer = role.peer();
    if largest == 0 {
        return Fault::unsupported(format!(
            "data from the {role} to the {peer} does not arrive although a connection is \
             established, however small its packets are"
        ))
        .remedy("check the error and drop counters of both devices (`ip -s link`)");
    }
    let text = format!(
        "black hole: packets of more than {largest} bytes from the {role} to the {peer} are \
         lost, and no router reports it; the device {} accepts {} bytes",
        route.device, route.mtu
    );
    let set = |end: &End| format!("--set \"{}: mtu {} {largest}\"", end.role, end.route.device);
    Fault::unsupported(text).remedy(format!(
        "make every switch on the way accept {} bytes, and let ICMP \"fragmentation needed\" or \
         \"packet too big\" pass; or {}",
        route.mtu,
        joined(ends.iter().map(set), " ")
    ))
}

/// Returns the facts of one end: its route to the other, and the largest packet, in bytes, that the
/// route carries.
fn facts(end: &End, path: u32) -> Vec<(String, String)> {
    vec![("link.route".into(), end.route()), ("link.mtu.path".into(), path.to_string())]
}

fn remarks(ends: &[End; 2], path: [u32; 2]) -> Vec<String> {
    let mut all = detours(ends);
    for (end, path) in ends.iter().zip(path) {
        let End { role, address, route, .. } = end;
        let Route { device: used, source, mtu, .. } = route;
        let packets = end.packets(ends);
        if let Some(source) = source.filter(|source| source != address) {
            all.push(format!("{packets} come from {source}, not from {address}"));
        }
        if path < *mtu {
            all.push(format!(
                "the path from the {role} accepts packets of {path} bytes, its device {used} {mtu}"
            ));
        }
    }
    if all.is_empty() && path[0] != path[1] {
        all.push(format!(
            "the sender's packets have up to {} bytes and the receiver's {}: TCP uses the \
             smaller of the two, UDP does not",
            path[0], path[1]
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::FaultKind;

    fn ends() -> [End; 2] {
        Role::ALL.map(|role| {
            let address = |role: Role| IpAddr::from([10, 0, 0, role as u8 + 1]);
            let device = format!("eth{}", role as u8);
            let source = Some(address(role));
            let route =
                Route { device: device.clone(), source, gateway: None, mtu: 9000, own: false };
            End { role, address: address(role), device: Some(device), route }
        })
    }

    fn made(forth: Passage, back: Passage, mtu: u32) -> Contact {
        Contact::Made { forth, back, mtu }
    }

    fn refusal(contact: Contact, met: ProbeResult) -> String {
        verdict(&ends(), 5001, &contact, &met).unwrap_err().to_string()
    }

    #[test]
    fn each_failure_has_its_own_explanation() {
        let met = |half_open, accepted| ProbeResult { half_open, accepted, mtu: None };
        let nothing = ProbeResult::default();
        for (contact, met, words) in [
            (Contact::Refused, nothing.clone(), "is refused although"),
            (Contact::Silent, nothing.clone(), "nothing arrived there"),
            (Contact::Silent, met(true, 0), "one-way: what the sender (10.0.0.1) sends arrives"),
            (Contact::Failed { error: "No route to host".into() }, nothing.clone(), "No route to"),
            (Contact::Mute, nothing, "something in between answers"),
            (Contact::Mute, met(false, 1), "nothing sent over it is answered"),
            (
                made(Passage::UpTo(1500), Passage::Whole, 9000),
                met(false, 2),
                "packets of more than 1500 bytes from the sender to the receiver are lost",
            ),
            (
                made(Passage::Whole, Passage::UpTo(1400), 9000),
                met(false, 2),
                "--set \"sender: mtu eth0 1400\" --set \"receiver: mtu eth1 1400\"",
            ),
            (made(Passage::Whole, Passage::UpTo(0), 9000), met(false, 2), "however small"),
        ] {
            let text = refusal(contact.clone(), met);
            assert!(text.contains(words), "{contact:?}: {text}");
            assert!(text.ends_with(')'), "there is a remedy: {text}");
        }
    }

    fn report(ends: &[End; 2], mtu: u32, other: u32) -> RouteReport {
        let met = ProbeResult { half_open: false, accepted: 2, mtu: Some(other) };
        verdict(ends, 5001, &made(Passage::Whole, Passage::Whole, mtu), &met).unwrap()
    }

    #[test]
    fn an_expected_route_is_a_fact_without_remark() {
        let report = report(&ends(), 9000, 9000);
        assert_eq!(report.remarks, [""; 0]);
        let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(report.facts[0], [fact("link.route", "eth0"), fact("link.mtu.path", "9000")]);
    }

    #[test]
    fn remarks_on_odd_routes_that_work() {
        assert_eq!(
            report(&ends(), 1400, 9000).remarks,
            ["the path from the sender accepts packets of 1400 bytes, its device eth0 9000"]
        );
        let mut other = ends();
        other[1].route.mtu = 1500;
        assert!(
            report(&other, 9000, 1500).remarks[0].contains("9000 bytes and the receiver's 1500")
        );
        other[1].route.device = "wlan0".into();
        other[1].route.source = Some([192, 168, 0, 7].into());
        other[1].route.gateway = Some([192, 168, 0, 1].into());
        let report = report(&other, 9000, 1500);
        assert_eq!(
            report.remarks,
            [
                "the receiver's packets to 10.0.0.1 leave by wlan0, not by eth1",
                "the receiver's packets to 10.0.0.1 come from 192.168.0.7, not from 10.0.0.2",
            ]
        );
        assert_eq!(report.facts[1][0].1, "wlan0 via 192.168.0.1");
    }

    #[test]
    fn pairs_of_ends_have_ways_of_their_own() {
        let mut second = ends();
        for (number, end) in second.iter_mut().enumerate() {
            end.address = IpAddr::from([10, 0, 1, number as u8 + 1]);
            end.route.device = format!("eth{}", number + 2);
        }
        let second = ends_with(&second);
        refuse_one_way(&[ends(), second.clone()]).unwrap();
        let both =
            RouteReport::of_pairs(vec![report(&ends(), 9000, 9000), report(&second, 9000, 9000)]);
        let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [fact("link.route", "eth0, eth2"), fact("link.mtu.path", "9000")];
        assert_eq!((both.facts[0].as_slice(), both.remarks.len()), (&expected[..], 0));
        let refused = |device: &str| {
            let mut second = second.clone();
            second[0].route.device = device.into();
            assert_eq!(refuse_one_way(&[second.clone()]), Ok(()), "one pair has a remark");
            refuse_one_way(&[ends(), second]).unwrap_err().to_string()
        };
        for (device, words) in [
            ("eth0", "the sender's packets to 10.0.0.2 and 10.0.1.2 all leave by eth0"),
            ("eth9", "the sender's packets to 10.0.1.2 leave by eth9, not by eth2"),
        ] {
            let text = refused(device);
            assert!(text.contains(words), "{text}");
        }
    }

    /// Returns the ends with the devices and source addresses of their routes.
    fn ends_with(ends: &[End; 2]) -> [End; 2] {
        ends.clone().map(|end| {
            let route = Route { source: Some(end.address), ..end.route };
            End { device: Some(route.device.clone()), route, ..end }
        })
    }

    #[test]
    fn refuses_addresses_that_cannot_be_meant() {
        let refused = refuse_link_local("fe80::1".parse().unwrap()).unwrap_err();
        assert_eq!(refused.kind, FaultKind::Usage);
        refuse_link_local("fd00::1".parse().unwrap()).unwrap();
        refuse_own(&ends()).unwrap();
        let mut swapped = ends();
        swapped[0].route.own = true;
        let text = refuse_own(&swapped).unwrap_err().to_string();
        assert!(text.contains("10.0.0.2 is given as the receiver's address"), "{text}");
    }
}
