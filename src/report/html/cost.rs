//! What a byte cost: CPU by role and kind, service demand, return on investment.

use super::axis::Axis;
use super::{View, signed};
use crate::record::Role;
use crate::report::figures::{NONE, amount, cpu, number, percent};
use crate::report::words::cpu_rule;
use crate::stats::{CpuCost, Row, Summary};
use maud::{Markup, html};

/// Kinds of CPU time: class, name.
const KINDS: [(&str, &str); 4] = [
    ("user", "application (user)"),
    ("system", "system calls"),
    ("softirq", "softirq"),
    ("unsplit", "not told apart"),
];

/// Height of the bars of one row, and of one of the two.
const HEIGHT: u32 = 34;
const BAR: u32 = 11;

/// CPU microseconds per KiB of one CPU second per GiB.
const PER_KIB: f64 = 1e6 / (1024.0 * 1024.0);

/// CPU seconds per GiB, stacked.
pub fn figure(view: &View) -> Option<Markup> {
    let seen: Vec<&Row> = view
        .rows
        .iter()
        .copied()
        .filter(|row| Role::ALL.iter().any(|role| row.end(*role).cpu.is_some()))
        .collect();
    if seen.is_empty() {
        return None;
    }
    let totals =
        || seen.iter().flat_map(|row| Role::ALL.map(|role| row.end(role).cpu.as_ref())).flatten();
    let axis = Axis::over(totals().map(|c| c.total.mean).chain([0.0]));
    let unsplit = totals().any(|c| c.unsplit > 0.0);
    let base = view.baseline().and_then(|b| b.cpu_per_gib).map(|s| s.mean).filter(|m| *m > 0.0);
    Some(html! {
        figure {
            figcaption {
                b { "Figure 2. " }
                "CPU seconds per GiB delivered; in each row the sender above, the receiver below. "
                "Service demand is the same for both ends together, in CPU microseconds per KiB."
                ul class="key" {
                    @for (class, name) in KINDS.iter().take(if unsplit { 4 } else { 3 }) {
                        li { svg viewBox="0 0 14 10" aria-hidden="true" { rect class=(class) width="14" height="10" {} } (name) }
                    }
                }
            }
            table class="plot" {
                thead { tr {
                    th { "cell" } th class="g" { (axis.head()) }
                    th class="n" { "sender" } th class="n" { "receiver" } th class="n" { "both" }
                    th class="n" { "change" } th class="n" { "\u{b5}s/KiB" }
                } }
                tbody {
                    @for row in &seen {
                        @let both = row.cpu_per_gib.map(|s| s.mean);
                        tr {
                            th scope="row" { (row.cell) }
                            td class="g" {
                                svg height=(HEIGHT) aria-hidden="true" {
                                    (axis.grid(HEIGHT))
                                    (bar(&axis, row.sender.cpu.as_ref(), 5))
                                    (bar(&axis, row.receiver.cpu.as_ref(), 7 + BAR))
                                }
                            }
                            td class="n" data-h="sender" { (total(&row.sender.cpu)) }
                            td class="n" data-h="receiver" { (total(&row.receiver.cpu)) }
                            td class="n" data-h="both" { (cpu(both)) }
                            td class="n" data-h="change" { @if !row.baseline { (signed(both.zip(base).map(|(b, a)| b / a))) } }
                            td class="n" data-h="\u{b5}s/KiB" { (number(both.map(|b| b * PER_KIB), 3)) }
                        }
                    }
                }
            }
            (parts(&seen))
        }
        p class="note" { (cpu_rule(view.analysis)) }
    })
}

fn bar(axis: &Axis, cost: Option<&CpuCost>, y: u32) -> Markup {
    let parts = cost.map_or([0.0; 4], |c| [c.user, c.system, c.softirq, c.unsplit]);
    let mut from = 0.0;
    html! {
        @for ((class, name), part) in KINDS.iter().zip(parts) {
            @if part > 0.0 && part.is_finite() {
                rect class=(class) x=(axis.at(from)) y=(y) width=(axis.width(from, from + part)) height=(BAR) {
                    title { (name) ": " (cpu(part)) " s/GiB" }
                }
                @let () = from += part;
            }
        }
    }
}

fn total(cost: &Option<CpuCost>) -> String {
    cpu(cost.as_ref().map(|c| c.total.mean))
}

/// The numbers behind the bars.
fn parts(rows: &[&Row]) -> Markup {
    html! {
        details {
            summary { "Figure 2 in numbers" }
            div class="scroll" {
                table class="sortable" {
                    thead { tr {
                        th { "cell" } th { "role" } th class="n" { "user" } th class="n" { "system" }
                        th class="n" { "softirq" } th class="n" { "not told apart" } th class="n" { "total" }
                        th class="n" { "sd" } th class="n" { "CPUs busy" } th class="n" { "iowait" } th class="n" { "not its threads" }
                    } }
                    tbody {
                        @for row in rows {
                            @for (role, c) in Role::ALL.iter().filter_map(|r| Some((r, row.end(*r).cpu.as_ref()?))) {
                                tr {
                                    th scope="row" { (row.cell) } td { (role.to_string()) }
                                    @for part in [c.user, c.system, c.softirq, c.unsplit, c.total.mean] {
                                        td class="n" { (cpu(part)) }
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

/// Return on investment by role and in all.
pub fn returns(view: &View) -> Option<Markup> {
    let rows: Vec<&Row> = view.rows.iter().copied().filter(|r| r.roi.total.is_some()).collect();
    if rows.is_empty() {
        return None;
    }
    let totals = || rows.iter().filter_map(|r| r.roi.total);
    let axis = Axis::over(totals().flat_map(|s| [s.min, s.max]).chain([0.0]));
    Some(html! {
        figure {
            figcaption {
                b { "Figure 3. " }
                "Return on investment: throughput squared over the CPUs kept busy, (Gbit/s)\u{b2} per \
                 CPU, both ends together. The mean as a dot, the line from the worst to the best \
                 trial. Squaring rewards throughput and hides cost: read it beside Figure 2."
            }
            table class="plot" {
                thead { tr {
                    th { "cell" } th class="g" { (axis.head()) }
                    th class="n" { "sender" } th class="n" { "receiver" } th class="n" { "both" }
                } }
                tbody {
                    @for row in &rows {
                        tr {
                            th scope="row" { (row.cell) }
                            td class="g" { @if let Some(s) = &row.roi.total { (range(&axis, s)) } }
                            td class="n" data-h="sender" { (mean(&row.roi.sender)) }
                            td class="n" data-h="receiver" { (mean(&row.roi.receiver)) }
                            td class="n" data-h="both" { (mean(&row.roi.total)) }
                        }
                    }
                }
            }
        }
    })
}

fn range(axis: &Axis, s: &Summary) -> Markup {
    html! {
        svg height="24" aria-hidden="true" {
            (axis.grid(24))
            line class="thin" x1=(axis.at(s.min)) x2=(axis.at(s.max)) y1="12" y2="12" {}
            circle class="point" cx=(axis.at(s.mean)) cy="12" r="3.6" {}
        }
    }
}

fn mean(summary: &Option<Summary>) -> String {
    summary.map_or(NONE.into(), |s| amount(s.mean))
}
