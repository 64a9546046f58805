//! What a meter reports: a number with its unit and scope.

use super::{Role, grouped};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One number of one trial, taken over the measured window unless the metric
/// says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "OnDisk")]
pub struct Reading {
    /// Dotted name, the meter first: "cpu.softirq".
    pub metric: String,
    /// Unit of the value.
    pub unit: Unit,
    /// The value.
    pub value: f64,
    /// What it is a value of.
    pub scope: Scope,
    /// How the values of several windows make up that of all of them.
    pub aggregation: Aggregation,
}

/// How the values of several windows make up that of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// They add up: counts, times, energy.
    Sum,
    /// Their mean: levels and rates.
    Mean,
    /// The least of them.
    Min,
}

impl Reading {
    /// A reading whose windows add up.
    pub fn sum(metric: impl Into<String>, unit: Unit, value: f64, scope: Scope) -> Reading {
        Reading { metric: metric.into(), unit, value, scope, aggregation: Aggregation::Sum }
    }

    /// A level or a rate, of which several windows have a mean.
    pub fn mean(metric: impl Into<String>, unit: Unit, value: f64, scope: Scope) -> Reading {
        Reading { aggregation: Aggregation::Mean, ..Reading::sum(metric, unit, value, scope) }
    }

    /// A least value, of which several windows have the least.
    pub fn min(metric: impl Into<String>, unit: Unit, value: f64, scope: Scope) -> Reading {
        Reading { aggregation: Aggregation::Min, ..Reading::sum(metric, unit, value, scope) }
    }

    /// One of each metric and scope, for those of several windows or flows.
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

/// A reading as a record holds it: those of version 1 lack how they add up.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Reading")]
struct OnDisk {
    /// Dotted name, the meter first: "cpu.softirq".
    metric: String,
    /// Unit of the value.
    unit: Unit,
    /// The value.
    value: f64,
    /// What it is a value of.
    scope: Scope,
    /// How the values of several windows make up that of all of them.
    aggregation: Option<Aggregation>,
}

impl From<OnDisk> for Reading {
    fn from(read: OnDisk) -> Reading {
        let OnDisk { metric, unit, value, scope, aggregation } = read;
        let aggregation = aggregation.unwrap_or_else(|| of_version_1(&metric, unit));
        Reading { metric, unit, value, scope, aggregation }
    }
}

/// How readings of version 1 added up, which their records lack.
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

/// Units in use. Every unit is a plain SI or IEC one; prefixes are for reports.
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
    /// A part of one.
    Ratio,
    /// Joules.
    Joules,
    /// Watts.
    Watts,
    /// Hertz.
    Hertz,
}

/// What a reading is a reading of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole machine that both hosts share.
    Machine,
    /// One CPU of it.
    Cpu(u32),
    /// The whole machine of one role's host, where each has its own.
    MachineOf(Role),
    /// One CPU of such a machine.
    CpuOf(Role, u32),
    /// All of one role.
    Role(Role),
    /// One flow, counted from 0, seen from one role.
    Flow(Role, u32),
    /// A network device of one role, by name.
    Link(Role, String),
    /// A function of the kernel that both hosts share, by name, and what of it is meant.
    Function(String),
    /// One of the kernel of one role's host, where each has its own.
    FunctionOf(Role, String),
    /// The threads of one role that do the same work, by name: "flows", "vhost".
    Threads(Role, String),
}

impl Scope {
    /// The same of a host with a machine of its own: a meter measures the machine it
    /// runs on.
    pub fn at_host(self, role: Role) -> Scope {
        match self {
            Scope::Machine => Scope::MachineOf(role),
            Scope::Cpu(cpu) => Scope::CpuOf(role, cpu),
            Scope::Function(name) => Scope::FunctionOf(role, name),
            other => other,
        }
    }

    /// The CPU that it is about, on whichever machine.
    pub fn cpu(&self) -> Option<u32> {
        match self {
            Scope::Cpu(cpu) | Scope::CpuOf(_, cpu) => Some(*cpu),
            _ => None,
        }
    }

    /// Whether it is about a whole machine.
    pub fn is_machine(&self) -> bool {
        matches!(self, Scope::Machine | Scope::MachineOf(_))
    }

    /// Whether it is about a machine, or a CPU of it, that this role's host runs on.
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
    /// What they are values of.
    pub scope: Scope,
    /// Length of a step in seconds.
    pub step: f64,
    /// One value a step.
    pub values: Vec<f64>,
}

/// Values that the series of a trial have in all at each end: with it a line of a study stays well
/// below what is read of one.
pub const MOST_VALUES: usize = 1 << 17;

impl Series {
    /// Makes the steps of all longer, all alike, until they have no more than `most` values.
    pub fn thin(all: &mut [Series], most: usize) {
        let values: usize = all.iter().map(|series| series.values.len()).sum();
        let joined = values.div_ceil(most.max(1));
        if joined < 2 {
            return;
        }
        for series in all {
            // A last step is kept if half of it is there, as where it was measured.
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
