//! The copy engines: what moves bytes from memory to memory, independent of sockets and TCP.
//!
//! A caller submits a copy, continues, and polls how many are complete. The CPU itself does the
//! copying, or a helper thread on another core, or the work queues of a DSA. Each engine has one
//! file, and one line in [`CATALOG`]. Engines are measured alone by [`trial`] (`bytepath copy`, in
//! the program's own process), and in a stream by the path `userspace`: there an engine copies
//! bytes into a [`fifo`], from which the stack takes them once that copy and all before it are
//! complete.
//!
//! An engine belongs to one thread. It allocates nothing after it was opened, and completes what is
//! in flight when it is dropped, because memory must not be written after that.

mod catalog;
mod counter;
mod cpu;
pub mod dsa;
mod engine;
pub mod fifo;
mod helper;
mod threaded;
pub mod trial;

pub use bytepath_sys::copying::Memory;
pub use bytepath_sys::idxd::{Copy, Memories, Place};
pub use catalog::{CATALOG, engine};
pub use engine::{Engine, EngineKind, Events, Shape};
pub use helper::{helper, pause};

use counter::Counter;
// Files that are also tested with loom's atomics and locks import these via `super::sync`.
use std::sync;

#[cfg(test)]
#[path = "../../tests/support/dsa_model.rs"]
mod dsa_model;
#[cfg(test)]
mod tests;
