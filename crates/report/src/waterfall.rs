//! Waterfalls in plain text: shared by the formats that are plain.

use super::ends;
use super::explanation::{self, Kind, Step, decimals, steps};
use super::figures::number;
use super::page::{Page, Tone};
use super::symptoms;
use super::table::{Column, Table};
use bytepath_profile::Explanation;
use bytepath_profile::waterfall::Waterfall;

/// Steps whose functions are listed.
const EXPLAINED: usize = 6;

/// Puts the explanation on a page, with bars of this many columns.
pub(crate) fn print(page: &mut Page, explanation: &Explanation, bar: usize, functions: bool) {
    for waterfall in &explanation.waterfalls {
        let (before, after) = (&waterfall.before.cell, &waterfall.after.cell);
        page.heading(&format!("Where the CPU time goes: {after} against {before}"));
        page.text("", &explanation::words(waterfall, explanation.functional));
        page.gap();
        table(page, waterfall, bar);
        page.gap();
        if functions {
            list_functions(page, waterfall);
        }
        page.text("", &explanation::check(waterfall));
        if let Some(text) = explanation::packets(waterfall) {
            page.text("", &text);
        }
    }
    ends::grids(&explanation.ends).iter().for_each(|grid| grid.print(page));
    let remarks = explanation::remarks(explanation);
    match explanation.waterfalls.first() {
        Some(first) => {
            page.gap();
            page.text("", &explanation::rule(first));
        }
        None if !remarks.is_empty() => page.heading("Where the CPU time goes"),
        None => {}
    }
    for line in remarks {
        page.text("", &line);
    }
    symptoms::print(page, &explanation.symptoms.seen, &explanation.symptoms.cells);
}

fn table(page: &mut Page, waterfall: &Waterfall, bar: usize) {
    let mut table = Table::new(vec![
        Column::words(&waterfall.unit, 0, Some(16)),
        Column::number("", "amount", 0),
        Column::number("", "interval", 1),
        Column::words("", 2, None),
    ]);
    let steps = steps(waterfall);
    let most = steps.iter().map(|step| step.span.0.max(step.span.1)).fold(0.0, f64::max);
    let digits = decimals(waterfall);
    for step in &steps {
        let tone = match (step.kind, step.resolved) {
            (Kind::Cost, _) => Tone::Strong,
            (_, true) if step.amount < 0.0 => Tone::Good,
            (_, true) => Tone::Bad,
            _ => Tone::Plain,
        };
        table.row(vec![
            (step.title.clone(), if step.kind == Kind::Cost { tone } else { Tone::Plain }),
            (step.amount(digits), tone),
            (step.interval(digits), Tone::Faint),
            (drawn(step, most, bar, digits), tone),
        ]);
    }
    table.print(page, 2);
}

/// The bar of a step: where it begins and ends between 0 and `most`. `#` is a
/// cost, `-` less, `+` more; the interval shows whether a step is significant.
fn drawn(step: &Step, most: f64, width: usize, digits: usize) -> String {
    let zero = number(step.amount, digits) == number(0.0, digits);
    if zero || !(most > 0.0 && most.is_finite()) {
        return String::new();
    }
    let column = |at: f64| ((at / most).clamp(0.0, 1.0) * width as f64).round() as usize;
    let (from, to) = step.span;
    let (low, high) = (column(from.min(to)), column(from.max(to)));
    let sign = match step.kind {
        Kind::Cost => "#",
        _ if step.amount < 0.0 => "-",
        _ => "+",
    };
    format!("{}{}", " ".repeat(low), sign.repeat((high - low).max(1)))
}

/// The functions that make up the largest steps.
fn list_functions(page: &mut Page, waterfall: &Waterfall) {
    let digits = decimals(waterfall);
    let steps = steps(waterfall);
    let parts = steps.iter().filter(|step| !step.functions.is_empty());
    for step in parts.take(EXPLAINED) {
        let functions: Vec<String> = step
            .functions
            .iter()
            .filter(|f| (f.after - f.before).abs() >= 0.5 * 0.1f64.powi(digits as i32))
            .map(|f| {
                format!("{} {} to {}", f.name, number(f.before, digits), number(f.after, digits))
            })
            .collect();
        if !functions.is_empty() {
            page.text(&format!("  {}: ", step.title), &functions.join(", "));
        }
    }
    page.gap();
}
