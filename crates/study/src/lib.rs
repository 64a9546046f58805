//! The life of a study: survey the hosts, run the trials in random blocks, store each one when it
//! ends. Its modules are grouped by the process that runs them:
//!
//! - [`agent`] is what runs on a host: one process for each role, started by the testbed.
//! - `controller` is what decides: it runs in the user's process, raises testbeds and makes their
//!   agents run trials.
//! - `store` is what is on disk: the folder of a study, written while it runs and read by reports.
//!
//! Agent and controller know nothing of each other but the messages of `bytepath_record::wire`. A
//! trial crosses all three: the controller plans and raises it, the agents move and count bytes,
//! and the store appends the record. [`fleet`] shards one study over many pairs of hosts. How
//! bytes move, what is metered and which verdict follows is decided in the crates for these.

#![forbid(unsafe_code)]

pub mod agent;
mod controller;
pub mod fleet;
mod sampling_rate;
mod store;

pub use agent::{ProgramSampler, copy_ceiling, of_program, survey as survey_this_host};
pub use controller::*;
pub use store::{
    Hosts, HostsAfter, Loads, ProfiledCell, Studies, StudyWriter, ends, explanation, import_power,
    is_begun, load, merge, profiled_cell, read_studies, refuse_folder, refuse_used, storage,
};
