//! Published work as data: the figures of a study made elsewhere, with their source.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Levels of factors, in bytepath's terms if it has them: `path` = `zcrx`.
pub type Levels = BTreeMap<String, String>;

/// A published work. Facts and figures are taken from the work, wording is not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Its title.
    pub title: String,
    /// Its authors.
    pub by: String,
    /// Year of publication; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub year: Option<u16>,
    /// What the figures were read from.
    pub source: String,
    /// Where it can be found.
    pub link: String,
    /// Hardware, software and method of the measurement.
    pub setup: String,
    /// What to consider when comparing with it.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Every factor that its rows name.
    pub factors: BTreeMap<String, PublishedFactor>,
    /// Its figures.
    #[serde(rename = "figure")]
    pub figures: Vec<PublishedFigure>,
}

/// How a factor of a work maps to a factor here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PublishedFactor {
    /// A factor of the same name here, whose levels are mapped by name.
    Levels(BTreeMap<String, String>),
    /// No counterpart, with the reason.
    None(String),
}

/// A table or a chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    /// Unique in the work.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// How its numbers were read, unless a row says otherwise.
    pub read: ReadFrom,
    /// The quantity of each number in a row.
    pub columns: Vec<PublishedColumn>,
    /// Levels that all rows share.
    #[serde(default)]
    pub at: Levels,
    /// The row that the others are compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Levels>,
    /// The numbers.
    pub rows: Vec<PublishedRow>,
}

/// The quantity of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedColumn {
    /// `rate` is compared with the rate of a study, as a ratio to the figure's baseline; any other
    /// quantity is printed as published.
    pub quantity: String,
    /// Its unit.
    pub unit: String,
    /// The study's figure to compare with, if the figure has no baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<StudyFigure>,
}

/// A figure of a study that is the same quantity as a published one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StudyFigure {
    /// `rate`: work per second; `packets`: packets per second that the receiver's device received;
    /// otherwise the name of a reading of the sender's flows.
    pub figure: String,
    /// How many of the published unit equal one of the study's: a byte per second is 8e-6 Mbit/s.
    pub scale: f64,
}

/// The numbers of one combination of levels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// Its levels, in addition to those of the figure.
    #[serde(default)]
    pub at: Levels,
    /// One number per column.
    #[serde(rename = "is")]
    pub values: Vec<f64>,
    /// How they were read, if this differs from the figure's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<ReadFrom>,
}

/// How a number was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReadFrom {
    /// Printed in a text or a table.
    Text,
    /// Read off a chart.
    Chart,
}
