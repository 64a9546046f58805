//! The output of a meter: numbers with unit and scope.

use super::{Role, grouped};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One number of one trial, taken over the measured window unless the metric's description differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "OnDisk")]
pub struct Reading {
    /// Dotted name, the meter first: "cpu.softirq".
    pub metric: String,
    /// Unit of the value.
    pub unit: Unit,
    /// The value.
    pub value: f64,
    /// What the value refers to.
    pub scope: Scope,
    /// How the values of several windows combine into one.
    pub aggregation: Aggregation,
}

/// How the values of several windows combine into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// Sum: counts, times, energy.
    Sum,
    /// Mean: levels and rates.
    Mean,
    /// Minimum.
    Min,
}

impl Reading {
    /// A reading that adds up over windows.
    pub fn sum(metric: impl Into<String>, unit: Unit, value: f64, scope: Scope) -> Reading {
        Reading { metric: metric.into(), unit, value, scope, aggregation: Aggregation::Sum }
    }

    /// A level or rate, which is averaged over windows.
    pub fn mean(metric: impl Into<String>, unit: Unit, value: f64, scope: Scope) -> Reading {
        Reading { aggregation: Aggregation::Mean, ..Reading::sum(metric, unit, value, scope) }
    }

    /// A minimum, of which windows keep the least.
    pub fn min(metric: impl Into<String>, unit: Unit, value: f64, scope: Scope) -> Reading {
        Reading { aggregation: Aggregation::Min, ..Reading::sum(metric, unit, value, scope) }
    }

    /// Combines the readings of several windows or flows into one per metric and scope.
    pub fn combined(all: impl IntoIterator<Item = Reading>) -> Vec<Reading> {
        let key = |one: Reading| ((one.metric.clone(), one.scope.clone()), one);
        let one = |(_, all): (_, Vec<Reading>)| {
            let values = all.iter().map(|reading| reading.value);
            let first = all.first()?;
            let value = match first.aggregation {
                Aggregation::Sum => values.sum(),
                Aggregation::Mean => values.sum::<f64>() / all.len() as f64,
                Aggregation::Min => values.fold(f64::INFINITY, f64::min),
            };
            Some(Reading { value, ..first.clone() })
        };
        grouped(all.into_iter().map(key)).into_iter().filter_map(one).collect()
    }
}

/// A reading on disk: version 1 lacks the aggregation.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Reading")]
struct OnDisk {
    /// Dotted name, the meter first: "cpu.softirq".
    metric: String,
    /// Unit of the value.
    unit: Unit,
    /// The value.
    value: f64,
    /// What the value refers to.
    scope: Scope,
    /// How the values of several windows combine into one.
    aggregation: Option<Aggregation>,
}

impl From<OnDisk> for Reading {
    fn from(read: OnDisk) -> Reading {
        let OnDisk { metric, unit, value, scope, aggregation } = read;
        let aggregation = aggregation.unwrap_or_else(|| of_version_1(&metric, unit));
        Reading { metric, unit, value, scope, aggregation }
    }
}

/// The aggregation of a reading of version 1.
fn of_version_1(metric: &str, unit: Unit) -> Aggregation {
    const LEVELS: [&str; 11] = [
        "tcp.cwnd",
        "tcp.snd_mss",
        "tcp.rcv_mss",
        "tcp.rtt",
        "tcp.min_rtt",
        "tcp.delivery_rate",
        "throughput.flow",
        "nic.qdisc.backlog",
        "nic.qdisc.qlen",
        "power.watts",
        "power.rest",
    ];
    let level = LEVELS.contains(&metric)
        || matches!(unit, Unit::Ratio | Unit::BytesPerSecond | Unit::PerSecond | Unit::Hertz);
    if level { Aggregation::Mean } else { Aggregation::Sum }
}

/// Units in use. Each is a plain SI or IEC unit; reports add prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Occurrences per second.
    PerSecond,
    /// Occurrences.
    Count,
    /// A fraction of one.
    Ratio,
    /// Joules.
    Joules,
    /// Watts.
    Watts,
    /// Hertz.
    Hertz,
}

/// What a reading refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole machine, which both hosts share.
    Machine,
    /// One CPU of it.
    Cpu(u32),
    /// The whole machine of one role's host, if the hosts do not share one.
    MachineOf(Role),
    /// One CPU of such a machine.
    CpuOf(Role, u32),
    /// One role as a whole.
    Role(Role),
    /// One flow, counted from 0, at one role.
    Flow(Role, u32),
    /// A network device of one role, by name.
    Link(Role, String),
    /// A function of the kernel that both hosts share, by name, and the aspect of it that was
    /// measured.
    Function(String),
    /// The same for the kernel of one role's host, if the hosts do not share one.
    FunctionOf(Role, String),
    /// The threads of one role that do the same work, by name: "flows", "vhost".
    Threads(Role, String),
}

impl Scope {
    /// Replaces a scope of the machine by that of a role's host, for hosts that do not share a
    /// machine: a meter measures the machine it runs on.
    pub fn at_host(self, role: Role) -> Scope {
        match self {
            Scope::Machine => Scope::MachineOf(role),
            Scope::Cpu(cpu) => Scope::CpuOf(role, cpu),
            Scope::Function(name) => Scope::FunctionOf(role, name),
            other => other,
        }
    }

    /// Returns the CPU that it refers to, on whichever machine.
    pub fn cpu(&self) -> Option<u32> {
        match self {
            Scope::Cpu(cpu) | Scope::CpuOf(_, cpu) => Some(*cpu),
            _ => None,
        }
    }

    /// True for a whole machine.
    pub fn is_machine(&self) -> bool {
        matches!(self, Scope::Machine | Scope::MachineOf(_))
    }

    /// True for the machine that this role's host runs on, or one of its CPUs.
    pub fn is_on_host_of(&self, role: Role) -> bool {
        match self {
            Scope::Machine | Scope::Cpu(_) => true,
            Scope::MachineOf(of) | Scope::CpuOf(of, _) => *of == role,
            _ => false,
        }
    }
}

/// A metric over time: equal steps from the start of the measured window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Dotted name of the metric.
    pub metric: String,
    /// Unit of the values.
    pub unit: Unit,
    /// What the values refer to.
    pub scope: Scope,
    /// Length of a step in seconds.
    pub step: f64,
    /// One value per step.
    pub values: Vec<f64>,
}

/// Largest number of values that the series of a trial have in total at each end, so that a line of
/// a study stays well below the length limit for reading one.
pub const MOST_VALUES: usize = 1 << 17;

impl Series {
    /// Lengthens the steps of all series by the same factor until they have at most `most` values.
    pub fn thin(all: &mut [Series], most: usize) {
        let values: usize = all.iter().map(|series| series.values.len()).sum();
        let joined = values.div_ceil(most.max(1));
        if joined < 2 {
            return;
        }
        for series in all {
            // A last step is kept if it is at least half complete.
            let steps = series.values.chunks(joined).filter(|step| 2 * step.len() >= joined);
            let mean = |step: &[f64]| step.iter().sum::<f64>() / step.len() as f64;
            series.values = steps.map(mean).collect();
            series.step *= joined as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_series_have_longer_steps() {
        let of = |values: &[f64]| Series {
            metric: "throughput".into(),
            unit: Unit::BytesPerSecond,
            scope: Scope::Machine,
            step: 0.5,
            values: values.to_vec(),
        };
        let mut all = [of(&[1.0, 3.0, 5.0, 7.0, 9.0]), of(&[2.0; 5])];
        let before = all.clone();
        Series::thin(&mut all, 10);
        assert_eq!(all, before);
        Series::thin(&mut all, 9);
        assert_eq!(all[0].values, [2.0, 6.0, 9.0]);
        assert_eq!((all[1].values.len(), all[1].step), (3, 1.0));
        Series::thin(&mut all, 2);
        assert_eq!((all[0].values.as_slice(), all[0].step), (&[17.0 / 3.0][..], 3.0));
    }

    #[test]
    fn readings_of_version_1_add_up_as_they_did() {
        let read = |metric: &str, unit: &str, more: &str| -> Reading {
            let text = format!(
                r#"{{"metric": "{metric}", "unit": "{unit}", "value": 1, "scope": "machine"{more}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        for (metric, unit, expected) in [
            ("cpu.busy", "seconds", Aggregation::Sum),
            ("tcp.cwnd", "count", Aggregation::Mean),
            ("cstates.C1", "ratio", Aggregation::Mean),
        ] {
            assert_eq!(read(metric, unit, "").aggregation, expected, "{metric}");
        }
        let says = read("cpu.busy", "seconds", r#", "aggregation": "min""#);
        assert_eq!(says.aggregation, Aggregation::Min);
        let again: Reading = serde_json::from_str(&serde_json::to_string(&says).unwrap()).unwrap();
        assert_eq!(again, says);
    }

    #[test]
    fn what_was_written_before_hosts_had_machines_means_the_shared_one() {
        let read = |text: &str| serde_json::from_str::<Scope>(text).unwrap();
        assert_eq!((read("\"machine\""), read("{\"cpu\":3}")), (Scope::Machine, Scope::Cpu(3)));
        for scope in [Scope::Machine, Scope::Cpu(3)] {
            assert!(Role::ALL.into_iter().all(|role| scope.is_on_host_of(role)));
            let apart = scope.at_host(Role::Sender);
            assert_eq!(read(&serde_json::to_string(&apart).unwrap()), apart);
            assert!(apart.is_on_host_of(Role::Sender) && !apart.is_on_host_of(Role::Receiver));
        }
        assert_eq!(Scope::CpuOf(Role::Sender, 3).cpu(), Some(3));
        assert_eq!(Scope::Role(Role::Sender).at_host(Role::Sender), Scope::Role(Role::Sender));
    }
}
