//! Power drawn, and the idle states of the roles' CPUs.

use super::{View, cell};
use crate::figures::{amount, number, percent};
use bytepath_record::Role;
use bytepath_stats::{IdleShare, Row};
use maud::{Markup, html};

/// Watts and joules per unit of work, where a meter reported power.
pub(crate) fn energy(view: &View) -> Option<Markup> {
    let rows = view.rows.iter().filter_map(|row| Some((*row, row.energy()?)));
    let rows: Vec<(&Row, _)> = rows.collect();
    if rows.is_empty() {
        return None;
    }
    let range = |interval: Option<(f64, f64)>, scale: f64| {
        let end = |value: f64| number(value * scale, 1);
        let text = interval.map(|(low, high)| format!("{} \u{2026} {}", end(low), end(high)));
        text.unwrap_or_default()
    };
    let terms = view.analysis.work().terms();
    Some(html! {
        p class="note" {
            "Mean power over the window and energy per " (terms.unit) " " (terms.done) ", as seen by the source "
            ": figures of different sources are not comparable."
        }
        div class="scroll" {
            table class="sortable" {
                thead { tr {
                    th { "cell" }
                    @for unit in ["watts", terms.energy_unit] {
                        @for end in ["sender", "receiver", "both"] { th class="n" { (unit) ", " (end) } }
                        th class="n" { "interval" }
                    }
                    th class="n" { "trials" }
                } }
                tbody {
                    @for (row, energy) in &rows {
                        tr {
                            (cell(&row.cell))
                            @for (figures, scale) in energy.iter().zip([1.0, terms.energy_scale]) {
                                @for figure in figures {
                                    td class="n" { (number(figure.map(|s| s.mean * scale), 1)) }
                                }
                                td class="n off" { (range(figures[2].and_then(|s| s.interval), scale)) }
                            }
                            td class="n" { (energy[0].iter().flatten().map(|s| s.n).max().unwrap_or(0)) }
                        }
                    }
                }
            }
        }
    })
}

/// Idle states of each role's CPU, where a meter saw them.
pub(crate) fn idle(view: &View) -> Option<Markup> {
    let ends = || view.rows.iter().flat_map(|row| Role::ALL.map(|role| (row, row.end(role))));
    if ends().all(|(_, end)| end.idle.is_empty()) {
        return None;
    }
    let by = |share: &IdleShare| if share.hardware { "done by the hardware" } else { "requested" };
    Some(html! {
        p class="note" {
            "Share of the window that the CPU of each role spent in its idle states. What the kernel "
            "requested and what the hardware did are counted apart; they are not the same."
        }
        div class="scroll" {
            table class="sortable" {
                thead { tr {
                    th { "cell" } th { "role" } th { "state" } th { "by" }
                    th class="n" { "share" } th class="n" { "entries/s" }
                } }
                tbody {
                    @for (row, end) in ends() {
                        @for share in &end.idle {
                            tr {
                                (cell(&row.cell))
                                td { (end.role.to_string()) } td { (share.state) } td { (by(share)) }
                                td class="n" data-v=(share.share) { (percent(share.share)) }
                                td class="n" { (amount(share.entries)) }
                            }
                        }
                    }
                }
            }
        }
    })
}
