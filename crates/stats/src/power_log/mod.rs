//! The log of an external power meter, aligned with the trials of a study.
//!
//! The meter has a clock of its own. Its offset to the study's is found by
//! [`align`], or given.

mod align;
mod columns;
mod log;
mod numbers;

pub use align::{Alignment, align};
pub use log::{LONGEST_LOG, Log};
