//! A meter's results for a window.

use bytepath_record::{Reading, Sampling, Scope, Series, ThreadTime, Unit};
use bytepath_sys::perf;
use std::collections::BTreeMap;

/// A meter's results for a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    pub readings: Vec<Reading>,
    pub series: Vec<Series>,
    /// Run time of threads.
    pub threads: Vec<ThreadTime>,
    /// Warnings for the report.
    pub warnings: Vec<String>,
    /// Samples, only from the meter `profile`.
    pub capture: Option<Box<Capture>>,
}

impl Output {
    /// Adds a number that is summed over windows.
    pub(crate) fn add(&mut self, metric: &str, unit: Unit, value: f64, scope: &Scope) {
        self.readings.push(Reading::sum(metric, unit, value, scope.clone()));
    }

    /// Adds a level or a rate, which is averaged over windows.
    pub(crate) fn level(&mut self, metric: &str, unit: Unit, value: f64, scope: &Scope) {
        self.readings.push(Reading::mean(metric, unit, value, scope.clone()));
    }
}

/// All samples of a window, as the kernel delivered them.
#[derive(Clone, Debug, PartialEq)]
pub struct Capture {
    pub sampling: Sampling,
    /// The unit of one count of the event.
    pub unit: perf::Unit,
    /// Records of each CPU, one CPU after the other.
    pub records: Vec<Vec<u8>>,
    /// Start of the window in ns of the monotonic clock.
    pub begin: u64,
    /// Length of the window in seconds.
    pub seconds: f64,
    /// Seconds of the window in which each CPU was idle, to a tick (`/proc/stat`); empty if
    /// unknown.
    pub idle: BTreeMap<u32, f64>,
    /// Samples that the kernel took but that were lost.
    pub lost: u64,
    /// The part of them that was lost because there was no memory.
    pub dropped: u64,
    /// Times that the kernel stopped sampling because it took too long.
    pub throttled: u64,
    /// Fraction of the window in which the event was actually counted, 0 to 1.
    pub counted: f64,
    /// Threads as process id, thread id, and name.
    pub threads: Vec<(u32, u32, String)>,
    /// The text of `/proc/PID/maps` for processes that were sampled.
    pub maps: BTreeMap<u32, String>,
}
