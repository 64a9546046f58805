//! The GPUs whose memory cells take, at each end. Pure.

use super::nics::halves;
use super::preflight::{OtherDevice, facts_over};
use bytepath_engine::path::DataPath;
use bytepath_record::{Cell, Facts, Role};
use std::fmt;

/// A GPU of a role's host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UsedGpu {
    pub role: Role,
    /// Its PCI address.
    pub gpu: String,
    /// Its model and its location.
    what: String,
}

/// A line for the report and the dry run.
impl fmt::Display for UsedGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU memory of the {}: {} ({})", self.role, self.gpu, self.what)
    }
}

/// Returns the GPUs whose memory a cell takes, over the first device of each end and the `others`
/// that its flows cross.
pub(super) fn used(
    paths: &[&'static DataPath],
    cell: &Cell,
    first: &[Facts],
    others: &[OtherDevice],
) -> Vec<UsedGpu> {
    let mut all = Vec::new();
    for (role, of_host) in Role::ALL.into_iter().zip(first) {
        // Halves that do not fit together are reported as why the cell cannot run.
        for (half, job) in halves(paths, cell, role).unwrap_or_default() {
            for adapter in 0..cell.link.adapters {
                let facts = facts_over(role, adapter, others).unwrap_or(of_host);
                let Some(gpu) = (half.gpu)(&job.options, facts) else { continue };
                let found = facts.gpus().find(|(known, _)| *known == gpu);
                let what = found.map(|(_, words)| words.to_owned()).unwrap_or_default();
                all.push(UsedGpu { role, gpu, what });
            }
        }
    }
    all
}
