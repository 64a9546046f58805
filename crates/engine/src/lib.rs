//! How bytes move between two programs: data paths over connections, driven by workloads.
//!
//! Two ends meet over a [`connection`]. A [`path`] opens, at each end, the halves that the
//! [`workload`] needs there: movers, which make the system calls. The workload's loop lets them
//! take turns until the agent's gate is at stop, and each turn enters its bytes in a recorder. The
//! result, for each flow and end, is an account (copied or not, and how that is known) and a tally
//! (bytes, calls, latency in the window). [`copy`] contains engines that copy memory, used by the
//! user-space TCP or measured on their own.
//!
//! All of this runs in the agents, one thread per actor of a flow, except that the controller runs
//! the checks of what a half can do, which are pure. This crate does not know hosts, studies or
//! statistics; agent and controller are in `bytepath-study`.

#![forbid(unsafe_code)]

pub mod connection;
pub mod copy;
pub mod path;
pub mod workload;

// Programs outside this crate include test support that names it `bytepath_engine`.
#[cfg(test)]
extern crate self as bytepath_engine;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: bytepath_sys::allocations::Counting = bytepath_sys::allocations::Counting;
