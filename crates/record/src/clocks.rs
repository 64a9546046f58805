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
    /// Seconds by which the sender's window opened after the receiver's, less than zero
    /// where it opened before. The windows of a sliced trial add up, so what is early as
    /// often as late cancels.
    pub opened: f64,
    /// The same of when they closed.
    pub closed: f64,
    /// How far each of the two may be off, seconds: the errors of both clocks, for every
    /// window.
    pub error: f64,
}

impl Clocks {
    /// Seconds for which the window of one end alone was open.
    pub fn out_of_step(&self) -> f64 {
        self.opened.abs() + self.closed.abs()
    }
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
