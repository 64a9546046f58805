//! Communication with agents: calls, waits, and notices at once when an agent is lost or the user
//! cancels.

use super::remote::each;
use bytepath_host::testbed::Deployment;
use bytepath_host::{AgentPipe, Host, Patience, build_of, own_build, spawn_thread};
use bytepath_record::wire::{
    Call, Hello, LONGEST_PREFACE, Ping, Reply, Request, SYNC, line_of, read_line,
};
use bytepath_record::{Fault, FaultKind, Role, SCHEMA_VERSION};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How often a wait checks the stop flag.
const POLL: Duration = Duration::from_millis(20);

/// After one agent reports a lost peer, how long to wait for news that the other one died, which is
/// the better explanation.
const CAUSE: Duration = Duration::from_millis(300);

/// How long a reply may take before the hosts are pinged, and how often they are pinged then.
/// During windows nothing is pinged, so that no measurement is disturbed.
const WATCH: Duration = Duration::from_secs(1);

/// Time an agent has to reply to anything that does not wait for its engines.
pub(super) const PROMPT: Duration = Duration::from_secs(30);

/// The hosts that agents run on.
pub(super) trait Hosts {
    fn of(&mut self, role: Role) -> &mut dyn Host;
}

impl Hosts for Deployment {
    fn of(&mut self, role: Role) -> &mut dyn Host {
        self.host(role)
    }
}

impl Hosts for Box<dyn Host> {
    fn of(&mut self, _: Role) -> &mut dyn Host {
        self.as_mut()
    }
}

/// The agents of one or both roles, and their hosts. Dropping it ends the agents.
pub(super) struct Agents<'a, H> {
    /// Factor by which these hosts are slower than others.
    pub slowness: f64,
    /// Whether the agents are stewards.
    stewards: bool,
    stop: &'a AtomicBool,
    inbox: Receiver<(Role, AgentEvent)>,
    lines: Vec<(Role, Line)>,
    /// Replies that arrived while another was awaited.
    early: VecDeque<(Role, Reply)>,
    /// Patience with an unanswered ping.
    pinged: [Option<Box<Patience>>; 2],
    /// Dropped last, as hosts wait for their agents to end, and these for the end of their pipes.
    pub hosts: H,
}

impl<'a, H: Hosts> Agents<'a, H> {
    pub(super) fn open(
        mut hosts: H,
        roles: &[Role],
        stewards: bool,
        stop: &'a AtomicBool,
    ) -> Result<Self, Fault> {
        let (events, inbox) = channel();
        let mut open =
            |role| Ok((role, Line::open(hosts.of(role).take_pipe(), role, events.clone())?));
        let lines = roles.iter().map(|role| open(*role)).collect::<Result<_, Fault>>()?;
        let (early, pinged) = (VecDeque::new(), [None, None]);
        Ok(Agents { slowness: 1.0, stewards, stop, inbox, lines, early, pinged, hosts })
    }

    /// Checks that an agent is of the same build as a program. Returns its process ID.
    pub(super) fn greet(&mut self, role: Role, program: &Path) -> Result<u32, Fault> {
        let identity = self.call(role, Hello {})?;
        let ours = build_of(program).unwrap_or_else(|| own_build().to_owned());
        if identity.schema == SCHEMA_VERSION && identity.build == ours {
            return Ok(identity.pid);
        }
        let text = format!(
            "the {role}'s agent is bytepath {} (records v{}), this is {ours} (v{SCHEMA_VERSION})",
            identity.build, identity.schema
        );
        Err(Fault::unsupported(text).remedy("install the same build at both ends"))
    }

    /// Scales a timeout by the slowness of these hosts.
    pub(super) fn timeout(&self, usual: Duration) -> Duration {
        usual.mul_f64(self.slowness)
    }

    /// Calls one agent and waits for its reply.
    pub(super) fn call<C: Call>(&mut self, role: Role, call: C) -> Result<C::Reply, Fault> {
        self.call_within(role, call, PROMPT)
    }

    /// Like [`Self::call`], for a call that may take longer.
    pub(super) fn call_within<C: Call>(
        &mut self,
        role: Role,
        call: C,
        timeout: Duration,
    ) -> Result<C::Reply, Fault> {
        self.send(role, call)?;
        self.receive::<C>(role, timeout)
    }

    /// Sends without waiting for the reply.
    pub(super) fn send<C: Call>(&mut self, role: Role, call: C) -> Result<(), Fault> {
        let line = self.lines.iter_mut().find(|(of, _)| *of == role);
        let (_, line) = line.ok_or_else(|| Fault::failed("no such agent"))?;
        line.send(&call.into())?.map_err(|_| self.gone(role))
    }

    /// Sends to both agents at the same time.
    pub(super) fn send_both<C: Call>(&mut self, call: impl Fn(Role) -> C) -> Result<(), Fault> {
        Role::ALL.into_iter().try_for_each(|role| self.send(role, call(role)))
    }

    /// Waits for the replies of both agents.
    pub(super) fn receive_both<C: Call>(&mut self) -> Result<[C::Reply; 2], Fault> {
        each(|role| self.receive::<C>(role, PROMPT))
    }

    /// Waits for the reply of one agent, longer on slow hosts. Replies of the other agent are kept.
    pub(super) fn receive<C: Call>(
        &mut self,
        role: Role,
        timeout: Duration,
    ) -> Result<C::Reply, Fault> {
        match self.await_reply(role, timeout)? {
            // If the peer was lost, the other agent may know why.
            Reply::Failed(fault) => Err(self.root_cause(fault.context(role))),
            reply => C::receive(reply).map_err(|other| self.unexpected(role, &other)),
        }
    }

    fn await_reply(&mut self, role: Role, timeout: Duration) -> Result<Reply, Fault> {
        if let Some(at) = self.early.iter().position(|(of, _)| *of == role)
            && let Some((_, reply)) = self.early.remove(at)
        {
            return Ok(reply);
        }
        let timeout = self.timeout(timeout);
        let deadline = Instant::now() + timeout;
        let mut pause = WATCH;
        loop {
            match self.next_reply(deadline.min(Instant::now() + pause))? {
                Some((of, reply)) if of == role => return Ok(reply),
                Some(other) => self.early.push_back(other),
                None if Instant::now() >= deadline => return Err(self.silent(role, timeout)),
                None => pause = self.ping_all()?,
            }
        }
    }

    /// Waits. Errors at once if an agent is lost or replies, or the user cancels.
    pub(super) fn pass(&mut self, time: Duration) -> Result<(), Fault> {
        match self.next_reply(Instant::now() + time)? {
            None => Ok(()),
            Some((role, reply)) => Err(self.unexpected(role, &reply)),
        }
    }

    /// Like [`Self::pass`], until a given time; a reply that arrives before it is kept.
    pub(super) fn pass_until(&mut self, end: Instant) -> Result<(), Fault> {
        while let Some(reply) = self.next_reply(end)? {
            self.early.push_back(reply);
        }
        Ok(())
    }

    /// Waits for the next reply of any agent; `None` at the deadline.
    fn next_reply(&mut self, deadline: Instant) -> Result<Option<(Role, Reply)>, Fault> {
        loop {
            check_stop(self.stop)?;
            let left = deadline.saturating_duration_since(Instant::now());
            let (role, event) = match self.inbox.recv_timeout(left.min(POLL)) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone(self.lines[0].0)),
            };
            self.pinged[role as usize] = None;
            match event {
                AgentEvent::Reply(Reply::Ping(())) => {}
                AgentEvent::Reply(Reply::Lost(fault)) => {
                    return Err(self.root_cause(lost_stream(role, fault)));
                }
                AgentEvent::Reply(reply) => return Ok(Some((role, reply))),
                AgentEvent::Malformed(what) => {
                    let title = self.title(role, "agent");
                    return Err(Fault::failed(format!("{title} sent no valid reply: {what}")));
                }
                AgentEvent::Disconnected => return Err(self.gone(role)),
            }
        }
    }

    /// Pings the hosts to notice one that hangs. This may be the host of the other agent: the agent
    /// whose reply is awaited may itself be waiting for its peer. Returns when to check again.
    fn ping_all(&mut self) -> Result<Duration, Fault> {
        let mut pause = WATCH;
        for (role, line) in &mut self.lines {
            let (role, host) = (*role, self.hosts.of(*role));
            let pinged = &mut self.pinged[role as usize];
            let is_new = pinged.is_none();
            let patience = pinged.get_or_insert_with(|| Box::new(host.patience()));
            let mut left = patience.left();
            if is_new {
                // A pipe that accepts nothing counts as silent; a closed one causes another event.
                let sent = line.send(&Ping {}.into())?.map_err(|e| e.kind());
                if matches!(sent, Err(io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)) {
                    left = Duration::ZERO;
                }
            }
            if left.is_zero() {
                let how = host.kill_and_report(patience.begun);
                let text = format!("{} is lost: {how}", self.title(role, "host"));
                return Err(Fault::peer_lost(text));
            }
            pause = pause.min(left);
        }
        Ok(pause)
    }

    /// Returns the cause of a lost peer, if the other agent died or its engine failed; else the
    /// fault itself.
    fn root_cause(&mut self, effect: Fault) -> Fault {
        if effect.kind != FaultKind::PeerLost {
            return effect;
        }
        let deadline = Instant::now() + CAUSE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok((role, AgentEvent::Disconnected)) => return self.gone(role),
                Ok((role, AgentEvent::Reply(Reply::Lost(fault))))
                    if fault.kind != FaultKind::PeerLost =>
                {
                    return lost_stream(role, fault);
                }
                Ok(_) => {}
                Err(_) => return effect,
            }
        }
    }

    fn title(&self, role: Role, noun: &str) -> String {
        match self.stewards {
            true => format!("the steward on the {role}'s host"),
            false => format!("the {role}'s {noun}"),
        }
    }

    fn silent(&mut self, role: Role, timeout: Duration) -> Fault {
        let title = self.title(role, "agent");
        let mut text = format!("{title} did not answer within {} s", timeout.as_secs());
        if let Some(console) = self.hosts.of(role).console() {
            text.push_str(&format!("; its host's console shows: {console}"));
        }
        Fault::peer_lost(text)
    }

    fn gone(&mut self, role: Role) -> Fault {
        let how = self.hosts.of(role).exit_report();
        Fault::peer_lost(format!("{} is gone: {how}", self.title(role, "agent")))
    }

    fn unexpected(&self, role: Role, reply: &Reply) -> Fault {
        let reply: String = serde_json::to_string(reply).unwrap_or_default();
        let reply: String = reply.chars().take(80).collect();
        Fault::failed(format!("{} answered out of turn: {reply}", self.title(role, "agent")))
    }
}

/// Errors if the user has cancelled.
pub(super) fn check_stop(stop: &AtomicBool) -> Result<(), Fault> {
    let is_cancelled = stop.load(Ordering::Relaxed);
    let fault = || Fault::new(FaultKind::Interrupted, "interrupted by the user");
    if is_cancelled { Err(fault()) } else { Ok(()) }
}

/// Replaces a lost peer by cancellation if the user has cancelled: a signal to the whole process
/// group, or to all processes of a service, may end a host before the stop flag is checked.
pub(super) fn unless_stopped(stop: &AtomicBool, fault: Fault) -> Fault {
    if fault.kind != FaultKind::PeerLost {
        return fault;
    }
    let deadline = Instant::now() + CAUSE;
    loop {
        match check_stop(stop) {
            Err(stopped) => return stopped,
            Ok(()) if Instant::now() >= deadline => return fault,
            Ok(()) => std::thread::sleep(POLL),
        }
    }
}

fn lost_stream(role: Role, fault: Fault) -> Fault {
    fault.context(format!("{role} lost its stream"))
}

/// An event of an agent's pipe.
pub(super) enum AgentEvent {
    Reply(Reply),
    /// A line that is not a reply.
    Malformed(String),
    Disconnected,
}

/// Writes to an agent.
pub(super) struct Line(Box<dyn Write + Send>);

impl Line {
    /// Starts reading from the agent of a role. Each event goes to `events`.
    pub(super) fn open(
        pipe: AgentPipe,
        role: Role,
        events: Sender<(Role, AgentEvent)>,
    ) -> Result<Line, Fault> {
        let AgentPipe { to_agent, from_agent } = pipe;
        let notify = move |event| events.send((role, event)).is_ok();
        spawn_thread("agent-pipe", move || read_replies(from_agent, &notify))?;
        Ok(Line(to_agent))
    }

    /// Sends a request; an I/O error means that the agent is gone.
    pub(super) fn send(&mut self, request: &Request) -> Result<io::Result<()>, Fault> {
        let line = line_of("a request", request)?;
        Ok(self.0.write_all(&line).and_then(|()| self.0.flush()))
    }
}

fn read_replies(from_agent: Box<dyn Read + Send>, notify: &dyn Fn(AgentEvent) -> bool) {
    let mut from_agent = BufReader::new(from_agent);
    if let Err(printed) = pass_preface(&mut from_agent) {
        notify(printed.map_or(AgentEvent::Disconnected, |printed| {
            AgentEvent::Malformed(format!("no agent started; the output was: {printed}"))
        }));
        return;
    }
    while let Ok(Some(line)) = read_line(&mut from_agent) {
        let reply = serde_json::from_slice(&line);
        let event = reply.map_or_else(|e| AgentEvent::Malformed(e.to_string()), AgentEvent::Reply);
        if !notify(event) {
            return;
        }
    }
    notify(AgentEvent::Disconnected);
}

/// Skips everything before the agent's first line. The error is what was printed instead, or `None`
/// if the pipe ended.
fn pass_preface(from_agent: &mut impl BufRead) -> Result<(), Option<String>> {
    let mut preface = from_agent.take(LONGEST_PREFACE);
    let mut first = None;
    loop {
        let mut line = Vec::new();
        match preface.read_until(b'\n', &mut line) {
            Ok(1..) => {}
            _ if preface.limit() == 0 => return Err(Some(first.unwrap_or_default())),
            _ => return Err(None),
        }
        let line = line.trim_ascii_end();
        // A prompt may precede it.
        if line.ends_with(SYNC.as_bytes()) {
            return Ok(());
        }
        let shown = || String::from_utf8_lossy(line).chars().take(80).collect();
        first.get_or_insert_with(shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(text: &str) -> (Result<(), Option<String>>, String) {
        let mut reader = text.as_bytes();
        let passed = pass_preface(&mut reader);
        (passed, String::from_utf8_lossy(reader).into_owned())
    }

    #[test]
    fn skips_the_output_of_a_login_shell() {
        let shell = format!("Welcome!\n\nLast login: today\nuser@host$ {SYNC}\nrest");
        assert_eq!(passed(&shell), (Ok(()), "rest".into()));
        assert_eq!(passed(&format!("{SYNC}\r\n")).0, Ok(()));
        assert_eq!(passed("").0, Err(None));
        assert_eq!(passed("Connection refused\n").0, Err(None));
    }

    #[test]
    fn endless_output_is_not_an_agent() {
        let flood = "yes\n".repeat(LONGEST_PREFACE as usize);
        assert_eq!(passed(&flood).0, Err(Some("yes".into())));
        let (line, rest) = passed(&"x".repeat(2 * LONGEST_PREFACE as usize));
        assert!(line.unwrap_err().unwrap().starts_with("xxx"));
        assert_eq!(rest.len(), LONGEST_PREFACE as usize, "no more than that was read");
    }
}
