//! The life of a study: survey the hosts, run the trials in random
//! blocks, store each one when it ends. [`agent`] is the other end.

#![forbid(unsafe_code)]

mod addresses;
pub mod agent;
mod build;
mod ceiling;
mod clocks;
mod conduct;
mod encryption;
mod engine;
mod explanation;
pub mod fleet;
mod given;
mod guard;
mod line;
mod load;
mod lost;
mod merge;
mod metering;
mod observing;
mod outlook;
mod passes;
mod plan;
mod power;
mod preparation;
mod profiles;
mod reach;
mod remote;
mod samples;
mod seen;
mod session;
mod slices;
mod stand;
mod stewards;
mod store;
mod trial;
mod waits;

pub use agent::survey as survey_device;
pub use ceiling::measure as copy_ceiling;
pub use conduct::{Reached, conduct, resume};
pub use explanation::{ProfiledCell, ends, explanation, profiled_cell};
pub use load::load;
pub use merge::merge;
pub use metering::{for_header as meters_for_header, requests as meter_requests};
pub use observing::{ProgramSampler, of_program};
pub use outlook::{check, survey};
pub use plan::{Blocks, Observer, Plan};
pub use power::import as import_power;
pub use preparation::{preparable, previewed};
pub use slices::time_of_trial;
pub use stand::Stand;
pub use stewards::Stewards;
pub use store::{Hosts, HostsAfter, StudyWriter, is_begun, refuse_used, storage};

use bytepath_engine::path::{DataPath, Pair};
use bytepath_engine::workload::{self, Workload};
use bytepath_host::testbed::Testbed;
use bytepath_meter::Meter;
use bytepath_spec::{
    PairDeclaration, PathDeclaration, PathSpec, TestbedDeclaration, WorkloadDeclaration,
};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// What a run works with: the catalogues (or a test's fakes) and the flag that
/// asks it to stop.
pub struct Laboratory<'a> {
    /// Data paths that cells may name.
    pub paths: &'static [&'static DataPath],
    /// Meters that can be requested.
    pub meters: &'static [&'static dyn Meter],
    /// Where the roles run.
    pub testbed: &'a dyn Testbed,
    /// The binary that agents are started from.
    pub program: PathBuf,
    /// Set by a signal handler: end the trial at once, keep what was measured.
    pub stop: &'a AtomicBool,
}

/// The catalogue of testbeds as a request sees it.
pub fn testbed_spec(testbeds: &[&'static dyn Testbed]) -> Vec<TestbedDeclaration> {
    let declare = |testbed: &&'static dyn Testbed| TestbedDeclaration {
        name: testbed.name(),
        options: testbed.options(),
        implied: testbed.implied(),
        boots_kernels: testbed.properties().boots_kernels,
        link: testbed.properties().usual_link,
    };
    testbeds.iter().map(declare).collect()
}

/// The catalogues of paths and workloads as a request sees them.
pub fn path_spec(paths: &[&'static DataPath], pairs: &[Pair]) -> PathSpec {
    let path = |path: &&'static DataPath| PathDeclaration {
        name: path.name,
        tx: path.tx.map(|tx| tx.options),
        rx: path.rx.map(|rx| rx.options),
    };
    let pair = |pair: &Pair| PairDeclaration { name: pair.name, tx: pair.tx, rx: pair.rx };
    let workload = |workload: &&'static dyn Workload| WorkloadDeclaration {
        name: workload.name(),
        options: workload.options(),
    };
    PathSpec {
        workloads: workload::CATALOG.iter().map(workload).collect(),
        paths: paths.iter().map(path).collect(),
        pairs: pairs.iter().map(pair).collect(),
    }
}
