//! The bar with which cells can be hidden in all figures and tables, by name or verdict.

use crate::sections::View;
use bytepath_record::visible;
use bytepath_stats::{Metric, Row};
use maud::{Markup, html};
use serde_json::{Value, json};

/// Most cells without a bar.
const FEW: usize = 2;

/// Renders the bar, which the page's script makes visible; none for few cells.
pub(crate) fn bar(view: &View) -> Markup {
    let mut all: Vec<&str> = view.analysis.rows.iter().flat_map(words).collect();
    all.sort_unstable();
    all.dedup();
    html! {
        @if view.rows.len() > FEW {
            div class="filter controls" role="search" aria-label="Filter cells" hidden="" {
                label { "Cells " input type="search" placeholder="all"; }
                label {
                    "Verdict "
                    select { option value="" { "any" } @for word in &all { option { (word) } } }
                }
                button type="button" { "Reset" }
                output {}
            }
        }
    }
}

/// Returns the cells with their verdicts, named as shown in the page.
pub(crate) fn data(view: &View) -> Value {
    let shown = |row: &Row| visible(&row.cell.0).into_owned();
    let cells = view.analysis.rows.iter().map(|row| (shown(row), words(row)));
    let baseline = view.baseline().map(shown);
    json!({ "baseline": baseline, "cells": cells.collect::<Vec<(String, Vec<&str>)>>() })
}

/// Returns the verdicts on a cell.
fn words(row: &Row) -> Vec<&'static str> {
    let of = |question| Some(row.comparison(question)?.verdict.word());
    Metric::MAIN.into_iter().filter_map(of).collect()
}
