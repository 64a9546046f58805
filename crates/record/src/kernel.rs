//! Which kernel a cell runs on, where the testbed boots one.

use super::Facts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A kernel and how it is booted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Kernel {
    /// What the study calls it: "stock", "patched".
    pub name: String,
    /// Where it is: a path to an image or to a package, the release of an
    /// installed kernel, "debian:newest".
    pub source: String,
    /// What is added to its command line; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cmdline: String,
}

impl Kernel {
    /// A kernel with nothing added to its command line.
    pub fn named(name: impl Into<String>, source: impl Into<String>) -> Kernel {
        Kernel { name: name.into(), source: source.into(), cmdline: String::new() }
    }
}

/// As one would type it.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.source)?;
        if self.cmdline.is_empty() { Ok(()) } else { write!(f, " {}", self.cmdline) }
    }
}

/// What the hosts of a testbed are under one of a study's kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelHosts {
    /// The kernel.
    pub kernel: Kernel,
    /// Facts of the sender's and of the receiver's host.
    pub facts: Vec<Facts>,
}
