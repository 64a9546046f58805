//! What one engine counts: bytes, calls, sizes. All memory is allocated before
//! the stream starts.

use super::gate::Phase;
use super::recorder::Detail;
use bytepath_record::{CallRow, FragmentCounts, Latency, SizeDistribution};
use bytepath_sys::clock;
use hdrhistogram::Histogram;

/// Maximum number of calls that an engine distinguishes.
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
    window: Window,
    detail: Detail,
    calls: [CallStats; SLOTS],
    sizes: Histogram<u64>,
    fragments: FragmentCounts,
    latency: Option<Histogram<u64>>,
}

/// The moment an engine noticed a change of phase.
#[derive(Clone, Copy, Debug)]
struct Mark {
    edge: Edge,
    total: u64,
}

/// A moment by three clocks: the kernel's, which windows are measured by, the one that
/// calls are timed by, whose ticks get their length from the first, and the CPU time of the
/// engine's thread, which notices the moment.
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

/// What happened between the looks that noticed the window's beginning and its end, or
/// within all windows of a sliced trial; all 0 where no window was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// How much was done: bytes, or exchanges.
    pub count: u64,
    /// How long it took.
    pub nanoseconds: u64,
    /// The same by the clock of calls.
    pub ticks: u64,
    /// CPU time of the engine's thread, nanoseconds; of all threads where flows were added.
    pub run: u64,
}

impl Window {
    /// Length in seconds.
    pub fn seconds(&self) -> f64 {
        self.nanoseconds as f64 * 1e-9
    }

    /// Length of a tick in seconds, by this window.
    fn tick(&self) -> f64 {
        if self.ticks == 0 { 0.0 } else { self.seconds() / self.ticks as f64 }
    }
}

/// What a tally adds up to.
#[derive(Clone, Debug)]
pub struct TallyEnd {
    /// Bytes of the whole flow.
    pub total: u64,
    pub window: Window,
    /// Calls within the window, by name.
    pub calls: Vec<(&'static str, CallStats)>,
    /// Transfer sizes within the window.
    pub sizes: Histogram<u64>,
    /// Fragments per receive within the window.
    pub fragments: FragmentCounts,
    /// Nanoseconds of each exchange within the window.
    pub latency: Option<Latency>,
}

impl Tally {
    /// A tally at the start of warm-up.
    pub fn new(detail: Detail) -> Self {
        Tally {
            phase: Phase::WarmUp,
            total: 0,
            begin: None,
            window: Window::default(),
            detail,
            calls: [CallStats::default(); SLOTS],
            sizes: histogram(SIZES),
            fragments: FragmentCounts::default(),
            latency: None,
        }
    }

    /// The same for a workload of exchanges, each of which takes a time.
    pub fn with_latency(self) -> Self {
        Tally { latency: Some(histogram(Latency::BOUNDS)), ..self }
    }

    /// What is counted in detail.
    pub fn detail(&self) -> Detail {
        self.detail
    }

    /// The phase as this engine knows it.
    #[inline(always)]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// True within the window.
    #[inline(always)]
    fn counting(&self) -> bool {
        self.phase as u32 == Phase::Window as u32
    }

    /// True while calls have to be timed.
    #[inline(always)]
    pub fn timing(&self) -> bool {
        self.detail.calls && self.counting()
    }

    /// The engine has noticed a new phase at this moment. A window that came and went
    /// between two looks is not counted.
    pub fn turn(&mut self, phase: Phase, now: Edge) {
        if let Some(Mark { edge, total }) = self.begin.take() {
            self.window.count += self.total - total;
            self.window.nanoseconds += now.nanoseconds.saturating_sub(edge.nanoseconds);
            self.window.ticks += now.ticks.saturating_sub(edge.ticks);
            self.window.run += now.run.saturating_sub(edge.run);
        }
        if phase == Phase::Window {
            self.begin = Some(Mark { edge: now, total: self.total });
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

    /// One call transferred a piece of this many bytes.
    #[inline(always)]
    pub fn piece(&mut self, bytes: u64) {
        if self.detail.sizes && self.counting() {
            self.sizes.saturating_record(bytes.max(1));
        }
    }

    /// A receive brought this many fragments in device memory, after which `held`
    /// tokens were held; `freed` if they were returned at once.
    #[inline(always)]
    pub fn fragments(&mut self, fragments: u64, held: u64, freed: bool) {
        if self.detail.sizes && self.counting() {
            self.fragments.enter(fragments, held, freed);
        }
    }

    /// An exchange took so long.
    #[inline(always)]
    pub fn latency(&mut self, nanoseconds: u64) {
        if self.counting()
            && let Some(latency) = &mut self.latency
        {
            latency.saturating_record(nanoseconds.max(1));
        }
    }

    /// Bytes moved so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The sums; `calls` are the names of the slots.
    pub fn end(self, calls: &[&'static str]) -> TallyEnd {
        TallyEnd {
            total: self.total,
            window: self.window,
            calls: calls.iter().copied().zip(self.calls).collect(),
            sizes: self.sizes,
            fragments: self.fragments,
            latency: self.latency.map(|times| {
                let recorded = times.iter_recorded();
                Latency::of(recorded.map(|b| (b.value_iterated_to(), b.count_at_value())))
            }),
        }
    }
}

impl TallyEnd {
    /// Adds another flow of the same role. The windows of flows lie side by
    /// side, so their counts and CPU times add up and the longest window counts for all.
    pub fn add(&mut self, other: TallyEnd) {
        let longest = if other.window.nanoseconds > self.window.nanoseconds {
            other.window
        } else {
            self.window
        };
        let count = self.window.count + other.window.count;
        self.window = Window { count, run: self.window.run + other.window.run, ..longest };
        self.join(other);
    }

    /// Adds what another recorder of the same flow saw, whose window is the same.
    pub fn join(&mut self, other: TallyEnd) {
        self.total += other.total;
        for (name, theirs) in other.calls {
            match self.calls.iter_mut().find(|(known, _)| *known == name) {
                Some((_, mine)) => mine.add(&theirs),
                None => self.calls.push((name, theirs)),
            }
        }
        // All such histograms have the same bounds, so this cannot fail.
        let _ = self.sizes.add(&other.sizes);
        self.fragments.add(&other.fragments);
        match (&mut self.latency, other.latency) {
            (Some(mine), Some(theirs)) => mine.add(&theirs),
            (none @ None, theirs) => *none = theirs,
            (Some(_), None) => {}
        }
    }

    /// The system-call table. Ticks get their length from the window, by both clocks.
    pub fn rows(&self) -> Vec<CallRow> {
        let tick = self.window.tick();
        let rows = self.calls.iter().map(|(name, stats)| stats.row(name, tick));
        rows.filter(|row| row.calls > 0).collect()
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

/// What no flow has counted.
impl Default for TallyEnd {
    fn default() -> Self {
        TallyEnd {
            total: 0,
            window: Window::default(),
            calls: Vec::new(),
            sizes: histogram(SIZES),
            fragments: FragmentCounts::default(),
            latency: None,
        }
    }
}

/// Sizes from 1 B to 4 GiB, with two significant digits.
const SIZES: (u64, u64, u8) = (1, 4 << 30, 2);

/// Fixed bounds, so that nothing is allocated while the stream runs.
fn histogram((low, high, digits): (u64, u64, u8)) -> Histogram<u64> {
    Histogram::new_with_bounds(low, high, digits).expect("constant bounds are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A moment, with ticks of half a nanosecond, of a thread that runs a tenth of the time.
    fn at(nanoseconds: u64) -> Edge {
        Edge { nanoseconds, ticks: 2 * nanoseconds, run: nanoseconds / 10 }
    }

    fn window(count: u64, nanoseconds: u64) -> Window {
        Window { count, nanoseconds, ticks: 2 * nanoseconds, run: nanoseconds / 10 }
    }

    #[test]
    fn counts_only_the_window() {
        let mut t = Tally::new(Detail::ALL);
        t.moved(100);
        t.piece(100);
        t.turn(Phase::Window, at(1000));
        t.moved(50);
        t.piece(50);
        t.moved(30);
        t.piece(30);
        t.turn(Phase::Drain, at(3000));
        t.moved(7);
        t.piece(7);
        t.turn(Phase::Stop, at(4000));
        let end = t.end(&[]);
        assert_eq!((end.total, end.window), (187, window(80, 2000)));
        let sizes = end.size_distribution();
        assert_eq!((sizes.count, sizes.min, sizes.max), (2, 30, 50));
    }

    #[test]
    fn unnoticed_window_counts_nothing() {
        let mut t = Tally::new(Detail::ALL);
        t.moved(100);
        t.turn(Phase::Stop, at(4000));
        let end = t.end(&[]);
        assert_eq!(end.window, Window::default());
    }

    #[test]
    fn windows_add_up() {
        let mut t = Tally::new(Detail::ALL);
        for (begin, bytes) in [(1000, 10), (5000, 20)] {
            t.turn(Phase::Window, at(begin));
            t.moved(bytes);
            t.turn(Phase::Drain, at(begin + 100));
            t.moved(1);
            t.turn(Phase::WarmUp, at(begin + 200));
        }
        let end = t.end(&[]);
        assert_eq!((end.total, end.window), (32, window(30, 200)));
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
    fn calibrates_ticks_by_window() {
        let mut t = Tally::new(Detail { calls: true, sizes: false });
        t.turn(Phase::Window, at(1000));
        t.call(0, 200, Some(1));
        t.piece(1);
        t.turn(Phase::Drain, at(2000));
        let end = t.end(&["recv"]);
        let rows = end.rows();
        assert_eq!((rows.len(), rows[0].name.as_str()), (1, "recv"));
        assert!((rows[0].total - 100e-9).abs() < 1e-15, "{}", rows[0].total);
        assert_eq!(end.size_distribution().count, 0, "sizes were not requested");
    }

    #[test]
    fn records_latency_in_window() {
        let mut t = Tally::new(Detail::default()).with_latency();
        t.latency(5);
        t.turn(Phase::Window, at(0));
        t.latency(1000);
        t.turn(Phase::Drain, at(10));
        let latency = t.end(&[]).latency.unwrap();
        assert_eq!(latency.count(), 1);
        assert!((latency.max().unwrap() - 1e-6).abs() < 1e-12, "{latency:?}");
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
