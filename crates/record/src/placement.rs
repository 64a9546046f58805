//! Which CPUs the parts of a stream's work run on.

use super::{Cell, Fault, Role, distinct, joined};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where the work of a cell runs, as it was requested. Where it really ran is
/// measured (meter `softirqs`). None leaves the choice to the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    /// CPU of the sender's threads.
    pub sender: Option<u32>,
    /// CPU of the receiver's threads.
    pub receiver: Option<u32>,
    /// CPUs that the sender's threads take in turn, in place of `sender`.
    #[serde(default, rename = "sender-turns", skip_serializing_if = "crate::is_default")]
    pub sender_turns: CpuTurns,
    /// CPUs that the receiver's threads take in turn, in place of `receiver`.
    #[serde(default, rename = "receiver-turns", skip_serializing_if = "crate::is_default")]
    pub receiver_turns: CpuTurns,
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
    /// On these CPUs, which the adapters of the link take in turn.
    Turns(CpuTurns),
}

/// CPUs that the threads of an end, or the adapters of its link, take in turn: the first has the
/// first, and after the last comes the first again. Empty if there is no choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
#[schemars(with = "Vec<u32>")]
pub struct CpuTurns {
    cpus: [u32; CpuTurns::MOST],
    count: usize,
}

impl CpuTurns {
    /// Most CPUs: as many as a link has adapters.
    pub const MOST: usize = 16;

    /// No CPU.
    pub const NONE: CpuTurns = CpuTurns { cpus: [0; CpuTurns::MOST], count: 0 };

    /// The CPUs, in their order.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus[..self.count]
    }

    /// The CPU of the thread or adapter of this number.
    pub fn nth(&self, number: u32) -> Option<u32> {
        let count = self.count.max(1);
        self.cpus().get(number as usize % count).copied()
    }
}

impl TryFrom<Vec<u32>> for CpuTurns {
    type Error = Fault;

    fn try_from(all: Vec<u32>) -> Result<CpuTurns, Fault> {
        let mut turns = CpuTurns { count: all.len(), ..CpuTurns::NONE };
        let Some(cpus) = turns.cpus.get_mut(..all.len()) else {
            let text = format!("{} CPUs are more than take turns", all.len());
            return Err(Fault::usage(text).remedy(format!("name at most {}", CpuTurns::MOST)));
        };
        cpus.copy_from_slice(&all);
        Ok(turns)
    }
}

impl From<CpuTurns> for Vec<u32> {
    fn from(turns: CpuTurns) -> Vec<u32> {
        turns.cpus().to_vec()
    }
}

/// As it is typed: `0+1`.
impl fmt::Display for CpuTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joined(self.cpus(), "+"))
    }
}

impl SoftirqCpu {
    /// The CPU that was requested by its number.
    pub fn cpu(self) -> Option<u32> {
        match self {
            SoftirqCpu::Cpu(cpu) => Some(cpu),
            SoftirqCpu::Link | SoftirqCpu::Free | SoftirqCpu::Turns(_) => None,
        }
    }

    /// The CPU that was requested for an adapter of the link by its number.
    pub fn of_adapter(self, adapter: u32) -> Option<u32> {
        match self {
            SoftirqCpu::Turns(turns) => turns.nth(adapter),
            one => one.cpu(),
        }
    }

    /// All CPUs that were requested by their numbers.
    pub fn cpus(self) -> Vec<u32> {
        match self {
            SoftirqCpu::Turns(turns) => turns.into(),
            one => one.cpu().into_iter().collect(),
        }
    }
}

impl Placement {
    /// Each role on a CPU, and nothing else requested.
    pub const fn pinned(sender: u32, receiver: u32) -> Placement {
        Placement {
            sender: Some(sender),
            receiver: Some(receiver),
            sender_turns: CpuTurns::NONE,
            receiver_turns: CpuTurns::NONE,
            sender_softirq: SoftirqCpu::Link,
            softirq: SoftirqCpu::Link,
            io_wq: None,
            vhost: None,
        }
    }

    /// The CPU that all threads of a role are pinned to.
    pub fn cpu(&self, role: Role) -> Option<u32> {
        match role {
            Role::Sender => self.sender,
            Role::Receiver => self.receiver,
        }
    }

    /// The CPUs that the threads of a role take in turn; none unless there are several.
    pub fn turns(&self, role: Role) -> CpuTurns {
        match role {
            Role::Sender => self.sender_turns,
            Role::Receiver => self.receiver_turns,
        }
    }

    /// The CPU that a thread of a role is pinned to, by its number.
    pub fn of_thread(&self, role: Role, thread: u32) -> Option<u32> {
        self.turns(role).nth(thread).or(self.cpu(role))
    }

    /// All CPUs that threads of a role are pinned to.
    pub fn cpus(&self, role: Role) -> Vec<u32> {
        self.cpu(role).into_iter().chain(Vec::from(self.turns(role))).collect()
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
            ("sender", Some(Role::Sender), self.cpus(Role::Sender)),
            ("receiver", Some(Role::Receiver), self.cpus(Role::Receiver)),
            ("sender-softirq", Some(Role::Sender), self.sender_softirq.cpus()),
            ("softirq", Some(Role::Receiver), self.softirq.cpus()),
            ("io-wq", None, self.io_wq.into_iter().collect()),
            ("vhost", None, self.vhost.into_iter().collect()),
        ];
        let each =
            |(part, of, cpus): (_, _, Vec<u32>)| cpus.into_iter().map(move |cpu| (part, of, cpu));
        parts.into_iter().flat_map(each)
    }
}

impl Cell {
    /// The CPU that the kernel's work for a role's device was asked to run on, by the
    /// placement or by the link; none if not requested, or if adapters differ in it.
    pub fn softirq_cpu(&self, role: Role) -> Option<u32> {
        match self.softirq_cpus(role)[..] {
            [cpu] => Some(cpu),
            _ => None,
        }
    }

    /// The same of an adapter of the link by its number.
    pub fn softirq_cpu_of(&self, role: Role, adapter: u32) -> Option<u32> {
        match self.placement.softirq(role) {
            SoftirqCpu::Link if role == Role::Sender => None,
            // A flow's polling thread goes with the thread that receives it.
            SoftirqCpu::Link if self.link.threaded_napi => self.placement.of_thread(role, adapter),
            SoftirqCpu::Link => self.link.rps,
            asked => asked.of_adapter(adapter),
        }
    }

    /// Those of all adapters.
    pub fn softirq_cpus(&self, role: Role) -> Vec<u32> {
        distinct((0..self.link.adapters).filter_map(|adapter| self.softirq_cpu_of(role, adapter)))
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
    fn adapters_and_threads_take_cpus_in_turn() {
        let turns = |cpus: &[u32]| CpuTurns::try_from(cpus.to_vec()).unwrap();
        let mut cell = Cell::new("a", Half::plain("socket"), Half::plain("socket"));
        cell.link.adapters = 4;
        cell.placement = Placement {
            receiver: None,
            receiver_turns: turns(&[1, 2]),
            sender_softirq: SoftirqCpu::Turns(turns(&[0, 3, 5])),
            ..Placement::pinned(0, 1)
        };
        let threads = [0, 1, 2, 7].map(|at| cell.placement.of_thread(Role::Receiver, at));
        assert_eq!(threads, [Some(1), Some(2), Some(1), Some(2)]);
        assert_eq!(cell.placement.of_thread(Role::Sender, 3), Some(0));
        assert_eq!(cell.placement.cpu(Role::Receiver), None, "it has no CPU to itself");
        assert_eq!(cell.softirq_cpus(Role::Receiver), [1, 2], "with the threads of its flows");
        assert_eq!(cell.softirq_cpu_of(Role::Sender, 3), Some(0));
        assert_eq!(cell.softirq_cpus(Role::Sender), [0, 3, 5]);
        assert_eq!(cell.softirq_cpu(Role::Sender), None);
        assert_eq!(cell.placement.named_at(Role::Receiver).count(), 2);
        let text = serde_json::to_string(&cell.placement).unwrap();
        let expected = r#"{"sender":0,"receiver":null,"receiver-turns":[1,2],"sender-softirq":{"turns":[0,3,5]}}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Placement>(&text).unwrap(), cell.placement);
        let fault = CpuTurns::try_from(vec![0; 17]).unwrap_err().to_string();
        assert!(fault.contains("17 CPUs") && fault.contains("at most 16"), "{fault}");
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
