//! Types of a copy engine.

use bytepath_record::{Fault, OptionSpec, Options};
use bytepath_sys::idxd::{Copy, Memories};

/// Something that copies. Used by one thread; completes what is in flight when dropped.
pub trait Engine: Send {
    /// Submits a copy. False if the maximum number are in flight: poll, and try again. An engine
    /// may hold copies back until it has a batch, or [`Engine::flush`] is called.
    fn submit(&mut self, copy: &Copy) -> Result<bool, Fault>;

    /// Starts copies that are held back.
    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Returns how many of all copies ever submitted are complete: always the first ones, in the
    /// order of submission. An error is final: a copy could not be made.
    fn poll(&mut self) -> Result<u64, Fault>;

    /// Events so far, besides copies.
    fn events(&self) -> Events {
        Events::default()
    }
}

/// What an engine had to do besides copying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Submissions that a queue rejected with a retry.
    pub retries: u64,
    /// Page faults of the engine, after each of which the CPU copied the rest.
    pub faults: u64,
    /// Bytes that the CPU copied instead of the engine.
    pub by_cpu: u64,
    /// Batches of two copies or more.
    pub batches: u64,
}

impl Events {
    /// Returns the events since an earlier moment.
    pub(super) fn since(&self, earlier: &Events) -> Events {
        Events {
            retries: self.retries - earlier.retries,
            faults: self.faults - earlier.faults,
            by_cpu: self.by_cpu - earlier.by_cpu,
            batches: self.batches - earlier.batches,
        }
    }
}

/// How many copies an engine handles at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Maximum number of copies in flight, at least one.
    pub depth: usize,
    /// Copies submitted together, 1 to `depth`.
    pub batch: usize,
}

/// A kind of engine in the catalogue.
pub struct EngineKind {
    /// Name, as the user types it.
    pub name: &'static str,
    /// One line: what does the copying.
    pub summary: &'static str,
    pub options: &'static [OptionSpec],
    /// Opens an engine for copies between these memories.
    pub open: Open,
}

type Open = fn(&Memories, Shape, &Options) -> Result<Box<dyn Engine>, Fault>;
