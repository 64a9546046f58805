//! Every workload.

use super::actor::Workload;
use super::{crr, packets, rr, stream};
use bytepath_record::{Cell, Fault};

/// Every workload; the first is the default.
pub static CATALOG: &[&Workload] =
    &[&stream::WORKLOAD, &rr::WORKLOAD, &crr::WORKLOAD, &packets::WORKLOAD];

/// The workload of a cell.
pub fn of(cell: &Cell) -> Result<&'static Workload, Fault> {
    let name = &cell.workload.name;
    let known = CATALOG.iter().copied().find(|workload| workload.name == name);
    known.ok_or_else(|| {
        let names: Vec<&str> = CATALOG.iter().map(|workload| workload.name).collect();
        Fault::usage(format!("there is no workload '{name}'"))
            .remedy(format!("choose one of {}", names.join(", ")))
    })
}
