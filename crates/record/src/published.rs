//! Published work as data: the figures of a study made elsewhere, with their source.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Levels of factors, in the terms of this program where it has some: `path` = `zcrx`.
pub type Levels = BTreeMap<String, String>;

/// A published work. Facts and figures are the work's, words are not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Its title.
    pub title: String,
    /// Who made it.
    pub by: String,
    /// When it was published; `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub year: Option<u16>,
    /// What the figures were read from.
    pub source: String,
    /// Where it can be found.
    pub link: String,
    /// What it was measured on, and how.
    pub setup: String,
    /// What has to be known to compare with it.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Every factor that its rows name.
    pub factors: BTreeMap<String, PublishedFactor>,
    /// Its figures.
    #[serde(rename = "figure")]
    pub figures: Vec<PublishedFigure>,
}

/// What a factor of a work is here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PublishedFactor {
    /// A factor of the same name, whose levels the work calls so.
    Levels(BTreeMap<String, String>),
    /// Nothing, and why.
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
    /// What each number of a row is.
    pub columns: Vec<PublishedColumn>,
    /// What all rows share.
    #[serde(default)]
    pub at: Levels,
    /// The row that the others are compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Levels>,
    /// The numbers.
    pub rows: Vec<PublishedRow>,
}

/// What a number is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedColumn {
    /// `rate` is compared with the rate of a study, as a ratio to the figure's baseline; anything
    /// else is printed as published.
    pub quantity: String,
    /// Its unit.
    pub unit: String,
    /// The study's figure to compare the number with, if the figure has no baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Ours>,
}

/// A figure of a study that is the same quantity as a published one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ours {
    /// `rate`: work per second; `packets`: those per second that the receiver's device took in;
    /// else the name of a reading of the sender's flows.
    pub figure: String,
    /// How many of the published unit one of the study's is: 8e-6 Mbit/s are a byte per second.
    pub scale: f64,
}

/// The numbers of one combination of levels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// Its levels, in addition to those of the figure.
    #[serde(default)]
    pub at: Levels,
    /// One number a column.
    pub is: Vec<f64>,
    /// How they were read, where it differs from the figure's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<ReadFrom>,
}

/// How a number was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReadFrom {
    /// It is printed, in a text or a table.
    Text,
    /// It was read from a mark of a chart.
    Chart,
}
