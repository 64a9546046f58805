//! Flame graphs: a place on the page for each, and the boxes of all as data for the page's
//! script, which draws, searches and zooms them. As marks they would be most of the page.

use super::plot;
use crate::wording::figures::{digits, number, percent};
use bytepath_profile::flame::{Chart, FlameBox};
use maud::{Markup, html};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Parts of the total in which widths and changes are given: a tenth of what is printed.
const PARTS: f64 = 1e5;

/// The graphs, all but one folded.
pub(crate) fn graphs(charts: &[Chart]) -> Markup {
    // A difference is what was asked for, where there is one.
    let first = charts.iter().position(is_difference).unwrap_or(0);
    html! {
        @for (at, chart) in charts.iter().enumerate() { (graph(at, chart, at == first)) }
        @if !charts.is_empty() {
            noscript { p class="note" {
                "Flame graphs are drawn by the page\u{2019}s own script, which is switched off here; \
                 the functions are in the tables above."
            } }
        }
    }
}

fn is_difference(chart: &Chart) -> bool {
    chart.boxes.iter().any(|b| b.change.is_some())
}

fn graph(at: usize, chart: &Chart, open: bool) -> Markup {
    let differential = is_difference(chart);
    let key: [(&str, &str); 2] = match differential {
        true => [("more", "more in the first-named"), ("less", "less")],
        false => [("kernel", "kernel"), ("program", "program")],
    };
    html! {
        // A graph of two cells is called "A against B" and goes with A.
        details open=[open.then_some("")] data-cell=[chart.title.split(" against ").next()] {
            summary {
                "Flame graph: " (chart.title) ", " (number(chart.total, digits(chart.total, 4))) " "
                (chart.unit)
            }
            figure {
                figcaption {
                    "Width: " (chart.unit) " of a function with all that it called; callers are \
                     below. Click or Enter zooms in, Escape goes back, arrow keys move. "
                    @if differential { "The stronger the colour, the larger the difference. " }
                    @if chart.narrower > 0.0005 {
                        (percent(chart.narrower)) " of it is in boxes too narrow to draw."
                    }
                    (plot::key(key))
                }
                div class="flame" data-chart=(at) {}
            }
        }
    }
}

/// What the script draws: the names of all graphs, and of each graph its boxes from the root
/// on, callers before what they called, as name, line and width. Where a box begins follows
/// from that. A graph whose boxes are those of an earlier one has no more than its changes.
pub(crate) fn data(charts: &[Chart]) -> Value {
    let mut names: Vec<&str> = Vec::new();
    let mut ids: HashMap<&str, usize> = HashMap::new();
    let mut drawn: Vec<Vec<u64>> = Vec::new();
    let mut graphs = Vec::new();
    for chart in charts {
        // Callers before what they called, from left to right.
        let mut boxes: Vec<&FlameBox> = chart.boxes.iter().collect();
        boxes.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.depth.cmp(&b.depth)));
        let part = |amount: f64| (amount * PARTS / chart.total).round() as i64;
        let mut list = Vec::new();
        for one in &boxes {
            let id = *ids.entry(&one.name).or_insert_with(|| {
                names.push(&one.name);
                names.len() - 1
            });
            let width = (one.width * PARTS).round() as u64;
            list.extend([2 * id as u64 + u64::from(one.kernel), one.depth.into(), width]);
        }
        let changes = boxes.iter().map(|one| one.change.map(part)).collect::<Option<Vec<i64>>>();
        let same = drawn.iter().position(|earlier| *earlier == list);
        graphs.push(json!({
            "unit": chart.unit, "total": chart.total,
            "digits": digits(chart.total, 4), "narrower": chart.narrower,
            "boxes": match same { Some(at) => json!(at), None => json!(list) },
            "changes": changes,
        }));
        drawn.push(if same.is_some() { Vec::new() } else { list });
    }
    json!({ "names": names, "parts": PARTS, "graphs": graphs })
}
