//! Published works: their figures, and a study beside their ratios.

use super::Style;
use super::figures::{NONE, interval, plural, ratio};
use super::page::{Page, Tone};
use super::table::{Column, Table};
use crate::record::{Levels, Published, PublishedFigure, ReadFrom};
use crate::stats::{Beside, BesidePublished, FigureBeside, RowBeside};
use std::io::{self, Write};

/// Stands behind a number that was read off a chart.
const CHART: &str = "*";

/// Prints a work and all of its figures.
pub fn published(work: &Published, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut page = Page::new(style.width, style.colour);
    heading(&mut page, work);
    for figure in &work.figures {
        numbers(&mut page, figure);
    }
    footnote(&mut page);
    page.finish(out)
}

/// Prints a study, called `name`, beside a work.
pub fn beside(
    work: &Published,
    name: &str,
    found: &BesidePublished,
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut page = Page::new(style.width, style.colour);
    heading(&mut page, work);
    page.text("ours         ", name);
    for figure in &found.figures {
        ratios(&mut page, figure);
    }
    page.gap();
    let [agree, disagree, not] = found.counts();
    let all = plural((agree + disagree + not) as u64, "published ratio");
    page.text(
        "",
        &format!("Of {all} {agree} agree, {disagree} disagree, {not} are not measured here."),
    );
    for line in disagreements(found) {
        page.text("  - ", &line);
    }
    page.text(
        "",
        "A published ratio agrees where it lies in the interval of ours, which is for itself; how \
         sure the published one is, is not known.",
    );
    footnote(&mut page);
    if !found.not_compared.is_empty() {
        let more = plural(found.not_compared.len() as u64, "figure");
        let text = format!("{more} without a ratio of rates: leave the study out to see them.");
        page.text("", &text);
    }
    page.finish(out)
}

fn heading(page: &mut Page, work: &Published) {
    let year = work.year.map_or(String::new(), |year| format!(" ({year})"));
    page.heading(&format!("{}{year}", work.title));
    page.text("by           ", &work.by);
    page.text("read from    ", &format!("{}, {}", work.source, work.link));
    page.text("measured on  ", &work.setup);
    for note in &work.notes {
        page.text("note         ", note);
    }
}

fn footnote(page: &mut Page) {
    page.text(
        "",
        &format!("{CHART} beside a mark of a chart; all other numbers are printed in text."),
    );
}

/// Levels in one line: `path=zcrx, hw-gro=true`.
fn levels(levels: &Levels) -> String {
    let each = levels.iter().map(|(factor, level)| format!("{factor}={level}"));
    each.collect::<Vec<_>>().join(", ")
}

/// A number as it was published.
fn value(value: f64, read: ReadFrom) -> String {
    let mark = if read == ReadFrom::Chart { CHART } else { "" };
    format!("{value}{mark}")
}

/// A figure as it was published.
fn numbers(page: &mut Page, figure: &PublishedFigure) {
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
        let mut cells = vec![(levels(&row.at), Tone::Plain)];
        let read = row.read.unwrap_or(figure.read);
        cells.extend(row.is.iter().map(|is| (value(*is, read), Tone::Plain)));
        table.row(cells);
    }
    table.print(page, 2);
}

/// The ratios of a figure beside ours.
fn ratios(page: &mut Page, figure: &FigureBeside) {
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
            (levels(&row.at), Tone::Plain),
            (value(row.theirs, row.read), Tone::Plain),
            (ratio(row.their_ratio), Tone::Plain),
            (ratio(row.ours.as_ref().map(|effect| effect.ratio)), Tone::Plain),
            (range.map_or(NONE.into(), |i| interval(i.low, i.high)), Tone::Plain),
            (word, tone),
        ]);
    }
    table.print(page, 2);
}

fn outcome(row: &RowBeside) -> (String, Tone) {
    match &row.outcome {
        Beside::Agrees => ("agrees".into(), Tone::Good),
        Beside::Disagrees => ("DISAGREES".into(), Tone::Bad),
        Beside::NotMeasured(why) => (format!("not measured here: {why}"), Tone::Faint),
    }
}

/// Where ours disagree, each in a sentence.
fn disagreements(found: &BesidePublished) -> Vec<String> {
    let mut lines = Vec::new();
    for figure in &found.figures {
        for row in figure.rows.iter().filter(|row| row.outcome == Beside::Disagrees) {
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
