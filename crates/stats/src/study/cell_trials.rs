//! The cells of a study with the trials by which they are judged.

use crate::trial::Costs;
use crate::verdict::Side;
use bytepath_record::{Cell, CellId, Study, StudyHeader, Trial};
use std::collections::HashMap;

/// Returns every cell with the trials by which it is judged.
pub(crate) fn cell_trials(study: &Study) -> Vec<CellTrials<'_>> {
    grouped(study, |cell, trials| counted(&study.header, cell, trials))
}

/// Returns every cell with the trials that `count` keeps.
pub(crate) fn grouped<'a>(
    study: &'a Study,
    count: impl Fn(&Cell, Vec<&'a Trial>) -> Vec<&'a Trial>,
) -> Vec<CellTrials<'a>> {
    let header = &study.header;
    let mut by_cell: HashMap<&CellId, Vec<&Trial>> = HashMap::new();
    for trial in &study.trials {
        by_cell.entry(&trial.cell).or_default().push(trial);
    }
    let mut of = |cell: &'a Cell| {
        let trials = by_cell.remove(&cell.id).unwrap_or_default();
        CellTrials::of(header, cell, count(cell, trials))
    };
    header.cells.iter().map(&mut of).collect()
}

/// A cell and the trials that it is judged by.
pub(crate) struct CellTrials<'a> {
    pub cell: &'a Cell,
    pub trials: Vec<&'a Trial>,
    pub measured: Vec<&'a Trial>,
    pub costs: Vec<Costs>,
}

impl<'a> CellTrials<'a> {
    fn of(header: &StudyHeader, cell: &'a Cell, trials: Vec<&'a Trial>) -> Self {
        let measured: Vec<&Trial> = trials.iter().copied().filter(|t| t.rate().is_some()).collect();
        let instructions = header.instructions_per_second;
        let costs = Costs::of_trials(cell, measured.iter().copied(), instructions);
        CellTrials { cell, trials, measured, costs }
    }

    /// Returns the cell as one side of a comparison.
    pub(crate) fn side(&self) -> Side<'_> {
        Side { cell: self.cell, trials: &self.trials, costs: &self.costs }
    }
}

/// Keeps the trials by which a cell is judged: for a cell that was chosen by a first pass, the
/// later ones.
pub(crate) fn counted<'a>(
    header: &StudyHeader,
    cell: &Cell,
    mut all: Vec<&'a Trial>,
) -> Vec<&'a Trial> {
    let first = header.schedule.first_pass().unwrap_or(0);
    let is_chosen = !cell.null && cell.id != header.baseline;
    if is_chosen && first > 0 && all.iter().any(|trial| trial.block >= first) {
        all.retain(|trial| trial.block >= first);
    }
    all
}
