//! How many bytes one call transferred.

use super::plot::{self, Mark};
use super::scale::Scale;
use super::{View, cell};
use crate::figures::{amount, bytes};
use bytepath_record::{Role, SizeDistribution, Trial};
use bytepath_stats::Row;
use maud::{Markup, html};

/// Height of a row in pixels.
const HEIGHT: f64 = 22.0;

/// The sizes of one end of a cell: of all trials, and of the middle one.
struct Sizes<'a> {
    row: &'a Row,
    role: Role,
    all: &'a SizeDistribution,
    middle: Option<&'a SizeDistribution>,
}

/// Sizes of the pieces that one call transferred, at both ends.
pub(crate) fn figure(view: &View) -> Option<Markup> {
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
    let scale = Scale::sizes(ends.iter().flat_map(|e| [e.all.min as f64, e.all.max as f64]));
    Some(html! {
        figure {
            figcaption {
                "Bytes per transfer, on a logarithmic scale. The thin line spans \
                 the smallest to the largest transfer of all trials, the thick one the 10th to the \
                 90th percentile of the trial with the median rate; the dot is the mean."
            }
            table class="plot" {
                thead { tr {
                    th { "cell" } th class="g" { (plot::head(&scale)) }
                    th { "role" } th class="n" { "pieces" } th class="n" { "mean" }
                    th class="n" { "median" } th class="n" { "99 %" }
                } }
                tbody { @for end in &ends { (line(&scale, end)) } }
            }
        }
    })
}

fn line(scale: &Scale, end: &Sizes) -> Markup {
    let all = end.all;
    let at = |p: f64| {
        let known = end.middle?.percentiles.iter().find(|(percentile, _)| *percentile == p)?;
        Some(known.1 as f64)
    };
    let size = |b: Option<f64>| b.map(bytes).unwrap_or_default();
    let middle = HEIGHT / 2.0;
    let span = |class, low, high| Mark::line(class, (low, middle), (high, middle));
    let says = |mark: Mark, what: &str, low: f64, high: f64| {
        mark.says(format!("{what}: {} to {}", bytes(low), bytes(high)))
    };
    let (least, most) = (all.min as f64, all.max as f64);
    let mut marks = vec![says(span("thin", least, most), "all", least, most)];
    let thick = |(low, high)| says(span("thick", low, high), "10th to 90th percentile", low, high);
    marks.extend(at(10.0).zip(at(90.0)).map(thick));
    let mean = Mark::dot("point", (all.mean, middle), 3.4);
    marks.push(mean.says(format!("mean: {}", bytes(all.mean))));
    html! {
        tr {
            (cell(&end.row.cell))
            td class="g" {
                (plot::row(scale, HEIGHT, marks))
            }
            td { (end.role.to_string()) }
            td class="n" data-h="pieces" { (amount(all.count as f64)) }
            td class="n" data-h="mean" { (bytes(all.mean)) }
            td class="n" data-h="median" { (size(at(50.0))) }
            td class="n" data-h="99 %" { (size(at(99.0))) }
        }
    }
}

/// The measured trial with the middle rate.
fn middle<'a>(trials: &[&'a Trial]) -> Option<&'a Trial> {
    let mut measured: Vec<(f64, &Trial)> =
        trials.iter().filter_map(|t| Some((t.rate()?, *t))).collect();
    measured.sort_by(|a, b| a.0.total_cmp(&b.0));
    measured.get(measured.len().saturating_sub(1) / 2).map(|(_, trial)| *trial)
}
