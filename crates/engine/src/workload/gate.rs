//! How the control thread controls and monitors engines. While bytes flow
//! there is no lock; only an engine that is held sleeps on one.

// Not those of `std` alone: tests/it/protocols.rs runs this file with loom's.
use super::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use super::sync::{Condvar, Mutex, PoisonError};

/// State of a trial. Engines check it once per turn of their loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// Bytes flow and are not counted.
    #[default]
    WarmUp = 0,
    Window = 1,
    /// The window is over; bytes still flow.
    Drain = 2,
    /// Senders sleep while another cell has its turn.
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
        // The lock is for those who are about to sleep: they must not miss this.
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

    /// Sleeps while the phase is [`Phase::Hold`]; returns the one after it.
    #[cold]
    pub fn wait(&self) -> Phase {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while self.phase() == Phase::Hold {
            held = self.moved_on.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        self.phase()
    }
}

/// What one flow's engine lets the control thread know: written by the engine
/// alone. On a cache line of its own, so that flows do not slow each other.
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

    /// The last total published.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// The engine has noticed a phase.
    pub fn notice(&self, phase: Phase) {
        self.noticed.store(phase as u32, Ordering::Release);
    }

    /// Whether the last phase that the engine noticed is this one.
    pub fn has_noticed(&self, phase: Phase) -> bool {
        self.noticed.load(Ordering::Acquire) == phase as u32
    }
}
