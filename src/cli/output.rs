//! Standard output, whose reader may stop early: `bytepath paths | head`.

use crate::record::{Fault, FaultKind};
use serde::Serialize;
use std::io::{self, BufWriter, ErrorKind, Write};

/// Prints a value as JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Fault> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Fault::new(FaultKind::System, format!("cannot encode: {e}")))?;
    print(|out| writeln!(out, "{text}"))
}

/// Prints what is written.
pub(super) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
    // Standard output is flushed at every line, which a long table would pay for.
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|e| Fault::system("cannot write to standard output", &e)),
    }
}
