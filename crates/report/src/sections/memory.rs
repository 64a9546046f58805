//! Bytes that the threads of each end moved between processor and memory.

use super::view::View;
use crate::document::{Cell, Column, Section, Table};
use crate::wording::figures::{NONE, bytes};
use bytepath_record::{Role, Scope, Trial, TrialStatus};
use bytepath_stats::Row;

pub(crate) fn section(view: &View) -> Section {
    let ends = view.rows.iter().flat_map(|row| Role::ALL.map(|role| (*row, role)));
    let lines: Vec<Vec<Cell>> = ends.filter_map(|(row, role)| line(view, row, role)).collect();
    let columns = [
        Column::path(),
        Column::words("role", 0, None),
        Column::number("bytes of memory", "in all", 0),
        Column::number("bytes of memory", "of its node", 1),
        Column::words("per", 0, None),
    ];
    let section = Section::new("memory", "Memory traffic by role").in_detail();
    section.with(Table::rows(columns, lines)).note(
        "What the role's threads read from memory past the last-level cache and wrote to it, for as much work \
         as the last column names (resctrl). What devices move by themselves is of no role.",
    )
}

/// Returns the figures of an end, if they were counted.
fn line(view: &View, row: &Row, role: Role) -> Option<Vec<Cell>> {
    let trials = view.trials(row);
    let unit = row.work.terms();
    let per_work = |metric| Some(bytes(ratio(trials, metric, role)? * unit.unit_size));
    let total = per_work("memory.role.total")?;
    let local = per_work("memory.role.local").unwrap_or(NONE.into());
    let words = [Cell::path(row), role.to_string().into(), total.into()];
    Some(words.into_iter().chain([local.into(), unit.unit.into()]).collect())
}

/// Returns the sum of a reading of one end over the measured trials that have it, divided by their
/// work.
fn ratio(trials: &[&Trial], metric: &str, role: Role) -> Option<f64> {
    let scope = Scope::Role(role);
    let measured = trials.iter().filter(|trial| trial.status == TrialStatus::Measured);
    let counted = |trial: &&Trial| Some((trial.reading(metric, &scope)?, trial.count as f64));
    let add = |a: (f64, f64), b: (f64, f64)| (a.0 + b.0, a.1 + b.1);
    let (moved, done) = measured.filter_map(counted).reduce(add)?;
    (done > 0.0).then(|| moved / done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{CellId, Reading, Unit};

    #[test]
    fn traffic_is_for_the_work_of_the_trials_that_counted_it() {
        let trial = |count, moved: Option<f64>| {
            let scope = Scope::Role(Role::Sender);
            let reading =
                moved.map(|moved| Reading::sum("memory.role.total", Unit::Bytes, moved, scope));
            let readings = reading.into_iter().collect();
            let status = TrialStatus::Measured;
            Trial { count, readings, status, ..Trial::blank(CellId("a".into()), 0, 0) }
        };
        let all = [trial(100, Some(200.0)), trial(300, Some(1000.0)), trial(2000, None)];
        let all: Vec<&Trial> = all.iter().collect();
        assert_eq!(ratio(&all, "memory.role.total", Role::Sender), Some(3.0));
        assert_eq!(ratio(&all, "memory.role.total", Role::Receiver), None);
        assert_eq!(ratio(&all[2..], "memory.role.total", Role::Sender), None);
    }
}
