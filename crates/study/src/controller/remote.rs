//! A deployment with its two agents, as far as trials and probes need to know it.

use super::addresses;
use super::agents::{Agents, PROMPT};
use super::laboratory::Laboratory;
use bytepath_host::Adapter;
use bytepath_host::testbed::{Deployment, Properties};
use bytepath_record::wire::{
    AwaitCarrier, CountFrames, FindDevice, FindNic, LinkEnd, ListAddresses, Nic, Pass,
    PrepareSettings, SetUpLink,
};
use bytepath_record::{
    Cell, Fault, FaultKind, Hops, Kernel, Ports, Role, SettingRecord, WantedSetting,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// How long a device may take to be able to send again after it was set up.
const CARRIER: Duration = Duration::from_secs(20);

/// Both agents of a deployment. Dropping it takes the deployment down.
pub(super) struct Remotes<'a> {
    pub agents: Agents<'a, Deployment>,
    addresses: [IpAddr; 2],
    devices: [Option<String>; 2],
    pids: [u32; 2],
    /// Whether the hosts have a clock of their own, which counts instructions.
    counted: bool,
    /// Of the kind of testbed.
    pub properties: Properties,
    /// The ports that flows connect from, if NICs distinguish them by these.
    pub connect_from: Option<Ports>,
    /// Whether the receiver's end of the link is descriptors, and no device.
    ends_in_descriptors: bool,
}

impl<'a> Remotes<'a> {
    /// Raises a deployment with this kernel (the testbed's own if `None`) and
    /// greets both agents.
    pub(super) fn raise(
        laboratory: &Laboratory<'a>,
        kernel: Option<&Kernel>,
    ) -> Result<Self, Fault> {
        let Laboratory { testbed, program, stop, .. } = laboratory;
        let deployment = testbed.raise(&laboratory.site(kernel))?;
        let emulation = testbed.emulation();
        let mut agents = Agents::open(deployment, &Role::ALL, false, stop)?;
        agents.slowness = emulation.as_ref().map_or(1.0, |emulation| emulation.slowness);
        let mut remotes = Remotes {
            agents,
            addresses: [Ipv4Addr::UNSPECIFIED.into(); 2],
            devices: [None, None],
            pids: [0; 2],
            counted: emulation.is_some_and(|one| one.instructions_per_second.is_some()),
            properties: testbed.properties(),
            connect_from: None,
            ends_in_descriptors: false,
        };
        for role in Role::ALL {
            remotes.pids[role as usize] = remotes.agents.greet(role, program)?;
        }
        remotes.addresses = remotes.find_addresses()?;
        for role in Role::ALL {
            remotes.devices[role as usize] = remotes.find_device(role)?;
        }
        Ok(remotes)
    }

    /// Process id of an agent.
    pub(super) fn pid(&self, role: Role) -> u32 {
        self.pids[role as usize]
    }

    /// Address of a role's host on the link.
    pub(super) fn address(&self, role: Role) -> IpAddr {
        self.addresses[role as usize]
    }

    /// Network device of a role's host on the link; `None` at an end of descriptors.
    pub(super) fn device(&self, role: Role) -> Option<String> {
        let is_device = role == Role::Sender || !self.ends_in_descriptors;
        self.devices[role as usize].clone().filter(|_| is_device)
    }

    /// What a role's device on the link has counted of frames so far.
    pub(super) fn count_frames(&mut self, role: Role) -> Result<Hops, Fault> {
        let device = self.devices[role as usize].clone().ok_or_else(|| {
            Fault::new(FaultKind::Usage, format!("the {role}'s device is not known"))
                .remedy("give it with the testbed")
        })?;
        self.agents.call(role, CountFrames { device })
    }

    /// Sets up both ends of the link, the one first that creates the devices: the sender creates
    /// a veth pair, the receiver a tap. Returns what was optional and not available.
    pub(super) fn set_up_link(&mut self, cell: &Cell) -> Result<Vec<String>, Fault> {
        let mut all = Vec::new();
        let is_tap = cell.link.tap.is_some_and(|tap| !tap.macvtap);
        let order = if is_tap { [Role::Receiver, Role::Sender] } else { Role::ALL };
        self.ends_in_descriptors = cell.link.tap.is_some();
        for role in order {
            let host = self.agents.hosts.host(role);
            let Some(end) = host.link_end(&cell.link, cell.softirq_cpu(role)) else { continue };
            let softirq_required = cell.placement.softirq(role).cpu().is_some();
            // The steward has moved the interrupts of a NIC, or will.
            let interrupts_there =
                softirq_required && self.nic(role)?.is_some_and(|nic| !nic.interrupts.is_empty());
            let second = role == order[1];
            let end = LinkEnd { second, softirq_required, interrupts_there, ..end };
            all.extend(self.agents.call(role, SetUpLink { end: Box::new(end) })?);
        }
        Ok(all)
    }

    /// Ports that a receiver may listen on; any if `None`.
    pub(super) fn ports(&self) -> Option<Ports> {
        self.agents.hosts.ports
    }

    /// Whether each host has its own clocks by which it can be given a time to act: one
    /// that is emulated does nothing on time.
    pub(super) fn has_clocks_apart(&self) -> bool {
        self.properties.hosts_apart && !self.counted && self.agents.slowness <= 1.0
    }

    /// The NIC that a role's flows come by, as far as it needs preparing; `None` if the
    /// device is all software.
    pub(super) fn nic(&mut self, role: Role) -> Result<Option<Nic>, Fault> {
        match (self.agents.hosts.host(role).adapter(), self.device(role)) {
            (Adapter::Known(nic), _) => Ok(Some(nic)),
            (Adapter::Asked, Some(device)) => self.agents.call(role, FindNic { device }),
            _ => Ok(None),
        }
    }

    /// Has the agents prepare NICs that are new with each deployment.
    pub(super) fn prepare(
        &mut self,
        wanted: &[WantedSetting],
    ) -> Result<Vec<SettingRecord>, Fault> {
        let mut all = Vec::new();
        for role in Role::ALL {
            let here = wanted.iter().filter(|wanted| wanted.host == Some(role));
            let settings: Vec<WantedSetting> = here.cloned().collect();
            if !settings.is_empty() {
                all.extend(self.agents.call(role, PrepareSettings { settings })?);
            }
        }
        Ok(all)
    }

    /// Waits until NICs can send, after whatever made them stop.
    pub(super) fn await_carriers(&mut self) -> Result<(), Fault> {
        for role in Role::ALL {
            let is_remote = self.agents.hosts.host(role).adapter() == Adapter::Asked;
            let Some(device) = self.device(role).filter(|_| is_remote) else { continue };
            let timeout = self.agents.timeout(CARRIER).as_secs_f64();
            self.agents.call(role, AwaitCarrier { device, timeout })?;
        }
        Ok(())
    }

    /// Addresses that the testbed does not know are found among all those of both hosts.
    fn find_addresses(&mut self) -> Result<[IpAddr; 2], Fault> {
        let known = Role::ALL.map(|role| self.agents.hosts.host(role).address());
        if let [Some(sender), Some(receiver)] = known {
            return Ok([sender, receiver]);
        }
        self.agents.send_both(|_| ListAddresses {})?;
        addresses::common(known, &self.agents.receive_both::<ListAddresses>()?)
    }

    /// A device that the testbed does not know is the one that has the address, if
    /// there is one with hardware behind it to be prepared or measured.
    fn find_device(&mut self, role: Role) -> Result<Option<String>, Fault> {
        let address = self.address(role);
        let host = self.agents.hosts.host(role);
        match (host.device(), host.adapter()) {
            (None, Adapter::Asked) => self.agents.call(role, FindDevice { address }).map(Some),
            (known, _) => Ok(known),
        }
    }

    /// Lets time pass while both agents work, by the hosts' clock if that is not ours.
    /// Fails at once if one is lost or the user cancels.
    pub(super) fn pass(&mut self, time: Duration) -> Result<(), Fault> {
        if !self.counted {
            return self.agents.pass(time);
        }
        let pass = Pass { seconds: time.as_secs_f64() };
        self.agents.call_within(Role::Receiver, pass, time + PROMPT)
    }
}
