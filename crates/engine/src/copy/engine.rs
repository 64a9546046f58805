//! What a copy engine is.

use bytepath_record::{Fault, OptionSpec, Options};
use bytepath_sys::idxd::{Copy, Memories};

/// Something that copies. It is used by one thread, and ends what is in flight when dropped.
pub trait Engine: Send {
    /// Takes a copy; false if as many are in flight as it can have: poll, and try again. An
    /// engine may hold copies back until it has a batch, or [`Engine::flush`] is called.
    fn submit(&mut self, copy: &Copy) -> Result<bool, Fault>;

    /// Sends what is held back.
    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// How many of all copies ever submitted are complete: the first that many, in the order in
    /// which they were submitted. An error is final: a copy could not be made.
    fn poll(&mut self) -> Result<u64, Fault>;

    /// What has happened so far besides copies.
    fn events(&self) -> Events {
        Events::default()
    }
}

/// What an engine had to do besides copying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Submissions that a queue rejected with a retry.
    pub retries: u64,
    /// Page faults of the engine, each of which the CPU finished.
    pub faults: u64,
    /// Bytes that the CPU copied in place of the engine.
    pub by_cpu: u64,
    /// Batches, of two copies or more.
    pub batches: u64,
}

impl Events {
    /// Those since an earlier moment.
    pub(super) fn since(&self, earlier: &Events) -> Events {
        Events {
            retries: self.retries - earlier.retries,
            faults: self.faults - earlier.faults,
            by_cpu: self.by_cpu - earlier.by_cpu,
            batches: self.batches - earlier.batches,
        }
    }
}

/// How an engine is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Copies in flight at a time, at least one.
    pub depth: usize,
    /// Copies that are submitted together, 1 to `depth`.
    pub batch: usize,
}

/// An engine of the catalogue.
pub struct EngineKind {
    /// Name, as the user types it.
    pub name: &'static str,
    /// One line: what copies.
    pub summary: &'static str,
    pub options: &'static [OptionSpec],
    /// Opens it for copies between these memories.
    pub open: Open,
}

type Open = fn(&Memories, Shape, &Options) -> Result<Box<dyn Engine>, Fault>;
