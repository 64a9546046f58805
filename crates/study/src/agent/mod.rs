//! What runs on a host: the agent, one process for each role, and one more for the settings of a
//! host that has a machine of its own.
//!
//! The process is `bytepath agent`. In come requests, one JSON line each, on its standard input
//! (`bytepath_record::wire`); out go replies on its standard output, and bytes over the link
//! to the agent of the other role. `serve` is its main loop; a `session` is one
//! stream with its `engine` threads and meters; `samples` turns what was sampled into a
//! profile while the sampled processes still exist.
//!
//! It decides nothing and writes no file but the journal of settings. It holds nothing that
//! outlives it, so it ends, and with it what it set up, when its pipe does. The two users
//! outside are `bytepath observe`, which samples a program of its own (`samples`), and
//! whoever surveys this host or measures its copy ceiling without a testbed.

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
