//! The difference of two means and its uncertainty.

use bytepath_math::{Moments, StandardError, tails, welch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Confidence of all intervals.
pub const CONFIDENCE: f64 = 0.95;

/// A difference, after - before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    pub mean: f64,
    /// Half the width of its interval; `None` below two trials of each cell.
    pub half_width: Option<f64>,
    /// Probability of a difference at least as large if there is none; `None` below two trials of
    /// each cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
}

impl Change {
    /// Computes the difference of two groups of trials. Trials are independent of each other and
    /// each group has its own variance, so the interval is Welch's (B. L. Welch, Biometrika 34,
    /// 1947).
    pub fn between(before: Moments, after: Moments) -> Change {
        let errors = before.error().zip(after.error());
        let error = errors.map(|(a, b)| welch(&[a, b]));
        let mean = after.mean() - before.mean();
        let p = |error: StandardError| match error.size {
            // The values agree to the last bit, so any difference is certain.
            0.0 => f64::from(u8::from(mean == 0.0)),
            size => tails(mean / size, error.freedom),
        };
        let half_width = error.and_then(|error| error.half_width(CONFIDENCE));
        Change { mean, half_width, p: error.map(p) }
    }

    /// Returns an amount without any uncertainty information.
    pub fn plain(mean: f64) -> Change {
        Change { mean, ..Change::default() }
    }

    /// Returns whether the interval excludes zero, so that the direction of the difference is
    /// certain.
    pub fn resolved(&self) -> bool {
        self.half_width.is_some_and(|half| self.mean.abs() > half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(values: &[f64]) -> Moments {
        values.iter().copied().collect()
    }

    #[test]
    fn intervals_of_one_trial_and_of_equal_trials() {
        let one = Change::between(values(&[1.0]), values(&[3.0, 4.0]));
        assert_eq!((one.mean, one.half_width, one.resolved()), (2.5, None, false));
        let equal = Change::between(values(&[1.0, 1.0]), values(&[3.0, 3.0]));
        assert_eq!((equal.half_width, equal.p, equal.resolved()), (Some(0.0), Some(0.0), true));
    }
}
