//! Two network devices of this machine, joined by a cable or a switch: the cheapest testbed with a
//! real link; or several such pairs. Between two addresses of one namespace the kernel uses
//! loopback, so the devices of each end are lent to a separate network namespace for the study
//! (`crates/settings/src/loan.rs`). Afterwards they are returned as they were, even after a crash.
//! A device with an address or a route is in use, and is refused.
//!
//! The devices stay lent from trial to trial. Before each, everything that a link sets on them is
//! reset, so that no setting of one cell affects another.

use super::{CARRIER, Deployment, LinkTrouble, Properties, Site, Testbed, ends};
use crate::link::can_send;
use crate::{Adapter, AgentProcess, Attachment, HwGro, LocalAgent, ProcessHost};
use bytepath_record::wire::LinkEnd;
use bytepath_record::{
    CpuTurns, DeviceName, Fault, OptionKind, OptionSpec, Options, Role, Setting, SettingValue,
    Support, WantedSetting,
};
use bytepath_settings::{self as settings, ThisMachine};
use bytepath_sys::Roots;
use bytepath_sys::lasting_namespace::within;
use bytepath_sys::namespace::{self, Refused, Step};
use bytepath_sys::netlink::Netlink;
use bytepath_sys::qdisc::ROOT;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

pub(super) struct Ports {
    /// Devices of the sender and of the receiver, joined in this order.
    devices: [Vec<DeviceName>; 2],
    neighbours: bool,
    ipv6: bool,
    /// Initial state of the devices and their namespaces, the sender's first.
    base: Mutex<Option<Vec<Base>>>,
    /// Number of devices of each end that the last deployment used.
    in_use: AtomicUsize,
}

/// The testbed without any devices.
pub(super) static UNNAMED: Ports = Ports {
    devices: [Vec::new(), Vec::new()],
    neighbours: false,
    ipv6: false,
    base: Mutex::new(None),
    in_use: AtomicUsize::new(0),
};

const WMEM: &str = "/proc/sys/net/ipv4/tcp_wmem";

const REMEDY: &str = "give both: --testbed ports:sender=eth1,receiver=eth2";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("sender", OptionKind::Text, "none").help("network device of the sender, without address and route; several as eth1+eth2"),
    OptionSpec::new("receiver", OptionKind::Text, "none").help("network device of the receiver, joined with the sender's by a cable or a switch; several in the order of the sender's"),
    OptionSpec::new("neighbours", OptionKind::Choice(&["arp", "static"]), "arp").help("static: each end is given the other's hardware address, so there are no neighbour requests"),
    OptionSpec::new("ip", OptionKind::Choice(&["v4", "v6"]), "v4").help("addresses of the ends: in 198.18.0.0/15, or in 2001:2::/48"),
];

impl Testbed for Ports {
    fn name(&self) -> &'static str {
        "ports"
    }

    fn summary(&self) -> &'static str {
        "two network devices of this machine, joined by a cable or a switch, or several such pairs"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn configured(&self, options: &Options) -> Result<Option<Box<dyn Testbed>>, Fault> {
        let usage = |text: &str| Fault::usage(text).remedy(REMEDY);
        let named = |role: &str| match options.word(role) {
            "" | "none" => Err(usage(&format!("testbed ports: no device for the {role}"))),
            names => names.split('+').map(DeviceName::new).collect::<Result<Vec<_>, Fault>>(),
        };
        let devices = [named("sender")?, named("receiver")?];
        check(&devices).map_err(|text| usage(&format!("testbed ports: {text}")))?;
        let neighbours = options.word("neighbours") == "static";
        let ipv6 = options.word("ip") == "v6";
        let base = Mutex::new(None);
        let in_use = AtomicUsize::new(0);
        Ok(Some(Box::new(Ports { devices, neighbours, ipv6, base, in_use })))
    }

    fn probe(&self) -> Support {
        if !namespace::privileged() {
            return Support::no("only root may move devices", "run as root");
        }
        if self.devices[0].is_empty() {
            return Support::no("no devices are given", REMEDY);
        }
        let feasible = settings::feasible(ThisMachine::new(Roots::real()), &self.settings());
        feasible.map_or_else(Support::from, |()| Support::Yes)
    }

    fn settings(&self) -> Vec<WantedSetting> {
        let of_end = |devices: &[DeviceName]| -> Vec<WantedSetting> {
            let lend = |(number, device): (usize, &DeviceName)| {
                let beside = devices.first().filter(|_| number > 0).cloned();
                WantedSetting::from(Setting::Loan { device: device.clone(), beside })
            };
            devices.iter().enumerate().map(lend).collect()
        };
        self.devices.iter().flat_map(|devices| of_end(devices)).collect()
    }

    fn devices(&self) -> Option<[Vec<String>; 2]> {
        let names = |devices: &Vec<DeviceName>| devices.iter().map(DeviceName::to_string).collect();
        (!self.devices[0].is_empty()).then(|| self.devices.each_ref().map(names))
    }

    fn address(&self, role: Role, adapter: u32) -> IpAddr {
        let first = if self.ipv6 { ends::address_v6(role) } else { ends::address(role) };
        ends::of_network(first, adapter)
    }

    fn properties(&self) -> Properties {
        Properties {
            holds_several: false,
            has_cable: true,
            usual_link: "nic",
            adapters: self.devices[0].len().max(1) as u32,
            timeout: CARRIER,
            ..Properties::default()
        }
    }

    fn link_trouble(&self) -> Option<LinkTrouble> {
        let in_use = self.in_use.load(Ordering::Relaxed);
        self.devices.iter().flat_map(|of_end| &of_end[..in_use]).filter_map(trouble_of).min()
    }

    fn raise(&self, site: &Site) -> Result<Deployment, Fault> {
        site.refuse_kernel(self.name())?;
        let find = |devices: &[DeviceName]| devices.iter().map(End::find).collect();
        let found: Result<Vec<End>, Fault> = find(&self.devices[0]);
        let ends = [found?, find(&self.devices[1])?];
        let [Some(one), Some(other)] = ends.each_ref().map(|ends| ends.first()) else {
            return Err(Fault::usage("testbed ports: no devices are given").remedy(REMEDY));
        };
        let namespaces = [one.namespace()?, other.namespace()?];
        self.renew(ends.iter().flatten())?;
        self.in_use.store((site.adapters as usize).min(ends[0].len()), Ordering::Relaxed);
        let made = [self.link_ends(Role::Sender, &ends)?, self.link_ends(Role::Receiver, &ends)?];
        let program = site.program.to_path_buf();
        let [sender, receiver] = LocalAgent::start(move || {
            let [sender, receiver] = namespaces.map(|namespace| {
                let child = namespace::spawn_in(AgentProcess::command(&program), namespace);
                AgentProcess::new(child.map_err(|refused| fault(&refused))?)
            });
            Ok([sender?, receiver?])
        })?;
        let [of_sender, of_receiver] = made.map(|ends| Attachment::Made(ends, HwGro::AsRequested));
        let host = |attachment, agent| ProcessHost { agent, attachment, adapter: Adapter::Asked };
        Ok(Deployment::of([host(of_sender, sender), host(of_receiver, receiver)]))
    }
}

/// Refuses lists of devices that do not form pairs.
fn check([sender, receiver]: &[Vec<DeviceName>; 2]) -> Result<(), String> {
    if sender.len() != receiver.len() {
        return Err(format!(
            "{} of the sender and {} of the receiver are not pairs of devices",
            sender.len(),
            receiver.len()
        ));
    }
    if sender.len() > CpuTurns::MOST {
        return Err(format!("{} pairs of devices are more than {}", sender.len(), CpuTurns::MOST));
    }
    if let Some(twice) = sender.iter().find(|device| receiver.contains(device)) {
        return Err(format!("{twice} cannot be both ends"));
    }
    for devices in [sender, receiver] {
        let named_before =
            |(number, device): &(usize, &DeviceName)| devices[..*number].contains(device);
        if let Some((_, twice)) = devices.iter().enumerate().find(named_before) {
            return Err(format!("{twice} is named twice"));
        }
    }
    Ok(())
}

impl Ports {
    /// Returns the ends of a role's devices, each with its own network.
    fn link_ends(&self, role: Role, ends: &[Vec<End>; 2]) -> Result<Vec<LinkEnd>, Fault> {
        let peer = role.peer();
        let prefix = if self.ipv6 { ends::PREFIX_V6 } else { ends::PREFIX };
        let pairs = ends[role as usize].iter().zip(&ends[peer as usize]);
        let of_pair = |(adapter, (own, other)): (u32, (&End, &End))| {
            let hardware = self.neighbours.then(|| other.hardware_address()).transpose()?;
            Ok(LinkEnd {
                timeout: CARRIER.as_secs_f64(),
                neighbour: hardware.map(|hardware| (self.address(peer, adapter), hardware)),
                ..LinkEnd::plain(own.device.as_str(), self.address(role, adapter), prefix)
            })
        };
        (0..).zip(pairs).map(of_pair).collect()
    }

    /// Resets what the link of the last cell has set. The first time there is nothing to reset, and
    /// the initial state is recorded.
    fn renew<'e>(&self, ends: impl Iterator<Item = &'e End>) -> Result<(), Fault> {
        let mut base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        match &*base {
            None => *base = Some(ends.map(|end| end.within(Base::read)).collect::<Result<_, _>>()?),
            Some(bases) => {
                for (end, base) in ends.zip(bases) {
                    end.within(|device| base.renew(device))?;
                }
            }
        }
        Ok(())
    }
}

/// Checks a device that is lent and was set up.
fn trouble_of(device: &DeviceName) -> Option<LinkTrouble> {
    let end = End::find(device);
    let found = end.and_then(|end| {
        end.within(|device| {
            let found = Netlink::new().link(device.as_str());
            found.map_err(|e| Fault::system(format!("cannot query {device}"), &e))
        })
    });
    let device = device.clone();
    match found {
        Ok(Some(link)) if !link.up => Some(LinkTrouble::Down(device)),
        Ok(Some(link)) if !can_send(&link) => Some(LinkTrouble::NoCarrier(device)),
        Ok(Some(_)) => None,
        Ok(None) | Err(_) => Some(LinkTrouble::Gone(device)),
    }
}

/// State of a device and its namespace without a link.
struct Base {
    tuning: SettingValue,
    /// Minimum, initial and maximum size of send buffers, as the kernel prints them.
    wmem: String,
    /// Handle of the root qdisc; 0 for the kernel's default.
    root: u32,
}

/// Returns the index of a device and the handle of its root qdisc, which is 0 for the kernel's
/// default and for none. Both are 0 if there is no such device.
fn root_of(netlink: &mut Netlink, device: &DeviceName) -> Result<(u32, u32), Fault> {
    let Some(link) = netlink.link(device.as_str()).map_err(of_qdisc(device))? else {
        return Ok((0, 0));
    };
    let all = netlink.qdiscs(link.index).map_err(of_qdisc(device))?;
    let root = all.iter().find(|qdisc| qdisc.parent == ROOT);
    Ok((link.index, root.map_or(0, |root| root.handle)))
}

fn of_qdisc(device: &DeviceName) -> impl Fn(io::Error) -> Fault {
    move |e| Fault::system(format!("queueing discipline of {device}"), &e)
}

impl Base {
    fn read(device: &DeviceName) -> Result<Base, Fault> {
        let mut netlink = Netlink::new();
        let mut tuning = settings::tuning(&mut netlink, device)?;
        // Every link sets it, and some NICs stop when it changes.
        tuning.0.remove("mtu");
        let (_, root) = root_of(&mut netlink, device)?;
        Ok(Base { tuning, wmem: fs::read_to_string(WMEM).map_err(|e| of_wmem(&e))?, root })
    }

    fn renew(&self, device: &DeviceName) -> Result<(), Fault> {
        let mut netlink = Netlink::new();
        settings::tune(&mut netlink, device, &self.tuning)?;
        if fs::read_to_string(WMEM).map_err(|e| of_wmem(&e))? != self.wmem {
            fs::write(WMEM, &self.wmem).map_err(|e| of_wmem(&e))?;
        }
        let (index, root) = root_of(&mut netlink, device)?;
        if root != 0 && root != self.root {
            netlink.delete_root_qdisc(index).map_err(of_qdisc(device))?;
        }
        Ok(())
    }
}

/// A device that is lent, and its namespace.
struct End {
    device: DeviceName,
    namespace: OwnedFd,
}

impl End {
    fn find(device: &DeviceName) -> Result<End, Fault> {
        let namespace = settings::namespace_of(device)?.ok_or_else(|| {
            let text = format!("testbed ports: {device} is not lent to a study");
            Fault::failed(text).remedy("only a study can use it: bytepath run")
        })?;
        Ok(End { device: device.clone(), namespace })
    }

    fn within<T: Send>(
        &self,
        work: impl FnOnce(&DeviceName) -> Result<T, Fault> + Send,
    ) -> Result<T, Fault> {
        within(self.namespace.as_fd(), || work(&self.device)).map_err(|e| {
            Fault::system(format!("entering the network namespace of {}", self.device), &e)
        })?
    }

    fn namespace(&self) -> Result<OwnedFd, Fault> {
        self.namespace.try_clone().map_err(|e| Fault::system("duplicating a descriptor", &e))
    }

    fn hardware_address(&self) -> Result<[u8; 6], Fault> {
        self.within(|device| {
            let found = Netlink::new().hardware_address(device.as_str());
            found.map_err(|e| Fault::system(format!("hardware address of {device}"), &e))
        })
    }
}

fn of_wmem(error: &io::Error) -> Fault {
    Fault::system(format!("memory of send buffers ({WMEM})"), error)
}

fn fault(refused: &Refused) -> Fault {
    let remedy = match refused.step {
        Step::Program => "check that the program exists and may be run",
        _ => "run as root, outside of containers",
    };
    Fault::system(format!("testbed ports: {}", refused.step), &refused.error).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::OptionValue;

    fn configured(set: &[(&str, &str)]) -> Result<Box<dyn Testbed>, Fault> {
        let mut options = Options::default();
        for spec in OPTIONS {
            let text = set.iter().find(|(name, _)| *name == spec.name);
            let text = text.map_or(spec.default, |(_, text)| *text);
            let value = spec.kind.parse(text).unwrap();
            assert!(matches!(value, OptionValue::Word(_)), "{}", spec.name);
            options.0.insert(spec.name.into(), value);
        }
        UNNAMED.configured(&options).map(Option::unwrap)
    }

    #[test]
    fn two_devices_are_named_and_lent() {
        let said = |set| configured(set).err().unwrap().to_string();
        assert!(said(&[]).contains("no device for the sender (give both"));
        assert!(said(&[("sender", "eth1")]).contains("no device for the receiver"));
        assert!(said(&[("sender", "eth1"), ("receiver", "eth1")]).contains("cannot be both ends"));
        assert!(said(&[("sender", "../x"), ("receiver", "eth1")]).contains("not a name"));
        let bed = configured(&[("sender", "eth1.7"), ("receiver", "eth2")]);
        let bed = bed.unwrap();
        let texts: Vec<String> = bed.settings().iter().map(|w| w.setting.to_string()).collect();
        assert_eq!(texts, ["loan eth1.7", "loan eth2"]);
        assert_eq!(bed.devices().unwrap(), [["eth1.7"], ["eth2"]]);
        assert_eq!(bed.properties().adapters, 1);
    }

    #[test]
    fn devices_of_an_end_are_joined_in_order_and_share_its_namespace() {
        let two = [("sender", "a1+a2"), ("receiver", "b1+b2"), ("ip", "v6")];
        let bed = configured(&two).unwrap();
        assert_eq!(bed.devices().unwrap(), [["a1", "a2"], ["b1", "b2"]]);
        assert_eq!(bed.properties().adapters, 2);
        let loans: Vec<String> = bed.settings().iter().map(|w| w.setting.command()).collect();
        assert_eq!(loans[1], "ip link set dev a2 netns lent-a1");
        assert!(loans[2].starts_with("ip netns add lent-b1 && "), "{loans:?}");
        assert_eq!(bed.address(Role::Receiver, 1).to_string(), "2001:2:0:1::2");
        let said = |sender: &str, receiver: &str| {
            configured(&[("sender", sender), ("receiver", receiver)]).err().unwrap().to_string()
        };
        for (sender, receiver, words) in [
            ("a1+a2", "b1", "2 of the sender and 1 of the receiver are not pairs"),
            ("a1+a1", "b1+b2", "a1 is named twice"),
            ("a1+a2", "b1+a1", "a1 cannot be both ends"),
            ("a1+", "b1+b2", "not a name"),
        ] {
            let text = said(sender, receiver);
            assert!(text.contains(words), "{sender} {receiver}: {text}");
        }
    }

    #[test]
    fn only_a_study_can_raise_it() {
        let bed = configured(&[("sender", "no-such-a"), ("receiver", "no-such-b")]).unwrap();
        let raised = bed.raise(&Site::of("/bin/true".as_ref()));
        let fault = raised.err().unwrap().to_string();
        assert!(fault.contains("no-such-a is not lent to a study"), "{fault}");
        let Support::No { reason, .. } = bed.probe() else { panic!("no such device") };
        assert!(reason.contains("no device no-such-a") || reason.contains("root"), "{reason}");
        assert!(UNNAMED.raise(&Site::of("/bin/true".as_ref())).is_err());
    }
}
