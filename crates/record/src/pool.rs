//! A pool of receive buffers, run for real: what is asked of it and what was seen.

use serde::{Deserialize, Serialize};

/// A ring of receive buffers and an application that keeps what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolRun {
    /// Buffers.
    pub buffers: u32,
    /// Buffers that the application takes at once.
    pub read: u32,
    /// Seconds for which it keeps them.
    pub hold: f64,
    /// Buffers that it gives back at once.
    pub batch: u32,
    /// Seconds, from the first packet on.
    pub seconds: f64,
}

/// What became of the packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolSeen {
    /// Buffers that there really were.
    pub buffers: u32,
    /// Seconds from the first packet on.
    pub seconds: f64,
    /// Packets that came.
    pub packets: u64,
    /// Of those, packets that found no buffer.
    pub refused: u64,
    /// When the first of these came, seconds; none if none did.
    pub first_refused: Option<f64>,
    /// Buffers that were free over time, in equal steps.
    pub course: Vec<u64>,
}
