//! bytepath answers one question: which way should your bytes take through
//! this machine, and why?
//!
//! The modules stand in dependency order: each may use only those above it,
//! and the exact edges are checked by `tests/tidy.rs`. Start reading at
//! [`run`], or at `docs/architecture.md`.

pub mod record;
pub mod sys;

pub mod profile;
pub mod spec;
pub mod stats;
pub mod workload;

pub mod host;
pub mod meter;
pub mod path;

pub mod observe;

pub mod run;

pub mod report;

pub mod cli;
