//! Settings as users write them, one line each, and their parser.

use super::names::tame;
use super::{
    Channels, Coalescing, Cpus, DeviceName, FlowRule, IdleChoice, PacketLimits, Rings, Setting,
    SysctlName, TapFlags, Word, flag,
};
use crate::{Fault, FaultKind, unit};
use std::fmt;
use std::str::FromStr;

/// How each kind is written, in the order in which help texts show them.
pub const FORMS: &[(&str, &str)] = &[
    ("sysctl NAME=VALUE", "a kernel parameter: sysctl net.core.rmem_max=67108864"),
    ("feature DEVICE NAME=on|off", "an offload feature: feature eth0 rx-gro=off"),
    (
        "rings DEVICE [rx=N] [tx=N] [rx-buf-len=BYTES] [tcp-data-split=on|off|auto] [hds-thresh=BYTES]",
        "ring sizes and header split: rings eth0 rx=4096 tcp-data-split=on hds-thresh=0",
    ),
    ("channels DEVICE [rx=N] [tx=N] [combined=N]", "numbers of queues: channels eth0 combined=8"),
    (
        "coalescing DEVICE [rx-usecs=N] [rx-frames=N] [tx-usecs=N] [tx-frames=N] \
         [adaptive-rx=on|off] [adaptive-tx=on|off]",
        "when a device interrupts: coalescing eth0 adaptive-rx=off rx-usecs=30",
    ),
    ("spread DEVICE queues=N", "receive flows over the first N queues only: spread eth0 queues=7"),
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
    ("hugepages SIZE [node=N] COUNT", "huge pages to reserve: hugepages 2M 512"),
    ("threaded-napi DEVICE on|off", "polling in kernel threads: threaded-napi eth0 on"),
    ("dsa PART ATTRIBUTE=VALUE", "an engine, a work queue or a device of DSA: dsa wq0.0 size=128"),
    (
        "tap DEVICE [vnet-hdr=on|off] [napi=on|off] [backpressure=on|off]",
        "flags of a tap device: tap tap0 backpressure=on",
    ),
];

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |cpus: &Option<Cpus>| cpus.as_ref().map_or("all".into(), Cpus::to_string);
        match self {
            Setting::Sysctl { name, value } => write!(f, "sysctl {name}={value}"),
            Setting::Feature { device, feature, on } => {
                write!(f, "feature {device} {feature}={}", flag(*on))
            }
            Setting::Rings { device, .. } => self.write_parts(f, "rings", device),
            Setting::Channels { device, .. } => self.write_parts(f, "channels", device),
            Setting::Coalescing { device, .. } => self.write_parts(f, "coalescing", device),
            Setting::PacketLimits { device, .. } => self.write_parts(f, "packet-limits", device),
            Setting::TapFlags { device, .. } => self.write_parts(f, "tap", device),
            Setting::Spread { device, queues } => write!(f, "spread {device} queues={queues}"),
            Setting::Flow { device, rule } => {
                write!(f, "flow {device}")?;
                pair(f, "src", rule.source)?;
                pair(f, "dst", rule.destination)?;
                pair(f, "src-port", rule.source_port)?;
                pair(f, "dst-port", rule.destination_port)?;
                let named = rule.source.is_some() || rule.destination.is_some();
                if rule.ipv6 && !named {
                    f.write_str(" ipv6")?;
                }
                pair(f, "queue", Some(rule.queue))
            }
            Setting::Mtu { device, bytes } => write!(f, "mtu {device} {bytes}"),
            Setting::Qdisc { device, discipline } => write!(f, "qdisc {device} {discipline}"),
            Setting::IrqAffinity { irq, cpus } => write!(f, "irq {irq} {cpus}"),
            Setting::Rps { device, queue, cpus } => {
                write!(f, "rps {device}{} {cpus}", queue.map_or(String::new(), |q| format!(" {q}")))
            }
            Setting::Xps { device, queue, cpus } => {
                write!(f, "xps {device}{} {cpus}", queue.map_or(String::new(), |q| format!(" {q}")))
            }
            Setting::Governor { cpus, governor } => write!(f, "governor {} {governor}", all(cpus)),
            Setting::IdleStates { cpus, disable } => match disable {
                IdleChoice::SlowerThan(us) => write!(f, "idle {} slower-than={us}us", all(cpus)),
                IdleChoice::Named(name) => write!(f, "idle {} without={name}", all(cpus)),
            },
            Setting::HugePages { size, node, count } => {
                write!(f, "hugepages {}", unit::bytes(*size))?;
                pair(f, "node", *node)?;
                write!(f, " {count}")
            }
            Setting::ThreadedNapi { device, on } => {
                write!(f, "threaded-napi {device} {}", flag(*on))
            }
            Setting::Dsa { part, attribute, value } => write!(f, "dsa {part} {attribute}={value}"),
            Setting::Loan { device } => write!(f, "loan {device}"),
        }
    }
}

impl Setting {
    fn write_parts(&self, f: &mut fmt::Formatter, kind: &str, device: &DeviceName) -> fmt::Result {
        write!(f, "{kind} {device}")?;
        self.parts().into_iter().try_for_each(|(name, value)| pair(f, name, Some(value)))
    }
}

impl FromStr for Setting {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let (kind, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let form = FORMS.iter().find(|(form, _)| form.split(' ').next() == Some(kind));
        let Some((form, _)) = form else {
            let kinds: Vec<&str> = FORMS.iter().filter_map(|(f, _)| f.split(' ').next()).collect();
            return Err(wrong(format!("there is no setting '{}'", tame(kind)))
                .remedy(format!("choose from {}", kinds.join(", "))));
        };
        let setting = parse(kind, rest.trim()).map_err(|fault| {
            let remedy = fault.remedy.clone().unwrap_or_else(|| format!("write {form}"));
            fault.context(format!("setting '{}'", tame(text.trim()))).remedy(remedy)
        })?;
        setting.checked()
    }
}

fn parse(kind: &str, rest: &str) -> Result<Setting, Fault> {
    if kind == "sysctl" {
        let (name, value) = rest.split_once('=').ok_or_else(|| wrong("it has no value"))?;
        let value = value.trim().to_owned();
        return Ok(Setting::Sysctl { name: SysctlName::new(name.trim())?, value });
    }
    let mut words = Words::new(rest)?;
    let setting = match kind {
        "governor" => Setting::Governor { cpus: words.cpus_or_all()?, governor: words.word()? },
        "idle" => {
            let cpus = words.cpus_or_all()?;
            let slower = words.take("slower-than").map(|text| {
                let time = unit::parse_duration(text).map_err(wrong)?;
                u32::try_from(time.as_micros()).map_err(|_| wrong(format!("'{text}' is too long")))
            });
            let disable = match (slower.transpose()?, words.take("without")) {
                (Some(us), None) => IdleChoice::SlowerThan(us),
                (None, Some(name)) => IdleChoice::Named(Word::new(name)?),
                _ => return Err(wrong("it does not name any states")),
            };
            Setting::IdleStates { cpus, disable }
        }
        "irq" => {
            let irq = number(words.next("the number of the interrupt")?)?;
            Setting::IrqAffinity { irq, cpus: words.next("the CPUs")?.parse()? }
        }
        "dsa" => {
            let part = Word::new(words.next("the part")?)?;
            let (attribute, value) =
                words.pairs.pop().ok_or_else(|| wrong("it sets no attribute"))?;
            let (attribute, value) = (Word::new(attribute)?, Word::new(value)?);
            Setting::Dsa { part, attribute, value }
        }
        "hugepages" => {
            let size = unit::parse_bytes(words.next("the size of a page")?).map_err(wrong)?;
            let node = words.number("node")?;
            let count = words.next("how many pages")?;
            let count = count.parse().map_err(|_| not_a_number(count))?;
            Setting::HugePages { size, node, count }
        }
        _ => of_device(kind, DeviceName::new(words.next("the device")?)?, &mut words)?,
    };
    words.done()?;
    Ok(setting)
}

fn of_device(kind: &str, device: DeviceName, words: &mut Words) -> Result<Setting, Fault> {
    Ok(match kind {
        "feature" => {
            let (name, on) = words.pairs.pop().ok_or_else(|| wrong("it names no feature"))?;
            Setting::Feature { device, feature: Word::new(name)?, on: parse_flag(on)? }
        }
        "rings" => {
            let split = words.take("tcp-data-split").map(|text| {
                text.parse().map_err(|_| wrong(format!("'{}' is not on, off or auto", tame(text))))
            });
            let rings = Rings {
                rx: words.number("rx")?,
                tx: words.number("tx")?,
                rx_buf_len: words.size("rx-buf-len")?,
                tcp_data_split: split.transpose()?,
                hds_thresh: words.size("hds-thresh")?,
            };
            Setting::Rings { device, rings }
        }
        "channels" => {
            let (rx, tx) = (words.number("rx")?, words.number("tx")?);
            let combined = words.number("combined")?;
            Setting::Channels { device, channels: Channels { rx, tx, combined } }
        }
        "coalescing" => {
            let coalescing = Coalescing {
                rx_usecs: words.number("rx-usecs")?,
                rx_frames: words.number("rx-frames")?,
                tx_usecs: words.number("tx-usecs")?,
                tx_frames: words.number("tx-frames")?,
                adaptive_rx: words.flag("adaptive-rx")?,
                adaptive_tx: words.flag("adaptive-tx")?,
            };
            Setting::Coalescing { device, coalescing }
        }
        "spread" => {
            let queues = words.number("queues")?.ok_or_else(|| wrong("it has no queues=N"))?;
            Setting::Spread { device, queues }
        }
        "flow" => Setting::Flow { device, rule: flow_rule(words)? },
        "mtu" => {
            let text = words.next("the bytes")?;
            let bytes = unit::parse_bytes(text).map_err(wrong)?;
            let bytes = u32::try_from(bytes).map_err(|_| not_a_number(text))?;
            Setting::Mtu { device, bytes }
        }
        "packet-limits" => {
            let limits = PacketLimits {
                gso: words.size("gso")?,
                gro: words.size("gro")?,
                gso_ipv4: words.size("gso-ipv4")?,
                gro_ipv4: words.size("gro-ipv4")?,
            };
            Setting::PacketLimits { device, limits }
        }
        "qdisc" => Setting::Qdisc { device, discipline: words.word()? },
        "rps" | "xps" => {
            let first = words.next("the CPUs")?;
            let (queue, cpus) = match words.plain.pop() {
                Some(second) => (Some(number(first)?), second),
                None => (None, first),
            };
            let cpus = cpus.parse()?;
            match kind {
                "rps" => Setting::Rps { device, queue, cpus },
                _ => Setting::Xps { device, queue, cpus },
            }
        }
        "threaded-napi" => {
            Setting::ThreadedNapi { device, on: parse_flag(words.next("on or off")?)? }
        }
        "tap" => {
            let flags = TapFlags {
                vnet_hdr: words.flag("vnet-hdr")?,
                napi: words.flag("napi")?,
                backpressure: words.flag("backpressure")?,
            };
            Setting::TapFlags { device, flags }
        }
        other => return Err(wrong(format!("there is no setting '{}'", tame(other)))),
    })
}

fn flow_rule(words: &mut Words) -> Result<FlowRule, Fault> {
    let address = |text: Option<&str>| {
        let parse = |text: &str| {
            text.parse::<std::net::IpAddr>()
                .map_err(|_| wrong(format!("'{}' is not an address", tame(text))))
        };
        text.map(parse).transpose()
    };
    let source = address(words.take("src"))?;
    let destination = address(words.take("dst"))?;
    let port = |n: Option<u32>| {
        let fits = |n: u32| u16::try_from(n).map_err(|_| wrong(format!("there is no port {n}")));
        n.map(fits).transpose()
    };
    let ipv6 = words.plain.pop_if(|word| *word == "ipv6").is_some();
    Ok(FlowRule {
        ipv6: ipv6 || source.or(destination).is_some_and(|address| address.is_ipv6()),
        source,
        destination,
        source_port: port(words.number("src-port")?)?,
        destination_port: port(words.number("dst-port")?)?,
        queue: words.number("queue")?.ok_or_else(|| wrong("it has no queue=N"))?,
    })
}

/// The words after the kind: plain ones (last first) and pairs NAME=VALUE.
struct Words<'t> {
    plain: Vec<&'t str>,
    pairs: Vec<(&'t str, &'t str)>,
}

impl<'t> Words<'t> {
    fn new(text: &'t str) -> Result<Self, Fault> {
        let mut words = Words { plain: Vec::new(), pairs: Vec::new() };
        for word in text.split_whitespace() {
            match word.split_once('=') {
                None => words.plain.push(word),
                Some((name, _)) if words.pairs.iter().any(|(known, _)| *known == name) => {
                    return Err(wrong(format!("it contains '{}' twice", tame(name))));
                }
                Some(pair) => words.pairs.push(pair),
            }
        }
        words.plain.reverse();
        Ok(words)
    }

    fn next(&mut self, what: &str) -> Result<&'t str, Fault> {
        self.plain.pop().ok_or_else(|| wrong(format!("it lacks {what}")))
    }

    fn word(&mut self) -> Result<Word, Fault> {
        Word::new(self.next("a name")?)
    }

    fn cpus_or_all(&mut self) -> Result<Option<Cpus>, Fault> {
        match self.next("the CPUs")? {
            "all" => Ok(None),
            list => list.parse().map(Some),
        }
    }

    fn take(&mut self, name: &str) -> Option<&'t str> {
        let at = self.pairs.iter().position(|(known, _)| *known == name)?;
        Some(self.pairs.remove(at).1)
    }

    fn number(&mut self, name: &str) -> Result<Option<u32>, Fault> {
        self.take(name).map(number).transpose()
    }

    fn size(&mut self, name: &str) -> Result<Option<u32>, Fault> {
        let parse = |text: &str| {
            let bytes = unit::parse_bytes(text).map_err(wrong)?;
            u32::try_from(bytes).map_err(|_| wrong(format!("'{}' is too large", tame(text))))
        };
        self.take(name).map(parse).transpose()
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>, Fault> {
        self.take(name).map(parse_flag).transpose()
    }

    /// Everything must have been understood.
    fn done(self) -> Result<(), Fault> {
        let rest = self.plain.first().or(self.pairs.first().map(|(name, _)| name));
        rest.map_or(Ok(()), |word| Err(wrong(format!("'{}' is unexpected", tame(word)))))
    }
}

fn pair(f: &mut fmt::Formatter<'_>, name: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name}={value}"))
}

fn parse_flag(text: &str) -> Result<bool, Fault> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(wrong(format!("'{}' is not on or off", tame(other)))),
    }
}

fn number(text: &str) -> Result<u32, Fault> {
    text.parse().map_err(|_| not_a_number(text))
}

fn not_a_number(text: &str) -> Fault {
    wrong(format!("'{}' is not a whole number that fits", tame(text)))
}

fn wrong(message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Usage, message)
}
