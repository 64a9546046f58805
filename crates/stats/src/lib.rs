//! From trials to verdicts. Pure functions of a study's records: no clock, no file, no
//! system call, so that the same study gives the same numbers on any machine. The controller
//! uses them while a study runs, and every report afterwards; agents never do.
//!
//! How a trial becomes a verdict:
//!
//! 1. `trial`: a trial is dropped if an event spoiled it, never for its value. For the others, the
//!    CPU time of each end is determined, and what was achieved with it.
//! 2. `cell`: the measured trials of a cell are added up into its row.
//! 3. `estimate`: a cell and the baseline are paired block by block; the ratio of a
//!    `metric` gets an interval.
//! 4. `verdict`: if the two were given the same task, the interval is judged by the
//!    `rules`, among all comparisons of that metric in the study.
//! 5. `study`: rows and verdicts make the [`Analysis`], which thresholds and recommendations
//!    are read from.
//!
//! Around that: `planning` decides what a running study does next, and `studies` compares
//! studies with each other. Three parts stand alone: [`offload`] (copy engines without a
//! study), `sizing` (buffer arithmetic), and [`power_log`] (the log of an external meter).
//! A folder uses those named before it, and none named after it.

#![forbid(unsafe_code)]

mod cell;
mod estimate;
mod metric;
mod offload;
mod planning;
pub mod power_log;
mod rules;
mod sizing;
mod studies;
mod study;
#[cfg(test)]
mod tests;
mod trial;
mod verdict;

pub use cell::*;
pub use estimate::*;
pub use metric::{BetterDirection, Metric};
pub use offload::*;
pub use planning::*;
pub use rules::{DEFAULT_MARGIN, Rules};
pub use sizing::*;
pub use studies::*;
pub use study::*;
pub use trial::*;
pub use verdict::*;
