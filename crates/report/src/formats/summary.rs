//! The short table: one row per cell with its figures, ratios and verdicts, which covers most
//! queries. Columns are named only in [`OF_CELL`] and [`FIGURES`].

use super::rows::levels;
use super::table::{Kind, Record, Value, finite, moment, text, whole};
use crate::report::Subject;
use crate::wording::text::mean;
use bytepath_record::{Cell, joined};
use bytepath_stats::{self as stats, Metric};
use std::borrow::Cow;

/// A cell of a study.
#[derive(Clone, Copy)]
pub(crate) struct CellRow<'a> {
    subject: Subject<'a>,
    row: &'a stats::Row,
    /// `None` if the cell is not in the study's header.
    cell: Option<&'a Cell>,
}

/// Value of a cell in a column.
type OfCell = for<'a> fn(&'a CellRow<'a>) -> Value<'a>;
/// Value of a cell in a column of a metric.
type OfMetric = for<'a> fn(&'a CellRow<'a>, Metric) -> Value<'a>;

/// The columns that identify a cell and give the outcome of its trials.
const OF_CELL: &[(&str, Kind, OfCell)] = &[
    ("study_started", Kind::Moment, |r| moment(r.subject.study.header.started_ms)),
    ("kernel", Kind::Text, |r| {
        text(r.subject.study.header.facts.first().map(|f| &*f.kernel_release))
    }),
    ("cell", Kind::Text, |r| text(&*r.row.cell.0)),
    ("tx", Kind::Text, |r| text(&*r.row.tx)),
    ("rx", Kind::Text, |r| text(&*r.row.rx)),
    ("levels", Kind::Text, |r| levels(r.cell)),
    ("baseline", Kind::Flag, |r| Value::Flag(r.row.baseline)),
    ("label", Kind::Text, |r| {
        let labels = r.row.labels.iter().map(|label| &label.text);
        Some(joined(labels, ", ")).filter(|l| !l.is_empty()).map_or(Value::None, owned)
    }),
    ("measured", Kind::Whole, |r| whole(r.row.status.measured)),
    ("disturbed", Kind::Whole, |r| count(r.row.status.disturbed.len())),
    ("rejected", Kind::Whole, |r| count(r.row.status.rejected.len())),
    ("failed", Kind::Whole, |r| whole(r.row.status.failures())),
    ("unavailable", Kind::Text, |r| text(r.row.status.unavailable.as_ref().map(|(why, _)| &**why))),
    ("rate_unit", Kind::Text, |r| text(r.row.work.terms().plain_unit)),
    ("unit", Kind::Text, |r| text(r.row.work.terms().unit)),
];

/// The columns of each metric in [`Metric::MAIN`], by their suffix to the metric's name.
const FIGURES: &[(&str, Kind, OfMetric)] = &[
    ("", Kind::Number, |r, metric| {
        let scale = if metric == Metric::Rate { r.row.work.terms().plain_scale } else { 1.0 };
        finite(mean(r.subject.analysis, r.row, metric).map(|mean| mean * scale))
    }),
    ("_ratio", Kind::Number, |r, metric| finite(r.row.effect(metric).map(|e| e.ratio))),
    ("_low", Kind::Number, |r, metric| finite(interval(r, metric).map(|i| i.low))),
    ("_high", Kind::Number, |r, metric| finite(interval(r, metric).map(|i| i.high))),
    ("_verdict", Kind::Text, |r, metric| text(r.row.comparison(metric).map(|c| c.verdict.word()))),
];

/// Returns the cells of a study, in the order of its header.
pub(crate) fn cells<'a>(subject: &Subject<'a>) -> impl Iterator<Item = CellRow<'a>> {
    let subject = *subject;
    let cells = &subject.study.header.cells;
    subject.analysis.rows.iter().map(move |row| CellRow {
        subject,
        row,
        cell: cells.iter().find(|cell| cell.id == row.cell),
    })
}

impl Record for CellRow<'_> {
    fn columns() -> Vec<(Cow<'static, str>, Kind)> {
        let of_cell = OF_CELL.iter().map(|(name, kind, _)| (Cow::Borrowed(*name), *kind));
        let figures = Metric::MAIN.into_iter().flat_map(|metric| {
            let name = metric.name();
            FIGURES.iter().map(move |(suffix, kind, _)| (format!("{name}{suffix}").into(), *kind))
        });
        of_cell.chain(figures).collect()
    }

    fn value(&self, column: usize) -> Value<'_> {
        match column.checked_sub(OF_CELL.len()) {
            None => OF_CELL[column].2(self),
            Some(at) => FIGURES[at % FIGURES.len()].2(self, Metric::MAIN[at / FIGURES.len()]),
        }
    }
}

fn interval(row: &CellRow, metric: Metric) -> Option<stats::Interval> {
    row.row.effect(metric)?.interval
}

fn count<'a>(number: usize) -> Value<'a> {
    i64::try_from(number).map_or(Value::None, Value::Whole)
}

fn owned<'a>(text: String) -> Value<'a> {
    Value::Text(text.into())
}
