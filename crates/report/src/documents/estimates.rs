//! What a running study has measured, for those who watch it: means and intervals, and no
//! verdict, because a verdict that may be drawn after any block is wrong more often than its
//! confidence allows.

use crate::document::{Column, Document, Media, Table, Tone};
use crate::report::Subject;
use crate::sections::View;
use crate::wording::figures::{effect_text, figure, unit};
use crate::wording::text::{mean, nothing};
use bytepath_record::{Percentile, Study, Work};
use bytepath_stats::{Analysis, Metric, Row, Rules, analyse};

/// The questions that someone who watches has room for.
const QUESTIONS: [Metric; 3] = [Metric::Rate, Metric::Cpu, Metric::Latency(Percentile::P99)];

/// A table of the cells measured so far, or why none was; empty if the study measures no speed.
pub fn estimates(study: &Study) -> Document {
    let analysis = analyse(study, &Rules::of(&study.header));
    let mut page = Document::default();
    if analysis.functional.is_none() {
        let subject = Subject::of(study, &analysis, None);
        let works = View::new(&subject, Media::TERMINAL, false).by_work();
        if works.is_empty() {
            page.text("  ", nothing(&analysis));
        }
        for (work, rows) in works {
            page.add(table(&analysis, work, &rows));
        }
    }
    page
}

fn table(analysis: &Analysis, work: Work, rows: &[&Row]) -> Table {
    let is_measured =
        |question: &Metric| rows.iter().any(|row| mean(analysis, row, *question).is_some());
    let questions: Vec<Metric> = QUESTIONS.into_iter().filter(is_measured).collect();
    let mut columns = vec![Column::words("path", 0, Some(14)), Column::number("", "n", 9)];
    for (question, rank) in questions.iter().zip([0, 2, 4]) {
        columns.push(Column::number("", &heading(*question, work), rank));
        columns.push(Column::words("ratio", rank + 1, None));
    }
    let cells = |row: &&Row| {
        let tone = if row.baseline { Tone::Strong } else { Tone::Plain };
        let mut cells = vec![(row.cell.to_string(), tone), (n(row), Tone::Faint)];
        for question in &questions {
            let mean = figure(*question, work, mean(analysis, row, *question));
            cells.extend([(mean, tone), (against(row, *question), Tone::Faint)]);
        }
        cells
    };
    Table::rows(columns, rows.iter().map(cells))
}

/// `4`, or `3/4` where one of four trials does not count.
fn n(row: &Row) -> String {
    let (measured, ended) = (row.status.measured, row.status.ended());
    if measured == ended { measured.to_string() } else { format!("{measured}/{ended}") }
}

fn heading(question: Metric, work: Work) -> String {
    match question {
        Metric::Latency(percentile) => format!("{} {}", percentile.name(), unit(question, work)),
        _ => unit(question, work).to_owned(),
    }
}

/// `1.16x [1.09, 1.23]`: the ratio to the baseline, and its interval once there is one.
fn against(row: &Row, question: Metric) -> String {
    if row.baseline {
        return "baseline".into();
    }
    effect_text(row.effect(question))
}
