//! The kernel that a cell runs on, if the testbed boots one.

use super::Facts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A kernel and how it is booted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Kernel {
    /// Its name in the study: "stock", "patched".
    pub name: String,
    /// Its source: the path of an image or a package, the release of an installed kernel, or
    /// "debian:newest".
    pub source: String,
    /// Options appended to its command line; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cmdline: String,
}

impl Kernel {
    /// A kernel with nothing added to its command line.
    pub fn named(name: impl Into<String>, source: impl Into<String>) -> Kernel {
        Kernel { name: name.into(), source: source.into(), cmdline: String::new() }
    }
}

/// As the user types it.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.source)?;
        if self.cmdline.is_empty() { Ok(()) } else { write!(f, " {}", self.cmdline) }
    }
}

/// Facts of a testbed's hosts under one of a study's kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelHosts {
    /// The kernel.
    pub kernel: Kernel,
    /// Facts of the sender's and of the receiver's host.
    pub facts: Vec<Facts>,
}
