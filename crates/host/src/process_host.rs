//! A host whose agent is a process of this machine: in a network namespace, next to
//! a guest, with a device that is lent to it, or behind a command of the user's.

use super::{Adapter, AgentPipe, Attachment, Host, LocalAgent};
use bytepath_record::LinkSettings;
use bytepath_record::wire::LinkEnd;
use std::net::IpAddr;

/// An agent of this machine and its end of the link.
pub struct ProcessHost {
    pub agent: LocalAgent,
    /// Where it is on the link.
    pub attachment: Attachment,
    /// What its device is.
    pub adapter: Adapter,
}

impl Host for ProcessHost {
    fn take_pipe(&mut self) -> AgentPipe {
        self.agent.process.take_pipe()
    }

    fn close(&mut self) {
        self.agent.process.close();
    }

    fn last_words(&mut self) -> String {
        self.agent.process.last_words()
    }

    fn address(&self) -> Option<IpAddr> {
        self.attachment.address()
    }

    fn device(&self) -> Option<String> {
        self.attachment.device()
    }

    fn link_end(&self, settings: &LinkSettings, softirq_cpu: Option<u32>) -> Option<LinkEnd> {
        self.attachment.end(settings, softirq_cpu)
    }

    fn adapter(&self) -> Adapter {
        self.adapter.clone()
    }
}
