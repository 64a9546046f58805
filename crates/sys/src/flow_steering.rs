//! How a device spreads flows over its receive queues, and rules that steer single flows:
//! ioctl(SIOCETHTOOL) (linux/ethtool.h, net/ethtool/ioctl.c). The netlink family can read the table
//! since Linux 6.3 and change it since 6.17, and has no rules at all, so this is the older
//! interface, which every driver supports.

use super::bytes::u64_at;
use super::interface_request::{Ethtool, word, words};
use std::io;
use std::net::IpAddr;

/// A rule: TCP flows with these addresses and ports go to one queue. `None` matches anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// True for IPv6, false for IPv4.
    pub ipv6: bool,
    /// Source address of the packets.
    pub source: Option<IpAddr>,
    /// Destination address of the packets.
    pub destination: Option<IpAddr>,
    /// Source port of the packets.
    pub source_port: Option<u16>,
    /// Destination port of the packets.
    pub destination_port: Option<u16>,
    pub queue: u64,
}

/// A device's table of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleTable {
    /// Locations in use, ascending.
    pub locations: Vec<u32>,
    /// Number of locations; 0 if the driver does not report it.
    pub size: u32,
    /// Whether the driver can choose the location itself (`RX_CLS_LOC_ANY`).
    pub chooses: bool,
}

/// Commands of `ioctl(SIOCETHTOOL)`.
const GRXRINGS: u32 = 0x2d;
const GRXCLSRLCNT: u32 = 0x2e;
const GRXCLSRULE: u32 = 0x2f;
const GRXCLSRLALL: u32 = 0x30;
const SRXCLSRLDEL: u32 = 0x31;
const SRXCLSRLINS: u32 = 0x32;
const GRXFHINDIR: u32 = 0x38;
const SRXFHINDIR: u32 = 0x39;

const TCP_V4_FLOW: u32 = 0x01;
const TCP_V6_FLOW: u32 = 0x05;
/// Flags in `RuleTable::size` and in locations.
const LOC_SPECIAL: u32 = 0x8000_0000;
const LOC_ANY: u32 = 0xffff_ffff;

/// Most entries of a table, and most rules, that are accepted from a driver.
const MOST: u32 = 1 << 16;

/// Returns the number of receive queues that flows are spread over. EOPNOTSUPP: the driver does not
/// spread them.
pub fn receive_queues(device: &str) -> io::Result<u64> {
    let mut request = Classifier::new(GRXRINGS, 0);
    request.send(device)?;
    Ok(request.long(DATA))
}

/// Returns the table that maps the hash of a packet's addresses and ports to a queue. EOPNOTSUPP:
/// the device has none.
pub fn indirection(device: &str) -> io::Result<Vec<u32>> {
    let mut size = words(&[GRXFHINDIR, 0]);
    send(device, &mut size)?;
    let size = word(&size, 4).min(MOST);
    let mut request = words(&[GRXFHINDIR, size]);
    request.resize(8 + size as usize * 4, 0);
    send(device, &mut request)?;
    Ok((0..size as usize).map(|at| word(&request, 8 + at * 4)).collect())
}

/// Sets the table; an empty one restores the driver's default. EINVAL: its size is not that of the
/// device's table, or it contains a queue that does not exist.
pub fn set_indirection(device: &str, table: &[u32]) -> io::Result<()> {
    let mut request = words(&[SRXFHINDIR, table.len() as u32]);
    request.extend(words(table));
    send(device, &mut request)
}

/// Returns the rules of a device. EOPNOTSUPP: it supports none.
pub fn rules(device: &str) -> io::Result<RuleTable> {
    let mut count = Classifier::new(GRXCLSRLCNT, 0);
    count.send(device)?;
    let chooses = count.long(DATA) as u32 & LOC_SPECIAL != 0;
    // Another program may add rules between the two calls: the kernel returns EMSGSIZE if they do
    // not fit.
    let room = word(&count.0, RULE_COUNT).min(MOST);
    let mut all = Classifier::new(GRXCLSRLALL, room);
    all.send(device)?;
    let found = word(&all.0, RULE_COUNT).min(room) as usize;
    let mut locations: Vec<u32> =
        (0..found).map(|at| word(&all.0, RULE_LOCATIONS + at * 4)).collect();
    locations.sort_unstable();
    let size = u32::try_from(all.long(DATA)).unwrap_or(0) & !LOC_SPECIAL;
    Ok(RuleTable { locations, size, chooses })
}

/// Returns the rule at a location; `None` if it is not a rule about TCP flows, or matches only
/// parts of addresses. ENOENT (or EINVAL): there is none.
pub fn rule(device: &str, location: u32) -> io::Result<Option<Rule>> {
    let mut request = Classifier::at(GRXCLSRULE, location);
    request.send(device)?;
    Ok(request.rule())
}

/// Inserts a rule at a location, or where the driver chooses, and returns its location. EINVAL: the
/// driver cannot match this, or needs features such as `rx-ntuple-filter`.
pub fn insert_rule(device: &str, rule: &Rule, location: Option<u32>) -> io::Result<u32> {
    let mut request = Classifier::at(SRXCLSRLINS, location.unwrap_or(LOC_ANY));
    request.put_rule(rule);
    request.send(device)?;
    Ok(word(&request.0, LOCATION))
}

/// Deletes the rule at a location. ENOENT (or EINVAL): there is none.
pub fn delete_rule(device: &str, location: u32) -> io::Result<()> {
    Classifier::at(SRXCLSRLDEL, location).send(device)
}

/// `struct ethtool_rxnfc` followed by room for locations.
struct Classifier(Vec<u8>);

// Offsets in it. `fs`, the rule, begins at 16: type, fields to match, more fields, masks of both,
// queue, location.
const DATA: usize = 8;
const FLOW_TYPE: usize = 16;
const FIELDS: usize = 20;
const MASKS: usize = 92;
const QUEUE: usize = 168;
const LOCATION: usize = 176;
const RULE_COUNT: usize = 184;
const RULE_LOCATIONS: usize = 188;
const LENGTH: usize = 192;

/// Offsets of addresses and ports in `struct ethtool_tcpip4_spec` and
/// `ethtool_tcpip6_spec`: source, destination, source port, destination port.
fn fields(ipv6: bool) -> ([usize; 4], usize) {
    if ipv6 { ([0, 16, 32, 34], 16) } else { ([0, 4, 8, 10], 4) }
}

impl Classifier {
    fn new(command: u32, room: u32) -> Self {
        let mut request = Classifier(vec![0; LENGTH + room as usize * 4]);
        request.put(0, &command.to_ne_bytes());
        request.put(RULE_COUNT, &room.to_ne_bytes());
        request
    }

    /// Makes a request about the rule at a location.
    fn at(command: u32, location: u32) -> Self {
        let mut request = Classifier::new(command, 0);
        request.put(LOCATION, &location.to_ne_bytes());
        request
    }

    fn send(&mut self, device: &str) -> io::Result<()> {
        send(device, &mut self.0)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn long(&self, at: usize) -> u64 {
        u64_at(&self.0, at).unwrap_or(0)
    }

    fn put_rule(&mut self, rule: &Rule) {
        let flow = if rule.ipv6 { TCP_V6_FLOW } else { TCP_V4_FLOW };
        self.put(FLOW_TYPE, &flow.to_ne_bytes());
        let address = |ip: Option<IpAddr>| {
            ip.map(|ip| match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            })
        };
        let port = |port: Option<u16>| port.map(|port| port.to_be_bytes().to_vec());
        let values = [
            address(rule.source),
            address(rule.destination),
            port(rule.source_port),
            port(rule.destination_port),
        ];
        let (offsets, size) = fields(rule.ipv6);
        for (offset, value) in offsets.into_iter().zip(values) {
            // There is no room for an address of the other family; it is not matched.
            if let Some(value) = value.filter(|value| value.len() == size || value.len() == 2) {
                self.put(MASKS + offset, &vec![0xff; value.len()]);
                self.put(FIELDS + offset, &value);
            }
        }
        self.put(QUEUE, &rule.queue.to_ne_bytes());
    }

    fn rule(&self) -> Option<Rule> {
        let ipv6 = match word(&self.0, FLOW_TYPE) {
            TCP_V4_FLOW => false,
            TCP_V6_FLOW => true,
            _ => return None,
        };
        let (offsets, size) = fields(ipv6);
        let value = |at: usize, len: usize| -> Option<Option<&[u8]>> {
            let mask = &self.0[MASKS + at..MASKS + at + len];
            if mask.iter().all(|byte| *byte == 0) {
                return Some(None);
            }
            let whole = mask.iter().all(|byte| *byte == 0xff);
            whole.then(|| Some(&self.0[FIELDS + at..FIELDS + at + len]))
        };
        let address = |at: usize| -> Option<Option<IpAddr>> {
            let bytes = value(at, size)?;
            Some(bytes.and_then(|bytes| match bytes.len() {
                4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
                _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
            }))
        };
        let port = |at: usize| -> Option<Option<u16>> {
            let bytes = value(at, 2)?;
            Some(bytes.and_then(|bytes| bytes.try_into().ok()).map(u16::from_be_bytes))
        };
        Some(Rule {
            ipv6,
            source: address(offsets[0])?,
            destination: address(offsets[1])?,
            source_port: port(offsets[2])?,
            destination_port: port(offsets[3])?,
            queue: self.long(QUEUE),
        })
    }
}

fn send(device: &str, request: &mut [u8]) -> io::Result<()> {
    // SAFETY: the request begins with its number and has the length of the command's structure with
    // as much room as it specifies: every caller here builds it that way.
    unsafe { Ethtool::open(device)?.ask(request) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_survives_the_kernels_layout() {
        let four = Rule {
            source: Some("10.0.0.1".parse().unwrap()),
            destination_port: Some(5201),
            queue: 7,
            ..Rule::default()
        };
        let six = Rule {
            ipv6: true,
            destination: Some("fd00::2".parse().unwrap()),
            source_port: Some(1),
            queue: 3,
            ..Rule::default()
        };
        for rule in [four, six] {
            let mut request = Classifier::new(SRXCLSRLINS, 0);
            request.put_rule(&rule);
            assert_eq!(request.rule(), Some(rule));
        }
        // Network byte order, at the offset of `tcp_ip4_spec.pdst`.
        let mut request = Classifier::new(SRXCLSRLINS, 0);
        request.put_rule(&Rule { destination_port: Some(0x1234), ..Rule::default() });
        assert_eq!(request.0[FIELDS + 10..FIELDS + 12], [0x12, 0x34]);
        assert_eq!(request.0[MASKS + 10..MASKS + 12], [0xff, 0xff]);
        // A rule that matches only a part of an address is not one of ours.
        request.put(MASKS, &[0xff, 0xff, 0, 0]);
        assert_eq!(request.rule(), None);
    }

    #[test]
    fn loopback_spreads_nothing() {
        for error in [indirection("lo").unwrap_err(), rules("lo").unwrap_err()] {
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
        }
        assert_eq!(indirection("no-such-dev").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(rules("x\0y").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
