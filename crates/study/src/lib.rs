//! The life of a study: survey the hosts, run the trials in random blocks, store each one when it
//! ends. Its modules are grouped by the process that runs them:
//!
//! - [`agent`] runs on a host: one process for each role, started by the testbed.
//! - `controller` decides: it runs in the user's process, sets up testbeds and makes their agents
//!   run trials.
//! - `store` is the folder of a study on disk, written while the study runs and read by reports.
//!
//! Agent and controller share only the messages of `bytepath_record::wire`. A trial crosses all
//! three: the controller plans and starts it, the agents move and count bytes, and the store
//! appends the record. [`fleet`] shards one study over many pairs of hosts. How bytes move, what is
//! metered and which verdict follows is decided in other crates.

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
