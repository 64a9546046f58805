//! Two hosts that the user names, each reached by a command that gives a pipe to a
//! `bytepath agent`: over ssh, in a container, in a namespace. The link between them is
//! theirs, and stays as it is.

use super::{Deployment, Properties, Site, Stewardship, Testbed};
use crate::host::{Adapter, AgentProcess, Attachment, Host, LocalAgent, ProcessHost};
use crate::record::{DeviceName, Fault, FaultKind, OptionKind, OptionSpec, Options, Role, Support};
use crate::sys::process::spawn_tied;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Two named hosts.
pub struct Hosts {
    named: Option<[Named; 2]>,
}

/// No host is named.
pub static UNNAMED: Hosts = Hosts { named: None };

/// A host as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    role: Role,
    reached: Reached,
    address: IpAddr,
    device: Option<String>,
}

/// How an agent is started on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reached {
    /// It is this machine.
    Here,
    /// By this program with its arguments.
    Exec(Vec<String>),
}

const REMEDY: &str = "name both: --testbed 'hosts:sender=here,sender-address=10.0.0.1,\
                      receiver=\"exec:ssh peer bytepath agent\",receiver-address=10.0.0.2'";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "sender",
        kind: OptionKind::Text,
        default: "none",
        help: "the sender's host: here, or \"exec:COMMAND\", which gives a pipe to a bytepath agent",
    },
    OptionSpec {
        name: "sender-address",
        kind: OptionKind::Text,
        default: "none",
        help: "the sender's address on the link",
    },
    OptionSpec {
        name: "sender-device",
        kind: OptionKind::Text,
        default: "auto",
        help: "the sender's network device; auto: the one with the address",
    },
    OptionSpec {
        name: "receiver",
        kind: OptionKind::Text,
        default: "none",
        help: "the receiver's host, likewise",
    },
    OptionSpec {
        name: "receiver-address",
        kind: OptionKind::Text,
        default: "none",
        help: "the receiver's address on the link",
    },
    OptionSpec {
        name: "receiver-device",
        kind: OptionKind::Text,
        default: "auto",
        help: "the receiver's network device; auto: the one with the address",
    },
];

impl Testbed for Hosts {
    fn name(&self) -> &'static str {
        "hosts"
    }

    fn summary(&self) -> &'static str {
        "two hosts of your own, each reached by a command"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn configured(&self, options: &Options) -> Result<Option<Box<dyn Testbed>>, Fault> {
        let [sender, receiver] = Role::ALL.map(|role| Named::of(role, options));
        let named = [sender?, receiver?];
        if named.iter().all(|host| host.reached == Reached::Here) {
            return Err(usage("both hosts are this machine")
                .remedy("choose the testbed netns or ports, or reach one by exec:COMMAND"));
        }
        Ok(Some(Box::new(Hosts { named: Some(named) })))
    }

    fn probe(&self) -> Support {
        match &self.named {
            Some(_) => Support::Yes,
            None => Support::no("no hosts are named", REMEDY),
        }
    }

    fn properties(&self) -> Properties {
        Properties {
            hosts_apart: true,
            has_cable: true,
            link_is_given: true,
            usual_link: "nic",
            ..Properties::default()
        }
    }

    fn stewardship(&self, site: &Site) -> Result<Stewardship, Fault> {
        let boxed = self.start(site)?.map(|host| Box::new(host) as Box<dyn Host>);
        Ok(Stewardship::Apart(boxed))
    }

    fn raise(&self, site: &Site) -> Result<Deployment, Fault> {
        site.refuse_kernel(self.name())?;
        let mut deployment = Deployment::of(self.start(site)?);
        deployment.link_facts.push(("link.made", "no: it is as it was found".to_owned()));
        Ok(deployment)
    }
}

impl Hosts {
    fn start(&self, site: &Site) -> Result<[ProcessHost; 2], Fault> {
        let named = self.named.as_ref();
        let [sender, receiver] = named.ok_or_else(|| usage("no hosts are named").remedy(REMEDY))?;
        Ok([sender.start(site.program)?, receiver.start(site.program)?])
    }
}

impl Named {
    fn of(role: Role, options: &Options) -> Result<Named, Fault> {
        let word = |what: &str| match options.word(&format!("{role}{what}")) {
            "" | "none" | "auto" => None,
            word => Some(word.to_owned()),
        };
        let missing = |what: &str| usage(&format!("no {what} for the {role}")).remedy(REMEDY);
        let reached = Reached::of(&word("").ok_or_else(|| missing("host"))?)?;
        let address = word("-address").ok_or_else(|| missing("address"))?;
        let address = address.parse().map_err(|_| {
            usage(&format!("'{address}' is not an IP address")).remedy("such as 10.0.0.1")
        })?;
        let device = word("-device").map(|name| DeviceName::new(&name)).transpose()?;
        Ok(Named { role, reached, address, device: device.map(|name| name.to_string()) })
    }

    /// Starts an agent. What it is started by ends with the thread that starts it, and
    /// an agent elsewhere when its pipe does.
    fn start(&self, program: &Path) -> Result<ProcessHost, Fault> {
        let words = match &self.reached {
            Reached::Here => vec![program.display().to_string(), "agent".to_owned()],
            Reached::Exec(words) => words.clone(),
        };
        let role = self.role;
        let [agent] = LocalAgent::start(move || {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = spawn_tied(command, &[]).map_err(|e| {
                Fault::system(format!("starting {} for the {role}'s host", words[0]), &e)
            })?;
            Ok([AgentProcess::new(child)])
        })?;
        let attachment = Attachment::Given { address: self.address, device: self.device.clone() };
        Ok(ProcessHost { agent, attachment, adapter: Adapter::Asked })
    }
}

impl Reached {
    /// A command is split as a shell splits it, and given to no shell.
    fn of(text: &str) -> Result<Reached, Fault> {
        if text == "here" {
            return Ok(Reached::Here);
        }
        let wrong = |what: &str| {
            usage(&format!("'{text}' {what}")).remedy("here, or \"exec:ssh peer bytepath agent\"")
        };
        let command = text.strip_prefix("exec:").ok_or_else(|| wrong("is not a host"))?;
        match shlex::split(command) {
            Some(words) if !words.is_empty() => Ok(Reached::Exec(words)),
            Some(_) => Err(wrong("names no command")),
            None => Err(wrong("ends within quotes")),
        }
    }
}

fn usage(text: &str) -> Fault {
    Fault::new(FaultKind::Usage, format!("testbed hosts: {text}"))
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
            Reached::Exec(words) => words,
            Reached::Here => vec![],
        };
        assert_eq!(words("here"), [""; 0]);
        assert_eq!(words("exec:ssh -p 22 peer bytepath agent").len(), 6);
        assert_eq!(words("exec:env 'A=b c' $HOME/x"), ["env", "A=b c", "$HOME/x"]);
        for wrong in ["ssh peer", "exec:", "exec:a 'b"] {
            assert!(Reached::of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let said = |set: &[(&str, &str)]| configured(set).err().unwrap().to_string();
        assert!(said(&[]).contains("no host for the sender (name both"));
        let here = [("sender", "here"), ("sender-address", "10.0.0.1")];
        assert!(said(&here[..1]).contains("no address for the sender"));
        let with = |receiver, address| {
            [&here[..], &[("receiver", receiver), ("receiver-address", address)]].concat()
        };
        assert!(said(&with("x", "::1")).contains("'x' is not a host"));
        assert!(said(&with("here", "::1")).contains("both hosts are this machine"));
        assert!(said(&with("exec:a", "b")).contains("'b' is not an IP address"));
        let bed = configured(&with("exec:ssh peer bytepath agent", "10.0.0.2")).unwrap();
        assert!(bed.properties().hosts_apart && bed.probe().is_yes());
        assert!(UNNAMED.raise(&Site::of("/bin/true".as_ref())).is_err());
    }
}
