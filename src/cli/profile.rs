//! `bytepath profile`: one profile, shown or converted.

use crate::record::{Fault, FaultKind};
use clap::Args;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct ProfileArguments {}

pub(super) fn profile(_: &ProfileArguments) -> Result<ExitCode, Fault> {
    Err(Fault::new(FaultKind::Unsupported, "not built yet"))
}
