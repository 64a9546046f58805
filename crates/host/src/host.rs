//! A host as the controller uses it: an agent, its pipe and its place on the link.

use super::LocalAgent;
use super::testbed::ends;
use bytepath_record::wire::{LinkEnd, Nic};
use bytepath_record::{LinkSettings, TapSettings};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::time::Duration;

/// An agent in its place. Dropping it ends the agent.
pub trait Host: Send {
    /// The pipe to its agent, once.
    fn take_pipe(&mut self) -> AgentPipe;

    /// Asks its agent to end, without waiting: several are asked before one is
    /// waited for.
    fn close(&mut self) {}

    /// How an agent that went away ended, in words: "killed by signal 9
    /// (SIGKILL)", "exited with code 1: THE LAST LINE IT PRINTED".
    fn exit_report(&mut self) -> String;

    /// How it is attached to the link.
    fn attachment(&self) -> &Attachment;

    /// What its device is.
    fn adapter(&self) -> Adapter {
        Adapter::Virtual
    }

    /// How long its agent may leave a ping unanswered before it counts as lost.
    fn silence(&self) -> Duration {
        SILENCE
    }

    /// Ends a host that left a ping unanswered, and reports what it showed last.
    fn kill_and_report(&mut self) -> String {
        format!("its agent did not answer a ping within {} s", self.silence().as_secs_f64())
    }

    /// What the console of a host that does not answer shows, if it has one.
    fn console(&mut self) -> Option<String> {
        None
    }

    /// Time that it took to boot for this deployment; `None` if it was up before.
    fn booted(&self) -> Option<Duration> {
        None
    }

    /// Process id of the qemu on this machine that runs it; `None` unless it is a guest.
    fn qemu(&self) -> Option<u32> {
        None
    }
}

/// An agent answers a ping from a thread that does nothing else, so this is long.
const SILENCE: Duration = Duration::from_secs(20);

/// What is behind a network device, as far as paths prepare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adapter {
    /// Software: there is nothing to prepare.
    Virtual,
    Known(Nic),
    /// The host's agent is asked.
    Asked,
}

/// The two ends of a pipe to an agent.
pub struct AgentPipe {
    /// What the agent reads.
    pub to_agent: Box<dyn Write + Send>,
    /// What the agent writes.
    pub from_agent: Box<dyn Read + Send>,
}

/// Where a host is on the link.
#[derive(Clone, Debug)]
pub enum Attachment {
    /// By ends of devices that are there, one for each adapter. Their settings are replaced by
    /// those of the cell.
    Made(Vec<LinkEnd>, HwGro),
    /// By one of two ends in namespaces of one kernel.
    Beside {
        /// The end of a veth pair.
        veth: Box<LinkEnd>,
        /// What it is in place of that where the cell's link is a tap.
        tap: Box<LinkEnd>,
        /// The same of a veth pair that ends in a macvtap.
        macvtap: Box<LinkEnd>,
    },
    /// By devices that are there, and stay as they are.
    Given(Vec<Place>),
}

/// Where an end of the link is, as far as the testbed knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its address; none leaves it to be found.
    pub address: Option<IpAddr>,
    /// Its network device; none leaves it to the agent to find the one with the address.
    pub device: Option<String>,
}

impl Place {
    fn of(end: &LinkEnd) -> Place {
        Place { address: Some(end.address), device: Some(end.device.clone()) }
    }
}

/// Which hardware GRO an end gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HwGro {
    /// What the cell requests.
    AsAsked,
    /// None: the device hands on what it is given as it is.
    Never,
    /// Also with TSO: what crosses a tap whole is received whole only by a device that
    /// takes large packets, which its driver calls hardware GRO (virtio_net).
    WithTso,
}

impl Attachment {
    /// The address of the first end; `None` if the testbed does not know it.
    pub fn address(&self) -> Option<IpAddr> {
        self.places().first().and_then(|place| place.address)
    }

    /// The ends by the number of the adapter: all whose devices are there before a cell asks for
    /// some of them, or else the first.
    pub fn places(&self) -> Vec<Place> {
        match self {
            Attachment::Made(ends, _) => ends.iter().map(Place::of).collect(),
            Attachment::Beside { veth, .. } => vec![Place::of(veth)],
            Attachment::Given(places) => places.clone(),
        }
    }

    /// What is requested of the agent so that its ends of the link exist, one for each adapter, with
    /// the CPU for the softirqs of each; none if the link is not ours to make.
    pub fn ends(
        &self,
        settings: &LinkSettings,
        softirq_cpu: impl Fn(u32) -> Option<u32>,
    ) -> Vec<LinkEnd> {
        let (ends, hw_gro) = self.bare_ends(settings);
        let hw_gro = match hw_gro {
            HwGro::AsAsked => settings.hw_gro,
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

    /// The ends as far as the testbed knows them, at least as many as the cell has adapters.
    fn bare_ends(&self, settings: &LinkSettings) -> (Vec<LinkEnd>, HwGro) {
        let end = match self {
            Attachment::Made(ends, hw_gro) => return (ends.clone(), *hw_gro),
            Attachment::Beside { veth, tap, macvtap } => match settings.tap {
                Some(TapSettings { macvtap: true, .. }) => &**macvtap,
                Some(_) => &**tap,
                None => veth,
            },
            Attachment::Given(_) => return (Vec::new(), HwGro::AsAsked),
        };
        let ends = (0..settings.adapters).map(|adapter| ends::of_adapter(end, adapter));
        (ends.collect(), HwGro::AsAsked)
    }
}

/// An agent of this machine and its end of the link.
pub struct ProcessHost {
    pub agent: LocalAgent,
    /// Where it is on the link.
    pub attachment: Attachment,
    /// What its device is.
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
