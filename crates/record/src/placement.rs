//! CPUs for the parts of a stream's work.

use super::{Cell, Fault, Role, distinct, joined};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// CPUs that were requested for the work of a cell. Where it actually ran is measured (meter
/// `softirqs`). `None` leaves the choice to the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    /// CPU of the sender's threads.
    pub sender: Option<u32>,
    /// CPU of the receiver's threads.
    pub receiver: Option<u32>,
    /// CPUs that the sender's threads take in turn, instead of `sender`.
    #[serde(default, rename = "sender-turns", skip_serializing_if = "crate::is_default")]
    pub sender_turns: CpuTurns,
    /// CPUs that the receiver's threads take in turn, instead of `receiver`.
    #[serde(default, rename = "receiver-turns", skip_serializing_if = "crate::is_default")]
    pub receiver_turns: CpuTurns,
    /// CPU of the kernel's work for the sender's device: incoming acknowledgements, completed
    /// transmissions.
    #[serde(default, rename = "sender-softirq", skip_serializing_if = "crate::is_default")]
    pub sender_softirq: SoftirqCpu,
    /// CPU of the kernel's receive work.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub softirq: SoftirqCpu,
    /// CPU of io_uring's worker threads at both ends (`IORING_REGISTER_IOWQ_AFF`).
    #[serde(default, rename = "io-wq", skip_serializing_if = "Option::is_none")]
    pub io_wq: Option<u32>,
    /// CPU of the vhost thread of a virtual machine's network device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost: Option<u32>,
}

/// CPU of the kernel's work for the device of one end: its softirqs, or the thread that polls for
/// it. For a NIC, the CPU that its queues interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SoftirqCpu {
    /// As the link specifies. At the receiver, a polling thread runs on the receiver's CPU, and RPS
    /// goes to the CPU it names; otherwise it runs where it is raised: by a NIC's interrupt, or on
    /// a veth pair by the work of the other end.
    #[default]
    Link,
    /// A polling thread may run anywhere.
    Free,
    /// On this CPU: a polling thread is pinned there, a NIC's queues interrupt it, otherwise RPS
    /// moves packets there.
    Cpu(u32),
    /// On these CPUs, which the adapters of the link take in turn.
    Turns(CpuTurns),
}

/// CPUs that the threads of an end, or the adapters of its link, take in turn: the first takes the
/// first, and after the last the first follows again. Empty if nothing was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
#[schemars(with = "Vec<u32>")]
pub struct CpuTurns {
    cpus: [u32; CpuTurns::MOST],
    count: usize,
}

impl CpuTurns {
    /// Largest number of CPUs: that of the adapters of a link.
    pub const MOST: usize = 16;

    /// No CPU.
    pub const NONE: CpuTurns = CpuTurns { cpus: [0; CpuTurns::MOST], count: 0 };

    /// Returns the CPUs in order.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus[..self.count]
    }

    /// Returns the CPU of the thread or adapter with this number, or `None` if empty.
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

/// As the user types it: `0+1`.
impl fmt::Display for CpuTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joined(self.cpus(), "+"))
    }
}

impl SoftirqCpu {
    /// Returns the CPU that was requested for all adapters.
    pub fn cpu(self) -> Option<u32> {
        match self {
            SoftirqCpu::Cpu(cpu) => Some(cpu),
            SoftirqCpu::Link | SoftirqCpu::Free | SoftirqCpu::Turns(_) => None,
        }
    }

    /// Returns the CPU that was requested for the adapter of this number.
    pub fn of_adapter(self, adapter: u32) -> Option<u32> {
        match self {
            SoftirqCpu::Turns(turns) => turns.nth(adapter),
            one => one.cpu(),
        }
    }

    /// Returns all requested CPUs.
    pub fn cpus(self) -> Vec<u32> {
        match self {
            SoftirqCpu::Turns(turns) => turns.into(),
            one => one.cpu().into_iter().collect(),
        }
    }
}

impl Placement {
    /// Pins each role to a CPU and requests nothing else.
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

    /// Returns the CPU that all threads of a role are pinned to.
    pub fn cpu(&self, role: Role) -> Option<u32> {
        match role {
            Role::Sender => self.sender,
            Role::Receiver => self.receiver,
        }
    }

    /// Returns the CPUs that the threads of a role take in turn; empty unless there are several.
    pub fn turns(&self, role: Role) -> CpuTurns {
        match role {
            Role::Sender => self.sender_turns,
            Role::Receiver => self.receiver_turns,
        }
    }

    /// Returns the CPU that thread number `thread` of a role is pinned to.
    pub fn of_thread(&self, role: Role, thread: u32) -> Option<u32> {
        self.turns(role).nth(thread).or(self.cpu(role))
    }

    /// Returns all CPUs that threads of a role are pinned to.
    pub fn cpus(&self, role: Role) -> Vec<u32> {
        self.cpu(role).into_iter().chain(Vec::from(self.turns(role))).collect()
    }

    /// Returns where the kernel's work for the device of a role was requested to run.
    pub fn softirq(&self, role: Role) -> SoftirqCpu {
        match role {
            Role::Sender => self.sender_softirq,
            Role::Receiver => self.softirq,
        }
    }

    /// Lists every CPU that was requested by number, with the part that runs there.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        self.parts().map(|(part, _, cpu)| (part, cpu))
    }

    /// Like [`Self::named`], but only those on the host of a role, if the hosts do not share a
    /// machine.
    pub fn named_at(&self, role: Role) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        let here = self.parts().filter(move |(_, of, _)| of.is_none_or(|of| of == role));
        here.map(|(part, _, cpu)| (part, cpu))
    }

    /// Lists the parts by name, each with its role (`None`: both) and CPU.
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
    /// Returns the CPU on which the kernel's work for a role's device was requested to run, by the
    /// placement or by the link; `None` if there was no such request, or if adapters differ.
    pub fn softirq_cpu(&self, role: Role) -> Option<u32> {
        match self.softirq_cpus(role)[..] {
            [cpu] => Some(cpu),
            _ => None,
        }
    }

    /// Returns the same CPU for the adapter of this number.
    pub fn softirq_cpu_of(&self, role: Role, adapter: u32) -> Option<u32> {
        match self.placement.softirq(role) {
            SoftirqCpu::Link if role == Role::Sender => None,
            // The polling thread of a flow shares the CPU of the thread that receives it.
            SoftirqCpu::Link if self.link.threaded_napi => self.placement.of_thread(role, adapter),
            SoftirqCpu::Link => self.link.rps,
            asked => asked.of_adapter(adapter),
        }
    }

    /// Returns the distinct CPUs of all adapters.
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
