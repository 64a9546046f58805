//! The metrics in which a study compares cells.

use bytepath_record::Percentile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A metric in which cells are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
pub enum Metric {
    /// Work per second.
    Rate,
    /// CPU seconds per unit of work, both ends together.
    Cpu,
    /// Instructions per unit of work, both ends together, if hosts count them instead of time.
    Instructions,
    /// A percentile of the latency.
    Latency(Percentile),
}

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BetterDirection {
    Higher,
    Lower,
}

impl Metric {
    /// All metrics that a study may compare, each a separate family.
    pub const ALL: [Metric; 8] = [
        Metric::Rate,
        Metric::Cpu,
        Metric::Instructions,
        Metric::Latency(Percentile::P50),
        Metric::Latency(Percentile::P90),
        Metric::Latency(Percentile::P99),
        Metric::Latency(Percentile::P999),
        Metric::Latency(Percentile::P9999),
    ];

    /// The metrics that reports answer in a sentence and that the stopping rule considers.
    pub const MAIN: [Metric; 5] = [
        Metric::Rate,
        Metric::Cpu,
        Metric::Instructions,
        Metric::Latency(Percentile::P50),
        Metric::Latency(Percentile::P99),
    ];

    /// Returns the name of the metric, as used in thresholds and histories.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Rate => "rate",
            Metric::Cpu => "cpu",
            Metric::Instructions => "instructions",
            Metric::Latency(percentile) => percentile.name(),
        }
    }

    /// Returns which values are better.
    pub fn direction(self) -> BetterDirection {
        match self {
            Metric::Rate => BetterDirection::Higher,
            Metric::Cpu | Metric::Instructions | Metric::Latency(_) => BetterDirection::Lower,
        }
    }

    /// Returns the item with the best figure.
    pub fn best<T>(self, figures: impl Iterator<Item = (T, f64)>) -> Option<(T, f64)> {
        match self.direction() {
            BetterDirection::Higher => figures.max_by(|a, b| a.1.total_cmp(&b.1)),
            BetterDirection::Lower => figures.min_by(|a, b| a.1.total_cmp(&b.1)),
        }
    }

    /// Returns the words of a threshold for a value below and for one above. `lower` and `higher`
    /// can be used with every metric.
    pub fn words(self) -> [&'static str; 2] {
        match self {
            Metric::Rate => ["slower", "faster"],
            Metric::Cpu => ["less", "more"],
            Metric::Instructions => ["fewer", "more"],
            Metric::Latency(_) => ["lower", "higher"],
        }
    }

    /// Splits `CELL.METRIC`; the cell's id may contain dots. `None` if it names no metric.
    /// `throughput` is another name of the rate.
    pub fn split(subject: &str) -> Option<(&str, Metric)> {
        let names = Metric::ALL.map(|question| (question.name(), question));
        names.into_iter().chain([("throughput", Metric::Rate)]).find_map(|(name, question)| {
            let cell = subject.strip_suffix(name)?.strip_suffix('.')?;
            (!cell.is_empty()).then_some((cell, question))
        })
    }
}

impl From<Metric> for String {
    fn from(question: Metric) -> String {
        question.name().to_owned()
    }
}

impl TryFrom<String> for Metric {
    type Error = String;

    fn try_from(name: String) -> Result<Metric, String> {
        let known = Metric::ALL.into_iter().find(|question| question.name() == name);
        known.ok_or_else(|| format!("'{name}' is not a metric"))
    }
}
