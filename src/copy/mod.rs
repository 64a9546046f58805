//! Copy engines: who moves bytes from one place of memory to another. One trait, of which
//! nothing knows of sockets or TCP: a copy is submitted, the caller goes on, and asks later how
//! many are done.

mod cpu;
pub mod dsa;
pub mod model;
mod thread;
pub mod trial;

pub use crate::sys::copying::Memory;
pub use crate::sys::idxd::{Memories, Place};

use crate::record::{Fault, OptionSpec, Options};

/// A copy: `len` bytes from one place to another. Places of one copy may overlap; those of
/// copies under way must not, or their bytes are any of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// From where.
    pub from: Place,
    /// Where to.
    pub to: Place,
    /// Bytes, at least one.
    pub len: u32,
}

/// Something that copies. It is used by one thread, and ends what is under way when dropped.
pub trait Engine {
    /// Takes a copy; false if as many are under way as it can have: poll, and try again. An
    /// engine may hold copies back until it has a batch, or [`Engine::flush`] is called.
    fn submit(&mut self, copy: &Copy) -> Result<bool, Fault>;

    /// Sends what is held back.
    fn flush(&mut self) -> Result<(), Fault>;

    /// How many of all copies ever submitted are complete: the first so many, in the order in
    /// which they were submitted. An error is final: a copy could not be made.
    fn poll(&mut self) -> Result<u64, Fault>;

    /// What has happened so far beside copies.
    fn events(&self) -> Events;
}

/// What an engine had to do beside copying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Submissions that a queue asked to try again.
    pub retries: u64,
    /// Page faults of the engine, each of which the CPU finished.
    pub faults: u64,
    /// Bytes that the CPU copied in place of the engine.
    pub by_cpu: u64,
    /// Batches, of two copies or more.
    pub batches: u64,
}

/// How an engine is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Copies under way at a time, at least one.
    pub depth: usize,
    /// Copies that are handed over together, 1 to `depth`.
    pub batch: usize,
}

/// An engine of the catalogue.
pub struct EngineKind {
    /// Name, as the user types it.
    pub name: &'static str,
    /// One line: what copies.
    pub summary: &'static str,
    /// Whether its times are those of a model, and no device's.
    pub model: bool,
    /// Its options.
    pub options: &'static [OptionSpec],
    open: Open,
}

type Open = fn(&Memories, Shape, &Options) -> Result<Box<dyn Engine>, Fault>;

impl EngineKind {
    /// Opens it for copies between these memories.
    pub fn open(
        &self,
        memories: &Memories,
        shape: Shape,
        options: &Options,
    ) -> Result<Box<dyn Engine>, Fault> {
        (self.open)(memories, shape, options)
    }
}

/// Every engine.
pub static CATALOG: &[&EngineKind] = &[&cpu::KIND, &thread::KIND, &dsa::KIND, &model::KIND];

#[cfg(test)]
mod tests;
