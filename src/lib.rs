//! bytepath answers one question: which way should your bytes take through
//! this machine, and why?
//!
//! The modules are in dependency order: each may use only those above it,
//! and the exact edges are checked by `tests/it/tidy.rs`. Start reading at
//! [`run`], or at `docs/architecture.md`.

#![forbid(unsafe_code)]

pub use bytepath_math as math;
pub use bytepath_profile as profile;
pub use bytepath_record as record;
pub use bytepath_stats as stats;
pub use bytepath_sys as sys;

pub mod spec;

pub mod copy;

pub mod connection;
pub mod workload;

pub mod settings;

pub mod host;
pub mod meter;
pub mod path;

pub mod guest;
pub mod testbed;

pub mod observe;

pub mod run;

pub mod fleet;

pub mod report;

pub mod cli;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: sys::allocations::Counting = sys::allocations::Counting;
