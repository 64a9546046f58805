//! How bytes move between two programs: data paths over connections, driven by workloads.

#![forbid(unsafe_code)]

pub mod connection;
pub mod copy;
pub mod path;
pub mod workload;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: bytepath_sys::allocations::Counting = bytepath_sys::allocations::Counting;
