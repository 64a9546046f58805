//! A mean of logarithms with its standard error: all that intervals and tests need from a
//! comparison, however it was designed.

use bytepath_math::StandardError;
use schemars::JsonSchema;
use serde::Serialize;

/// A ratio is never reported beyond exp(700), about 1e304: an interval that reaches there is
/// unbounded for every purpose, and remains finite.
const LOG_BOUND: f64 = 700.0;

/// The logarithm of a ratio, with its uncertainty.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    pub log_mean: f64,
    /// Every standard error that applies; empty for a single value, which has no spread. If there
    /// are several, the widest interval is used.
    pub errors: Vec<StandardError>,
    /// How often the comparison was looked at before it was complete.
    pub looks: Looks,
}

/// How often a comparison is looked at, which determines how wide its interval must be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Looks {
    /// Once, when all blocks are there.
    #[default]
    Once,
    /// By a rule that stops when intervals are narrow, first after this many blocks; see
    /// `should_stop`.
    Spread { first: usize },
    /// After each block, to stop when the answer is certain: by a confidence sequence at half of
    /// the error. The other half is for the planned number of blocks, at which Student's t holds;
    /// `last` is true if they are complete.
    EachBlock { last: bool },
}

/// A confidence interval of a ratio, by Student's t over logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Interval {
    /// Lower end, as a ratio.
    pub low: f64,
    /// Upper end, as a ratio.
    pub high: f64,
    /// Half of its width, in logarithms.
    pub log_half_width: f64,
    /// Probability with which such an interval covers the true ratio.
    pub confidence: f64,
}

impl Estimate {
    /// Creates an estimate that is looked at once.
    pub fn once(log_mean: f64, errors: Vec<StandardError>) -> Estimate {
        Estimate { log_mean, errors, looks: Looks::Once }
    }

    /// Returns the interval at this confidence; `None` without a standard error.
    pub fn interval(&self, confidence: f64) -> Option<Interval> {
        let half = match self.looks {
            Looks::EachBlock { last } => {
                let (error, half) = (self.errors.first()?, (1.0 + confidence) / 2.0);
                let student = last.then(|| error.half_width(half)).flatten();
                error.anytime_half_width(half).into_iter().chain(student).reduce(f64::min)?
            }
            _ => self.errors.iter().filter_map(|e| e.half_width(confidence)).reduce(f64::max)?,
        };
        Some(Interval {
            low: ratio(self.log_mean - half),
            high: ratio(self.log_mean + half),
            log_half_width: half,
            confidence,
        })
    }

    /// Returns the probability of a mean at least this far from zero if nothing differs: the
    /// interval begins to include 1 at a confidence of one minus this. `None` without a standard
    /// error.
    pub fn p_different(&self) -> Option<f64> {
        self.p_beyond(self.log_mean.abs())
    }

    /// Returns one minus the highest confidence at which the whole interval lies within
    /// `log_margin` of zero; 1 if the mean itself does not. `None` without a standard error. This
    /// is twice the p of two one-sided tests (Schuirmann 1987), so that the word and the printed
    /// interval always agree.
    pub fn p_equivalent(&self, log_margin: f64) -> Option<f64> {
        let room = log_margin - self.log_mean.abs();
        let p = self.p_beyond(room.max(0.0))?;
        Some(if room > 0.0 { p } else { 1.0 })
    }

    /// Returns one minus the confidence at which the half-width is exactly `log_distance`.
    fn p_beyond(&self, log_distance: f64) -> Option<f64> {
        match self.looks {
            Looks::EachBlock { last } => {
                let error = self.errors.first()?;
                let student = if last { error.p(log_distance) } else { 1.0 };
                Some((2.0 * error.anytime_p(log_distance).min(student)).min(1.0))
            }
            _ => self.errors.iter().map(|error| error.p(log_distance)).reduce(f64::max),
        }
    }
}

/// Converts a logarithm to its ratio, kept finite and above zero.
pub(crate) fn ratio(log: f64) -> f64 {
    log.clamp(-LOG_BOUND, LOG_BOUND).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(log_mean: f64, errors: &[(f64, f64)]) -> Estimate {
        let error = |(size, freedom): &(f64, f64)| StandardError { size: *size, freedom: *freedom };
        Estimate::once(log_mean, errors.iter().map(error).collect())
    }

    #[test]
    fn p_values_agree_with_intervals() {
        let e = estimate(0.05, &[(0.02, 4.0)]);
        // t = 2.5 with 4 degrees of freedom: p = 0.066767 (integrated by hand).
        let p = e.p_different().unwrap();
        assert!((p - 0.066_766_6).abs() < 1e-6, "{p}");
        let touching = e.interval(1.0 - p).unwrap();
        assert!((touching.low - 1.0).abs() < 1e-9);
        let p = e.p_equivalent(0.11).unwrap();
        let touching = e.interval(1.0 - p).unwrap();
        assert!((touching.high.ln() - 0.11).abs() < 1e-9);
        assert_eq!(e.p_equivalent(0.05), Some(1.0));
        assert_eq!(e.p_equivalent(0.01), Some(1.0));
    }

    #[test]
    fn the_widest_of_several_errors_counts() {
        let (small, large) = (estimate(0.1, &[(0.01, 9.0)]), estimate(0.1, &[(0.03, 9.0)]));
        let both = estimate(0.1, &[(0.01, 9.0), (0.03, 9.0)]);
        assert_eq!(both.interval(0.95), large.interval(0.95));
        assert_eq!(both.p_different(), large.p_different());
        assert!(small.p_different() < both.p_different());
    }

    #[test]
    fn missing_and_zero_errors() {
        let unknown = estimate(0.1, &[]);
        assert_eq!((unknown.interval(0.95), unknown.p_different()), (None, None));
        assert_eq!(unknown.p_equivalent(1.0), None);
        let exact = estimate(0.1, &[(0.0, 4.0)]);
        assert_eq!((exact.p_different(), exact.p_equivalent(0.2)), (Some(0.0), Some(0.0)));
        let nothing = estimate(0.0, &[(0.0, 4.0)]);
        assert_eq!((nothing.p_different(), nothing.p_equivalent(0.2)), (Some(1.0), Some(0.0)));
    }
}
