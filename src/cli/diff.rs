//! `bytepath diff`: what makes the difference between two profiles.

use crate::record::{Fault, FaultKind};
use clap::Args;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct DiffArguments {}

pub(super) fn diff(_: &DiffArguments) -> Result<ExitCode, Fault> {
    Err(Fault::new(FaultKind::Unsupported, "not built yet"))
}
