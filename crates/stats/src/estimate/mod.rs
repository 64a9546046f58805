//! Arithmetic on a handful of numbers: the summary of a sample, and the ratio of two paired samples
//! with its interval. Nothing here depends on what the numbers measure.

mod effect;
mod interval;
mod order;
mod pairs;
mod sample_size;
mod summary;

pub use effect::{Effect, Opening};
pub(crate) use interval::{Estimate, ratio};
pub use interval::{Interval, Looks};
pub(crate) use order::LEVEL as ORDER_LEVEL;
pub use order::Order;
pub use pairs::PairSpread;
pub(crate) use sample_size::{POWER_OF_PLAN, blocks_for, blocks_to_show, one_sided};
pub use summary::Summary;
