//! Holm's step-down rule: many comparisons, one error rate.
//!
//! Ten independent comparisons at 95 % each lead to at least one false claim in 40 of 100 studies
//! in which nothing differs (1 - 0.95^10; in fewer if they share a baseline). Holm (1979, "A simple
//! sequentially rejective multiple test procedure") sorts the m p-values and requires the smallest
//! to be within alpha / m, the next within alpha / (m - 1), and so on, up to the first that is not.
//! The probability of any false claim among all m is then at most alpha, however the comparisons
//! depend on each other (they do: they share the baseline). Every claim that Bonferroni's rule
//! allows is kept.

use schemars::JsonSchema;
use serde::Serialize;

/// Result of the rule for one p-value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Adjusted {
    /// The unadjusted p-value.
    pub p: f64,
    /// The smallest error rate of the whole family at which this claim is still made. The claim
    /// holds if this is at most one minus the confidence.
    pub adjusted: f64,
    /// One minus the error rate that the rule leaves for this comparison: an interval of this
    /// confidence alone shows whether the claim holds.
    pub confidence: f64,
}

/// Adjusts all p-values of a family for a common `confidence`; the results are in the order of
/// `ps`.
pub fn holm(ps: &[f64], confidence: f64) -> Vec<Adjusted> {
    let (alpha, family) = (1.0 - confidence, ps.len());
    let mut order: Vec<usize> = (0..family).collect();
    order.sort_by(|a, b| ps[*a].total_cmp(&ps[*b]));
    let mut adjusted = vec![1.0; family];
    let mut largest = 0.0f64;
    for (rank, at) in order.iter().enumerate() {
        largest = largest.max((family - rank) as f64 * ps[*at]).min(1.0);
        adjusted[*at] = largest;
    }
    let claimed = adjusted.iter().filter(|p| **p <= alpha).count();
    let mut all: Vec<Adjusted> = ps
        .iter()
        .zip(adjusted)
        .map(|(p, adjusted)| Adjusted { p: *p, adjusted, confidence })
        .collect();
    for (rank, at) in order.into_iter().enumerate() {
        // Comparisons that are not claimed share the error rate left for the first of them.
        let sharing = family - rank.min(claimed);
        all[at].confidence = 1.0 - alpha / sharing as f64;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Sorted: 0.005 x 4 = 0.02, 0.011 x 3 = 0.033, 0.02 x 2 = 0.04, 0.04 x 1 = 0.04, all within
        // 0.05. Bonferroni's rule would claim only the first two.
        let all = holm(&[0.02, 0.005, 0.04, 0.011], 0.95);
        let adjusted: Vec<f64> = all.iter().map(|a| a.adjusted).collect();
        for (a, expected) in adjusted.iter().zip([0.04, 0.02, 0.04, 0.033]) {
            assert!((a - expected).abs() < 1e-12, "{adjusted:?}");
        }
        let levels: Vec<f64> = all.iter().map(|a| 1.0 - a.confidence).collect();
        for (l, expected) in levels.iter().zip([0.025, 0.0125, 0.05, 0.05 / 3.0]) {
            assert!((l - expected).abs() < 1e-12, "{levels:?}");
        }
    }

    #[test]
    fn the_first_that_fails_ends_it() {
        // 0.001 x 3 holds; 0.03 x 2 = 0.06 does not; 0.04 x 1 would, but may not.
        let all = holm(&[0.03, 0.001, 0.04], 0.95);
        let adjusted: Vec<f64> = all.iter().map(|a| a.adjusted).collect();
        assert_eq!(adjusted, [0.06, 0.003, 0.06]);
        assert!((all[2].confidence - 0.975).abs() < 1e-12, "what two of them share");
    }

    #[test]
    fn confidence_agrees_with_the_adjusted_p() {
        let mut random = crate::Random::new(3);
        for _ in 0..500 {
            let ps: Vec<f64> = (0..7).map(|_| random.uniform().powi(3)).collect();
            for a in holm(&ps, 0.95) {
                let by_rule = a.adjusted <= 1.0 - 0.95;
                assert_eq!(by_rule, a.p <= 1.0 - a.confidence, "{a:?} of {ps:?}");
            }
        }
    }

    #[test]
    fn one_alone_is_left_alone() {
        let one = holm(&[0.03], 0.95)[0];
        assert_eq!((one.p, one.adjusted), (0.03, 0.03));
        assert!((one.confidence - 0.95).abs() < 1e-15);
        assert!(holm(&[], 0.95).is_empty());
    }
}
