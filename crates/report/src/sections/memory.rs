//! What the threads of each end moved between processor and memory.

use super::loops::mean;
use super::view::View;
use crate::document::{Cell, Column, Section, Table};
use crate::wording::figures::{NONE, bytes};
use bytepath_record::{Role, TrialStatus};
use bytepath_stats::{Row, Summary};

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

/// The figures of an end, if they were counted.
fn line(view: &View, row: &Row, role: Role) -> Option<Vec<Cell>> {
    let total = mean(view, row, "memory.role.total", role)?;
    let local = mean(view, row, "memory.role.local", role);
    let trials = view.trials(row).iter().filter(|trial| trial.status == TrialStatus::Measured);
    let done = Summary::of(trials.map(|trial| trial.count as f64))?.mean;
    let unit = row.work.terms();
    let each = |moved: f64| bytes(moved / done * unit.unit_size);
    let words = [Cell::path(row), role.to_string().into(), each(total).into()];
    let rest = [local.map_or(NONE.into(), each).into(), unit.unit.into()];
    Some(words.into_iter().chain(rest).collect())
}
