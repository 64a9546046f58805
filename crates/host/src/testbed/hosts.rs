//! Two hosts that the user names, each this machine, or reached by ssh(1) or another command that
//! runs programs there. The link between them already exists, and is not changed.

use super::ssh::{Ssh, start};
use super::{Deployment, Properties, Site, Stewardship, Testbed};
use crate::child::spawn_scoped;
use crate::{Adapter, Attachment, Boot, Host, Place, ProcessHost, build_of, own_build};
use bytepath_record::{
    CpuTurns, DeviceName, Fault, FaultKind, OptionKind, OptionSpec, Options, Ports, Role, Support,
    distinct,
};
use std::time::Duration;

pub(super) struct Hosts {
    named: Option<[Named; 2]>,
    ports: Option<Ports>,
    timeout: Duration,
}

/// The testbed without any hosts.
pub(super) static UNNAMED: Hosts = Hosts { named: None, ports: None, timeout: Duration::ZERO };

/// A host as the user names it.
struct Named {
    role: Role,
    reached: Reached,
    /// Its ends of the link, joined with those of the other host in this order.
    places: Vec<Place>,
    /// Whether a copy of this program may stay there.
    keeps_copy: bool,
}

/// How an agent is started on a host.
enum Reached {
    /// It is this machine.
    Here,
    Ssh(Ssh),
    /// By a command that runs the words appended to it there.
    Exec {
        text: String,
        words: Vec<String>,
    },
}

const REMEDY: &str = "give it: --receiver ssh://peer";

const HOST: &str =
    "here, ssh://[USER@]HOST[:PORT], or exec:COMMAND, which runs the words after it there";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("sender", OptionKind::Text, "here").help(HOST),
    OptionSpec::new("sender-address", OptionKind::Text, "auto").help("the sender's address on the link; auto: the one in the network that both hosts share; several as 10.0.0.1+10.0.1.1"),
    OptionSpec::new("sender-device", OptionKind::Text, "auto").help("the sender's network device; auto: the one with the address; several as eth1+eth2"),
    OptionSpec::new("receiver", OptionKind::Text, "here").help("the receiver's host, likewise"),
    OptionSpec::new("receiver-address", OptionKind::Text, "auto").help("the receiver's address on the link, likewise"),
    OptionSpec::new("receiver-device", OptionKind::Text, "auto").help("the receiver's network device, likewise; several in the order of the sender's"),
    OptionSpec::new("ports", OptionKind::Text, "any").help("ports that the receiver may listen on, LOW-HIGH, if a firewall admits only some"),
    OptionSpec::new("timeout", OptionKind::Time(0, 24 * 3600 * 1000), "60s").help("how long to wait for a lost host before the study ends"),
    OptionSpec::new("copies", OptionKind::Choice(&["kept", "removed"]), "kept").help("copies of this program in the cache of hosts that have none: kept, or removed after the study"),
];

impl Testbed for Hosts {
    fn name(&self) -> &'static str {
        "hosts"
    }

    fn summary(&self) -> &'static str {
        "two hosts of your own: this machine, by ssh, or by any command"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn configured(&self, options: &Options) -> Result<Option<Box<dyn Testbed>>, Fault> {
        let [sender, receiver] = Role::ALL.map(|role| Named::of(role, options));
        let named = in_pairs([sender?, receiver?])?;
        if named.iter().all(|host| matches!(host.reached, Reached::Here)) {
            return Err(usage("both hosts are this machine")
                .remedy("choose another host, or the testbed netns or ports"));
        }
        let ports = ports(options.word("ports"))?;
        let timeout = Duration::from_millis(options.number("timeout").unwrap_or_default());
        Ok(Some(Box::new(Hosts { named: Some(named), ports, timeout })))
    }

    fn probe(&self) -> Support {
        Support::when(self.named.is_some(), "no hosts are given", REMEDY)
    }

    fn named_devices(&self) -> [Vec<String>; 2] {
        let devices = |one: &Named| one.places.iter().filter_map(|at| at.device.clone()).collect();
        self.named.as_ref().map_or_else(Default::default, |named| named.each_ref().map(devices))
    }

    fn properties(&self) -> Properties {
        Properties {
            hosts_apart: true,
            has_cable: true,
            link_is_given: true,
            // A NIC that is prepared for one cell is not in the state that another one needs.
            holds_several: false,
            usual_link: "given",
            adapters: self.named.as_ref().map_or(1, |[sender, _]| sender.places.len() as u32),
            timeout: self.timeout,
            ..Properties::default()
        }
    }

    fn stewardship(&self, site: &Site) -> Result<Stewardship, Fault> {
        // These agents end last, so they remove what the agents of trials leave behind.
        let boxed = self.start(site, true)?.map(|host| Box::new(host) as Box<dyn Host>);
        Ok(Stewardship::Apart(boxed))
    }

    fn raise(&self, site: &Site) -> Result<Deployment, Fault> {
        site.refuse_kernel(self.name())?;
        let mut deployment = Deployment::of(self.start(site, false)?);
        deployment.ports = self.ports;
        deployment.link_facts.push(("link.made", "no: it is as found".to_owned()));
        Ok(deployment)
    }
}

impl Hosts {
    /// Starts an agent on each host, on both at once, because a login takes time.
    fn start(&self, site: &Site, last: bool) -> Result<[ProcessHost; 2], Fault> {
        let named = self.named.as_ref();
        let [sender, receiver] = named.ok_or_else(|| usage("no hosts are given").remedy(REMEDY))?;
        std::thread::scope(|scope| {
            let one = spawn_scoped(scope, "sender's host", || sender.start(site, last))?;
            let other = receiver.start(site, last);
            let panicked = |_| Fault::failed("a thread that starts agents ended");
            Ok([one.join().map_err(panicked)??, other?])
        })
    }
}

impl Named {
    fn of(role: Role, options: &Options) -> Result<Named, Fault> {
        Ok(Named {
            role,
            reached: Reached::of(options.word(&role.to_string()))?,
            places: places(role, options)?,
            keeps_copy: options.word("copies") != "removed",
        })
    }

    /// Starts an agent. The command that starts it ends with the calling thread, and an agent
    /// elsewhere ends with its pipe.
    fn start(&self, site: &Site, last: bool) -> Result<ProcessHost, Fault> {
        let own = || vec![site.program.display().to_string(), "agent".to_owned()];
        let (words, host) = match &self.reached {
            Reached::Here => (own(), None),
            Reached::Ssh(ssh) => (ssh.shell(site.stop)?, Some(ssh.address())),
            Reached::Exec { text, words } => {
                let words = words.iter().cloned().chain(["sh".to_owned()]);
                (words.collect(), Some(text.as_str()))
            }
        };
        let mut agent = start(words).map_err(|fault| fault.context(self.role))?;
        if let Some(host) = host {
            let build = build_of(site.program).unwrap_or_else(|| own_build().to_owned());
            let boot = Boot {
                host,
                program: site.program,
                build: &build,
                keeps_copy: self.keeps_copy || !last,
                stop: site.stop,
            };
            let booted = boot.run(&mut agent.process);
            if let (Err(Fault { kind: FaultKind::PeerLost, .. }), Reached::Ssh(ssh)) =
                (&booted, &self.reached)
            {
                ssh.disconnect();
            }
            booted.map_err(|fault| fault.context(self.role))?;
        }
        let attachment = Attachment::Given(self.places.clone());
        Ok(ProcessHost { agent, attachment, adapter: Adapter::Asked })
    }
}

/// Returns the ends of a host's link: one for each device or address, or one if none is named.
fn places(role: Role, options: &Options) -> Result<Vec<Place>, Fault> {
    let words = |what: &str| match options.word(&format!("{role}-{what}")) {
        "auto" => Vec::new(),
        words => words.split('+').collect(),
    };
    let (devices, addresses) = (words("device"), words("address"));
    let [some, other] = [devices.len(), addresses.len()];
    if some != other && some > 0 && other > 0 {
        let devices = counted(some, "device", "devices");
        let addresses = counted(other, "address", "addresses");
        return Err(usage(&format!("{devices} and {addresses} of the {role}"))
            .remedy("name the address of each device, in their order, or leave it to be found"));
    }
    let place = |at: usize| {
        let address = addresses.get(at).map(|address| {
            address.parse().map_err(|_| {
                usage(&format!("'{address}' is not an IP address")).remedy("such as 10.0.0.1")
            })
        });
        let device = devices.get(at).map(|name| DeviceName::new(name)).transpose()?;
        let device = device.map(|name| name.to_string());
        Ok(Place { address: address.transpose()?, device })
    };
    let places = (0..some.max(other).max(1)).map(place).collect::<Result<Vec<Place>, Fault>>()?;
    for (what, named) in [("a device", &devices), ("an address", &addresses)] {
        if distinct(named).len() < named.len() {
            return Err(usage(&format!("{what} of the {role} is named twice"))
                .remedy("each is joined with one of the other host"));
        }
    }
    Ok(places)
}

/// Formats "1 device", "2 devices".
fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Gives both hosts the same number of ends: if nothing is named for a host, its ends are
/// determined later.
fn in_pairs(mut named: [Named; 2]) -> Result<[Named; 2], Fault> {
    let [sender, receiver] = named.each_ref().map(|one| one.places.len());
    let count = sender.max(receiver);
    for one in &mut named {
        if one.places == [Place::default()] {
            one.places.resize(count, Place::default());
        }
    }
    if named.iter().any(|one| one.places.len() != count) {
        let ends = counted(sender, "end", "ends");
        let text = format!("{ends} of the sender and {receiver} of the receiver");
        return Err(usage(&text).remedy("name as many devices of each, in the order of the cables"));
    }
    if count > CpuTurns::MOST {
        let text = format!("{count} devices at each end are more than {}", CpuTurns::MOST);
        return Err(usage(&text).remedy("name fewer"));
    }
    Ok(named)
}

impl Reached {
    fn of(text: &str) -> Result<Reached, Fault> {
        let wrong = |what: &str| usage(&format!("'{text}' {what}")).remedy(HOST);
        if text == "here" {
            return Ok(Reached::Here);
        }
        if text.starts_with("ssh:") {
            return Ok(Reached::Ssh(Ssh::new(text).map_err(|wrong| usage(&wrong))?));
        }
        // A command is split like a shell splits it, but no shell runs it.
        let command = text.strip_prefix("exec:").ok_or_else(|| wrong("is not a host"))?;
        match shlex::split(command) {
            Some(words) if !words.is_empty() => Ok(Reached::Exec { text: text.into(), words }),
            Some(_) => Err(wrong("names no command")),
            None => Err(wrong("ends within quotes")),
        }
    }
}

/// Parses `LOW-HIGH`.
fn ports(text: &str) -> Result<Option<Ports>, Fault> {
    if text == "any" {
        return Ok(None);
    }
    let bounds = text.split_once('-').and_then(|(l, h)| Some((l.parse().ok()?, h.parse().ok()?)));
    match bounds {
        Some((low, high)) if 0 < low && low <= high => Ok(Some(Ports { low, high })),
        _ => Err(usage(&format!("'{text}' is not a range of ports")).remedy("such as 5000-5100")),
    }
}

fn usage(text: &str) -> Fault {
    Fault::usage(format!("testbed hosts: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(set: &[(&str, &str)]) -> Result<Box<dyn Testbed>, Fault> {
        let mut options = Options::default();
        for spec in OPTIONS {
            let text = set.iter().find(|(name, _)| *name == spec.name);
            let value = spec.kind.parse(text.map_or(spec.default, |(_, text)| *text)).unwrap();
            options.0.insert(spec.name.into(), value);
        }
        UNNAMED.configured(&options).map(Option::unwrap)
    }

    #[test]
    fn a_command_is_split_into_words_and_nothing_else() {
        let words = |text: &str| match Reached::of(text).unwrap() {
            Reached::Exec { words, .. } => words,
            _ => vec![],
        };
        assert_eq!(words("here"), [""; 0]);
        assert_eq!(words("exec:docker exec -i box").len(), 4);
        assert_eq!(words("exec:env 'A=b c' $HOME/x"), ["env", "A=b c", "$HOME/x"]);
        assert!(matches!(Reached::of("ssh://peer"), Ok(Reached::Ssh(_))));
        for wrong in ["ssh peer", "exec:", "exec:a 'b", "ssh://-x", "peer"] {
            assert!(Reached::of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn devices_of_both_hosts_are_joined_in_order() {
        let peer = ("receiver", "ssh://peer");
        let two = [peer, ("sender-device", "eth1+eth2"), ("receiver-device", "a+b")];
        let bed = configured(&two).unwrap();
        assert_eq!(bed.named_devices(), [["eth1", "eth2"], ["a", "b"]]);
        assert_eq!(bed.properties().adapters, 2);
        let addresses = [peer, ("receiver-address", "10.0.0.2+10.0.1.2")];
        let bed = configured(&addresses).unwrap();
        assert_eq!(bed.properties().adapters, 2, "the sender's are found");
        assert_eq!(configured(&[peer]).unwrap().properties().adapters, 1);
        let many = (0..17).map(|number| format!("e{number}")).collect::<Vec<_>>().join("+");
        for (set, words) in [
            (
                &[("sender-device", "a+b"), ("receiver-device", "c")][..],
                "2 ends of the sender and 1",
            ),
            (&[("sender-device", "a"), ("receiver-device", "b+c")], "1 end of the sender and 2"),
            (
                &[("sender-device", "a+b"), ("sender-address", "10.0.0.1")],
                "2 devices and 1 address of",
            ),
            (&[("sender-device", "a+a")], "a device of the sender is named twice"),
            (&[("sender-address", "10.0.0.1+10.0.0.1")], "an address of the sender is named twice"),
            (&[("sender-device", "a+")], "not a name"),
            (&[("sender-device", "+")], "not a name"),
            (&[("sender-device", &many)], "17 devices at each end are more than 16"),
        ] {
            let text = configured(&[&[peer], set].concat()).err().unwrap().to_string();
            assert!(text.contains(words), "{set:?}: {text}");
        }
    }

    #[test]
    fn names_invalid_options() {
        let said = |set: &[(&str, &str)]| configured(set).err().unwrap().to_string();
        assert!(said(&[]).contains("both hosts are this machine"));
        assert!(said(&[("receiver", "x")]).contains("'x' is not a host"));
        let peer = ("receiver", "ssh://peer");
        assert!(said(&[peer, ("receiver-address", "b")]).contains("'b' is not an IP address"));
        assert!(said(&[peer, ("ports", "9-8")]).contains("'9-8' is not a range of ports"));
        assert_eq!(ports("5000-5100"), Ok(Some(Ports { low: 5000, high: 5100 })));
        let bed = configured(&[peer]).unwrap();
        assert!(bed.properties().hosts_apart && bed.probe().is_yes());
        assert!(UNNAMED.raise(&Site::of("/bin/true".as_ref())).is_err());
    }
}
