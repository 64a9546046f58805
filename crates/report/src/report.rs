//! The description of a report format, and its input.

use crate::wording::names;
use bytepath_profile::Explanation;
use bytepath_record::{Study, StudyHeader};
use bytepath_stats::Analysis;
use std::borrow::Cow;
use std::io::{self, Write};

pub struct Report {
    /// Name in the catalogue, as the user types it.
    pub name: &'static str,
    /// One line: its purpose.
    pub summary: &'static str,
    /// File name extension, without the dot. Several formats may share one.
    pub extension: &'static str,
    /// Whether it is not text.
    pub binary: bool,
    /// Whether it is for people: then names of cells omit what all of them share.
    pub short_names: bool,
    pub(crate) render: fn(subject: &Subject, style: &Style, out: &mut dyn Write) -> io::Result<()>,
}

impl Report {
    /// Returns whether it is unsuitable for a terminal: binary, or an HTML page.
    pub fn for_files(&self) -> bool {
        self.binary || self.extension == "html"
    }

    /// Returns the study with the names of its cells as this format shows them.
    pub fn named<'a>(&self, study: &'a Study) -> Cow<'a, Study> {
        let short = self.short_names.then(|| names::shortened(study)).flatten();
        short.map_or(Cow::Borrowed(study), Cow::Owned)
    }

    /// Writes the report. Errors only if `out` does.
    pub fn render(&self, subject: &Subject, style: &Style, out: &mut dyn Write) -> io::Result<()> {
        (self.render)(subject, style, out)
    }
}

/// The subject of a report.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The study with every trial; the names of cells may be shortened ([`Report::named`]).
    pub study: &'a Study,
    /// The study's header as it was recorded.
    pub recorded: &'a StudyHeader,
    /// The analysis of this study.
    pub analysis: &'a Analysis,
    /// Where the costs of its cells differ; `None` without profiles of two cells.
    pub explanation: Option<&'a Explanation>,
}

impl<'a> Subject<'a> {
    /// Creates a subject with the recorded names of cells.
    pub fn of(
        study: &'a Study,
        analysis: &'a Analysis,
        explanation: Option<&'a Explanation>,
    ) -> Subject<'a> {
        Subject { study, recorded: &study.header, analysis, explanation }
    }
}

/// Style options that a format leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal or page; at least 40.
    pub width: usize,
    /// Whether text may be coloured with ANSI sequences.
    pub colour: bool,
    /// Whether to add system-call tables, sizes and the course of each flow.
    pub details: bool,
}

impl Default for Style {
    fn default() -> Self {
        Style { width: 100, colour: false, details: false }
    }
}
