//! How long exchanges took: a histogram that adds up over flows, slices and blocks,
//! which percentiles do not.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::time::Duration;

/// Longest time that is distinguished, in nanoseconds; a longer one counts as this.
const LONGEST: u64 = 100_000_000_000;

/// Significant digits of every time.
const DIGITS: u8 = 3;

/// Exchanges that must lie above a percentile before it is given: with fewer it is
/// a matter of single exchanges.
const ABOVE: f64 = 10.0;

/// Distribution of latencies in nanoseconds with three significant digits, up to
/// 100 s. About 220 KiB, all of it taken by [`Latency::new`]: recording allocates
/// nothing.
///
/// On disk and on the wire: `[[nanoseconds, how often], ...]`, one pair for every
/// bucket in use, in ascending order.
#[derive(Clone, PartialEq, JsonSchema)]
#[schemars(transparent)]
pub struct Latency(#[schemars(with = "Vec<(u64, u64)>")] Histogram<u64>);

/// A percentile that reports give and verdicts compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Percentile {
    /// The median.
    #[serde(rename = "p50")]
    P50,
    /// 9 of 10 are faster.
    #[serde(rename = "p90")]
    P90,
    /// 99 of 100 are faster.
    #[serde(rename = "p99")]
    P99,
    /// 999 of 1000 are faster.
    #[serde(rename = "p99.9")]
    P999,
    /// 9999 of 10000 are faster.
    #[serde(rename = "p99.99")]
    P9999,
}

impl Percentile {
    /// All of them, ascending.
    pub const ALL: [Percentile; 5] =
        [Percentile::P50, Percentile::P90, Percentile::P99, Percentile::P999, Percentile::P9999];

    /// As tables and thresholds name it: "p99.9".
    pub fn name(self) -> &'static str {
        match self {
            Percentile::P50 => "p50",
            Percentile::P90 => "p90",
            Percentile::P99 => "p99",
            Percentile::P999 => "p99.9",
            Percentile::P9999 => "p99.99",
        }
    }

    /// Part of the exchanges at or below it, 0 to 1.
    pub fn part(self) -> f64 {
        match self {
            Percentile::P50 => 0.5,
            Percentile::P90 => 0.9,
            Percentile::P99 => 0.99,
            Percentile::P999 => 0.999,
            Percentile::P9999 => 0.9999,
        }
    }
}

impl Default for Latency {
    fn default() -> Self {
        Latency::new()
    }
}

impl Latency {
    /// Nothing recorded yet; all memory taken.
    pub fn new() -> Latency {
        let bounds = Histogram::new_with_bounds(1, LONGEST, DIGITS);
        Latency(bounds.expect("constant bounds are valid"))
    }

    /// The buckets in use: nanoseconds and how often.
    fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let recorded = self.0.iter_recorded();
        recorded.map(|b| (b.value_iterated_to(), b.count_since_last_iteration()))
    }

    /// Enters one exchange.
    #[inline]
    pub fn record(&mut self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanoseconds.max(1));
    }

    /// Adds another flow, slice or block.
    pub fn add(&mut self, other: &Latency) {
        // Both have the same bounds, so this cannot fail.
        let _ = self.0.add(&other.0);
    }

    /// Forgets everything: what a warm-up recorded, say.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// Exchanges recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Seconds; none where fewer than ten exchanges took longer, so that it would
    /// rest on a few of them.
    pub fn percentile(&self, percentile: Percentile) -> Option<f64> {
        let above = self.count() as f64 * (1.0 - percentile.part());
        // A count of just 1000 leaves 10 above p99, whatever a double makes of 0.99.
        (above >= ABOVE - 1e-6).then(|| seconds(self.0.value_at_quantile(percentile.part())))
    }

    /// Longest, seconds; none without any.
    pub fn max(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| seconds(self.0.max()))
    }

    /// Mean, seconds; none without any.
    pub fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.mean() * 1e-9)
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 * 1e-9
}

/// As it is written down: its memory is twenty thousand numbers, nearly all of them 0.
impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_list().entries(self.buckets()).finish()
    }
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.buckets())
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let buckets = Vec::<(u64, u64)>::deserialize(deserializer)?;
        let mut latency = Latency::new();
        let mut sum = 0u64;
        for (nanoseconds, count) in buckets {
            sum = sum
                .checked_add(count)
                .ok_or_else(|| de::Error::custom("more exchanges than can be counted"))?;
            // Of none at all, the histogram would keep the shortest and the longest time.
            if count > 0 {
                latency.0.saturating_record_n(nanoseconds.max(1), count);
            }
        }
        Ok(latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(microseconds: impl IntoIterator<Item = u64>) -> Latency {
        let mut latency = Latency::new();
        microseconds.into_iter().for_each(|us| latency.record(Duration::from_micros(us)));
        latency
    }

    fn near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|s| (s / expected - 1.0).abs() < 1e-3)
    }

    #[test]
    fn percentiles_by_hand() {
        let latency = of(1..=10_000);
        for (percentile, expected) in
            [(Percentile::P50, 5e-3), (Percentile::P90, 9e-3), (Percentile::P99, 9.9e-3)]
        {
            assert!(near(latency.percentile(percentile), expected), "{percentile:?}");
        }
        assert!(near(latency.percentile(Percentile::P999), 9.99e-3));
        assert_eq!(latency.percentile(Percentile::P9999), None, "one exchange lies above");
        assert!(near(latency.max(), 0.01) && near(latency.mean(), 5.0005e-3));
        assert_eq!(latency.count(), 10_000);
        let none = Latency::new();
        assert_eq!((none.max(), none.mean(), none.percentile(Percentile::P50)), (None, None, None));
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (odd, even) = (of((1..5000).step_by(2)), of((2..5000).step_by(2)));
        let mut sum = odd;
        sum.add(&even);
        assert_eq!(sum, of(1..5000));
        sum.clear();
        assert_eq!(sum, Latency::new());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut latency = of([3, 3, 3, 70, 900]);
        latency.record(Duration::from_secs(3600));
        latency.record(Duration::ZERO);
        let text = serde_json::to_string(&latency).unwrap();
        assert!(text.starts_with("[[1,1],[3001,3]"), "{text}");
        let back: Latency = serde_json::from_str(&text).unwrap();
        assert_eq!(back, latency);
        assert!(near(back.max(), 100.0), "longer than can be distinguished");
        // What a damaged file may hold is refused or bounded.
        let huge: Latency = serde_json::from_str("[[18446744073709551615, 2], [0, 1]]").unwrap();
        assert_eq!(huge.count(), 3);
        let never: Latency = serde_json::from_str("[[1000, 0], [2000, 1], [9000, 0]]").unwrap();
        assert!(near(never.max(), 2e-6));
        assert_eq!(never, serde_json::from_str("[[2000, 1]]").unwrap());
        let overflow = "[[1, 18446744073709551615], [2, 1]]";
        assert!(serde_json::from_str::<Latency>(overflow).is_err());
        assert!(serde_json::from_str::<Latency>("[[1, -1]]").is_err());
    }
}
