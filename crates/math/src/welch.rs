use crate::{tails, two_sided};

/// How far a mean, or a difference of means, may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StandardError {
    /// Its size in the unit of the values.
    pub size: f64,
    /// Degrees of freedom of the estimate.
    pub freedom: f64,
}

impl StandardError {
    /// Half the width of the t interval at this confidence; `None` if that is not between 0 and 1.
    pub fn half_width(&self, confidence: f64) -> Option<f64> {
        let half = two_sided(confidence, self.freedom)? * self.size;
        half.is_finite().then_some(half)
    }

    /// The probability of a mean at least `distance` from the truth, by Student's t.
    pub fn p(&self, distance: f64) -> f64 {
        match self.size {
            // All values are identical: any distance is certain.
            0.0 => f64::from(u8::from(distance == 0.0)),
            size => tails(distance / size, self.freedom),
        }
    }
}

/// The standard error of a sum or difference of independent means with different variances (B. L.
/// Welch, Biometrika 34, 1947; degrees of freedom by Satterthwaite).
pub fn welch(errors: &[StandardError]) -> StandardError {
    let variances = || errors.iter().map(|e| (e.size * e.size, e.freedom));
    let all: f64 = variances().map(|(variance, _)| variance).sum();
    let parts: f64 = variances().map(|(variance, freedom)| variance * variance / freedom).sum();
    let freedom = match parts > 0.0 {
        true => {
            let least = errors.iter().map(|e| e.freedom).fold(f64::INFINITY, f64::min);
            // Rounding must not carry it below the minimum of the formula.
            (all * all / parts).max(least)
        }
        // All values are identical.
        false => errors.iter().map(|e| e.freedom).sum(),
    };
    StandardError { size: all.sqrt(), freedom }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moments;

    fn error(values: &[f64]) -> StandardError {
        values.iter().copied().collect::<Moments>().error().unwrap()
    }

    #[test]
    fn by_hand() {
        // s 3 over 4 and s 1 over 9: variances 2.25 and 0.1111, error 1.536591;
        // 2.361111^2 / (2.25^2 / 3 + 0.111111^2 / 8) = 3.300594 degrees.
        let of = |s: f64, n: f64| StandardError { size: s / n.sqrt(), freedom: n - 1.0 };
        let e = welch(&[of(3.0, 4.0), of(1.0, 9.0)]);
        assert!((e.size - 1.536_590_7).abs() < 1e-6, "{e:?}");
        assert!((e.freedom - 3.300_594).abs() < 1e-4, "{e:?}");
        assert_eq!(welch(&[of(0.0, 4.0), of(0.0, 5.0)]).freedom, 7.0);
    }

    #[test]
    fn half_widths_against_a_table() {
        // Means 2 and 5, variances 1 and 4, n 3 and 3: se^2 = 5/3, freedom = 2.941176, where
        // the quantile lies between those of 2 and 3 (4.3027 and 3.1824).
        let e = welch(&[error(&[1.0, 2.0, 3.0]), error(&[3.0, 5.0, 7.0])]);
        assert!((e.freedom - 2.941_176).abs() < 1e-6);
        let t = e.half_width(0.95).unwrap() / (5.0f64 / 3.0).sqrt();
        assert!(t > 3.1824 && t < 3.26, "{t}");
        assert_eq!(e.half_width(1.0), None);
    }

    #[test]
    fn two_values_each_are_enough_whatever_their_spread() {
        for (a, b) in [([1.0, 1.0], [3.0, 3.0]), ([0.1, 0.7], [0.3, 0.3])] {
            let e = welch(&[error(&a), error(&b)]);
            assert!(e.freedom >= 1.0 && e.half_width(0.95).is_some(), "{e:?}");
        }
    }
}
