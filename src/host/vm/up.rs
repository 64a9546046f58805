//! Sessions that are up, as the controller sees them.

use super::super::{AgentPipe, Raised, netns};
use super::alone;
use super::beside::Beside;
use super::machine::{FromAgent, Machine, ToAgent};
use super::wire::Wire;
use crate::record::wire::LinkEnd;
use crate::record::{LinkSettings, Role};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Sessions that are up. Dropping it takes them down; the guests stay.
pub struct Up {
    /// The role of this host; it goes first.
    pub beside: Option<Beside>,
    /// One for both roles, or one for each role that is in a guest.
    pub parts: Vec<Part>,
    /// Process id of the receiver's agent in the guest that has both roles.
    pub receiver: u32,
    /// What agents in guests write, by role.
    pub pipes: [Option<Receiver<Vec<u8>>>; 2],
    /// What is between the roles, where they are not in one guest.
    pub wire: Option<Wire>,
}

/// A guest in which a session is up.
pub struct Part {
    /// The guest.
    pub machine: Arc<Machine>,
    /// Number of the session.
    pub session: u32,
    /// The role it plays, where the other one is elsewhere.
    pub alone: Option<Role>,
}

impl Up {
    fn part(&self, role: Role) -> Option<&Part> {
        self.parts.iter().find(|part| part.alone.is_none_or(|alone| alone == role))
    }

    fn beside(&mut self, role: Role) -> Option<&mut Beside> {
        self.beside.as_mut().filter(|beside| beside.role == role)
    }
}

impl Raised for Up {
    fn take_pipe(&mut self, role: Role) -> AgentPipe {
        if let Some(beside) = self.beside(role) {
            return beside.take_pipe();
        }
        let to_agent: Box<dyn Write + Send> = match self.part(role) {
            Some(Part { machine, session, .. }) => {
                Box::new(ToAgent { machine: machine.clone(), session: *session, role })
            }
            None => Box::new(io::sink()),
        };
        let from_agent: Box<dyn Read + Send> = match self.pipes[role as usize].take() {
            Some(pipe) => Box::new(FromAgent { pipe, rest: Vec::new() }),
            None => Box::new(io::empty()),
        };
        AgentPipe { to_agent, from_agent }
    }

    fn link_end(
        &self,
        role: Role,
        settings: &LinkSettings,
        softirq_cpu: Option<u32>,
    ) -> Option<LinkEnd> {
        if let Some(beside) = self.beside.as_ref().filter(|beside| beside.role == role) {
            return Some(beside.link_end(settings, softirq_cpu));
        }
        Some(match &self.wire {
            None => netns::veth_end(role, settings, softirq_cpu, self.receiver),
            Some(Wire::Sockets(_)) => alone::device_end(role, settings, softirq_cpu),
            // What crosses a tap whole is received whole only by a device that takes
            // large packets, which its driver calls hardware GRO (virtio_net).
            Some(Wire::Taps { .. }) => {
                let hw_gro = settings.hw_gro || settings.tso;
                let settings = LinkSettings { hw_gro, ..settings.clone() };
                alone::device_end(role, &settings, softirq_cpu)
            }
        })
    }

    fn address(&self, role: Role) -> IpAddr {
        netns::address(role)
    }

    fn device(&self, role: Role) -> Option<String> {
        let named = self.wire.is_none() || self.beside.as_ref().is_some_and(|b| b.role == role);
        Some(if named { netns::device(role) } else { alone::DEVICE }.to_owned())
    }

    fn link_facts(&self) -> Vec<(&'static str, String)> {
        self.wire.as_ref().map(Wire::facts).unwrap_or_default()
    }

    fn last_words(&mut self, role: Role) -> String {
        if let Some(beside) = self.beside(role) {
            return beside.last_words();
        }
        match self.part(role) {
            Some(Part { machine, session, .. }) => machine.last_words(*session, role),
            None => "never begun".to_owned(),
        }
    }

    fn console(&mut self, role: Role) -> Option<String> {
        let Part { machine, .. } = self.part(role)?;
        Some(machine.console()).filter(|text| !text.is_empty())
    }

    fn hangs(&mut self, role: Role) -> Option<String> {
        self.part(role).and_then(|part| part.machine.hangs())
    }

    fn booted(&self, role: Role) -> Option<Duration> {
        self.part(role).map(|part| part.machine.booted)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.beside = None;
        for Part { machine, session, .. } in &self.parts {
            machine.lower(*session);
        }
    }
}
