//! Where a cell's receive work was requested to run, where it ran, and which parts of its work
//! conflict. Where work ran is measured, never inferred from the request.

use bytepath_record::{Cell, Facts, Placement, Reading, Role, Trial};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The part of the receive work that may run on other CPUs than requested before the reader is
/// warned. The sender's own softirqs (acknowledgements, the end of its transmissions) are included
/// in the figure and run on the sender's CPU.
pub const ELSEWHERE_LIMIT: f64 = 0.25;

/// Where the softirqs of a cell's devices ran, on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReceiveWork {
    /// The requested CPUs, from the placement or the link, one per adapter if they differ; empty if
    /// that was left to the scheduler.
    pub asked: Vec<u32>,
    /// The CPUs requested for the sender's device, if it is on the same machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked_of_sender: Vec<u32>,
    /// Every CPU that did part of the work, by number.
    pub cpus: Vec<CpuShare>,
}

/// A CPU's part of the receive work, over the measured trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CpuShare {
    pub cpu: u32,
    /// Its part of all time in softirqs and in threads that poll the device.
    pub part: f64,
    /// Part of the trials' time that it spent in softirqs, by ticks.
    pub softirq: f64,
    /// The same for threads that poll the device, by their run time.
    pub polling: f64,
    /// NET_RX softirqs that it ran per second.
    pub net_rx: f64,
}

impl ReceiveWork {
    /// Combines the meters `softirqs` and `cpu` over the measured trials of a cell, on the machine
    /// of one end. `None` if one of them did not run, and for the sender if both ends share a
    /// machine.
    pub fn of(cell: &Cell, measured: &[&Trial], role: Role) -> Option<ReceiveWork> {
        let apart = measured.iter().any(|trial| trial.has_hosts_apart());
        if role == Role::Sender && !apart {
            return None;
        }
        let mut sums: BTreeMap<u32, [f64; 3]> = BTreeMap::new();
        let mut wall = 0.0;
        for trial in measured {
            let of_cpu = |metric: &'static str| {
                let here = move |reading: &&Reading| {
                    reading.metric == metric
                        && reading.scope.is_on_host_of(role)
                        && (0.0..=f64::MAX).contains(&reading.value)
                };
                let all = trial.readings.iter().filter(here);
                all.filter_map(|reading| Some((reading.scope.cpu()?, reading.value)))
            };
            let seconds = trial.of_machine("cpu.wall", role).filter(|w| *w > 0.0);
            let (Some(seconds), Some(_)) = (seconds, of_cpu("softirqs.net_rx").next()) else {
                continue;
            };
            wall += seconds;
            let metrics = ["cpu.softirq", "softirqs.napi", "softirqs.net_rx"];
            for (at, metric) in metrics.into_iter().enumerate() {
                for (cpu, value) in of_cpu(metric) {
                    sums.entry(cpu).or_default()[at] += value;
                }
            }
        }
        let all: f64 = sums.values().map(|[softirq, polling, _]| softirq + polling).sum();
        if !(all > 0.0 && all.is_finite() && wall.is_finite()) {
            return None;
        }
        let share = |(cpu, [softirq, polling, net_rx]): (u32, [f64; 3])| CpuShare {
            cpu,
            part: (softirq + polling) / all,
            softirq: softirq / wall,
            polling: polling / wall,
            net_rx: net_rx / wall,
        };
        let cpus = sums.into_iter().map(share).filter(|share| share.part > 0.0).collect();
        let asked_of_sender = if apart { Vec::new() } else { cell.softirq_cpus(Role::Sender) };
        Some(ReceiveWork { asked: cell.softirq_cpus(role), asked_of_sender, cpus })
    }

    /// Returns the part that ran on CPUs that were not requested; `None` if none was requested for
    /// the receiver.
    pub fn elsewhere(&self) -> Option<f64> {
        if self.asked.is_empty() {
            return None;
        }
        let strays = |share: &&CpuShare| {
            !self.asked.contains(&share.cpu) && !self.asked_of_sender.contains(&share.cpu)
        };
        Some(self.cpus.iter().filter(strays).map(|share| share.part).sum())
    }

    /// Returns whether more of it ran elsewhere than the sender's own softirqs explain.
    pub fn ran_elsewhere(&self) -> bool {
        self.elsewhere().is_some_and(|part| part > ELSEWHERE_LIMIT)
    }

    /// Returns the mean parts of each CPU over several cells with the same requested CPU.
    pub fn mean(of: &[&ReceiveWork]) -> Vec<(u32, f64)> {
        let mut parts: BTreeMap<u32, f64> = BTreeMap::new();
        for share in of.iter().flat_map(|work| &work.cpus) {
            *parts.entry(share.cpu).or_default() += share.part / of.len() as f64;
        }
        parts.into_iter().collect()
    }
}

/// Names of an end's threads and of the softirqs of its device.
const ENDS: [(&str, &str); 2] = [("sender", "sender-softirq"), ("receiver", "softirq")];

/// Returns sentences about parts of a cell's work that were placed where they conflict: on one CPU,
/// or on two hyperthreads of one core. What the link does by itself (its polling thread on the
/// receiver's CPU), and an end whose softirqs were placed with its threads, are expected and left
/// out. Ends on separate machines (`apart`) cannot conflict with each other. Parts on another NUMA
/// node than the device of their link are included too.
pub fn collisions(cell: &Cell, facts: &[Facts], apart: bool) -> Vec<String> {
    let mut collisions = Vec::new();
    for role in Role::ALL.into_iter().filter(|role| apart || *role == Role::Receiver) {
        let named: Vec<(&str, u32)> = match apart {
            true => cell.placement.named_at(role).collect(),
            false => cell.placement.named().collect(),
        };
        let siblings = facts.get(role as usize).map_or(&[][..], |facts| &facts.siblings);
        let pairs = named
            .iter()
            .enumerate()
            .flat_map(|(at, one)| named[at + 1..].iter().map(move |other| (*one, *other)));
        collisions.extend(pairs.filter_map(|((part, cpu), (other, at_cpu))| {
            let same_core =
                siblings.iter().any(|core| core.contains(&cpu) && core.contains(&at_cpu));
            if cpu == at_cpu {
                let meant = ENDS.contains(&(part, other));
                (!meant).then(|| format!("{part} and {other} share CPU {cpu}"))
            } else {
                same_core.then(|| {
                    format!("{part} on CPU {cpu} and {other} on CPU {at_cpu} share a core (SMT)")
                })
            }
        }));
    }
    for role in Role::ALL {
        let near = facts.get(role as usize).and_then(Facts::cpus_near_link);
        let Some((device, near)) = near else { continue };
        let far = cell.placement.named_at(role).filter(|(_, cpu)| !near.contains(cpu));
        collisions.extend(far.map(|(part, cpu)| {
            format!("{part} on CPU {cpu} is on another NUMA node than {device}")
        }));
    }
    let free = cell.placement == Placement::default();
    if let (true, Some(rps)) = (free, cell.link.rps) {
        let text = "nothing is pinned, but the link's RPS moves receive work to CPU";
        collisions.push(format!("{text} {rps}"));
    }
    collisions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{cell, trial};
    use bytepath_record::{LINK_DEVICE, LINK_NODE, Scope, SoftirqCpu, Unit};

    fn seen(values: &[(&str, u32, f64)]) -> Trial {
        let mut t = trial("a", 0, 2.0, 1);
        let wall = ("cpu.wall", Scope::Machine, 2.0);
        let of_cpus = values.iter().map(|(metric, cpu, value)| (*metric, Scope::Cpu(*cpu), *value));
        for (metric, scope, value) in of_cpus.chain([wall]) {
            t.readings.push(Reading::sum(metric, Unit::Seconds, value, scope));
        }
        t
    }

    #[test]
    fn receive_work_adds_softirqs_and_polling_threads() {
        let mut c = cell("a");
        c.placement.softirq = SoftirqCpu::Cpu(1);
        let one = seen(&[
            ("cpu.softirq", 0, 0.1),
            ("cpu.softirq", 1, 0.2),
            ("cpu.softirq", 2, 0.0),
            ("softirqs.napi", 1, 0.7),
            ("softirqs.net_rx", 0, 300.0),
            ("softirqs.net_rx", 1, 100.0),
        ]);
        let work = ReceiveWork::of(&c, &[&one, &one], Role::Receiver).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let [zero, first] = work.cpus.as_slice() else { panic!("{work:?}") };
        assert!(near(zero.part, 0.1) && near(first.part, 0.9), "{work:?}");
        assert!(near(first.softirq, 0.1) && near(first.polling, 0.35) && near(zero.net_rx, 150.0));
        assert!(near(work.elsewhere().unwrap(), 0.1) && !work.ran_elsewhere());
        c.placement.softirq = SoftirqCpu::Cpu(0);
        assert!(ReceiveWork::of(&c, &[&one], Role::Receiver).unwrap().ran_elsewhere());
        c.placement.sender_softirq = SoftirqCpu::Cpu(1);
        assert!(
            !ReceiveWork::of(&c, &[&one], Role::Receiver).unwrap().ran_elsewhere(),
            "CPU 1 was requested as well"
        );
        assert_eq!(ReceiveWork::of(&c, &[&one], Role::Sender), None, "one machine");
        let mut apart = one.clone();
        let at =
            |role| move |r: &Reading| Reading { scope: r.scope.clone().at_host(role), ..r.clone() };
        let all = Role::ALL.map(|role| one.readings.iter().map(at(role)).collect::<Vec<_>>());
        apart.readings = all.concat();
        let sender = ReceiveWork::of(&c, &[&apart], Role::Sender).unwrap();
        assert!(sender.asked == [1] && near(sender.elsewhere().unwrap(), 0.1), "{sender:?}");
        assert!(
            ReceiveWork::of(&c, &[&apart], Role::Receiver).unwrap().ran_elsewhere(),
            "on a machine of its own"
        );
        c.placement = Placement::default();
        c.link.threaded_napi = false;
        let free = ReceiveWork::of(&c, &[&one], Role::Receiver).unwrap();
        assert_eq!(
            (&free.asked[..], free.elsewhere(), free.ran_elsewhere()),
            (&[][..], None, false)
        );
    }

    #[test]
    fn unmetered_receive_work_is_none() {
        let c = cell("a");
        let without = seen(&[("cpu.softirq", 0, 0.5)]);
        assert_eq!(
            ReceiveWork::of(&c, &[&without], Role::Receiver),
            None,
            "the meter softirqs did not run"
        );
        let counts = seen(&[("softirqs.net_rx", 0, 5.0)]);
        assert_eq!(
            ReceiveWork::of(&c, &[&counts], Role::Receiver),
            None,
            "the meter cpu did not run"
        );
        let odd = seen(&[("cpu.softirq", 0, f64::NAN), ("softirqs.net_rx", 0, 1.0)]);
        assert_eq!(ReceiveWork::of(&c, &[&odd], Role::Receiver), None);
        assert_eq!(ReceiveWork::of(&c, &[], Role::Receiver), None);
    }

    #[test]
    fn collisions_are_named() {
        let mut c = cell("a");
        assert_eq!(collisions(&c, &[], false), [""; 0], "the usual placement");
        c.placement = Placement { io_wq: Some(0), ..Placement::pinned(0, 0) };
        c.placement.softirq = SoftirqCpu::Cpu(1);
        assert_eq!(
            collisions(&c, &[], false),
            [
                "sender and receiver share CPU 0",
                "sender and io-wq share CPU 0",
                "receiver and io-wq share CPU 0"
            ]
        );
        let smt = Facts { siblings: vec![vec![0, 2], vec![1, 3]], ..Facts::default() };
        c.placement = Placement { softirq: SoftirqCpu::Cpu(3), ..Placement::pinned(0, 2) };
        assert_eq!(
            collisions(&c, &[smt.clone(), smt.clone()], false),
            ["sender on CPU 0 and receiver on CPU 2 share a core (SMT)"]
        );
        assert_eq!(collisions(&c, &[smt.clone(), smt], true), [""; 0], "a machine each");
        c.placement = Placement { softirq: SoftirqCpu::Cpu(1), ..Placement::pinned(0, 1) };
        assert_eq!(collisions(&c, &[], false), [""; 0], "the receiver's softirqs next to it");
        let host = |node: &str| Facts {
            nodes: [(0, vec![0, 1]), (1, vec![2, 3])].into(),
            settings: [(LINK_DEVICE, "eth1"), (LINK_NODE, node)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..Facts::default()
        };
        assert_eq!(
            collisions(&c, &[host("0"), host("1")], true),
            [
                "receiver on CPU 1 is on another NUMA node than eth1",
                "softirq on CPU 1 is on another NUMA node than eth1"
            ]
        );
        assert_eq!(collisions(&c, &[host("0"), host("0")], true), [""; 0]);
        assert_eq!(collisions(&c, &[host("7"), host("-1")], true), [""; 0], "no such node");
        c.placement = Placement::default();
        c.link.rps = Some(1);
        assert!(collisions(&c, &[], false)[0].contains("RPS moves receive work to CPU 1"));
    }
}
