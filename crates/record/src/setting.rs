//! What may be set on a host: a closed set, each with the one thing it changes.
//!
//! A [`Setting`] is data: what is set, on which device or CPU, and the value. Reading,
//! journalling, changing and restoring it is the business of the crate `bytepath-settings`,
//! in the process that runs on the host concerned. Every name in a setting was checked when
//! the setting was made, whether it was typed, read from a file or built by a path: no name
//! leads out of the folder it is for.
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

/// One thing that is set on a host. All of them are gone after a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::EnumCount)]
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
    /// When the polling instances of a device poll and interrupt (netdev netlink, NAPI_SET,
    /// Linux 6.13; Documentation/networking/napi.rst), all of them alike.
    Napi {
        /// The device.
        device: DeviceName,
        /// What is set; at least one of them.
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
        node: Option<NumaNode>,
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
        /// A device that is lent already, whose namespace this one joins.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beside: Option<DeviceName>,
    },
}

/// The feature by which received packets are merged in software.
pub const GRO: &str = "rx-gro";

/// The feature by which the device merges them.
pub const HW_GRO: &str = "rx-gro-hw";

/// Merging of received packets in a way that cannot be undone, as ethtool calls it.
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
    /// As the driver likes.
    Auto,
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

/// A NUMA node of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum NumaNode {
    /// By its number.
    Number(u32),
    /// That of this network device, whose number is found when the setting is made.
    Of(DeviceName),
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

impl Setting {
    /// A setting that was built and not typed, checked as if it had been typed:
    /// ranges, and that it sets anything at all.
    pub fn checked(self) -> Result<Setting, Fault> {
        match self.flaw() {
            None => Ok(self),
            Some(flaw) => Err(Fault::usage(format!("the setting '{self}' makes no sense: {flaw}"))),
        }
    }

    /// Whether it belongs to a network namespace and not to the machine.
    pub fn is_of_namespace(&self) -> bool {
        match self {
            Setting::Sysctl { name, .. } => name.is_of_namespace(),
            Setting::HugePages { .. } => false,
            other => other.device().is_some(),
        }
    }

    /// Whether a testbed requests it, and never a person.
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

    /// The part of a [`Setting::Loan`] that contains where the device is.
    pub const PLACE: &str = "place";
}

#[cfg(test)]
mod tests;
