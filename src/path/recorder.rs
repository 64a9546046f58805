//! What an engine writes its progress into: the tally of the workload, read
//! against the clock and steered by the gate.

use crate::record::Role;
use crate::sys::clock;
use crate::workload::{Gate, Phase, Progress, Tally, TallyEnd};
use std::io;
use std::sync::Arc;

/// An engine's view of its trial. Its methods take no lock and no memory.
#[derive(Debug)]
pub struct Recorder {
    role: Role,
    gate: Arc<Gate>,
    progress: Arc<Progress>,
    tally: Tally,
}

impl Recorder {
    /// A recorder for one end of one flow. `detailed` switches the system-call
    /// table and the size distribution on.
    pub fn new(role: Role, gate: Arc<Gate>, progress: Arc<Progress>, detailed: bool) -> Self {
        clock::tick_seconds();
        Recorder { role, gate, progress, tally: Tally::new(detailed) }
    }

    /// The phase; to be asked once per turn of the loop. A sender that is held
    /// sleeps in here, and never sees [`Phase::Hold`]; a receiver goes on
    /// with what is still under way.
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
        self.tally.turn(phase, clock::now());
        self.progress.notice(phase);
        if phase == Phase::Hold && self.role == Role::Sender {
            phase = self.gate.wait();
            self.tally.turn(phase, clock::now());
            self.progress.notice(phase);
        }
        phase
    }

    /// Makes a system call and enters it under a slot of `Endpoint::calls`.
    /// The value is the bytes it moved. An interrupted or refused call is an error
    /// in the table and is handed back as it is.
    #[inline(always)]
    pub fn timed(
        &mut self,
        slot: usize,
        call: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        if !self.tally.recording() {
            return call();
        }
        let begin = clock::now();
        let result = call();
        let moved = result.as_ref().ok().map(|n| *n as u64);
        self.tally.call(slot, clock::now().wrapping_sub(begin), moved);
        result
    }

    /// Bytes went through this end.
    #[inline(always)]
    pub fn moved(&mut self, bytes: usize) {
        let total = self.tally.moved(bytes as u64);
        self.progress.publish(total);
    }

    /// The application was handed a piece of this size at once.
    #[inline(always)]
    pub fn piece(&mut self, bytes: usize) {
        self.tally.piece(bytes as u64);
    }

    /// A receive brought so many fragments in device memory, after which `held`
    /// tokens were held; `freed` if they were given back at once.
    #[inline(always)]
    pub fn fragments(&mut self, fragments: u64, held: u64, freed: bool) {
        self.tally.fragments(fragments, held, freed);
    }

    /// Bytes that went through so far.
    pub fn total(&self) -> u64 {
        self.tally.total()
    }

    /// The sums, after the engine has returned. Notices a phase that changed
    /// after the engine's last look.
    pub fn finish(mut self) -> TallyEnd {
        self.phase();
        self.tally.end()
    }
}
