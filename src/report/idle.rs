//! Where every CPU rested, cell beside cell: what waiting does to the idle states of CPUs that no
//! role is pinned to shows here alone.

use crate::record::{CellId, Role, Scope, Study, Trial, TrialStatus, Unit};
use crate::stats::Analysis;
use std::collections::BTreeMap;

/// Idle states of all CPUs.
pub struct EveryCpu<'a> {
    /// The cells, in the order of the analysis.
    pub cells: Vec<&'a CellId>,
    /// One row a CPU and state.
    pub rows: Vec<CpuState<'a>>,
}

/// An idle state of a CPU.
pub struct CpuState<'a> {
    /// Whose host it is of, where each has a machine of its own.
    pub host: Option<Role>,
    /// The CPU.
    pub cpu: u32,
    /// The state: "C6", and "hw.core-c6" of what the hardware did.
    pub state: &'a str,
    /// Parts of the window in each cell, the mean of its measured trials.
    pub shares: Vec<Option<f64>>,
}

/// The idle states of all CPUs in all cells that were measured with the meter `cstates`; none
/// where that says no more than the table of the roles' CPUs: with one cell.
pub fn every_cpu<'a>(study: &'a Study, analysis: &'a Analysis) -> Option<EveryCpu<'a>> {
    let cells: Vec<&CellId> = analysis.rows.iter().map(|row| &row.cell).collect();
    if cells.len() < 2 {
        return None;
    }
    let counts = |trial: &&Trial| trial.status == TrialStatus::Measured && trial.profile.is_none();
    let mut sums: BTreeMap<(Option<u8>, u32, &str), Vec<(f64, u32)>> = BTreeMap::new();
    for trial in study.trials.iter().filter(counts) {
        let Some(at) = cells.iter().position(|cell| **cell == trial.cell) else { continue };
        for reading in trial.readings.iter().filter(|reading| reading.unit == Unit::Ratio) {
            let Some(state) = reading.metric.strip_prefix("cstate.") else { continue };
            let (host, cpu) = match reading.scope {
                Scope::Cpu(cpu) => (None, cpu),
                Scope::CpuOf(role, cpu) => (Some(role as u8), cpu),
                _ => continue,
            };
            let of_cells =
                sums.entry((host, cpu, state)).or_insert_with(|| vec![(0.0, 0); cells.len()]);
            of_cells[at].0 += reading.value;
            of_cells[at].1 += 1;
        }
    }
    let mean = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
    let rows = sums.into_iter().map(|((host, cpu, state), of_cells)| CpuState {
        host: host.map(|host| Role::ALL[usize::from(host)]),
        cpu,
        state,
        shares: of_cells.into_iter().map(mean).collect(),
    });
    let rows: Vec<CpuState> = rows.collect();
    (!rows.is_empty()).then_some(EveryCpu { cells, rows })
}
