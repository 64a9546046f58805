//! How bytes move between two programs: data paths over connections, driven by workloads.
//!
//! Two ends meet over a [`connection`]. A [`path`] opens, at each end, the halves that the
//! [`workload`] needs there: movers, which make the system calls. The workload's loop has them take
//! turns until the agent's gate says stop, and each turn enters its bytes in a recorder. What comes out
//! is, for each flow and end, an account (copied or not, and how that is known) and a tally (bytes,
//! calls, latency in the window). [`copy`] holds engines that copy memory, used by the
//! user-space TCP or measured on their own.
//!
//! It runs in the agents, one thread for each actor of a flow; only the checks of what a half can do,
//! which are pure, run in the controller. Nothing here knows of hosts, studies
//! or statistics; the agent and the controller are in `bytepath-study`.

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
