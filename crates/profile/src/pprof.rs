//! pprof, the format in which profiles are stored
//! (<https://github.com/google/pprof/blob/main/proto/profile.proto>).
//!
//! Data for which pprof has a field is in that field, so that every reader of pprof shows it:
//! functions, modules with build ids, inlined functions as further lines of a location, threads and
//! owners as labels. Other data is in comments that begin with `bytepath:`, so that a profile is
//! restored exactly, to the last bit of a weight:
//!
//! | comment | what |
//! |---|---|
//! | `format=1` | marks that these comments are present |
//! | `title=`, `event=`, `weight=`, `period=`, `seconds=`, `cpus=`, `lost=`, `bytes=`, `packets=` | the header |
//! | `kinds=` | one letter per mapping, `k`, `u` or `?` |
//! | `inlined=` | functions that are inlined into one of another mapping, or into none |
//! | `track=` | a series, as JSON: name, unit, points |
//! | `thread=` | pid, tid and name of every thread, unless samples refer to them in order |
//! | `stack=` | locations of every stack, likewise |

mod decode;
mod encode;
mod message;
#[cfg(test)]
mod tests;

pub use decode::{decode, recognises};
pub use encode::encode;
