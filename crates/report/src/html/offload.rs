//! Copy engines of a study at each size, compared with the first one: curves and a table.

use super::View;
use super::plot::{self, Mark};
use super::scale::Scale;
use crate::figures::{bytes, level};
use crate::offload::{effect_text, levels, name};
use bytepath_record::Levels;
use bytepath_stats::{CopyComparison, Effect, Offloading};
use maud::{Markup, html};

type Point = CopyComparison<Levels>;

/// One small panel for each engine and what else varies, all on the same axes; the numbers
/// below. None where no engines are compared.
pub(crate) fn figure(view: &View) -> Option<Markup> {
    let found = view.analysis.offloading.as_ref()?;
    let across = Scale::sizes(found.points.iter().map(|point| point.cell.size as f64));
    let ends = found.points.iter().filter_map(|point| point.faster.as_ref()).map(bounds);
    let up = Scale::over(ends.flat_map(|(low, high)| [low, high]).chain([1.0]));
    let terms = view.analysis.work().terms();
    Some(html! {
        figure {
            figcaption {
                "The " (terms.rate) " of each engine, a multiple of that of " (found.first)
                ", against the size of messages, with intervals at "
                (level(view.analysis.rules.confidence)) ", each for itself."
            }
            div class="panels" {
                @for points in curves(found) {
                    div class="panel" {
                        h3 { (title(points[0])) }
                        (plot::SMALL.drawn(&across, &up, curve(&points, &across)))
                    }
                }
            }
        }
        div class="scroll" {
            table class="sortable" {
                thead { tr {
                    th { "engine" } th class="n" { "size" } th class="n" { (terms.rate) }
                    th class="n" { "sender\u{2019}s CPU per " (terms.unit) }
                } }
                tbody {
                    @for point in &found.points {
                        tr {
                            th scope="row" { (title(point)) }
                            td class="n" data-v=(point.cell.size) { (bytes(point.cell.size as f64)) }
                            td class="n" { (effect_text(point.faster.as_ref())) }
                            td class="n" { (effect_text(point.dearer.as_ref())) }
                        }
                    }
                }
            }
        }
    })
}

/// The points of each engine, one size after the other.
fn curves(found: &Offloading) -> Vec<Vec<&Point>> {
    let mut curves: Vec<Vec<&Point>> = Vec::new();
    for point in &found.points {
        let same = |curve: &&mut Vec<&Point>| title(curve[0]) == title(point);
        match curves.iter_mut().find(same) {
            Some(curve) => curve.push(point),
            None => curves.push(vec![point]),
        }
    }
    curves.iter_mut().for_each(|curve| curve.sort_by_key(|point| point.cell.size));
    curves
}

fn title(point: &Point) -> String {
    let engine = name(&point.cell.engine, point.cell.model);
    match levels(&point.cell.at) {
        at if at.is_empty() => engine,
        at => format!("{engine}, {at}"),
    }
}

/// The ratios with their intervals, over a line where both are alike.
fn curve(points: &[&Point], across: &Scale) -> Vec<Mark> {
    let known = points.iter().filter_map(|p| Some((p.cell.size as f64, p.faster.as_ref()?)));
    let known: Vec<(f64, &Effect)> = known.collect();
    let alike = Mark::line("mean", (across.low(), 1.0), (f64::MAX, 1.0));
    let spans = known.iter().map(|(size, effect)| {
        let (low, high) = bounds(effect);
        Mark::line("span", (*size, low), (*size, high)).says(effect_text(Some(effect)))
    });
    let course = known.iter().map(|(size, effect)| (*size, effect.ratio)).collect();
    [alike].into_iter().chain(spans).chain([Mark::course("course", course)]).collect()
}

fn bounds(effect: &Effect) -> (f64, f64) {
    effect.interval.map_or((effect.ratio, effect.ratio), |i| (i.low, i.high))
}
