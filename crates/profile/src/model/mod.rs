//! A profile in memory, and its builder.

mod builder;
mod profile;
mod selection;

pub use builder::Builder;
pub use profile::*;
pub use selection::{marks_part, of_threads, on_cpus};
