//! Records a mover's progress against the clock, in phases controlled by the gate. All memory is
//! allocated before the stream starts.

use super::tally::{CallStats, Edge, FlowEnd, SIZES, SLOTS, Window, histogram};
use super::{Gate, Phase, Progress};
use bytepath_record::{FragmentCounts, Latency};
use bytepath_sys::clock;
use hdrhistogram::Histogram;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How long an engine that is done sleeps between checks of the gate.
const NAP: Duration = Duration::from_millis(1);

/// A mover's view of its trial, and its counters. Its methods neither lock nor allocate.
#[derive(Debug)]
pub struct Recorder {
    /// Whether this end sleeps during slices of another cell.
    holds: bool,
    gate: Arc<Gate>,
    progress: Arc<Progress>,
    /// The phase that this engine has last seen.
    phase: Phase,
    total: u64,
    /// When the window began, and the total at that moment.
    begin: Option<(Edge, u64)>,
    window: Window,
    detail: Detail,
    calls: [(&'static str, CallStats); SLOTS],
    sizes: Histogram<u64>,
    fragments: FragmentCounts,
    latency: Option<Histogram<u64>>,
    /// Exchanges that began in the window and brought no response.
    unanswered: u64,
    /// Time range of the last window, in nanoseconds: empty before the first, endless while one is
    /// open.
    open: Range<u64>,
}

impl Recorder {
    /// A recorder of one end of one flow. `holds` is for ends that act on their own initiative;
    /// `detail` enables the system-call table and the size distribution.
    pub fn new(holds: bool, gate: Arc<Gate>, progress: Arc<Progress>, detail: Detail) -> Self {
        // The first reading of the clock determines which one to use; that must not happen in a
        // loop.
        clock::now();
        Recorder {
            holds,
            gate,
            progress,
            phase: Phase::WarmUp,
            total: 0,
            begin: None,
            window: Window::default(),
            detail,
            calls: Default::default(),
            sizes: histogram(SIZES),
            fragments: FragmentCounts::default(),
            latency: None,
            unanswered: 0,
            open: 0..0,
        }
    }

    /// Makes it record how long each exchange takes, too.
    pub fn with_latency(self) -> Self {
        Recorder { latency: Some(histogram(Latency::BOUNDS)), ..self }
    }

    /// Returns the gate, for helper threads.
    pub fn gate(&self) -> Arc<Gate> {
        self.gate.clone()
    }

    /// Returns another recorder of the same flow, whose counts are not read before its end: for
    /// workloads that move bytes both ways and count something else.
    pub fn companion(&self) -> Recorder {
        Recorder::new(false, self.gate.clone(), Arc::default(), self.detail)
    }

    /// Returns the phase; must be called once per turn of the loop. An end that holds sleeps in
    /// this call, and never sees [`Phase::Hold`]; the other end continues with what is in flight.
    #[inline(always)]
    pub fn phase(&mut self) -> Phase {
        let phase = self.gate.phase();
        if phase as u32 == self.phase as u32 {
            return phase;
        }
        self.change_phase(phase)
    }

    #[cold]
    fn change_phase(&mut self, mut phase: Phase) -> Phase {
        self.enter_phase(phase, Edge::now());
        if phase == Phase::Hold && self.holds {
            phase = self.gate.wait();
            self.enter_phase(phase, Edge::now());
        }
        phase
    }

    /// Enters a phase that the engine noticed at this moment. A window that opened and closed
    /// between two calls is not counted.
    fn enter_phase(&mut self, phase: Phase, now: Edge) {
        if let Some((edge, total)) = self.begin.take() {
            self.window.count += self.total - total;
            self.window.nanoseconds += now.nanoseconds.saturating_sub(edge.nanoseconds);
            self.window.ticks += now.ticks.saturating_sub(edge.ticks);
            self.window.run += now.run.saturating_sub(edge.run);
            self.open.end = now.nanoseconds;
        }
        if phase == Phase::Window {
            self.open = now.nanoseconds..u64::MAX;
            self.begin = Some((now, self.total));
        }
        self.phase = phase;
        self.progress.notice(phase);
    }

    /// True while the window is open.
    #[inline(always)]
    pub(super) fn counting(&self) -> bool {
        self.phase as u32 == Phase::Window as u32
    }

    /// Makes a system call and enters it in the table; `make` returns the bytes it moved. An
    /// interrupted or failed call counts as an error in the table; its error is returned unchanged.
    #[inline(always)]
    pub fn timed(
        &mut self,
        call: Call,
        make: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.timed_with(call, make, |bytes| *bytes)
    }

    /// Like [`Recorder::timed`], for a call with another result; `moved` extracts the bytes from
    /// it.
    #[inline(always)]
    pub fn timed_with<T, E>(
        &mut self,
        Call(slot, name): Call,
        make: impl FnOnce() -> Result<T, E>,
        moved: impl FnOnce(&T) -> usize,
    ) -> Result<T, E> {
        if !(self.detail.calls && self.counting()) {
            return make();
        }
        let begin = clock::now();
        let result = make();
        let moved = result.as_ref().ok().map(|value| moved(value) as u64);
        self.calls[slot].0 = name;
        self.calls[slot].1.enter(clock::now().saturating_sub(begin), moved);
        result
    }

    /// Adds `count` to the total: bytes through this end, or exchanges.
    #[inline(always)]
    pub fn moved(&mut self, count: usize) {
        self.total += count as u64;
        self.progress.publish(self.total);
    }

    /// Enters a piece of this many bytes delivered to the application at once.
    #[inline(always)]
    pub fn piece(&mut self, bytes: usize) {
        if self.detail.sizes && self.counting() {
            self.sizes.saturating_record(bytes.max(1) as u64);
        }
    }

    /// Enters a receive of this many device-memory fragments, after which the application held
    /// `held` tokens; `freed` if they were returned at once.
    #[inline(always)]
    pub fn fragments(&mut self, fragments: u64, held: u64, freed: bool) {
        if self.detail.sizes && self.counting() {
            self.fragments.enter(fragments, held, freed);
        }
    }

    /// Enters an exchange that took this many nanoseconds.
    #[inline(always)]
    pub fn latency(&mut self, nanoseconds: u64) {
        if self.counting()
            && let Some(latency) = &mut self.latency
        {
            latency.saturating_record(nanoseconds.max(1));
        }
    }

    /// Enters an exchange that began at `since` and will get no response. It counts in the window
    /// in which it began, whenever the loss is noticed. Answered exchanges count in the window in
    /// which they end; as many begin in a window as end in one, so both weigh the same. Counted
    /// when noticed, slow timeouts would weigh more.
    pub fn unanswered(&mut self, since: u64) {
        self.unanswered += u64::from(self.open.contains(&since));
    }

    /// Returns the total so far.
    #[inline(always)]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Closes the window, if it is open, for a workload that ends by itself. The engine then waits
    /// until the control thread has noticed, so that its thread can still be inspected.
    pub fn close_window(&mut self) {
        if self.phase != Phase::Window {
            return;
        }
        self.enter_phase(Phase::Drain, Edge::now());
        while self.gate.phase() == Phase::Window {
            std::thread::sleep(NAP);
        }
    }

    /// Returns the results after the loop has ended. Also enters a phase that began after the last
    /// check.
    pub fn finish(mut self) -> FlowEnd {
        self.phase();
        self.end()
    }

    fn end(self) -> FlowEnd {
        FlowEnd {
            total: self.total,
            window: self.window,
            calls: self.calls.into_iter().filter(|(name, _)| !name.is_empty()).collect(),
            sizes: self.sizes,
            fragments: self.fragments,
            latency: self.latency.map(|times| {
                let recorded = times.iter_recorded();
                Latency::of(recorded.map(|b| (b.value_iterated_to(), b.count_at_value())))
                    .with_unanswered(self.unanswered)
            }),
            ..FlowEnd::default()
        }
    }
}

/// A call that a mover makes: its index in the mover's table, below `SLOTS`, and its name.
#[derive(Clone, Copy, Debug)]
pub struct Call(pub usize, pub &'static str);

/// Optional counters; each adds overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Time each system call.
    pub calls: bool,
    /// Record the size of each piece.
    pub sizes: bool,
}

impl Detail {
    pub const ALL: Detail = Detail { calls: true, sizes: true };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(detail: Detail) -> Recorder {
        Recorder::new(false, Arc::default(), Arc::default(), detail)
    }

    /// A moment with two ticks per nanosecond, of a thread that runs a tenth of the time.
    fn at(nanoseconds: u64) -> Edge {
        Edge { nanoseconds, ticks: 2 * nanoseconds, run: nanoseconds / 10 }
    }

    fn window(count: u64, nanoseconds: u64) -> Window {
        Window { count, nanoseconds, ticks: 2 * nanoseconds, run: nanoseconds / 10 }
    }

    #[test]
    fn counts_only_the_window() {
        let mut t = recorder(Detail::ALL);
        t.moved(100);
        t.piece(100);
        t.enter_phase(Phase::Window, at(1000));
        t.moved(50);
        t.piece(50);
        t.moved(30);
        t.piece(30);
        t.enter_phase(Phase::Drain, at(3000));
        t.moved(7);
        t.piece(7);
        t.enter_phase(Phase::Stop, at(4000));
        let end = t.end();
        assert_eq!((end.total, end.window), (187, window(80, 2000)));
        let sizes = end.size_distribution();
        assert_eq!((sizes.count, sizes.min, sizes.max), (2, 30, 50));
    }

    #[test]
    fn unnoticed_window_counts_nothing() {
        let mut t = recorder(Detail::ALL);
        t.moved(100);
        t.enter_phase(Phase::Stop, at(4000));
        let end = t.end();
        assert_eq!(end.window, Window::default());
    }

    #[test]
    fn windows_add_up() {
        let mut t = recorder(Detail::ALL);
        for (begin, bytes) in [(1000, 10), (5000, 20)] {
            t.enter_phase(Phase::Window, at(begin));
            t.moved(bytes);
            t.enter_phase(Phase::Drain, at(begin + 100));
            t.moved(1);
            t.enter_phase(Phase::WarmUp, at(begin + 200));
        }
        let end = t.end();
        assert_eq!((end.total, end.window), (32, window(30, 200)));
    }

    #[test]
    fn calibrates_ticks_by_window() {
        let mut t = recorder(Detail { calls: true, sizes: false });
        t.enter_phase(Phase::Window, at(1000));
        t.calls[0] = ("recv", CallStats::default());
        t.calls[0].1.enter(200, Some(1));
        t.piece(1);
        t.enter_phase(Phase::Drain, at(2000));
        let end = t.end();
        let rows = end.rows();
        assert_eq!((rows.len(), rows[0].name.as_str()), (1, "recv"));
        assert!((rows[0].total - 100e-9).abs() < 1e-15, "{}", rows[0].total);
        assert_eq!(end.size_distribution().count, 0, "sizes were not requested");
    }

    #[test]
    fn what_is_lost_is_of_the_window_that_it_began_in() {
        let mut t = recorder(Detail::default()).with_latency();
        t.unanswered(0);
        t.enter_phase(Phase::Window, at(1000));
        for since in [500, 1200] {
            t.unanswered(since);
        }
        t.enter_phase(Phase::Drain, at(2000));
        for since in [500, 1000, 1500, 2000, 2500] {
            t.unanswered(since);
        }
        assert_eq!(t.end().latency.unwrap().unanswered(), 3);
    }

    /// One in ten is lost, however long answers take and whenever a loss is noticed.
    #[test]
    fn the_lost_part_does_not_depend_on_how_long_exchanges_take() {
        for (answer, loss) in [(10, 10), (10, 5000), (900, 5000), (1500, 20), (1500, 5000)] {
            let mut t = recorder(Detail::default()).with_latency();
            let exchange = |n: u64| (n * 10 + if n.is_multiple_of(10) { loss } else { answer }, n);
            let mut ends: Vec<(u64, u64)> = (0..2000).map(exchange).collect();
            ends.sort_unstable();
            for (now, n) in ends {
                match (t.phase, now) {
                    (Phase::WarmUp, 10_000..) => t.enter_phase(Phase::Window, at(10_000)),
                    (Phase::Window, 11_000..) => t.enter_phase(Phase::Drain, at(11_000)),
                    _ => {}
                }
                match n % 10 {
                    0 => t.unanswered(n * 10),
                    _ => t.latency(answer),
                }
            }
            let latency = t.end().latency.unwrap();
            assert_eq!((latency.count(), latency.unanswered()), (90, 10), "{answer} {loss}");
        }
    }

    #[test]
    fn records_latency_in_window() {
        let mut t = recorder(Detail::default()).with_latency();
        t.latency(5);
        t.enter_phase(Phase::Window, at(0));
        t.latency(1000);
        t.enter_phase(Phase::Drain, at(10));
        let latency = t.end().latency.unwrap();
        assert_eq!(latency.count(), 1);
        assert!((latency.max().unwrap() - 1e-6).abs() < 1e-12, "{latency:?}");
    }
}
