//! The table of settings: how each kind is typed and printed, the equivalent command of the
//! usual tools, and what is wrong with it. A new kind of setting is a variant of [`Setting`],
//! an entry here, and one in the crate that reads and changes settings.

use super::words::{Words, flag, not_a_number, number, wrong};
use super::{
    Channels, Coalescing, Cpus, DeviceName, FlowRule, IdleChoice, PacketLimits, Rings, Setting,
    SysctlName, TapFlags, Word, names,
};
use crate::{Fault, unit};
use std::fmt::{Display, Write};

/// A kind of setting.
pub(super) struct SettingKind {
    /// How it is written; its first word is the name of the kind. Empty if only a testbed
    /// requests it.
    pub form: &'static str,
    /// What it is, and an example after the last colon.
    pub example: &'static str,
    pub parse: fn(&mut Words) -> Result<Setting, Fault>,
    /// `None` if the setting is of another kind.
    describe: fn(&Setting) -> Option<Description<'_>>,
}

/// What a setting alone shows, without the host that it is for.
pub(super) struct Description<'s> {
    /// The network device it is for; `None` for those of CPUs, memory and sysctls.
    pub device: Option<&'s DeviceName>,
    /// The setting as it is typed.
    pub line: String,
    /// What it is about, without its value.
    pub subject: String,
    /// The command of the usual tools. It is printed and never run.
    pub command: String,
    /// Name and value of each part that is set, if it has several parts.
    pub parts: Vec<(&'static str, String)>,
    /// What is wrong with it; `None` if nothing is. Names were checked before.
    pub flaw: Option<String>,
}

/// Form and example of each kind that a person may type.
pub fn setting_forms() -> impl Iterator<Item = (&'static str, &'static str)> {
    typed_kinds().map(|kind| (kind.form, kind.example))
}

pub(super) fn typed_kinds() -> impl Iterator<Item = &'static SettingKind> {
    KINDS.iter().filter(|kind| !kind.form.is_empty())
}

/// # Panics
///
/// If the kind has no entry in the table.
pub(super) fn describe(setting: &Setting) -> Description<'_> {
    let description = KINDS.iter().find_map(|kind| (kind.describe)(setting));
    description.expect("each kind of setting has its entry")
}

impl SettingKind {
    /// The first word of each setting of this kind.
    pub(super) fn name(&self) -> &'static str {
        self.form.split(' ').next().unwrap_or_default()
    }
}

impl<'s> Description<'s> {
    /// The subject is what the first two words of the line name.
    fn new(device: Option<&'s DeviceName>, line: String, command: String) -> Self {
        let subject = line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        Description { device, line, subject, command, parts: Vec::new(), flaw: None }
    }

    fn of_device(device: &'s DeviceName, line: String, command: String) -> Self {
        Self::new(Some(device), line, command)
    }

    /// A setting of several parts. The command takes them as words `name value`.
    fn of_parts(name: &str, device: &'s DeviceName, value: &impl Parts, command: &str) -> Self {
        let parts = value.parts();
        let mut line = format!("{name} {device}");
        let mut command = format!("{command} {device}");
        for (name, text) in &parts {
            append(&mut line, name, '=', Some(text));
            append(&mut command, name, ' ', Some(text));
        }
        let flaw = parts.is_empty().then(|| "it sets nothing".into());
        Description { parts, flaw, ..Self::of_device(device, line, command) }
    }

    fn with_subject(self, subject: impl Into<String>) -> Self {
        Description { subject: subject.into(), ..self }
    }

    fn with_flaw(self, flaw: Option<String>) -> Self {
        Description { flaw, ..self }
    }
}

/// Every kind, in the order in which help texts show them.
static KINDS: &[SettingKind] = &[
    SettingKind {
        form: "sysctl NAME=VALUE",
        example: "a kernel parameter: sysctl net.core.rmem_max=67108864",
        parse: |words| {
            let (name, value) =
                words.rest().split_once('=').ok_or_else(|| wrong("it has no value"))?;
            let value = value.trim().to_owned();
            Ok(Setting::Sysctl { name: SysctlName::new(name.trim())?, value })
        },
        describe: |setting| {
            let Setting::Sysctl { name, value } = setting else { return None };
            let command = format!("sysctl -w {name}='{value}'");
            let description = Description::new(None, format!("sysctl {name}={value}"), command);
            Some(description.with_subject(name.as_str()).with_flaw(names::value_flaw(value)))
        },
    },
    SettingKind {
        form: "feature DEVICE NAME=on|off",
        example: "an offload feature: feature eth0 rx-gro=off",
        parse: |words| {
            let device = words.device()?;
            let (name, on) = words.last_pair().ok_or_else(|| wrong("it names no feature"))?;
            Ok(Setting::Feature { device, feature: Word::new(name)?, on: flag(on)? })
        },
        describe: |setting| {
            let Setting::Feature { device, feature, on } = setting else { return None };
            let on = on_or_off(*on);
            let line = format!("feature {device} {feature}={on}");
            let command = format!("ethtool -K {device} {feature} {on}");
            let subject = format!("feature {device} {feature}");
            Some(Description::of_device(device, line, command).with_subject(subject))
        },
    },
    SettingKind {
        form: "rings DEVICE [rx=N] [tx=N] [rx-buf-len=BYTES] [tcp-data-split=on|off|auto] \
               [hds-thresh=BYTES]",
        example: "ring sizes and header split: rings eth0 rx=4096 tcp-data-split=on hds-thresh=0",
        parse: |words| Ok(Setting::Rings { device: words.device()?, rings: words.parts()? }),
        describe: |setting| {
            let Setting::Rings { device, rings } = setting else { return None };
            Some(Description::of_parts("rings", device, rings, "ethtool -G"))
        },
    },
    SettingKind {
        form: "channels DEVICE [rx=N] [tx=N] [combined=N]",
        example: "numbers of queues: channels eth0 combined=8",
        parse: |words| Ok(Setting::Channels { device: words.device()?, channels: words.parts()? }),
        describe: |setting| {
            let Setting::Channels { device, channels } = setting else { return None };
            Some(Description::of_parts("channels", device, channels, "ethtool -L"))
        },
    },
    SettingKind {
        form: "coalescing DEVICE [rx-usecs=N] [rx-frames=N] [tx-usecs=N] [tx-frames=N] \
               [adaptive-rx=on|off] [adaptive-tx=on|off]",
        example: "when a device interrupts: coalescing eth0 adaptive-rx=off rx-usecs=30",
        parse: |words| {
            Ok(Setting::Coalescing { device: words.device()?, coalescing: words.parts()? })
        },
        describe: |setting| {
            let Setting::Coalescing { device, coalescing } = setting else { return None };
            Some(Description::of_parts("coalescing", device, coalescing, "ethtool -C"))
        },
    },
    SettingKind {
        form: "spread DEVICE queues=N",
        example: "receive flows over the first N queues only: spread eth0 queues=7",
        parse: |words| {
            let device = words.device()?;
            let queues = words.number("queues")?.ok_or_else(|| wrong("it has no queues=N"))?;
            Ok(Setting::Spread { device, queues })
        },
        describe: |setting| {
            let Setting::Spread { device, queues } = setting else { return None };
            let line = format!("spread {device} queues={queues}");
            let command = format!("ethtool -X {device} equal {queues}");
            let flaw = (*queues == 0).then(|| "flows must go to at least one queue".into());
            Some(Description::of_device(device, line, command).with_flaw(flaw))
        },
    },
    SettingKind {
        form: "flow DEVICE [src=IP] [dst=IP] [src-port=N] [dst-port=N] [ipv6] queue=N",
        example: "TCP flows to one queue: flow eth0 dst-port=5201 queue=7",
        parse: |words| Ok(Setting::Flow { device: words.device()?, rule: FlowRule::parse(words)? }),
        describe: |setting| {
            let Setting::Flow { device, rule } = setting else { return None };
            Some(rule.describe(device))
        },
    },
    SettingKind {
        form: "mtu DEVICE BYTES",
        example: "largest packet: mtu eth0 4148",
        parse: |words| {
            let device = words.device()?;
            let text = words.next("the bytes")?;
            let bytes = unit::parse_bytes(text).map_err(wrong)?;
            let bytes = u32::try_from(bytes).map_err(|_| not_a_number(text))?;
            Ok(Setting::Mtu { device, bytes })
        },
        describe: |setting| {
            const LEAST: u32 = 1280;
            let Setting::Mtu { device, bytes } = setting else { return None };
            let command = format!("ip link set dev {device} mtu {bytes}");
            let flaw = (*bytes < LEAST).then(|| {
                format!(
                    "below {LEAST} bytes the kernel removes IPv6 and its addresses from the device"
                )
            });
            let line = format!("mtu {device} {bytes}");
            Some(Description::of_device(device, line, command).with_flaw(flaw))
        },
    },
    SettingKind {
        form: "packet-limits DEVICE [gso=BYTES] [gro=BYTES] [gso-ipv4=BYTES] [gro-ipv4=BYTES]",
        example: "largest packets of offloads (BIG TCP): packet-limits eth0 gro-ipv4=185000",
        parse: |words| {
            Ok(Setting::PacketLimits { device: words.device()?, limits: words.parts()? })
        },
        describe: |setting| {
            let Setting::PacketLimits { device, limits } = setting else { return None };
            let option = |(name, bytes): (&str, String)| {
                format!(" {}_max_size {bytes}", name.replace('-', "_"))
            };
            let options: String = limits.parts().into_iter().map(option).collect();
            let command = format!("ip link set dev {device}{options}");
            Some(Description {
                command,
                ..Description::of_parts("packet-limits", device, limits, "")
            })
        },
    },
    SettingKind {
        form: "qdisc DEVICE NAME",
        example: "the root queueing discipline: qdisc eth0 fq",
        parse: |words| Ok(Setting::Qdisc { device: words.device()?, discipline: words.word()? }),
        describe: |setting| {
            let Setting::Qdisc { device, discipline } = setting else { return None };
            let command = format!("tc qdisc replace dev {device} root {discipline}");
            Some(Description::of_device(device, format!("qdisc {device} {discipline}"), command))
        },
    },
    SettingKind {
        form: "irq NUMBER CPUS",
        example: "the CPUs of an interrupt: irq 45 2-3",
        parse: |words| {
            let irq = number(words.next("the number of the interrupt")?)?;
            Ok(Setting::IrqAffinity { irq, cpus: words.next("the CPUs")?.parse()? })
        },
        describe: |setting| {
            let Setting::IrqAffinity { irq, cpus } = setting else { return None };
            let command = format!("echo {cpus} > /proc/irq/{irq}/smp_affinity_list");
            let flaw = cpus.is_empty().then(|| "an interrupt needs a CPU".into());
            let description = Description::new(None, format!("irq {irq} {cpus}"), command);
            Some(description.with_subject(format!("CPUs of interrupt {irq}")).with_flaw(flaw))
        },
    },
    SettingKind {
        form: "rps DEVICE [QUEUE] CPUS",
        example: "the CPUs that received packets are handed to: rps eth0 0 1",
        parse: |words| {
            let (device, (queue, cpus)) = (words.device()?, words.queue_and_cpus()?);
            Ok(Setting::Rps { device, queue, cpus })
        },
        describe: |setting| {
            let Setting::Rps { device, queue, cpus } = setting else { return None };
            Some(describe_steering("rps", "rx", device, *queue, cpus))
        },
    },
    SettingKind {
        form: "xps DEVICE [QUEUE] CPUS",
        example: "the CPUs that send by a queue: xps eth0 3 3",
        parse: |words| {
            let (device, (queue, cpus)) = (words.device()?, words.queue_and_cpus()?);
            Ok(Setting::Xps { device, queue, cpus })
        },
        describe: |setting| {
            let Setting::Xps { device, queue, cpus } = setting else { return None };
            Some(describe_steering("xps", "tx", device, *queue, cpus))
        },
    },
    SettingKind {
        form: "governor CPUS|all NAME",
        example: "clock governor: governor all performance",
        parse: |words| {
            Ok(Setting::Governor { cpus: words.cpus_or_all()?, governor: words.word()? })
        },
        describe: |setting| {
            let Setting::Governor { cpus, governor } = setting else { return None };
            let list = list_or_all(cpus);
            let command = format!("cpupower -c {list} frequency-set -g {governor}");
            let description =
                Description::new(None, format!("governor {list} {governor}"), command);
            Some(description.with_subject("governor").with_flaw(no_cpu(cpus)))
        },
    },
    SettingKind {
        form: "idle CPUS|all slower-than=TIME | idle CPUS|all without=NAME",
        example: "idle states to disable: idle all slower-than=10us",
        parse: |words| {
            let cpus = words.cpus_or_all()?;
            let disable = match (words.microseconds("slower-than")?, words.take("without")) {
                (Some(us), None) => IdleChoice::SlowerThan(us),
                (None, Some(name)) => IdleChoice::Named(Word::new(name)?),
                _ => return Err(wrong("it does not name any states")),
            };
            Ok(Setting::IdleStates { cpus, disable })
        },
        describe: |setting| {
            let Setting::IdleStates { cpus, disable } = setting else { return None };
            let list = list_or_all(cpus);
            let (choice, option) = match disable {
                // cpupower disables from its argument on, we above it.
                IdleChoice::SlowerThan(us) => {
                    (format!("slower-than={us}us"), format!("-D {}", us.saturating_add(1)))
                }
                IdleChoice::Named(name) => {
                    (format!("without={name}"), format!("-d STATE  # the one called {name}"))
                }
            };
            let command = format!("cpupower -c {list} idle-set {option}");
            let description = Description::new(None, format!("idle {list} {choice}"), command);
            Some(description.with_subject("idle states").with_flaw(no_cpu(cpus)))
        },
    },
    SettingKind {
        form: "hugepages SIZE [node=N] COUNT",
        example: "huge pages to reserve: hugepages 2M 512",
        parse: |words| {
            let size = unit::parse_bytes(words.next("the size of a page")?).map_err(wrong)?;
            let node = words.number("node")?;
            let count = words.next("how many pages")?;
            let count = count.parse().map_err(|_| not_a_number(count))?;
            Ok(Setting::HugePages { size, node, count })
        },
        describe: |setting| {
            let Setting::HugePages { size, node, count } = setting else { return None };
            let bytes = unit::bytes(*size);
            let mut line = format!("hugepages {bytes}");
            append(&mut line, "node", '=', *node);
            let (folder, of_node) = match node {
                None => ("/sys/kernel/mm/hugepages".to_owned(), String::new()),
                Some(node) => (
                    format!("/sys/devices/system/node/node{node}/hugepages"),
                    format!(" of node {node}"),
                ),
            };
            let file = format!("{folder}/hugepages-{}kB/nr_hugepages", size >> 10);
            let command = format!("echo {count} > {file}");
            let flaw = (!size.is_power_of_two() || *size < 4096)
                .then(|| format!("there are no pages of {size} bytes"));
            let description = Description::new(None, format!("{line} {count}"), command);
            Some(
                description.with_subject(format!("huge pages of {bytes}{of_node}")).with_flaw(flaw),
            )
        },
    },
    SettingKind {
        form: "threaded-napi DEVICE on|off",
        example: "polling in kernel threads: threaded-napi eth0 on",
        parse: |words| {
            let (device, on) = (words.device()?, flag(words.next("on or off")?)?);
            Ok(Setting::ThreadedNapi { device, on })
        },
        describe: |setting| {
            let Setting::ThreadedNapi { device, on } = setting else { return None };
            let line = format!("threaded-napi {device} {}", on_or_off(*on));
            let command = format!("echo {} > /sys/class/net/{device}/threaded", u8::from(*on));
            Some(Description::of_device(device, line, command))
        },
    },
    SettingKind {
        form: "dsa PART ATTRIBUTE=VALUE",
        example: "an engine, a work queue or a device of DSA: dsa wq0.0 size=128",
        parse: |words| {
            let part = Word::new(words.next("the part")?)?;
            let (attribute, value) =
                words.last_pair().ok_or_else(|| wrong("it sets no attribute"))?;
            Ok(Setting::Dsa { part, attribute: Word::new(attribute)?, value: Word::new(value)? })
        },
        describe: |setting| {
            let Setting::Dsa { part, attribute, value } = setting else { return None };
            let command = if attribute.as_str() == "state" {
                let driver = if part.as_str().starts_with("wq") { "user" } else { "idxd" };
                let file = if value.as_str() == "enabled" { "bind" } else { "unbind" };
                format!("echo {part} > /sys/bus/dsa/drivers/{driver}/{file}")
            } else {
                format!("echo {value} > /sys/bus/dsa/devices/{part}/{attribute}")
            };
            let line = format!("dsa {part} {attribute}={value}");
            let description = Description::new(None, line, command);
            let flaw = dsa_flaw(part.as_str(), attribute.as_str(), value.as_str());
            Some(description.with_subject(format!("{attribute} of {part}")).with_flaw(flaw))
        },
    },
    SettingKind {
        form: "tap DEVICE [vnet-hdr=on|off] [napi=on|off] [backpressure=on|off]",
        example: "flags of a tap device: tap tap0 backpressure=on",
        parse: |words| Ok(Setting::TapFlags { device: words.device()?, flags: words.parts()? }),
        describe: |setting| {
            let Setting::TapFlags { device, flags } = setting else { return None };
            let description = Description::of_parts("tap", device, flags, "");
            let flags = description.line.splitn(3, ' ').nth(2).unwrap_or_default();
            let command = format!("# ioctl(TUNSETIFF) on {device} with {flags}");
            Some(Description { command, ..description })
        },
    },
    SettingKind {
        form: "",
        example: "",
        parse: |_| Err(wrong("only a testbed requests a loan")),
        describe: |setting| {
            let Setting::Loan { device } = setting else { return None };
            let command = format!(
                "ip netns add lent-{device} && ip link set dev {device} netns lent-{device}"
            );
            Some(Description::of_device(device, format!("loan {device}"), command))
        },
    },
];

const _: () = assert!(
    KINDS.len() == <Setting as strum::EnumCount>::COUNT,
    "each kind of setting has its entry"
);

/// The value of a setting of several parts, each of which may be left alone.
pub(super) trait Parts: Sized {
    fn parse(words: &mut Words) -> Result<Self, Fault>;

    /// Name and value of each part that is set, in the order in which they are written.
    fn parts(&self) -> Vec<(&'static str, String)>;
}

/// How each part is typed and printed: its name, and the reader of its value.
macro_rules! parts {
    (@text flag $value:ident) => { on_or_off($value).to_owned() };
    (@text $read:ident $value:ident) => { $value.to_string() };
    ($($type:ident { $($field:ident: $name:literal $read:ident,)* })*) => {$(
        impl Parts for $type {
            fn parse(words: &mut Words) -> Result<Self, Fault> {
                Ok($type { $($field: words.$read($name)?,)* })
            }

            fn parts(&self) -> Vec<(&'static str, String)> {
                let parts = [$(($name, self.$field.map(|value| parts!(@text $read value))),)*];
                parts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
            }
        }
    )*};
}

parts! {
    Rings {
        rx: "rx" number,
        tx: "tx" number,
        rx_buf_len: "rx-buf-len" size,
        tcp_data_split: "tcp-data-split" split,
        hds_thresh: "hds-thresh" size,
    }
    Channels { rx: "rx" number, tx: "tx" number, combined: "combined" number, }
    Coalescing {
        rx_usecs: "rx-usecs" number,
        rx_frames: "rx-frames" number,
        tx_usecs: "tx-usecs" number,
        tx_frames: "tx-frames" number,
        adaptive_rx: "adaptive-rx" flag,
        adaptive_tx: "adaptive-tx" flag,
    }
    PacketLimits {
        gso: "gso" size,
        gro: "gro" size,
        gso_ipv4: "gso-ipv4" size,
        gro_ipv4: "gro-ipv4" size,
    }
    TapFlags { vnet_hdr: "vnet-hdr" flag, napi: "napi" flag, backpressure: "backpressure" flag, }
}

impl FlowRule {
    fn parse(words: &mut Words) -> Result<Self, Fault> {
        let (source, destination) = (words.address("src")?, words.address("dst")?);
        let ipv6 = words.take_plain("ipv6");
        Ok(FlowRule {
            ipv6: ipv6 || source.or(destination).is_some_and(|address| address.is_ipv6()),
            source,
            destination,
            source_port: words.port("src-port")?,
            destination_port: words.port("dst-port")?,
            queue: words.number("queue")?.ok_or_else(|| wrong("it has no queue=N"))?,
        })
    }

    fn describe<'s>(&self, device: &'s DeviceName) -> Description<'s> {
        let kind = if self.ipv6 { "tcp6" } else { "tcp4" };
        let mut command = format!("ethtool -N {device} flow-type {kind}");
        let mut line = format!("flow {device}");
        let mut both = |name: &str, option: &str, value: Option<&dyn Display>| {
            append(&mut line, name, '=', value);
            append(&mut command, option, ' ', value);
        };
        both("src", "src-ip", self.source.as_ref().map(|ip| ip as _));
        both("dst", "dst-ip", self.destination.as_ref().map(|ip| ip as _));
        both("src-port", "src-port", self.source_port.as_ref().map(|port| port as _));
        both("dst-port", "dst-port", self.destination_port.as_ref().map(|port| port as _));
        // An address shows its family.
        if self.ipv6 && self.source.or(self.destination).is_none() {
            line.push_str(" ipv6");
        }
        append(&mut line, "queue", '=', Some(self.queue));
        append(&mut command, "action", ' ', Some(self.queue));
        let description = Description::of_device(device, line, command);
        let subject = description.line.clone();
        description.with_subject(subject).with_flaw(self.flaw())
    }

    fn flaw(&self) -> Option<String> {
        let addresses = || self.source.iter().chain(&self.destination);
        if addresses().any(|address| address.is_ipv6() != self.ipv6) {
            return Some("its addresses are not of one family".into());
        }
        let any = addresses().next().is_some()
            || self.source_port.is_some()
            || self.destination_port.is_some();
        (!any).then(|| "it would steer every flow; give a port or an address".into())
    }
}

fn describe_steering<'s>(
    kind: &str,
    direction: &str,
    device: &'s DeviceName,
    queue: Option<u32>,
    cpus: &Cpus,
) -> Description<'s> {
    let (number, queue, into) = match queue {
        Some(queue) => (format!(" {queue}"), queue.to_string(), ">"),
        None => (String::new(), "*".into(), "| tee"),
    };
    let file = format!("/sys/class/net/{device}/queues/{direction}-{queue}/{kind}_cpus");
    let line = format!("{kind} {device}{number} {cpus}");
    Description::of_device(device, line, format!("echo {} {into} {file}", cpus.mask()))
}

/// What can be set of each kind of part of a DSA device. `state` is `enabled` while the part
/// is bound to its driver; nothing else can be set meanwhile.
const DSA_ATTRIBUTES: [(&str, &str); 3] = [
    ("dsa", "state"),
    ("engine", "group_id"),
    (
        "wq",
        "state group_id mode size priority type name driver_name max_batch_size \
         max_transfer_size block_on_fault threshold",
    ),
];

/// What is wrong with a setting of DSA. No name leads out of its folders.
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

fn no_cpu(cpus: &Option<Cpus>) -> Option<String> {
    cpus.as_ref().filter(|cpus| cpus.is_empty()).map(|_| "it names no CPU".into())
}

fn list_or_all(cpus: &Option<Cpus>) -> String {
    cpus.as_ref().map_or("all".into(), Cpus::to_string)
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn append(text: &mut String, name: &str, between: char, value: Option<impl Display>) {
    if let Some(value) = value {
        // Writing to a String cannot fail.
        let _ = write!(text, " {name}{between}{value}");
    }
}
