//! The difference between two profiles: every function with its share in both, ranked by savings.
//!
//! `without` is the profile before a change, `with` the one after it, and saved = without - with,
//! so that a positive number is a gain. Each side may consist of several profiles, for example
//! repeated trials, which are added up.

mod amount;
mod compare;
mod places;
mod rank;
#[cfg(test)]
mod tests;
mod types;

pub use amount::{Per, Side};
pub use compare::diff;
pub use places::{Placed, RankingLine, places};
pub use types::{Diff, GroupBy, GroupTotal, LeftOut, Measure, Options, Pair, Presence, Row};
