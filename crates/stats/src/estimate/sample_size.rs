//! How many blocks a comparison needs, by Student's t and for a stated power.

use bytepath_math::two_sided;

/// Most blocks that a plan names; above that it is "more".
pub(crate) const MOST_BLOCKS: u32 = 1000;

/// The probability with which planned blocks give an answer.
pub(crate) const POWER_OF_PLAN: f64 = 0.8;

/// Returns how many blocks give an answer in [`POWER_OF_PLAN`] of all studies, if the log ratios
/// keep scattering with `stddev`: a difference of exactly `margin` is detected at the confidence
/// `different`, and two equals are called EQUIVALENT within it at the confidence `equivalent`.
/// `None` above [`MOST_BLOCKS`].
///
/// The first requires a mean that is t above zero and at most z(power) standard errors below the
/// truth; the second an interval that fits into the margin on both sides of a mean that is within
/// z((1 + power) / 2) standard errors of zero. t is used in place of z, which also allows for the
/// spread being estimated.
pub(crate) fn blocks_for(stddev: f64, margin: f64, different: f64, equivalent: f64) -> Option<u32> {
    fewest(|n| {
        let t = |confidence| two_sided(confidence, f64::from(n) - 1.0);
        let fits = t(equivalent).zip(t(POWER_OF_PLAN)).map(|(a, b)| a + b);
        let errors = detecting(n, different).zip(fits).map(|(a, b)| a.max(b));
        errors.is_some_and(|errors| errors * stddev / f64::from(n).sqrt() <= margin)
    })
}

/// Returns how many blocks detect a difference of `size` in the log mean, at this confidence, in
/// [`POWER_OF_PLAN`] of all studies. `None` above [`MOST_BLOCKS`].
pub(crate) fn blocks_to_show(stddev: f64, size: f64, confidence: f64) -> Option<u32> {
    fewest(|n| {
        let errors = detecting(n, confidence);
        errors.is_some_and(|errors| errors * stddev / f64::from(n).sqrt() <= size)
    })
}

/// Returns by how many standard errors a mean must differ to be detected with the planned power.
fn detecting(n: u32, confidence: f64) -> Option<f64> {
    let t = |confidence| two_sided(confidence, f64::from(n) - 1.0);
    t(confidence).zip(t(one_sided(POWER_OF_PLAN))).map(|(a, b)| a + b)
}

/// Returns the smallest sufficient number of blocks; any larger number must be sufficient too.
fn fewest(enough: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut low, mut high) = (2, MOST_BLOCKS);
    if !enough(high) {
        return None;
    }
    while low < high {
        let middle = (low + high) / 2;
        if enough(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

/// Returns the two-sided confidence whose upper end is this quantile: 0.6 for 0.8.
pub(crate) fn one_sided(quantile: f64) -> f64 {
    2.0 * quantile - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Effect;
    use bytepath_math::Random;

    #[test]
    fn blocks_needed() {
        // At n = 52: t(51, 0.975) + t(51, 0.9) = 2.0076 + 1.2984, times 0.05 / sqrt(52)
        // = 0.02292; at n = 69: (1.9955 + 1.2941) 0.05 / sqrt(69) = 0.01980; at 68:
        // (1.9960 + 1.2943) 0.05 / sqrt(68) = 0.01995; at 67: 0.02010.
        assert_eq!(blocks_for(0.05, 0.02, 0.95, 0.95), Some(68));
        assert_eq!(blocks_for(0.0, 0.02, 0.95, 0.95), Some(2));
        assert_eq!(blocks_for(5.0, 0.02, 0.95, 0.95), None);
        assert_eq!(blocks_for(f64::NAN, 0.02, 0.95, 0.95), None);
        // At n = 10: (2.2622 + 0.8834) 0.05 / sqrt(10) = 0.0497; at 9: 0.0532.
        assert_eq!(blocks_to_show(0.05, 0.05, 0.95), Some(10));
        assert_eq!(blocks_to_show(0.05, 0.0, 0.95), None, "no number shows what is not there");
        // A higher confidence, as Holm's rule may require, needs more.
        assert!(blocks_for(0.05, 0.02, 0.99, 0.95) > blocks_for(0.05, 0.02, 0.95, 0.95));
    }

    /// What the plan promises holds in simulation, for both claims.
    #[test]
    fn planned_blocks_have_the_planned_power() {
        let (stddev, margin, confidence) = (0.04f64, 0.02f64.ln_1p(), 0.95);
        let n = blocks_for(stddev, margin, confidence, confidence).unwrap() as usize;
        let mut random = Random::new(3);
        let mut share = |truth: f64, earned: fn(&Effect, f64) -> bool| {
            let studies = 1000;
            let answered = (0..studies).filter(|_| {
                let pairs: Vec<(f64, f64)> =
                    (0..n).map(|_| (1.0, (truth + stddev * random.normal()).exp())).collect();
                earned(&Effect::of(&pairs, 0.95).unwrap(), 0.02f64.ln_1p())
            });
            answered.count() as f64 / f64::from(studies)
        };
        let equal = share(0.0, |e, margin| e.estimate().p_equivalent(margin).unwrap() <= 0.05);
        let apart = share(margin, |e, _| e.estimate().p_different().unwrap() <= 0.05);
        // The plan takes the larger number of the two, so one of them has a reserve.
        assert!((0.77..0.99).contains(&equal) && (0.77..0.99).contains(&apart), "{equal} {apart}");
        assert!(equal.min(apart) < 0.84, "more blocks than needed: {equal} {apart}");
    }
}
