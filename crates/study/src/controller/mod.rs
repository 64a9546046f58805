//! The controller decides: it plans a study, starts testbeds and makes agents run its trials. It
//! runs in the process of the command, for example `bytepath run`.
//!
//! Its input is a `Plan` (or the folder of a study to resume) and a `Laboratory`; its output, the
//! folder of the study (`crate::store`) and notices to an `Observer`. Start reading at `study`,
//! which shows the whole course: `run` has its state, `pilots`, `blocks` and `profiles` its steps.
//! `preflight` checks what can run; `guard` keeps the hosts as required, through `stewards`;
//! `trial` starts one deployment, and `stream` runs one stream over it.
//!
//! `request` turns what the user requested into a plan, `deployment` finds the testbed and its
//! hosts, `outline` prints a plan without running it, `pairs` runs one on many pairs. `trust`
//! refuses files of others that would make the user act.
//!
//! All communication with hosts goes through `agents` (calls and replies, lost hosts, cancellation)
//! and `remote` (a deployment with its two agents). No byte of a stream is moved or counted here.

mod agents;
mod blocks;
mod clocks;
mod deployment;
mod frames;
mod gpus;
mod guard;
mod huge_pages;
mod metering;
mod nics;
mod open_testbed;
mod outline;
mod pairs;
mod pilots;
mod plan;
mod power;
mod preflight;
mod preparation;
mod profiles;
mod progress;
mod queues;
mod reach;
mod remote;
mod request;
mod run;
mod slices;
mod stewards;
mod stream;
mod study;
mod trial;
mod trust;

pub use deployment::{
    Deployment, HostFacts, HostSelection, default_testbed, examine_host, own_program, parse_testbed,
};
pub use metering::{meter_requests, meters_for_header};
pub use open_testbed::OpenTestbed;
pub use outline::{Outline, Prepared, Preview, Unable};
pub use pairs::PairedStudy;
pub use plan::{Blocks, Laboratory, Observer, Plan, path_spec, testbed_spec};
pub use preflight::check;
pub use preparation::{NicSettings, nic_settings};
pub use progress::{Progress, time_of_profiles};
pub(crate) use request::random_seed;
pub use request::{
    ExperimentFile, ExperimentRequest, PathsRequest, RunRequest, catalogues, from_file, read_text,
};
pub use slices::time_of_trial;
pub use stewards::Stewards;
pub use study::{OpenStudy, resume_study, run_study};
