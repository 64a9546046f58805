//! The offset between the clocks of two separate hosts during a trial.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The clocks of both hosts, and by how much the ends' windows differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Clocks {
    /// The sender's.
    pub sender: HostClock,
    /// The receiver's.
    pub receiver: HostClock,
    /// Seconds by which the sender's window opened after the receiver's; negative if it opened
    /// before. The windows of a sliced trial add up, so differences in both directions cancel.
    pub opened: f64,
    /// The same for when the windows closed.
    pub closed: f64,
    /// Uncertainty of each of the two in seconds: the errors of both clocks, for every window.
    pub error: f64,
}

impl Clocks {
    /// Returns the seconds for which only one end's window was open.
    pub fn out_of_step(&self) -> f64 {
        self.opened.abs() + self.closed.abs()
    }
}

/// A host's clocks relative to those of the controller's host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostClock {
    /// CLOCK_MONOTONIC there minus here before the trial, in seconds.
    pub offset: f64,
    /// Uncertainty of the offset in seconds: half the round trip in which it was read.
    pub error: f64,
    /// The offset after the trial minus that before it, in seconds.
    pub drift: f64,
    /// CLOCK_REALTIME there minus here, in seconds: only the figures of an external power meter
    /// depend on it.
    pub wall: f64,
}
