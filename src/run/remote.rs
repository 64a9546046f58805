//! The controller's side of the pipes to both agents: ask, await, and notice
//! at once when an agent is lost or the user wants to stop.

use super::Laboratory;
use super::agent::{BUILD, read_line};
use crate::host::{Raised, Site};
use crate::record::wire::{Reply, Request};
use crate::record::{Fault, FaultKind, Kernel, Role, SCHEMA_VERSION};
use std::collections::VecDeque;
use std::io::{BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
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

/// Both agents of a testbed that is up. Dropping it takes the testbed down.
pub(super) struct Remotes<'a> {
    inbox: Receiver<(Role, News)>,
    early: VecDeque<(Role, Reply)>,
    sender: Box<dyn Write + Send>,
    receiver: Box<dyn Write + Send>,
    stop: &'a AtomicBool,
    pids: [u32; 2],
    slowness: f64,
    /// Whether each role has a machine of its own.
    pub apart: bool,
    /// Whether a wire is between the roles.
    pub wired: bool,
    /// The testbed itself.
    pub raised: Box<dyn Raised>,
}

enum News {
    Said(Reply),
    Garbled(String),
    Gone,
}

impl<'a> Remotes<'a> {
    /// Raises a testbed with this kernel (none leaves it to the testbed) and
    /// greets both agents.
    pub fn raise(laboratory: &Laboratory<'a>, kernel: Option<&Kernel>) -> Result<Self, Fault> {
        let Laboratory { testbed, program, stop, .. } = laboratory;
        let mut raised = testbed.raise(&Site { program, kernel, stop })?;
        let (news, inbox) = channel();
        let mut listen = |role: Role| -> Result<Box<dyn Write + Send>, Fault> {
            let (pipe, news) = (raised.take_pipe(role), news.clone());
            std::thread::Builder::new()
                .name(format!("{role}-pipe"))
                .spawn(move || read_replies(role, pipe.from_agent, &news))
                .map_err(|e| Fault::system("cannot start a thread", &e))?;
            Ok(pipe.to_agent)
        };
        let (sender, receiver) = (listen(Role::Sender)?, listen(Role::Receiver)?);
        let early = VecDeque::new();
        let (pids, slowness) = ([0; 2], testbed.slowness());
        let (apart, wired) = (testbed.has_hosts_apart(), testbed.has_wire());
        let mut remotes =
            Remotes { inbox, early, sender, receiver, stop, pids, slowness, apart, wired, raised };
        for role in Role::ALL {
            remotes.pids[role as usize] = remotes.greet(role)?;
        }
        Ok(remotes)
    }

    /// Process id of an agent.
    pub fn pid(&self, role: Role) -> u32 {
        self.pids[role as usize]
    }

    fn greet(&mut self, role: Role) -> Result<u32, Fault> {
        match self.ask(role, &Request::Hello)? {
            Reply::Hello { schema: SCHEMA_VERSION, build, pid } if build == BUILD => Ok(pid),
            Reply::Hello { schema, build, .. } => Err(Fault::new(
                FaultKind::Unsupported,
                format!(
                    "the {role}'s agent is bytepath {build} (records v{schema}), this is {BUILD} (v{SCHEMA_VERSION})"
                ),
            )
            .remedy("install the same version at both ends")),
            other => Err(unexpected(role, &other)),
        }
    }

    /// How long these hosts may take for what takes others so long.
    pub fn patience(&self, usual: Duration) -> Duration {
        usual.mul_f64(self.slowness)
    }

    /// Asks one agent and waits for its answer.
    pub fn ask(&mut self, role: Role, request: &Request) -> Result<Reply, Fault> {
        self.send(role, request)?;
        self.await_reply(role, PROMPT)
    }

    /// Asks one agent for something that has no answer but `Done`.
    pub fn tell(&mut self, role: Role, request: &Request) -> Result<(), Fault> {
        match self.ask(role, request)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(role, &other)),
        }
    }

    /// Sends without waiting for the answer.
    pub fn send(&mut self, role: Role, request: &Request) -> Result<(), Fault> {
        let mut line = serde_json::to_vec(request)
            .map_err(|e| Fault::new(FaultKind::System, format!("cannot encode a request: {e}")))?;
        line.push(b'\n');
        let pipe = match role {
            Role::Sender => &mut self.sender,
            Role::Receiver => &mut self.receiver,
        };
        match pipe.write_all(&line).and_then(|()| pipe.flush()) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.gone(role)),
        }
    }

    /// Waits for the answer of one agent, on slow hosts accordingly longer; that
    /// of the other is kept.
    pub fn await_reply(&mut self, role: Role, patience: Duration) -> Result<Reply, Fault> {
        if let Some(at) = self.early.iter().position(|(who, _)| *who == role) {
            let (_, reply) = self.early.remove(at).expect("position is valid");
            return accept(role, reply);
        }
        let patience = self.patience(patience);
        let deadline = Instant::now() + patience;
        loop {
            match self.hear(deadline.min(Instant::now() + WATCH))? {
                Some((who, reply)) if who == role => return accept(role, reply),
                Some(other) => self.early.push_back(other),
                None if Instant::now() >= deadline => return Err(self.silent(role, patience)),
                None => self.watch()?,
            }
        }
    }

    /// Notices a host that hangs. It need not be that of the agent which keeps us
    /// waiting: that one may be waiting itself, for its peer.
    fn watch(&mut self) -> Result<(), Fault> {
        for role in Role::ALL {
            if let Some(how) = self.raised.hangs(role) {
                let text = format!("the {role}'s host is lost: {how}");
                return Err(Fault::new(FaultKind::PeerLost, text));
            }
        }
        Ok(())
    }

    /// Lets time pass while both agents work. Fails at once if one is lost or
    /// the user wants to stop.
    pub fn pass(&mut self, time: Duration) -> Result<(), Fault> {
        let deadline = Instant::now() + time;
        match self.hear(deadline)? {
            None => Ok(()),
            Some((who, reply)) => Err(unexpected(who, &reply)),
        }
    }

    /// The next answer of either agent, or none at the deadline.
    fn hear(&mut self, deadline: Instant) -> Result<Option<(Role, Reply)>, Fault> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Fault::new(FaultKind::Interrupted, "stopped by the user"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left.min(LOOK)) {
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

    fn silent(&mut self, role: Role, patience: Duration) -> Fault {
        let mut text = format!("the {role}'s agent gave no answer within {} s", patience.as_secs());
        if let Some(shown) = self.raised.console(role) {
            text.push_str(&format!("; its host's console shows: {shown}"));
        }
        Fault::new(FaultKind::PeerLost, text)
    }

    fn gone(&mut self, role: Role) -> Fault {
        let how = self.raised.last_words(role);
        Fault::new(FaultKind::PeerLost, format!("the {role}'s agent is gone: {how}"))
    }
}

fn lost(role: Role, fault: Fault) -> Fault {
    fault.context(format!("{role} lost its stream"))
}

fn accept(role: Role, reply: Reply) -> Result<Reply, Fault> {
    match reply {
        Reply::Failed(fault) => Err(fault.context(role)),
        reply => Ok(reply),
    }
}

pub(super) fn unexpected(role: Role, reply: &Reply) -> Fault {
    let text = serde_json::to_string(reply).unwrap_or_default();
    let text: String = text.chars().take(80).collect();
    Fault::new(FaultKind::System, format!("the {role}'s agent answered out of turn: {text}"))
}

fn read_replies(role: Role, from_agent: Box<dyn Read + Send>, news: &Sender<(Role, News)>) {
    let mut from_agent = BufReader::new(from_agent);
    while let Ok(Some(line)) = read_line(&mut from_agent) {
        let said = match serde_json::from_slice(&line) {
            Ok(reply) => News::Said(reply),
            Err(error) => News::Garbled(error.to_string()),
        };
        if news.send((role, said)).is_err() {
            return;
        }
    }
    let _ = news.send((role, News::Gone));
}
