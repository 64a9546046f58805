//! How much an effect varies from one pair of hosts to another.
//!
//! A study that was merged from several pairs has blocks in groups. The log ratio of block b on
//! pair p is modelled as mu + P(p) + e(p, b), where P is random with variance s_p² and e with
//! s_e². The method of moments (one-way analysis of variance with groups of unequal size; Searle,
//! Casella, McCulloch, *Variance Components*, 1992, section 3.6) solves the expectations of the two
//! mean squares for s_p².

use super::interval::ratio;
use bytepath_math::Moments;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The scatter of one comparison's effect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PairSpread {
    /// Pairs of hosts that have at least one block with both cells.
    pub pairs: usize,
    /// Blocks of all pairs.
    pub blocks: usize,
    /// Standard deviation of the log ratio between pairs: 0 if the means of the pairs scatter no
    /// more than their blocks explain.
    pub log_between: f64,
    /// Standard deviation of the log ratio between blocks of the same pair.
    pub log_within: f64,
    /// Smallest and largest ratio of a pair.
    pub range: (f64, f64),
}

impl PairSpread {
    /// Computes the spread from log ratios, each with its pair. `None` for a single pair, and if no
    /// pair has two blocks.
    pub fn of<'a>(logs: impl IntoIterator<Item = (&'a str, f64)>) -> Option<PairSpread> {
        let mut groups: BTreeMap<&str, (usize, Moments)> = BTreeMap::new();
        for (pair, log) in logs {
            let (count, moments) = groups.entry(pair).or_default();
            *count += 1;
            moments.add(log);
        }
        let pairs = groups.len();
        let blocks: usize = groups.values().map(|(count, _)| count).sum();
        if pairs < 2 || blocks == pairs {
            return None;
        }
        let sum = |part: &dyn Fn(f64, &Moments) -> f64| -> f64 {
            groups.values().map(|(count, moments)| part(*count as f64, moments)).sum()
        };
        let all = blocks as f64;
        let mean = sum(&|count, group| count * group.mean()) / all;
        let between = sum(&|count, group| count * (group.mean() - mean).powi(2));
        let within = sum(&|count, group| group.stddev().map_or(0.0, |s| s * s * (count - 1.0)));
        let between = between / (pairs as f64 - 1.0);
        let within = within / (all - pairs as f64);
        let size = (all - sum(&|count, _| count * count) / all) / (pairs as f64 - 1.0);
        let means = || groups.values().map(|(_, group)| group.mean());
        Some(PairSpread {
            pairs,
            blocks,
            log_between: ((between - within) / size).max(0.0).sqrt(),
            log_within: within.sqrt(),
            range: (
                ratio(means().fold(f64::INFINITY, f64::min)),
                ratio(means().fold(f64::NEG_INFINITY, f64::max)),
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_math::Random;

    #[test]
    fn known_answer() {
        // Groups (1, 2, 3) and (5, 7): mean squares between 13.33.. / 1 and within 4 / 3;
        // n0 = 5 - 13/5 = 2.4.
        let logs = [("a", 1.0), ("a", 2.0), ("a", 3.0), ("b", 5.0), ("b", 7.0)];
        let spread = PairSpread::of(logs).unwrap();
        let between = 3.0 * (2.0f64 - 3.6).powi(2) + 2.0 * (6.0f64 - 3.6).powi(2);
        let expected = ((between - 4.0 / 3.0) / 2.4).sqrt();
        assert!((spread.log_between - expected).abs() < 1e-12, "{spread:?}");
        assert!((spread.log_within - (4.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!((spread.pairs, spread.blocks), (2, 5));
        assert!((spread.range.0 - 2.0f64.exp()).abs() < 1e-9);
        assert!((spread.range.1 - 6.0f64.exp()).abs() < 1e-9);
    }

    #[test]
    fn spread_needs_two_pairs_and_repeated_blocks() {
        assert_eq!(PairSpread::of([("a", 1.0), ("a", 2.0)]), None);
        assert_eq!(PairSpread::of([("a", 1.0), ("b", 2.0)]), None);
        let same = [("a", 1.0), ("a", 2.0), ("b", 1.0), ("b", 2.0)];
        assert_eq!(PairSpread::of(same).unwrap().log_between, 0.0, "never below 0");
    }

    #[test]
    fn a_simulated_spread_is_found() {
        // 2000 simulated fleets of 8 pairs with 6 blocks each: the mean of the estimated variance
        // is the truth, within four standard errors.
        let mut random = Random::new(5);
        for truth in [0.0, 0.03, 0.1] {
            let variances: Moments = (0..2000)
                .map(|_| {
                    let names: Vec<String> = (0..8).map(|pair| format!("pair-{pair}")).collect();
                    let mut logs = Vec::new();
                    for name in &names {
                        let pair = truth * random.normal();
                        logs.extend((0..6).map(|_| (&**name, pair + 0.05 * random.normal())));
                    }
                    PairSpread::of(logs).unwrap().log_between.powi(2)
                })
                .collect();
            let off = variances.mean() - truth * truth;
            let error = variances.error().unwrap().size;
            match truth {
                // Negative estimates are cut to 0, so no spread at all is estimated slightly too
                // large.
                0.0 => assert!(variances.mean().sqrt() < 0.02, "{variances:?}"),
                0.03 => assert!(off > -4.0 * error && off < 5e-5, "{off} {error}"),
                _ => assert!(off.abs() < 4.0 * error, "{truth}: {off} {error}"),
            }
        }
    }
}
