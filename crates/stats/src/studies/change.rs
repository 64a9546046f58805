//! Finds where a series changed permanently: change points over many studies.
//!
//! The method is e-divisive (Matteson and James 2014, "A nonparametric approach
//! for multiple change point analysis of multivariate data"), which build systems
//! have used for years because it assumes no distribution: the series is cut where
//! the energy distance between the two parts is largest, and the cut is kept if
//! hardly any random order of the same values gives one as good. Kept cuts make
//! segments, which are searched again.
//!
//! Limits: with n values the smallest possible p is about 2 / C(n, n/2), which is 0.029 for eight,
//! 0.016 for nine and 0.008 for ten. So at 1 % it takes ten values before any cut can be kept, and
//! a change is found only if there are at least two values on either side of it.

use bytepath_math::Random;
use schemars::JsonSchema;
use serde::Serialize;

/// Number of random orders that a cut is compared with.
const ORDERS: usize = 1999;

/// Fewest values on either side of a cut.
const LEAST: usize = 2;

/// A place where the series changed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// The first value after the change, counted from 0.
    pub at: usize,
    /// Share of random orders with a cut at least as good.
    pub p: f64,
    /// Mean between this change and the one before.
    pub before: f64,
    /// Mean between this change and the one after.
    pub after: f64,
}

/// Finds the changes of a series, in order of time, at an error rate of `level` for each search.
/// Returns none if a value is not finite. The random orders are the same every time. Takes time
/// proportional to the square of the length.
pub fn changes(values: &[f64], level: f64) -> Vec<Change> {
    if values.iter().any(|v| !v.is_finite()) {
        return Vec::new();
    }
    let mut random = Random::new(0x6564_6976);
    let mut cuts: Vec<(usize, f64)> = Vec::new();
    loop {
        let bounds = bounds(&cuts, values.len());
        let best = best_cut(values, &bounds);
        let Some((at, quality)) = best else { break };
        let p = significance(values, &bounds, quality, &mut random);
        if p > level {
            break;
        }
        cuts.push((at, p));
    }
    let bounds = bounds(&cuts, values.len());
    let mean = |part: &[f64]| part.iter().map(|v| v / part.len() as f64).sum::<f64>();
    let mut changes: Vec<Change> = cuts
        .iter()
        .filter_map(|(at, p)| {
            let place = bounds.iter().position(|b| b == at)?;
            let before = mean(&values[bounds[place - 1]..*at]);
            let after = mean(&values[*at..bounds[place + 1]]);
            Some(Change { at: *at, p: *p, before, after })
        })
        .collect();
    changes.sort_by_key(|c| c.at);
    changes
}

/// Returns the beginning, the cuts in order, and the end.
fn bounds(cuts: &[(usize, f64)], end: usize) -> Vec<usize> {
    let mut bounds: Vec<usize> = cuts.iter().map(|(at, _)| *at).chain([0, end]).collect();
    bounds.sort_unstable();
    bounds
}

/// Returns the best cut over all segments, and its quality.
fn best_cut(values: &[f64], bounds: &[usize]) -> Option<(usize, f64)> {
    let cut = |pair: &[usize]| {
        let (at, quality) = best_of_segment(&values[pair[0]..pair[1]])?;
        Some((pair[0] + at, quality))
    };
    bounds.windows(2).filter_map(cut).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Returns the share of random orders, shuffled within segments, whose best cut is at least as
/// good. The observed order counts as one of them (Phipson and Smyth 2010).
fn significance(values: &[f64], bounds: &[usize], quality: f64, random: &mut Random) -> f64 {
    let mut order = values.to_vec();
    let as_good = (0..ORDERS)
        .filter(|_| {
            for pair in bounds.windows(2) {
                random.shuffle(&mut order[pair[0]..pair[1]]);
            }
            // Sums in another order are rounded differently; equal cuts count as equal.
            best_cut(&order, bounds).is_some_and(|(_, q)| q >= quality * (1.0 - 1e-9))
        })
        .count();
    (as_good + 1) as f64 / (ORDERS + 1) as f64
}

/// Returns the cut of a segment with the largest scaled energy distance nm / (n + m) (2 E|X - Y| -
/// E|X - X'| - E|Y - Y'|).
fn best_of_segment(values: &[f64]) -> Option<(usize, f64)> {
    let n = values.len();
    if n < 2 * LEAST {
        return None;
    }
    // Moving one value from right to left changes three sums by its distances.
    let distances =
        |at: usize, part: &[f64]| -> f64 { part.iter().map(|v| (values[at] - v).abs()).sum() };
    let mut left = 0.0;
    let mut right: f64 = (0..n).map(|i| distances(i, &values[i + 1..])).sum();
    let mut across = 0.0;
    let mut best: Option<(usize, f64)> = None;
    for at in 0..n - LEAST {
        let (before, after) = (distances(at, &values[..at]), distances(at, &values[at + 1..]));
        left += before;
        right -= after;
        across += after - before;
        let cut = at + 1;
        if cut < LEAST {
            continue;
        }
        let (x, y) = (cut as f64, (n - cut) as f64);
        let pairs = |k: f64| k * (k - 1.0) / 2.0;
        let energy = 2.0 * across / (x * y) - left / pairs(x) - right / pairs(y);
        let quality = x * y / (x + y) * energy;
        if best.is_none_or(|(_, highest)| quality > highest) {
            best = Some((cut, quality));
        }
    }
    best.filter(|(_, quality)| *quality > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(parts: &[(usize, f64)], noise: f64, seed: u64) -> Vec<f64> {
        let mut random = Random::new(seed);
        let all = parts.iter().flat_map(|(n, level)| std::iter::repeat_n(*level, *n));
        all.map(|level| level + noise * random.normal()).collect()
    }

    #[test]
    fn finds_a_step_at_its_place() {
        let found = changes(&series(&[(12, 50.0), (9, 47.0)], 0.5, 1), 0.01);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].at, 12);
        assert!((found[0].before - 50.0).abs() < 0.5 && (found[0].after - 47.0).abs() < 0.5);
    }

    #[test]
    fn finds_two_steps_and_ignores_an_outlier() {
        let mut values = series(&[(10, 50.0), (10, 45.0), (12, 52.0)], 0.5, 2);
        values[5] = 40.0;
        let at: Vec<usize> = changes(&values, 0.01).iter().map(|c| c.at).collect();
        assert_eq!(at, [10, 20]);
    }

    #[test]
    fn noise_seldom_has_changes() {
        let found = |seed| !changes(&series(&[(20, 50.0)], 1.0, seed), 0.05).is_empty();
        let hits = (0..200).filter(|seed| found(*seed)).count();
        assert!((2..=20).contains(&hits), "{hits} of 200 at 5 %");
    }

    #[test]
    fn short_series_have_no_changes() {
        assert!(changes(&[], 0.05).is_empty());
        assert!(changes(&[1.0, 2.0, 9.0], 0.05).is_empty());
        assert!(changes(&[1.0, 1.0, 9.0, 9.0], 0.01).is_empty(), "6 orders have no 1 %");
        assert!(changes(&[1.0; 30], 0.05).is_empty());
        assert!(changes(&[1.0, f64::NAN, 3.0, 4.0, 5.0], 0.05).is_empty());
    }

    /// Even a perfect step is not kept below ten values, and is kept from twelve on.
    #[test]
    fn needs_ten_values_for_a_change() {
        let step = |n: usize| {
            let values: Vec<f64> = (0..n).map(|i| if i < n / 2 { 1.0 } else { 2.0 }).collect();
            !changes(&values, 0.01).is_empty()
        };
        assert!(!(5..=9).any(step));
        assert!((12..=14).all(step));
    }

    #[test]
    fn running_sums_agree_with_the_definition() {
        let values = [3.0, 1.0, 4.0, 8.5, 9.0, 2.5];
        let mean = |x: &[f64], y: &[f64], pairs: f64| {
            let sum = x.iter().flat_map(|a| y.iter().map(move |b| (a - b).abs())).sum::<f64>();
            sum / pairs
        };
        let quality = |cut: usize| {
            let (x, y) = values.split_at(cut);
            let (n, m) = (x.len() as f64, y.len() as f64);
            let within = |z: &[f64], k: f64| mean(z, z, k * (k - 1.0));
            let energy = 2.0 * mean(x, y, n * m) - within(x, n) - within(y, m);
            n * m / (n + m) * energy
        };
        let expected = (2..=4).map(|c| (c, quality(c))).max_by(|a, b| a.1.total_cmp(&b.1));
        let (cut, found) = best_of_segment(&values).unwrap();
        assert_eq!(cut, expected.unwrap().0);
        assert!((found - expected.unwrap().1).abs() < 1e-12);
    }
}
