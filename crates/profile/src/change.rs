//! The difference of two means, and how far it can be off.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A difference, after - before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Its mean.
    pub mean: f64,
    /// Half the width of its interval; none below two trials of each cell.
    pub half_width: Option<f64>,
}

impl Change {
    /// The difference of two groups of trials. Trials are independent of each other
    /// and each group has its own variance, so the interval is Welch's (B. L. Welch,
    /// Biometrika 34, 1947).
    pub fn between(before: Values, after: Values, confidence: f64) -> Change {
        let change = Change { mean: after.mean - before.mean, half_width: None };
        let (Some(a), Some(b)) = (before.error(), after.error()) else { return change };
        let both = a + b;
        if both == 0.0 {
            return Change { half_width: Some(0.0), ..change };
        }
        let degrees = |error: f64, values: Values| error * error / (values.count - 1.0);
        let freedom = both * both / (degrees(a, before) + degrees(b, after));
        let half = StudentsT::new(0.0, 1.0, freedom)
            .map(|t| t.inverse_cdf(0.5 + confidence / 2.0) * both.sqrt())
            .ok()
            .filter(|half| half.is_finite());
        Change { half_width: half, ..change }
    }

    /// Whether the interval leaves no doubt that there is a difference, and in
    /// which direction.
    pub fn resolved(&self) -> bool {
        self.half_width.is_some_and(|half| self.mean.abs() > half)
    }
}

/// Values of repeated trials, as far as their mean and spread need them; added one
/// by one (B. P. Welford, Technometrics 4, 1962).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Values {
    count: f64,
    /// Kept beside the mean, so that whole numbers stay whole.
    sum: f64,
    mean: f64,
    /// Sum of the squares of what they are off the mean.
    squares: f64,
}

impl Values {
    /// One more.
    pub fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        let off = value - self.mean;
        self.mean += off / self.count;
        self.squares += off * (value - self.mean);
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// The same among so many in all, of which the others are zero: a function that
    /// was not seen in a trial took nothing there.
    pub fn among(self, trials: usize) -> Values {
        let count = self.count.max(trials as f64);
        if count == 0.0 {
            return self;
        }
        let mean = self.sum / count;
        let zeros = self.mean * self.mean * self.count * (count - self.count) / count;
        Values { count, mean, squares: self.squares + zeros, ..self }
    }

    /// Square of the standard error of their mean; none below two.
    fn error(&self) -> Option<f64> {
        (self.count >= 2.0).then(|| self.squares / (self.count - 1.0) / self.count)
    }
}

impl FromIterator<f64> for Values {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Values {
        values.into_iter().fold(Values::default(), |mut all, value| {
            all.add(value);
            all
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(values: &[f64]) -> Values {
        values.iter().copied().collect()
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn welch_against_numbers_from_a_table() {
        // Means 2 and 5, variances 1 and 4, n 3 and 3: se^2 = 5/3, freedom = 2.941176,
        // where the quantile lies between those of 2 and 3 (4.3027 and 3.1824).
        let change = Change::between(values(&[1.0, 2.0, 3.0]), values(&[3.0, 5.0, 7.0]), 0.95);
        let t = change.half_width.unwrap() / (5.0f64 / 3.0).sqrt();
        assert!(near(change.mean, 3.0) && t > 3.1824 && t < 3.26, "{t}");
        assert!(!change.resolved());
    }

    #[test]
    fn one_trial_has_no_interval_and_equal_ones_no_doubt() {
        let one = Change::between(values(&[1.0]), values(&[3.0, 4.0]), 0.95);
        assert_eq!((one.mean, one.half_width, one.resolved()), (2.5, None, false));
        let equal = Change::between(values(&[1.0, 1.0]), values(&[3.0, 3.0]), 0.95);
        assert_eq!((equal.half_width, equal.resolved()), (Some(0.0), true));
    }

    #[test]
    fn trials_that_did_not_see_a_function_count_as_zeros() {
        let (seen, all) = (values(&[2.0, 5.0]).among(4), values(&[2.0, 0.0, 5.0, 0.0]));
        assert!(near(seen.mean, all.mean) && near(seen.squares, all.squares), "{seen:?} {all:?}");
        assert!(near(seen.sum(), 7.0) && near(seen.mean, 1.75));
        assert_eq!(values(&[2.0, 5.0]).among(2), values(&[2.0, 5.0]));
        assert_eq!(Values::default().among(3).error(), Some(0.0));
    }
}
