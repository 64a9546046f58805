//! What one engine counts: bytes, calls, sizes. All memory is taken before the
//! stream starts.

use super::gate::Phase;
use crate::record::{CallRow, FragmentCounts, SizeDistribution};
use hdrhistogram::Histogram;

/// Calls an engine may tell apart.
const SLOTS: usize = 8;

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

    /// The line of the system-call table; `tick` is the length of a tick in seconds.
    pub fn row(&self, name: &str, tick: f64) -> CallRow {
        let n = self.calls as f64;
        let mean = if self.calls == 0 { 0.0 } else { self.total as f64 / n };
        // The spread of the mean, as perf trace -s defines its last column.
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

/// What one engine counts while it runs.
#[derive(Debug)]
pub struct Tally {
    phase: Phase,
    total: u64,
    begin: Option<Mark>,
    window_bytes: u64,
    window_ticks: u64,
    detailed: bool,
    calls: [CallStats; SLOTS],
    sizes: Histogram<u64>,
    fragments: FragmentCounts,
}

/// The moment an engine noticed a change of phase.
#[derive(Clone, Copy, Debug)]
struct Mark {
    ticks: u64,
    bytes: u64,
}

/// What a tally adds up to.
#[derive(Clone, Debug)]
pub struct TallyEnd {
    /// Bytes of the whole flow.
    pub total: u64,
    /// Bytes within the window, or within all windows of a sliced trial.
    pub window_bytes: u64,
    /// Ticks between the looks that noticed the window's begin and its end; 0
    /// where no window was seen to begin and end.
    pub window_ticks: u64,
    /// Calls within the window, by the engine's slots.
    pub calls: [CallStats; SLOTS],
    /// Sizes handed over at once within the window.
    pub sizes: Histogram<u64>,
    /// Fragments per receive within the window.
    pub fragments: FragmentCounts,
}

impl Tally {
    /// A tally at the start of warm-up. `detailed` switches call and size
    /// statistics on.
    pub fn new(detailed: bool) -> Self {
        Tally {
            phase: Phase::WarmUp,
            total: 0,
            begin: None,
            window_bytes: 0,
            window_ticks: 0,
            detailed,
            calls: [CallStats::default(); SLOTS],
            sizes: size_histogram(),
            fragments: FragmentCounts::default(),
        }
    }

    /// The phase as this engine knows it.
    #[inline(always)]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// True while calls and sizes are to be entered.
    #[inline(always)]
    pub fn recording(&self) -> bool {
        self.detailed && self.phase as u32 == Phase::Window as u32
    }

    /// The engine has noticed a new phase at this clock reading. A window that
    /// came and went between two looks is not counted.
    pub fn turn(&mut self, phase: Phase, ticks: u64) {
        if let Some(begin) = self.begin.take() {
            self.window_bytes += self.total - begin.bytes;
            self.window_ticks += ticks.saturating_sub(begin.ticks);
        }
        if phase == Phase::Window {
            self.begin = Some(Mark { ticks, bytes: self.total });
        }
        self.phase = phase;
    }

    /// Bytes were moved; returns the new total.
    #[inline(always)]
    pub fn moved(&mut self, bytes: u64) -> u64 {
        self.total += bytes;
        self.total
    }

    /// A call of a slot took `ticks` and moved bytes, or failed.
    #[inline(always)]
    pub fn call(&mut self, slot: usize, ticks: u64, moved: Option<u64>) {
        self.calls[slot].enter(ticks, moved);
    }

    /// A piece of this many bytes was handed over at once.
    #[inline(always)]
    pub fn piece(&mut self, bytes: u64) {
        if self.recording() {
            self.sizes.saturating_record(bytes.max(1));
        }
    }

    /// A receive brought so many fragments in device memory, after which `held`
    /// tokens were held; `freed` if they were given back at once.
    #[inline(always)]
    pub fn fragments(&mut self, fragments: u64, held: u64, freed: bool) {
        if self.recording() {
            self.fragments.enter(fragments, held, freed);
        }
    }

    /// Bytes moved so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The sums.
    pub fn end(self) -> TallyEnd {
        TallyEnd {
            total: self.total,
            window_bytes: self.window_bytes,
            window_ticks: self.window_ticks,
            calls: self.calls,
            sizes: self.sizes,
            fragments: self.fragments,
        }
    }
}

impl TallyEnd {
    /// Adds another flow of the same role. The windows of flows lie side by
    /// side, so their bytes add up and the longest window stands for all.
    pub fn add(&mut self, other: &TallyEnd) {
        self.total += other.total;
        self.window_bytes += other.window_bytes;
        self.window_ticks = self.window_ticks.max(other.window_ticks);
        for (mine, theirs) in self.calls.iter_mut().zip(&other.calls) {
            mine.add(theirs);
        }
        // Both histograms have the same bounds, so this cannot fail.
        let _ = self.sizes.add(&other.sizes);
        self.fragments.add(&other.fragments);
    }

    /// The distribution of sizes.
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

/// 1 B to 4 GiB with two significant digits: fixed, so that nothing is
/// allocated while the stream runs.
fn size_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 4 << 30, 2).expect("constant bounds are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_window_is_counted() {
        let mut t = Tally::new(true);
        t.moved(100);
        t.piece(100);
        t.turn(Phase::Window, 1000);
        t.moved(50);
        t.piece(50);
        t.moved(30);
        t.piece(30);
        t.turn(Phase::Drain, 3000);
        t.moved(7);
        t.piece(7);
        t.turn(Phase::Stop, 4000);
        let end = t.end();
        assert_eq!((end.total, end.window_bytes, end.window_ticks), (187, 80, 2000));
        let sizes = end.size_distribution();
        assert_eq!((sizes.count, sizes.min, sizes.max), (2, 30, 50));
    }

    #[test]
    fn a_window_that_nobody_saw_counts_nothing() {
        let mut t = Tally::new(true);
        t.moved(100);
        t.turn(Phase::Stop, 4000);
        let end = t.end();
        assert_eq!((end.window_bytes, end.window_ticks), (0, 0));
    }

    #[test]
    fn several_windows_add_up() {
        let mut t = Tally::new(true);
        for (begin, bytes) in [(1000, 10), (5000, 20)] {
            t.turn(Phase::Window, begin);
            t.moved(bytes);
            t.turn(Phase::Drain, begin + 100);
            t.moved(1);
            t.turn(Phase::WarmUp, begin + 200);
        }
        let end = t.end();
        assert_eq!((end.total, end.window_bytes, end.window_ticks), (32, 30, 200));
    }

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
        // Sample deviation 15.81, of the mean 7.07, over 30: 23.57 %.
        assert!((row.stddev_percent - 23.570).abs() < 0.001, "{}", row.stddev_percent);
    }

    #[test]
    fn adding_calls_of_an_idle_flow_changes_nothing() {
        let mut a = CallStats::default();
        a.enter(10, Some(1));
        let before = a;
        a.add(&CallStats::default());
        assert_eq!(a, before);
    }
}
