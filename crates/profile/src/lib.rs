#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod attribution;
pub mod change;
mod conventions;
pub mod counts;
pub mod diff;
mod ends;
mod explanation;
pub mod export;
pub mod flame;
mod functions;
pub mod import;
mod model;
pub mod normalise;
pub mod pprof;
pub mod subsystem;
pub mod symbols;
pub mod symptom;
mod text;
pub mod waterfall;

pub use ends::{CellEnds, EndPart, Ends};
pub use explanation::{Explanation, Ranked, Symptoms, explain, symptoms};
pub use functions::{Function, functions, summarise};
pub use model::*;
