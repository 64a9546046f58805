//! A role on this host, at the other end of a guest's wire: an agent in the network
//! namespace that has the tap.

use super::super::AgentPipe;
use super::super::child::AgentProcess;
use super::super::keeper::Keeper;
use super::super::netns;
use crate::record::wire::LinkEnd;
use crate::record::{Fault, LinkSettings, Role};
use crate::sys::namespace::{self, Kept};
use std::path::Path;
use std::sync::Arc;

/// An agent on this host. Dropping it ends the agent; the namespace stays.
pub struct Beside {
    agent: AgentProcess,
    // Dropped last: the agent dies with the thread that it keeps.
    _keeper: Keeper,
    /// The role it plays.
    pub role: Role,
}

impl Beside {
    /// Starts the agent.
    pub fn start(role: Role, namespace: &Arc<Kept>, program: &Path) -> Result<Beside, Fault> {
        let (namespace, program) = (namespace.clone(), program.to_owned());
        let start = move || {
            let child = namespace::spawn_into(AgentProcess::command(&program), &namespace);
            child.map(AgentProcess::new).map_err(|refused| {
                Fault::system(format!("starting {} on the wire", program.display()), &refused.error)
                    .context(refused.step.words())
            })
        };
        let (keeper, agent) = Keeper::start(start)?;
        Ok(Beside { agent, _keeper: keeper, role })
    }

    /// The pipe to it.
    pub fn take_pipe(&mut self) -> AgentPipe {
        self.agent.take_pipe()
    }

    /// How it ended, in words.
    pub fn last_words(&mut self) -> String {
        self.agent.last_words()
    }

    /// Its end of the link. A tap hands on what a guest sends as it is, so there is
    /// nothing on it that would merge packets.
    pub fn link_end(&self, settings: &LinkSettings, softirq_cpu: Option<u32>) -> LinkEnd {
        LinkEnd {
            role: self.role,
            device: netns::device(self.role).to_owned(),
            peer: None,
            address: netns::address(self.role),
            prefix: netns::PREFIX,
            settings: LinkSettings { hw_gro: false, ..settings.clone() },
            softirq_cpu,
            softirq_required: false,
            patience: LinkEnd::moment(),
            neighbour: None,
        }
    }
}
