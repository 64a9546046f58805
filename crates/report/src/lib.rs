//! Reports: studies, profiles and observations in forms for people and programs.
//!
//! A report needs nothing but its subject, so an old study renders on any machine, to the same
//! bytes. It measures nothing and decides nothing: verdicts come from `bytepath_stats`.
//!
//! - `document` is the model: sections of texts, tables and figures, without layout.
//! - `sections` builds the sections of a study, each once for all formats; `documents` does so
//!   for other commands. Both take their words from `wording`.
//! - `render` writes documents as plain text or HTML.
//! - `formats` has one file per format of [`CATALOG`] except HTML; `csv`, `parquet` and `json` are
//!   made from the study itself without a document.
//!
//! All of this runs in the process of the command line, after the measurement.

#![forbid(unsafe_code)]

mod catalog;
mod document;
mod documents;
mod formats;
mod render;
mod report;
mod sections;
mod wording;

pub use catalog::{CATALOG, columns, find, find_by_extension, summary_columns};
pub use document::Document;
pub use documents::advice::{Advice, advice, advice_or_hint, advise, measurement};
pub use documents::counters::{counters, counters_tsv};
pub use documents::difference::{difference, side_by_side};
pub use documents::examination::examination;
pub use documents::explanation::{explanation, symptoms};
pub use documents::observation::observation;
pub use documents::offload::offload;
pub use documents::overview::{Overview, screen};
pub use documents::published::{published, published_comparison};
pub use documents::sizing::sizing;
pub use documents::studies::{between, history, thresholds};
pub use formats::json::AnalysisDocument;
pub use render::html::{
    between as between_page, difference as difference_page, explanation as explanation_page,
    history as history_page, observation as observation_page, study as study_page,
};
pub use report::{Report, Style, Subject};
pub use sections::frames::{RateDifference, why};
pub use wording::ascii::wrap;
pub use wording::figures::plural;
pub use wording::limits::limits;
pub use wording::offload::MODEL;
pub use wording::setup::by_cells;
