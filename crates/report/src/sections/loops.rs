//! Ends with many connections: what a wait of an event loop returned, how evenly exchanges or bytes
//! were distributed, and what a connection costs.

use super::view::View;
use crate::document::{Cell, Column, Section, Table};
use crate::wording::figures::{amount, number, percent, rate};
use bytepath_record::unit::MIB;
use bytepath_record::{Role, Scope, TrialStatus, Work};
use bytepath_stats::Row;

pub(crate) fn section(view: &View) -> Section {
    let ends = view.rows.iter().flat_map(|row| Role::ALL.map(|role| (*row, role)));
    let lines: Vec<Vec<Cell>> = ends.filter_map(|(row, role)| line(view, row, role)).collect();
    let section = Section::new("loops", "Connections of an end");
    if lines.is_empty() {
        return section;
    }
    let is_bytes = |row: &&Row| row.work == Work::Bytes;
    let shared = match view.rows.iter().filter(|row| is_bytes(row)).count() {
        0 => "exchanges",
        some if some == view.rows.len() => "MiB",
        _ => "exchanges, MiB",
    };
    let columns = [
        Column::path(),
        Column::words("end", 0, None),
        Column::number("", "number", 0),
        Column::number(shared, "least", 3),
        Column::number(shared, "most", 3),
        Column::number(shared, "fairness", 1),
        Column::number("event loop", "events/wait", 0),
        Column::number("event loop", "short", 2),
        Column::number("event loop", "bytes each", 1),
        Column::number("TLS", "handshakes", 1),
        Column::number("TLS", "resumed", 1),
    ];
    let handshakes = |row: &&Row| mean(view, row, "connections.handshakes", Role::Sender).is_some();
    let of_tls = match view.rows.iter().any(handshakes) {
        false => "",
        true => {
            "TLS: handshakes of a trial, warm-up included, and the part that resumed an earlier session."
        }
    };
    let table = Table::rows(columns, lines).without_empty();
    let section = section.with(table).note(
        "Exchanges, or MiB of a stream: of the connection with the least and the one with the most in a \
         window; fairness is Jain's index, 1 if all had the same. Short: receives that found no buffer, a \
         trial. Bytes each: memory of the program for a connection, buffers that all share included.",
    );
    section.note(of_tls)
}

/// Shows the bytes that arrived, for streams in both directions.
pub(crate) fn ways(view: &View) -> Section {
    let line = |row: &&Row| {
        let mean = |metric, role| mean(view, row, metric, role);
        let forward = mean("throughput.forward", Role::Receiver)?;
        let reverse = mean("throughput.reverse", Role::Sender)?;
        let shown = [forward, reverse].map(|bytes| rate(Work::Bytes, bytes).into());
        Some([Cell::path(row)].into_iter().chain(shown))
    };
    let lines: Vec<_> = view.rows.iter().filter_map(line).collect();
    let section = Section::new("ways", "Throughput of each way");
    if lines.is_empty() {
        return section;
    }
    let unit = Work::Bytes.terms().rate_unit;
    let columns =
        [Column::path(), Column::number(unit, "forward", 0), Column::number(unit, "reverse", 0)];
    section.with(Table::rows(columns, lines)).note(
        "Forward: what arrived at the receiver; reverse: what arrived at the sender. The throughput of a \
         path is their sum.",
    )
}

/// Returns the mean of a reading of one end over the trials of a row.
pub(super) fn mean(view: &View, row: &Row, metric: &str, role: Role) -> Option<f64> {
    let trials = view.trials(row).iter().filter(|trial| trial.status == TrialStatus::Measured);
    let values: Vec<f64> =
        trials.filter_map(|trial| trial.reading(metric, &Scope::Role(role))).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the figures of an end, if it had several connections or an event loop.
fn line(view: &View, row: &Row, role: Role) -> Option<Vec<Cell>> {
    let mean = |metric: &str| mean(view, row, metric, role);
    let shared = |metric: &str| match row.work {
        Work::Bytes => number(mean(metric).map(|bytes| bytes / MIB), 1),
        Work::Exchanges | Work::Packets => number(mean(metric), 0),
    };
    let ratio = |one: &str, other: &str| Some(mean(one)? / mean(other)?).filter(|r| r.is_finite());
    let (in_loop, fairness) = (mean("loop.connections"), mean("connections.fairness"));
    let cell = view.study.header.cells.iter().find(|cell| cell.id == row.cell)?;
    let connections = in_loop.or(fairness.map(|_| cell.flows(role).into()))?;
    Some(vec![
        Cell::path(row),
        row.work.actor(role).into(),
        number(connections, 0).into(),
        shared("connections.least").into(),
        shared("connections.most").into(),
        number(fairness, 3).into(),
        number(ratio("loop.events", "loop.waits"), 1).into(),
        in_loop.map_or(String::new(), |_| amount(mean("loop.short"))).into(),
        number(ratio("loop.memory", "loop.connections"), 0).into(),
        number(mean("connections.handshakes"), 0).into(),
        percent(ratio("connections.resumed", "connections.handshakes")).into(),
    ])
}
