//! How much one cell differs from another, block by block.
//!
//! Trials of one block run within seconds of each other, so what drifts in the
//! machine touches both and cancels in their ratio. Ratios are taken as
//! logarithms: twice as fast and half as fast are then equally far from equal.

use super::estimate::{Estimate, Interval, StandardError, centre_and_spread, ratio};
use super::random::Random;
use serde::Serialize;

/// Confidence of every interval, unless asked otherwise.
pub const CONFIDENCE: f64 = 0.95;

/// Up to this many blocks every flip of signs is looked at.
const EXACT: usize = 30;

/// Above it, this many flips are drawn.
const DRAWS: u32 = 19_999;

/// A cell against another, paired by block.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Blocks in which both cells have a value above zero.
    pub blocks: usize,
    /// Blocks that have both but could not be used, because a value of zero (or
    /// below, or none at all) has no ratio.
    pub left_out: usize,
    /// exp(mean of the per-block log ratios): 1.1 is ten percent more.
    pub ratio: f64,
    /// The ratio of each block, smallest and largest.
    pub range: (f64, f64),
    /// Where the true ratio lies; none below two blocks.
    pub interval: Option<Interval>,
    /// Permutation test of "no difference"; none below two blocks.
    pub permutation: Option<Permutation>,
    /// Mean of the log ratios.
    pub log_mean: f64,
    /// Sample standard deviation of the log ratios; none below two blocks.
    pub log_stddev: Option<f64>,
    /// The blocks that a stopping rule began with, where one was declared.
    pub opening: Option<Opening>,
}

/// The first blocks of a study that may stop early. Every interval is then at
/// least as wide as their spread says: see [`should_stop`](super::should_stop).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Opening {
    /// How many blocks these are, at least two.
    pub blocks: usize,
    /// Sample standard deviation of their log ratios.
    pub log_stddev: f64,
}

/// A two-sided test by flipping the signs of the log ratios.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Permutation {
    /// Share of all sign patterns whose mean is at least as far from zero.
    pub p: f64,
    /// The smallest p that this many blocks can give at all, 2^(1 - n): 0.25
    /// at three blocks, 0.0625 at five. Below six blocks p < 0.05 is out of
    /// reach however large the effect is.
    pub least: f64,
    /// None where every pattern was counted; otherwise how many were drawn.
    pub draws: Option<u32>,
}

impl Effect {
    /// Compares the second value of each pair with the first. None where no
    /// pair has a ratio.
    pub fn of(pairs: &[(f64, f64)], confidence: f64) -> Option<Effect> {
        Effect::opened(pairs, confidence, None)
    }

    /// The same for a study whose stopping rule was first asked after `opening`
    /// blocks.
    pub fn opened(pairs: &[(f64, f64)], confidence: f64, opening: Option<usize>) -> Option<Effect> {
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
        let (log_mean, log_stddev) = centre_and_spread(&logs);
        let opening = opening.and_then(|blocks| {
            let blocks = blocks.clamp(2, n.max(2));
            let (_, spread) = centre_and_spread(logs.get(..blocks)?);
            Some(Opening { blocks, log_stddev: spread? })
        });
        let least = logs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut effect = Effect {
            blocks: n,
            left_out: pairs.len() - n,
            ratio: ratio(log_mean),
            range: (ratio(least), ratio(most)),
            interval: None,
            permutation: (n >= 2).then(|| permute(&logs)),
            log_mean,
            log_stddev,
            opening,
        };
        effect.interval = effect.estimate().interval(confidence);
        Some(effect)
    }

    /// The mean log ratio with its standard error, from all blocks and, where
    /// there is one, from the opening too.
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
        }
    }
}

fn permute(logs: &[f64]) -> Permutation {
    let n = logs.len();
    let least = 2.0f64.powi(1 - n.min(1000) as i32);
    // A pattern counts as "as far" despite the rounding of its sum.
    let slack = 1e-12 * logs.iter().map(|d| d.abs()).sum::<f64>();
    let threshold = logs.iter().sum::<f64>().abs() - slack;
    if n <= EXACT {
        let (left, right) = logs.split_at(n / 2);
        let (left, right) = (signed_sums(left), signed_sums(right));
        let far = far_pairs(&left, &right, threshold);
        let all = left.len() as u64 * right.len() as u64;
        Permutation { p: far as f64 / all as f64, least, draws: None }
    } else {
        // The observed pattern is counted among the draws, which keeps the test
        // valid (Phipson and Smyth 2010, "Permutation p-values should never be zero").
        let mut random = Random::new(0x6279_7465_7061_7468);
        let far = (0..DRAWS).filter(|_| drawn_sum(logs, &mut random).abs() >= threshold).count();
        let p = (far + 1) as f64 / f64::from(DRAWS + 1);
        Permutation { p, least, draws: Some(DRAWS) }
    }
}

/// The sums of all sign patterns, in ascending order.
fn signed_sums(values: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0];
    for v in values {
        sums = sums.iter().flat_map(|s| [s + v, s - v]).collect();
    }
    sums.sort_by(f64::total_cmp);
    sums
}

/// How many pairs, one from each ascending list, add up to something at least
/// `threshold` away from zero. Two hands move over the lists, so that 2^n
/// patterns cost 2^(n/2) steps.
fn far_pairs(left: &[f64], right: &[f64], threshold: f64) -> u64 {
    if threshold <= 0.0 {
        return left.len() as u64 * right.len() as u64;
    }
    let (mut far, mut above, mut below) = (0, right.len(), right.len());
    for l in left {
        while above > 0 && l + right[above - 1] >= threshold {
            above -= 1;
        }
        while below > 0 && l + right[below - 1] > -threshold {
            below -= 1;
        }
        far += (right.len() - above) as u64 + below as u64;
    }
    far
}

fn drawn_sum(logs: &[f64], random: &mut Random) -> f64 {
    let mut bits = 0u64;
    let mut sum = 0.0;
    for (i, d) in logs.iter().enumerate() {
        if i % 64 == 0 {
            bits = random.bits();
        }
        sum += if bits & 1 == 0 { *d } else { -*d };
        bits >>= 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // All five point one way: 2 of 32 patterns are as far.
        let p = e.permutation.unwrap();
        assert_eq!((p.p, p.least, p.draws), (0.0625, 0.0625, None));
    }

    /// From python's math.log and the t quantile 2.7764451051977934.
    const REFERENCE: (f64, f64, f64, f64, f64) =
        (0.137865478891, 0.068915989156, 0.085570502636, 1.053686509178, 1.250365591219);

    #[test]
    fn swapping_the_cells_inverts_the_effect() {
        let there = pairs(&[1.1, 0.9, 1.3]);
        let back: Vec<_> = there.iter().map(|(a, b)| (*b, *a)).collect();
        let (there, back) = (Effect::of(&there, 0.95).unwrap(), Effect::of(&back, 0.95).unwrap());
        assert!((there.ratio * back.ratio - 1.0).abs() < 1e-12);
        assert!((there.interval.unwrap().low * back.interval.unwrap().high - 1.0).abs() < 1e-12);
        assert_eq!(there.permutation, back.permutation);
    }

    #[test]
    fn what_has_no_ratio_is_left_out_and_said() {
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
        assert_eq!(p.p, far as f64 / 512.0);
        assert!(p.p > 0.05 && p.p < 1.0, "the case must have something to count: {}", p.p);
    }

    #[test]
    fn three_blocks_cannot_reach_five_percent_by_ranks() {
        let p = permute(&[5.0, 5.1, 5.2]);
        assert_eq!((p.p, p.least), (0.25, 0.25));
        assert_eq!(permute(&[0.0, 0.0, 0.0]).p, 1.0);
    }

    #[test]
    fn many_blocks_are_drawn_and_agree_with_the_exact_answer() {
        // One block more than is enumerated: the drawn p of a case whose exact p
        // (by 30 blocks plus a zero, which changes no sum) is known.
        let mut logs: Vec<f64> = (0..30).map(|i| f64::from(i % 7) * 0.1 - 0.22).collect();
        let exact = permute(&logs);
        logs.push(0.0);
        let drawn = permute(&logs);
        assert_eq!((exact.draws, drawn.draws), (None, Some(DRAWS)));
        assert!((exact.p - drawn.p).abs() < 0.01, "{} {}", exact.p, drawn.p);
        assert_eq!(permute(&logs), drawn, "the draws are the same every time");
    }

    #[test]
    fn the_interval_covers_the_truth_as_often_as_it_says() {
        // The true ratio is 1.05, the noise log-normal with 8 %. Over 4000 made-up
        // studies of 5 blocks, 95 % coverage has a standard error of 0.34 %.
        let mut random = Random::new(1);
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
