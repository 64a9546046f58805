//! Which CPUs the parts of a stream's work run on.

use super::{Cell, Role};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the work of a cell runs, as it was asked for. Where it really ran is
/// measured (meter `softirqs`). None leaves the choice to the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    /// CPU of the sender's threads.
    pub sender: Option<u32>,
    /// CPU of the receiver's threads.
    pub receiver: Option<u32>,
    /// CPU of the receive work of the kernel.
    #[serde(default, skip_serializing_if = "SoftirqCpu::is_link")]
    pub softirq: SoftirqCpu,
    /// CPU of io_uring's worker threads at both ends (`IORING_REGISTER_IOWQ_AFF`).
    #[serde(default, rename = "io-wq", skip_serializing_if = "Option::is_none")]
    pub io_wq: Option<u32>,
    /// CPU of the vhost thread of a virtual machine's network device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost: Option<u32>,
}

/// CPU of the kernel's receive work at the receiver: the softirqs of its device, or
/// the thread that polls for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SoftirqCpu {
    /// As the link has it: a polling thread runs on the receiver's CPU, RPS goes to
    /// the CPU it names, and without both it runs where the sender's work raises it.
    #[default]
    Link,
    /// A polling thread may run anywhere.
    Free,
    /// On this CPU: a polling thread is pinned there, else RPS moves packets there.
    Cpu(u32),
}

impl SoftirqCpu {
    /// Whether nothing was said of it.
    pub fn is_link(&self) -> bool {
        *self == SoftirqCpu::Link
    }

    /// The CPU that was asked for by its number.
    pub fn cpu(self) -> Option<u32> {
        match self {
            SoftirqCpu::Cpu(cpu) => Some(cpu),
            SoftirqCpu::Link | SoftirqCpu::Free => None,
        }
    }
}

impl Placement {
    /// Each role on a CPU, and nothing else said.
    pub const fn pinned(sender: u32, receiver: u32) -> Placement {
        Placement {
            sender: Some(sender),
            receiver: Some(receiver),
            softirq: SoftirqCpu::Link,
            io_wq: None,
            vhost: None,
        }
    }

    /// The CPU a role is pinned to.
    pub fn cpu(&self, role: Role) -> Option<u32> {
        match role {
            Role::Sender => self.sender,
            Role::Receiver => self.receiver,
        }
    }

    /// Every CPU that was asked for by its number, with what is to run there.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        let parts = [
            ("sender", self.sender),
            ("receiver", self.receiver),
            ("softirq", self.softirq.cpu()),
            ("io-wq", self.io_wq),
            ("vhost", self.vhost),
        ];
        parts.into_iter().filter_map(|(part, cpu)| Some((part, cpu?)))
    }
}

impl Cell {
    /// The CPU that the kernel's receive work was asked to run on, by its placement
    /// or by its link; none where nobody asked.
    pub fn softirq_cpu(&self) -> Option<u32> {
        match self.placement.softirq {
            SoftirqCpu::Cpu(cpu) => Some(cpu),
            SoftirqCpu::Free => None,
            SoftirqCpu::Link if self.link.threaded_napi => self.placement.receiver,
            SoftirqCpu::Link => self.link.rps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Half;

    #[test]
    fn what_was_written_before_there_was_more_to_say_reads_the_same() {
        let old = r#"{"sender":0,"receiver":1}"#;
        let placement: Placement = serde_json::from_str(old).unwrap();
        assert_eq!(placement, Placement::pinned(0, 1));
        assert_eq!(serde_json::to_string(&placement).unwrap(), old);
        let all =
            Placement { softirq: SoftirqCpu::Cpu(3), io_wq: Some(2), ..Placement::pinned(0, 1) };
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(text, r#"{"sender":0,"receiver":1,"softirq":{"cpu":3},"io-wq":2}"#);
        assert_eq!(serde_json::from_str::<Placement>(&text).unwrap(), all);
    }

    #[test]
    fn who_asks_for_a_cpu_of_the_receive_work() {
        let mut cell = Cell::new("a", Half::plain("socket"), Half::plain("socket"));
        cell.placement = Placement::pinned(0, 1);
        assert_eq!(cell.softirq_cpu(), Some(1), "the polling thread goes with the receiver");
        cell.placement.softirq = SoftirqCpu::Cpu(2);
        assert_eq!(cell.softirq_cpu(), Some(2));
        cell.placement.softirq = SoftirqCpu::Free;
        assert_eq!(cell.softirq_cpu(), None);
        cell.placement.softirq = SoftirqCpu::Link;
        cell.link.threaded_napi = false;
        assert_eq!(cell.softirq_cpu(), None, "it runs where the sender's work raises it");
        cell.link.rps = Some(3);
        assert_eq!(cell.softirq_cpu(), Some(3));
    }
}
