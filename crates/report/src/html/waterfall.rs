//! Why cells differ: waterfalls, functions, and flame graphs.

use super::plot::{self, Mark};
use super::scale::Scale;
use super::{flame, tables};
use crate::ends;
use crate::explanation::{self, Kind, Step, decimals, signed, steps};
use crate::figures::{digits, number, percent};
use crate::symptoms;
use bytepath_profile::diff::{Pair, Placed};
use bytepath_profile::waterfall::Waterfall;
use bytepath_profile::{Explanation, Ranked, Symptoms};
use maud::{Markup, html};

/// Pixels of a line of a waterfall: its height, where its bar begins and ends.
const HEIGHT: f64 = 20.0;
const BAR: (f64, f64) = (4.0, 15.0);

/// The section of a page; none where there is nothing to explain.
pub(crate) fn section(explanation: &Explanation) -> Option<Markup> {
    let (rule, remarks) =
        (explanation.waterfalls.first().map(explanation::rule), explanation::remarks(explanation));
    let symptoms = &explanation.symptoms;
    let ends = &explanation.ends;
    if rule.is_none() && remarks.is_empty() && symptoms.seen.is_empty() && ends.is_empty() {
        return None;
    }
    Some(html! {
        @for waterfall in &explanation.waterfalls { (figure(waterfall, explanation.functional)) }
        @for line in rule.iter().chain(&remarks) { p class="note" { (line) } }
        @if !symptoms.seen.is_empty() { (symptom_table(symptoms)) }
        @for grid in ends::grids(ends) { h3 { (grid.title) } (tables::grid(&grid)) }
        @for ranked in &explanation.ranked {
            (ranking(ranked))
            @if !ranked.places.is_empty() { (side_by_side(ranked)) }
        }
        (flame::graphs(&explanation.charts))
    })
}

/// What well-known functions mean, cell by cell.
fn symptom_table(found: &Symptoms) -> Markup {
    html! {
        h3 { (symptoms::TITLE) }
        p class="note" { (symptoms::NOTE) }
        div class="scroll" {
            table class="sortable" {
                thead { tr {
                    th { "symptom" }
                    @for cell in &found.cells { th class="n" { (cell) } }
                    th { "what it means, what to try" }
                } }
                tbody {
                    @for seen in &found.seen {
                        tr {
                            th scope="row" { (seen.name) }
                            @for share in &seen.shares {
                                td class="n" data-v=(sortable(*share)) { (percent(*share)) }
                            }
                            td class="w" {
                                @for (i, name) in seen.functions.iter().enumerate() {
                                    @if i > 0 { ", " }
                                    code { (name) }
                                }
                                ": " (seen.means) ". Try: " (seen.remedy) "."
                            }
                        }
                    }
                }
            }
        }
    }
}

fn figure(waterfall: &Waterfall, functional: bool) -> Markup {
    let steps = steps(waterfall);
    let ends = steps.iter().flat_map(|step| [step.span.0, step.span.1]);
    let scale = Scale::over(ends.chain([0.0]));
    let digits = decimals(waterfall);
    html! {
        div data-cell=(waterfall.after.cell) {
        h3 { (waterfall.after.cell) " against " (waterfall.before.cell) }
        p { (explanation::words(waterfall, functional)) }
        figure {
            figcaption {
                (waterfall.unit) ", from the cost of " (waterfall.before.cell) " to that of "
                (waterfall.after.cell) ". A step is pale if it is not significant among all of them. "
                (explanation::check(waterfall))
                @if let Some(text) = explanation::packets(waterfall) { " " (text) }
            }
            table class="plot" {
                thead { tr {
                    th { "step" } th class="g" { (plot::head(&scale)) }
                    th class="n" { "amount" } th class="n" { "interval" }
                } }
                tbody {
                    @for step in &steps {
                        tr {
                            th scope="row" { (step.title) }
                            td class="g" { (plot::row(&scale, HEIGHT, vec![bar(step, digits)])) }
                            td class="n" data-h="amount" { (minus(&step.amount(digits))) }
                            td class="n" data-h="interval" { (minus(&step.interval(digits))) }
                        }
                    }
                }
            }
            (numbers(waterfall))
        }
        }
    }
}

fn bar(step: &Step, digits: usize) -> Mark {
    let class = match (step.kind, step.amount < 0.0, step.resolved) {
        (Kind::Cost, _, _) => "cost",
        (_, true, true) => "less",
        (_, true, false) => "less unsure",
        (_, false, true) => "more",
        (_, false, false) => "more unsure",
    };
    let (low, high) = (step.span.0.min(step.span.1), step.span.0.max(step.span.1));
    let words = format!("{}: {} {}", step.title, step.amount(digits), step.interval(digits));
    Mark::bar(class, (low, BAR.0), (high, BAR.1)).says(minus(words.trim_end()))
}

/// Every subsystem with its functions, as a table.
fn numbers(waterfall: &Waterfall) -> Markup {
    let digits = decimals(waterfall) + 1;
    html! {
        details {
            summary { (waterfall.after.cell) " against " (waterfall.before.cell) " in numbers, with the functions behind them" }
            div class="scroll" {
                table class="sortable" {
                    thead { tr {
                        th { "subsystem" } th class="n" { (waterfall.before.cell) } th class="n" { (waterfall.after.cell) }
                        th class="n" { "change" } th class="n" { "interval" } th { "functions" }
                    } }
                    tbody {
                        @for part in &waterfall.parts {
                            tr {
                                th scope="row" { (part.subsystem.title()) }
                                td class="n" { (number(part.before, digits)) }
                                td class="n" { (number(part.after, digits)) }
                                td class="n" data-v=(sortable(part.change.mean)) { (minus(&signed(part.change.mean, digits))) }
                                td class="n" {
                                    @match part.change.half_width {
                                        Some(half) => { "\u{b1}" (number(half, digits)) }
                                        None => { "-" }
                                    }
                                }
                                td class="w" {
                                    @for (i, f) in part.functions.iter().enumerate() {
                                        @if i > 0 { ", " }
                                        code { (f.name) } " " (minus(&signed(f.after - f.before, digits)))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The functions of two cells, most saved first.
fn ranking(ranked: &Ranked) -> Markup {
    let digits = digits(ranked.total.with.max(ranked.total.without), 4);
    let intervals = ranked.total.half_width.is_some();
    let amounts = |pair: &Pair| {
        html! {
            @for value in [pair.with, pair.without, pair.saved] {
                td class="n" data-v=(sortable(value)) { (minus(&number(value, digits))) }
            }
            @if intervals {
                td class="n" data-v=(sortable(pair.half_width.unwrap_or(0.0))) {
                    @match pair.half_width {
                        Some(half) => { "\u{b1}" (number(half, digits)) }
                        None => { "-" }
                    }
                }
            }
        }
    };
    html! {
        details data-cell=(ranked.with) {
            summary { "Functions, most saved first: " (ranked.with) " against " (ranked.without) }
            p class="note" { (ranked.unit) "; of each function its own code; saved = without \u{2212} with." }
            div class="scroll" {
                table class="sortable" {
                    thead { tr {
                        th { "function" } th class="n" { "with" } th class="n" { "without" }
                        th class="n" { "saved" }
                        @if intervals { th class="n" { "interval" } }
                        th { "subsystem" }
                    } }
                    tbody {
                        @for row in &ranked.rows {
                            tr {
                                th scope="row" { code { (row.function) } }
                                (amounts(&row.amount))
                                td { (row.subsystem.map_or("of its caller", |s| s.name())) }
                            }
                        }
                        @if let Some(left) = &ranked.left_out {
                            tr {
                                th scope="row" { (left.rows) " more" }
                                (amounts(&left.amount))
                                td {}
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The functions that take most in each of two cells, in two columns.
fn side_by_side(ranked: &Ranked) -> Markup {
    let digits = digits(ranked.total.with.max(ranked.total.without), 4);
    let placed = |placed: &Option<Placed>, place: usize| {
        html! {
            @match placed {
                Some(p) => {
                    td { code { (p.function) } }
                    td class="n" data-v=(sortable(p.amount)) { (number(p.amount, digits)) }
                    td class="n" data-v=(p.other.unwrap_or(usize::MAX)) {
                        @match p.other {
                            Some(other) if other == place => { "=" }
                            Some(other) => { (other) }
                            None => { "-" }
                        }
                    }
                }
                None => { td {} td {} td {} }
            }
        }
    };
    html! {
        details data-cell=(ranked.with) {
            summary { "Functions side by side: " (ranked.without) " and " (ranked.with) }
            p class="note" {
                (ranked.unit) "; each cell's own ranking; to, from: the rank in the other, = the "
                "same, - it takes no time there."
            }
            div class="scroll" {
                table class="sortable" {
                    thead { tr {
                        th class="n" { "place" }
                        th { (ranked.without) } th class="n" { "amount" } th class="n" { "to" }
                        th { (ranked.with) } th class="n" { "amount" } th class="n" { "from" }
                    } }
                    tbody {
                        @for (place, line) in (1..).zip(&ranked.places) {
                            tr {
                                th scope="row" class="n" { (place) }
                                (placed(&line.without, place)) (placed(&line.with, place))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A minus as long as a plus.
fn minus(text: &str) -> String {
    text.replace('-', "\u{2212}").replace("+\u{2212}", "\u{b1}").replace("..", "\u{2026}")
}

/// A number that the page's script can sort by.
fn sortable(value: f64) -> String {
    if value.is_finite() { format!("{value}") } else { "0".into() }
}
