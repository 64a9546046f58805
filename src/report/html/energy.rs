//! What was drawn, and where the roles' CPUs rested.

use super::{View, name};
use crate::record::Role;
use crate::report::figures::{amount, number, percent};
use crate::stats::{IdleShare, Row};
use maud::{Markup, html};

/// Watts and joules per GiB, where a meter reported power.
pub fn energy(view: &View) -> Option<Markup> {
    let rows: Vec<&Row> = view.rows.iter().copied().filter(|row| row.watts.is_some()).collect();
    if rows.is_empty() {
        return None;
    }
    let range = |interval: Option<(f64, f64)>| {
        let text =
            interval.map(|(low, high)| format!("{} \u{2026} {}", number(low, 1), number(high, 1)));
        text.unwrap_or_default()
    };
    Some(html! {
        p class="note" {
            "Mean power over the window and energy per GiB delivered, both ends together, of what "
            "the source sees: figures of different sources do not compare."
        }
        div class="scroll" {
            table class="sortable" {
                thead { tr {
                    th { "cell" } th class="n" { "watts" } th class="n" { "interval" }
                    th class="n" { "J/GiB" } th class="n" { "interval" } th class="n" { "trials" }
                } }
                tbody {
                    @for row in &rows {
                        tr {
                            th scope="row" { (name(&row.cell)) }
                            @for figure in [row.watts, row.joules_per_gib] {
                                td class="n" { (number(figure.map(|s| s.mean), 1)) }
                                td class="n off" { (range(figure.and_then(|s| s.interval))) }
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
