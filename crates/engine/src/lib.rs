//! How bytes move between two programs: data paths over connections, driven by workloads.

#![forbid(unsafe_code)]

pub mod connection;
pub mod copy;
pub mod path;
pub mod workload;

// Test support is included by programs outside of this crate, too.
#[cfg(test)]
extern crate self as bytepath_engine;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: bytepath_sys::allocations::Counting = bytepath_sys::allocations::Counting;
