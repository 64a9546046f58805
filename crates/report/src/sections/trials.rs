//! Every trial and every reading, for HTML pages, which can sort and fold long tables.

use super::view::View;
use crate::document::{Column, Media, Section, Table};
use crate::formats::rows::status;
use crate::wording::figures::{NONE, amount, bytes, number, percent, rate};
use bytepath_record::{Reading, Role, Scope, Unit, Work};
use bytepath_stats::{Summary, role_cpu, why_not_measured};
use std::collections::BTreeMap;

/// With more trials than this, their table is folded.
const FOLDED: usize = 60;

/// Shows every trial, in the order run.
pub(crate) fn section(view: &View) -> Section {
    let header = &view.study.header;
    let mut table = Table::new(vec![
        Column::number("", "order", 0),
        Column::number("", "block", 0),
        Column::number("", "after s", 0),
        Column::path(),
        Column::number("", view.analysis.work().terms().rate_unit, 0),
        Column::number("", "CPU tx", 0),
        Column::number("", "CPU rx", 0),
        Column::words("label", 0, None),
        Column::words("status", 0, None),
    ]);
    for trial in &view.study.trials {
        let cell = header.cells.iter().find(|c| c.id == trial.cell);
        let busy = |role| role_cpu(trial.rate().and(cell)?, trial, role).map(|c| c.total);
        let after = trial.started_ms.saturating_sub(header.started_ms) as f64 / 1e3;
        let mut outcome = match why_not_measured(trial) {
            Some(reason) => format!("{}: {reason}", status(trial)),
            None => status(trial).to_owned(),
        };
        if !trial.warnings.is_empty() {
            outcome += &format!(" (warned: {})", trial.warnings.join("; "));
        }
        let line = table.row([
            (u64::from(trial.order) + 1).to_string(),
            (u64::from(trial.block) + 1).to_string(),
            number(after, 1),
            trial.cell.to_string(),
            rate(trial.work, trial.rate()),
            number(busy(Role::Sender), 2),
            number(busy(Role::Receiver), 2),
            trial.label.clone(),
            outcome,
        ]);
        line.anchor = view.anchor(&trial.cell, Some(trial));
        line.class = if trial.rate().is_none() { "off" } else { "" };
    }
    let count = view.study.trials.len();
    let mut section = Section::new("trials", "All trials").on(Media::PAGE);
    if count > 0 {
        section.text(
            "  ",
            "In run order; \u{201c}after\u{201d} counts from the start of the study. CPU is the \
             number of CPUs kept busy by the role.",
        );
    }
    section.with(if count > FOLDED { table.folded(&format!("{count} trials")) } else { table })
}

/// The values of one reading: its unit, and the values for each cell.
type Values = (Unit, Vec<Vec<f64>>);

/// Shows means of all meter readings, one column per cell.
pub(crate) fn readings(view: &View) -> Section {
    // The same reading of every cell on one line, sorted by name.
    let mut lines: BTreeMap<(&str, String), Values> = BTreeMap::new();
    for (column, row) in view.rows.iter().enumerate() {
        let measured = view.trials(row).iter().filter(|t| t.rate().is_some());
        for Reading { metric, unit, value, scope, .. } in measured.flat_map(|t| &t.readings) {
            let line = lines.entry((metric, scope_name(scope)));
            let (_, values) = line.or_insert_with(|| (*unit, vec![Vec::new(); view.rows.len()]));
            values[column].push(*value);
        }
    }
    let columns = [Column::words("metric", 0, None), Column::words("of", 0, None)].into_iter();
    let cells = view.rows.iter().map(|row| Column::number("", &row.cell.0, 0));
    let mean = |values: &Vec<f64>| Summary::of(values.iter().copied()).map(|s| s.mean);
    let rows = lines.iter().map(|((metric, scope), (unit, values))| {
        let means = values.iter().map(|values| quantity(*unit, mean(values)));
        [(*metric).to_owned(), scope.clone()].into_iter().chain(means)
    });
    let table = Table::rows(columns.chain(cells.map(Column::of_cell)), rows);
    let mut section = Section::new("readings", "All readings").on(Media::PAGE);
    if !lines.is_empty() {
        section.text(
            "  ",
            "All meter readings, as means over the measured trials of a cell. The values of each \
             trial are in the csv and parquet reports.",
        );
    }
    section.with(table.folded(&format!("{} readings", lines.len())))
}

fn scope_name(scope: &Scope) -> String {
    match scope {
        Scope::Machine => "machine".into(),
        Scope::Cpu(cpu) => format!("CPU {cpu}"),
        Scope::MachineOf(role) => format!("{role}'s machine"),
        Scope::CpuOf(role, cpu) => format!("{role}'s CPU {cpu}"),
        Scope::Role(role) => role.to_string(),
        Scope::Flow(role, flow) => format!("{role}, flow {flow}"),
        Scope::Link(role, device) => format!("{role}, {device}"),
        Scope::Function(name) => name.clone(),
        Scope::FunctionOf(role, name) => format!("{role}, {name}"),
        Scope::Threads(role, group) => format!("{role}, threads: {group}"),
    }
}

fn quantity(unit: Unit, value: Option<f64>) -> String {
    let Some(v) = value else { return NONE.into() };
    match unit {
        Unit::Seconds if v != 0.0 && v.abs() < 0.01 => format!("{} \u{b5}s", number(v * 1e6, 1)),
        Unit::Seconds => format!("{} s", number(v, 3)),
        Unit::Bytes => bytes(v),
        Unit::BytesPerSecond => {
            format!("{} {}", rate(Work::Bytes, v), Work::Bytes.terms().rate_unit)
        }
        Unit::PerSecond => format!("{}/s", amount(v)),
        Unit::Count => amount(v),
        Unit::Ratio => percent(v),
        Unit::Joules => format!("{} J", number(v, 1)),
        Unit::Watts => format!("{} W", number(v, 1)),
        Unit::Hertz => format!("{} GHz", number(v / 1e9, 2)),
    }
}
