//! A study: the folder that a run leaves behind.

use super::{Cell, CellId, Facts, Trial};
use serde::{Deserialize, Serialize};

/// Everything a report renders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// What was asked and on which hosts.
    pub header: StudyHeader,
    /// What came out, in the order it was run.
    pub trials: Vec<Trial>,
    /// What the reader of the folder should know: a torn last line, say.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// What was asked and on which hosts: `experiment.toml` and `hosts.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyHeader {
    /// Version of this record.
    pub schema: u32,
    /// Version of bytepath that made it.
    pub bytepath: String,
    /// When it began, milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// Name of the testbed.
    pub testbed: String,
    /// The cells, in the order asked for.
    pub cells: Vec<Cell>,
    /// The cell all others are compared with.
    pub baseline: CellId,
    /// Blocks, window, seed.
    pub schedule: Schedule,
    /// Names of the meters in use.
    pub meters: Vec<String>,
    /// Facts of the sender's and of the receiver's host.
    pub facts: Vec<Facts>,
    /// Memory-copy bandwidth of one core, measured at the start.
    pub ceiling: Option<CopyCeiling>,
}

/// How the trials are laid out in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Passes over all cells.
    pub blocks: u32,
    /// Seconds that flow before the window, not counted.
    pub warm_up: f64,
    /// Seconds of the measured window.
    pub window: f64,
    /// Seed of the random order.
    pub seed: u64,
}

/// Memory-copy bandwidth of one core, bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyCeiling {
    /// With buffers of the size the workload uses (message to read buffer).
    pub workload: f64,
    /// Bytes of each of those buffers.
    pub workload_size: u64,
    /// With buffers far above the last-level cache.
    pub memory: f64,
    /// Bytes of each of those.
    pub memory_size: u64,
}
