//! One study: from its trials to the [`Analysis`] that every report prints. [`build`] assembles it
//! from a row for each cell ([`row`]), the verdicts, and what only a whole study has: effects of
//! factors, break-even sizes, the cost of profiling. Thresholds and recommendations are derived
//! from an analysis.

mod analysis;
mod build;
mod cell_trials;
mod factors;
mod offloading;
mod profiling;
mod recommendation;
mod row;
mod scaling;
mod threshold;

pub use analysis::*;
pub use build::{analyse, analyse_some};
pub(crate) use cell_trials::{CellTrials, cell_trials, counted};
pub(crate) use factors::by_block;
pub use factors::{Factor, FactorView, Interaction, LevelEffect};
pub use offloading::Offloading;
pub use profiling::{ProfilingNote, SamplingCost};
pub use recommendation::{Recommendation, Requirement, Undecided};
pub use row::receiver_steps;
pub use scaling::{Course, Scaling, ScalingPoint};
pub use threshold::{Outcome, Subject, Threshold, ThresholdResult, judge_thresholds, subjects};
