//! Where a cell's receive work was asked to run, where it ran, and which parts of the
//! work get in each other's way. What ran where is measured; nothing is taken from
//! what was asked.

use crate::record::{Cell, Facts, Placement, Role, Scope, Trial};
use serde::Serialize;
use std::collections::BTreeMap;

/// The part of the receive work that may run elsewhere than asked before the reader
/// is warned. The sender's own softirqs (acknowledgements, the end of its
/// transmissions) are in the figure and run on the sender's CPU.
pub const ELSEWHERE_LIMIT: f64 = 0.25;

/// Where the receive work of a cell ran.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReceiveWork {
    /// The CPU that was asked for; none where that was left to the scheduler.
    pub asked: Option<u32>,
    /// Every CPU that did some, by its number.
    pub cpus: Vec<CpuShare>,
}

/// What one CPU did of the receive work, over the measured trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuShare {
    /// The CPU.
    pub cpu: u32,
    /// Its part of the time in softirqs and in threads that poll for the device.
    pub part: f64,
    /// Of the trials' time, the part in which it was in softirqs, by ticks.
    pub softirq: f64,
    /// The same in threads that poll for the device, by their run time.
    pub polling: f64,
    /// NET_RX softirqs that it ran in a second.
    pub net_rx: f64,
}

impl ReceiveWork {
    /// What the meters `softirqs` and `cpu` saw in the measured trials of a cell; none
    /// where one of them did not run.
    pub fn of(cell: &Cell, measured: &[&Trial]) -> Option<ReceiveWork> {
        let mut sums: BTreeMap<u32, [f64; 3]> = BTreeMap::new();
        let mut wall = 0.0;
        for trial in measured {
            let of_cpu = |metric: &'static str| {
                trial.readings.iter().filter_map(move |reading| match reading.scope {
                    Scope::Cpu(cpu) if reading.metric == metric && sound(reading.value) => {
                        Some((cpu, reading.value))
                    }
                    _ => None,
                })
            };
            let seconds = trial.reading("cpu.wall", &Scope::Machine).filter(|w| *w > 0.0);
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
        Some(ReceiveWork { asked: cell.softirq_cpu(), cpus })
    }

    /// The part that ran on other CPUs than the one asked for; none where none was.
    pub fn elsewhere(&self) -> Option<f64> {
        let asked = self.asked?;
        Some(self.cpus.iter().filter(|share| share.cpu != asked).map(|share| share.part).sum())
    }

    /// Whether it ran elsewhere by more than the sender's own softirqs explain.
    pub fn strayed(&self) -> bool {
        self.elsewhere().is_some_and(|part| part > ELSEWHERE_LIMIT)
    }

    /// The same CPU asked for by several cells: the means of their parts.
    pub fn mean(of: &[&ReceiveWork]) -> Vec<(u32, f64)> {
        let mut parts: BTreeMap<u32, f64> = BTreeMap::new();
        for share in of.iter().flat_map(|work| &work.cpus) {
            *parts.entry(share.cpu).or_default() += share.part / of.len() as f64;
        }
        parts.into_iter().collect()
    }
}

fn sound(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

/// Parts of a cell's work that were put in each other's way, each in words: on one CPU,
/// or on two that are threads of one core. What the link does by itself (its polling
/// thread on the receiver's CPU) is no news and not among them.
pub fn collisions(cell: &Cell, facts: &[Facts]) -> Vec<String> {
    let named: Vec<(&str, u32)> = cell.placement.named().collect();
    let siblings = facts.get(Role::Receiver as usize).map_or(&[][..], |facts| &facts.siblings);
    let mut found = Vec::new();
    for (at, (part, cpu)) in named.iter().enumerate() {
        for (other, at_cpu) in named.iter().skip(at + 1) {
            let same_core = siblings.iter().any(|core| core.contains(cpu) && core.contains(at_cpu));
            if cpu == at_cpu {
                found.push(format!("{part} and {other} share CPU {cpu}"));
            } else if same_core {
                found.push(format!(
                    "{part} on CPU {cpu} and {other} on CPU {at_cpu} share a core (SMT)"
                ));
            }
        }
    }
    let free = cell.placement == Placement::default();
    if let (true, Some(rps)) = (free, cell.link.rps) {
        found
            .push(format!("nothing is pinned, but the link's RPS moves receive work to CPU {rps}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::tests::{cell, trial};
    use crate::record::{Reading, SoftirqCpu, Unit};

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
    fn softirqs_and_polling_threads_together_say_where_it_ran() {
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
        let work = ReceiveWork::of(&c, &[&one, &one]).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let [zero, first] = work.cpus.as_slice() else { panic!("{work:?}") };
        assert!(near(zero.part, 0.1) && near(first.part, 0.9), "{work:?}");
        assert!(near(first.softirq, 0.1) && near(first.polling, 0.35) && near(zero.net_rx, 150.0));
        assert!(near(work.elsewhere().unwrap(), 0.1) && !work.strayed());
        c.placement.softirq = SoftirqCpu::Cpu(0);
        assert!(ReceiveWork::of(&c, &[&one]).unwrap().strayed());
        c.placement = Placement::default();
        c.link.threaded_napi = false;
        let free = ReceiveWork::of(&c, &[&one]).unwrap();
        assert_eq!((free.asked, free.elsewhere(), free.strayed()), (None, None, false));
    }

    #[test]
    fn what_no_meter_saw_is_not_told() {
        let c = cell("a");
        let without = seen(&[("cpu.softirq", 0, 0.5)]);
        assert_eq!(ReceiveWork::of(&c, &[&without]), None, "the meter softirqs did not run");
        let counts = seen(&[("softirqs.net_rx", 0, 5.0)]);
        assert_eq!(ReceiveWork::of(&c, &[&counts]), None, "the meter cpu did not run");
        let odd = seen(&[("cpu.softirq", 0, f64::NAN), ("softirqs.net_rx", 0, 1.0)]);
        assert_eq!(ReceiveWork::of(&c, &[&odd]), None);
        assert_eq!(ReceiveWork::of(&c, &[]), None);
    }

    #[test]
    fn collisions_are_named() {
        let mut c = cell("a");
        assert_eq!(collisions(&c, &[]), [""; 0], "the usual placement");
        c.placement = Placement { io_wq: Some(0), ..Placement::pinned(0, 0) };
        c.placement.softirq = SoftirqCpu::Cpu(1);
        assert_eq!(
            collisions(&c, &[]),
            [
                "sender and receiver share CPU 0",
                "sender and io-wq share CPU 0",
                "receiver and io-wq share CPU 0"
            ]
        );
        let smt = Facts { siblings: vec![vec![0, 2], vec![1, 3]], ..Facts::default() };
        c.placement = Placement { softirq: SoftirqCpu::Cpu(3), ..Placement::pinned(0, 2) };
        assert_eq!(
            collisions(&c, &[smt.clone(), smt]),
            ["sender on CPU 0 and receiver on CPU 2 share a core (SMT)"]
        );
        c.placement = Placement::default();
        c.link.rps = Some(1);
        assert!(collisions(&c, &[])[0].contains("RPS moves receive work to CPU 1"));
    }
}
