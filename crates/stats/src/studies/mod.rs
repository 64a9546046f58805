//! Several studies: one against another ([`between`]), one against a published work
//! ([`published`]), and one figure over many, in order of time ([`history`]).

mod between;
mod change;
mod differences;
mod history;
mod published;

pub use between::{CellComparison, StudyComparison, between};
pub use change::{Change, changes};
pub use differences::{Difference, Weight, differences, host_differences};
pub use history::{CHANGE_LEVEL, Entry, History, Point, Shift, StudyPoints, history, points};
pub use published::*;
