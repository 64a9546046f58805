use crate::StandardError;

/// Mean and spread of values that are added one by one (B. P. Welford, Technometrics 4,
/// 1962).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    count: f64,
    sum: f64,
    /// Sum of the squared distances from the mean.
    squares: f64,
}

impl Moments {
    pub fn add(&mut self, value: f64) {
        let before = self.mean();
        self.count += 1.0;
        self.sum += value;
        self.squares += (value - before) * (value - self.mean());
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// The arithmetic mean; 0 if there are no values.
    pub fn mean(&self) -> f64 {
        if self.count == 0.0 { 0.0 } else { self.sum / self.count }
    }

    /// The sample standard deviation, with divisor n - 1; `None` below two values, because one
    /// value carries no information about its spread.
    pub fn stddev(&self) -> Option<f64> {
        (self.count >= 2.0).then(|| (self.squares.max(0.0) / (self.count - 1.0)).sqrt())
    }

    /// The standard error of the mean; `None` below two values.
    pub fn error(&self) -> Option<StandardError> {
        let size = self.stddev()? / self.count.sqrt();
        Some(StandardError { size, freedom: self.count - 1.0 })
    }

    /// Returns this sample with zeros added until it has `count` values.
    pub fn among(self, count: usize) -> Moments {
        let count = self.count.max(count as f64);
        if count == 0.0 {
            return self;
        }
        let zeros = self.mean() * self.mean() * self.count * (count - self.count) / count;
        Moments { count, sum: self.sum, squares: self.squares + zeros }
    }
}

impl FromIterator<f64> for Moments {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Moments {
        values.into_iter().fold(Moments::default(), |mut all, value| {
            all.add(value);
            all
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[f64]) -> Moments {
        values.iter().copied().collect()
    }

    #[test]
    fn known_answers() {
        // 2, 4, 4, 4, 5, 5, 7, 9: mean 5, sum of squares 32.
        let m = of(&[9.0, 2.0, 4.0, 5.0, 4.0, 7.0, 4.0, 5.0]);
        assert_eq!((m.sum(), m.mean()), (40.0, 5.0));
        assert!((m.stddev().unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-15);
        let error = m.error().unwrap();
        assert!((error.size - (4.0f64 / 7.0).sqrt()).abs() < 1e-15 && error.freedom == 7.0);
    }

    #[test]
    fn few_values() {
        assert_eq!((of(&[]).mean(), of(&[]).stddev()), (0.0, None));
        assert_eq!((of(&[3.0]).mean(), of(&[3.0]).stddev(), of(&[3.0]).error()), (3.0, None, None));
        assert_eq!(of(&[0.1, 0.1, 0.1]).stddev(), Some(0.0));
        assert_eq!(of(&[]).among(3).stddev(), Some(0.0));
    }

    proptest! {
        #[test]
        fn the_same_as_in_two_passes(values in prop::collection::vec(-1e6..1e6, 2..40)) {
            let m = of(&values);
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
            prop_assert!((m.mean() - mean).abs() < 1e-6);
            prop_assert!((m.stddev().unwrap() - (squares / (n - 1.0)).sqrt()).abs() < 1e-6);
        }

        #[test]
        fn zeros_added_at_once_or_one_by_one(values in prop::collection::vec(-1e3..1e3, 0..9)) {
            let zeros = values.iter().copied().chain([0.0; 4]).collect::<Moments>();
            let among = of(&values).among(values.len() + 4);
            prop_assert!((among.sum() - zeros.sum()).abs() < 1e-9);
            prop_assert!((among.stddev().unwrap() - zeros.stddev().unwrap()).abs() < 1e-9);
            prop_assert_eq!(of(&values).among(values.len()), of(&values));
        }
    }
}
