//! Tables of functions: what each costs on two sides, and the ranking of both.

use crate::document::{Cell, Column, Table, Tone};
use crate::wording::figures::{self, digits, number};
use bytepath_profile::Ranked;
use bytepath_profile::diff::{Pair, Placed, RankingLine};

/// The functions of two cells, most saved first.
pub(crate) fn ranking(ranked: &Ranked) -> Table {
    let mut columns = vec![Column::words("function", 0, Some(24))];
    let intervals = ranked.total.half_width.is_some();
    columns.extend(amount_columns(intervals));
    columns.push(Column::words("subsystem", 2, None));
    let mut table = Table::new(columns);
    let decimals = decimals(ranked.total);
    let mut add = |function: &str, pair: Pair, subsystem: &str, tone: Tone| {
        let mut cells = vec![Cell::from(function).tone(tone)];
        cells.extend(amounts(pair, decimals, intervals));
        cells.push(Cell::from(subsystem).tone(Tone::Faint));
        table.row(cells);
    };
    add("all", ranked.total, "", Tone::Strong);
    for row in &ranked.rows {
        let subsystem = row.subsystem.map_or("of its caller", |s| s.name());
        add(&row.function, row.amount, subsystem, Tone::Plain);
    }
    if let Some(left) = ranked.left_out {
        add(&format!("{} more", left.rows), left.amount, "", Tone::Faint);
    }
    table
}

/// Both rankings, place by place.
pub(crate) fn side_by_side(places: &[RankingLine], sides: [&str; 2], decimals: usize) -> Table {
    let mut columns = vec![Column::number("", "#", 0)];
    for (side, other) in sides.into_iter().zip(["to", "from"]) {
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
    table
}

/// What the column of intervals holds.
pub(crate) const INTERVALS: &str = "+-: half the width of the interval of what is saved, \
                         Welch's at 95% over the profiles, individually; \
                         ?: the interval contains zero.";

/// With, without, saved, perhaps its interval, change.
pub(crate) fn amount_columns(intervals: bool) -> Vec<Column> {
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
pub(crate) fn amounts(pair: Pair, decimals: usize, intervals: bool) -> Vec<Cell> {
    let saved = match pair.saved {
        _ if pair.in_doubt() => Tone::Plain,
        s if s > 0.0 => Tone::Good,
        s if s < 0.0 => Tone::Bad,
        _ => Tone::Plain,
    };
    let mut cells = vec![
        Cell::from(number(pair.with, decimals)),
        Cell::from(number(pair.without, decimals)),
        Cell::from(number(pair.saved, decimals)).tone(saved),
    ];
    cells.extend(intervals.then(|| {
        let mark = if pair.in_doubt() { "?" } else { " " };
        Cell::from(format!("{}{mark}", number(pair.half_width, decimals))).tone(Tone::Faint)
    }));
    cells.push(Cell::from(change(pair)).tone(Tone::Faint));
    cells
}

/// Decimal digits, so that the total has four significant ones.
pub(crate) fn decimals(total: Pair) -> usize {
    digits(total.with.max(total.without), 4)
}

/// The change of a function, as a part of what it took before.
fn change(pair: Pair) -> String {
    if pair.without > 0.0 && pair.with > 0.0 {
        figures::change(pair.with / pair.without)
    } else if pair.with > 0.0 {
        "new".into()
    } else {
        "gone".into()
    }
}
