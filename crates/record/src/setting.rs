//! What may be set on a host: a closed set, each with the one thing it changes.
//!
//! A [`Setting`] is data: it says what is set, on what, to what. How the present
//! value is read, written down, changed and restored is `host::settings`'
//! business. Every name in it was checked when it was made, whether typed,
//! read from a file or built by a path: no name leads out of the folder it is for.
//!
//! People write settings as one line each ([`std::str::FromStr`], and what
//! [`std::fmt::Display`] prints): `mtu eth0 4148`, `rings eth0 rx=4096`. The
//! equivalent command of the usual tools is [`Setting::command`].

mod command;
mod dsa;
mod names;
mod outcome;
mod text;

pub use names::{Cpus, DeviceName, SysctlName, Word};
pub use outcome::{Restoration, RestorationRow, SettingRecord, SettingValue, WantedSetting};
pub use text::FORMS as SETTING_FORMS;

use super::{Fault, FaultKind, unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// One thing that is set on a host. All of them are gone after a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Setting {
    /// A kernel parameter below `/proc/sys` (sysctl(8)); see [`SysctlName`] for
    /// those that may be set.
    Sysctl {
        /// Its dotted name.
        name: SysctlName,
        /// Its value: one line; several numbers with blanks between them.
        value: String,
    },
    /// An offload feature of a device (`ethtool -K`).
    Feature {
        /// The device.
        device: DeviceName,
        /// Its name as the kernel has it: `rx-gro`, `tx-tcp-segmentation`.
        feature: Word,
        /// On or off.
        on: bool,
    },
    /// Sizes of a device's rings, and header split (`ethtool -G`).
    Rings {
        /// The device.
        device: DeviceName,
        /// What is set; at least one of them.
        #[serde(flatten)]
        rings: Rings,
    },
    /// Numbers of a device's queues (`ethtool -L`).
    Channels {
        /// The device.
        device: DeviceName,
        /// What is set; at least one of them.
        #[serde(flatten)]
        channels: Channels,
    },
    /// When a device interrupts (`ethtool -C`).
    Coalescing {
        /// The device.
        device: DeviceName,
        /// What is set; at least one of them.
        #[serde(flatten)]
        coalescing: Coalescing,
    },
    /// The table by which a device spreads flows over its receive queues
    /// (`ethtool -X DEVICE equal N`): evenly over the queues 0 to N - 1. Queues
    /// from N on get only what a [`Setting::Flow`] sends there.
    Spread {
        /// The device.
        device: DeviceName,
        /// N, at least 1.
        queues: u32,
    },
    /// A rule that steers TCP flows to one receive queue (`ethtool -N`).
    Flow {
        /// The device.
        device: DeviceName,
        /// Which flows, and where to.
        #[serde(flatten)]
        rule: FlowRule,
    },
    /// The MTU of a device in bytes.
    Mtu {
        /// The device.
        device: DeviceName,
        /// From 1280 on: below that the kernel takes IPv6 off the device, with
        /// addresses that could not be restored.
        bytes: u32,
    },
    /// Largest packets of segmentation and receive offload (`ip link set DEVICE
    /// gso_max_size ...`); above 65536 what is called BIG TCP.
    PacketLimits {
        /// The device.
        device: DeviceName,
        /// What is set; at least one of them.
        #[serde(flatten)]
        limits: PacketLimits,
    },
    /// The root queueing discipline of a device, with its defaults (tc(8)).
    Qdisc {
        /// The device.
        device: DeviceName,
        /// Which one: `fq`, `fq_codel`, `pfifo`, `noqueue`.
        discipline: Word,
    },
    /// The CPUs that an interrupt may be delivered to.
    IrqAffinity {
        /// Its number in `/proc/interrupts`.
        irq: u32,
        /// The CPUs; at least one.
        cpus: Cpus,
    },
    /// The CPUs that packets of a receive queue are handed to
    /// (Documentation/networking/scaling.rst, RPS); none turns it off.
    Rps {
        /// The device.
        device: DeviceName,
        /// The queue; none sets all that the device has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<u32>,
        /// The CPUs.
        cpus: Cpus,
    },
    /// The CPUs that send by a transmit queue (scaling.rst, XPS); none leaves the
    /// choice to a hash.
    Xps {
        /// The device.
        device: DeviceName,
        /// The queue; none sets all that the device has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<u32>,
        /// The CPUs.
        cpus: Cpus,
    },
    /// What chooses the clock of CPUs (Documentation/admin-guide/pm/cpufreq.rst).
    Governor {
        /// The CPUs; none are all that are online.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cpus: Option<Cpus>,
        /// Its name: `performance`, `schedutil`.
        governor: Word,
    },
    /// Idle states that CPUs must not enter (pm/cpuidle.rst).
    IdleStates {
        /// The CPUs; none are all that are online.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cpus: Option<Cpus>,
        /// Which states are taken away.
        disable: IdleChoice,
    },
    /// Huge pages that are reserved
    /// (Documentation/admin-guide/mm/hugetlbpage.rst).
    HugePages {
        /// Bytes of one page: a power of two.
        size: u64,
        /// The NUMA node; none leaves it to the kernel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<u32>,
        /// The number of pages to reserve.
        count: u64,
    },
    /// A device's polling in kernel threads instead of softirqs
    /// (Documentation/networking/napi.rst).
    ThreadedNapi {
        /// The device.
        device: DeviceName,
        /// On or off.
        on: bool,
    },
    /// Flags of a tap device that outlives its programs
    /// (Documentation/networking/tuntap.rst). They are changed through a queue
    /// that is opened for a moment, so a single-queue device must not be in use.
    TapFlags {
        /// The device.
        device: DeviceName,
        /// What is set; at least one of them.
        #[serde(flatten)]
        flags: TapFlags,
    },
    /// An attribute of a part of a DSA device, or whether the part is bound to its driver
    /// (Documentation/ABI/stable/sysfs-driver-dma-idxd).
    Dsa {
        /// The device, an engine or a work queue: `dsa0`, `engine0.1`, `wq0.0`.
        part: Word,
        /// Its file there; `state` is set by binding.
        attribute: Word,
        /// The value it should have.
        value: Word,
    },
    /// A device without address and route that is moved into a network namespace of its own
    /// for the time of a study, and back. Only a testbed requests it.
    Loan {
        /// The device.
        device: DeviceName,
    },
}

/// The feature by which received packets are merged in software.
pub const GRO: &str = "rx-gro";

/// The feature by which the device merges them.
pub const HW_GRO: &str = "rx-gro-hw";

/// What [`Setting::Rings`] sets; none leaves it alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Rings {
    /// Descriptors of each receive ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx: Option<u32>,
    /// Descriptors of each transmit ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx: Option<u32>,
    /// Bytes of each receive buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_buf_len: Option<u32>,
    /// Whether headers go into buffers of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_data_split: Option<Split>,
    /// Packets up to this many bytes are not split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hds_thresh: Option<u32>,
}

/// Header split (`ethtool -g`, "TCP data split").
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Split {
    /// Off.
    Off,
    /// On.
    On,
    /// As the driver likes.
    Auto,
}

/// What [`Setting::Channels`] sets; none leaves it alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Channels {
    /// Queues that only receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx: Option<u32>,
    /// Queues that only send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx: Option<u32>,
    /// Pairs of queues with one interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combined: Option<u32>,
}

/// What [`Setting::Coalescing`] sets; none leaves it alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Coalescing {
    /// Most microseconds between a received packet and its interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_usecs: Option<u32>,
    /// Most received packets before an interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_frames: Option<u32>,
    /// Most microseconds between a sent packet and its interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_usecs: Option<u32>,
    /// Most sent packets before an interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_frames: Option<u32>,
    /// The driver follows the rate of received packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive_rx: Option<bool>,
    /// The driver follows the rate of sent packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive_tx: Option<bool>,
}

/// What [`Setting::PacketLimits`] sets, in bytes; none leaves it alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PacketLimits {
    /// Sent, IPv6. Up to 65536 it sets the one of IPv4, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gso: Option<u32>,
    /// Received, IPv6. Up to 65536 it sets the one of IPv4, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gro: Option<u32>,
    /// Sent, IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gso_ipv4: Option<u32>,
    /// Received, IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gro_ipv4: Option<u32>,
}

/// Flows of TCP and the queue they go to. What is not given may be anything; at
/// least one thing is given, and the addresses are of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FlowRule {
    /// Address that the packets come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Address that they go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpAddr>,
    /// Port that they come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Port that they go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// True: IPv6, which ports alone do not show.
    #[serde(default)]
    pub ipv6: bool,
    /// The receive queue.
    pub queue: u32,
}

/// Which idle states are taken away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IdleChoice {
    /// Those that take longer than this many microseconds to leave.
    SlowerThan(u32),
    /// The one of this name: `C6`.
    Named(Word),
}

/// What [`Setting::TapFlags`] sets; none leaves it alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TapFlags {
    /// Packets carry a `struct virtio_net_hdr` (IFF_VNET_HDR).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnet_hdr: Option<bool>,
    /// The reader polls with NAPI (IFF_NAPI).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi: Option<bool>,
    /// A full ring stops the queue instead of dropping (IFF_BACKPRESSURE,
    /// Linux 7.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backpressure: Option<bool>,
}

impl Setting {
    /// What it is about, without what it is set to: `mtu eth0`.
    pub fn subject(&self) -> String {
        match self {
            Setting::Sysctl { name, .. } => name.to_string(),
            Setting::Feature { device, feature, .. } => format!("feature {device} {feature}"),
            Setting::Governor { .. } => "governor".into(),
            Setting::IdleStates { .. } => "idle states".into(),
            Setting::IrqAffinity { irq, .. } => format!("CPUs of interrupt {irq}"),
            Setting::Flow { .. } => self.to_string(),
            Setting::Dsa { part, attribute, .. } => format!("{attribute} of {part}"),
            Setting::HugePages { size, node, .. } => {
                let node = node.map_or(String::new(), |node| format!(" of node {node}"));
                format!("huge pages of {}{node}", unit::bytes(*size))
            }
            other => {
                let text = other.to_string();
                text.split(' ').take(2).collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// A setting that was built and not typed, checked as if it had been typed:
    /// ranges, and that it sets anything at all.
    pub fn checked(self) -> Result<Setting, Fault> {
        match self.flaw() {
            None => Ok(self),
            Some(flaw) => Err(Fault::new(
                FaultKind::Usage,
                format!("the setting '{self}' makes no sense: {flaw}"),
            )),
        }
    }

    /// What a setting of several parts sets, by name, in the order in which it is written;
    /// what it leaves alone is not among them.
    pub fn parts(&self) -> Vec<(&'static str, String)> {
        let number = |name, value: Option<u32>| Some((name, value?.to_string()));
        let switch = |name, on: Option<bool>| Some((name, flag(on?).to_owned()));
        let parts = match self {
            Setting::Rings { rings: r, .. } => vec![
                number("rx", r.rx),
                number("tx", r.tx),
                number("rx-buf-len", r.rx_buf_len),
                r.tcp_data_split.map(|split| ("tcp-data-split", split.to_string())),
                number("hds-thresh", r.hds_thresh),
            ],
            Setting::Channels { channels: c, .. } => {
                vec![number("rx", c.rx), number("tx", c.tx), number("combined", c.combined)]
            }
            Setting::Coalescing { coalescing: c, .. } => vec![
                number("rx-usecs", c.rx_usecs),
                number("rx-frames", c.rx_frames),
                number("tx-usecs", c.tx_usecs),
                number("tx-frames", c.tx_frames),
                switch("adaptive-rx", c.adaptive_rx),
                switch("adaptive-tx", c.adaptive_tx),
            ],
            Setting::PacketLimits { limits: l, .. } => vec![
                number("gso", l.gso),
                number("gro", l.gro),
                number("gso-ipv4", l.gso_ipv4),
                number("gro-ipv4", l.gro_ipv4),
            ],
            Setting::TapFlags { flags, .. } => vec![
                switch("vnet-hdr", flags.vnet_hdr),
                switch("napi", flags.napi),
                switch("backpressure", flags.backpressure),
            ],
            _ => Vec::new(),
        };
        parts.into_iter().flatten().collect()
    }

    /// The network device it is for; none for those of CPUs, memory and sysctls.
    pub fn device(&self) -> Option<&DeviceName> {
        match self {
            Setting::Feature { device, .. }
            | Setting::Rings { device, .. }
            | Setting::Channels { device, .. }
            | Setting::Coalescing { device, .. }
            | Setting::Spread { device, .. }
            | Setting::Flow { device, .. }
            | Setting::Mtu { device, .. }
            | Setting::PacketLimits { device, .. }
            | Setting::Qdisc { device, .. }
            | Setting::Rps { device, .. }
            | Setting::Xps { device, .. }
            | Setting::ThreadedNapi { device, .. }
            | Setting::TapFlags { device, .. }
            | Setting::Loan { device, .. } => Some(device),
            Setting::Sysctl { .. }
            | Setting::IrqAffinity { .. }
            | Setting::Governor { .. }
            | Setting::IdleStates { .. }
            | Setting::HugePages { .. }
            | Setting::Dsa { .. } => None,
        }
    }

    /// True where it belongs to a network namespace and not to the machine.
    pub fn is_of_namespace(&self) -> bool {
        match self {
            Setting::Sysctl { name, .. } => name.is_of_namespace(),
            other => other.device().is_some(),
        }
    }

    /// True where a testbed requests it, and never a person.
    pub fn is_of_testbed(&self) -> bool {
        matches!(self, Setting::Loan { .. })
    }

    /// Those parts of two values that differ and are worth showing, and which part it is
    /// where it is one of several.
    pub fn differing(
        &self,
        before: &SettingValue,
        after: &SettingValue,
    ) -> (String, SettingValue, SettingValue) {
        // With a device goes everything about it.
        if let (Setting::Loan { .. }, Some(was), Some(is)) =
            (self, before.get(Self::PLACE), after.get(Self::PLACE))
            && was != is
        {
            let place = |text: &str| SettingValue::one(Self::PLACE, text);
            return (String::new(), place(was), place(is));
        }
        before.compared_with(after)
    }

    /// The part of a [`Setting::Loan`] that says where the device is.
    pub const PLACE: &str = "place";

    /// What is wrong with it; none if nothing is. Names were checked before.
    fn flaw(&self) -> Option<String> {
        const LEAST_MTU: u32 = 1280;
        match self {
            Setting::Sysctl { value, .. } => names::value_flaw(value),
            Setting::Rings { .. }
            | Setting::Channels { .. }
            | Setting::Coalescing { .. }
            | Setting::PacketLimits { .. }
            | Setting::TapFlags { .. }
                if self.parts().is_empty() =>
            {
                Some("it sets nothing".into())
            }
            Setting::Spread { queues: 0, .. } => Some("flows must go to at least one queue".into()),
            Setting::Flow { rule, .. } => rule.flaw(),
            Setting::Mtu { bytes, .. } if *bytes < LEAST_MTU => Some(format!(
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
            Setting::Dsa { part, attribute, value } => dsa::flaw(part, attribute, value),
            _ => None,
        }
    }

    /// Whether it names a part of a DSA device that there can be, and what can be set of it.
    pub fn is_of_dsa(&self) -> bool {
        matches!(self, Setting::Dsa { .. }) && self.flaw().is_none()
    }
}

fn flag(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

impl FlowRule {
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

#[cfg(test)]
mod tests;
