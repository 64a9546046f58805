//! The wording of reports, without layout: numbers, names, sentences. The same in every format.

pub(crate) mod answer;
pub(crate) mod ascii;
pub(crate) mod explanation;
pub(crate) mod figures;
pub(crate) mod limits;
pub(crate) mod names;
pub(crate) mod offload;
pub(crate) mod reproduce;
pub(crate) mod scaling;
pub(crate) mod setup;
pub(crate) mod text;
pub(crate) mod verdicts;
