//! `json`: the analysis and its context, for programs. The raw trials stay in the study's folder.

use crate::report::{Report, Style, Subject};
use crate::wording::answer;
use bytepath_profile::Explanation;
use bytepath_record::{CellId, StudyHeader, visible_json};
use bytepath_stats::{Analysis, Metric, Requirement};
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, Write};

/// The document; `analysis.schema` is its version.
#[derive(Serialize, JsonSchema)]
pub struct AnalysisDocument<'a> {
    /// Identifies the document: `bytepath-analysis`.
    format: &'static str,
    /// What was requested, and on which hosts.
    study: &'a StudyHeader,
    /// Which cells to use, and what is undecided; `None` if nothing was compared.
    answer: Option<Answer<'a>>,
    analysis: &'a Analysis,
    /// Where the costs of its cells differ, according to their profiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<&'a Explanation>,
}

/// The answer of a study.
#[derive(Serialize, JsonSchema)]
struct Answer<'a> {
    baseline: &'a CellId,
    /// Cells to use instead of the baseline; empty if none was shown to be better.
    #[serde(rename = "use")]
    choices: Vec<Choice<'a>>,
    undecided: Vec<Open<'a>>,
    /// The same in words, with the reasons.
    sentences: Vec<String>,
}

/// A cell that was shown to be better than the baseline.
#[derive(Serialize, JsonSchema)]
struct Choice<'a> {
    cell: &'a CellId,
    /// Path of the sender.
    tx: &'a str,
    /// Path of the receiver.
    rx: &'a str,
    /// The metrics in which it is the best of those cells.
    metrics: Vec<Metric>,
}

/// A cell for which it is undecided whether it differs from the baseline.
#[derive(Serialize, JsonSchema)]
struct Open<'a> {
    cell: &'a CellId,
    metrics: Vec<Metric>,
    /// About how many blocks would decide, at least two; `None` if it takes more than 1000, or if
    /// only less noise would help.
    blocks: Option<u32>,
    /// About how many blocks would show a difference as large as measured; `None` if it takes more
    /// than 1000, or if only less noise would help.
    blocks_as_measured: Option<u32>,
    /// The noise that hides the difference, as a part of one; `None` if more blocks would do.
    noise: Option<f64>,
}

/// See the module documentation.
pub(crate) static FORMAT: Report = Report {
    name: "json",
    summary: "every number of the analysis with host facts, for programs",
    extension: "json",
    render,
    binary: false,
    short_names: false,
};

fn render(subject: &Subject, _: &Style, out: &mut dyn Write) -> io::Result<()> {
    let Subject { study, analysis, explanation, .. } = *subject;
    let format = "bytepath-analysis";
    let answer = answer(analysis, explanation);
    let document = AnalysisDocument { format, study: &study.header, answer, analysis, explanation };
    writeln!(out, "{}", visible_json(serde_json::to_string_pretty(&document)?))
}

fn answer<'a>(analysis: &'a Analysis, explanation: Option<&Explanation>) -> Option<Answer<'a>> {
    let paragraphs = answer::answer(analysis, explanation).into_iter();
    let sentences: Vec<String> = paragraphs.map(|(lead, text)| format!("{lead}: {text}")).collect();
    let choices = analysis.choices().into_iter().map(|choice| Choice {
        cell: &choice.row.cell,
        tx: &choice.row.tx,
        rx: &choice.row.rx,
        metrics: choice.questions,
    });
    let undecided = analysis.undecided().into_iter().map(|open| {
        let (blocks, noise) = match open.needs {
            Requirement::Blocks(blocks) => (blocks, None),
            Requirement::Spread => (Some(2), None),
            Requirement::LessNoise(floor) => (None, Some(floor)),
        };
        let blocks_as_measured = open.as_measured;
        Open { cell: &open.row.cell, metrics: open.questions, blocks, blocks_as_measured, noise }
    });
    (!sentences.is_empty()).then(|| Answer {
        baseline: &analysis.baseline,
        choices: choices.collect(),
        undecided: undecided.collect(),
        sentences,
    })
}
