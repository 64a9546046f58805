//! Where roles run: testbeds (two hosts and the link between them), and what
//! is known of a host. One file per testbed, one line each in [`CATALOG`].

mod card;
mod child;
mod doctor;
mod doctor_card;
mod energy;
mod facts;
mod link;
mod netns;
mod nic;
mod send_memory;

pub use card::{Card, record as record_cards};
pub use doctor::{Moment, examine, moment};
pub use facts::survey;
pub use link::apply as apply_link_end;

use crate::record::wire::LinkEnd;
use crate::record::{Fault, LinkSettings, Role, Support};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::Path;

/// Two hosts and the link between them.
pub trait Testbed: Sync {
    /// Name in the catalogue, as the user types it.
    fn name(&self) -> &'static str;

    /// One line: what it is.
    fn summary(&self) -> &'static str;

    /// Whether it can be raised from here. Tries it for real where that is
    /// the only honest way, and leaves nothing behind.
    fn probe(&self) -> Support;

    /// Starts one agent per role. `program` is the bytepath binary to run as
    /// agent. The link is not there yet: the agents set it up when they are
    /// asked to (see [`Raised::link_end`]).
    fn raise(&self, program: &Path) -> Result<Box<dyn Raised>, Fault>;
}

/// A testbed that is up. Dropping it ends its agents and takes it down.
pub trait Raised: Send {
    /// The pipe to an agent, once.
    fn take_pipe(&mut self, role: Role) -> AgentPipe;

    /// What to ask of an agent so that its end of the link exists; the
    /// sender's end is set up first. None where the link is not ours to make.
    fn link_end(
        &self,
        role: Role,
        settings: &LinkSettings,
        softirq_cpu: Option<u32>,
    ) -> Option<LinkEnd>;

    /// Address of a role on the link.
    fn address(&self, role: Role) -> IpAddr;

    /// Network device of a role on the link.
    fn device(&self, role: Role) -> Option<String>;

    /// How an agent that went away ended, in words: "killed by signal 9
    /// (SIGKILL)", "exited with code 1: THE LAST LINE IT PRINTED".
    fn last_words(&mut self, role: Role) -> String;
}

/// The two ends of a pipe to an agent.
pub struct AgentPipe {
    /// What the agent reads.
    pub to_agent: Box<dyn Write + Send>,
    /// What the agent writes.
    pub from_agent: Box<dyn Read + Send>,
}

/// Every testbed.
pub static CATALOG: &[&dyn Testbed] = &[&netns::Netns];
