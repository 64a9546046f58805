//! What a mover records its progress in: the tally, read against the clock and
//! controlled by the gate.

use super::tally::Edge;
use super::{Gate, Phase, Progress, Tally, TallyEnd};
use bytepath_sys::clock;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long an engine that is done sleeps before it looks at the gate again.
const NAP: Duration = Duration::from_millis(1);

/// A mover's view of its trial. Its methods take no lock and no memory.
#[derive(Debug)]
pub struct Recorder {
    /// Whether this end sleeps while another cell has its turn.
    holds: bool,
    gate: Arc<Gate>,
    progress: Arc<Progress>,
    tally: Tally,
}

impl Recorder {
    /// A recorder of one end of one flow. `holds` is for ends that act of their own
    /// accord, `detailed` switches the system-call table and the size distribution on.
    pub fn new(holds: bool, gate: Arc<Gate>, progress: Arc<Progress>, detailed: Detail) -> Self {
        Recorder { holds, gate, progress, tally: Tally::new(detailed) }
    }

    /// The same, which enters how long each exchange takes, too.
    pub fn with_latency(self) -> Self {
        Recorder { tally: self.tally.with_latency(), ..self }
    }

    /// What steers it, for a thread that helps.
    pub fn gate(&self) -> Arc<Gate> {
        self.gate.clone()
    }

    /// Another recorder of the same flow, whose counts are not read before its end: for
    /// workloads that move bytes both ways and count something else.
    pub fn companion(&self) -> Recorder {
        Recorder::new(false, self.gate.clone(), Arc::default(), self.tally.detail())
    }

    /// The phase; to be checked once per turn of the loop. An end that holds sleeps in
    /// here, and never sees [`Phase::Hold`]; the other continues with what is still under
    /// way.
    #[inline(always)]
    pub fn phase(&mut self) -> Phase {
        let phase = self.gate.phase();
        if phase as u32 == self.tally.phase() as u32 {
            return phase;
        }
        self.turn(phase)
    }

    #[cold]
    fn turn(&mut self, mut phase: Phase) -> Phase {
        self.tally.turn(phase, Edge::now());
        self.progress.notice(phase);
        if phase == Phase::Hold && self.holds {
            phase = self.gate.wait();
            self.tally.turn(phase, Edge::now());
            self.progress.notice(phase);
        }
        phase
    }

    /// Makes a system call and enters it under a slot of the mover's calls. The value
    /// is the bytes it moved. An interrupted or refused call is an error in the table
    /// and is handed back as it is.
    #[inline(always)]
    pub fn timed(
        &mut self,
        slot: usize,
        call: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        if !self.tally.timing() {
            return call();
        }
        let begin = clock::now();
        let result = call();
        let moved = result.as_ref().ok().map(|n| *n as u64);
        self.tally.call(slot, clock::now().saturating_sub(begin), moved);
        result
    }

    /// So much more was done: bytes through this end, or exchanges.
    #[inline(always)]
    pub fn moved(&mut self, count: usize) {
        let total = self.tally.moved(count as u64);
        self.progress.publish(total);
    }

    /// The application was handed a piece of this size at once.
    #[inline(always)]
    pub fn piece(&mut self, bytes: usize) {
        self.tally.piece(bytes as u64);
    }

    /// A receive brought this many fragments in device memory, after which `held`
    /// tokens were held; `freed` if they were returned at once.
    #[inline(always)]
    pub fn fragments(&mut self, fragments: u64, held: u64, freed: bool) {
        self.tally.fragments(fragments, held, freed);
    }

    /// An exchange took this many nanoseconds.
    #[inline(always)]
    pub fn latency(&mut self, nanoseconds: u64) {
        self.tally.latency(nanoseconds);
    }

    /// The total so far.
    #[inline(always)]
    pub fn total(&self) -> u64 {
        self.tally.total()
    }

    /// Closes the window, if it is open, where a workload ends by itself; the engine waits
    /// on, so that its thread can be looked at, until the control thread has noticed.
    pub fn close_window(&mut self) {
        if self.tally.phase() != Phase::Window {
            return;
        }
        self.tally.turn(Phase::Drain, Edge::now());
        self.progress.notice(Phase::Drain);
        while self.gate.phase() == Phase::Window {
            std::thread::sleep(NAP);
        }
    }

    /// The sums, after the loop has ended; `calls` are the names of the slots. Notices a
    /// phase that changed after the last look.
    pub fn finish(mut self, calls: &[&'static str]) -> TallyEnd {
        self.phase();
        self.tally.end(calls)
    }
}

/// What is counted besides bytes, each at a price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Each system call is timed.
    pub calls: bool,
    /// The size of each piece is entered.
    pub sizes: bool,
}

impl Detail {
    pub const ALL: Detail = Detail { calls: true, sizes: true };
}
