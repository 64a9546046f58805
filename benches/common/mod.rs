//! What the benches share: the real laboratory, cells requested by name, and numbers from the
//! environment.

use anyhow::{Context, Result};
use bytepath::record::{Cell, CellId, StudyHeader, Trial};
use bytepath::spec::{self, CellRequest};
use bytepath::study::{Laboratory, Observer, path_spec};
use bytepath::{meter, path, sys, testbed};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The real catalogues, the default testbed, and the binary built for the bench.
#[allow(dead_code, reason = "not every bench has a laboratory")]
pub fn laboratory(stop: &AtomicBool) -> Laboratory<'_> {
    Laboratory {
        paths: path::CATALOG,
        meters: meter::CATALOG,
        testbed: testbed::CATALOG[0],
        program: env!("CARGO_BIN_EXE_bytepath").into(),
        stop,
    }
}

/// Cells of the default workload on two CPUs, and the baseline's id.
#[allow(dead_code, reason = "not every bench streams")]
pub fn cells(paths: &[&str], stream: &str, link: &str) -> Result<(Vec<Cell>, CellId)> {
    cells_of(paths, "", stream, link)
}

/// Like [`cells`], for a workload.
#[allow(dead_code, reason = "not every bench has cells")]
pub fn cells_of(
    paths: &[&str],
    workload: &str,
    stream: &str,
    link: &str,
) -> Result<(Vec<Cell>, CellId)> {
    let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
    let cores = spec::parse_cores("two", &sys::thread::allowed()?)?;
    let (kernels, baseline) = (&[][..], None);
    let ask =
        CellRequest { paths: &paths, workload, stream, link, cores: &cores, kernels, baseline };
    Ok(spec::cells(&ask, &path_spec(path::CATALOG, path::PAIRS))?)
}

/// Returns a number from the environment.
pub fn number(name: &str, default: f64) -> Result<f64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is not a number")),
        Err(_) => Ok(default),
    }
}

/// An observer that prints nothing.
#[allow(dead_code, reason = "not every bench runs studies")]
pub struct Silent;

impl Observer for Silent {
    fn begins(&mut self, _: &StudyHeader, _: usize) {}
    fn trial_begins(&mut self, _: usize, _: &CellId, _: u32) {}
    fn trial_ends(&mut self, _: usize, _: &Trial, _: Duration) {}
}
