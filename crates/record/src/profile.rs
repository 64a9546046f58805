//! Profiles as records: requested by a study, received by an agent, and recorded in the trial that
//! took one.

use super::{OptionKind, OptionSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which profiles a study takes, after its last block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Profiling {
    /// The cells to profile.
    pub cells: ProfiledCells,
    /// Samples per second and CPU; `None` chooses it by the cost of a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// The event to sample; `None` takes cycles, or the CPU clock if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Profile trials per cell.
    pub trials: u32,
    /// Largest number of additional trials, one for each rejected one.
    #[serde(default)]
    pub retakes: u32,
    /// Seconds of each window.
    pub window: f64,
}

/// Which cells are profiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum ProfiledCells {
    /// The baseline and the cell that the study recommends; the same as `Largest` if it recommends
    /// none.
    Leading,
    /// The baseline and the cell whose CPU cost differs most from it.
    Largest,
    /// Every cell that was measured.
    All,
}

/// Options of the meter `profile`: its rate and its event.
pub const SAMPLING_OPTIONS: [OptionSpec; 2] = [
    OptionSpec::new("rate", OptionKind::WordCount("auto", 1, 100_000), "auto")
        .help("samples per second and CPU; auto adapts to the cost of a sample"),
    OptionSpec::new("event", OptionKind::Text, "auto")
        .help("what to sample, as perf list names it; auto: cycles, else cpu-clock"),
];

/// The options of the meter `profile` as an agent receives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    /// Name of the event.
    pub event: String,
    /// Samples per second and CPU.
    pub rate: u64,
    /// The CPUs.
    pub cpus: Vec<u32>,
}

/// Cost of one sample on the host of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplePrice {
    /// Name of the event that can be sampled.
    pub event: String,
    /// Seconds that a sample takes from the interrupted code; `None` if it could not be measured,
    /// because the event does not occur in an empty loop.
    pub seconds: Option<f64>,
}

/// The profile that a trial took. Such a trial is used for nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileRecord {
    /// Number of this profile trial among those of its cell, counted from 1.
    pub number: u32,
    /// Its file, relative to the folder of the study; empty if there is none.
    pub file: String,
    /// The event that was sampled.
    pub event: String,
    /// Requested samples per second and CPU.
    pub rate: u64,
    /// Samples in the file.
    pub samples: u64,
    /// Samples that the kernel took, or should have taken, and that are missing.
    pub lost: u64,
}

/// Arbitrary bytes within a line of JSON, as hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
        let text: String =
            self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        let pair = |pair: &[u8]| match pair {
            [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
        bytes.map(Bytes).ok_or_else(|| serde::de::Error::custom("not hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cross_a_line_of_json() {
        let all = Bytes((0..=255).collect());
        let text = serde_json::to_string(&all).unwrap();
        assert!(text.starts_with("\"000102"));
        assert_eq!(serde_json::from_str::<Bytes>(&text).unwrap(), all);
        assert_eq!(serde_json::from_str::<Bytes>("\"\"").unwrap(), Bytes::default());
        for wrong in ["\"0\"", "\"0g\"", "\"+1\"", "\"é\"", "1"] {
            assert!(serde_json::from_str::<Bytes>(wrong).is_err(), "{wrong}");
        }
    }
}
