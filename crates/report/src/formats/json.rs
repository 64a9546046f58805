//! `json`: the analysis and what it is an analysis of, for programs. The raw
//! trials stay in the study's folder.

use crate::report::{Report, Style, Subject};
use crate::wording::answer;
use bytepath_profile::Explanation;
use bytepath_record::{StudyHeader, visible_json};
use bytepath_stats::Analysis;
use serde::Serialize;
use std::io::{self, Write};

/// The document. `analysis.schema` is its version.
#[derive(Serialize)]
struct Document<'a> {
    /// Identifies the document.
    format: &'static str,
    /// What was requested, and on which hosts.
    study: &'a StudyHeader,
    /// What to use, why, and what is undecided, in sentences; empty if nothing was
    /// compared.
    answer: Vec<String>,
    analysis: &'a Analysis,
    /// Where the costs of its cells differ, by their profiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<&'a Explanation>,
}

/// See the module's text.
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
    let paragraphs = answer::answer(analysis, explanation).into_iter();
    let answer = paragraphs.map(|(lead, text)| format!("{lead}: {text}")).collect();
    let document = Document { format, study: &study.header, answer, analysis, explanation };
    writeln!(out, "{}", visible_json(serde_json::to_string_pretty(&document)?))
}
