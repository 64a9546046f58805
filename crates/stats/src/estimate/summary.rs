//! Summary of a handful of values.

use bytepath_math::{Moments, StandardError};
use schemars::JsonSchema;
use serde::Serialize;

/// Centre and spread of a sample. Every field is finite.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Summary {
    pub n: usize,
    pub mean: f64,
    /// Middle value; the mean of the two middle ones if n is even.
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Sample standard deviation (with n - 1 in the denominator); `None` below two values, because
    /// one value has no spread.
    pub stddev: Option<f64>,
    /// Confidence interval of the mean, by Student's t; `None` below two values, and if not
    /// requested.
    pub interval: Option<(f64, f64)>,
}

impl Summary {
    /// Summarises the finite values; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        let moments: Moments = sorted.iter().copied().collect();
        // Rounding must not move the mean outside the range.
        let mean = moments.mean().clamp(min, max);
        let median =
            if n % 2 == 1 { sorted[n / 2] } else { sorted[n / 2 - 1] / 2.0 + sorted[n / 2] / 2.0 };
        let stddev = moments.stddev().filter(|s| s.is_finite());
        Some(Summary { n, mean, median, min, max, stddev, interval: None })
    }

    /// Summarises with the t interval of the mean at this confidence.
    pub fn with_interval(
        values: impl IntoIterator<Item = f64>,
        confidence: f64,
    ) -> Option<Summary> {
        Summary::of(values).map(|summary| summary.at(confidence))
    }

    /// Adds the t interval of the mean at this confidence.
    pub fn at(self, confidence: f64) -> Summary {
        let half = self.error().and_then(|error| error.half_width(confidence));
        // A value that cannot be negative gets an interval of logarithms if the plain one would
        // include zero.
        let ends = half.map(|half| match half >= self.mean && self.min >= 0.0 && self.mean > 0.0 {
            true => (self.mean * (-half / self.mean).exp(), self.mean * (half / self.mean).exp()),
            false => (self.mean - half, self.mean + half),
        });
        let finite = |(low, high): &(f64, f64)| low.is_finite() && high.is_finite();
        Summary { interval: ends.filter(finite), ..self }
    }

    /// Returns the standard error of the mean; `None` below two values.
    pub(crate) fn error(&self) -> Option<StandardError> {
        let n = self.n as f64;
        Some(StandardError { size: self.stddev? / n.sqrt(), freedom: n - 1.0 })
    }

    /// Returns the standard deviation as a part of the mean; `None` below two values or at a mean
    /// of zero.
    pub fn relative_stddev(&self) -> Option<f64> {
        let ratio = self.stddev? / self.mean.abs();
        ratio.is_finite().then_some(ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // 2, 4, 4, 4, 5, 5, 7, 9: mean 5, sum of squares 32, so s^2 = 32 / 7.
        let s = Summary::of([9.0, 2.0, 4.0, 5.0, 4.0, 7.0, 4.0, 5.0]).unwrap();
        assert_eq!((s.n, s.mean, s.median, s.min, s.max), (8, 5.0, 4.5, 2.0, 9.0));
        assert!((s.stddev.unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-15);
        assert!((s.relative_stddev().unwrap() - (32.0f64 / 7.0).sqrt() / 5.0).abs() < 1e-15);
    }

    #[test]
    fn the_interval_of_the_mean() {
        // 1 to 9: sum of squares 60; t(8, 0.975) = 2.306004.
        let s = Summary::of((1..=9).map(f64::from)).unwrap().at(0.95);
        let half = 2.306_004_135 * (60.0f64 / 8.0 / 9.0).sqrt();
        let (low, high) = s.interval.unwrap();
        assert!((low - (5.0 - half)).abs() < 1e-8 && (high - (5.0 + half)).abs() < 1e-8);
        assert_eq!(Summary::of([1.0]).unwrap().at(0.95).interval, None);
        assert_eq!(Summary::of([1.0, 2.0]).unwrap().at(1.0).interval, None);
    }

    #[test]
    fn what_cannot_be_negative_has_no_negative_interval() {
        let (low, high) = Summary::with_interval([0.1, 5.0, 0.2], 0.95).unwrap().interval.unwrap();
        assert!(low > 0.0 && low < 1.77 && high > 1.77, "{low} {high}");
        let (low, _) = Summary::with_interval([-0.1, 5.0, 0.2], 0.95).unwrap().interval.unwrap();
        assert!(low < 0.0, "what may be negative may");
    }

    #[test]
    fn few_values() {
        assert_eq!(Summary::of([]), None);
        assert_eq!(Summary::of([f64::NAN, f64::INFINITY]), None);
        let one = Summary::of([3.0]).unwrap();
        assert_eq!((one.mean, one.median, one.stddev), (3.0, 3.0, None));
        assert_eq!(Summary::of([0.0, 0.0]).unwrap().relative_stddev(), None);
        let huge = Summary::of([f64::MAX, f64::MAX, f64::MAX]).unwrap();
        assert!(huge.mean.is_finite() && huge.median.is_finite());
        assert_eq!(Summary::of([f64::MAX, -f64::MAX]).unwrap().stddev, None);
    }
}
