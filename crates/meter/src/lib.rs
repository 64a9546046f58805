//! Measurements while bytes flow.
//!
//! A meter is one file and one line in [`CATALOG`]: a static [`Meter`] with a name, a reach and
//! functions. It does not move bytes, and it computes no statistics.
//!
//! Meters run in the agent, around the measured window: `prepare` loads what takes long before the
//! bytes flow, `start` reads the first counters, and [`Running::stop`] returns an [`Output`]:
//! readings, series, run times of threads, warnings; `finish` returns results for all windows
//! together. The agent sends it to the controller. If a host lacks what a meter reads, its output
//! is empty; `bytepath meters` and the doctor explain that, by `attempt` on the host and `probe`
//! from its facts.
//!
//! Files that are not meters: [`bpf`] (loading programs into the kernel), `tallies` (counting there
//! by function), `workers` (which threads work for a role), `proc_file` and `shared_source`
//! (sources that meters read), `role_traffic` (state of `memory-roles` for a session).

#![forbid(unsafe_code)]

pub mod bpf;
mod catalog;
mod context;
mod counters;
mod cpu;
mod cstates;
mod frequency;
mod handoffs;
mod idxd;
mod ipis;
mod link;
mod locks;
mod memory;
mod memory_roles;
mod meter;
mod nic;
mod nvml;
mod output;
mod power;
mod proc_file;
mod profile;
mod role_traffic;
mod shared_source;
mod softirqs;
mod softnet;
mod steady;
mod tallies;
mod tcp_info;
mod tcp_stack;
mod threads;
mod throughput;
mod workers;

pub use catalog::{CATALOG, Chosen, SIZES, SYSCALLS, chosen, regular, selectable};
pub use context::{Context, PreviousSnapshot, ThreadTag};
pub use memory_roles::{
    leftover_groups as left_memory_groups, remove_left as remove_memory_groups,
};
use meter::attempted;
pub use meter::{Meter, Prepared, Reach, Running, TICK, at_stop};
pub use output::{Capture, Output};
pub use power::{
    NAME as POWER_NAME, dcmi_reading, measure_idle_power, printed_watts, support as power_support,
};
use proc_file::ProcFile;
pub use profile::{NAME as PROFILE_NAME, TURN as SAMPLE_TURN, price as sample_price};
pub use role_traffic::SessionTraffic;
pub use tcp_stack::Stack as TcpCounters;
