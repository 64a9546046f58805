//! The contract that every path keeps: the same payload, the same touch, the
//! same way of counting. Pure: no system call, no clock.

mod gate;
mod label;
mod payload;
mod tally;

pub use gate::{Gate, Phase, Progress};
pub use label::{believe, label, untested};
pub use payload::{PATTERN_PERIOD, Pattern, Toucher};
pub use tally::{CallStats, Tally, TallyEnd};
