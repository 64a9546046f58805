//! How the control thread controls and monitors engines. While bytes flow
//! there is no lock; only an engine that is held sleeps on one.

// Imported via `super::sync`, not from `std`: tests/it/protocols.rs runs this file with loom's
// types.
use super::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use super::sync::{Condvar, Mutex, PoisonError};

/// State of a trial. Engines check it once per turn of their loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// Bytes flow but are not counted.
    #[default]
    WarmUp = 0,
    Window = 1,
    /// The window is over; bytes still flow.
    Drain = 2,
    /// Senders sleep during slices of other cells.
    Hold = 3,
    /// The sender ends its stream.
    Stop = 4,
}

/// The phase, shared by the control thread and all engines of an agent.
#[derive(Debug, Default)]
pub struct Gate {
    phase: AtomicU32,
    held: Mutex<()>,
    moved_on: Condvar,
}

impl Gate {
    /// Moves every engine to a phase.
    pub fn set(&self, phase: Phase) {
        // The lock ensures that engines about to sleep do not miss the change.
        let _held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        self.phase.store(phase as u32, Ordering::Release);
        self.moved_on.notify_all();
    }

    #[inline(always)]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::WarmUp,
            1 => Phase::Window,
            2 => Phase::Drain,
            3 => Phase::Hold,
            _ => Phase::Stop,
        }
    }

    /// Sleeps while the phase is [`Phase::Hold`]; returns the next phase.
    #[cold]
    pub fn wait(&self) -> Phase {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while self.phase() == Phase::Hold {
            held = self.moved_on.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        self.phase()
    }
}

/// Progress of one flow's engine, for the control thread; written by the engine alone. On its own
/// cache line, so that flows do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Progress {
    total: AtomicU64,
    noticed: AtomicU32,
}

impl Progress {
    /// Publishes the bytes moved so far.
    #[inline(always)]
    pub fn publish(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// Returns the last published total.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Publishes that the engine has noticed a phase.
    pub fn notice(&self, phase: Phase) {
        self.noticed.store(phase as u32, Ordering::Release);
    }

    /// True if `phase` is the last one that the engine noticed.
    pub fn has_noticed(&self, phase: Phase) -> bool {
        self.noticed.load(Ordering::Acquire) == phase as u32
    }
}
