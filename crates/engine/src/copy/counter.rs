//! A number that one thread writes and another one reads.

// Not those of `std` alone: tests/it/protocols.rs runs this file with loom's.
use super::sync::atomic::{AtomicU64, Ordering};

/// On a line of its own: one side writes it, the other one reads it.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Shows the reader a number, and with it all that was written before.
    pub(super) fn show(&self, number: u64) {
        self.0.store(number, Ordering::Release);
    }

    /// What the writer has shown, for the reader.
    pub(super) fn shown(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// The same for the writer itself.
    pub(super) fn own(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
