//! How the clocks of two hosts apart stood to each other during a trial.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The clocks of both hosts, and what they say of the ends' windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Clocks {
    /// The sender's.
    pub sender: HostClock,
    /// The receiver's.
    pub receiver: HostClock,
    /// Seconds for which the window of one end alone was open, over all windows of the
    /// trial.
    pub alone: f64,
    /// How far that may be off, seconds: the clocks' errors at each edge.
    pub alone_error: f64,
}

/// A host's clocks against those of the controller's host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostClock {
    /// CLOCK_MONOTONIC there less that here before the trial, seconds.
    pub offset: f64,
    /// How far that may be off, seconds: half the round trip in which it was read.
    pub error: f64,
    /// The same difference after the trial less that before it, seconds.
    pub drift: f64,
    /// CLOCK_REALTIME there less that here, seconds: no figure but those of an external
    /// power meter depends on it.
    pub wall: f64,
}
