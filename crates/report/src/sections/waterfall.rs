//! Why cells differ: waterfalls by subsystem, the ends of each cell, functions, and the meaning of
//! well-known functions.

use super::{ends, ranking, symptoms};
use crate::document::{Block, Cell, Column, Figure, List, Mark, Media, Scale, Section};
use crate::document::{Table, Tone};
use crate::wording::explanation::{self, Kind, Step, decimals, signed, steps};
use crate::wording::figures::number;
use bytepath_profile::waterfall::{Function, Waterfall};
use bytepath_profile::{Explanation, Ranked};
use bytepath_record::joined;

const TITLE: &str = "Where the CPU time goes";

/// Most steps whose functions are listed.
const EXPLAINED: usize = 6;

/// Widths of the bars in plain text, in columns.
const BARS: usize = 32;
const BARS_OF_MAIL: usize = 18;

/// Pixels of a line of a waterfall: its height, beginning and end of its bar.
const HEIGHT: f64 = 20.0;
const BAR: (f64, f64) = (4.0, 15.0);

/// Shows waterfalls and related blocks; with functions if plain text has room for them.
pub(crate) fn section(explanation: &Explanation, with_functions: bool) -> Section {
    let mut section = Section::new("why", TITLE);
    for waterfall in &explanation.waterfalls {
        let (before, after) = (&waterfall.before.cell, &waterfall.after.cell);
        let title = format!("{TITLE}: {after} against {before}");
        section.add(Block::Heading(title, Some(after.clone())));
        section.text("", explanation::words(waterfall, explanation.functional));
        section.add(Block::Gap);
        section.add(figure(waterfall));
        section.add(Block::Gap);
        if with_functions {
            section.add_on(Media::PLAIN, functions(waterfall));
            section.add(Block::Gap);
        }
        section.text("", explanation::check(waterfall));
        section.text("", explanation::packets(waterfall).unwrap_or_default());
        section.add_on(Media::PAGE, numbers(waterfall));
    }
    ends::add(&mut section, &explanation.ends);
    let remarks = explanation::remarks(explanation);
    if let Some(first) = explanation.waterfalls.first() {
        section.add(Block::Gap);
        section.text("", explanation::rule(first));
    }
    remarks.iter().for_each(|line| section.text("", line));
    section
}

/// Shows the meaning of well-known functions, then the functions of two cells, most saved first.
/// With many pairs, plain text shows them only in detail, because the waterfalls suffice.
pub(crate) fn functions_of(explanation: &Explanation) -> Section {
    let mut section = Section::new("ranking", "Functions");
    for ranked in &explanation.ranked {
        let title = "Functions, the largest change first";
        section.add_on(Media::PLAIN, Block::Heading(title.into(), None));
        let names = format!("{} against {}", ranked.with, ranked.without);
        let heading = Block::Heading(names.clone(), Some(ranked.with.clone()));
        section.add_on(Media::PAGE, heading);
        let Ranked { unit, with, without, .. } = ranked;
        section.text("", format!("{unit}; before: {without}, after: {with}."));
        section.add(Block::Gap);
        let Ranked { total, rows, left_out, .. } = ranked;
        let labels = ranking::Labels { subsystem: true, ..Default::default() };
        let table = ranking::functions(*total, rows, *left_out, labels);
        section.add(table.folded(&format!("{title}: {names}")));
        section.text("  ", "Self time; change = after - before.");
        if ranked.total.half_width.is_some() {
            section.text("  ", ranking::INTERVALS);
        }
        let decimals = ranking::decimals(ranked.total);
        let both = ranking::side_by_side(&ranked.places, [without, with], decimals);
        let both = both.folded(&format!("Functions side by side: {without} and {with}"));
        section.add_on(Media::PAGE, both);
    }
    section
}

pub(crate) fn symptoms_of(explanation: &Explanation) -> Section {
    symptoms::section(&explanation.symptoms.seen, &explanation.symptoms.cells)
}

fn figure(waterfall: &Waterfall) -> Figure {
    let columns = [
        Column::words(&waterfall.unit, 0, Some(16)),
        Column::number("", "amount", 0),
        Column::number("", "interval", 1),
        Column::words("", 2, None).on(Media::TERMINAL),
        Column::words("", 2, None).on(Media::MAIL),
    ];
    let steps = steps(waterfall);
    let most = steps.iter().map(|step| step.span.0.max(step.span.1)).fold(0.0, f64::max);
    let digits = decimals(waterfall);
    let cells = |step: &Step| {
        let tone = match (step.kind, step.resolved) {
            (Kind::Cost, _) => Tone::Strong,
            (_, true) if step.amount < 0.0 => Tone::Good,
            (_, true) => Tone::Bad,
            _ => Tone::Plain,
        };
        let bar = |width| Cell::from(printed(step, most, width, digits)).tone(tone);
        [
            Cell::from(step.title.clone()).strong_if(step.kind == Kind::Cost),
            Cell::from(step.amount(digits)).tone(tone),
            Cell::from(step.interval(digits)).tone(Tone::Faint),
            bar(BARS),
            bar(BARS_OF_MAIL),
        ]
    };
    let table = Table::rows(columns, steps.iter().map(cells));
    let ends = steps.iter().flat_map(|step| [step.span.0, step.span.1]);
    let scale = Scale::over(ends.chain([0.0]));
    let marks = steps.iter().map(|step| vec![bar(step, digits)]);
    let (before, after) = (&waterfall.before.cell, &waterfall.after.cell);
    let caption = format!(
        "{}, from the cost of {before} to that of {after}. A step is pale if it is not \
         significant among all of them.",
        waterfall.unit
    );
    Figure::rows(caption, table, (scale, HEIGHT), marks)
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
    let tip = format!("{}: {} {}", step.title, step.amount(digits), step.interval(digits));
    Mark::bar(class, (low, BAR.0), (high, BAR.1)).tip(tip.trim_end().to_owned())
}

/// Prints the bar of a step as characters, positioned between 0 and `most`. `#` is a cost, `-`
/// less, `+` more; the interval shows whether a step is significant.
fn printed(step: &Step, most: f64, width: usize, digits: usize) -> String {
    let is_zero = number(step.amount, digits) == number(0.0, digits);
    if is_zero || !(most > 0.0 && most.is_finite()) {
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

/// Returns the functions of the largest steps.
fn functions(waterfall: &Waterfall) -> List {
    let digits = decimals(waterfall);
    let steps = steps(waterfall);
    let parts = steps.iter().filter(|step| !step.functions.is_empty());
    let line = |step: &Step| {
        let least = 0.5 * 0.1f64.powi(digits as i32);
        let large = step.functions.iter().filter(|f| (f.after - f.before).abs() >= least);
        let functions = large.map(|f| {
            format!("{} {} to {}", f.name, number(f.before, digits), number(f.after, digits))
        });
        let functions = joined(functions, ", ");
        (!functions.is_empty()).then(|| format!("{}: {functions}", step.title))
    };
    List::of(parts.take(EXPLAINED).filter_map(line))
}

/// Builds a table of every subsystem with its functions.
fn numbers(waterfall: &Waterfall) -> Table {
    let digits = decimals(waterfall) + 1;
    let (before, after) = (&waterfall.before.cell, &waterfall.after.cell);
    let table = Table::of(
        waterfall.parts.iter().map(|part| (part, digits)),
        [
            (Column::words("subsystem", 0, None), |(part, _)| part.subsystem.title().to_owned()),
            (Column::number("", before, 0), |(part, digits)| number(part.before, *digits)),
            (Column::number("", after, 0), |(part, digits)| number(part.after, *digits)),
            (Column::number("", "change", 0), |(part, digits)| signed(part.change.mean, *digits)),
            (Column::number("", "interval", 0), |(part, digits)| {
                let half = part.change.half_width;
                half.map_or("-".into(), |half| format!("+-{}", number(half, *digits)))
            }),
            (Column::words("functions", 0, None), |(part, digits)| {
                let change = |f: &Function| signed(f.after - f.before, *digits);
                joined(part.functions.iter().map(|f| format!("{} {}", f.name, change(f))), ", ")
            }),
        ],
    );
    table.folded(&format!("{after} against {before} in numbers, with the functions behind them"))
}
