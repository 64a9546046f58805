//! The difference of two profiles as a table.

use crate::Style;
use crate::figures::{amount, digits, number, percent, plural};
use crate::page::{Page, Tone};
use crate::symptoms;
use crate::table::{Column, Table};
use bytepath_profile::Ranked;
use bytepath_profile::diff::{Diff, GroupBy, Measure, Pair, Placed, Places, Side};
use std::io::{self, Write};

/// Names in the lists of what appeared and what vanished.
const NAMES: usize = 12;

/// Prints the difference of two profiles.
pub fn difference(diff: &Diff, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut page = Page::new(style.width, style.colour);
    put_difference(&mut page, diff);
    page.finish(out)
}

/// Puts the difference of two profiles on a page.
pub(crate) fn put_difference(page: &mut Page, diff: &Diff) {
    heading(page, diff);
    table(page, diff);
    remarks(page, diff);
}

/// Prints the functions that take most on each side of a difference, in two columns.
pub fn side_by_side(
    diff: &Diff,
    places: &[Places],
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut page = Page::new(style.width, style.colour);
    heading(&mut page, diff);
    columns(&mut page, places, decimals(diff.total));
    page.text("", "to, from: the rank on the other side; -: it takes no time there");
    diff.notes.iter().for_each(|note| page.text("note: ", note));
    page.finish(out)
}

/// Both rankings, place by place.
fn columns(page: &mut Page, places: &[Places], decimals: usize) {
    let mut columns = vec![Column::number("", "#", 0)];
    for (side, other) in [("without", "to"), ("with", "from")] {
        columns.extend([
            Column::words(side, 0, Some(16)),
            Column::number("", "amount", 1),
            Column::number("", other, 0),
        ]);
    }
    let mut table = Table::new(columns);
    for (place, line) in (1..).zip(places) {
        let mut cells = vec![(format!("{place}"), Tone::Faint)];
        for placed in [&line.without, &line.with] {
            let tone = |p: &Placed| if p.other == Some(place) { Tone::Faint } else { Tone::Plain };
            let [function, amount, other] = match placed {
                None => [String::new(), String::new(), String::new()],
                Some(p) => [
                    p.function.clone(),
                    number(p.amount, decimals),
                    p.other.map_or("-".to_owned(), |other| other.to_string()),
                ],
            };
            let tone = placed.as_ref().map_or(Tone::Plain, tone);
            cells.extend([(function, tone), (amount, Tone::Faint), (other, tone)]);
        }
        table.row(cells);
    }
    table.print(page, 0);
}

/// Puts the functions of two cells on a page, most saved first.
pub(crate) fn ranked(page: &mut Page, ranked: &Ranked) {
    page.heading("Functions, most saved first");
    let text = format!("{}; with: {}, without: {}.", ranked.unit, ranked.with, ranked.without);
    page.text("", &text);
    page.gap();
    let mut columns = vec![Column::words("function", 0, Some(24))];
    let intervals = ranked.total.half_width.is_some();
    columns.extend(amount_columns(intervals));
    columns.push(Column::words("subsystem", 2, None));
    let mut table = Table::new(columns);
    let decimals = decimals(ranked.total);
    let mut add = |function: &str, pair: Pair, subsystem: &str, tone: Tone| {
        let mut cells = vec![(function.to_owned(), tone)];
        cells.extend(amounts(pair, decimals, intervals));
        cells.push((subsystem.to_owned(), Tone::Faint));
        table.row(cells);
    };
    add("all", ranked.total, "", Tone::Strong);
    for row in &ranked.rows {
        add(
            &row.function,
            row.amount,
            row.subsystem.map_or("of its caller", |s| s.name()),
            Tone::Plain,
        );
    }
    if let Some(left) = ranked.left_out {
        add(&format!("{} more", left.rows), left.amount, "", Tone::Faint);
    }
    table.print(page, 2);
    page.text("  ", "Of each function its own code; saved = without - with.");
    if intervals {
        page.text("  ", INTERVALS);
    }
}

/// What the column of intervals holds.
const INTERVALS: &str = "+-: half the width of the interval of what is saved, \
                         Welch's at 95% over the profiles, individually; \
                         ?: the interval contains zero.";

/// With, without, saved, perhaps its interval, change.
fn amount_columns(intervals: bool) -> Vec<Column> {
    let mut columns = vec![
        Column::number("", "with", 0),
        Column::number("", "without", 0),
        Column::number("", "saved", 0),
    ];
    columns.extend(intervals.then(|| Column::number("", "+-", 1)));
    columns.push(Column::number("", "change", 1));
    columns
}

/// The cells of [`amount_columns`].
fn amounts(pair: Pair, decimals: usize, intervals: bool) -> Vec<(String, Tone)> {
    let saved = match pair.saved {
        _ if pair.in_doubt() => Tone::Plain,
        s if s > 0.0 => Tone::Good,
        s if s < 0.0 => Tone::Bad,
        _ => Tone::Plain,
    };
    let mut cells = vec![
        (number(pair.with, decimals), Tone::Plain),
        (number(pair.without, decimals), Tone::Plain),
        (number(pair.saved, decimals), saved),
    ];
    cells.extend(intervals.then(|| {
        let mark = if pair.in_doubt() { "?" } else { " " };
        (format!("{}{mark}", number(pair.half_width, decimals)), Tone::Faint)
    }));
    cells.push((change(pair), Tone::Faint));
    cells
}

fn heading(page: &mut Page, diff: &Diff) {
    let what = match diff.measure {
        Measure::SelfOnly => "each function's own code",
        Measure::Total => "each function with all that it called",
    };
    page.text("", &format!("{} by function: {what}; saved = without - with.", diff.unit));
    page.text("without  ", &side(&diff.without));
    page.text("with     ", &side(&diff.with));
    page.gap();
}

fn side(side: &Side) -> String {
    let mut text = format!("{}: {} samples", titles(&side.profiles), side.samples);
    if !side.event.is_empty() {
        text += &format!(" of {}", side.event);
    }
    if let Some(bytes) = side.bytes {
        text += &format!(", {} GiB", number(bytes / bytepath_record::unit::GIB, 2));
    }
    if let Some(packets) = side.packets {
        text += &format!(", {} packets", amount(packets));
    }
    if let Some(seconds) = side.seconds {
        text += &format!(", {} s", number(seconds, 1));
    }
    text
}

/// The titles of a side's profiles: those that differ in the number of the trial alone,
/// `socket (1)` and `socket (2)`, are reported once.
fn titles(titles: &[String]) -> String {
    let numbered = |title: &'_ String| {
        let (name, number) = title.strip_suffix(')')?.rsplit_once(" (")?;
        let whole = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        whole.then(|| (name.to_owned(), number.to_owned()))
    };
    let split: Option<Vec<(String, String)>> = titles.iter().map(numbered).collect();
    match split.as_deref() {
        Some([(name, first), .., (_, last)]) if split.iter().flatten().all(|(n, _)| n == name) => {
            format!("{name} ({first} .. {last}, {} profiles)", titles.len())
        }
        _ => titles.join(", "),
    }
}

fn table(page: &mut Page, diff: &Diff) {
    let group = match diff.by {
        GroupBy::None => None,
        GroupBy::Thread => Some("thread"),
        GroupBy::Role => Some("role"),
        GroupBy::Subsystem => Some("subsystem"),
    };
    let mut columns = vec![Column::words("function", 0, Some(24))];
    columns.extend(group.map(|title| Column::words(title, 0, Some(17))));
    let intervals = diff.total.half_width.is_some();
    columns.extend(amount_columns(intervals));
    let classed = diff.by != GroupBy::Subsystem;
    columns.extend(classed.then(|| Column::words("subsystem", 2, None)));
    let decimals = decimals(diff.total);
    let mut table = Table::new(columns);
    let mut add = |function: &str, of: &str, pair: Pair, subsystem: &str, tone: Tone| {
        let mut cells = vec![(function.to_owned(), tone)];
        cells.extend(group.map(|_| (of.to_owned(), Tone::Plain)));
        cells.extend(amounts(pair, decimals, intervals));
        cells.extend(classed.then(|| (subsystem.to_owned(), Tone::Faint)));
        table.row(cells);
    };
    add("all", "", diff.total, "", Tone::Strong);
    for row in &diff.rows {
        let subsystem = row.subsystem.map_or("of its caller", |s| s.name());
        add(&row.function, &row.group, row.amount, subsystem, Tone::Plain);
    }
    if let Some(left) = diff.left_out {
        // Totals of functions hold each other and do not add up.
        let what = format!("{} more", left.rows);
        match diff.measure {
            Measure::SelfOnly => add(&what, "", left.amount, "", Tone::Faint),
            Measure::Total => {}
        }
    }
    table.print(page, 0);
    if let (Some(left), Measure::Total) = (diff.left_out, diff.measure) {
        page.text("", &format!("and {} more", plural(left.rows as u64, "row")));
    }
}

/// Decimal digits, so that the total has four significant ones.
fn decimals(total: Pair) -> usize {
    digits(total.with.max(total.without), 4)
}

/// The change of a function, as a part of what it took before.
fn change(pair: Pair) -> String {
    if pair.without > 0.0 && pair.with > 0.0 {
        crate::figures::change(pair.with / pair.without)
    } else if pair.with > 0.0 {
        "new".into()
    } else {
        "gone".into()
    }
}

fn remarks(page: &mut Page, diff: &Diff) {
    page.gap();
    if diff.total.half_width.is_some() {
        page.text("", INTERVALS);
    }
    for (names, lead) in
        [(&diff.appeared, "appeared (only with): "), (&diff.vanished, "vanished (only without): ")]
    {
        if names.is_empty() {
            continue;
        }
        let more = names.len().saturating_sub(NAMES);
        let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
        let shown = names.get(..NAMES).unwrap_or(names).join(", ");
        page.text("", &format!("{lead}{shown}{tail}"));
    }
    let digits = decimals(diff.total);
    for (what, apart) in [("idle", diff.idle), ("foreign threads", diff.foreign)] {
        if let Some(Pair { with, without, .. }) = apart {
            let (with, without) = (number(with, digits), number(without, digits));
            page.text("", &format!("{what}, not in the table: {with} with, {without} without"));
        }
    }
    if let Some(part) = diff.classified {
        page.text("", &format!("{} of the kernel's time is in a named subsystem", percent(part)));
    }
    for note in &diff.notes {
        page.text("note: ", note);
    }
    symptoms::print(page, &diff.symptoms, &["without", "with"]);
}
