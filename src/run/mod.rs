//! The life of a study: survey the hosts, run the trials in random blocks,
//! write each one down the moment it ends. [`agent`] is the far half.

pub mod agent;
mod build;
mod ceiling;
mod conduct;
mod engine;
mod explanation;
mod guard;
mod line;
mod observing;
mod outlook;
mod plan;
mod pool_check;
mod power;
mod preparation;
mod profiles;
mod remote;
mod samples;
mod seen;
mod session;
mod slices;
mod stand;
mod stewards;
mod store;
mod trial;

pub use agent::survey as survey_device;
pub use build::own as own_build;
pub use ceiling::measure as copy_ceiling;
pub use conduct::{conduct, resume};
pub use explanation::{ProfiledCell, explanation, profiled_cell};
pub use observing::{ProgramSampler, of_program};
pub use outlook::survey;
pub use plan::{Observer, Plan};
pub use pool_check::pool_check;
pub use power::import as import_power;
pub use preparation::preparable;
pub use stand::Stand;
pub use stewards::Stewards;
pub use store::{Hosts, HostsAfter, StudyWriter, load};

use crate::meter::Meter;
use crate::path::{DataPath, Pair};
use crate::record::{OptionSpec, Role};
use crate::spec::{PairDeclaration, PathDeclaration, PathSpec, TestbedDeclaration};
use crate::testbed::Testbed;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// What a run works with: the catalogues (or a test's fakes) and the flag that
/// asks it to stop.
pub struct Laboratory<'a> {
    /// Data paths that cells may name.
    pub paths: &'static [&'static dyn DataPath],
    /// Meters that can be asked for.
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
        boots_kernels: testbed.properties().boots_kernels,
        link: testbed.properties().usual_link,
    };
    testbeds.iter().map(declare).collect()
}

/// The path catalogue as a request sees it.
pub fn path_spec(paths: &[&'static dyn DataPath], pairs: &[Pair]) -> PathSpec {
    let side = |path: &dyn DataPath, role: Role| -> Option<&'static [OptionSpec]> {
        path.roles().contains(&role).then(|| path.options(role))
    };
    let path = |path: &&'static dyn DataPath| PathDeclaration {
        name: path.name(),
        tx: side(*path, Role::Sender),
        rx: side(*path, Role::Receiver),
    };
    let pair = |pair: &Pair| PairDeclaration { name: pair.name, tx: pair.tx, rx: pair.rx };
    PathSpec { paths: paths.iter().map(path).collect(), pairs: pairs.iter().map(pair).collect() }
}
