//! Intervals that hold however often, and whenever, one looks at the data.
//!
//! Values arrive one by one, and the mean is tested after each. With Student's t at 95 %, every
//! look is another chance to be wrong. A *confidence sequence* covers the true mean at all looks
//! together: with probability 0.95, none of its intervals, from the second value to the last,
//! misses it. So one may stop as soon as the answer pleases.
//!
//! This one is for normal values of unknown spread. The likelihood ratio of "the mean lies z
//! standard deviations from m, z being normal with variance 1 / g" against "the mean is m", with
//! the spread integrated out by Jeffreys' prior 1 / s on both sides, depends on the data only
//! through t:
//!
//! > E(t, n) = sqrt(g / (n + g)) ((1 + t^2 / (n - 1)) / (1 + g / (n + g) t^2 / (n - 1)))^(n / 2)
//!
//! (Gonen et al. 2005, "The Bayesian two-sample t test"). If the mean is m, the sequence E(t2, 2),
//! E(t3, 3), ... is a martingale that begins at 1 (Lai 1976, "On confidence sequences"; Perez-Ortiz
//! et al. 2024, "E-statistics, group invariance and anytime-valid testing"), so by Ville's
//! inequality the probability that it ever reaches 1 / alpha is at most alpha. The interval
//! contains every m for which it has not.

use crate::StandardError;

/// The g above: one over the variance of the true mean, in squared standard deviations of one
/// value, for which the sequence is narrowest. Any is valid: a smaller one decides large
/// differences a value earlier, a larger one decides small differences earlier.
const PRECISION: f64 = 0.1;

impl StandardError {
    /// Half the width of the confidence sequence for a mean of values; `None` if `confidence` is
    /// not between 0 and 1, or there are too few values for any bound.
    pub fn anytime_half_width(&self, confidence: f64) -> Option<f64> {
        let alpha = 1.0 - confidence;
        if !(alpha > 0.0 && alpha < 1.0 && self.freedom >= 1.0) {
            return None;
        }
        let n = self.freedom + 1.0;
        let share = PRECISION / (n + PRECISION);
        // The t for which E is 1 / alpha.
        let root = (-(2.0 * alpha.ln() + share.ln()) / n).exp();
        let t = (root - 1.0) * self.freedom / (1.0 - share * root);
        (share * root < 1.0).then(|| t.sqrt() * self.size)
    }

    /// The error rate at which the confidence sequence extends exactly `distance` from the mean: a
    /// p-value that is valid at every look.
    pub fn anytime_p(&self, distance: f64) -> f64 {
        if distance.is_nan() || self.freedom < 1.0 || distance == 0.0 {
            return 1.0;
        }
        let n = self.freedom + 1.0;
        let share = PRECISION / (n + PRECISION);
        let squared = (distance / self.size).powi(2) / self.freedom;
        // The limit if all values are identical.
        let ratio = match squared.is_finite() {
            true => (1.0 + squared) / (1.0 + share * squared),
            false => share.recip(),
        };
        (-0.5 * (share.ln() + n * ratio.ln())).exp().min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Moments, Random, StandardError};

    #[test]
    fn the_interval_and_the_p_value_agree() {
        for (size, freedom) in [(0.02, 4.0), (1.0, 9.0), (3.0, 25.0)] {
            let error = StandardError { size, freedom };
            for confidence in [0.9, 0.95, 0.99] {
                let half = error.anytime_half_width(confidence).unwrap();
                assert!((error.anytime_p(half) - (1.0 - confidence)).abs() < 1e-9);
                assert!(half > error.half_width(confidence).unwrap(), "no look is free");
            }
        }
    }

    #[test]
    fn known_answer() {
        // n = 5, g = 0.1: A = (400 * 51)^(1/5) = 7.2752, g / (n + g) = 0.0196078, so
        // t^2 / 4 = 6.2752 / (1 - 0.142650) = 7.3193 and t = 5.4109.
        let error = StandardError { size: 1.0, freedom: 4.0 };
        let half = error.anytime_half_width(0.95).unwrap();
        assert!((half - 5.4109).abs() < 1e-3, "{half}");
    }

    #[test]
    fn few_values_bound_nothing() {
        let two = StandardError { size: 1.0, freedom: 1.0 };
        assert_eq!(two.anytime_half_width(0.95), None);
        assert!(two.anytime_p(1e9) > 0.05, "{}", two.anytime_p(1e9));
        assert_eq!(two.anytime_p(0.0), 1.0);
        let same = StandardError { size: 0.0, freedom: 9.0 };
        assert!(same.anytime_p(0.1) < 1e-6 && same.anytime_p(f64::NAN) == 1.0);
    }

    /// Simulation: looking after each of 200 values and stopping at the first interval that
    /// excludes the truth is wrong no more often than declared; with Student's t, far more often.
    #[test]
    fn looking_after_each_value_keeps_the_error() {
        let mut random = Random::new(11);
        let (mut anytime, mut student) = (0, 0);
        let studies = 2000;
        for _ in 0..studies {
            let mut all = Moments::default();
            let mut missed = (false, false);
            for _ in 0..200 {
                all.add(random.normal());
                let Some(error) = all.error() else { continue };
                let off = all.mean().abs();
                missed.0 |= error.anytime_half_width(0.95).is_some_and(|half| off > half);
                missed.1 |= error.half_width(0.95).is_some_and(|half| off > half);
            }
            anytime += u32::from(missed.0);
            student += u32::from(missed.1);
        }
        let of = |count: u32| f64::from(count) / f64::from(studies);
        assert!((0.01..=0.06).contains(&of(anytime)), "{}", of(anytime));
        assert!(of(student) > 0.2, "{}", of(student));
    }
}
