//! Limits the memory for reading files, which may be untrusted.

use bytepath_record::{Fault, joined, unit, visible};
use bytepath_spec::usage;
use bytepath_sys::allowance::{Limit, limit};

/// Default limit: enough for present studies and profiles.
const DEFAULT_MEMORY: u64 = 256 << 20;

/// The variable by which the user sets another limit.
const VARIABLE: &str = "BYTEPATH_MEMORY";

/// Largest number of characters quoted from a command line.
const QUOTED: usize = 300;

/// Reads something within the limit, in a command that also does other work.
pub(super) fn bounded_while<T>(read: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    let _limit = bounded()?;
    read()
}

/// Limits memory until the result is dropped: a command that exceeds the limit ends with a message.
pub(super) fn bounded() -> Result<Limit, Fault> {
    let most = match std::env::var(VARIABLE) {
        Ok(text) => unit::parse_bytes(&text).map_err(|e| usage(format!("{VARIABLE}: {e}")))?,
        Err(_) => DEFAULT_MEMORY,
    };
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let line: String = joined(words, " ").chars().take(QUOTED).collect();
    let allowed = unit::bytes(most);
    let text = format!("bytepath {line}: what it reads takes more than {allowed} of memory");
    let fault = Fault::storage(text)
        .remedy(format!("if it may take more: {VARIABLE}={}", unit::bytes(most.saturating_mul(4))));
    limit(most, format!("bytepath: {}\n", visible(&fault.to_string())), STORAGE)
        .map_err(|e| Fault::system("cannot limit memory", &e))
}

/// The exit code of [`FaultKind::Storage`].
const STORAGE: i32 = 6;
