//! How the control thread steers engines and looks at them without a lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Where a trial stands. Engines look at it once per turn of their loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Phase {
    /// Bytes flow and are not counted.
    WarmUp = 0,
    /// The measured window.
    Window = 1,
    /// The window is over; bytes still flow.
    Drain = 2,
    /// The sender ends its stream.
    Stop = 3,
}

/// The phase, shared by the control thread and all engines of an agent.
#[derive(Debug, Default)]
pub struct Gate(AtomicU32);

impl Gate {
    /// Moves every engine to a phase.
    pub fn set(&self, phase: Phase) {
        self.0.store(phase as u32, Ordering::Release);
    }

    /// The phase now.
    #[inline(always)]
    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::WarmUp,
            1 => Phase::Window,
            2 => Phase::Drain,
            _ => Phase::Stop,
        }
    }
}

/// Bytes moved so far by one flow: written by its engine alone, read by the
/// sampler. On a cache line of its own, so that flows do not slow each other.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Progress(AtomicU64);

impl Progress {
    /// Publishes the total.
    #[inline(always)]
    pub fn publish(&self, total: u64) {
        self.0.store(total, Ordering::Relaxed);
    }

    /// The last total published.
    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
