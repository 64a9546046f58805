//! The surroundings of a study, and its catalogues in the form that requests are parsed with.

use bytepath_engine::path::{DataPath, Pair};
use bytepath_engine::workload::{self, Workload};
use bytepath_host::testbed::Testbed;
use bytepath_meter::Meter;
use bytepath_spec::{
    PairDeclaration, PathDeclaration, PathSpec, TestbedDeclaration, WorkloadDeclaration,
};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// What a study runs with: the catalogues (or a test's fakes) and the flag that cancels it.
pub struct Laboratory<'a> {
    /// Data paths that cells may name.
    pub paths: &'static [&'static DataPath],
    /// Meters that can be requested.
    pub meters: &'static [&'static Meter],
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
    let workload = |workload: &&'static Workload| WorkloadDeclaration {
        name: workload.name,
        options: workload.options,
    };
    PathSpec {
        workloads: workload::CATALOG.iter().map(workload).collect(),
        paths: paths.iter().map(path).collect(),
        pairs: pairs.iter().map(pair).collect(),
    }
}
