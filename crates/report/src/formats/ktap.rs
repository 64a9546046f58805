//! `ktap`: a test for each cell, in the format of kernel CI systems
//! (Documentation/dev-tools/ktap.rst). A cell passes if its trials ran, whatever they measured; for
//! limits on the results there is `bytepath compare --fail-if`.

use crate::report::{Report, Style, Subject};
use crate::wording::ascii::plain;
use crate::wording::figures::rate;
use bytepath_record::joined;
use bytepath_stats::{Row, Status};
use std::io::{self, Write};

pub(crate) static FORMAT: Report = Report {
    name: "ktap",
    summary: "a test for each cell, for the continuous integration of kernels",
    extension: "ktap",
    render,
    binary: false,
    short_names: false,
};

fn render(subject: &Subject, _: &Style, out: &mut dyn Write) -> io::Result<()> {
    let rows = &subject.analysis.rows;
    writeln!(out, "KTAP version 1\n1..{}", rows.len())?;
    let [mut passed, mut failed, mut skipped] = [0; 3];
    for (number, row) in (1..).zip(rows) {
        for line in diagnostics(row, subject) {
            writeln!(out, "# {}", plain(&line))?;
        }
        let name = plain(&row.cell.0).replace('#', "\\#");
        match outcome(&row.status) {
            Outcome::Pass => {
                passed += 1;
                writeln!(out, "ok {number} {name}")?;
            }
            Outcome::Fail => {
                failed += 1;
                writeln!(out, "not ok {number} {name}")?;
            }
            Outcome::Skip(why) => {
                skipped += 1;
                writeln!(out, "ok {number} {name} # SKIP {}", plain(&why))?;
            }
        }
    }
    writeln!(out, "# Totals: pass:{passed} fail:{failed} xfail:0 xpass:0 skip:{skipped} error:0")
}

enum Outcome {
    Pass,
    Fail,
    Skip(String),
}

fn outcome(status: &Status) -> Outcome {
    match status {
        Status { unavailable: Some((reason, _)), .. } => Outcome::Skip(reason.clone()),
        status if status.failures() > 0 => Outcome::Fail,
        status if status.measured > 0 => Outcome::Pass,
        Status { rejected, .. } => Outcome::Skip(match rejected.first() {
            Some(event) => format!("no trial counts: {event}"),
            None => "no trial was run".to_owned(),
        }),
    }
}

/// Returns the results of the trials, and why some failed.
fn diagnostics(row: &Row, subject: &Subject) -> Vec<String> {
    let Status { measured, failed, .. } = &row.status;
    let mut lines = Vec::new();
    if let Some(summary) = &row.rate {
        let is_speed = subject.analysis.functional.is_none();
        let terms = row.work.terms();
        let rate = format!("{} {}", rate(row.work, Some(summary.mean)), terms.rate_unit);
        let figures = is_speed.then_some(rate).into_iter();
        let labels = row.labels.iter().map(|label| label.text.clone());
        let verdicts =
            row.comparisons.iter().map(|comparison| comparison.verdict.word().to_owned());
        let all = figures.chain(labels).chain(verdicts.take(1));
        lines.push(format!("{measured} trials: {}", joined(all, ", ")));
    }
    lines.extend(
        failed.iter().map(|failure| format!("{} failed: {}", failure.count, failure.fault)),
    );
    lines
}
