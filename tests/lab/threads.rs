//! A testbed without hosts: both agents are threads of this process, over pipes, with
//! loopback TCP between them.

use bytepath::host::{AgentPipe, Nic, Raised};
use bytepath::meter::Meter;
use bytepath::path::DataPath;
use bytepath::record::wire::LinkEnd;
use bytepath::record::{CellId, Fault, LinkSettings, Role, StudyHeader, Trial};
use bytepath::run::{Observer, agent};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The testbed while it is up.
pub struct Threads {
    pipes: [Option<AgentPipe>; 2],
    nic: Option<Nic>,
}

impl Threads {
    /// Starts both agents; they know these paths and meters. `nic` is the receiver's card.
    pub fn start(
        paths: &'static [&'static DataPath],
        meters: &'static [&'static dyn Meter],
        nic: Option<Nic>,
    ) -> Threads {
        let agent = || {
            let (requests, to_agent) = std::io::pipe().unwrap();
            let (from_agent, mut replies) = std::io::pipe().unwrap();
            std::thread::spawn(move || agent::serve(requests, &mut replies, paths, meters));
            Some(AgentPipe { to_agent: Box::new(to_agent), from_agent: Box::new(from_agent) })
        };
        Threads { pipes: [agent(), agent()], nic }
    }
}

impl Raised for Threads {
    fn take_pipe(&mut self, role: Role) -> AgentPipe {
        self.pipes[role as usize].take().unwrap()
    }
    fn link_end(&self, _: Role, _: &LinkSettings, _: Option<u32>) -> Option<LinkEnd> {
        None
    }
    fn address(&self, _: Role) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }
    fn device(&self, _: Role) -> Option<String> {
        None
    }
    fn nic(&self, role: Role) -> Result<Option<Nic>, Fault> {
        Ok(self.nic.clone().filter(|_| role == Role::Receiver))
    }
    fn last_words(&mut self, _: Role) -> String {
        "its thread ended".into()
    }
}

/// An observer who says nothing.
pub struct Silent;

impl Observer for Silent {
    fn begins(&mut self, _: &StudyHeader, _: usize) {}
    fn trial_begins(&mut self, _: usize, _: &CellId, _: u32) {}
    fn trial_ends(&mut self, _: usize, _: &Trial, _: Duration) {}
}
