//! What was drawn, and where the roles' CPUs rested.

use super::{View, name};
use crate::record::Role;
use crate::report::figures::{amount, number, percent};
use crate::stats::{IdleShare, Row};
use maud::{Markup, html};

/// Watts and joules per unit of work, where a meter reported power.
pub fn energy(view: &View) -> Option<Markup> {
    let rows: Vec<&Row> = view.rows.iter().copied().filter(|row| row.watts.is_some()).collect();
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
            "Mean power over the window and energy per " (terms.unit) " " (terms.done) ", both ends together, of what "
            "the source sees: figures of different sources do not compare."
        }
        div class="scroll" {
            table class="sortable" {
                thead { tr {
                    th { "cell" } th class="n" { "watts" } th class="n" { "interval" }
                    th class="n" { (terms.energy_unit) } th class="n" { "interval" } th class="n" { "trials" }
                } }
                tbody {
                    @for row in &rows {
                        tr {
                            th scope="row" { (name(&row.cell)) }
                            @for (figure, scale) in [(row.watts, 1.0), (row.joules_per_unit, terms.energy_scale)] {
                                td class="n" { (number(figure.map(|s| s.mean * scale), 1)) }
                                td class="n off" { (range(figure.and_then(|s| s.interval), scale)) }
                            }
                            td class="n" { (row.watts.map_or(0, |s| s.n)) }
                        }
                    }
                }
            }
        }
    })
}

/// Idle states of each role's CPU, where a meter saw them.
pub fn idle(view: &View) -> Option<Markup> {
    let ends = || view.rows.iter().flat_map(|row| Role::ALL.map(|role| (row, row.end(role))));
    if ends().all(|(_, end)| end.idle.is_empty()) {
        return None;
    }
    let by = |share: &IdleShare| if share.hardware { "done by the hardware" } else { "asked for" };
    Some(html! {
        p class="note" {
            "Part of the window that the CPU of each role spent in its idle states. What the kernel "
            "asked for and what the hardware did are counted apart; they are not the same."
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
                                th scope="row" { (name(&row.cell)) }
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
