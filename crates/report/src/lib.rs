//! Reports: what studies, profiles and observations look like to people and programs.
//!
//! A report needs nothing but its subject, so an old study renders on any machine, and to the
//! same bytes. It measures nothing and decides nothing: verdicts come from `bytepath_stats`.
//!
//! - [`document`] is the model: sections of texts, tables and figures, without layout.
//! - `sections` builds the sections of a study, each once for all formats; `documents` does so
//!   for other commands. Both take their words from `wording`.
//! - `render` writes documents as plain text or HTML.
//! - `formats` has one file per format of [`CATALOG`]; `csv`, `parquet` and `json` are made from
//!   the study itself and know no documents.
//!
//! All of this runs in the process of the command line, after the measurement.

#![forbid(unsafe_code)]

mod document;
mod documents;
mod formats;
mod render;
mod sections;
mod wording;

pub use documents::advice::{Advice, advice, advice_or_hint, advise};
pub use documents::counters::{counters, counters_tsv};
pub use documents::difference::{difference, side_by_side};
pub use documents::estimates::estimates;
pub use documents::examination::examination;
pub use documents::observation::observation;
pub use documents::offload::offload;
pub use documents::published::{published, published_comparison};
pub use documents::sizing::sizing;
pub use documents::studies::{between, history, thresholds};
pub use render::html::{
    between as between_page, difference as difference_page, explanation as explanation_page,
    history as history_page, observation as observation_page, study as study_page,
};
pub use sections::frames::{Why, why};
pub use wording::ascii::wrap;
pub use wording::limits::limits;
pub use wording::offload::MODEL;
pub use wording::setup::by_cells;

use bytepath_profile::Explanation;
use bytepath_profile::symptom::Seen;
use bytepath_record::{Study, StudyHeader};
use bytepath_stats::Analysis;
use document::Document;
use formats::{csv, json, netdev, parquet, rows, text};
use render::{html, plain};
use sections::{frames, symptoms, waterfall};
use std::borrow::Cow;
use std::io::{self, Write};
use wording::names;

pub struct Report {
    /// Name in the catalogue, as the user types it.
    pub name: &'static str,
    /// One line: what it is good for.
    pub summary: &'static str,
    /// How the name of a file of this format ends, without the dot. Several
    /// formats may share one.
    pub extension: &'static str,
    /// Whether it is unfit for a terminal.
    pub binary: bool,
    /// Whether people read it: names of cells leave out what all of them have.
    pub short_names: bool,
    render: fn(subject: &Subject, style: &Style, out: &mut dyn Write) -> io::Result<()>,
}

impl Report {
    /// The study with the names of its cells as this format shows them.
    pub fn named<'a>(&self, study: &'a Study) -> Cow<'a, Study> {
        let short = self.short_names.then(|| names::shortened(study)).flatten();
        short.map_or(Cow::Borrowed(study), Cow::Owned)
    }

    /// Writes the report. Fails only where `out` does.
    pub fn render(&self, subject: &Subject, style: &Style, out: &mut dyn Write) -> io::Result<()> {
        (self.render)(subject, style, out)
    }
}

/// What a report is of.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// What was asked, and every trial; the names of cells may be short ([`Report::named`]).
    pub study: &'a Study,
    /// The study's header as it was recorded.
    pub recorded: &'a StudyHeader,
    /// The analysis of this study.
    pub analysis: &'a Analysis,
    /// Where the costs of its cells differ; `None` without profiles of two cells.
    pub explanation: Option<&'a Explanation>,
}

impl<'a> Subject<'a> {
    /// With the names of cells as they were recorded.
    pub fn of(
        study: &'a Study,
        analysis: &'a Analysis,
        explanation: Option<&'a Explanation>,
    ) -> Subject<'a> {
        Subject { study, recorded: &study.header, analysis, explanation }
    }
}

/// How a report is to look, as far as its format leaves a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal or page. Below 40 counts as 40.
    pub width: usize,
    /// Whether words may be coloured with ANSI sequences.
    pub colour: bool,
    /// Whether to add system-call tables, sizes and the course of each flow.
    pub details: bool,
}

impl Default for Style {
    fn default() -> Self {
        Style { width: 100, colour: false, details: false }
    }
}

pub static CATALOG: &[&Report] =
    &[&text::FORMAT, &netdev::FORMAT, &html::FORMAT, &json::FORMAT, &csv::FORMAT, &parquet::FORMAT];

/// The format with this name.
pub fn find(name: &str) -> Option<&'static Report> {
    CATALOG.iter().copied().find(|report| report.name == name)
}

/// The first format whose files end like this.
pub fn find_by_extension(extension: &str) -> Option<&'static Report> {
    CATALOG.iter().copied().find(|report| report.extension == extension)
}

/// Prints why cells differ, for a terminal: in words, in steps, function by function; of two
/// cells of frames first why their rates do.
pub fn explanation(
    explanation: &Explanation,
    why: Option<&Why>,
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut document = Document::default();
    document.push([
        frames::differences(why),
        waterfall::section(explanation, true),
        waterfall::symptoms_of(explanation),
    ]);
    plain::write(&document, style, out)
}

/// Prints what well-known functions of a profile mean.
pub fn symptoms(seen: &[Seen], style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut document = Document::default();
    document.push([symptoms::section(seen, &[""; 0])]);
    plain::write(&document, style, out)
}

/// Prints why cells differ, for a mail: at most 72 columns.
pub fn explanation_for_mail(
    explanation: &Explanation,
    why: Option<&Why>,
    out: &mut dyn Write,
) -> io::Result<()> {
    netdev::explanation(explanation, why, out)
}

/// The columns of `csv` and `parquet`, in order.
pub fn columns() -> impl Iterator<Item = &'static str> {
    rows::COLUMNS.iter().map(|column| column.name)
}
