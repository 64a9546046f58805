//! A profile in memory, and how one is made.

mod builder;
mod profile;

pub use builder::Builder;
pub use profile::*;
