//! Tests whether the log ratios depend on the order of the blocks. Every interval assumes that
//! blocks are independent; neighbours that resemble each other, or a trend, indicate that they are
//! not, and that the interval is narrower than it should be.

use bytepath_math::tails;

/// With fewer blocks hardly any order can be distinguished from chance.
const LEAST: usize = 8;

/// Log ratios that differ by less are considered equal.
const ROUNDING: f64 = 1e-9;

/// Probability of a false note on a study whose blocks are independent.
pub(crate) const LEVEL: f64 = 0.01;

/// Dependence of log ratios on their order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// Lag-1 autocorrelation.
    pub neighbours: f64,
    /// Correlation with the block number.
    pub trend: f64,
    /// Probability of either being this large if blocks are independent.
    pub p: f64,
}

impl Order {
    /// Computes the dependence; `None` below eight values, and if all are equal.
    pub fn of(values: &[f64]) -> Option<Order> {
        let n = values.len() as f64;
        let mean = values.iter().map(|v| v / n).sum::<f64>();
        let apart: Vec<f64> = values.iter().map(|v| v - mean).collect();
        let squares = apart.iter().map(|v| v * v).sum::<f64>();
        if values.len() < LEAST || squares.sqrt() <= ROUNDING {
            return None;
        }
        let neighbours = apart.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / squares;
        // For any values in random order the mean is -1/n; for normal ones this is the standard
        // deviation (Moran 1948).
        let deviation = (n - 2.0) / (n * (n - 1.0).sqrt());
        let chance = tails((neighbours + 1.0 / n) / deviation, f64::INFINITY);
        let places = (0..values.len()).map(|at| at as f64 - (n - 1.0) / 2.0);
        let along = apart.iter().zip(places).map(|(v, place)| v * place).sum::<f64>();
        let trend = along / (squares * n * (n * n - 1.0) / 12.0).sqrt();
        let slope = trend * ((n - 2.0) / (1.0 - trend * trend).max(0.0)).sqrt();
        let p = (2.0 * chance.min(tails(slope, n - 2.0))).min(1.0);
        Some(Order { neighbours, trend, p })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_math::Random;

    /// The share of simulated series that get a note.
    fn share_noted(n: usize, next: &mut dyn FnMut(usize, f64, &mut Random) -> f64) -> f64 {
        let (mut random, series) = (Random::new(7), 4000);
        let found = (0..series).filter(|_| {
            let mut last = 0.0;
            let each = (0..n).map(|at| {
                last = next(at, last, &mut random);
                last
            });
            Order::of(&each.collect::<Vec<_>>()).unwrap().p <= LEVEL
        });
        found.count() as f64 / f64::from(series)
    }

    #[test]
    fn order_test_has_its_declared_error_and_finds_trends() {
        // 1 % of 4000 is 40; three standard errors are 19.
        for n in [8, 10, 20, 50] {
            let normal = share_noted(n, &mut |_, _, r| r.normal());
            let hiccup = share_noted(n, &mut |_, _, r| {
                r.normal() - if r.uniform() < 0.1 { 10.0 } else { 0.0 }
            });
            assert!(normal <= 0.0147 && hiccup <= 0.0147, "{n}: {normal} {hiccup}");
        }
        let dependent = share_noted(30, &mut |_, last, r| 0.8 * last + r.normal());
        let drift = share_noted(10, &mut |at, _, r| 0.5 * at as f64 + r.normal());
        let swings = share_noted(20, &mut |_, last, r| -0.8 * last + r.normal());
        assert!(dependent > 0.7 && drift > 0.7 && swings > 0.7, "{dependent} {drift} {swings}");
    }

    #[test]
    fn by_hand() {
        let line: Vec<f64> = (0..8).map(f64::from).collect();
        let found = Order::of(&line).unwrap();
        // Products of neighbours from -3.5 to 3.5: 26.25; squares: 42.
        assert!((found.neighbours - 26.25 / 42.0).abs() < 1e-12 && found.p < 1e-9, "{found:?}");
        assert!((found.trend - 1.0).abs() < 1e-12);
        assert_eq!((Order::of(&line[..7]), Order::of(&[1.0; 9])), (None, None));
    }
}
