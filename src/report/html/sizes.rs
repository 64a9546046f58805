//! How much was handed over at once.

use super::axis::Axis;
use super::{View, name};
use crate::record::{Role, SizeDistribution, Trial};
use crate::report::figures::{amount, bytes};
use crate::stats::Row;
use maud::{Markup, html};

/// The sizes of one end of a cell: of all trials, and of the middle one.
struct Sizes<'a> {
    row: &'a Row,
    role: Role,
    all: &'a SizeDistribution,
    middle: Option<&'a SizeDistribution>,
}

/// Sizes of what was handed over at once, at both ends.
pub fn figure(view: &View) -> Option<Markup> {
    let mut ends: Vec<Sizes> = Vec::new();
    for row in &view.rows {
        let middle = middle(view.trials(row));
        for role in [Role::Receiver, Role::Sender] {
            let all = &row.end(role).sizes;
            if all.count > 0 {
                let middle = middle.and_then(|t| t.role(role)).map(|r| &r.sizes);
                ends.push(Sizes { row, role, all, middle });
            }
        }
    }
    if ends.is_empty() {
        return None;
    }
    let axis = Axis::sizes(ends.iter().flat_map(|e| [e.all.min as f64, e.all.max as f64]));
    Some(html! {
        figure {
            figcaption {
                b { "Figure 6. " }
                "Bytes handed over at once, on a scale of doublings. The thin line goes from the \
                 smallest to the largest piece of all trials, the thick one from the 10th to the \
                 90th percentile of the trial with the middle throughput; the dot is the mean."
            }
            table class="plot" {
                thead { tr {
                    th { "cell" } th class="g" { (axis.head()) }
                    th { "role" } th class="n" { "pieces" } th class="n" { "mean" }
                    th class="n" { "median" } th class="n" { "99 %" }
                } }
                tbody { @for end in &ends { (line(&axis, end)) } }
            }
        }
    })
}

fn line(axis: &Axis, end: &Sizes) -> Markup {
    let all = end.all;
    let at = |p: f64| {
        let known = end.middle?.percentiles.iter().find(|(percentile, _)| *percentile == p)?;
        Some(known.1 as f64)
    };
    let size = |b: Option<f64>| b.map(bytes).unwrap_or_default();
    html! {
        tr {
            th scope="row" { (name(&end.row.cell)) }
            td class="g" {
                svg height="22" aria-hidden="true" {
                    (axis.grid(22))
                    line class="thin" x1=(axis.at(all.min as f64)) x2=(axis.at(all.max as f64)) y1="11" y2="11" {}
                    @if let Some((low, high)) = at(10.0).zip(at(90.0)) {
                        line class="thick" x1=(axis.at(low)) x2=(axis.at(high)) y1="11" y2="11" {}
                    }
                    circle class="point" cx=(axis.at(all.mean)) cy="11" r="3.4" {}
                }
            }
            td { (end.role.to_string()) }
            td class="n" data-h="pieces" { (amount(all.count as f64)) }
            td class="n" data-h="mean" { (bytes(all.mean)) }
            td class="n" data-h="median" { (size(at(50.0))) }
            td class="n" data-h="99 %" { (size(at(99.0))) }
        }
    }
}

/// The measured trial with the middle throughput.
fn middle<'a>(trials: &[&'a Trial]) -> Option<&'a Trial> {
    let mut measured: Vec<(f64, &Trial)> =
        trials.iter().filter_map(|t| Some((t.throughput()?, *t))).collect();
    measured.sort_by(|a, b| a.0.total_cmp(&b.0));
    measured.get(measured.len().saturating_sub(1) / 2).map(|(_, trial)| *trial)
}
