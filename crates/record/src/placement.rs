//! Which CPUs the parts of a stream's work run on.

use super::{Cell, Role};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the work of a cell runs, as it was requested. Where it really ran is
/// measured (meter `softirqs`). None leaves the choice to the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    /// CPU of the sender's threads.
    pub sender: Option<u32>,
    /// CPU of the receiver's threads.
    pub receiver: Option<u32>,
    /// CPU of the kernel's work for the sender's device: acknowledgements that come, the
    /// end of transmissions.
    #[serde(default, rename = "sender-softirq", skip_serializing_if = "crate::is_default")]
    pub sender_softirq: SoftirqCpu,
    /// CPU of the receive work of the kernel.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub softirq: SoftirqCpu,
    /// CPU of io_uring's worker threads at both ends (`IORING_REGISTER_IOWQ_AFF`).
    #[serde(default, rename = "io-wq", skip_serializing_if = "Option::is_none")]
    pub io_wq: Option<u32>,
    /// CPU of the vhost thread of a virtual machine's network device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost: Option<u32>,
}

/// CPU of the kernel's work for the device of one end: its softirqs, or the thread that
/// polls for it. On a card, the CPU that its queues interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SoftirqCpu {
    /// As the link has it. At the receiver, a polling thread runs on the receiver's CPU,
    /// and RPS goes to the CPU it names; otherwise it runs where it is raised: by a card's
    /// interrupt, and on a veth pair by the other end's work.
    #[default]
    Link,
    /// A polling thread may run anywhere.
    Free,
    /// On this CPU: a polling thread is pinned there, a card's queues interrupt it, else
    /// RPS moves packets there.
    Cpu(u32),
}

impl SoftirqCpu {
    /// The CPU that was requested by its number.
    pub fn cpu(self) -> Option<u32> {
        match self {
            SoftirqCpu::Cpu(cpu) => Some(cpu),
            SoftirqCpu::Link | SoftirqCpu::Free => None,
        }
    }
}

impl Placement {
    /// Each role on a CPU, and nothing else requested.
    pub const fn pinned(sender: u32, receiver: u32) -> Placement {
        Placement {
            sender: Some(sender),
            receiver: Some(receiver),
            sender_softirq: SoftirqCpu::Link,
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

    /// Where the kernel's work for the device of a role was asked to run.
    pub fn softirq(&self, role: Role) -> SoftirqCpu {
        match role {
            Role::Sender => self.sender_softirq,
            Role::Receiver => self.softirq,
        }
    }

    /// Every CPU that was requested by its number, with what is to run there.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        self.parts().map(|(part, _, cpu)| (part, cpu))
    }

    /// Those of them that are on the host of a role, where the hosts are apart.
    pub fn named_at(&self, role: Role) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        let here = self.parts().filter(move |(_, of, _)| of.is_none_or(|of| of == role));
        here.map(|(part, _, cpu)| (part, cpu))
    }

    /// Parts by name, each with the role that it is of; none is of both.
    fn parts(&self) -> impl Iterator<Item = (&'static str, Option<Role>, u32)> + use<> {
        let parts = [
            ("sender", Some(Role::Sender), self.sender),
            ("receiver", Some(Role::Receiver), self.receiver),
            ("sender-softirq", Some(Role::Sender), self.sender_softirq.cpu()),
            ("softirq", Some(Role::Receiver), self.softirq.cpu()),
            ("io-wq", None, self.io_wq),
            ("vhost", None, self.vhost),
        ];
        parts.into_iter().filter_map(|(part, of, cpu)| Some((part, of, cpu?)))
    }
}

impl Cell {
    /// The CPU that the kernel's work for a role's device was asked to run on, by the
    /// placement or by the link; none if not requested.
    pub fn softirq_cpu(&self, role: Role) -> Option<u32> {
        match self.placement.softirq(role) {
            SoftirqCpu::Cpu(cpu) => Some(cpu),
            SoftirqCpu::Free => None,
            SoftirqCpu::Link if role == Role::Sender => None,
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
        let all = Placement {
            softirq: SoftirqCpu::Cpu(3),
            sender_softirq: SoftirqCpu::Free,
            io_wq: Some(2),
            ..Placement::pinned(0, 1)
        };
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(
            text,
            r#"{"sender":0,"receiver":1,"sender-softirq":"free","softirq":{"cpu":3},"io-wq":2}"#
        );
        assert_eq!(serde_json::from_str::<Placement>(&text).unwrap(), all);
    }

    #[test]
    fn who_requests_a_cpu_of_the_receive_work() {
        let mut cell = Cell::new("a", Half::plain("socket"), Half::plain("socket"));
        cell.placement = Placement::pinned(0, 1);
        assert_eq!(
            cell.softirq_cpu(Role::Receiver),
            Some(1),
            "the polling thread goes with the receiver"
        );
        cell.placement.softirq = SoftirqCpu::Cpu(2);
        assert_eq!(cell.softirq_cpu(Role::Receiver), Some(2));
        cell.placement.softirq = SoftirqCpu::Free;
        assert_eq!(cell.softirq_cpu(Role::Receiver), None);
        cell.placement.softirq = SoftirqCpu::Link;
        cell.link.threaded_napi = false;
        assert_eq!(
            cell.softirq_cpu(Role::Receiver),
            None,
            "it runs where the sender's work raises it"
        );
        cell.link.rps = Some(3);
        assert_eq!(cell.softirq_cpu(Role::Receiver), Some(3));
        assert_eq!(cell.softirq_cpu(Role::Sender), None);
        cell.placement.sender_softirq = SoftirqCpu::Cpu(4);
        assert_eq!(cell.softirq_cpu(Role::Sender), Some(4));
    }

    #[test]
    fn a_host_of_its_own_has_the_parts_of_its_role_and_those_of_both() {
        let all = Placement {
            sender_softirq: SoftirqCpu::Cpu(2),
            softirq: SoftirqCpu::Cpu(3),
            io_wq: Some(4),
            ..Placement::pinned(0, 1)
        };
        let at = |role| all.named_at(role).collect::<Vec<_>>();
        assert_eq!(at(Role::Sender), [("sender", 0), ("sender-softirq", 2), ("io-wq", 4)]);
        assert_eq!(at(Role::Receiver), [("receiver", 1), ("softirq", 3), ("io-wq", 4)]);
        assert_eq!(all.named().count(), 5);
    }
}
