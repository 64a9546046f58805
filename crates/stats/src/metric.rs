//! What a study compares cells in, and which direction of it is better.

use bytepath_record::Percentile;
use serde::{Deserialize, Serialize};

/// What is compared: a metric, and which direction of it is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Question {
    /// Work per second.
    Rate,
    /// CPU seconds per unit of work, both ends together.
    Cpu,
    /// Instructions per unit of work, both ends together, where hosts count them
    /// instead of time.
    Instructions,
    /// A percentile of the latency.
    Latency(Percentile),
}

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Higher,
    Lower,
}

impl Question {
    /// All that a study may answer; each is a family of its own.
    pub const ALL: [Question; 8] = [
        Question::Rate,
        Question::Cpu,
        Question::Instructions,
        Question::Latency(Percentile::P50),
        Question::Latency(Percentile::P90),
        Question::Latency(Percentile::P99),
        Question::Latency(Percentile::P999),
        Question::Latency(Percentile::P9999),
    ];

    /// Those that reports answer in a sentence, and the stopping rule looks at.
    pub const MAIN: [Question; 5] = [
        Question::Rate,
        Question::Cpu,
        Question::Instructions,
        Question::Latency(Percentile::P50),
        Question::Latency(Percentile::P99),
    ];

    /// Name of the metric, as thresholds and histories take it.
    pub fn name(self) -> &'static str {
        match self {
            Question::Rate => "rate",
            Question::Cpu => "cpu",
            Question::Instructions => "instructions",
            Question::Latency(percentile) => percentile.name(),
        }
    }

    /// Which values are better.
    pub fn direction(self) -> Direction {
        match self {
            Question::Rate => Direction::Higher,
            Question::Cpu | Question::Instructions | Question::Latency(_) => Direction::Lower,
        }
    }

    /// The words of a threshold for a value below and for one above. `lower` and
    /// `higher` go with every metric.
    pub fn words(self) -> [&'static str; 2] {
        match self {
            Question::Rate => ["slower", "faster"],
            Question::Cpu => ["less", "more"],
            Question::Instructions => ["fewer", "more"],
            Question::Latency(_) => ["lower", "higher"],
        }
    }

    /// Splits `CELL.METRIC`; the cell's id may hold dots. `None` if it names no
    /// metric. `throughput` is another name of the rate.
    pub fn split(subject: &str) -> Option<(&str, Question)> {
        let names = Question::ALL.map(|question| (question.name(), question));
        names.into_iter().chain([("throughput", Question::Rate)]).find_map(|(name, question)| {
            let cell = subject.strip_suffix(name)?.strip_suffix('.')?;
            (!cell.is_empty()).then_some((cell, question))
        })
    }
}

impl From<Question> for String {
    fn from(question: Question) -> String {
        question.name().to_owned()
    }
}

impl TryFrom<String> for Question {
    type Error = String;

    fn try_from(name: String) -> Result<Question, String> {
        let known = Question::ALL.into_iter().find(|question| question.name() == name);
        known.ok_or_else(|| format!("'{name}' is not a metric"))
    }
}
