//! The formats of reports on a study.

use crate::formats::rows::Row;
use crate::formats::summary::CellRow;
use crate::formats::table::Record;
use crate::formats::{csv, json, ktap, netdev, parquet, text};
use crate::render::html;
use crate::report::Report;

pub static CATALOG: &[&Report] = &[
    &text::FORMAT,
    &netdev::FORMAT,
    &html::FORMAT,
    &json::FORMAT,
    &csv::FORMAT,
    &parquet::FORMAT,
    &csv::SUMMARY,
    &parquet::SUMMARY,
    &ktap::FORMAT,
];

/// Returns the format with this name.
pub fn find(name: &str) -> Option<&'static Report> {
    CATALOG.iter().copied().find(|report| report.name == name)
}

/// Returns the first format with this file extension.
pub fn find_by_extension(extension: &str) -> Option<&'static Report> {
    CATALOG.iter().copied().find(|report| report.extension == extension)
}

/// Returns the columns of `csv` and `parquet`, in order.
pub fn columns() -> impl Iterator<Item = String> {
    Row::columns().into_iter().map(|(name, _)| name.into_owned())
}

/// Returns the columns of `summary-csv` and `summary-parquet`, in order.
pub fn summary_columns() -> impl Iterator<Item = String> {
    CellRow::columns().into_iter().map(|(name, _)| name.into_owned())
}
