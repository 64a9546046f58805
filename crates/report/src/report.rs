//! What every format is given, and what a format is.

use crate::wording::names;
use bytepath_profile::Explanation;
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
    /// Whether it is anything but text.
    pub binary: bool,
    /// Whether people read it: names of cells leave out what all of them have.
    pub short_names: bool,
    pub(crate) render: fn(subject: &Subject, style: &Style, out: &mut dyn Write) -> io::Result<()>,
}

impl Report {
    /// Whether it is unfit for a terminal: binary, or a page.
    pub fn for_files(&self) -> bool {
        self.binary || self.extension == "html"
    }

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
