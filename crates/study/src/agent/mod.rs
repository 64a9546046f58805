//! The agent runs on a host: one process for each role, and one more for the settings of a host
//! that is a separate machine.
//!
//! The process is `bytepath agent`. It reads requests, one JSON line each, from its standard input
//! (`bytepath_record::wire`), writes replies to its standard output, and exchanges bytes with the
//! agent of the other role over the link. `serve` is its main loop; a `session` is one stream with
//! its `engine` threads and meters; `samples` turns samples into a profile while the sampled
//! processes still exist.
//!
//! It decides nothing and writes no file but the journal of settings. Nothing that it sets up
//! outlives it, and it ends when its pipe closes. This module also serves `bytepath observe`, which
//! samples a program that it starts (`samples`), and callers that survey this host or measure its
//! copy ceiling without a testbed.

mod ceiling;
mod encryption;
mod engine;
mod pauses;
mod samples;
mod serve;
mod session;

pub use ceiling::measure as copy_ceiling;
pub use samples::{ProgramSampler, of_program};
pub use serve::{serve, survey};
