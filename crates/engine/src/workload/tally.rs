//! Results of recorders: windows, calls and sizes, and how they are summed.

use super::event_loop::Shares;
use super::mover::Account;
use bytepath_record::{CallRow, FragmentCounts, Latency, SizeDistribution};
use bytepath_sys::clock;
use hdrhistogram::Histogram;

/// Maximum number of calls that an engine distinguishes.
pub(super) const SLOTS: usize = 8;

/// Statistics of one kind of call, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallStats {
    calls: u64,
    errors: u64,
    bytes: u64,
    total: u64,
    squares: f64,
    min: u64,
    max: u64,
}

impl CallStats {
    /// Enters one call that took `ticks` and moved `bytes`, or failed.
    #[inline(always)]
    pub fn enter(&mut self, ticks: u64, moved: Option<u64>) {
        match moved {
            Some(bytes) => self.bytes += bytes,
            None => self.errors += 1,
        }
        self.min = if self.calls == 0 { ticks } else { self.min.min(ticks) };
        self.max = self.max.max(ticks);
        self.calls += 1;
        self.total += ticks;
        self.squares += ticks as f64 * ticks as f64;
    }

    /// Adds the calls of another flow.
    pub fn add(&mut self, other: &CallStats) {
        if other.calls == 0 {
            return;
        }
        self.min = if self.calls == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.calls += other.calls;
        self.errors += other.errors;
        self.bytes += other.bytes;
        self.total += other.total;
        self.squares += other.squares;
    }

    /// Returns the row of the system-call table; `tick` is the length of a tick in seconds.
    pub fn row(&self, name: &str, tick: f64) -> CallRow {
        let n = self.calls as f64;
        let mean = if self.calls == 0 { 0.0 } else { self.total as f64 / n };
        // Standard error of the mean, as in the last column of perf trace -s.
        let variance = if self.calls < 2 {
            0.0
        } else {
            ((self.squares - n * mean * mean) / (n - 1.0)).max(0.0)
        };
        let stddev_percent = if mean == 0.0 { 0.0 } else { 100.0 * (variance / n).sqrt() / mean };
        CallRow {
            name: name.to_owned(),
            calls: self.calls,
            errors: self.errors,
            bytes: self.bytes,
            total: self.total as f64 * tick,
            min: self.min as f64 * tick,
            avg: mean * tick,
            max: self.max as f64 * tick,
            stddev_percent,
        }
    }
}

/// A moment on three clocks: the kernel's, by which windows are measured; the one by which calls
/// are timed, whose tick length is calibrated against the first; and the CPU time of the engine's
/// thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// CLOCK_MONOTONIC in nanoseconds.
    pub nanoseconds: u64,
    /// Ticks of [`clock::now`].
    pub ticks: u64,
    /// Nanoseconds of [`clock::thread`].
    pub run: u64,
}

impl Edge {
    pub fn now() -> Edge {
        Edge { nanoseconds: clock::monotonic(), ticks: clock::now(), run: clock::thread() }
    }
}

/// Results between the points at which the engine noticed the start and the end of the window, or
/// of all windows of a sliced trial; all 0 if it noticed none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Work done: bytes or exchanges.
    pub count: u64,
    /// Length in nanoseconds.
    pub nanoseconds: u64,
    /// Length in ticks of the clock that times calls.
    pub ticks: u64,
    /// CPU time of the engine's thread in nanoseconds; of all threads if flows were added.
    pub run: u64,
}

impl Window {
    /// Length in seconds.
    pub fn seconds(&self) -> f64 {
        self.nanoseconds as f64 * 1e-9
    }

    /// Length of a tick in seconds, calibrated by this window.
    fn tick(&self) -> f64 {
        if self.ticks == 0 { 0.0 } else { self.seconds() / self.ticks as f64 }
    }
}

/// Result of an actor at the end of its flow, or of all flows of a role.
#[derive(Clone, Debug)]
pub struct FlowEnd {
    /// Account of its movers.
    pub account: Account,
    /// Bytes that this end sent and received.
    pub bytes: u64,
    /// Total of its recorders over the whole flow, in their units.
    pub total: u64,
    pub window: Window,
    /// Calls within the window, by name.
    pub calls: Vec<(&'static str, CallStats)>,
    /// Transfer sizes within the window.
    pub sizes: Histogram<u64>,
    /// Fragments per receive within the window.
    pub fragments: FragmentCounts,
    /// Latency of each exchange within the window, in nanoseconds.
    pub latency: Option<Latency>,
    /// How the exchanges of the window were distributed over the connections.
    pub shares: Shares,
}

impl FlowEnd {
    /// Adds another flow of the same role. Flows run in parallel: counts and CPU times are summed,
    /// and the longest window's length is kept.
    pub fn add(&mut self, other: FlowEnd) {
        let longest = if other.window.nanoseconds > self.window.nanoseconds {
            other.window
        } else {
            self.window
        };
        let count = self.window.count + other.window.count;
        self.window = Window { count, run: self.window.run + other.window.run, ..longest };
        self.join(other);
    }

    /// Adds the result of another recorder of the same flow, which had the same window.
    pub fn join(&mut self, other: FlowEnd) {
        self.account.add(other.account);
        self.bytes += other.bytes;
        self.total += other.total;
        for (name, theirs) in other.calls {
            match self.calls.iter_mut().find(|(known, _)| *known == name) {
                Some((_, mine)) => mine.add(&theirs),
                None => self.calls.push((name, theirs)),
            }
        }
        // All these histograms have the same bounds, so this cannot fail.
        let _ = self.sizes.add(&other.sizes);
        self.fragments.add(&other.fragments);
        self.shares.add(other.shares);
        match (&mut self.latency, other.latency) {
            (Some(mine), Some(theirs)) => mine.add(&theirs),
            (none @ None, theirs) => *none = theirs,
            (Some(_), None) => {}
        }
    }

    /// Returns the system-call table. The tick length is calibrated by the window.
    pub fn rows(&self) -> Vec<CallRow> {
        let tick = self.window.tick();
        let rows = self.calls.iter().map(|(name, stats)| stats.row(name, tick));
        rows.filter(|row| row.calls > 0).collect()
    }

    /// Returns the distribution of sizes.
    pub fn size_distribution(&self) -> SizeDistribution {
        let h = &self.sizes;
        if h.is_empty() {
            return SizeDistribution::default();
        }
        SizeDistribution {
            count: h.len(),
            min: h.min(),
            mean: h.mean(),
            max: h.max(),
            percentiles: [10.0, 50.0, 90.0, 99.0].map(|p| (p, h.value_at_percentile(p))).to_vec(),
        }
    }
}

/// The result of no flows.
impl Default for FlowEnd {
    fn default() -> Self {
        FlowEnd {
            account: Account::default(),
            bytes: 0,
            total: 0,
            window: Window::default(),
            calls: Vec::new(),
            sizes: histogram(SIZES),
            fragments: FragmentCounts::default(),
            latency: None,
            shares: Shares::default(),
        }
    }
}

/// Sizes from 1 B to 4 GiB, with two significant digits.
pub(super) const SIZES: (u64, u64, u8) = (1, 4 << 30, 2);

/// Fixed bounds, so that nothing is allocated while the stream runs.
pub(super) fn histogram((low, high, digits): (u64, u64, u8)) -> Histogram<u64> {
    Histogram::new_with_bounds(low, high, digits).expect("constant bounds are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_rows_have_the_moments_of_their_calls() {
        let mut c = CallStats::default();
        for ticks in [10, 20, 30, 40] {
            c.enter(ticks, Some(1));
        }
        c.enter(50, None);
        let row = c.row("recv", 1e-9);
        assert_eq!((row.calls, row.errors, row.bytes), (5, 1, 4));
        assert_eq!((row.min, row.max), (10.0 * 1e-9, 50.0 * 1e-9));
        assert!((row.avg - 30e-9).abs() < 1e-15);
        // Sample deviation 15.81; of the mean, 7.07; divided by 30: 23.57 %.
        assert!((row.stddev_percent - 23.570).abs() < 0.001, "{}", row.stddev_percent);
    }

    #[test]
    fn idle_flow_adds_nothing() {
        let mut a = CallStats::default();
        a.enter(10, Some(1));
        let before = a;
        a.add(&CallStats::default());
        assert_eq!(a, before);
    }
}
