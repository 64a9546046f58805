//! The size of a guest, and how long it is waited for.

use std::time::Duration;

/// What a guest has, and how long it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub cpus: u32,
    /// Memory, bytes.
    pub memory: u64,
    pub limits: Limits,
}

/// How long a guest may take before it counts as one that hangs. A limit is reached
/// only by a guest that is lost, so it is generous: an emulated guest on a
/// busy host is slow and all right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From its start until its program answers.
    pub boot: Duration,
    /// To answer what its program or an agent answers by itself.
    pub silence: Duration,
}

impl Shape {
    /// What a user who requests nothing gets.
    pub const DEFAULT: Shape = Shape {
        cpus: 2,
        memory: 1 << 30,
        limits: Limits { boot: Duration::from_secs(60), silence: Duration::from_secs(20) },
    };
}
