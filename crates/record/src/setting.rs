//! The settings of a host: a closed set, in which each changes one thing.
//!
//! A [`Setting`] is data: what is set, on which device or CPU, and the value. Reading, journalling,
//! changing and restoring it is the task of the crate `bytepath-settings`, in the process that runs
//! on the host concerned. Every name in a setting was checked when the setting was created, whether
//! it was typed, read from a file or built by a path: no name leads out of its folder.
//!
//! `kinds` is the table of all of them. People write settings as one line each
//! ([`std::str::FromStr`], and what [`std::fmt::Display`] prints): `mtu eth0 4148`,
//! `rings eth0 rx=4096`. The equivalent command of the usual tools is [`Setting::command`].

mod kinds;
mod names;
mod outcome;
mod parts;
mod words;

pub use kinds::SETTING_FORMS;
pub use names::{Cpus, DeviceName, SysctlName, Word};
pub use outcome::{Restoration, RestorationRow, SettingRecord, SettingValue, WantedSetting};
pub use parts::{Channels, Coalescing, NapiTiming, PacketLimits, Rings, TapFlags};

use super::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use strum::{Display, EnumString};

/// One thing that is set on a host. A reboot undoes each of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::EnumCount)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Setting {
    /// A kernel parameter below `/proc/sys` (sysctl(8)); see [`SysctlName`] for those allowed.
    Sysctl {
        /// Its dotted name.
        name: SysctlName,
        /// Its value: one line, with blanks between several numbers.
        value: String,
    },
    /// An offload feature of a device (`ethtool -K`).
    Feature {
        /// The device.
        device: DeviceName,
        /// Its name in the kernel: `rx-gro`, `tx-tcp-segmentation`.
        feature: Word,
        /// On or off.
        on: bool,
    },
    /// Sizes of a device's rings, and header split (`ethtool -G`).
    Rings {
        /// The device.
        device: DeviceName,
        /// The sizes to set; at least one.
        #[serde(flatten)]
        rings: Rings,
    },
    /// Numbers of a device's queues (`ethtool -L`).
    Channels {
        /// The device.
        device: DeviceName,
        /// The numbers to set; at least one.
        #[serde(flatten)]
        channels: Channels,
    },
    /// When a device interrupts (`ethtool -C`).
    Coalescing {
        /// The device.
        device: DeviceName,
        /// The values to set; at least one.
        #[serde(flatten)]
        coalescing: Coalescing,
    },
    /// When the NAPI instances of a device poll and interrupt (netdev netlink, NAPI_SET,
    /// Linux 6.13; Documentation/networking/napi.rst), the same for all of them.
    Napi {
        /// The device.
        device: DeviceName,
        /// The values to set; at least one.
        #[serde(flatten)]
        timing: NapiTiming,
    },
    /// The table by which a device spreads flows over its receive queues
    /// (`ethtool -X DEVICE start S equal N`): evenly over the queues S to S + N - 1. The
    /// others get only what a [`Setting::Flow`] sends there.
    Spread {
        /// The device.
        device: DeviceName,
        /// N, at least 1.
        queues: u32,
        /// S; 0 if it is not stored.
        #[serde(default, skip_serializing_if = "crate::is_default")]
        start: u32,
    },
    /// A rule that steers TCP flows to one receive queue (`ethtool -N`).
    Flow {
        /// The device.
        device: DeviceName,
        /// Which flows, and their queue.
        #[serde(flatten)]
        rule: FlowRule,
    },
    /// The MTU of a device in bytes.
    Mtu {
        /// The device.
        device: DeviceName,
        /// 1280 at least: below that the kernel removes IPv6 from the device, including addresses
        /// that could not be restored.
        bytes: u32,
    },
    /// Largest packets of segmentation and receive offload (`ip link set DEVICE gso_max_size ...`);
    /// above 65536 this is BIG TCP.
    PacketLimits {
        /// The device.
        device: DeviceName,
        /// The limits to set; at least one.
        #[serde(flatten)]
        limits: PacketLimits,
    },
    /// The root qdisc of a device, with its defaults (tc(8)).
    Qdisc {
        /// The device.
        device: DeviceName,
        /// Which one: `fq`, `fq_codel`, `pfifo`, `noqueue`.
        discipline: Word,
    },
    /// The CPUs to which an interrupt may be delivered.
    IrqAffinity {
        /// Its number in `/proc/interrupts`.
        irq: u32,
        /// The CPUs; at least one.
        cpus: Cpus,
    },
    /// The CPUs to which packets of a receive queue are handed
    /// (Documentation/networking/scaling.rst, RPS); an empty set turns it off.
    Rps {
        /// The device.
        device: DeviceName,
        /// The queue; `None` sets all queues of the device.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<u32>,
        /// The CPUs.
        cpus: Cpus,
    },
    /// The CPUs that use a transmit queue (scaling.rst, XPS); an empty set leaves the choice to a
    /// hash.
    Xps {
        /// The device.
        device: DeviceName,
        /// The queue; `None` sets all queues of the device.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<u32>,
        /// The CPUs.
        cpus: Cpus,
    },
    /// The cpufreq governor of CPUs (Documentation/admin-guide/pm/cpufreq.rst).
    Governor {
        /// The CPUs; `None` means all that are online.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cpus: Option<Cpus>,
        /// Its name: `performance`, `schedutil`.
        governor: Word,
    },
    /// Idle states that CPUs must not enter (pm/cpuidle.rst).
    IdleStates {
        /// The CPUs; `None` means all that are online.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cpus: Option<Cpus>,
        /// The states to disable.
        disable: IdleChoice,
    },
    /// Reserved huge pages (Documentation/admin-guide/mm/hugetlbpage.rst).
    HugePages {
        /// Bytes of one page: a power of two.
        size: u64,
        /// The NUMA node; `None` leaves it to the kernel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NumaNode>,
        /// The number of pages to reserve.
        count: u64,
    },
    /// Whether a device polls in kernel threads instead of softirqs
    /// (Documentation/networking/napi.rst).
    ThreadedNapi {
        /// The device.
        device: DeviceName,
        /// On or off.
        on: bool,
    },
    /// Flags of a persistent tap device (Documentation/networking/tuntap.rst). They are changed
    /// through a queue that is opened briefly, so a single-queue device must not be in use.
    TapFlags {
        /// The device.
        device: DeviceName,
        /// The flags to set; at least one.
        #[serde(flatten)]
        flags: TapFlags,
    },
    /// An attribute of a part of a DSA device, or whether the part is bound to its driver
    /// (Documentation/ABI/stable/sysfs-driver-dma-idxd).
    Dsa {
        /// The device, an engine or a work queue: `dsa0`, `engine0.1`, `wq0.0`.
        part: Word,
        /// Its file in sysfs; `state` is set by binding.
        attribute: Word,
        /// The requested value.
        value: Word,
    },
    /// A device without address and route that is moved into its own network namespace for the
    /// duration of a study, and back. Only a testbed requests it.
    Loan {
        /// The device.
        device: DeviceName,
        /// A device that is already lent; this one joins its namespace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beside: Option<DeviceName>,
    },
}

/// Feature: received packets are merged in software.
pub const GRO: &str = "rx-gro";

/// Feature: received packets are merged by the device.
pub const HW_GRO: &str = "rx-gro-hw";

/// Feature: received packets are merged irreversibly (LRO).
pub const LRO: &str = "rx-lro";

/// Header split (`ethtool -g`, "TCP data split").
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Display, EnumString,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Split {
    /// Off.
    Off,
    /// On.
    On,
    /// The driver's choice.
    Auto,
}

/// TCP flows and their queue. An absent field matches anything; at least one is present, and the
/// addresses are of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FlowRule {
    /// Source address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Destination address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpAddr>,
    /// Source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Destination port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// True for IPv6, which ports alone do not imply.
    #[serde(default)]
    pub ipv6: bool,
    /// The receive queue.
    pub queue: u32,
}

/// A NUMA node of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum NumaNode {
    /// By its number.
    Number(u32),
    /// The node of this network device; its number is determined when the setting is made.
    Of(DeviceName),
}

/// The idle states to disable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IdleChoice {
    /// Those with an exit latency above this many microseconds.
    SlowerThan(u32),
    /// The state of this name: `C6`.
    Named(Word),
}

impl Setting {
    /// Checks a setting that was built in code as if it had been typed: ranges, and that it sets
    /// anything at all.
    pub fn checked(self) -> Result<Setting, Fault> {
        match self.flaw() {
            None => Ok(self),
            Some(flaw) => Err(Fault::usage(format!("the setting '{self}' makes no sense: {flaw}"))),
        }
    }

    /// True if it belongs to a network namespace and not to the machine.
    pub fn is_of_namespace(&self) -> bool {
        match self {
            Setting::Sysctl { name, .. } => name.is_of_namespace(),
            Setting::HugePages { .. } => false,
            other => other.device().is_some(),
        }
    }

    /// True if only testbeds request it, never users.
    pub fn is_of_testbed(&self) -> bool {
        matches!(self, Setting::Loan { .. })
    }

    /// Returns the parts of two values that differ and are worth showing, preceded by the name of
    /// the part (after a blank) if only one of several differs.
    pub fn differing(
        &self,
        before: &SettingValue,
        after: &SettingValue,
    ) -> (String, SettingValue, SettingValue) {
        // Everything else about a device moves with it.
        if let (Setting::Loan { .. }, Some(was), Some(is)) =
            (self, before.get(Self::PLACE), after.get(Self::PLACE))
            && was != is
        {
            let place = |text: &str| SettingValue::one(Self::PLACE, text);
            return (String::new(), place(was), place(is));
        }
        before.compared_with(after)
    }

    /// The part of a [`Setting::Loan`] that contains where the device is.
    pub const PLACE: &str = "place";
}

#[cfg(test)]
mod tests;
