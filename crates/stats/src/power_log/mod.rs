//! The log of an external power meter, aligned with the trials of a study.
//!
//! The meter has its own clock. Its offset to the study's is found by [`align`], or given by the
//! user.

mod align;
mod columns;
mod log;
mod numbers;

pub use align::{Alignment, align};
pub use log::{LONGEST_LOG, Log};
