//! Where the ends of a stream run: hosts, the link between them, and the testbeds that
//! provide both.
//!
//! A [`Host`] is an agent at its end of the link, reached over a pipe. It has no role and does not
//! refer to other hosts; a [`testbed`] chooses which hosts and links make a deployment. Guests
//! ([`guest`]) are hosts whose kernel the study chooses.
//!
//! The controller uses testbeds and hosts. Work on a host itself is done by the agent there: its
//! facts ([`survey`]), the doctor's rules ([`examine`]), its end of the link ([`link_end`]) and the
//! steward of its settings ([`LocalSteward`]). This crate does not deal with the transport of
//! bytes.

#![forbid(unsafe_code)]

mod boot;
mod build;
mod child;
mod descriptors;
mod doctor;
mod facts;
pub mod guest;
mod host;
mod link;
mod namespace;
mod nics;
mod patience;
mod programs;
mod steward;
mod sysctl;
pub mod testbed;

pub use boot::{Boot, echoes};
pub use build::{VERSION, of as build_of, own as own_build};
pub use child::{AgentProcess, LocalAgent, Tail, ending, spawn_scoped, spawn_thread};
pub use descriptors::link_end;
pub use doctor::{
    Moment, examine, examine_dsa, examine_gpus, examine_libraries, examine_pair, moment,
};
pub use facts::{Fingerprint, differences, fingerprint, survey};
pub use host::{Adapter, AgentPipe, Attachment, Host, HwGro, Place, ProcessHost};
pub use link::{await_carrier, steer_link};
pub use namespace::{pair_of_agents, remedy};
pub use nics::{hops, nic};
pub use patience::Patience;
pub use programs::{CpuTimes, Program};
pub use steward::{LocalSteward, StewardCall};
pub use sysctl::{set_sysctls, try_sysctls};
