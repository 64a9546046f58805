use statrs::distribution::{ContinuousCDF, StudentsT};

/// The bound that the magnitude of a t variable with `freedom` degrees of freedom stays below with
/// probability `confidence`. `None` for less than one degree of freedom or a confidence that is not
/// between 0 and 1.
pub fn two_sided(confidence: f64, freedom: f64) -> Option<f64> {
    if !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let t = StudentsT::new(0.0, 1.0, freedom).ok().filter(|_| freedom >= 1.0)?;
    let quantile = t.inverse_cdf(0.5 + confidence / 2.0);
    quantile.is_finite().then_some(quantile)
}

/// The probability that a t variable with `freedom` degrees of freedom is at least `statistic` away
/// from zero. 1 if `statistic` is not a number, so that no claim follows from it.
pub fn tails(statistic: f64, freedom: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(t) if !statistic.is_nan() => (2.0 * t.sf(statistic.abs())).clamp(0.0, 1.0),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_the_printed_tables() {
        for (freedom, expected) in [
            (1.0, 12.706_204_736),
            (2.0, 4.302_652_730),
            (4.0, 2.776_445_105),
            (9.0, 2.262_157_163),
            (29.0, 2.045_229_642),
        ] {
            let t = two_sided(0.95, freedom).unwrap();
            assert!((t - expected).abs() < 1e-7, "{freedom}: {t}");
        }
        assert!((two_sided(0.99, 4.0).unwrap() - 4.604_094_871).abs() < 1e-7);
        assert_eq!(two_sided(0.95, 0.0), None);
        assert_eq!(two_sided(1.0, 4.0), None);
        assert_eq!(two_sided(f64::NAN, 4.0), None);
    }

    #[test]
    fn tails_and_quantiles_agree() {
        for freedom in [1.0, 4.0, 9.5, 29.0] {
            for confidence in [0.5, 0.95, 0.999] {
                let t = two_sided(confidence, freedom).unwrap();
                assert!((tails(t, freedom) - (1.0 - confidence)).abs() < 1e-9);
                assert_eq!(tails(-t, freedom), tails(t, freedom));
            }
        }
        assert_eq!((tails(0.0, 4.0), tails(f64::INFINITY, 4.0)), (1.0, 0.0));
        assert_eq!((tails(f64::NAN, 4.0), tails(3.0, 0.0)), (1.0, 1.0));
    }
}
