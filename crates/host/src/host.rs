//! A host as the controller uses it: an agent, its pipe and its place on the link.

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

    /// Its address on the link; `None` if the testbed does not know it.
    fn address(&self) -> Option<IpAddr>;

    /// Its network device on the link; `None` if the testbed does not know it.
    fn device(&self) -> Option<String>;

    /// What to ask of its agent so that its end of the link exists. `None` if the
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

    /// Ends a host that left a ping unanswered, and reports what it showed last.
    fn give_up(&mut self) -> String {
        format!("its agent did not answer a ping within {} s", self.silence().as_secs_f64())
    }

    /// What the console of a host that does not answer shows, if it has one.
    fn console(&mut self) -> Option<String> {
        None
    }

    /// Time that it took to boot for this deployment; `None` if it was up before.
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
