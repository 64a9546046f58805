//! Two network devices of this machine, joined by a cable or a switch: the cheapest
//! testbed whose link is real. Each is lent to a network namespace of its own for the
//! study (`settings/loan.rs`), because between two addresses of one namespace the kernel
//! uses loopback; and comes back as it was, also after a crash. A device with an
//! address or a route is in use, and refused.
//!
//! The devices stay from trial to trial. What a link sets on them is renewed before each,
//! so that no setting of one cell affects another.

use super::{CARRIER, Deployment, LinkTrouble, Properties, Site, Testbed, ends};
use crate::link::can_send;
use crate::{Adapter, AgentProcess, Attachment, HwGro, LocalAgent, ProcessHost};
use bytepath_record::wire::LinkEnd;
use bytepath_record::{
    DeviceName, Fault, OptionKind, OptionSpec, Options, Role, Setting, SettingValue, Support,
    WantedSetting,
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
use std::sync::{Mutex, PoisonError};

pub(super) struct Ports {
    devices: Option<[DeviceName; 2]>,
    neighbours: bool,
    ipv6: bool,
    /// What the devices and their namespaces came with.
    base: Mutex<Option<[Base; 2]>>,
}

/// No device is named.
pub(super) static UNNAMED: Ports =
    Ports { devices: None, neighbours: false, ipv6: false, base: Mutex::new(None) };

const WMEM: &str = "/proc/sys/net/ipv4/tcp_wmem";

const REMEDY: &str = "give both: --testbed ports:sender=eth1,receiver=eth2";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("sender", OptionKind::Text, "none").help("network device of the sender, without address and route"),
    OptionSpec::new("receiver", OptionKind::Text, "none").help("network device of the receiver, joined with the sender's by a cable or a switch"),
    OptionSpec::new("neighbours", OptionKind::Choice(&["arp", "static"]), "arp").help("static: each end is given the other's hardware address, so there are no neighbour requests"),
    OptionSpec::new("ip", OptionKind::Choice(&["v4", "v6"]), "v4").help("addresses of the ends: in 198.18.0.0/15, or in 2001:2::/48"),
];

impl Testbed for Ports {
    fn name(&self) -> &'static str {
        "ports"
    }

    fn summary(&self) -> &'static str {
        "two network devices of this machine, joined by a cable or a switch"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn configured(&self, options: &Options) -> Result<Option<Box<dyn Testbed>>, Fault> {
        let usage = |text: &str| Fault::usage(text).remedy(REMEDY);
        let named = |role: &str| match options.word(role) {
            "" | "none" => Err(usage(&format!("testbed ports: no device for the {role}"))),
            name => DeviceName::new(name),
        };
        let devices = [named("sender")?, named("receiver")?];
        if devices[0] == devices[1] {
            let text = format!("testbed ports: {} cannot be both ends", devices[0]);
            return Err(usage(&text));
        }
        let neighbours = options.word("neighbours") == "static";
        let ipv6 = options.word("ip") == "v6";
        let base = Mutex::new(None);
        Ok(Some(Box::new(Ports { devices: Some(devices), neighbours, ipv6, base })))
    }

    fn probe(&self) -> Support {
        if !namespace::privileged() {
            return Support::no("only root may move devices", "run as root");
        }
        if self.devices.is_none() {
            return Support::no("no devices are given", REMEDY);
        }
        let feasible = settings::feasible(ThisMachine::new(Roots::real()), &self.settings());
        feasible.map_or_else(Support::from, |()| Support::Yes)
    }

    fn settings(&self) -> Vec<WantedSetting> {
        let lend =
            |device: &DeviceName| WantedSetting::from(Setting::Loan { device: device.clone() });
        self.devices.iter().flatten().map(lend).collect()
    }

    fn devices(&self) -> Option<[String; 2]> {
        let [sender, receiver] = self.devices.as_ref()?;
        Some([sender.to_string(), receiver.to_string()])
    }

    fn address(&self, role: Role) -> IpAddr {
        if self.ipv6 { ends::address_v6(role) } else { ends::address(role) }
    }

    fn properties(&self) -> Properties {
        Properties {
            holds_several: false,
            has_cable: true,
            usual_link: "nic",
            timeout: CARRIER,
            ..Properties::default()
        }
    }

    fn link_trouble(&self) -> Option<LinkTrouble> {
        self.devices.iter().flatten().filter_map(trouble_of).min()
    }

    fn raise(&self, site: &Site) -> Result<Deployment, Fault> {
        site.refuse_kernel(self.name())?;
        let devices = self
            .devices
            .clone()
            .ok_or_else(|| Fault::usage("testbed ports: no devices are given").remedy(REMEDY))?;
        let ends = [End::find(&devices[0])?, End::find(&devices[1])?];
        self.renew(&ends)?;
        let hardware = match self.neighbours {
            true => Some([ends[0].hardware_address()?, ends[1].hardware_address()?]),
            false => None,
        };
        let namespaces = [ends[0].namespace()?, ends[1].namespace()?];
        let program = site.program.to_path_buf();
        let [sender, receiver] = LocalAgent::start(move || {
            let [sender, receiver] = namespaces.map(|namespace| {
                let child = namespace::spawn_in(AgentProcess::command(&program), namespace);
                AgentProcess::new(child.map_err(|refused| fault(&refused))?)
            });
            Ok([sender?, receiver?])
        })?;
        let host = |role: Role, agent| {
            let peer = role.peer();
            let device = devices[role as usize].to_string();
            let prefix = if self.ipv6 { ends::PREFIX_V6 } else { ends::PREFIX };
            let end = LinkEnd {
                timeout: CARRIER.as_secs_f64(),
                neighbour: hardware.map(|all| (self.address(peer), all[peer as usize])),
                ..LinkEnd::plain(device, self.address(role), prefix)
            };
            let attachment = Attachment::Made(end, HwGro::AsAsked);
            ProcessHost { agent, attachment, adapter: Adapter::Asked }
        };
        Ok(Deployment::of([host(Role::Sender, sender), host(Role::Receiver, receiver)]))
    }
}

impl Ports {
    /// Takes back what the link of the last cell set. The first time there is nothing to
    /// take back, and what is there is noted.
    fn renew(&self, ends: &[End; 2]) -> Result<(), Fault> {
        let mut base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        match &*base {
            None => *base = Some([ends[0].within(Base::read)?, ends[1].within(Base::read)?]),
            Some(bases) => {
                for (end, base) in ends.iter().zip(bases) {
                    end.within(|device| base.renew(device))?;
                }
            }
        }
        Ok(())
    }
}

/// What is wrong with a device that is lent and was set up.
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

/// What a device and its namespace are when no link is set up.
struct Base {
    tuning: SettingValue,
    /// Least, first and most memory of send buffers, as the kernel prints it.
    wmem: String,
    /// Handle of the root queueing discipline; 0 of the kernel's own.
    root: u32,
}

/// Index of a device and handle of its root queueing discipline, 0 of the kernel's own and of
/// none; both are 0 if there is no such device.
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
        // Every link sets it, and some NICs stop for it.
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

/// A device where it is lent to.
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
        assert_eq!(bed.devices().unwrap(), ["eth1.7", "eth2"]);
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
