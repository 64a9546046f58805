//! How long exchanges took: percentiles as a line, and the verdict on each.

use super::plot::{self, Mark};
use super::scale::Scale;
use super::{View, cell, changed, verdict};
use crate::figures::{amount, microseconds};
use bytepath_record::Percentile;
use bytepath_stats::{LatencyRow, Question, Row};
use maud::{Markup, html};

/// Height of a row in pixels.
const HEIGHT: f64 = 24.0;

/// Percentiles of every cell, and how they compare; none where none was measured.
pub(crate) fn figure(view: &View) -> Option<Markup> {
    let rows: Vec<(&Row, &LatencyRow)> =
        view.rows.iter().filter_map(|row| Some((*row, row.latency.as_ref()?))).collect();
    if rows.is_empty() {
        return None;
    }
    let highest = |latency: &LatencyRow| latency.percentiles.last().map_or(0.0, |p| p.pooled * 1e6);
    let scale = Scale::over(rows.iter().map(|(_, latency)| highest(latency)).chain([0.0]));
    Some(html! {
        figure {
            figcaption {
                b { "Latency. " }
                "Microseconds, all measured trials of a cell together: the dot is the median, the thick line \
                 reaches to p99, the thin one to the highest percentile in the row. A percentile is given if \
                 at least ten exchanges took longer."
            }
            table class="plot" {
                thead { tr {
                    th { "cell" } th class="g" { (plot::head(&scale)) }
                    @for percentile in Percentile::ALL { th class="n" { (percentile.name()) } }
                    th class="n" { "max" } th class="n" { "exchanges" }
                } }
                tbody {
                    @for (row, latency) in &rows {
                        tr {
                            (cell(&row.cell))
                            td class="g" { (plot::row(&scale, HEIGHT, marks(latency))) }
                            @for percentile in Percentile::ALL {
                                td class="n" data-h=(percentile.name()) { (microseconds(pooled(latency, percentile))) }
                            }
                            td class="n" data-h="max" { (microseconds(latency.max)) }
                            td class="n" data-h="exchanges" { (amount(latency.count as f64)) }
                        }
                    }
                }
            }
        }
        @if view.analysis.functional.is_none() { (against(view, &rows)) }
    })
}

fn pooled(latency: &LatencyRow, percentile: Percentile) -> Option<f64> {
    latency.percentile(percentile).map(|row| row.pooled)
}

fn marks(latency: &LatencyRow) -> Vec<Mark> {
    let at = |percentile| pooled(latency, percentile).map(|s| s * 1e6);
    let middle = HEIGHT / 2.0;
    let line = |class, from: f64, to: f64| Mark::line(class, (from, middle), (to, middle));
    let Some(median) = at(Percentile::P50) else { return Vec::new() };
    let highest = latency.percentiles.last().map(|row| row.pooled * 1e6);
    let says = |mark: Mark, name: &str, us: f64| {
        mark.says(format!("{name}: {} \u{b5}s", microseconds(us / 1e6)))
    };
    let mut marks = Vec::new();
    let last = latency.percentiles.last().map_or("", |row| row.percentile.name());
    marks.extend(highest.map(|end| says(line("thin", median, end), last, end)));
    marks.extend(at(Percentile::P99).map(|end| says(line("thick", median, end), "p99", end)));
    marks.push(says(Mark::dot("point", (median, middle), 3.6), "median", median));
    marks
}

/// Each percentile against the baseline.
fn against(view: &View, rows: &[(&Row, &LatencyRow)]) -> Markup {
    let compared = rows.iter().flat_map(|(row, _)| {
        let questions = Percentile::ALL.map(Question::Latency).into_iter();
        questions.filter(|q| row.comparison(*q).is_some()).map(|q| (*row, q))
    });
    let compared: Vec<(&Row, Question)> = compared.collect();
    html! {
        @if !compared.is_empty() {
            div class="scroll" {
                table class="sortable" {
                    thead { tr {
                        th { "cell" } th { "percentile" }
                        th class="n" { "change against " (view.analysis.baseline) } th { "verdict" }
                    } }
                    tbody {
                        @for (row, question) in &compared {
                            tr {
                                (cell(&row.cell)) td { (question.name()) }
                                td class="n" { (changed(view.effect(row, *question))) }
                                td { (verdict(row, *question)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
