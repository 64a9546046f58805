//! Exit codes.

use bytepath_record::{Fault, FaultKind};
use std::process::ExitCode;

/// The exit code of a run whose report contains a failed trial.
pub(super) const TRIAL_FAILED: u8 = 5;

/// The exit code of a run in which no trial counts, because all were rejected.
pub(super) const NOTHING_MEASURED: u8 = 8;

/// The exit code of a comparison that fails a threshold of `--fail-if`.
pub(super) const THRESHOLD_FAILED: u8 = 7;

/// The exit code of a comparison in which a limit is undecided and none fails; `git bisect run`
/// takes it for "cannot be tested".
pub(super) const UNDECIDED: u8 = 125;

/// The exit code if something cannot run on this host.
pub(super) const UNSUPPORTED: u8 = 3;

/// The exit code of a failure, by its kind.
pub fn exit_code(fault: &Fault) -> ExitCode {
    ExitCode::from(match fault.kind {
        FaultKind::System => 1,
        FaultKind::Usage => 2,
        FaultKind::Unsupported => UNSUPPORTED,
        FaultKind::Permission => 4,
        FaultKind::PeerLost | FaultKind::Corrupt => TRIAL_FAILED,
        FaultKind::Storage => 6,
        FaultKind::Interrupted => 130,
    })
}
