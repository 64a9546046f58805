//! The documents of all commands except those that report on a study.

pub(crate) mod advice;
pub(crate) mod counters;
pub(crate) mod difference;
pub(crate) mod examination;
pub(crate) mod explanation;
pub(crate) mod observation;
pub(crate) mod offload;
pub(crate) mod overview;
pub(crate) mod published;
pub(crate) mod sizing;
pub(crate) mod studies;
