//! Flame graphs: an element of the page for each, and the boxes of all as data for the page's
//! script, which draws, searches and zooms them. As SVG marks they would be most of the page.

use super::plot;
use crate::wording::figures::{digits, number, percent};
use bytepath_profile::flame::{Chart, FlameBox};
use maud::{Markup, html};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Resolution of widths and changes, in parts of the total: ten times what is printed.
const PARTS: f64 = 1e5;

/// Renders the graphs, folded except for one.
pub(crate) fn graphs(charts: &[Chart]) -> Markup {
    // If there is a difference, it is what the user wants to see.
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
        // A graph of two cells is titled "A against B" and belongs to A.
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

/// Returns the data for the script: the names of all graphs, and for each graph its boxes from the
/// root upwards, callers before callees, as name, line and width. The position of a box follows
/// from these. A graph with the same boxes as an earlier one has only its changes.
pub(crate) fn data(charts: &[Chart]) -> Value {
    let mut names: Vec<&str> = Vec::new();
    let mut ids: HashMap<&str, usize> = HashMap::new();
    let mut drawn: Vec<Vec<u64>> = Vec::new();
    let mut graphs = Vec::new();
    for chart in charts {
        // Callers before callees, from left to right.
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
