//! Two cells: whether they were given the same task ([`contract`]), what their blocks show
//! ([`compare`]), and the resulting verdict ([`judge`], which documents the rule).

mod compare;
mod contract;
mod judge;

pub use compare::Comparison;
pub(crate) use compare::{Comparer, Side};
pub(crate) use contract::{plain_value, trial_differences, undeclared_differences};
pub use judge::{Ceiling, Noise, Test, Verdict};
pub(crate) use judge::{Findings, judge, tests};
