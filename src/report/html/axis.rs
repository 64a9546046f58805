//! Where a value stands on a horizontal axis. Positions are parts of the width
//! of the drawing, so that it fits any page and its text keeps its size.

use crate::report::figures::number;
use maud::{Markup, html};

/// Parts of the width left free at both ends, so that no mark is cut.
const MARGIN: f64 = 0.015;

/// A horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
    doublings: bool,
}

impl Axis {
    /// An axis over the finite ones of these values. It begins at zero unless
    /// all values lie in the upper half of the way from there.
    pub fn over(values: impl IntoIterator<Item = f64>) -> Axis {
        let (mut least, mut most) = bounds(values);
        if least >= 0.0 && least < most * 0.5 || least == most {
            least = least.min(0.0);
            most = most.max(0.0);
        }
        if least == most {
            most = least + 1.0;
        }
        // What is too large for its steps to be counted has no ticks.
        let step = step((most - least) / 5.0);
        let (first, last) = ((least / step).floor(), (most / step).ceil());
        if !(step.is_finite() && step > 0.0 && last - first <= 20.0) {
            return Axis { low: least, high: most, ticks: Vec::new(), doublings: false };
        }
        let decimals = (-step.log10()).ceil().clamp(0.0, 6.0) as usize;
        let ticks = (first as i64..=last as i64).map(|i| i as f64 * step);
        let ticks = ticks.map(|at| (at, number(at, decimals))).collect();
        Axis { low: first * step, high: last * step, ticks, doublings: false }
    }

    /// An axis from 0 to 100 %.
    pub fn shares() -> Axis {
        let tick = |n: u8| (f64::from(n) / 100.0, format!("{n}%"));
        Axis { low: 0.0, high: 1.0, ticks: [0, 25, 50, 75, 100].map(tick).into(), doublings: false }
    }

    /// An axis of sizes in bytes on which every doubling is the same way.
    pub fn sizes(values: impl IntoIterator<Item = f64>) -> Axis {
        let (least, most) = bounds(values.into_iter().map(log));
        let (first, last) = (least.floor(), most.ceil().max(least.floor() + 1.0));
        let every = ((last - first) / 5.0).ceil().max(1.0) as usize;
        let ticks = (first as i32..=last as i32).step_by(every);
        let ticks = ticks.map(|at| (f64::from(at), crate::report::figures::bytes(2f64.powi(at))));
        Axis { low: first, high: last, ticks: ticks.collect(), doublings: true }
    }

    /// The value at which the axis begins.
    pub fn low(&self) -> f64 {
        self.low
    }

    /// Where a value stands, as an attribute: `42.35%`.
    pub fn at(&self, value: f64) -> String {
        percent(self.part(value))
    }

    /// The way between two values, as an attribute.
    pub fn width(&self, from: f64, to: f64) -> String {
        percent((self.part(to) - self.part(from)).max(0.0))
    }

    fn part(&self, value: f64) -> f64 {
        let value = if self.doublings { log(value) } else { value };
        let part = (value - self.low) / (self.high - self.low);
        let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
        MARGIN + part * (1.0 - 2.0 * MARGIN)
    }

    /// The lines that all rows of a plot share, `height` pixels tall.
    pub fn grid(&self, height: u32) -> Markup {
        let tick = |value: f64| {
            let part = (value - self.low) / (self.high - self.low);
            percent(MARGIN + part * (1.0 - 2.0 * MARGIN))
        };
        html! {
            @for (value, _) in &self.ticks {
                line class="grid" x1=(tick(*value)) x2=(tick(*value)) y1="0" y2=(height) {}
            }
        }
    }

    /// The head of a plot: what the ticks are.
    pub fn head(&self) -> Markup {
        let last = self.ticks.len().saturating_sub(1);
        let tick = |value: f64| {
            let part = (value - self.low) / (self.high - self.low);
            percent(MARGIN + part * (1.0 - 2.0 * MARGIN))
        };
        html! {
            svg height="18" aria-hidden="true" {
                @for (i, (value, text)) in self.ticks.iter().enumerate() {
                    @let anchor = if i == 0 { "start" } else if i == last { "end" } else { "middle" };
                    text x=(tick(*value)) y="12" text-anchor=(anchor) { (text) }
                }
            }
        }
    }
}

/// The smallest and the largest of the finite values; 0 and 1 without any.
fn bounds(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let finite = values.into_iter().filter(|v| v.is_finite());
    finite
        .fold(None, |known: Option<(f64, f64)>, v| {
            Some(known.map_or((v, v), |(a, b)| (a.min(v), b.max(v))))
        })
        .unwrap_or((0.0, 1.0))
}

fn log(bytes: f64) -> f64 {
    bytes.max(1.0).log2()
}

/// The round step (1, 2 or 5 times a power of ten) next above this one.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|s| *s >= least).unwrap_or(least)
}

fn percent(part: f64) -> String {
    format!("{:.2}%", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_zero_is_shown_unless_it_is_far() {
        let axis = Axis::over([12.0, 39.0, f64::NAN]);
        assert_eq!((axis.low, axis.high), (0.0, 40.0));
        assert_eq!(axis.ticks[1].1, "10");
        let axis = Axis::over([27.1, 34.4]);
        assert_eq!((axis.low, axis.high), (26.0, 36.0));
        assert_eq!((Axis::over([]).low, Axis::over([]).high), (0.0, 1.0));
        assert_eq!(Axis::over([0.0, 0.0]).high, 1.0);
        assert_eq!(Axis::over([0.1, 0.46]).ticks[1].1, "0.1");
    }

    #[test]
    fn every_value_has_a_place() {
        for values in [vec![f64::MAX, -f64::MAX], vec![f64::MIN_POSITIVE], vec![1e300, 2e300]] {
            for axis in [Axis::over(values.clone()), Axis::sizes(values.clone())] {
                for value in [0.0, 1.0, f64::NAN, f64::INFINITY, f64::MAX] {
                    let at: f64 = axis.at(value).trim_end_matches('%').parse().unwrap();
                    assert!((0.0..=100.0).contains(&at), "{values:?} {value}");
                }
                assert!(axis.ticks.len() <= 22);
            }
        }
    }

    #[test]
    fn sizes_go_by_doublings() {
        let axis = Axis::sizes([4096.0, 1048576.0]);
        assert_eq!((axis.low, axis.high), (12.0, 20.0));
        assert_eq!(axis.at(65536.0), "50.00%");
        assert_eq!(axis.ticks[0].1, "4 KiB");
    }
}
