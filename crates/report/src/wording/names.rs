//! Names of cells in reports for people: levels that all cells share are listed once, at the head,
//! and omitted from every name.

use bytepath_record::{CellId, Study, StudyHeader, shared_levels, without_levels};

/// Returns the study with short names; `None` if the cells share no level, or if there is only one
/// cell.
pub(crate) fn shortened(study: &Study) -> Option<Study> {
    let all: Vec<&str> = study.header.cells.iter().map(|cell| cell.id.0.as_str()).collect();
    let shared = shared_levels(&all);
    if all.len() < 2 || shared.is_empty() {
        return None;
    }
    let mut short = study.clone();
    let header = &mut short.header;
    let cells = header.cells.iter_mut().map(|cell| &mut cell.id).chain([&mut header.baseline]);
    let trials = short.trials.iter_mut().chain(&mut short.profiles).map(|trial| &mut trial.cell);
    cells.chain(trials).for_each(|CellId(id)| *id = without_levels(id, &shared));
    Some(short)
}

/// Returns the levels that are omitted from the names of these cells.
pub(crate) fn left_out<'a>(recorded: &'a StudyHeader, short: &StudyHeader) -> Vec<&'a str> {
    let (Some(recorded), Some(short)) = (recorded.cells.first(), short.cells.first()) else {
        return Vec::new();
    };
    let kept: Vec<&str> = short.id.0.split(' ').collect();
    recorded.id.0.split(' ').filter(|word| !kept.contains(word)).collect()
}
