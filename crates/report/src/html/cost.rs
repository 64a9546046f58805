//! What a unit of work cost: CPU by role and kind, service demand, return on investment.

use super::plot::{self, Mark};
use super::scale::Scale;
use super::{View, cell, changed, key, verdict};
use crate::figures::{amount, cost, number, percent, rate};
use crate::words::{cpu_rule, middle_rule, terms};
use bytepath_record::{Cost, Role, Work};
use bytepath_stats::{CpuCost, PerEnd, Row, Summary};
use maud::{Markup, html};

/// Kinds of CPU time: class, name.
const KINDS: [(&str, &str); 4] = [
    ("user", "application (user)"),
    ("system", "system calls"),
    ("softirq", "softirq"),
    ("unsplit", "unattributed"),
];

/// Pixels of a row with two bars: its height, where each bar begins and ends.
const HEIGHT: f64 = 34.0;
const BARS: [(Role, f64, f64); 2] = [(Role::Sender, 5.0, 16.0), (Role::Receiver, 18.0, 29.0)];

/// Height of a row with one interval, in pixels.
const THIN: f64 = 24.0;

/// CPU time per unit of work, stacked; a figure for each work.
pub(crate) fn figure(view: &View) -> Option<Markup> {
    let works = view.by_work();
    let figures: Vec<Markup> =
        works.iter().filter_map(|(work, rows)| of_work(view, *work, rows)).collect();
    (!figures.is_empty()).then(|| {
        html! {
            @for figure in &figures { (figure) }
            p class="note" { (cpu_rule(view.analysis)) }
        }
    })
}

fn of_work(view: &View, work: Work, rows: &[&Row]) -> Option<Markup> {
    let seen: Vec<&Row> = rows
        .iter()
        .copied()
        .filter(|row| Role::ALL.iter().any(|role| row.end(*role).cpu.is_some()))
        .collect();
    if seen.is_empty() {
        return None;
    }
    let terms = work.terms();
    let shown = work.cost(view.analysis.instructions_per_second);
    let [tx, rx] = terms.actors;
    let totals =
        || seen.iter().flat_map(|row| Role::ALL.map(|role| row.end(role).cpu.as_ref())).flatten();
    let scale = Scale::over(totals().map(|c| c.total.mean * shown.scale).chain([0.0]));
    let unsplit = totals().any(|c| c.unsplit > 0.0);
    Some(html! {
        figure {
            figcaption {
                (shown.words) " " (terms.done) "; in each row the " (tx) " above, the " (rx) " below. "
                "The change is that of both ends together against " (view.analysis.baseline) "."
                (key(KINDS.into_iter().take(if unsplit { 4 } else { 3 })))
            }
            table class="plot" {
                thead { tr {
                    th { "cell" } th class="g" { (plot::head(&scale)) }
                    th class="n" { (tx) } th class="n" { (rx) } th class="n" { "both" }
                    th class="n" { "change" } th { "verdict" }
                } }
                tbody {
                    @for row in &seen {
                        @let both = row.cpu_per_unit.map(|s| s.mean);
                        tr {
                            (cell(&row.cell))
                            td class="g" {
                                (plot::row(&scale, HEIGHT, bars(row, shown)))
                            }
                            td class="n" data-h=(tx) { (total(shown, &row.sender.cpu)) }
                            td class="n" data-h=(rx) { (total(shown, &row.receiver.cpu)) }
                            td class="n" data-h="both" { (cost(shown, both)) }
                            td class="n" data-h="change" { @if !row.baseline { (changed(view.effect(row, view.analysis.cost()))) } }
                            td { (verdict(row, view.analysis.cost())) }
                        }
                    }
                }
            }
            (parts(work, shown, &seen))
        }
    })
}

/// Both ends of a row, each kind of CPU time next to the one before.
fn bars(row: &Row, shown: Cost) -> Vec<Mark> {
    let scale = shown.scale;
    let mut marks = Vec::new();
    for (role, top, bottom) in BARS {
        let Some(c) = &row.end(role).cpu else { continue };
        let mut from = 0.0;
        for ((class, name), part) in KINDS.iter().zip([c.user, c.system, c.softirq, c.unsplit]) {
            if part > 0.0 && part.is_finite() {
                let bar = Mark::bar(class, (from * scale, top), ((from + part) * scale, bottom));
                let figure = cost(shown, part);
                let end = row.work.actor(role);
                marks.push(bar.says(format!("{end}, {name}: {figure} {}", shown.unit)));
                from += part;
            }
        }
    }
    marks
}

fn total(shown: Cost, spent: &Option<CpuCost>) -> String {
    cost(shown, spent.as_ref().map(|c| c.total.mean))
}

/// The numbers behind the bars.
fn parts(work: Work, shown: Cost, rows: &[&Row]) -> Markup {
    html! {
        details {
            summary { "The same in numbers" }
            div class="scroll" {
                table class="sortable" {
                    thead { tr {
                        th { "cell" } th { "role" } th class="n" { "user" } th class="n" { "system" }
                        th class="n" { "softirq" } th class="n" { "unattributed" } th class="n" { "total" }
                        th class="n" { "sd" } th class="n" { "CPUs busy" } th class="n" { "iowait" } th class="n" { "not its threads" }
                    } }
                    tbody {
                        @for row in rows {
                            @for (role, c) in Role::ALL.iter().filter_map(|r| Some((r, row.end(*r).cpu.as_ref()?))) {
                                tr {
                                    (cell(&row.cell)) td { (work.actor(*role)) }
                                    @for part in [c.user, c.system, c.softirq, c.unsplit, c.total.mean] {
                                        td class="n" { (cost(shown, part)) }
                                    }
                                    td class="n" data-v=(c.total.relative_stddev().unwrap_or(-1.0)) { (percent(c.total.relative_stddev())) }
                                    td class="n" { (number(c.cores.mean, 2)) }
                                    td class="n" data-v=(c.iowait.unwrap_or(-1.0)) { (percent(c.iowait)) }
                                    td class="n" data-v=(c.other) { (percent(c.other)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Return on investment and service demand, by role and in all.
pub(crate) fn returns(view: &View) -> Option<Markup> {
    let none = PerEnd::default();
    let some = |r: &&Row| r.roi != none || r.roi_power != none || r.service_demand != none;
    let rows: Vec<&Row> = view.rows.iter().copied().filter(some).collect();
    if rows.is_empty() {
        return None;
    }
    let terms = terms(view.analysis);
    let demand =
        html! { "Service demand, CPU microseconds per KiB delivered, both ends together." };
    let roi = html! {
        "Return on investment, T\u{207f} / C (" (terms) "), both ends together: the mean over the \
         trials and its interval. The exponent rewards the rate and hides cost: read it \
         together with the rate and the cost."
    };
    let power =
        html! { "Return on investment by power, T\u{207f} / P\u{1d50}, both ends together." };
    let all: [(Markup, Pick, Write); 3] = [
        (demand, |row| &row.service_demand, |v| number(v, 3)),
        (roi, |row| &row.roi, |v| amount(v)),
        (power, |row| &row.roi_power, |v| amount(v)),
    ];
    let there = all.into_iter().filter(|(_, of, _)| rows.iter().any(|r| *of(r) != none));
    Some(html! {
        @for (caption, of, write) in there {
            @let scale = scale_of(&rows, of);
            figure {
                figcaption { (caption) }
                table class="plot" {
                    thead { tr {
                        th { "cell" } th class="g" { (plot::head(&scale)) }
                        th class="n" { "sender" } th class="n" { "receiver" } th class="n" { "both" } th class="n" { "interval" }
                    } }
                    tbody { @for row in &rows { (line(&scale, row, of(row), write)) } }
                }
            }
        }
        @if let Some(middle) = middle_rule(view.analysis) { (headline(&rows, &middle)) }
    })
}

/// An axis that holds every interval of a figure.
fn scale_of(rows: &[&Row], of: Pick) -> Scale {
    let ends = |s: Summary| s.interval.map_or([s.mean, s.mean], |(low, high)| [low, high]);
    Scale::over(rows.iter().filter_map(|r| of(r).total).flat_map(ends).chain([0.0]))
}

/// What a figure shows of a row.
type Pick = fn(&Row) -> &PerEnd;

/// How a figure is written.
type Write = fn(Option<f64>) -> String;

fn line(scale: &Scale, row: &Row, of: &PerEnd, write: Write) -> Markup {
    let mean = |s: &Option<Summary>| write(s.map(|s| s.mean));
    let interval = of.total.and_then(|s| s.interval);
    let middle = THIN / 2.0;
    let mut marks = Vec::new();
    let shown = |value: f64| write(Some(value));
    marks.extend(interval.map(|(low, high)| {
        let span = Mark::line("thin", (low, middle), (high, middle));
        span.says(format!("interval: {} to {}", shown(low), shown(high)))
    }));
    marks.extend(of.total.map(|s| {
        Mark::dot("point", (s.mean, middle), 3.6).says(format!("mean: {}", shown(s.mean)))
    }));
    html! {
        tr {
            (cell(&row.cell))
            td class="g" {
                (plot::row(scale, THIN, marks))
            }
            td class="n" data-h="sender" { (mean(&of.sender)) }
            td class="n" data-h="receiver" { (mean(&of.receiver)) }
            td class="n" data-h="both" { (mean(&of.total)) }
            td class="n off" data-h="interval" {
                @if let Some((low, high)) = interval { (write(Some(low))) " \u{2026} " (write(Some(high))) }
            }
        }
    }
}

/// The rate as published work prints it.
fn headline(rows: &[&Row], rule: &str) -> Markup {
    html! {
        details {
            summary { "The rate as published work prints it" }
            p class="note" { (rule) }
            div class="scroll" {
                table class="sortable" {
                    thead { tr { th { "cell" } th class="n" { "middle" } th class="n" { "all" } } }
                    tbody {
                        @for row in rows {
                            tr {
                                (cell(&row.cell))
                                td class="n" { (rate(row.work, row.headline.map(|h| h.mean))) }
                                td class="n" { (rate(row.work, row.rate.map(|t| t.mean))) }
                            }
                        }
                    }
                }
            }
        }
    }
}
