//! Published works: their figures, and a study compared with their ratios.

use crate::document::{Cell, Column, Document, Table, Tone};
use crate::render::plain;
use crate::report::Style;
use crate::wording::figures::{NONE, amount, interval, plural, ratio};
use crate::wording::offload::levels;
use bytepath_record::{Published, PublishedFigure, ReadFrom};
use bytepath_stats::{
    Agreement, FigureComparison, NumberComparison, PublishedComparison, RowComparison,
};
use std::io::{self, Write};

/// Marks a number that was read off a chart.
const CHART: &str = "*";

/// Prints a work and all of its figures.
pub fn published(work: &Published, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut page = Document::default();
    heading(&mut page, work);
    for figure in &work.figures {
        numbers(&mut page, figure);
    }
    footnote(&mut page);
    plain::write(&page, style, out)
}

/// Prints the comparison of a study, called `name`, with a work.
pub fn published_comparison(
    work: &Published,
    name: &str,
    comparison: &PublishedComparison,
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut page = Document::default();
    heading(&mut page, work);
    page.text("ours         ", name);
    for figure in &comparison.figures {
        ratios(&mut page, figure);
    }
    if !comparison.numbers.is_empty() {
        side_by_side(&mut page, &comparison.numbers);
    }
    page.gap();
    let [agree, disagree, not] = comparison.counts();
    if agree + disagree + not > 0 {
        let all = plural((agree + disagree + not) as u64, "published ratio");
        page.text(
            "",
            &format!("Of {all} {agree} agree, {disagree} disagree, {not} are not measured here."),
        );
        for line in disagreements(comparison) {
            page.text("  - ", &line);
        }
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
        page.text("", &text);
    }
    plain::write(&page, style, out)
}

fn heading(page: &mut Document, work: &Published) {
    let year = work.year.map_or(String::new(), |year| format!(" ({year})"));
    page.heading(&format!("{}{year}", work.title));
    page.text("by           ", &work.by);
    page.text("read from    ", &format!("{}, {}", work.source, work.link));
    page.text("measured on  ", &work.setup);
    for note in &work.notes {
        page.text("note         ", note);
    }
}

fn footnote(page: &mut Document) {
    page.text(
        "",
        &format!("{CHART} marks numbers read from a chart; all others are printed in text."),
    );
}

/// A number as it was published.
fn value(value: f64, read: ReadFrom) -> String {
    let mark = if read == ReadFrom::Chart { CHART } else { "" };
    format!("{value}{mark}")
}

/// A figure as it was published.
fn numbers(page: &mut Document, figure: &PublishedFigure) {
    page.heading(&format!("{}: {}", figure.id, figure.title));
    if !figure.at.is_empty() {
        page.text("  ", &levels(&figure.at));
    }
    let mut columns = vec![Column::words("levels", 0, Some(24))];
    columns.extend(figure.columns.iter().enumerate().map(|(at, column)| {
        let title = format!("{} [{}]", column.quantity, column.unit);
        Column::number("", &title, u8::try_from(at).unwrap_or(u8::MAX))
    }));
    let mut table = Table::new(columns);
    for row in &figure.rows {
        let mut cells = vec![levels(&row.at)];
        let read = row.read.unwrap_or(figure.read);
        cells.extend(row.is.iter().map(|is| value(*is, read)));
        table.row(cells);
    }
    page.table(table);
}

/// The ratios of a figure and ours.
fn ratios(page: &mut Document, figure: &FigureComparison) {
    page.heading(&format!("{}: {}", figure.id, figure.title));
    page.text("  ", &format!("over {}; {}", levels(&figure.baseline), levels(&figure.at)));
    let mut table = Table::new(vec![
        Column::words("levels", 0, Some(20)),
        Column::number("", &figure.unit, 3),
        Column::number("", "theirs", 0),
        Column::number("", "ours", 0),
        Column::words("interval", 1, None),
        Column::words("", 0, Some(16)),
    ]);
    for row in &figure.rows {
        let range = row.ours.as_ref().and_then(|effect| effect.interval);
        let (word, tone) = outcome(row);
        table.row(vec![
            Cell::from(levels(&row.at)),
            Cell::from(value(row.theirs, row.read)),
            Cell::from(ratio(row.their_ratio)),
            Cell::from(ratio(row.ours.as_ref().map(|effect| effect.ratio))),
            Cell::from(range.map_or(NONE.into(), |i| interval(i.low, i.high))),
            Cell::from(word).tone(tone),
        ]);
    }
    page.table(table);
}

/// Numbers without a ratio in their own work, and ours.
fn side_by_side(page: &mut Document, numbers: &[NumberComparison]) {
    page.heading("Numbers side by side");
    let mut table = Table::new(vec![
        Column::words("figure", 0, Some(20)),
        Column::words("levels", 0, Some(20)),
        Column::number("", "theirs", 0),
        Column::number("", "ours", 0),
        Column::number("", "ours/theirs", 0),
        Column::words("interval", 2, None),
    ]);
    let mut missing: Vec<String> = Vec::new();
    for number in numbers {
        let what = format!("{}, {} [{}]", number.figure, number.quantity, number.unit);
        let ours = number.ours.as_ref();
        let over = ours.map(|ours| ours.mean / number.theirs);
        let range = ours.and_then(|ours| ours.interval);
        let ends = range.map(|(low, high)| interval(low / number.theirs, high / number.theirs));
        let texts = [
            what.clone(),
            levels(&number.at),
            value(number.theirs, number.read),
            ours.map_or(NONE.into(), |ours| amount(ours.mean)),
            ratio(over),
            ends.unwrap_or_else(|| NONE.into()),
        ];
        table.row(texts);
        if let Some(why) = &number.not_measured {
            missing.push(format!("{what}, {}: not measured here: {why}", levels(&number.at)));
        }
    }
    page.table(table);
    for line in &missing {
        page.text("  - ", line);
    }
    page.text(
        "",
        "These are numbers of two different machines, so nothing is concluded from them; ours is \
         the mean of all measured trials of the cells with these levels.",
    );
}

fn outcome(row: &RowComparison) -> (String, Tone) {
    match &row.outcome {
        Agreement::Agrees => ("agrees".into(), Tone::Good),
        Agreement::Disagrees => ("DISAGREES".into(), Tone::Bad),
        Agreement::NotMeasured(why) => (format!("not measured here: {why}"), Tone::Faint),
    }
}

/// Where ours disagree, each in a sentence.
fn disagreements(comparison: &PublishedComparison) -> Vec<String> {
    let mut lines = Vec::new();
    for figure in &comparison.figures {
        for row in figure.rows.iter().filter(|row| row.outcome == Agreement::Disagrees) {
            let Some(effect) = &row.ours else { continue };
            let range = effect.interval.map_or(String::new(), |i| interval(i.low, i.high));
            lines.push(format!(
                "{}, {}: published {}, here {} {range} over {} of cells",
                figure.id,
                levels(&row.at),
                ratio(row.their_ratio),
                ratio(effect.ratio),
                plural(row.pairs as u64, "pair")
            ));
        }
    }
    lines
}
