//! What a study looks like: one file or folder per format, one line each in
//! [`CATALOG`]. A report needs nothing but the study, so an old one renders
//! on any machine, and to the same bytes.

#![forbid(unsafe_code)]

mod advice;
mod answer;
mod counted;
mod counters;
mod csv;
mod ends;
mod estimates;
mod examination;
mod explanation;
mod factors;
mod figures;
mod frames;
mod functions;
mod grid;
mod hops;
mod html;
mod json;
mod limits;
mod names;
mod netdev;
mod observation;
mod offload;
mod page;
mod parquet;
mod placement;
mod published;
mod reproduce;
mod rows;
mod setup;
mod sizing;
mod symptoms;
mod table;
mod text;
mod verdicts;
mod waterfall;
mod words;

pub use advice::{Advice, advice, advice_or_hint, advise};
pub use counters::{counters, counters_tsv};
pub use estimates::estimates;
pub use examination::examination;
pub use frames::{Why, why};
pub use html::{
    between as between_page, difference as difference_page, explanation as explanation_page,
    history as history_page, observation as observation_page, study as study_page,
};
pub use limits::limits;
pub use observation::observation;
pub use offload::{MODEL, offload};
pub use page::wrap;
pub use published::{published, published_comparison};
pub use setup::by_cells;
pub use sizing::sizing;
pub use text::{between, difference, history, side_by_side, thresholds};

use bytepath_profile::Explanation;
use bytepath_profile::symptom::Seen;
use bytepath_record::{Study, StudyHeader};
use bytepath_stats::Analysis;
use std::borrow::Cow;
use std::io::{self, Write};

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
    /// What it comes to. Must be that of this study.
    pub analysis: &'a Analysis,
    /// Where the costs of its cells differ; none without profiles of two cells.
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
    let mut page = page::Page::new(style.width, style.colour);
    frames::print(&mut page, why);
    waterfall::print(&mut page, explanation, 32, true);
    page.finish(out)
}

/// Prints what well-known functions of a profile mean.
pub fn symptoms(seen: &[Seen], style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut page = page::Page::new(style.width, style.colour);
    symptoms::print(&mut page, seen, &[""; 0]);
    page.finish(out)
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
