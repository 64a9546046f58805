//! An agent in a guest, as a host of a deployment.

use super::frame::{LARGEST, Layout};
use super::machine::{Machine, Session};
use super::nics::NicPair;
use crate::{Adapter, AgentPipe, Attachment, Host, Patience};
use bytepath_record::Fault;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// A host of a deployment that is an agent in a guest. The session ends with the last of its hosts;
/// the guest stays up.
pub struct GuestHost {
    session: Arc<Session>,
    /// Index of its agent in the session.
    agent: usize,
    written: Option<Receiver<Vec<u8>>>,
    attachment: Attachment,
    adapter: Adapter,
}

/// Raises both hosts in one guest, each in its own namespace. With `nics`, they have so many pairs
/// of this kind, made with these module parameters. `attachments` returns where each host is on the
/// link, given the process ids of the agents in the guest.
pub fn in_one_guest(
    machine: &Arc<Machine>,
    nics: Option<(&NicPair, u32, String)>,
    stop: &AtomicBool,
    attachments: impl FnOnce([u32; 2]) -> [Attachment; 2],
) -> Result<[GuestHost; 2], Fault> {
    let adapter = if nics.is_some() { Adapter::Asked } else { Adapter::Virtual };
    let layout = nics.map_or(Layout::Pair, |(pair, pairs, parameters)| Layout::Nics {
        pair: pair.name.to_owned(),
        pairs,
        parameters,
    });
    let (session, [first, second]) = machine.raise(layout, stop)?;
    let pids = [0, 1].map(|agent| session.pids.get(agent).copied().unwrap_or_default());
    let session = Arc::new(session);
    let [one, other] = attachments(pids);
    let host = |agent, written, attachment| GuestHost {
        session: session.clone(),
        agent,
        written: Some(written),
        attachment,
        adapter: adapter.clone(),
    };
    Ok([host(0, first, one), host(1, second, other)])
}

impl GuestHost {
    /// Raises a host in a guest of its own.
    pub fn alone(
        machine: &Arc<Machine>,
        stop: &AtomicBool,
        attachment: Attachment,
    ) -> Result<GuestHost, Fault> {
        let (session, [written, _]) = machine.raise(Layout::One, stop)?;
        let session = Arc::new(session);
        let adapter = Adapter::Virtual;
        Ok(GuestHost { session, agent: 0, written: Some(written), attachment, adapter })
    }
}

impl Host for GuestHost {
    fn take_pipe(&mut self) -> AgentPipe {
        let to_agent = ToAgent { session: self.session.clone(), agent: self.agent };
        let from_agent: Box<dyn Read + Send> = match self.written.take() {
            Some(written) => Box::new(FromAgent { written, rest: VecDeque::new() }),
            None => Box::new(io::empty()),
        };
        AgentPipe { to_agent: Box::new(to_agent), from_agent }
    }

    fn exit_report(&mut self) -> String {
        self.session.exit_report(self.agent)
    }

    fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    fn adapter(&self) -> Adapter {
        self.adapter.clone()
    }

    fn patience(&self) -> Patience {
        let machine = &self.session.machine;
        Patience::with_guest(machine.limits.silence, machine.pid)
    }

    fn kill_and_report(&mut self, since: Instant) -> String {
        self.session.machine.kill_and_report(since)
    }

    fn console(&mut self) -> Option<String> {
        Some(self.session.machine.console()).filter(|text| !text.is_empty())
    }

    fn booted(&self) -> Option<Duration> {
        Some(self.session.machine.booted)
    }

    fn qemu(&self) -> Option<u32> {
        Some(self.session.machine.pid)
    }
}

/// The controller's pipe to an agent.
struct ToAgent {
    session: Arc<Session>,
    agent: usize,
}

impl Write for ToAgent {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = bytes.get(..bytes.len().min(LARGEST)).unwrap_or_default();
        self.session.write(self.agent, part)?;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The controller's pipe from an agent.
struct FromAgent {
    written: Receiver<Vec<u8>>,
    rest: VecDeque<u8>,
}

impl Read for FromAgent {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.written.recv() {
                Ok(bytes) => self.rest = bytes.into(),
                Err(_) => return Ok(0),
            }
        }
        self.rest.read(buffer)
    }
}
