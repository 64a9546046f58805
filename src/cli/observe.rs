//! `bytepath observe`: any program under the same meters.

use crate::record::{Fault, FaultKind};
use clap::Args;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct ObserveArguments {}

pub(super) fn observe(_: &ObserveArguments) -> Result<ExitCode, Fault> {
    Err(Fault::new(FaultKind::Unsupported, "not built yet"))
}
