//! The table of all kinds of settings: how each is typed and printed, the equivalent command of the
//! usual tools, and which values are invalid. A new kind of setting is a variant of [`Setting`],
//! its form and its arms here, and an entry in the crate that reads and changes settings.

use super::parts::{Parts, on_or_off};
use super::words::{Words, flag, not_a_number, number, wrong};
use super::{Cpus, DeviceName, FlowRule, IdleChoice, NumaNode, Setting, SysctlName, Word, names};
use crate::{Fault, joined, unit};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Form and example of each kind that a user may type, in the order of the help texts. The first
/// word of a form is the name of its kind.
pub const SETTING_FORMS: &[(&str, &str)] = &[
    ("sysctl NAME=VALUE", "a kernel parameter: sysctl net.core.rmem_max=67108864"),
    ("feature DEVICE NAME=on|off", "an offload feature: feature eth0 rx-gro=off"),
    (
        "rings DEVICE [rx=N] [tx=N] [rx-buf-len=BYTES] [tcp-data-split=on|off|auto] \
               [hds-thresh=BYTES]",
        "ring sizes and header split: rings eth0 rx=4096 tcp-data-split=on hds-thresh=0",
    ),
    ("channels DEVICE [rx=N] [tx=N] [combined=N]", "numbers of queues: channels eth0 combined=8"),
    (
        "coalescing DEVICE [rx-usecs=N] [rx-frames=N] [tx-usecs=N] [tx-frames=N] \
               [adaptive-rx=on|off] [adaptive-tx=on|off]",
        "when a device interrupts: coalescing eth0 adaptive-rx=off rx-usecs=30",
    ),
    (
        "napi DEVICE [defer-hard-irqs=N] [gro-flush-timeout=NS] [irq-suspend-timeout=NS] \
               [threaded=0|1|2]",
        "when polling instances poll and interrupt: napi eth0 defer-hard-irqs=50 \
         gro-flush-timeout=20000",
    ),
    (
        "spread DEVICE queues=N [start=S]",
        "receive flows over N queues only, the first or from S on: spread eth0 queues=7",
    ),
    (
        "flow DEVICE [src=IP] [dst=IP] [src-port=N] [dst-port=N] [ipv6] queue=N",
        "TCP flows to one queue: flow eth0 dst-port=5201 queue=7",
    ),
    ("mtu DEVICE BYTES", "largest packet: mtu eth0 4148"),
    (
        "packet-limits DEVICE [gso=BYTES] [gro=BYTES] [gso-ipv4=BYTES] [gro-ipv4=BYTES]",
        "largest packets of offloads (BIG TCP): packet-limits eth0 gro-ipv4=185000",
    ),
    ("qdisc DEVICE NAME", "the root queueing discipline: qdisc eth0 fq"),
    ("irq NUMBER CPUS", "the CPUs of an interrupt: irq 45 2-3"),
    ("rps DEVICE [QUEUE] CPUS", "the CPUs that received packets are handed to: rps eth0 0 1"),
    ("xps DEVICE [QUEUE] CPUS", "the CPUs that send by a queue: xps eth0 3 3"),
    ("governor CPUS|all NAME", "clock governor: governor all performance"),
    (
        "idle CPUS|all slower-than=TIME | idle CPUS|all without=NAME",
        "idle states to disable: idle all slower-than=10us",
    ),
    (
        "hugepages SIZE [node=N|DEVICE] COUNT",
        "huge pages to reserve, on a device's NUMA node: hugepages 2M node=eth0 512",
    ),
    ("threaded-napi DEVICE on|off", "polling in kernel threads: threaded-napi eth0 on"),
    ("dsa PART ATTRIBUTE=VALUE", "an engine, a work queue or a device of DSA: dsa wq0.0 size=128"),
    (
        "tap DEVICE [vnet-hdr=on|off] [napi=on|off] [backpressure=on|off]",
        "flags of a tap device: tap tap0 backpressure=on",
    ),
];

/// Parses the words that follow the name of a kind.
pub(super) fn parse(kind: &str, words: &mut Words) -> Result<Setting, Fault> {
    Ok(match kind {
        "sysctl" => {
            let pair = words.rest().split_once('=');
            let (name, value) = pair.ok_or_else(|| wrong("it has no value"))?;
            let value = value.trim().to_owned();
            Setting::Sysctl { name: SysctlName::new(name.trim())?, value }
        }
        "feature" => {
            let device = words.device()?;
            let (name, on) = words.last_pair("it names no feature")?;
            Setting::Feature { device, feature: Word::new(name)?, on: flag(on)? }
        }
        "rings" => Setting::Rings { device: words.device()?, rings: Parts::parse(words)? },
        "channels" => Setting::Channels { device: words.device()?, channels: Parts::parse(words)? },
        "coalescing" => {
            Setting::Coalescing { device: words.device()?, coalescing: Parts::parse(words)? }
        }
        "napi" => Setting::Napi { device: words.device()?, timing: Parts::parse(words)? },
        "spread" => Setting::Spread {
            device: words.device()?,
            queues: words.required("queues")?,
            start: words.number("start")?.unwrap_or(0),
        },
        "flow" => Setting::Flow { device: words.device()?, rule: FlowRule::parse(words)? },
        "mtu" => Setting::Mtu { device: words.device()?, bytes: bytes(words.next("the bytes")?)? },
        "packet-limits" => {
            Setting::PacketLimits { device: words.device()?, limits: Parts::parse(words)? }
        }
        "qdisc" => Setting::Qdisc { device: words.device()?, discipline: words.word()? },
        "irq" => {
            let irq = number(words.next("the number of the interrupt")?)?;
            Setting::IrqAffinity { irq, cpus: words.next("the CPUs")?.parse()? }
        }
        "rps" => {
            let (device, (queue, cpus)) = (words.device()?, words.queue_and_cpus()?);
            Setting::Rps { device, queue, cpus }
        }
        "xps" => {
            let (device, (queue, cpus)) = (words.device()?, words.queue_and_cpus()?);
            Setting::Xps { device, queue, cpus }
        }
        "governor" => Setting::Governor { cpus: words.cpus_or_all()?, governor: words.word()? },
        "idle" => Setting::IdleStates { cpus: words.cpus_or_all()?, disable: words.idle_choice()? },
        "hugepages" => {
            let size = unit::parse_bytes(words.next("the size of a page")?).map_err(wrong)?;
            let node = words.node()?;
            Setting::HugePages { size, node, count: number(words.next("how many pages")?)? }
        }
        "threaded-napi" => {
            let (device, on) = (words.device()?, flag(words.next("on or off")?)?);
            Setting::ThreadedNapi { device, on }
        }
        "dsa" => {
            let part = Word::new(words.next("the part")?)?;
            let (attribute, value) = words.last_pair("it sets no attribute")?;
            Setting::Dsa { part, attribute: Word::new(attribute)?, value: Word::new(value)? }
        }
        "tap" => Setting::TapFlags { device: words.device()?, flags: Parts::parse(words)? },
        _ => return Err(wrong("only a testbed requests it")),
    })
}

fn bytes(text: &str) -> Result<u32, Fault> {
    let bytes = unit::parse_bytes(text).map_err(wrong)?;
    u32::try_from(bytes).map_err(|_| not_a_number(text))
}

/// As the user types it.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Sysctl { name, value } => write!(f, "sysctl {name}={value}"),
            Setting::Feature { device, feature, on } => {
                write!(f, "feature {device} {feature}={}", on_or_off(*on))
            }
            Setting::Rings { device, .. } => write!(f, "rings {device}{}", self.pairs('=')),
            Setting::Channels { device, .. } => write!(f, "channels {device}{}", self.pairs('=')),
            Setting::Napi { device, .. } => write!(f, "napi {device}{}", self.pairs('=')),
            Setting::Coalescing { device, .. } => {
                write!(f, "coalescing {device}{}", self.pairs('='))
            }
            Setting::Spread { device, queues, start } => {
                write!(f, "spread {device} queues={queues}")?;
                if *start == 0 { Ok(()) } else { write!(f, " start={start}") }
            }
            Setting::Flow { device, rule } => write!(f, "flow {device}{rule}"),
            Setting::Mtu { device, bytes } => write!(f, "mtu {device} {bytes}"),
            Setting::PacketLimits { device, .. } => {
                write!(f, "packet-limits {device}{}", self.pairs('='))
            }
            Setting::Qdisc { device, discipline } => write!(f, "qdisc {device} {discipline}"),
            Setting::IrqAffinity { irq, cpus } => write!(f, "irq {irq} {cpus}"),
            Setting::Rps { device, queue: None, cpus } => write!(f, "rps {device} {cpus}"),
            Setting::Rps { device, queue: Some(n), cpus } => write!(f, "rps {device} {n} {cpus}"),
            Setting::Xps { device, queue: None, cpus } => write!(f, "xps {device} {cpus}"),
            Setting::Xps { device, queue: Some(n), cpus } => write!(f, "xps {device} {n} {cpus}"),
            Setting::Governor { cpus, governor } => {
                write!(f, "governor {} {governor}", list_or_all(cpus))
            }
            Setting::IdleStates { cpus, disable: IdleChoice::SlowerThan(us) } => {
                write!(f, "idle {} slower-than={us}us", list_or_all(cpus))
            }
            Setting::IdleStates { cpus, disable: IdleChoice::Named(name) } => {
                write!(f, "idle {} without={name}", list_or_all(cpus))
            }
            Setting::HugePages { size, node, count } => {
                let node = node.as_ref().map(|node| format!(" node={node}")).unwrap_or_default();
                write!(f, "hugepages {}{node} {count}", unit::bytes(*size))
            }
            Setting::ThreadedNapi { device, on } => {
                write!(f, "threaded-napi {device} {}", on_or_off(*on))
            }
            Setting::Dsa { part, attribute, value } => write!(f, "dsa {part} {attribute}={value}"),
            Setting::TapFlags { device, .. } => write!(f, "tap {device}{}", self.pairs('=')),
            Setting::Loan { device, .. } => write!(f, "loan {device}"),
        }
    }
}

/// Borrows the device of a setting: `Some(device)`, or `None` for settings that have none.
macro_rules! device_of {
    ($setting:expr) => {
        match $setting {
            Setting::Sysctl { .. }
            | Setting::IrqAffinity { .. }
            | Setting::Governor { .. }
            | Setting::IdleStates { .. }
            | Setting::HugePages { node: None | Some(NumaNode::Number(_)), .. }
            | Setting::Dsa { .. } => None,
            Setting::Feature { device, .. }
            | Setting::Rings { device, .. }
            | Setting::Channels { device, .. }
            | Setting::Coalescing { device, .. }
            | Setting::Napi { device, .. }
            | Setting::Spread { device, .. }
            | Setting::Flow { device, .. }
            | Setting::Mtu { device, .. }
            | Setting::PacketLimits { device, .. }
            | Setting::Qdisc { device, .. }
            | Setting::Rps { device, .. }
            | Setting::Xps { device, .. }
            | Setting::ThreadedNapi { device, .. }
            | Setting::TapFlags { device, .. }
            | Setting::HugePages { node: Some(NumaNode::Of(device)), .. }
            | Setting::Loan { device, .. } => Some(device),
        }
    };
}

impl Setting {
    /// Returns the command that makes the setting by hand. It is printed and never run. If no tool
    /// can make it (flags of a tap device), the call is described after a `#`.
    pub fn command(&self) -> String {
        match self {
            Setting::Sysctl { name, value } => format!("sysctl -w {name}='{value}'"),
            Setting::Feature { device, feature, on } => {
                format!("ethtool -K {device} {feature} {}", on_or_off(*on))
            }
            Setting::Rings { device, .. } => format!("ethtool -G {device}{}", self.pairs(' ')),
            Setting::Channels { device, .. } => format!("ethtool -L {device}{}", self.pairs(' ')),
            Setting::Coalescing { device, .. } => format!("ethtool -C {device}{}", self.pairs(' ')),
            Setting::Napi { device, .. } => set_napi(device, self.parts()),
            Setting::Spread { device, queues, start } => set_spread(device, *queues, *start),
            Setting::Flow { device, rule } => rule.command(device),
            Setting::Mtu { device, bytes } => format!("ip link set dev {device} mtu {bytes}"),
            Setting::PacketLimits { device, limits } => {
                let option = |(name, bytes): (&str, String)| {
                    format!(" {}_max_size {bytes}", name.replace('-', "_"))
                };
                let options: String = limits.parts().into_iter().map(option).collect();
                format!("ip link set dev {device}{options}")
            }
            Setting::Qdisc { device, discipline } => {
                format!("tc qdisc replace dev {device} root {discipline}")
            }
            Setting::IrqAffinity { irq, cpus } => {
                format!("echo {cpus} > /proc/irq/{irq}/smp_affinity_list")
            }
            Setting::Rps { device, queue, cpus } => steer(device, "rps", *queue, cpus),
            Setting::Xps { device, queue, cpus } => steer(device, "xps", *queue, cpus),
            Setting::Governor { cpus, governor } => {
                format!("cpupower -c {} frequency-set -g {governor}", list_or_all(cpus))
            }
            Setting::IdleStates { cpus, disable } => {
                let option = match disable {
                    // cpupower disables states from its argument up, we disable those above it.
                    IdleChoice::SlowerThan(us) => format!("-D {}", us.saturating_add(1)),
                    IdleChoice::Named(name) => format!("-d STATE  # the one called {name}"),
                };
                format!("cpupower -c {} idle-set {option}", list_or_all(cpus))
            }
            Setting::HugePages { size, node, count } => {
                let folder = pages_folder(node.as_ref());
                format!("echo {count} > {folder}/hugepages-{}kB/nr_hugepages", size >> 10)
            }
            Setting::ThreadedNapi { device, on } => {
                format!("echo {} > /sys/class/net/{device}/threaded", u8::from(*on))
            }
            Setting::Dsa { part, attribute, value } => set_dsa(part, attribute, value),
            Setting::TapFlags { device, .. } => {
                format!("# ioctl(TUNSETIFF) on {device} with{}", self.pairs('='))
            }
            Setting::Loan { device, beside: Some(other) } => {
                format!("ip link set dev {device} netns lent-{other}")
            }
            Setting::Loan { device, beside: None } => {
                format!(
                    "ip netns add lent-{device} && ip link set dev {device} netns lent-{device}"
                )
            }
        }
    }

    /// Returns what is set, without the value: `mtu eth0`.
    pub fn subject(&self) -> String {
        match self {
            Setting::Sysctl { name, .. } => name.to_string(),
            Setting::Feature { device, feature, .. } => format!("feature {device} {feature}"),
            Setting::Flow { .. } => self.to_string(),
            Setting::IrqAffinity { irq, .. } => format!("CPUs of interrupt {irq}"),
            Setting::Governor { .. } => "governor".into(),
            Setting::IdleStates { .. } => "idle states".into(),
            Setting::HugePages { size, node, .. } => {
                let of_node = node.as_ref().map(|node| format!(" of node {node}"));
                let of_node = of_node.unwrap_or_default();
                format!("huge pages of {}{of_node}", unit::bytes(*size))
            }
            Setting::Dsa { part, attribute, .. } => format!("{attribute} of {part}"),
            _ => joined(self.to_string().split(' ').take(2), " "),
        }
    }

    /// Returns what is wrong with the value, or `None`. Names were checked before.
    pub(super) fn flaw(&self) -> Option<String> {
        const LEAST_MTU: u32 = 1280;
        match self {
            Setting::Sysctl { value, .. } => names::value_flaw(value),
            Setting::Rings { .. }
            | Setting::Channels { .. }
            | Setting::Coalescing { .. }
            | Setting::Napi { .. }
            | Setting::PacketLimits { .. }
            | Setting::TapFlags { .. } => self.parts().is_empty().then(|| "it sets nothing".into()),
            Setting::Spread { queues: 0, .. } => Some("flows must go to at least one queue".into()),
            Setting::Flow { rule, .. } => rule.flaw(),
            Setting::Mtu { bytes: ..LEAST_MTU, .. } => Some(format!(
                "below {LEAST_MTU} bytes the kernel removes IPv6 and its addresses from the device"
            )),
            Setting::IrqAffinity { cpus, .. } if cpus.is_empty() => {
                Some("an interrupt needs a CPU".into())
            }
            Setting::Governor { cpus: Some(cpus), .. }
            | Setting::IdleStates { cpus: Some(cpus), .. }
                if cpus.is_empty() =>
            {
                Some("it names no CPU".into())
            }
            Setting::HugePages { size, .. } if !size.is_power_of_two() || *size < 4096 => {
                Some(format!("there are no pages of {size} bytes"))
            }
            Setting::HugePages { node: Some(NumaNode::Of(device)), .. }
                if device.as_str().parse::<u32>().is_ok() =>
            {
                Some(format!("as a node, {device} is a number, and no device"))
            }
            Setting::Dsa { part, attribute, value } => {
                dsa_flaw(part.as_str(), attribute.as_str(), value.as_str())
            }
            _ => None,
        }
    }

    /// Returns the network device that the setting names; `None` if it names none, as with a
    /// sysctl.
    pub fn device(&self) -> Option<&DeviceName> {
        device_of!(self)
    }

    /// Returns the same setting for another device. In a sysctl that belongs to a device, the name
    /// of the device is replaced.
    pub fn on_device(mut self, device: &DeviceName) -> Setting {
        if let Setting::Sysctl { name, .. } = &mut self {
            *name = name.on_device(device);
        } else if let Some(name) = device_of!(&mut self) {
            *name = device.clone();
        }
        self
    }

    /// Returns name and value of each part that is set, in the order in which they are written.
    /// Empty for settings without parts.
    pub fn parts(&self) -> Vec<(&'static str, String)> {
        match self {
            Setting::Rings { rings, .. } => rings.parts(),
            Setting::Channels { channels, .. } => channels.parts(),
            Setting::Coalescing { coalescing, .. } => coalescing.parts(),
            Setting::Napi { timing, .. } => timing.parts(),
            Setting::PacketLimits { limits, .. } => limits.parts(),
            Setting::TapFlags { flags, .. } => flags.parts(),
            _ => Vec::new(),
        }
    }

    /// Formats those parts as words, each after a blank.
    fn pairs(&self, between: char) -> String {
        let parts = self.parts().into_iter();
        parts.map(|(name, text)| format!(" {name}{between}{text}")).collect()
    }
}

/// As the user types it.
impl fmt::Display for NumaNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NumaNode::Number(number) => write!(f, "{number}"),
            NumaNode::Of(device) => write!(f, "{device}"),
        }
    }
}

fn pages_folder(node: Option<&NumaNode>) -> String {
    let node = match node {
        None => return "/sys/kernel/mm/hugepages".to_owned(),
        Some(NumaNode::Number(node)) => node.to_string(),
        Some(NumaNode::Of(device)) => format!("$(cat /sys/class/net/{device}/device/numa_node)"),
    };
    format!("/sys/devices/system/node/node{node}/hugepages")
}

fn set_spread(device: &DeviceName, queues: u32, start: u32) -> String {
    let start = if start == 0 { String::new() } else { format!(" start {start}") };
    format!("ethtool -X {device}{start} equal {queues}")
}

impl FlowRule {
    /// True if the rule matches packets from `from` to `to`.
    pub fn selects(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let is = |wanted: Option<IpAddr>, is: SocketAddr| wanted.is_none_or(|ip| ip == is.ip());
        let port =
            |wanted: Option<u16>, is: SocketAddr| wanted.is_none_or(|port| port == is.port());
        self.ipv6 == to.is_ipv6()
            && is(self.source, from)
            && is(self.destination, to)
            && port(self.source_port, from)
            && port(self.destination_port, to)
    }

    fn parse(words: &mut Words) -> Result<Self, Fault> {
        let (source, destination) = (words.address("src")?, words.address("dst")?);
        let ipv6 = words.take_plain("ipv6");
        Ok(FlowRule {
            ipv6: ipv6 || source.or(destination).is_some_and(|address| address.is_ipv6()),
            source,
            destination,
            source_port: words.port("src-port")?,
            destination_port: words.port("dst-port")?,
            queue: words.required("queue")?,
        })
    }

    /// Returns the match fields of the rule: name as typed, option of ethtool(8), value.
    fn selectors(&self) -> Vec<(&'static str, &'static str, String)> {
        let all = [
            ("src", "src-ip", self.source.map(|ip| ip.to_string())),
            ("dst", "dst-ip", self.destination.map(|ip| ip.to_string())),
            ("src-port", "src-port", self.source_port.map(|port| port.to_string())),
            ("dst-port", "dst-port", self.destination_port.map(|port| port.to_string())),
        ];
        all.into_iter().filter_map(|(name, option, value)| Some((name, option, value?))).collect()
    }

    fn command(&self, device: &DeviceName) -> String {
        let kind = if self.ipv6 { "tcp6" } else { "tcp4" };
        let option = |(_, option, value): (_, &str, String)| format!(" {option} {value}");
        let options: String = self.selectors().into_iter().map(option).collect();
        format!("ethtool -N {device} flow-type {kind}{options} action {}", self.queue)
    }

    fn flaw(&self) -> Option<String> {
        let mut addresses = self.source.iter().chain(&self.destination);
        if addresses.any(|address| address.is_ipv6() != self.ipv6) {
            return Some("its addresses are not of one family".into());
        }
        let is_any = self.selectors().is_empty();
        is_any.then(|| "it would steer every flow; give a port or an address".into())
    }
}

/// As the user types it, with a blank before each word.
impl fmt::Display for FlowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.selectors().iter().try_for_each(|(name, _, value)| write!(f, " {name}={value}"))?;
        // An address implies its family.
        let is_named = self.ipv6 && self.source.or(self.destination).is_none();
        write!(f, "{} queue={}", if is_named { " ipv6" } else { "" }, self.queue)
    }
}

fn steer(device: &DeviceName, kind: &str, queue: Option<u32>, cpus: &Cpus) -> String {
    let direction = if kind == "rps" { "rx" } else { "tx" };
    let (queue, into) = match queue {
        Some(queue) => (queue.to_string(), ">"),
        None => ("*".into(), "| tee"),
    };
    let file = format!("/sys/class/net/{device}/queues/{direction}-{queue}/{kind}_cpus");
    format!("echo {} {into} {file}", cpus.mask())
}

fn set_napi(device: &DeviceName, parts: Vec<(&str, String)>) -> String {
    let part = |(name, value): (&str, String)| format!("\"{name}\": {value}");
    let parts = joined(parts.into_iter().map(part), ", ");
    format!("ynl --family netdev --do napi-set --json '{{\"id\": ID, {parts}}}' # each of {device}")
}

fn set_dsa(part: &Word, attribute: &Word, value: &Word) -> String {
    if attribute.as_str() != "state" {
        return format!("echo {value} > /sys/bus/dsa/devices/{part}/{attribute}");
    }
    let driver = if part.as_str().starts_with("wq") { "user" } else { "idxd" };
    let file = if value.as_str() == "enabled" { "bind" } else { "unbind" };
    format!("echo {part} > /sys/bus/dsa/drivers/{driver}/{file}")
}

/// Attributes that can be set for each kind of part of a DSA device. `state` is `enabled` while the
/// part is bound to its driver; nothing else can be set meanwhile.
const DSA_ATTRIBUTES: [(&str, &str); 3] = [
    ("dsa", "state"),
    ("engine", "group_id"),
    (
        "wq",
        "state group_id mode size priority type name driver_name max_batch_size \
         max_transfer_size block_on_fault threshold",
    ),
];

/// Returns what is wrong with a setting of DSA. No accepted name leads out of its folder in sysfs.
fn dsa_flaw(part: &str, attribute: &str, value: &str) -> Option<String> {
    let number = part.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let kind = part.strip_suffix(number).unwrap_or_default();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbered = match number.split_once('.') {
        Some((device, of_device)) => kind != "dsa" && digits(device) && digits(of_device),
        None => kind == "dsa" && digits(number),
    };
    let known = DSA_ATTRIBUTES.iter().find(|(name, _)| *name == kind).filter(|_| numbered);
    let Some((_, attributes)) = known else {
        return Some(format!("{part} is not dsaD, engineD.N or wqD.N"));
    };
    if !attributes.split(' ').any(|known| known == attribute) {
        return Some(format!("of {part} can be set: {}", attributes.replace(' ', ", ")));
    }
    let unknown_state = attribute == "state" && !matches!(value, "enabled" | "disabled");
    unknown_state.then(|| "a state is enabled or disabled".into())
}

fn list_or_all(cpus: &Option<Cpus>) -> String {
    cpus.as_ref().map_or("all".into(), Cpus::to_string)
}
