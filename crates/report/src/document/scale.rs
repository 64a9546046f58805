//! The range of an axis, the position of values on it, and its ticks.

use crate::wording::figures::bytes;

/// Every size in bytes lies between these.
const SIZES: (f64, f64) = (1.0, 9_223_372_036_854_775_808.0);

/// An axis with values larger than this, or shorter than this part of them or of a million, has no
/// ticks: their labels would all be the same.
const LARGEST: f64 = 1e15;
const FINEST: f64 = 1e-12;

/// An axis. Every value has a position: one outside of the range is at the nearest end, and one
/// that is not a number at the beginning.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scale {
    /// The value at the beginning of the axis.
    pub low: f64,
    high: f64,
    kind: Kind,
}

/// The kind of values on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Numbers, with ticks at round ones.
    Amounts,
    /// Parts of one, written in percent.
    Shares,
    /// Sizes in bytes, on a logarithmic scale.
    Sizes,
    /// Numbers, on a logarithmic scale.
    Counts,
}

impl Scale {
    /// Creates an axis over the finite values. It begins at zero unless all values lie in the upper
    /// half of the range from zero.
    pub(crate) fn over(values: impl IntoIterator<Item = f64>) -> Scale {
        let (mut low, mut high) = bounds(values);
        if low >= 0.0 && low < high * 0.5 || low == high {
            low = low.min(0.0);
            high = high.max(0.0);
        }
        if low == high {
            high = low + 1.0;
        }
        Scale { low, high, kind: Kind::Amounts }
    }

    /// Creates an axis from 0 to 100 %.
    pub(crate) fn shares() -> Scale {
        Scale { low: 0.0, high: 1.0, kind: Kind::Shares }
    }

    /// Creates a logarithmic axis of sizes in bytes.
    pub(crate) fn sizes(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = bounds(values.into_iter().map(|size| size.clamp(SIZES.0, SIZES.1 / 2.0)));
        let low = low.max(SIZES.0).log2().floor();
        let high = high.max(SIZES.0).log2().ceil().max(low + 1.0);
        Scale { low: low.exp2(), high: high.exp2(), kind: Kind::Sizes }
    }

    /// Creates a logarithmic axis of numbers from one upwards.
    pub(crate) fn counts(values: impl IntoIterator<Item = f64>) -> Scale {
        Scale { kind: Kind::Counts, ..Scale::sizes(values) }
    }

    fn doubles(&self) -> bool {
        matches!(self.kind, Kind::Sizes | Kind::Counts)
    }

    /// Returns whether this value lies on the axis.
    pub(crate) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Returns the position of a value: 0 at the beginning of the axis, 1 at its end.
    pub(crate) fn part(&self, value: f64) -> f64 {
        let value = if value.is_nan() { self.low } else { value.clamp(self.low, self.high) };
        // Halve, so that the difference between the ends is finite.
        let on = |value: f64| if self.doubles() { value.log2() } else { value / 2.0 };
        ((on(value) - on(self.low)) / (on(self.high) - on(self.low))).clamp(0.0, 1.0)
    }

    /// Returns at most this many values, evenly spaced and round: multiples of 1, 2 or 5 times a
    /// power of ten, or powers of two a fixed number of doublings apart.
    pub(crate) fn ticks(&self, most: usize) -> Vec<f64> {
        let sizes = self.doubles();
        let (low, high) =
            if sizes { (self.low.log2(), self.high.log2()) } else { (self.low, self.high) };
        let (way, largest) = (high - low, low.abs().max(high.abs()));
        if largest > LARGEST || way < FINEST * largest.max(1e6) {
            return Vec::new();
        }
        let power = if sizes { 0 } else { (way / most as f64).log10().floor() as i32 };
        let round: &[f64] = if sizes { &[1.0, 2.0, 3.0, 4.0, 6.0, 8.0] } else { &[1.0, 2.0, 5.0] };
        let mut steps =
            (power..).flat_map(|power| round.iter().map(move |n| n * 10f64.powi(power)));
        // Allow a little more than the axis, whose ends rounded sums may miss.
        let ends = |step: f64| ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
        let few = |step: &f64| ends(*step).1 - ends(*step).0 < most as f64;
        let Some(step) = steps.find(few) else { return Vec::new() };
        let (first, last) = ends(step);
        let tick = |n: i64| if sizes { (n as f64 * step).exp2() } else { n as f64 * step };
        (first as i64..=last as i64).map(tick).collect()
    }

    /// Formats a tick.
    pub(crate) fn label(&self, value: f64) -> String {
        match self.kind {
            Kind::Amounts | Kind::Counts => decimal(value),
            Kind::Shares => format!("{}%", decimal(value * 100.0)),
            Kind::Sizes => bytes(value),
        }
    }
}

/// Formats a number with as many decimals as it has, at most six.
fn decimal(value: f64) -> String {
    // Adding 0.0 turns a negative zero into zero.
    let text = format!("{:.6}", (value * 1e6).round() / 1e6 + 0.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the smallest and the largest of the finite values; 0 and 1 if there are none.
fn bounds(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let finite = values.into_iter().filter(|v| v.is_finite());
    let widened = |all: Option<(f64, f64)>, v: f64| {
        Some(all.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
    };
    finite.fold(None, widened).unwrap_or((0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: &Scale) -> Vec<String> {
        scale.ticks(6).into_iter().map(|at| scale.label(at)).collect()
    }

    #[test]
    fn axes_include_zero_unless_it_is_far() {
        let scale = Scale::over([12.0, 39.0, f64::NAN]);
        assert_eq!((scale.low, scale.high), (0.0, 39.0));
        assert_eq!(ticks(&scale), ["0", "10", "20", "30"]);
        let scale = Scale::over([27.1, 34.4]);
        assert_eq!((scale.low, scale.high), (27.1, 34.4));
        assert_eq!(ticks(&scale), ["28", "30", "32", "34"]);
        let nothing = Scale::over([]);
        assert_eq!((nothing.low, nothing.high), (0.0, 1.0));
        assert_eq!(Scale::over([0.0, 0.0]).high, 1.0);
        assert_eq!(ticks(&Scale::over([0.1, 0.46])), ["0", "0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(ticks(&Scale::shares()), ["0%", "20%", "40%", "60%", "80%", "100%"]);
    }

    #[test]
    fn size_axes_are_logarithmic() {
        let scale = Scale::sizes([4096.0, 1048576.0]);
        assert_eq!((scale.low, scale.high), (4096.0, 1048576.0));
        assert_eq!(scale.part(65536.0), 0.5);
        assert_eq!(ticks(&scale), ["4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB"]);
        assert_eq!(ticks(&Scale::sizes([4148.0])), ["4 KiB", "8 KiB"]);
        assert_eq!(ticks(&Scale::counts([1.0, 16.0, 4096.0])), ["1", "8", "64", "512", "4096"]);
    }

    #[test]
    fn clamps_values_to_the_axis() {
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
                    let at = scale.part(value);
                    assert!((0.0..=1.0).contains(&at), "{values:?} {value} {at}");
                }
                assert!(ticks(&scale).len() <= 6, "{values:?}: {:?}", ticks(&scale));
            }
        }
    }

    #[test]
    fn ticks_are_round_few_and_on_the_axis() {
        for low in [-1e6, -7.3, 0.0, 0.4] {
            for way in (-5..=14).flat_map(|p| [1.0, 1.7, 3.3, 9.9].map(|n| n * 10f64.powi(p))) {
                let scale = Scale { low, high: low + way, kind: Kind::Amounts };
                for most in 2..=6 {
                    let ticks = scale.ticks(most);
                    assert!(
                        ticks.len() <= most && (most < 4 || ticks.len() > 1),
                        "{scale:?} {ticks:?}"
                    );
                    let slack = way * 1e-6;
                    assert!(ticks.iter().all(|t| (low - slack..=low + way + slack).contains(t)));
                    let labels: std::collections::HashSet<String> =
                        ticks.iter().map(|tick| scale.label(*tick)).collect();
                    assert_eq!(labels.len(), ticks.len(), "{scale:?} {labels:?}");
                }
            }
        }
        assert_eq!(ticks(&Scale::over([-3.0, 2.0])), ["-3", "-2", "-1", "0", "1", "2"]);
    }
}
