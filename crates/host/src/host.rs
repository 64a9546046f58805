//! A host as the controller uses it: an agent, its pipe and its end of the link.

use super::testbed::ends;
use super::{LocalAgent, Patience};
use bytepath_record::wire::{LinkEnd, Nic};
use bytepath_record::{LinkSettings, TapSettings};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// An agent at its end of the link. Dropping it ends the agent.
pub trait Host: Send {
    /// Takes the pipe to its agent; may be called once.
    fn take_pipe(&mut self) -> AgentPipe;

    /// Makes its agent end, without waiting: several hosts are closed before one is waited for.
    fn close(&mut self) {}

    /// Describes how a lost agent ended: "killed by signal 9 (SIGKILL)",
    /// "exited with code 1: THE LAST LINE IT PRINTED".
    fn exit_report(&mut self) -> String;

    /// How it is attached to the link.
    fn attachment(&self) -> &Attachment;

    /// Its kind of device.
    fn adapter(&self) -> Adapter {
        Adapter::Virtual
    }

    /// How long its agent may take, from now on, to answer a ping before it counts as lost.
    fn patience(&self) -> Patience {
        Patience::new(SILENCE)
    }

    /// Kills a host whose agent has not answered a ping since then, and returns its last output.
    fn kill_and_report(&mut self, since: Instant) -> String {
        format!("its agent did not answer a ping within {} s", since.elapsed().as_secs())
    }

    /// Returns what the console of an unresponsive host shows, if it has one.
    fn console(&mut self) -> Option<String> {
        None
    }

    /// Time that it took to boot for this deployment; `None` if it was already running.
    fn booted(&self) -> Option<Duration> {
        None
    }

    /// Process id of its qemu on this machine; `None` unless it is a guest.
    fn qemu(&self) -> Option<u32> {
        None
    }
}

/// Generous, because an agent answers pings from a thread that does nothing else.
const SILENCE: Duration = Duration::from_secs(20);

/// The hardware behind a network device, as paths need it to prepare the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adapter {
    /// Software: there is nothing to prepare.
    Virtual,
    Known(Nic),
    /// Unknown; the host's agent is queried.
    Asked,
}

/// The two ends of a pipe to an agent.
pub struct AgentPipe {
    /// Read by the agent.
    pub to_agent: Box<dyn Write + Send>,
    /// Written by the agent.
    pub from_agent: Box<dyn Read + Send>,
}

/// How a host is attached to the link.
#[derive(Clone, Debug)]
pub enum Attachment {
    /// By existing devices, one per adapter. The settings of the ends are replaced by those of the
    /// cell.
    Made(Vec<LinkEnd>, HwGro),
    /// By one of two ends in namespaces of the same kernel.
    Beside {
        /// The end of a veth pair.
        veth: Box<LinkEnd>,
        /// Used instead if the cell's link is a tap.
        tap: Box<LinkEnd>,
        /// Used instead if the cell's link is a veth pair that ends in a macvtap.
        macvtap: Box<LinkEnd>,
    },
    /// By existing devices, which are not changed.
    Given(Vec<Place>),
}

/// An end of the link, as far as the testbed knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its address; `None` if it has to be determined.
    pub address: Option<IpAddr>,
    /// Its network device; `None` if the agent has to find the one with the address.
    pub device: Option<String>,
}

impl Place {
    fn of(end: &LinkEnd) -> Place {
        Place { address: Some(end.address), device: Some(end.device.clone()) }
    }
}

/// The hardware GRO setting of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HwGro {
    /// The one that the cell requests.
    AsRequested,
    /// Off: the device passes packets on unchanged.
    Never,
    /// Also on with TSO: large packets that cross a tap are received unsegmented only by a device
    /// that accepts them, which its driver calls hardware GRO (virtio_net).
    WithTso,
}

impl Attachment {
    /// Returns the address of the first end; `None` if the testbed has none.
    pub fn address(&self) -> Option<IpAddr> {
        self.places().first().and_then(|place| place.address)
    }

    /// Returns the ends by adapter: all of them if their devices exist before a cell requests some,
    /// otherwise the first.
    pub fn places(&self) -> Vec<Place> {
        match self {
            Attachment::Made(ends, _) => ends.iter().map(Place::of).collect(),
            Attachment::Beside { veth, .. } => vec![Place::of(veth)],
            Attachment::Given(places) => places.clone(),
        }
    }

    /// Returns what to request from the agent to set up its ends of the link, one per adapter, with
    /// the CPU for the softirqs of each; empty if the link is given.
    pub fn ends(
        &self,
        settings: &LinkSettings,
        softirq_cpu: impl Fn(u32) -> Option<u32>,
    ) -> Vec<LinkEnd> {
        let (ends, hw_gro) = self.bare_ends(settings);
        let hw_gro = match hw_gro {
            HwGro::AsRequested => settings.hw_gro,
            HwGro::Never => false,
            HwGro::WithTso => settings.hw_gro || settings.tso,
        };
        let of_adapter = |(adapter, end)| LinkEnd {
            settings: LinkSettings { hw_gro, ..settings.clone() },
            softirq_cpu: softirq_cpu(adapter),
            ..end
        };
        (0..settings.adapters).zip(ends).map(of_adapter).collect()
    }

    /// Returns the ends as far as the testbed knows them, at least one per adapter of the cell.
    fn bare_ends(&self, settings: &LinkSettings) -> (Vec<LinkEnd>, HwGro) {
        let end = match self {
            Attachment::Made(ends, hw_gro) => return (ends.clone(), *hw_gro),
            Attachment::Beside { veth, tap, macvtap } => match settings.tap {
                Some(TapSettings { macvtap: true, .. }) => &**macvtap,
                Some(_) => &**tap,
                None => veth,
            },
            Attachment::Given(_) => return (Vec::new(), HwGro::AsRequested),
        };
        let ends = (0..settings.adapters).map(|adapter| ends::of_adapter(end, adapter));
        (ends.collect(), HwGro::AsRequested)
    }
}

/// An agent of this machine and its end of the link.
pub struct ProcessHost {
    pub agent: LocalAgent,
    /// Its end of the link.
    pub attachment: Attachment,
    /// Its kind of device.
    pub adapter: Adapter,
}

impl Host for ProcessHost {
    fn take_pipe(&mut self) -> AgentPipe {
        self.agent.process.take_pipe()
    }

    fn close(&mut self) {
        self.agent.process.close();
    }

    fn exit_report(&mut self) -> String {
        self.agent.process.exit_report()
    }

    fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    fn adapter(&self) -> Adapter {
        self.adapter.clone()
    }
}
