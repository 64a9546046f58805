//! Published works: their figures, and the comparison of a study with their ratios.

use crate::document::{Cell, Column, Document, Table, Tone};
use crate::wording::figures::{NONE, amount, interval, plural, ratio, ratio_text};
use crate::wording::setup::pairs as levels;
use bytepath_record::{Published, PublishedFigure, ReadFrom};
use bytepath_stats::{
    Agreement, FigureComparison, NumberComparison, PublishedComparison, RowComparison,
};

/// Marks a number that was read from a chart.
const CHART: &str = "*";

/// Shows a work with all of its figures.
pub fn published(work: &Published) -> Document {
    let mut page = Document::default();
    heading(&mut page, work);
    work.figures.iter().for_each(|figure| numbers(&mut page, figure));
    footnote(&mut page);
    page
}

/// Shows the comparison of a study, called `name`, with a published work.
pub fn published_comparison(
    work: &Published,
    name: &str,
    comparison: &PublishedComparison,
) -> Document {
    let mut page = Document::default();
    heading(&mut page, work);
    page.text("ours         ", name);
    comparison.figures.iter().for_each(|figure| ratios(&mut page, figure));
    if !comparison.numbers.is_empty() {
        side_by_side(&mut page, &comparison.numbers);
    }
    page.gap();
    let [agree, disagree, not] = comparison.counts();
    if agree + disagree + not > 0 {
        let all = plural((agree + disagree + not) as u64, "published ratio");
        let text =
            format!("Of {all} {agree} agree, {disagree} disagree, {not} are not measured here.");
        page.text("", text);
        disagreements(comparison).for_each(|line| page.text("  - ", line));
        page.text(
            "",
            "A published ratio agrees if it lies in the interval of ours (an individual \
             interval); the uncertainty of the published ratio is unknown.",
        );
    }
    footnote(&mut page);
    if !comparison.not_compared.is_empty() {
        let more = plural(comparison.not_compared.len() as u64, "figure");
        let text = format!("{more} without a ratio of rates: leave the study out to see them.");
        page.text("", text);
    }
    page
}

fn heading(page: &mut Document, work: &Published) {
    let year = work.year.map_or(String::new(), |year| format!(" ({year})"));
    page.heading(format!("{}{year}", work.title));
    page.text("by           ", &work.by);
    page.text("read from    ", format!("{}, {}", work.source, work.link));
    page.text("measured on  ", &work.setup);
    work.notes.iter().for_each(|note| page.text("note         ", note));
}

fn footnote(page: &mut Document) {
    let text = format!("{CHART} marks numbers read from a chart; all others are printed in text.");
    page.text("", text);
}

/// Returns a number as it was published.
fn value(value: f64, read: ReadFrom) -> String {
    let mark = if read == ReadFrom::Chart { CHART } else { "" };
    format!("{value}{mark}")
}

/// Adds a figure as it was published.
fn numbers(page: &mut Document, figure: &PublishedFigure) {
    page.heading(format!("{}: {}", figure.id, figure.title));
    if !figure.at.is_empty() {
        page.text("  ", levels(&figure.at));
    }
    let columns = figure.columns.iter().enumerate().map(|(at, column)| {
        let title = format!("{} [{}]", column.quantity, column.unit);
        Column::number("", &title, u8::try_from(at).unwrap_or(u8::MAX))
    });
    let columns = [Column::words("levels", 0, Some(24))].into_iter().chain(columns);
    let rows = figure.rows.iter().map(|row| {
        let read = row.read.unwrap_or(figure.read);
        [levels(&row.at)]
            .into_iter()
            .chain(row.values.iter().map(move |number| value(*number, read)))
    });
    page.add(Table::rows(columns, rows));
}

/// Adds the ratios of a figure next to the study's.
fn ratios(page: &mut Document, figure: &FigureComparison) {
    page.heading(format!("{}: {}", figure.id, figure.title));
    page.text("  ", format!("over {}; {}", levels(&figure.baseline), levels(&figure.at)));
    page.add(Table::of(
        figure.rows.iter().map(|row| (row, row.ours.as_ref())),
        [
            (Column::words("levels", 0, Some(20)), |(row, _)| levels(&row.at).into()),
            (Column::number("", &figure.unit, 3), |(row, _)| value(row.theirs, row.read).into()),
            (Column::number("", "theirs", 0), |(row, _)| ratio(row.their_ratio).into()),
            (Column::number("", "ours", 0), |(_, ours)| ratio(ours.map(|e| e.ratio)).into()),
            (Column::words("interval", 1, None), |(_, ours)| {
                let range = ours.and_then(|effect| effect.interval);
                range.map_or(NONE.into(), |i| interval(i.low, i.high)).into()
            }),
            (Column::words("", 0, Some(16)), |(row, _)| outcome(row)),
        ],
    ));
}

/// Adds numbers without a ratio in their own work, next to the study's.
fn side_by_side(page: &mut Document, numbers: &[NumberComparison]) {
    page.heading("Numbers side by side");
    let what = |n: &NumberComparison| format!("{}, {} [{}]", n.figure, n.quantity, n.unit);
    page.add(Table::of(
        numbers.iter().map(|n| (n, n.ours.as_ref(), what(n))),
        [
            (Column::words("figure", 0, Some(20)), |(.., what)| what.clone()),
            (Column::words("levels", 0, Some(20)), |(n, ..)| levels(&n.at)),
            (Column::number("", "theirs", 0), |(n, ..)| value(n.theirs, n.read)),
            (Column::number("", "ours", 0), |(_, ours, _)| amount(ours.map(|ours| ours.mean))),
            (Column::number("", "ours/theirs", 0), |(n, ours, _)| {
                ratio(ours.map(|ours| ours.mean / n.theirs))
            }),
            (Column::words("interval", 2, None), |(n, ours, _)| {
                let range = ours.and_then(|ours| ours.interval);
                range.map_or(NONE.into(), |(a, b)| interval(a / n.theirs, b / n.theirs))
            }),
        ],
    ));
    for n in numbers {
        if let Some(why) = &n.not_measured {
            let (what, at) = (what(n), levels(&n.at));
            page.text("  - ", format!("{what}, {at}: not measured here: {why}"));
        }
    }
    page.text(
        "",
        "These are numbers of two different machines, so nothing is concluded from them; ours is \
         the mean of all measured trials of the cells with these levels.",
    );
}

fn outcome(row: &RowComparison) -> Cell {
    match &row.outcome {
        Agreement::Agrees => Cell::from("agrees").tone(Tone::Good),
        Agreement::Disagrees => Cell::from("DISAGREES").tone(Tone::Bad),
        Agreement::NotMeasured(why) => {
            Cell::from(format!("not measured here: {why}")).tone(Tone::Faint)
        }
    }
}

/// Returns the sentences about the rows in which the study disagrees.
fn disagreements(comparison: &PublishedComparison) -> impl Iterator<Item = String> {
    let rows = comparison.figures.iter().flat_map(|f| f.rows.iter().map(move |row| (f, row)));
    rows.filter(|(_, row)| row.outcome == Agreement::Disagrees).filter_map(|(figure, row)| {
        let ours = row.ours.as_ref()?;
        Some(format!(
            "{}, {}: published {}, here {} over {} of cells",
            figure.id,
            levels(&row.at),
            ratio(row.their_ratio),
            ratio_text(ours.ratio, ours.interval),
            plural(row.pairs as u64, "pair")
        ))
    })
}
