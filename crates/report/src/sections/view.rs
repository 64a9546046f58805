//! The input of the sections of a study.

use crate::document::Media;
use crate::report::Subject;
use bytepath_profile::Explanation;
use bytepath_record::{CellId, Role, Study, Trial, Work};
use bytepath_stats::{Analysis, End, Metric, Row, Summary};
use std::collections::HashMap;

/// A study for a medium.
pub(crate) struct View<'a> {
    pub subject: Subject<'a>,
    pub study: &'a Study,
    pub analysis: &'a Analysis,
    pub explanation: Option<&'a Explanation>,
    pub medium: Media,
    pub details: bool,
    /// Measured rows: the fastest first in HTML pages, otherwise in the order of the study.
    pub rows: Vec<&'a Row>,
    /// The trials of each cell, in the order run.
    trials: HashMap<&'a str, Vec<&'a Trial>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(subject: &Subject<'a>, medium: Media, details: bool) -> View<'a> {
        let Subject { study, analysis, explanation, .. } = *subject;
        let mut rows: Vec<&Row> = analysis.rows.iter().filter(|r| r.status.measured > 0).collect();
        if medium == Media::PAGE {
            let rate = |row: &Row| mean(&row.rate).unwrap_or(0.0);
            rows.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
        }
        let mut trials: HashMap<&str, Vec<&Trial>> = HashMap::new();
        for trial in &study.trials {
            trials.entry(&trial.cell.0).or_default().push(trial);
        }
        View { subject: *subject, study, analysis, explanation, medium, details, rows, trials }
    }

    /// Returns its rows by kind of work: different kinds are in different tables.
    pub(crate) fn by_work(&self) -> Vec<(Work, Vec<&'a Row>)> {
        let of = |work| -> Vec<&'a Row> {
            self.rows.iter().copied().filter(|row| row.work == work).collect()
        };
        let all = Work::ALL.into_iter().map(|work| (work, of(work)));
        all.filter(|(_, rows)| !rows.is_empty()).collect()
    }

    /// Returns both ends of every row.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (&'a Row, &'a End)> {
        self.rows.iter().flat_map(|row| Role::ALL.map(|role| (*row, row.end(role))))
    }

    pub(crate) fn trials(&self, row: &Row) -> &[&'a Trial] {
        self.trials.get(row.cell.0.as_str()).map_or(&[], Vec::as_slice)
    }

    /// Returns the anchor of a cell's first trial in the table of trials. `None` if `of` is another
    /// trial.
    pub(crate) fn anchor(&self, cell: &CellId, of: Option<&Trial>) -> Option<String> {
        let at = self.study.trials.iter().position(|trial| trial.cell == *cell)?;
        let is_first = of.is_none_or(|trial| std::ptr::eq(trial, &self.study.trials[at]));
        is_first.then(|| format!("trial-{at}"))
    }

    pub(crate) fn baseline(&self) -> Option<&'a Row> {
        self.analysis.rows.iter().find(|r| r.baseline)
    }
}

pub(crate) fn mean(summary: &Option<Summary>) -> Option<f64> {
    summary.map(|s| s.mean)
}

/// Returns the CSS class of a row, by its verdict in one metric.
pub(crate) fn class(row: &Row, question: Metric) -> &'static str {
    match row.comparison(question) {
        None if row.baseline => "base",
        comparison => class_of(comparison.and_then(|c| c.verdict.better())),
    }
}

/// Returns the CSS class of something better or worse than something else.
pub(crate) fn class_of(better: Option<bool>) -> &'static str {
    better.map_or("open", |better| if better { "better" } else { "worse" })
}
