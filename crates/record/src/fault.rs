//! A failure, in a form that can cross a pipe: the thing, the cause, the remedy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One failure, described in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
pub struct Fault {
    /// The kind, which determines the exit code.
    pub kind: FaultKind,
    /// What failed and why.
    pub message: String,
    /// What the user can do about it, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Kinds of failure, each with its own exit code (see `cli::exit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The request is invalid: unknown name, value out of range.
    Usage,
    /// The host lacks a feature, a device or a program.
    Unsupported,
    /// The host has it, but this user may not use it.
    Permission,
    /// The connection to the peer or an agent was lost.
    PeerLost,
    /// Delivered bytes differ from those sent.
    Corrupt,
    /// A file could not be read or written.
    Storage,
    /// The user cancelled.
    Interrupted,
    /// Anything else the kernel refused.
    System,
}

impl Fault {
    /// A fault without a remedy. The message may contain an `io::Error`: the number that the
    /// standard library prints after the text of strerror(3) is removed.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Fault { kind, message: without_numbers(message.into()), remedy: None }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Fault::new(FaultKind::Usage, message)
    }

    pub fn unsupported(message: impl Into<String>) -> Self {
        Fault::new(FaultKind::Unsupported, message)
    }

    pub fn storage(message: impl Into<String>) -> Self {
        Fault::new(FaultKind::Storage, message)
    }

    pub fn peer_lost(message: impl Into<String>) -> Self {
        Fault::new(FaultKind::PeerLost, message)
    }

    /// A failure of the kind [`FaultKind::System`].
    pub fn failed(message: impl Into<String>) -> Self {
        Fault::new(FaultKind::System, message)
    }

    /// Adds what the user can do about it.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// A failed system call: `what` names the call and its object. The kind
    /// follows from the error number.
    pub fn system(what: impl fmt::Display, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        let kind = match error.kind() {
            K::PermissionDenied => FaultKind::Permission,
            K::BrokenPipe | K::ConnectionReset | K::ConnectionAborted | K::UnexpectedEof => {
                FaultKind::PeerLost
            }
            K::Unsupported => FaultKind::Unsupported,
            K::StorageFull | K::QuotaExceeded | K::ReadOnlyFilesystem => FaultKind::Storage,
            _ => FaultKind::System,
        };
        Fault::new(kind, format!("{what}: {error}"))
    }

    /// A thread or program that could not be started (clone(2)).
    pub fn not_started(what: impl fmt::Display, error: &std::io::Error) -> Self {
        let fault = Fault::system(format!("cannot start {what}"), error);
        match error.kind() {
            // pthread_create(3) also fails with EAGAIN if memory for a stack is lacking.
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::OutOfMemory => fault.remedy(
                "raise the limit of processes (ulimit -u, pids.max of the control group) or of \
                 memory (ulimit -d and -v)",
            ),
            _ => fault,
        }
    }

    /// Appends the kernel's own message, if there is one.
    pub fn words(mut self, words: Option<&str>) -> Self {
        if let Some(words) = words {
            self.message = format!("{}: {words}", self.message);
        }
        self
    }

    /// Prefixes the message with the thing that failed.
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(remedy) = &self.remedy {
            write!(f, " ({remedy})")?;
        }
        Ok(())
    }
}

/// Removes each " (os error N)" from the text.
fn without_numbers(mut text: String) -> String {
    const MARK: &str = " (os error ";
    let mut from = 0;
    while let Some(found) = text[from..].find(MARK) {
        let start = from + found;
        let digits = text[start + MARK.len()..].bytes().take_while(u8::is_ascii_digit).count();
        let end = start + MARK.len() + digits;
        if digits > 0 && text[end..].starts_with(')') {
            text.replace_range(start..=end, "");
            from = start;
        } else {
            from = end;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_kernel_are_words_without_their_number() {
        let error = std::io::Error::from_raw_os_error(1);
        let fault = Fault::system("bind", &error);
        assert_eq!(fault.message, "bind: Operation not permitted");
        let fault = Fault::failed(format!("{error}, then {error} (os error of a file)"));
        let expected = "Operation not permitted, then Operation not permitted (os error of a file)";
        assert_eq!(fault.message, expected);
    }
}
