//! How much one cell differs from another, block by block.
//!
//! Trials of one block run within seconds of each other, so drift in the machine affects both and
//! cancels in their ratio. Ratios are taken as logarithms: twice as fast and half as fast are then
//! equally far from equal.

use super::interval::{Estimate, Interval, Looks, ratio};
use super::order::Order;
use bytepath_math::{Moments, StandardError};
use schemars::JsonSchema;
use serde::Serialize;
use std::ops::RangeInclusive;

/// Numbers of blocks for which all sign flips are evaluated. With fewer the share cannot fall below
/// 0.05 however large the effect is; with more there are too many flips, and the t interval needs
/// no second opinion.
const FLIPPED: RangeInclusive<usize> = 6..=16;

/// A cell against another, paired by block.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Effect {
    /// Blocks in which both cells have a value above zero.
    pub blocks: usize,
    /// Blocks that have both values but could not be used, because a value that is zero, negative
    /// or missing has no ratio.
    pub left_out: usize,
    /// exp(mean of the per-block log ratios): 1.1 is ten percent more.
    pub ratio: f64,
    /// Smallest and largest ratio of a block.
    pub range: (f64, f64),
    /// Confidence interval of the ratio; `None` below two blocks.
    pub interval: Option<Interval>,
    /// Permutation test of "no difference": the share of all sign flips of the log ratios whose
    /// mean is at least as far from zero. Only with 6 to 16 blocks.
    pub permutation: Option<f64>,
    /// Mean of the log ratios.
    pub log_mean: f64,
    /// Sample standard deviation of the log ratios; `None` below two blocks.
    pub log_stddev: Option<f64>,
    /// The first blocks, if a stopping rule was declared.
    pub opening: Option<Opening>,
    /// How often the comparison was looked at.
    #[serde(skip)]
    pub looks: Looks,
    /// Dependence of the log ratios on the order of the blocks.
    #[serde(skip)]
    pub order: Option<Order>,
}

/// The first blocks of a study that may stop early. Every interval is then at
/// least as wide as their spread requires: see `should_stop`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Opening {
    /// Number of these blocks, at least two.
    pub blocks: usize,
    /// Sample standard deviation of their log ratios.
    pub log_stddev: f64,
}

impl Effect {
    /// Compares the second value of each pair with the first. `None` if no pair has a ratio.
    pub fn of(pairs: &[(f64, f64)], confidence: f64) -> Option<Effect> {
        Effect::looked_at(pairs, confidence, Looks::Once)
    }

    /// Like [`Self::of`], for a study that may end before all of its blocks have run.
    pub(crate) fn looked_at(pairs: &[(f64, f64)], confidence: f64, looks: Looks) -> Option<Effect> {
        let usable = |v: f64| v.is_finite() && v > 0.0;
        let logs: Vec<f64> = pairs
            .iter()
            .filter(|(a, b)| usable(*a) && usable(*b))
            .map(|(a, b)| b.ln() - a.ln())
            .collect();
        if logs.is_empty() {
            return None;
        }
        let n = logs.len();
        let moments: Moments = logs.iter().copied().collect();
        let (log_mean, log_stddev) = (moments.mean(), moments.stddev());
        let opening = match looks {
            Looks::Spread { first } => logs.get(..first.clamp(2, n.max(2))).and_then(|first| {
                let moments: Moments = first.iter().copied().collect();
                Some(Opening { blocks: first.len(), log_stddev: moments.stddev()? })
            }),
            _ => None,
        };
        let least = logs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut effect = Effect {
            blocks: n,
            left_out: pairs.len() - n,
            ratio: ratio(log_mean),
            range: (ratio(least), ratio(most)),
            interval: None,
            permutation: FLIPPED.contains(&n).then(|| permute(&logs)),
            log_mean,
            log_stddev,
            opening,
            looks,
            order: Order::of(&logs),
        };
        effect.interval = effect.estimate().interval(confidence);
        Some(effect)
    }

    /// Returns the mean log ratio with its standard errors: from all blocks and, if there is one,
    /// from the opening too.
    pub fn estimate(&self) -> Estimate {
        let root = (self.blocks as f64).sqrt();
        let all = self.log_stddev.map(|s| (s, self.blocks));
        let opening = self.opening.map(|o| (o.log_stddev, o.blocks));
        let error = |(stddev, blocks): (f64, usize)| StandardError {
            size: stddev / root,
            freedom: blocks as f64 - 1.0,
        };
        Estimate {
            log_mean: self.log_mean,
            errors: all.into_iter().chain(opening).map(error).collect(),
            looks: self.looks,
        }
    }
}

fn permute(logs: &[f64]) -> f64 {
    // A pattern counts as equally far despite rounding errors in its sum.
    let slack = 1e-12 * logs.iter().map(|d| d.abs()).sum::<f64>();
    let threshold = logs.iter().sum::<f64>().abs() - slack;
    count_extreme_sums(0.0, logs, threshold) as f64 / 2.0f64.powi(logs.len() as i32)
}

/// Counts the sums that begin with `sum`, continue with `rest`, each with either sign, and are at
/// least `threshold` away from zero.
fn count_extreme_sums(sum: f64, rest: &[f64], threshold: f64) -> u64 {
    match rest {
        [] => u64::from(sum.abs() >= threshold),
        [next, rest @ ..] => {
            count_extreme_sums(sum + next, rest, threshold)
                + count_extreme_sums(sum - next, rest, threshold)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::CONFIDENCE;

    fn pairs(ratios: &[f64]) -> Vec<(f64, f64)> {
        ratios.iter().map(|r| (40.0, 40.0 * r)).collect()
    }

    #[test]
    fn known_answer() {
        // Logs of 1.1, 1.2, 1.15, 1.05, 1.25: mean 0.137865, s 0.068916 (n - 1),
        // t(4, 0.975) = 2.776445, so the half-width is 0.085571.
        let e = Effect::of(&pairs(&[1.1, 1.2, 1.15, 1.05, 1.25]), CONFIDENCE).unwrap();
        let i = e.interval.unwrap();
        assert_eq!((e.blocks, e.left_out), (5, 0));
        assert!((e.log_mean - REFERENCE.0).abs() < 1e-9, "{}", e.log_mean);
        assert!((e.log_stddev.unwrap() - REFERENCE.1).abs() < 1e-9, "{:?}", e.log_stddev);
        assert!((i.log_half_width - REFERENCE.2).abs() < 1e-7, "{}", i.log_half_width);
        assert!((i.low - REFERENCE.3).abs() < 1e-7 && (i.high - REFERENCE.4).abs() < 1e-7);
        assert_eq!(e.permutation, None, "2 of 32 patterns at the least, whatever the effect");
    }

    /// From Python's math.log and the t quantile 2.7764451051977934.
    const REFERENCE: (f64, f64, f64, f64, f64) =
        (0.137865478891, 0.068915989156, 0.085570502636, 1.053686509178, 1.250365591219);

    #[test]
    fn swapping_the_cells_inverts_the_effect() {
        let there = pairs(&[1.1, 0.9, 1.3]);
        let back: Vec<_> = there.iter().map(|(a, b)| (*b, *a)).collect();
        let (there, back) = (Effect::of(&there, 0.95).unwrap(), Effect::of(&back, 0.95).unwrap());
        assert!((there.ratio * back.ratio - 1.0).abs() < 1e-12);
        assert!((there.interval.unwrap().low * back.interval.unwrap().high - 1.0).abs() < 1e-12);
    }

    #[test]
    fn blocks_without_a_ratio_are_counted_as_left_out() {
        assert_eq!(Effect::of(&[], 0.95), None);
        assert_eq!(Effect::of(&[(0.0, 1.0), (1.0, -1.0), (1.0, f64::NAN)], 0.95), None);
        let one = Effect::of(&[(1.0, 2.0), (0.0, 1.0)], 0.95).unwrap();
        assert_eq!((one.blocks, one.left_out, one.interval, one.permutation), (1, 1, None, None));
        let wild = Effect::of(&[(f64::MIN_POSITIVE, f64::MAX), (1.0, 1.0)], 0.95).unwrap();
        let i = wild.interval.unwrap();
        assert!(i.high.is_finite() && i.low > 0.0 && wild.ratio.is_finite());
    }

    #[test]
    fn permutation_against_plain_enumeration() {
        let logs = [0.31, -0.12, 0.05, 0.22, -0.4, 0.17, 0.09, 0.3, -0.02];
        let observed = logs.iter().sum::<f64>().abs();
        let far = (0..1u32 << logs.len())
            .filter(|pattern| {
                let signed = |(i, d): (usize, &f64)| if pattern >> i & 1 == 0 { *d } else { -*d };
                logs.iter().enumerate().map(signed).sum::<f64>().abs() >= observed - 1e-12
            })
            .count();
        let p = permute(&logs);
        assert_eq!(p, far as f64 / 512.0);
        assert!(p > 0.05 && p < 1.0, "the case must have something to count: {p}");
    }

    #[test]
    fn sign_flips_are_counted_from_six_blocks_to_sixteen() {
        let p = |ratios: &[f64]| Effect::of(&pairs(ratios), CONFIDENCE).unwrap().permutation;
        assert_eq!(p(&[1.1; 5]), None);
        assert_eq!(p(&[1.1; 6]), Some(2.0 / 64.0), "all point one way");
        assert_eq!(p(&[1.0; 6]), Some(1.0));
        assert_eq!(p(&[1.1; 16]), Some(2.0f64.powi(-15)));
        assert_eq!(p(&[1.1; 17]), None);
    }

    #[test]
    fn interval_covers_the_truth_at_its_confidence() {
        // The true ratio is 1.05, the noise log-normal with 8 %. Over 4000 simulated studies of 5
        // blocks, 95 % coverage has a standard error of 0.34 %.
        let mut random = bytepath_math::Random::new(1);
        let mut covered = 0;
        for _ in 0..4000 {
            let pairs: Vec<_> =
                (0..5).map(|_| (1.0, 1.05 * (0.08 * random.normal()).exp())).collect();
            let i = Effect::of(&pairs, CONFIDENCE).unwrap().interval.unwrap();
            covered += u32::from(i.low <= 1.05 && 1.05 <= i.high);
        }
        assert!((0.938..0.962).contains(&(f64::from(covered) / 4000.0)), "{covered} of 4000");
    }
}
