//! A number that one thread writes and another reads.

// Imported via `super::sync`, not from `std`: tests/it/protocols.rs runs this file with loom's
// types.
use super::sync::atomic::{AtomicU64, Ordering};

/// On its own cache line: one side writes it, the other reads it.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Publishes a number to the reader, and with it everything written before.
    pub(super) fn show(&self, number: u64) {
        self.0.store(number, Ordering::Release);
    }

    /// Returns the published number, for the reader.
    pub(super) fn shown(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Returns the published number, for the writer itself.
    pub(super) fn own(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
