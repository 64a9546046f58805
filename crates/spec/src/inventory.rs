//! `hosts.toml`: the hosts of a lab, and the pairs that are connected by a link.

use super::options::usage;
use super::suggest;
use bytepath_record::Fault;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The hosts and pairs in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    #[serde(default)]
    hosts: BTreeMap<String, ListedHost>,
    #[serde(default)]
    pairs: BTreeMap<String, ListedPair>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedHost {
    /// How to reach it, in the syntax of `--sender`.
    at: String,
    /// Its address on the link; `None` to detect it.
    address: Option<IpAddr>,
    /// Its network device on the link; `None` takes the one with the address.
    device: Option<String>,
    /// How its power is measured, in the syntax of `--power`.
    power: Option<String>,
}

/// Two hosts with a link between them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedPair {
    sender: String,
    receiver: String,
}

/// A selected pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Its name.
    pub name: String,
    /// Its testbed, as typed.
    pub testbed: String,
    /// How its power is measured, as typed; `None` leaves that to the experiment.
    pub power: Option<String>,
}

/// Most bytes of a file.
const LONGEST: usize = 1 << 20;

impl Inventory {
    /// Parses the text of a file; `name` is used in faults, which name the line.
    pub fn parse(name: &str, text: &str) -> Result<Inventory, Fault> {
        if text.len() > LONGEST {
            return Err(usage(format!("{name} is longer than 1 MiB")));
        }
        toml::from_str(text).map_err(|e| {
            let line = e.span().map(|span| text[..span.start].lines().count().max(1));
            let place = line.map_or_else(|| name.to_owned(), |line| format!("{name}:{line}"));
            usage(format!("{place}: {}", e.message()))
                .remedy("docs/guide/hosts.md describes the format")
        })
    }

    /// Returns the pairs with these names. Errors if a host is in two of them, because such pairs
    /// would disturb each other.
    pub fn chosen(&self, pairs: &[String]) -> Result<Vec<Chosen>, Fault> {
        let mut used: BTreeMap<&str, &str> = BTreeMap::new();
        let mut all = Vec::new();
        for name in pairs {
            let Some(pair) = self.pairs.get(name) else {
                let known = self.pairs.keys().map(String::as_str);
                return Err(suggest(usage(format!("there is no pair '{name}'")), name, known));
            };
            let mut options = Vec::new();
            for (role, host) in [("sender", &pair.sender), ("receiver", &pair.receiver)] {
                if let Some(other) = used.insert(host, name) {
                    let text = match other == name {
                        true => format!("the pair '{name}' has one host twice: '{host}'"),
                        false => format!("the host '{host}' is in two pairs: {other} and {name}"),
                    };
                    return Err(usage(text).remedy("measure such pairs one after the other"));
                }
                options.extend(self.options(role, host)?);
            }
            let testbed = format!("hosts:{}", options.join(","));
            all.push(Chosen { name: name.clone(), testbed, power: self.power(name, pair)? });
        }
        Ok(all)
    }

    fn power(&self, name: &str, pair: &ListedPair) -> Result<Option<String>, Fault> {
        let of = |host: &String| self.hosts.get(host).and_then(|host| host.power.as_deref());
        match (of(&pair.sender), of(&pair.receiver)) {
            (None, None) => Ok(None),
            (Some(sender), Some(receiver)) => {
                Ok(Some(format!("sender={sender},receiver={receiver}")))
            }
            _ => Err(usage(format!("one host of the pair '{name}' has a source of power"))
                .remedy("give the other one its own, or leave it out of both")),
        }
    }

    fn options(&self, role: &str, host: &str) -> Result<Vec<String>, Fault> {
        let Some(ListedHost { at, address, device, .. }) = self.hosts.get(host) else {
            let known = self.hosts.keys().map(String::as_str);
            return Err(suggest(usage(format!("there is no host '{host}'")), host, known));
        };
        if at.contains('"') || device.as_ref().is_some_and(|device| device.contains(['"', ','])) {
            return Err(usage(format!("the address of host '{host}' contains quotes or commas")));
        }
        let address = address.map(|address| format!("{role}-address={address}"));
        let device = device.as_ref().map(|device| format!("{role}-device={device}"));
        let at = format!("{role}=\"{at}\"");
        Ok([Some(at), address, device].into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [hosts.a1]
        at = "ssh://root@a1"
        address = "10.0.0.1"
        device = "eth1"
        power = "rapl"
        [hosts.a2]
        at = "exec:docker exec -i a2"
        power = "csv=a2.csv,rest=60"
        [hosts.b1]
        at = "here"
        [hosts.b2]
        at = "ssh://b2"
        [pairs.a]
        sender = "a1"
        receiver = "a2"
        [pairs.b]
        sender = "b1"
        receiver = "b2"
        [pairs.mixed]
        sender = "a1"
        receiver = "b2"
        [pairs.twice]
        sender = "b2"
        receiver = "b2"
        [pairs.nowhere]
        sender = "b2"
        receiver = "c2"
    "#;

    fn chosen(pairs: &[&str]) -> Result<Vec<Chosen>, Fault> {
        let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        Inventory::parse("hosts.toml", TEXT).unwrap().chosen(&pairs)
    }

    #[test]
    fn a_pair_is_a_testbed() {
        let pairs = chosen(&["a", "b"]).unwrap();
        assert_eq!(pairs[0].name, "a");
        assert_eq!(pairs[0].power.as_deref(), Some("sender=rapl,receiver=csv=a2.csv,rest=60"));
        assert_eq!(
            pairs[0].testbed,
            "hosts:sender=\"ssh://root@a1\",sender-address=10.0.0.1,sender-device=eth1,\
             receiver=\"exec:docker exec -i a2\""
        );
        assert_eq!(pairs[1].testbed, "hosts:sender=\"here\",receiver=\"ssh://b2\"");
        assert_eq!(pairs[1].power, None);
    }

    #[test]
    fn names_what_does_not_fit() {
        let fault = |pairs: &[&str]| chosen(pairs).unwrap_err().to_string();
        assert!(fault(&["a", "mixed"]).contains("'a1' is in two pairs: a and mixed"));
        assert!(fault(&["twice"]).contains("has one host twice: 'b2'"));
        assert!(fault(&["nowhere"]).contains("there is no host 'c2'"));
        assert!(fault(&["mixed"]).contains("one host of the pair 'mixed'"));
        assert!(fault(&["mixe"]).contains("did you mean 'mixed'?"));
        let wrong = |text: &str| Inventory::parse("hosts.toml", text).unwrap_err().to_string();
        assert!(wrong("[hosts.a]\nat = \"here\"\nport = 3\n").contains("hosts.toml:"));
        assert!(wrong("[hosts.a]\naddress = \"x\"\n").contains("hosts.toml:"));
    }
}
