//! The long tables: system calls, trials, readings. All of them can be sorted.

use super::{View, cell, name};
use crate::Why;
use crate::figures::{NONE, amount, bytes, milliseconds, number, percent, rate};
use crate::frames;
use crate::functions::rankings;
use crate::grid::Grid;
use crate::hops;
use crate::rows::status;
use bytepath_record::{CallRow, Reading, Role, Scope, Trial, Unit, Work};
use bytepath_stats::{Fragments, Row, Summary, role_cpu};
use maud::{Markup, html};
use std::collections::BTreeMap;

/// A study of more trials than this keeps their table folded.
const FOLDED: usize = 60;

/// System calls of the engines.
pub(crate) fn calls(view: &View) -> Option<Markup> {
    let mut lines: Vec<(&Row, Role, &CallRow)> = Vec::new();
    for row in &view.rows {
        for role in Role::ALL {
            lines.extend(row.end(role).calls.iter().map(|call| (*row, role, call)));
        }
    }
    let heads =
        ["calls", "errors", "bytes/call", "total s", "min ms", "avg ms", "max ms", "sd of trials"];
    (!lines.is_empty()).then(|| {
        html! {
            p class="note" { "All measured trials of a cell together; click a column head to sort." }
            div class="scroll" {
                table class="sortable" {
                    thead { tr {
                        th { "cell" } th { "role" } th { "call" }
                        @for head in heads { th class="n" { (head) } }
                    } }
                    tbody {
                        @for (row, role, c) in &lines {
                            @let done = c.calls.saturating_sub(c.errors);
                            @let each = (done > 0).then(|| c.bytes as f64 / done as f64);
                            tr {
                                (cell(&row.cell)) td { (role.to_string()) } td { (c.name) }
                                td class="n" { (c.calls) } td class="n" { (c.errors) }
                                td class="n" data-v=(number(each, 0)) { (each.map_or(NONE.into(), bytes)) }
                                td class="n" { (number(c.total, 3)) }
                                td class="n" { (milliseconds(c.min)) }
                                td class="n" { (milliseconds(c.avg)) }
                                td class="n" { (milliseconds(c.max)) }
                                td class="n" data-v=(number(c.stddev_percent, 3)) { (number(c.stddev_percent, 2)) "%" }
                            }
                        }
                    }
                }
            }
        }
    })
}

/// Where frames went.
pub(crate) fn hops(view: &View) -> Option<Markup> {
    let rows = hops::rows(view.analysis);
    (!rows.is_empty()).then(|| {
        html! {
            p class="note" { (hops::RULE) }
            div class="scroll" {
                table class="sortable" {
                    thead { tr {
                        th { "cell" }
                        @for (group, head) in hops::HEADS {
                            th class="n" { (format!("{group} {head}").trim()) }
                        }
                    } }
                    tbody {
                        @for (row, found) in &rows {
                            tr {
                                (cell(&row.cell))
                                @for text in hops::cells(found) { td class="n" { (text) } }
                            }
                        }
                    }
                }
            }
        }
    })
}

/// Why the rates of frames differ.
pub(crate) fn whys(view: &View) -> Option<Markup> {
    let all = frames::all(view.analysis, view.explanation);
    let done = frames::grid(view.analysis);
    (!all.is_empty() || done.is_some()).then(|| {
        html! {
            @for one in &all { (why(one)) }
            @if let Some(done) = &done { h3 { (done.title) } (grid(done)) }
        }
    })
}

/// Why two of them differ.
pub(crate) fn why(why: &Why) -> Markup {
    html! {
        h3 { (name(&why.after)) " (after) against " (name(&why.before)) " (before)" }
        ul { @for line in &why.lines { li { (line) } } }
    }
}

/// A table that is the same in all formats.
pub(crate) fn grid(grid: &Grid) -> Markup {
    let of_cells = grid.heads.first().is_some_and(|(_, head)| head == "path");
    html! {
        p class="note" { (grid.note) }
        div class="scroll" {
            table class="sortable" {
                thead { tr {
                    @for (at, (group, head)) in grid.heads.iter().enumerate() {
                        th class=[(at >= grid.words).then_some("n")] { (format!("{group} {head}").trim()) }
                    }
                } }
                tbody {
                    @for row in &grid.rows {
                        tr {
                            @for (at, text) in row.iter().enumerate() {
                                @if at == 0 { th scope="row" class=[of_cells.then_some("cell")] { (text) } }
                                @else { td class=[(at >= grid.words).then_some("n")] { (text) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Fragments per receive into device memory.
pub(crate) fn fragments(view: &View) -> Option<Markup> {
    let lines: Vec<(&Row, Fragments)> =
        view.rows.iter().filter_map(|row| Some((*row, row.receiver.fragments?))).collect();
    let heads = [
        "calls",
        "average",
        "min",
        "max",
        "> 1024",
        "512 to 1024",
        "< 512",
        "frees avoided",
        "> 1024, share",
        "of gathered",
        "< 512, share",
    ];
    (!lines.is_empty()).then(|| {
        html! {
            p class="note" {
                "Fragments of device memory per receive, all measured trials of a \
                 cell together. One call returns at most 1024 of them. \u{201c}Frees avoided\u{201d} are calls \
                 after which nothing was returned, because fragments were gathered; \u{201c}of \
                 gathered\u{201d} are those that alone brought more than 1024, among the \
                 calls after which more than 1024 were held."
            }
            div class="scroll" {
                table class="sortable" {
                    thead { tr {
                        th { "cell" }
                        @for head in heads { th class="n" { (head) } }
                    } }
                    tbody {
                        @for (row, Fragments { counts: c, average, .. }) in &lines {
                            tr {
                                (cell(&row.cell))
                                td class="n" { (c.calls) } td class="n" { (number(*average, 1)) }
                                td class="n" { (c.min) } td class="n" { (c.max) }
                                td class="n" { (c.above_1024) } td class="n" { (c.from_512_to_1024) }
                                td class="n" { (c.below_512) } td class="n" { (c.frees_avoided) }
                                @for share in [c.above_share(), c.above_share_of_gathered(), c.below_share()] {
                                    td class="n" data-v=[share] { (percent(share)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    })
}

/// Every trial, in the order run.
pub(crate) fn trials(view: &View) -> Option<Markup> {
    let trials = &view.study.trials;
    let table = html! {
        div class="scroll" {
            table class="sortable" {
                thead { tr {
                    th class="n" { "order" } th class="n" { "block" } th class="n" { "after s" } th { "cell" }
                    th class="n" { (view.analysis.work().terms().rate_unit) } th class="n" { "CPU tx" } th class="n" { "CPU rx" }
                    th { "label" } th { "status" }
                } }
                tbody { @for trial in trials { (trial_line(view, trial)) } }
            }
        }
    };
    (!trials.is_empty()).then(|| {
        html! {
            p class="note" {
                "In run order; \u{201c}after\u{201d} counts from the start of the study. CPU is the \
                 number of CPUs kept busy by the role."
            }
            @if trials.len() > FOLDED {
                details { summary { (trials.len()) " trials" } (table) }
            } @else { (table) }
        }
    })
}

fn trial_line(view: &View, trial: &Trial) -> Markup {
    let header = &view.study.header;
    let of = header.cells.iter().find(|c| c.id == trial.cell);
    let busy = |role| {
        let measured = trial.rate().and(of)?;
        role_cpu(measured, trial, role).map(|c| c.total)
    };
    let after = trial.started_ms.saturating_sub(header.started_ms) as f64 / 1e3;
    let (word, why) = status(trial);
    html! {
        tr id=[view.anchor(&trial.cell, Some(trial))]
            class=[trial.rate().is_none().then_some("off")] {
            td class="n" { (u64::from(trial.order) + 1) } td class="n" { (u64::from(trial.block) + 1) }
            td class="n" { (number(after, 1)) } (cell(&trial.cell))
            td class="n" { (rate(trial.work, trial.rate())) }
            td class="n" { (number(busy(Role::Sender), 2)) } td class="n" { (number(busy(Role::Receiver), 2)) }
            td class="w" { (trial.label) }
            td class="w" {
                (word) @if let Some(why) = why { ": " (why) }
                @if !trial.warnings.is_empty() { span title=(trial.warnings.join("; ")) { " (warned)" } }
            }
        }
    }
}

/// Who waited for locks and handed work to other CPUs.
pub(crate) fn functions(view: &View) -> Option<Markup> {
    let rankings = rankings(view.study, view.analysis);
    (!rankings.is_empty()).then(|| {
        html! {
            @for ranking in &rankings {
                h3 { (ranking.title) }
                p class="note" { (ranking.note) }
                div class="scroll" { table class="sortable" {
                    thead { tr {
                        th { "cell" } th { "function" }
                        @if ranking.timed { th class="n" { "\u{b5}s per unit" } }
                        th class="n" { "times per unit" } th { "unit" }
                    } }
                    tbody { @for line in &ranking.lines { tr {
                        (cell(&line.cell)) td { (line.function) }
                        @if let Some(time) = &line.time { td class="n" { (time) } }
                        td class="n" { (line.count) } td { (line.unit) }
                    } } }
                } }
            }
        }
    })
}

/// The values of one reading: their unit, and those of each cell.
type Values = (Unit, Vec<Vec<f64>>);

/// Means of everything that a meter said, one column per cell.
pub(crate) fn readings(view: &View) -> Option<Markup> {
    // The same reading of every cell in one line, sorted by name.
    let mut lines: BTreeMap<(&str, String), Values> = BTreeMap::new();
    for (column, row) in view.rows.iter().enumerate() {
        let measured = view.trials(row).iter().filter(|t| t.rate().is_some());
        for Reading { metric, unit, value, scope, .. } in measured.flat_map(|t| &t.readings) {
            let line = lines.entry((metric, scope_words(scope)));
            let (_, values) = line.or_insert_with(|| (*unit, vec![Vec::new(); view.rows.len()]));
            values[column].push(*value);
        }
    }
    (!lines.is_empty()).then(|| {
        html! {
            p class="note" {
                "All meter readings, as means over the measured trials of a cell. The values \
                 of each trial are in the " code { "csv" } " and " code { "parquet" } " reports."
            }
            details {
                summary { (lines.len()) " readings" }
                div class="scroll" {
                    table class="sortable" {
                        thead { tr {
                            th { "metric" } th { "of" }
                            @for row in &view.rows { th class="n cell" { (name(&row.cell)) } }
                        } }
                        tbody {
                            @for ((metric, scope), (unit, values)) in &lines {
                                tr {
                                    th scope="row" { (metric) } td { (scope) }
                                    @for values in values {
                                        @let mean = Summary::of(values.iter().copied()).map(|s| s.mean);
                                        td class="n" data-v=[mean] { (quantity(*unit, mean)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    })
}

fn scope_words(scope: &Scope) -> String {
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
