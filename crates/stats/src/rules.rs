//! The rules by which a study is judged, declared before its first trial.

use bytepath_record::{Judgement, StudyHeader};
use schemars::JsonSchema;
use serde::Serialize;

/// Differences within this part are too small to matter, unless a study declares otherwise.
pub const DEFAULT_MARGIN: f64 = 0.02;

/// Confidence of every interval, unless a study declares otherwise.
pub(crate) const CONFIDENCE: f64 = 0.95;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Rules {
    /// Differences within this part of one are too small to matter.
    pub margin: f64,
    /// Confidence of every printed interval by itself, and of the verdicts in one metric over the
    /// whole study (see `Verdict`).
    pub confidence: f64,
    /// Exponent of the rate in the return on investment.
    pub roi_throughput: f64,
    /// Exponent of the power in the return on investment by power.
    pub roi_power: f64,
}

impl Rules {
    /// Returns the rules that a study declared before its first trial.
    pub fn of(header: &StudyHeader) -> Rules {
        header.judgement.into()
    }

    /// Returns the rules for one comparison if the study has two passes, of which the first chose
    /// the cells for the second: each may use half of the error.
    pub fn in_two_passes(self) -> Rules {
        Rules { confidence: 1.0 - (1.0 - self.confidence) / 2.0, ..self }
    }
}

impl From<Judgement> for Rules {
    fn from(j: Judgement) -> Rules {
        Rules {
            margin: j.margin,
            confidence: j.confidence,
            roi_throughput: j.roi_throughput,
            roi_power: j.roi_power,
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules { margin: DEFAULT_MARGIN, confidence: CONFIDENCE, ..Judgement::default().into() }
    }
}
