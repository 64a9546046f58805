//! Tables of functions: their cost on two sides, and the ranking of both.

use crate::document::{Cell, Column, Table, Tone};
use crate::wording::figures::{self, digits, number};
use bytepath_profile::diff::{GroupTotal, LeftOut, Pair, RankingLine, Row};

/// The columns of a table of functions besides the function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Labels {
    /// Heading of the column with their group.
    pub group: Option<&'static str>,
    pub subsystem: bool,
    pub module: bool,
}

/// Builds the table of the functions of two sides, the largest change first: the total, each
/// function, and the rest.
pub(crate) fn functions(
    total: Pair,
    rows: &[Row],
    rest: Option<LeftOut>,
    Labels { group, subsystem: classed, module }: Labels,
) -> Table {
    let differ = rows.windows(2).any(|two| two[0].module != two[1].module);
    let module = module && differ;
    let intervals = total.half_width.is_some();
    let mut columns = vec![Column::words("function", 0, Some(24))];
    columns.extend(group.map(|title| Column::words(title, 0, Some(17))));
    columns.extend(amount_columns(intervals));
    columns.extend(classed.then(|| Column::words("subsystem", 2, None)));
    columns.extend(module.then(|| Column::words("module", 3, None)));
    let decimals = decimals(total);
    let cells =
        |(function, of, pair, subsystem, file, tone): (String, &str, Pair, &str, &str, Tone)| {
            let mut cells = vec![Cell::from(function).tone(tone)];
            cells.extend(group.map(|_| Cell::from(of)));
            cells.extend(amounts(pair, decimals, intervals));
            cells.extend(classed.then(|| Cell::from(subsystem).tone(Tone::Faint)));
            cells.extend(module.then(|| Cell::from(file).tone(Tone::Faint)));
            cells
        };
    let all = ("all".to_owned(), "", total, "", "", Tone::Strong);
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by(|a, b| b.amount.saved.abs().total_cmp(&a.amount.saved.abs()));
    let each = rows.into_iter().map(|row| {
        let subsystem = row.subsystem.map_or("of its caller", |s| s.name());
        let (group, file) = (row.group.as_str(), row.module.as_str());
        (row.function.clone(), group, row.amount, subsystem, file, Tone::Plain)
    });
    let rest =
        rest.map(|rest| (format!("{} more", rest.rows), "", rest.amount, "", "", Tone::Faint));
    Table::rows(columns, [all].into_iter().chain(each).chain(rest).map(cells))
}

/// Builds the table of the amounts of groups on two sides: the total, the first so many, and the
/// rest.
pub(crate) fn groups(
    total: Pair,
    (title, groups): (&'static str, &[GroupTotal]),
    most: usize,
) -> Table {
    let (decimals, intervals) = (decimals(total), total.half_width.is_some());
    let (first, others) = groups.split_at(most.min(groups.len()));
    let sum = |of: fn(&Pair) -> f64| others.iter().map(|group| of(&group.amount)).sum();
    let rest = Pair::new(sum(|pair| pair.without), sum(|pair| pair.with));
    let rest = (!others.is_empty()).then(|| (format!("{} more", others.len()), rest, Tone::Faint));
    let each = first.iter().map(|group| (group.group.clone(), group.amount, Tone::Plain));
    let rows = [("all".to_owned(), total, Tone::Strong)].into_iter().chain(each).chain(rest);
    let cells = |(name, pair, tone): (String, Pair, Tone)| {
        let mut cells = vec![Cell::from(name).tone(tone)];
        cells.extend(amounts(pair, decimals, intervals));
        cells
    };
    let mut columns = vec![Column::words(title, 0, Some(24))];
    columns.extend(amount_columns(intervals));
    Table::rows(columns, rows.map(cells))
}

/// Builds the table of both rankings side by side, by rank.
pub(crate) fn side_by_side(places: &[RankingLine], sides: [&str; 2], decimals: usize) -> Table {
    let mut columns = vec![Column::number("", "#", 0)];
    for (side, other) in sides.into_iter().zip(["to", "from"]) {
        columns.extend([
            Column::words(side, 0, Some(16)),
            Column::number("", "amount", 1),
            Column::number("", other, 0),
        ]);
    }
    let cells = |(place, line): (usize, &RankingLine)| {
        let mut cells = vec![(place.to_string(), Tone::Faint)];
        for placed in [&line.without, &line.with] {
            cells.extend(placed.as_ref().map_or_else(Default::default, |p| {
                let tone = if p.other == Some(place) { Tone::Faint } else { Tone::Plain };
                let other = p.other.map_or("-".to_owned(), |other| other.to_string());
                [
                    (p.function.clone(), tone),
                    (number(p.amount, decimals), Tone::Faint),
                    (other, tone),
                ]
            }));
        }
        cells
    };
    Table::rows(columns, (1..).zip(places).map(cells))
}

/// The meaning of the column of intervals.
pub(crate) const INTERVALS: &str = "+-: half the width of the interval of the change, \
                         Welch's at 95% over the profiles, individually; \
                         ?: the interval contains zero.";

/// Returns the columns: before, after, the change, optionally its interval, and the relative
/// change.
pub(crate) fn amount_columns(intervals: bool) -> Vec<Column> {
    let mut columns = vec![
        Column::number("", "before", 0),
        Column::number("", "after", 0),
        Column::number("", "change", 0),
    ];
    columns.extend(intervals.then(|| Column::number("", "+-", 1)));
    columns.push(Column::number("", "%", 1));
    columns
}

/// Returns the cells of [`amount_columns`].
pub(crate) fn amounts(pair: Pair, decimals: usize, intervals: bool) -> Vec<Cell> {
    let tone = match pair.saved {
        _ if pair.in_doubt() => Tone::Plain,
        s if s > 0.0 => Tone::Good,
        s if s < 0.0 => Tone::Bad,
        _ => Tone::Plain,
    };
    let mut cells = vec![
        Cell::from(number(pair.without, decimals)),
        Cell::from(number(pair.with, decimals)),
        Cell::from(signed(-pair.saved, decimals)).tone(tone),
    ];
    cells.extend(intervals.then(|| {
        let mark = if pair.in_doubt() { "?" } else { " " };
        Cell::from(format!("{}{mark}", number(pair.half_width, decimals))).tone(Tone::Faint)
    }));
    cells.push(Cell::from(relative(pair)).tone(Tone::Faint));
    cells
}

/// Formats a difference, after minus before, with its sign.
pub(crate) fn signed(change: f64, decimals: usize) -> String {
    let text = number(change.abs(), decimals);
    match text.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) {
        true if change > 0.0 => format!("+{text}"),
        true => format!("-{text}"),
        false => text,
    }
}

/// Returns the number of decimals that gives the total four significant digits.
pub(crate) fn decimals(total: Pair) -> usize {
    digits(total.with.max(total.without), 4)
}

/// Returns the change of a function in percent of its amount before.
fn relative(pair: Pair) -> String {
    match (pair.without > 0.0, pair.with > 0.0) {
        (true, true) => figures::change(pair.with / pair.without),
        (false, true) => "new".into(),
        _ => "gone".into(),
    }
}
