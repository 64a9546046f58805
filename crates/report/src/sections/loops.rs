//! Ends with many connections: what a wait of an event loop brought, how evenly the exchanges were
//! shared, and what a connection takes.

use super::view::View;
use crate::document::{Cell, Column, Section, Table};
use crate::wording::figures::{amount, number};
use bytepath_record::{Role, Scope, Trial, TrialStatus};
use bytepath_stats::Row;

pub(crate) fn section(view: &View) -> Section {
    let ends = view.rows.iter().flat_map(|row| Role::ALL.map(|role| (*row, role)));
    let lines: Vec<Vec<Cell>> = ends.filter_map(|(row, role)| line(view, row, role)).collect();
    let section = Section::new("loops", "Connections of an end");
    if lines.is_empty() {
        return section;
    }
    let columns = [
        Column::path(),
        Column::words("end", 0, None),
        Column::number("", "number", 0),
        Column::number("exchanges", "least", 3),
        Column::number("exchanges", "most", 3),
        Column::number("exchanges", "fairness", 1),
        Column::number("event loop", "events/wait", 0),
        Column::number("event loop", "short", 2),
        Column::number("event loop", "bytes each", 1),
    ];
    section.with(Table::rows(columns, lines)).note(
        "Exchanges: of the connection with the fewest and the one with the most in a window; \
         fairness is Jain's index, 1 if all had the same. Short: receives that found no buffer, a \
         trial. Bytes each: memory of the program for a connection, buffers that all share included.",
    )
}

/// The figures of an end, if it had several connections or an event loop.
fn line(view: &View, row: &Row, role: Role) -> Option<Vec<Cell>> {
    let measured = |trial: &&&Trial| trial.status == TrialStatus::Measured;
    let trials: Vec<&Trial> = view.trials(row).iter().filter(measured).copied().collect();
    let values = |metric: &str| {
        trials.iter().filter_map(|trial| trial.reading(metric, &Scope::Role(role))).collect()
    };
    let mean = |metric: &str| {
        let values: Vec<f64> = values(metric);
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let ratio = |one: &str, other: &str| Some(mean(one)? / mean(other)?).filter(|r| r.is_finite());
    let (in_loop, fairness) = (mean("loop.connections"), mean("connections.fairness"));
    let cell = view.study.header.cells.iter().find(|cell| cell.id == row.cell)?;
    let connections = in_loop.or(fairness.map(|_| cell.flows(role).into()))?;
    Some(vec![
        Cell::path(row),
        row.work.actor(role).into(),
        number(connections, 0).into(),
        number(mean("connections.least"), 0).into(),
        number(mean("connections.most"), 0).into(),
        number(fairness, 3).into(),
        number(ratio("loop.events", "loop.waits"), 1).into(),
        in_loop.map_or(String::new(), |_| amount(mean("loop.short"))).into(),
        number(ratio("loop.memory", "loop.connections"), 0).into(),
    ])
}
