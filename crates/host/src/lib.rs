//! What a host is: an agent in its place, reached over a pipe, with an address on
//! the link. A host knows no role and no other host; which hosts and links make a
//! deployment is up to the testbed. Facts of a host, the doctor's rules, one
//! end of a link and the steward of its settings are here too.

#![forbid(unsafe_code)]

mod attachment;
mod boot;
mod build;
mod card;
mod child;
mod descriptors;
mod doctor;
mod doctor_card;
mod doctor_dsa;
mod doctor_pair;
mod energy;
mod facts;
mod fingerprint;
pub mod guest;
mod hops;
mod keeper;
mod link;
mod namespace;
mod nic;
mod process_host;
mod renew;
mod send_memory;
mod steward;
mod sysctl;
mod tail;
pub mod testbed;

pub use attachment::{Attachment, HwGro};
pub use boot::{Boot, echoes};
pub use build::{VERSION, of as build_of, own as own_build};
pub use card::{Card, record as record_cards};
pub use child::{AgentProcess, ending};
pub use descriptors::link_end;
pub use doctor::{Moment, examine, moment};
pub use doctor_dsa::examine_dsa;
pub use doctor_pair::examine_pair;
pub use facts::survey;
pub use fingerprint::{Fingerprint, differences, fingerprint};
pub use hops::hops;
pub use keeper::LocalAgent;
pub use link::await_carrier;
pub use namespace::{pair_of_agents, remedy};
pub use nic::nic;
pub use process_host::ProcessHost;
pub use steward::{LocalSteward, Steward};
pub use sysctl::set_sysctls;
pub use tail::Tail;

use bytepath_record::LinkSettings;
use bytepath_record::wire::{LinkEnd, Nic};
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
    fn last_words(&mut self) -> String;

    /// Its address on the link; none where the testbed does not know it.
    fn address(&self) -> Option<IpAddr>;

    /// Its network device on the link; none where the testbed does not know it.
    fn device(&self) -> Option<String>;

    /// What to ask of its agent so that its end of the link exists. None where the
    /// link is not ours to make.
    fn link_end(&self, settings: &LinkSettings, softirq_cpu: Option<u32>) -> Option<LinkEnd> {
        let _ = (settings, softirq_cpu);
        None
    }

    /// What its device is.
    fn adapter(&self) -> Adapter {
        Adapter::Virtual
    }

    /// How long its agent may leave a ping unanswered before it counts as lost.
    fn silence(&self) -> Duration {
        SILENCE
    }

    /// Gives up a host that left a ping unanswered, and says what it showed last.
    fn give_up(&mut self) -> String {
        format!("its agent did not answer a ping within {} s", self.silence().as_secs_f64())
    }

    /// What the console of a host that does not answer shows, if it has one.
    fn console(&mut self) -> Option<String> {
        None
    }

    /// Time that it took to boot for this deployment; none where it was up before.
    fn booted(&self) -> Option<Duration> {
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
