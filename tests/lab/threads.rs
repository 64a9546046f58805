//! A testbed without hosts: both agents are threads of this process, over pipes, with
//! loopback TCP between them.

use bytepath::host::{Adapter, AgentPipe, Host};
use bytepath::meter::Meter;
use bytepath::path::DataPath;
use bytepath::record::wire::Nic;
use bytepath::record::{CellId, StudyHeader, Trial};
use bytepath::run::{Observer, agent};
use bytepath::testbed::Deployment;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Starts both agents; they know these paths and meters. `nic` is the receiver's card.
pub fn start(
    paths: &'static [&'static DataPath],
    meters: &'static [&'static dyn Meter],
    nic: Option<Nic>,
) -> Deployment {
    let host = |adapter| {
        let (requests, to_agent) = std::io::pipe().unwrap();
        let (from_agent, replies) = std::io::pipe().unwrap();
        std::thread::spawn(move || agent::serve(requests, replies, paths, meters));
        let pipe = AgentPipe { to_agent: Box::new(to_agent), from_agent: Box::new(from_agent) };
        Thread { pipe: Some(pipe), adapter }
    };
    Deployment::of([host(Adapter::Virtual), host(nic.map_or(Adapter::Virtual, Adapter::Known))])
}

/// An agent that is a thread.
struct Thread {
    pipe: Option<AgentPipe>,
    adapter: Adapter,
}

impl Host for Thread {
    fn take_pipe(&mut self) -> AgentPipe {
        self.pipe.take().unwrap()
    }
    fn address(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }
    fn device(&self) -> Option<String> {
        None
    }
    fn adapter(&self) -> Adapter {
        self.adapter.clone()
    }
    fn last_words(&mut self) -> String {
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
