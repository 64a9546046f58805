//! What a study has measured so far, for who watches it run: means and intervals, and no
//! verdict, because a verdict that may be drawn after any block is wrong more often than
//! it says.

use crate::document::{Column, Document, Media, Table, Tone};
use crate::render::plain;
use crate::report::{Style, Subject};
use crate::sections::View;
use crate::wording::figures::{NONE, figure, interval, ratio, unit};
use crate::wording::text::{mean, nothing};
use bytepath_record::{Percentile, Study, Work};
use bytepath_stats::{Analysis, Metric, Row, Rules, analyse};
use std::io::{self, Write};

/// The questions that someone who watches has room for.
const QUESTIONS: [Metric; 3] = [Metric::Rate, Metric::Cpu, Metric::Latency(Percentile::P99)];

/// Prints a table of the cells measured so far, or why none was; nothing of a study that
/// measures no speed.
pub fn estimates(study: &Study, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let analysis = analyse(study, &Rules::of(&study.header));
    let mut page = Document::default();
    if analysis.functional.is_none() {
        let subject = Subject::of(study, &analysis, None);
        let works = View::new(&subject, Media::TERMINAL, false).by_work();
        if works.is_empty() {
            page.text("  ", &nothing(&analysis));
        }
        for (work, rows) in works {
            page.table(table(&analysis, work, &rows));
        }
    }
    plain::write(&page, style, out)
}

fn table(analysis: &Analysis, work: Work, rows: &[&Row]) -> Table {
    let asked: Vec<Metric> = QUESTIONS
        .into_iter()
        .filter(|question| rows.iter().any(|row| mean(analysis, row, *question).is_some()))
        .collect();
    let mut columns = vec![Column::words("path", 0, Some(14)), Column::number("", "n", 9)];
    for (question, rank) in asked.iter().zip([0, 2, 4]) {
        columns.push(Column::number("", &heading(*question, work), rank));
        columns.push(Column::words("ratio", rank + 1, None));
    }
    let mut table = Table::new(columns);
    for row in rows {
        let tone = if row.baseline { Tone::Strong } else { Tone::Plain };
        let mut cells = vec![(row.cell.to_string(), tone), (n(row), Tone::Faint)];
        for question in &asked {
            let shown = figure(*question, work, mean(analysis, row, *question));
            cells.extend([(shown, tone), (against(row, *question), Tone::Faint)]);
        }
        table.row(cells);
    }
    table
}

/// `4`, or `3/4` where one of four trials does not count.
fn n(row: &Row) -> String {
    let (measured, ended) = (row.status.measured, row.status.ended());
    if measured == ended { measured.to_string() } else { format!("{measured}/{ended}") }
}

fn heading(question: Metric, work: Work) -> String {
    match question {
        Metric::Latency(percentile) => {
            format!("{} {}", percentile.name(), unit(question, work))
        }
        _ => unit(question, work).to_owned(),
    }
}

/// `1.16x [1.09, 1.23]`: the ratio to the baseline, and its interval once there is one.
fn against(row: &Row, question: Metric) -> String {
    if row.baseline {
        return "baseline".into();
    }
    let effect = row.comparison(question).and_then(|comparison| comparison.effect.as_ref());
    let Some(effect) = effect else { return NONE.into() };
    match effect.interval {
        Some(range) => format!("{} {}", ratio(effect.ratio), interval(range.low, range.high)),
        None => ratio(effect.ratio),
    }
}
