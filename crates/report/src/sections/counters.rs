//! The counters of groups of threads: a table of derived figures, and in a mail the block that
//! `perf stat` prints, with its names.

use super::hops::lines;
use super::view::View;
use crate::document::{Column, Media, Section, Table};
use crate::render::plain::MAIL_WIDTH;
use crate::wording::ascii::{plain, wrap};
use crate::wording::figures::{NONE, amount, percent, plural, three};
use bytepath_profile::counts::{Count, Counts, DERIVED, ELAPSED, EVENTS};
use bytepath_record::{CellId, Role, Scope, Trial, TrialStatus, Work, distinct, joined};
use bytepath_stats::Row;

/// Prefix of the readings' names.
const METRIC: &str = "counters.";

/// Rank of the last number column that is never dropped, however narrow the page is.
const FIRST: u8 = 3;

/// The counters of a group of threads, over all measured trials of a cell.
#[derive(Clone, Debug, PartialEq)]
struct Group {
    cell: CellId,
    /// The kind of threads: "generator", "vhost workers".
    title: String,
    /// Average number of threads.
    threads: f64,
    /// The counters, with clocks in ms, and the elapsed time.
    counts: Counts,
    /// Units of work done.
    units: f64,
    /// The unit: "packet".
    unit: &'static str,
}

/// Returns all groups of all cells; empty if the meter did not run.
fn groups(view: &View) -> Vec<Group> {
    view.analysis.rows.iter().flat_map(|row| of_cell(view.trials(row), row)).collect()
}

fn of_cell(trials: &[&Trial], row: &Row) -> Vec<Group> {
    let is_measured = |trial: &&&Trial| trial.status == TrialStatus::Measured;
    let trials = || trials.iter().filter(is_measured);
    let readings = trials().flat_map(|trial| &trial.readings);
    let counts = readings.filter(|reading| reading.metric.starts_with(METRIC));
    let scopes = counts.map(|reading| &reading.scope);
    let scopes = distinct(scopes.filter(|scope| matches!(scope, Scope::Threads(..))));
    let group = |scope: &Scope| {
        let Scope::Threads(role, name) = scope else { return None };
        let is_metered = |trial: &&&Trial| trial.reading("counters.threads", scope).is_some();
        let metered: Vec<&&Trial> = trials().filter(is_metered).collect();
        // `None` if any trial lacks it.
        let sum = |metric: &str, scope: &Scope| {
            metered.iter().map(|trial| trial.reading(metric, scope)).sum::<Option<f64>>()
        };
        let mean = |metric: &str| Some(sum(metric, scope)? / metered.len() as f64);
        let event = |event: &&str| {
            let (unit, scale) = if *event == "task-clock" { ("ms", 1e3) } else { ("", 1.0) };
            Count {
                name: (*event).to_owned(),
                unit: unit.to_owned(),
                value: sum(&format!("{METRIC}{event}"), scope).map(|value| value * scale),
                counted: mean(&format!("{METRIC}{event}.counted")).filter(|part| *part < 0.9995),
                ..Count::default()
            }
        };
        let mut rows: Vec<Count> = EVENTS.iter().map(event).collect();
        rows.push(Count {
            name: ELAPSED.to_owned(),
            unit: "s".to_owned(),
            value: sum("counters.wall", scope)
                .or_else(|| sum("counters.wall", &Scope::Role(*role))),
            ..Count::default()
        });
        let terms = row.work.terms();
        Some(Group {
            cell: row.cell.clone(),
            title: title(row.work, *role, name),
            threads: mean("counters.threads")?,
            counts: Counts { title: row.cell.to_string(), rows, notes: Vec::new() },
            units: metered.iter().map(|trial| trial.count as f64).sum::<f64>() / terms.unit_size,
            unit: terms.unit,
        })
    };
    scopes.into_iter().filter_map(group).collect()
}

fn title(work: Work, role: Role, group: &str) -> String {
    let actor = work.actor(role);
    match group {
        "flows" => actor.to_owned(),
        "vhost" => "vhost workers".to_owned(),
        "qemu" => "qemu".to_owned(),
        "vCPU" => "virtual CPUs".to_owned(),
        "pktgen" => "pktgen threads".to_owned(),
        "napi" => format!("{actor}'s NAPI threads"),
        other => format!("{actor}'s {other} threads"),
    }
}

impl Group {
    fn value(&self, event: &str) -> Option<f64> {
        self.counts.rows.iter().find(|row| row.name == event)?.value
    }

    /// Returns a counter per unit of work.
    fn each(&self, event: &str) -> Option<f64> {
        Some(self.value(event)? / self.units).filter(|each| each.is_finite())
    }

    /// Returns the smallest part of the time for which a counter ran.
    fn counted(&self) -> Option<f64> {
        let parts = self.counts.rows.iter().filter_map(|row| row.counted);
        parts.reduce(f64::min)
    }
}

/// Returns a sentence about events that the machine cannot count; `None` if it counts all.
fn absent(groups: &[Group]) -> Option<String> {
    let nowhere = |event: &&&str| groups.iter().all(|group| group.value(event).is_none());
    let events = joined(EVENTS.iter().filter(nowhere), ", ");
    (!events.is_empty()).then(|| format!("Not counted on this machine: {events}."))
}

/// Shows a line for each cell and group, with the figures derived from the counters.
pub(crate) fn section(view: &View) -> Section {
    let section = Section::new("counters", "Counters of each group of threads");
    let section = section.on(Media::TERMINAL.or(Media::PAGE));
    let groups = groups(view);
    let Some(unit) = groups.first().map(|group| group.unit) else { return section };
    let mut columns = vec![Column::path(), Column::words("threads of", 0, Some(14))];
    let titles = ["number"].into_iter().chain(SHORT).map(|title| ("", title));
    let units = ["us", "instr.", "faults"].map(|what| ("per unit", what));
    for (rank, (group, title)) in (0u8..).zip(titles.chain(units).chain([("", "counted")])) {
        columns.push(Column::number(group, title, rank.saturating_sub(FIRST)));
    }
    let texts = |group: &Group| {
        let mut texts = vec![group.cell.to_string(), group.title.clone(), amount(group.threads)];
        texts.extend(DERIVED.iter().map(|derived| figure(derived.of(&group.counts))));
        texts.push(figure(group.each("task-clock").map(|ms| ms * 1e3)));
        texts.extend(["instructions", "page-faults"].map(|event| figure(group.each(event))));
        texts.push(percent(group.counted()));
        texts
    };
    let table = Table::rows(columns, groups.iter().map(texts));
    let absent = absent(&groups).map(|absent| format!(" {absent}")).unwrap_or_default();
    section.with(table.without_empty()).note(format!(
        "All measured trials together, while the threads ran; names and figures as in perf \
         stat. A unit is a {unit}.{absent}"
    ))
}

/// Headings of [`DERIVED`] that are no wider than their columns.
const SHORT: [&str; DERIVED.len()] = [
    "CPUs",
    "GHz",
    "IPC",
    "miss %",
    "M branches/s",
    "front idle %",
    "back idle %",
    "switches/s",
    "migrations/s",
];

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), three)
}

/// Shows each group as `perf stat` prints it, in lines for a mail of 72 columns.
pub(crate) fn charts(view: &View) -> Section {
    let groups = groups(view);
    let mut blocks: Vec<Vec<String>> = groups.iter().map(block).collect();
    if let (Some(last), Some(absent)) = (blocks.last_mut(), absent(&groups)) {
        last.push(String::new());
        last.extend(wrap(&absent, MAIL_WIDTH));
    }
    lines(blocks)
}

/// Wraps a title to the width of a mail, between the parts of the name: readers of such blocks
/// would mistake a line that begins with a number for a counter.
fn wrap_title(title: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for piece in plain(title).split_inclusive([' ', ',', '+', ':']) {
        match lines.last_mut() {
            Some(line) if line.len() + piece.trim_end().len() <= MAIL_WIDTH => line.push_str(piece),
            _ => lines.push(piece.to_owned()),
        }
    }
    lines.iter().flat_map(|line| wrap(line, MAIL_WIDTH)).collect()
}

fn block(group: &Group) -> Vec<String> {
    let Group { cell, title, threads, unit, .. } = group;
    let threads = plural(threads.round() as u64, "thread");
    let mut lines = wrap_title(&format!("Performance counter stats for '{cell}',"));
    lines.extend([format!("{title} ({threads}):"), String::new()]);
    let counted = group.counts.rows.iter().filter_map(|row| Some((row, row.value?)));
    for (row, value) in counted.clone().filter(|(row, _)| row.name != ELAPSED) {
        let decimals = if row.unit.is_empty() { 0 } else { 2 };
        let derived = DERIVED.iter().find(|derived| derived.event == row.name);
        let derived = derived.and_then(|derived| {
            let value = derived.of(&group.counts)?;
            let name = if derived.unit.is_empty() { derived.name } else { derived.unit };
            // perf stat prints it next to the instructions.
            let name = name.trim_start_matches("instructions ");
            Some(format!("# {} {name}", figure(Some(value))))
        });
        let part = row.counted.map(|part| format!("({:.2}%)", part * 100.0)).unwrap_or_default();
        let (derived, unit) =
            (derived.unwrap_or_default(), if row.unit == "ms" { "msec" } else { "" });
        let line = format!("{value:>13.decimals$} {unit:<4} {:<23} {derived:<18} {part}", row.name);
        lines.push(line.trim_end().to_owned());
    }
    lines.push(String::new());
    for (_, seconds) in counted.filter(|(row, _)| row.name == ELAPSED) {
        lines.push(format!("{seconds:>13.6} seconds time elapsed"));
    }
    let each = |event: &&str| {
        let each = group.each(event)?;
        let clock = *event == "task-clock";
        let (each, unit) = if clock { (each * 1e6, " ns") } else { (each, "") };
        Some(format!("{event} {}{unit}", figure(Some(each))))
    };
    let each = joined(EVENTS.iter().filter_map(each), ", ");
    // Readers of such blocks skip what follows the `#`.
    let each = wrap(&format!("each {unit}: {each}"), MAIL_WIDTH - 2);
    lines.extend(each.into_iter().map(|line| format!("# {line}")));
    lines
}
