//! pprof, the format in which profiles are kept
//! (<https://github.com/google/pprof/blob/main/proto/profile.proto>).
//!
//! What pprof has a place for is in that place, so that every reader of pprof
//! shows it: functions, modules with build ids, inlined functions as further
//! lines of a location, threads and owners as labels. What it has no place for
//! is in comments that begin with `bytepath:`, so that a profile comes back as
//! it was, to the last bit of a weight:
//!
//! | comment | what |
//! |---|---|
//! | `format=1` | these comments are there |
//! | `title=`, `event=`, `weight=`, `period=`, `seconds=`, `cpus=`, `lost=`, `bytes=`, `packets=` | the header |
//! | `kinds=` | one letter a mapping, `k`, `u` or `?` |
//! | `inlined=` | functions that are inlined into one of another mapping, or into none |
//! | `track=` | a series, as JSON: name, unit, points |
//! | `thread=` | pid, tid and name, of every thread, if samples do not name them in order |
//! | `stack=` | locations, of every stack, likewise |

mod decode;
mod encode;
mod message;
#[cfg(test)]
mod tests;

pub use decode::{decode, recognises};
pub use encode::encode;
