//! bytepath answers one question: which way should your bytes take through
//! this machine, and why?
//!
//! The layers are crates; each may use only what its manifest names. They are re-exported here for
//! tests and benches. Start reading at [`study`], or at `docs/architecture.md`.

#![forbid(unsafe_code)]
#![warn(unreachable_pub, clippy::print_stderr, clippy::print_stdout, clippy::too_many_lines)]

pub use bytepath_engine::{connection, copy, path, workload};
pub use bytepath_host::{self as host, guest, testbed};
pub use bytepath_math as math;
pub use bytepath_meter as meter;
pub use bytepath_observe as observe;
pub use bytepath_profile as profile;
pub use bytepath_record as record;
pub use bytepath_report as report;
pub use bytepath_settings as settings;
pub use bytepath_spec as spec;
pub use bytepath_stats as stats;
pub use bytepath_study::{self as study, fleet};
pub use bytepath_sys as sys;

pub mod cli;
