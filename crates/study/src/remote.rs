//! The controller's side of the pipes to both agents: ask, await, and notice
//! at once when an agent is lost or the user wants to stop.

use super::Laboratory;
use super::addresses;
use super::build;
use super::clocks::Clock;
use super::engine::OPENING;
use super::line::{Line, News};
use bytepath_host::Adapter;
use bytepath_host::testbed::{Deployment, Properties, Site};
use bytepath_record::wire::{LinkEnd, Nic, Reply, Request, StewardReply, StewardRequest};
use bytepath_record::{
    Fault, FaultKind, Hops, Kernel, LinkSettings, Ports, Role, SettingRecord, WantedSetting,
};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often a wait looks at the stop flag.
const LOOK: Duration = Duration::from_millis(20);

/// After one agent reports a lost peer, how long the news that the other one
/// died may take; its death is the better explanation.
const CAUSE: Duration = Duration::from_millis(300);

/// How long an answer may keep us waiting before its host is asked whether it is
/// still there, and how often it is then. Windows are not waited for like this, so
/// that the question disturbs no measurement.
const WATCH: Duration = Duration::from_secs(1);

/// Time an agent has to answer anything that does not wait for its engines.
pub(super) const PROMPT: Duration = Duration::from_secs(30);

/// Time an agent has to open both ends of a flow, in addition to what its engine may take.
pub(super) fn opening(flows: u32) -> Duration {
    PROMPT + OPENING * flows
}

/// How long a device may take to be able to send again after it was set up.
const CARRIER: Duration = Duration::from_secs(20);

/// Both agents of a deployment. Dropping it takes the deployment down.
pub(super) struct Remotes<'a> {
    inbox: Receiver<(Role, News)>,
    early: VecDeque<(Role, Reply)>,
    lines: [Line; 2],
    /// Since when a ping has been unanswered.
    pinged: [Option<Instant>; 2],
    addresses: [IpAddr; 2],
    devices: [Option<String>; 2],
    pids: [u32; 2],
    stop: &'a AtomicBool,
    deployment: Deployment,
    slowness: f64,
    /// Whether the hosts' clock is one of their own, which counts instructions.
    counted: bool,
    /// What kind of testbed it is of.
    pub properties: Properties,
    /// The ports that flows connect from, if cards distinguish them by these.
    pub connect_from: Option<Ports>,
    /// The receiver's end of the link is descriptors, and no device.
    pub ends_in_descriptors: bool,
    /// What the link's devices had counted of frames before the first; none where the workload
    /// is not one of frames.
    pub hops: Option<Hops>,
    /// The hosts' clocks as they were last read; none where they are not looked at.
    pub clocks: Option<[Clock; 2]>,
}

impl<'a> Remotes<'a> {
    /// Raises a deployment with this kernel (none leaves it to the testbed) and
    /// greets both agents.
    pub(crate) fn raise(
        laboratory: &Laboratory<'a>,
        kernel: Option<&Kernel>,
    ) -> Result<Self, Fault> {
        let Laboratory { testbed, program, stop, .. } = laboratory;
        let mut deployment = testbed.raise(&Site { program, kernel, stop })?;
        let emulation = testbed.emulation();
        let (news, inbox) = channel();
        let mut open = |role| Line::open(deployment.host(role).take_pipe(), role, news.clone());
        let lines = [open(Role::Sender)?, open(Role::Receiver)?];
        let mut remotes = Remotes {
            inbox,
            early: VecDeque::new(),
            lines,
            pinged: [None; 2],
            addresses: [Ipv4Addr::UNSPECIFIED.into(); 2],
            devices: [None, None],
            pids: [0; 2],
            stop,
            deployment,
            slowness: emulation.as_ref().map_or(1.0, |emulation| emulation.slowness),
            counted: emulation.is_some_and(|one| one.instructions_per_second.is_some()),
            properties: testbed.properties(),
            connect_from: None,
            ends_in_descriptors: false,
            hops: None,
            clocks: None,
        };
        for role in Role::ALL {
            let hello = remotes.ask(role, &Request::Hello)?;
            remotes.pids[role as usize] = build::check(role, &hello, program)?;
        }
        remotes.addresses = remotes.find_addresses()?;
        for role in Role::ALL {
            remotes.devices[role as usize] = remotes.find_device(role)?;
        }
        Ok(remotes)
    }

    /// Process id of an agent.
    pub(crate) fn pid(&self, role: Role) -> u32 {
        self.pids[role as usize]
    }

    /// Address of a role's host on the link.
    pub(crate) fn address(&self, role: Role) -> IpAddr {
        self.addresses[role as usize]
    }

    /// Network device of a role's host on the link; none at an end of descriptors.
    pub(crate) fn device(&self, role: Role) -> Option<String> {
        let is_device = role == Role::Sender || !self.ends_in_descriptors;
        self.devices[role as usize].clone().filter(|_| is_device)
    }

    /// What a role's device on the link has counted of frames so far: the answer to
    /// [`Request::Hops`].
    pub(crate) fn count_frames(&mut self, role: Role) -> Result<Reply, Fault> {
        let device = self.devices[role as usize].clone().ok_or_else(|| {
            Fault::new(FaultKind::Usage, format!("the {role}'s device is not known"))
                .remedy("give it with the testbed")
        })?;
        self.ask(role, &Request::Hops { device })
    }

    /// What to ask of an agent so that its end of the link exists; none where the link
    /// is not ours to make.
    pub(crate) fn link_end(
        &self,
        role: Role,
        settings: &LinkSettings,
        softirq_cpu: Option<u32>,
    ) -> Option<LinkEnd> {
        self.deployment.hosts[role as usize].link_end(settings, softirq_cpu)
    }

    /// Ports that a receiver may listen on; none leaves it to the kernel.
    pub(crate) fn ports(&self) -> Option<Ports> {
        self.deployment.ports
    }

    /// Whether each host has its own clocks by which it can be given a time to act: one
    /// that is emulated does nothing on time.
    pub(crate) fn has_clocks_apart(&self) -> bool {
        self.properties.hosts_apart && !self.counted && self.slowness <= 1.0
    }

    /// What is known of the link and no agent can see.
    pub(crate) fn link_facts(&self) -> &[(&'static str, String)] {
        &self.deployment.link_facts
    }

    /// Time that a role's host took to boot; none where it was up before.
    pub(crate) fn booted(&self, role: Role) -> Option<Duration> {
        self.deployment.hosts[role as usize].booted()
    }

    /// The card that a role's flows come by, as far as it needs preparing; none where the
    /// device is all software.
    pub(crate) fn nic(&mut self, role: Role) -> Result<Option<Nic>, Fault> {
        match (self.deployment.host(role).adapter(), self.device(role)) {
            (Adapter::Known(nic), _) => Ok(Some(nic)),
            (Adapter::Asked, Some(device)) => match self.ask(role, &Request::Nic { device })? {
                Reply::Nic { nic } => Ok(nic),
                other => Err(unexpected(role, &other)),
            },
            _ => Ok(None),
        }
    }

    /// Has the agents prepare cards that go with the deployment.
    pub(crate) fn prepare(
        &mut self,
        wanted: &[WantedSetting],
    ) -> Result<Vec<SettingRecord>, Fault> {
        let mut all = Vec::new();
        for role in Role::ALL {
            let own = wanted.iter().filter(|want| want.host == Some(role));
            let wanted: Vec<WantedSetting> = own.cloned().collect();
            if wanted.is_empty() {
                continue;
            }
            let request = Request::Steward(StewardRequest::Prepare { wanted });
            match self.ask(role, &request)? {
                Reply::Steward(StewardReply::Records { records }) => all.extend(records),
                other => return Err(unexpected(role, &other)),
            }
        }
        Ok(all)
    }

    /// Waits until cards can send, after whatever made them stop.
    pub(crate) fn await_carriers(&mut self) -> Result<(), Fault> {
        for role in Role::ALL {
            let asked = self.deployment.host(role).adapter() == Adapter::Asked;
            let Some(device) = self.device(role).filter(|_| asked) else { continue };
            let timeout = self.timeout(CARRIER).as_secs_f64();
            self.tell(role, &Request::AwaitCarrier { device, timeout })?;
        }
        Ok(())
    }

    /// Addresses that the testbed does not know are found by asking both hosts for all.
    fn find_addresses(&mut self) -> Result<[IpAddr; 2], Fault> {
        let known = Role::ALL.map(|role| self.deployment.host(role).address());
        if let [Some(sender), Some(receiver)] = known {
            return Ok([sender, receiver]);
        }
        let mut all = [Vec::new(), Vec::new()];
        for role in Role::ALL {
            all[role as usize] = match self.ask(role, &Request::Addresses)? {
                Reply::Addresses { all } => all,
                other => return Err(unexpected(role, &other)),
            };
        }
        addresses::common(known, &all)
    }

    /// A device that the testbed does not know is the one that has the address, where
    /// there is one with hardware behind it to be prepared or measured.
    fn find_device(&mut self, role: Role) -> Result<Option<String>, Fault> {
        let host = self.deployment.host(role);
        let (known, asked) = (host.device(), host.adapter() == Adapter::Asked);
        if known.is_some() || !asked {
            return Ok(known);
        }
        let address = self.address(role);
        match self.ask(role, &Request::Device { address })? {
            Reply::Device { name } => Ok(Some(name)),
            other => Err(unexpected(role, &other)),
        }
    }

    /// How long these hosts may take for what takes others so long.
    pub(crate) fn timeout(&self, usual: Duration) -> Duration {
        usual.mul_f64(self.slowness)
    }

    /// Asks one agent and waits for its answer.
    pub(crate) fn ask(&mut self, role: Role, request: &Request) -> Result<Reply, Fault> {
        self.send(role, request)?;
        self.await_reply(role, PROMPT)
    }

    /// Asks one agent for something that has no answer but `Done`.
    pub(crate) fn tell(&mut self, role: Role, request: &Request) -> Result<(), Fault> {
        self.tell_within(role, request, PROMPT)
    }

    /// The same of something that may take longer.
    pub(crate) fn tell_within(
        &mut self,
        role: Role,
        request: &Request,
        time: Duration,
    ) -> Result<(), Fault> {
        self.send(role, request)?;
        match self.await_reply(role, time)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(role, &other)),
        }
    }

    /// Sends without waiting for the answer.
    pub(crate) fn send(&mut self, role: Role, request: &Request) -> Result<(), Fault> {
        match self.lines[role as usize].send(request)? {
            Ok(()) => Ok(()),
            Err(_) => Err(self.gone(role)),
        }
    }

    /// Waits for the answer of one agent, on slow hosts accordingly longer; that
    /// of the other is kept.
    pub(crate) fn await_reply(&mut self, role: Role, timeout: Duration) -> Result<Reply, Fault> {
        if let Some(at) = self.early.iter().position(|(who, _)| *who == role) {
            let (_, reply) = self.early.remove(at).expect("position is valid");
            return self.accept(role, reply);
        }
        let timeout = self.timeout(timeout);
        let deadline = Instant::now() + timeout;
        loop {
            match self.hear(deadline.min(Instant::now() + WATCH))? {
                Some((who, reply)) if who == role => return self.accept(role, reply),
                Some(other) => self.early.push_back(other),
                None if Instant::now() >= deadline => return Err(self.silent(role, timeout)),
                None => self.watch()?,
            }
        }
    }

    /// An answer; one that something failed because a peer was lost may have a cause.
    fn accept(&mut self, role: Role, reply: Reply) -> Result<Reply, Fault> {
        match reply {
            Reply::Failed(fault) => Err(self.root_cause(fault.context(role))),
            reply => Ok(reply),
        }
    }

    /// Notices a host that hangs. It need not be that of the agent which keeps us
    /// waiting: that one may be waiting itself, for its peer.
    fn watch(&mut self) -> Result<(), Fault> {
        for role in Role::ALL {
            let host = self.deployment.host(role);
            let answers = match self.pinged[role as usize] {
                Some(since) => since.elapsed() < host.silence(),
                None => {
                    self.pinged[role as usize] = Some(Instant::now());
                    // A pipe that takes nothing any more is no answer either; one that
                    // is closed brings other news.
                    !matches!(
                        self.lines[role as usize].send(&Request::Ping)?,
                        Err(e) if matches!(
                            e.kind(),
                            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                        )
                    )
                }
            };
            if !answers {
                let how = self.deployment.host(role).give_up();
                let text = format!("the {role}'s host is lost: {how}");
                return Err(Fault::new(FaultKind::PeerLost, text));
            }
        }
        Ok(())
    }

    /// Lets time pass while both agents work, by the hosts' clock where that is not ours.
    /// Fails at once if one is lost or the user wants to stop.
    pub(crate) fn pass(&mut self, time: Duration) -> Result<(), Fault> {
        if self.counted {
            let request = Request::Pass { seconds: time.as_secs_f64() };
            return self.tell_within(Role::Receiver, &request, time + PROMPT);
        }
        let deadline = Instant::now() + time;
        match self.hear(deadline)? {
            None => Ok(()),
            Some((who, reply)) => Err(unexpected(who, &reply)),
        }
    }

    /// The same until a moment; an answer that comes before it is kept.
    pub(crate) fn pass_until(&mut self, moment: Instant) -> Result<(), Fault> {
        while let Some(news) = self.hear(moment)? {
            self.early.push_back(news);
        }
        Ok(())
    }

    /// The next answer of either agent, or none at the deadline.
    fn hear(&mut self, deadline: Instant) -> Result<Option<(Role, Reply)>, Fault> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Fault::new(FaultKind::Interrupted, "interrupted by the user"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let heard = self.inbox.recv_timeout(left.min(LOOK));
            if let Ok((who, _)) = &heard {
                self.pinged[*who as usize] = None;
            }
            match heard {
                Ok((_, News::Said(Reply::Pong))) => {}
                Ok((who, News::Said(Reply::Lost(fault)))) => {
                    return Err(self.root_cause(lost(who, fault)));
                }
                Ok((who, News::Said(reply))) => return Ok(Some((who, reply))),
                Ok((who, News::Garbled(what))) => {
                    return Err(Fault::new(
                        FaultKind::System,
                        format!("the {who}'s agent sent no valid reply: {what}"),
                    ));
                }
                Ok((who, News::Gone)) => return Err(self.gone(who)),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone(Role::Sender)),
            }
        }
    }

    /// A lost peer is an effect. The death of the other agent, or what its
    /// engine has to say, explains it better.
    fn root_cause(&mut self, effect: Fault) -> Fault {
        if effect.kind != FaultKind::PeerLost {
            return effect;
        }
        let deadline = Instant::now() + CAUSE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok((who, News::Gone)) => return self.gone(who),
                Ok((who, News::Said(Reply::Lost(fault)))) if fault.kind != FaultKind::PeerLost => {
                    return lost(who, fault);
                }
                Ok(_) => {}
                Err(_) => return effect,
            }
        }
    }

    fn silent(&mut self, role: Role, timeout: Duration) -> Fault {
        let mut text = format!("the {role}'s agent did not answer within {} s", timeout.as_secs());
        if let Some(shown) = self.deployment.host(role).console() {
            text.push_str(&format!("; its host's console shows: {shown}"));
        }
        Fault::new(FaultKind::PeerLost, text)
    }

    fn gone(&mut self, role: Role) -> Fault {
        let how = self.deployment.host(role).last_words();
        Fault::new(FaultKind::PeerLost, format!("the {role}'s agent is gone: {how}"))
    }
}

fn lost(role: Role, fault: Fault) -> Fault {
    fault.context(format!("{role} lost its stream"))
}

pub(super) fn unexpected(role: Role, reply: &Reply) -> Fault {
    let text = serde_json::to_string(reply).unwrap_or_default();
    let text: String = text.chars().take(80).collect();
    Fault::new(FaultKind::System, format!("the {role}'s agent answered out of turn: {text}"))
}
