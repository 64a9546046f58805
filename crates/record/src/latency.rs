//! Latencies of exchanges, kept as buckets, which can be added over flows, slices and blocks;
//! percentiles cannot.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use strum::IntoStaticStr;

/// Longest time that is distinguished, in nanoseconds; longer ones count as this.
const LONGEST: u64 = 100_000_000_000;

/// Times below this have a bucket each, for three significant digits.
const EXACT: u64 = 2048;

/// Exchanges that must lie above a percentile for it to be reported: with fewer it would depend on
/// single exchanges.
const ABOVE: f64 = 10.0;

/// Distribution of latencies in nanoseconds with three significant digits, up to 100 s: the buckets
/// in use, in ascending order, each as its longest time and its number of exchanges. The buckets
/// are those of a histogram with [`Latency::BOUNDS`], in which engines record because that
/// allocates nothing.
///
/// An exchange without a response counts as longer than all others in percentiles; mean and maximum
/// leave it out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Stored", into = "Stored")]
#[schemars(with = "Stored")]
pub struct Latency {
    times: Vec<(u64, u64)>,
    unanswered: u64,
}

/// On disk and on the wire: `[[nanoseconds, how often], ...]`, or, if some exchanges got no
/// response, an object with these and their number.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Stored {
    All(Vec<(u64, u64)>),
    Some { times: Vec<(u64, u64)>, unanswered: u64 },
}

/// A percentile that reports print and verdicts compare.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, IntoStaticStr, JsonSchema,
)]
#[serde(into = "&'static str")]
pub enum Percentile {
    /// The median.
    #[strum(serialize = "p50")]
    P50,
    /// 9 of 10 are faster.
    #[strum(serialize = "p90")]
    P90,
    /// 99 of 100 are faster.
    #[strum(serialize = "p99")]
    P99,
    /// 999 of 1000 are faster.
    #[strum(serialize = "p99.9")]
    P999,
    /// 9999 of 10000 are faster.
    #[strum(serialize = "p99.99")]
    P9999,
}

impl Percentile {
    /// All of them, ascending.
    pub const ALL: [Percentile; 5] =
        [Percentile::P50, Percentile::P90, Percentile::P99, Percentile::P999, Percentile::P9999];

    /// Its name in tables and thresholds: "p99.9".
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Fraction of the exchanges at or below it, 0 to 1.
    pub fn part(self) -> f64 {
        [0.5, 0.9, 0.99, 0.999, 0.9999][self as usize]
    }
}

impl Latency {
    /// Shortest and longest time in nanoseconds, and significant digits, of an HdrHistogram
    /// with the same buckets.
    pub const BOUNDS: (u64, u64, u8) = (1, LONGEST, 3);

    /// A distribution from times in nanoseconds, each with its number of exchanges.
    pub fn of(times: impl IntoIterator<Item = (u64, u64)>) -> Latency {
        let of_some = times.into_iter().filter(|(_, count)| *count > 0);
        let mut buckets: Vec<(u64, u64)> =
            of_some.map(|(nanoseconds, count)| (bucket(nanoseconds), count)).collect();
        buckets.sort_unstable();
        Latency { times: joined(buckets), unanswered: 0 }
    }

    /// Sets the number of exchanges without a response.
    pub fn with_unanswered(self, unanswered: u64) -> Latency {
        Latency { unanswered, ..self }
    }

    /// Adds one exchange.
    pub fn record(&mut self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let at = bucket(nanoseconds);
        match self.times.binary_search_by_key(&at, |(longest, _)| *longest) {
            Ok(found) => self.times[found].1 = self.times[found].1.saturating_add(1),
            Err(place) => self.times.insert(place, (at, 1)),
        }
    }

    /// Adds the exchanges of another flow, slice or block.
    pub fn add(&mut self, other: &Latency) {
        let (mut ours, mut theirs) = (self.times.iter().peekable(), other.times.iter().peekable());
        let mut all = Vec::with_capacity(self.times.len() + other.times.len());
        while let (Some(mine), Some(their)) = (ours.peek(), theirs.peek()) {
            let next = if mine.0 <= their.0 { &mut ours } else { &mut theirs };
            all.extend(next.next());
        }
        all.extend(ours);
        all.extend(theirs);
        self.times = joined(all);
        self.unanswered = self.unanswered.saturating_add(other.unanswered);
    }

    /// Exchanges with a response.
    pub fn count(&self) -> u64 {
        self.times.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Exchanges without a response.
    pub fn unanswered(&self) -> u64 {
        self.unanswered
    }

    /// Returns a percentile in seconds; `None` if fewer than ten exchanges took longer, so that it
    /// would depend on a few of them, or if it falls among exchanges without a response.
    pub fn percentile(&self, percentile: Percentile) -> Option<f64> {
        let all = self.count().saturating_add(self.unanswered) as f64;
        let above = all * (1.0 - percentile.part());
        // 1000 exchanges leave exactly 10 above p99, however a double rounds 0.99.
        if above < ABOVE - 1e-6 {
            return None;
        }
        let wanted = (all * percentile.part()).ceil() as u64;
        let mut sum = 0_u64;
        let found = self.times.iter().find(|(_, count)| {
            sum = sum.saturating_add(*count);
            sum >= wanted
        });
        let last = self.times.last().filter(|_| self.unanswered == 0);
        found.or(last).map(|(nanoseconds, _)| seconds(*nanoseconds))
    }

    /// True if a percentile is missing and some exchanges got no response. Comparing only the
    /// trials that have it would favour those that lost least.
    pub fn has_lost(&self, percentile: Percentile) -> bool {
        self.unanswered > 0 && self.percentile(percentile).is_none()
    }

    /// Longest time in seconds, or `None` without exchanges.
    pub fn max(&self) -> Option<f64> {
        self.times.last().map(|(nanoseconds, _)| seconds(*nanoseconds))
    }

    /// Mean in seconds, or `None` without exchanges.
    pub fn mean(&self) -> Option<f64> {
        let all = self.count() as f64;
        // The middle of a bucket stands for the times in it.
        let middle = |longest: u64| longest - (width(longest) - 1) / 2;
        let sum: f64 =
            self.times.iter().map(|(at, count)| middle(*at) as f64 * *count as f64).sum();
        (!self.times.is_empty()).then(|| sum / all * 1e-9)
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 * 1e-9
}

/// Returns the longest time in the bucket of this one.
fn bucket(nanoseconds: u64) -> u64 {
    let nanoseconds = nanoseconds.clamp(1, LONGEST);
    nanoseconds | (width(nanoseconds) - 1)
}

/// Returns the width of the bucket of a time: a power of two, at most a thousandth of the time.
fn width(nanoseconds: u64) -> u64 {
    match nanoseconds < EXACT {
        true => 1,
        false => 1 << (nanoseconds.ilog2() - (EXACT / 2).ilog2()),
    }
}

/// Merges equal neighbours of ascending buckets.
fn joined(mut buckets: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    buckets.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        same
    });
    buckets
}

impl TryFrom<Stored> for Latency {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        let (times, unanswered) = match stored {
            Stored::All(times) => (times, 0),
            Stored::Some { times, unanswered } => (times, unanswered),
        };
        let sum = times.iter().try_fold(unanswered, |sum, (_, count)| sum.checked_add(*count));
        sum.ok_or("more exchanges than can be counted")?;
        Ok(Latency::of(times).with_unanswered(unanswered))
    }
}

impl From<Latency> for Stored {
    fn from(latency: Latency) -> Self {
        match latency.unanswered {
            0 => Stored::All(latency.times),
            unanswered => Stored::Some { times: latency.times, unanswered },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    fn of(microseconds: impl IntoIterator<Item = u64>) -> Latency {
        let mut latency = Latency::default();
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
        let none = Latency::default();
        assert_eq!((none.max(), none.mean(), none.percentile(Percentile::P50)), (None, None, None));
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (odd, even) = (of((1..5000).step_by(2)), of((2..5000).step_by(2)));
        let mut sum = odd;
        sum.add(&even);
        assert_eq!(sum, of(1..5000));
    }

    #[test]
    fn what_brought_no_response_took_longer_than_all() {
        // 980 exchanges with a response and 20 without: p50 and p90 fall among the responses.
        let mut latency = of(1..=980).with_unanswered(15);
        latency.add(&Latency::default().with_unanswered(5));
        assert_eq!((latency.count(), latency.unanswered()), (980, 20));
        assert!(near(latency.percentile(Percentile::P50), 500e-6));
        assert!(near(latency.percentile(Percentile::P90), 900e-6));
        assert_eq!(latency.percentile(Percentile::P99), None);
        assert!(latency.has_lost(Percentile::P99) && !latency.has_lost(Percentile::P90));
        assert!(near(latency.max(), 980e-6) && near(latency.mean(), 490.5e-6));
        let text = serde_json::to_string(&latency).unwrap();
        assert!(text.ends_with("\"unanswered\":20}"), "{text}");
        assert_eq!(serde_json::from_str::<Latency>(&text).unwrap(), latency);
        let overflow = r#"{"times":[[1,18446744073709551615]],"unanswered":1}"#;
        assert!(serde_json::from_str::<Latency>(overflow).is_err());
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
        // Values that only a damaged file can contain are refused or bounded.
        let huge: Latency = serde_json::from_str("[[18446744073709551615, 2], [0, 1]]").unwrap();
        assert_eq!(huge.count(), 3);
        let never: Latency = serde_json::from_str("[[1000, 0], [2000, 1], [9000, 0]]").unwrap();
        assert!(near(never.max(), 2e-6));
        assert_eq!(never, serde_json::from_str("[[2000, 1]]").unwrap());
        let overflow = "[[1, 18446744073709551615], [2, 1]]";
        assert!(serde_json::from_str::<Latency>(overflow).is_err());
        assert!(serde_json::from_str::<Latency>("[[1, -1]]").is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_histogram_of_these_bounds_says_the_same(
            times in prop::collection::vec((any::<u64>(), 0_u32..64, 1_u64..2000), 1..50),
        ) {
            let (low, high, digits) = Latency::BOUNDS;
            let mut theirs = Histogram::<u64>::new_with_bounds(low, high, digits).unwrap();
            let times: Vec<(u64, u64)> =
                times.into_iter().map(|(time, shift, count)| (time >> shift, count)).collect();
            times.iter().for_each(|(ns, n)| theirs.saturating_record_n((*ns).clamp(low, high), *n));
            let ours = Latency::of(times);
            let recorded = theirs.iter_recorded();
            let buckets: Vec<(u64, u64)> =
                recorded.map(|b| (b.value_iterated_to(), b.count_since_last_iteration())).collect();
            prop_assert_eq!(&ours.times, &buckets);
            prop_assert_eq!(ours.count(), theirs.len());
            prop_assert_eq!(ours.max(), Some(seconds(theirs.max())));
            prop_assert!((ours.mean().unwrap() / (theirs.mean() * 1e-9) - 1.0).abs() < 1e-12);
            for percentile in Percentile::ALL {
                if let Some(found) = ours.percentile(percentile) {
                    prop_assert_eq!(found, seconds(theirs.value_at_quantile(percentile.part())));
                }
            }
        }
    }
}
