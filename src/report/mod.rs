//! What a study looks like: one file or folder per format, one line each in
//! [`CATALOG`]. A report needs nothing but the study, so an old one renders
//! on any machine, and to the same bytes.

mod csv;
mod figures;
mod html;
mod json;
mod netdev;
mod observation;
mod page;
mod parquet;
mod reproduce;
mod rows;
mod setup;
mod table;
mod text;
mod verdicts;
mod words;

pub use observation::observation;
pub use text::{between, history, thresholds};

use crate::record::Study;
use crate::stats::Analysis;
use std::io::{self, Write};

/// A format.
pub trait Report: Sync {
    /// Name in the catalogue, as the user types it.
    fn name(&self) -> &'static str;

    /// One line: what it is good for.
    fn summary(&self) -> &'static str;

    /// How the name of a file of this format ends, without the dot. Several
    /// formats may share one.
    fn extension(&self) -> &'static str {
        "txt"
    }

    /// Whether it is unfit for a terminal.
    fn binary(&self) -> bool {
        false
    }

    /// Writes the study. The analysis must be that of this study. Fails only
    /// where `out` does.
    fn render(
        &self,
        study: &Study,
        analysis: &Analysis,
        style: &Style,
        out: &mut dyn Write,
    ) -> io::Result<()>;
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

/// Every format.
pub static CATALOG: &[&dyn Report] =
    &[&text::Text, &netdev::Netdev, &html::Html, &json::Json, &csv::Csv, &parquet::Parquet];

/// The format with this name.
pub fn find(name: &str) -> Option<&'static dyn Report> {
    CATALOG.iter().copied().find(|report| report.name() == name)
}

/// The first format whose files end like this.
pub fn find_by_extension(extension: &str) -> Option<&'static dyn Report> {
    CATALOG.iter().copied().find(|report| report.extension() == extension)
}

/// The columns of `csv` and `parquet`, in order.
pub fn columns() -> impl Iterator<Item = &'static str> {
    rows::COLUMNS.iter().map(|column| column.name)
}
