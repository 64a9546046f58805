//! From which value to which value an axis goes, and how its ticks are written.
//! Where a value stands between them, and which ticks are round, is plotters' part.

use crate::report::figures::bytes;
use plotters::coord::combinators::{IntoLogRange, LogCoord};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::data::{fitting_range, float::FloatPrettyPrinter};
use std::ops::Range;

/// Every size in bytes lies between these.
const SIZES: Range<f64> = 1.0..9_223_372_036_854_775_808.0;

/// An axis with larger values than this, or shorter than this part of them, has no
/// ticks: their digits would say nothing, and plotters' search for round values
/// compares with an epsilon that is too large or too small there.
const LARGEST: f64 = 1e15;
const FINEST: f64 = 1e-12;

/// An axis. It has a place for every value: one outside of the range stands at
/// its end, and one that is no number at its beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    kind: Kind,
}

/// What is on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Numbers, with ticks at round ones.
    Amounts,
    /// Parts of one, written in percent.
    Shares,
    /// Sizes in bytes; every doubling is the same way.
    Sizes,
}

impl Scale {
    /// An axis over the finite ones of these values. It begins at zero unless
    /// all values lie in the upper half of the way from there.
    pub fn over(values: impl IntoIterator<Item = f64>) -> Scale {
        let Range { start: mut low, end: mut high } = bounds(values);
        if low >= 0.0 && low < high * 0.5 || low == high {
            low = low.min(0.0);
            high = high.max(0.0);
        }
        if low == high {
            high = low + 1.0;
        }
        Scale { low, high, kind: Kind::Amounts }
    }

    /// An axis from one value to another, which may be the smaller one.
    pub fn between(low: f64, high: f64) -> Scale {
        Scale { low, high, kind: Kind::Amounts }
    }

    /// An axis from 0 to 100 %.
    pub fn shares() -> Scale {
        Scale { low: 0.0, high: 1.0, kind: Kind::Shares }
    }

    /// An axis of sizes in bytes on which every doubling is the same way.
    pub fn sizes(values: impl IntoIterator<Item = f64>) -> Scale {
        let sizes = values.into_iter().map(|size| size.clamp(SIZES.start, SIZES.end / 2.0));
        let Range { start, end } = bounds(sizes);
        let low = start.max(SIZES.start).log2().floor();
        let high = end.max(SIZES.start).log2().ceil().max(low + 1.0);
        Scale { low: low.exp2(), high: high.exp2(), kind: Kind::Sizes }
    }

    /// The value at which the axis begins.
    pub fn low(&self) -> f64 {
        self.low
    }

    /// Whether this value lies on the axis.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// How a tick is written.
    pub fn label(&self, value: f64) -> String {
        let decimal = |value| {
            let printer =
                FloatPrettyPrinter { allow_scientific: false, min_decimal: 0, max_decimal: 6 };
            printer.print(value)
        };
        match self.kind {
            Kind::Amounts => decimal(value),
            Kind::Shares => format!("{}%", decimal(value * 100.0)),
            Kind::Sizes => bytes(value),
        }
    }

    fn linear(&self) -> RangedCoordf64 {
        (self.low..self.high).into()
    }

    fn doublings(&self) -> LogCoord<f64> {
        (self.low..self.high).log_scale().base(2.0).into()
    }
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        // plotters adds what it finds to a pixel without asking whether it fits.
        let (least, most) = (self.low.min(self.high), self.low.max(self.high));
        let value = if value.is_nan() { self.low } else { value.clamp(least, most) };
        match self.kind {
            Kind::Sizes => self.doublings().map(&value, limit),
            // Halves, so that the way from one end to the other is finite.
            Kind::Amounts | Kind::Shares => {
                let halves: RangedCoordf64 = (self.low / 2.0..self.high / 2.0).into();
                halves.map(&(value / 2.0), limit)
            }
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let (way, largest) = (self.high - self.low, self.low.abs().max(self.high.abs()));
        match self.kind {
            Kind::Sizes => self.doublings().key_points(hint),
            _ if way.abs() < FINEST * largest.max(1.0) || largest > LARGEST => Vec::new(),
            _ => self.linear().key_points(hint),
        }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

/// The smallest and the largest of the finite values; 0 and 1 without any.
fn bounds(values: impl IntoIterator<Item = f64>) -> Range<f64> {
    let finite: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    fitting_range(&finite)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: &Scale) -> Vec<String> {
        scale.key_points(6).into_iter().map(|at| scale.label(at)).collect()
    }

    #[test]
    fn zero_is_shown_unless_it_is_far() {
        let scale = Scale::over([12.0, 39.0, f64::NAN]);
        assert_eq!((scale.low, scale.high), (0.0, 39.0));
        assert_eq!(ticks(&scale), ["0", "10", "20", "30"]);
        let scale = Scale::over([27.1, 34.4]);
        assert_eq!((scale.low, scale.high), (27.1, 34.4));
        assert_eq!(ticks(&scale), ["28", "30", "32", "34"]);
        assert_eq!(Scale::over([]).range(), 0.0..1.0);
        assert_eq!(Scale::over([0.0, 0.0]).high, 1.0);
        assert_eq!(ticks(&Scale::over([0.1, 0.46])), ["0", "0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(ticks(&Scale::shares()), ["0%", "20%", "40%", "60%", "80%", "100%"]);
    }

    #[test]
    fn sizes_go_by_doublings() {
        let scale = Scale::sizes([4096.0, 1048576.0]);
        assert_eq!(scale.range(), 4096.0..1048576.0);
        assert_eq!(scale.map(&65536.0, (0, 1000)), 500);
        assert_eq!(ticks(&scale), ["4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB"]);
        assert_eq!(ticks(&Scale::sizes([4148.0])), ["4 KiB", "8 KiB"]);
    }

    #[test]
    fn every_value_has_a_place() {
        let ends = [
            vec![f64::MAX, -f64::MAX],
            vec![f64::MIN_POSITIVE],
            vec![1e300, 2e300],
            vec![1.0, 1.0 + f64::EPSILON],
            vec![1e15, 1e15 + 1.0],
            vec![0.0, 1e-300],
            vec![-3.0, 5e-324],
            vec![u64::MAX as f64],
        ];
        for values in ends {
            for scale in [Scale::over(values.clone()), Scale::sizes(values.clone())] {
                for value in [0.0, -1.0, 1.0, f64::NAN, f64::INFINITY, f64::MAX, -f64::MAX] {
                    let at = scale.map(&value, (10, 4000));
                    assert!((10..=4000).contains(&at), "{values:?} {value} {at}");
                }
                assert!(ticks(&scale).len() <= 8, "{values:?}: {:?}", ticks(&scale));
            }
        }
        let down = Scale::between(1.0, 0.0);
        assert_eq!((down.map(&1.0, (0, 100)), down.map(&0.0, (0, 100))), (0, 100));
    }
}
