//! What a meter returns for a window.

use bytepath_record::{Reading, Sampling, Scope, Series, ThreadTime, Unit};
use bytepath_sys::perf;
use std::collections::BTreeMap;

/// What a meter measured in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    pub readings: Vec<Reading>,
    pub series: Vec<Series>,
    /// Run time of threads.
    pub threads: Vec<ThreadTime>,
    /// For the report.
    pub warnings: Vec<String>,
    /// Samples, from the meter `profile` alone.
    pub capture: Option<Box<Capture>>,
}

impl Output {
    /// Adds one number of a kind that adds up over windows.
    pub(crate) fn add(&mut self, metric: &str, unit: Unit, value: f64, scope: &Scope) {
        self.readings.push(Reading::sum(metric, unit, value, scope.clone()));
    }

    /// Adds a level or a rate, of which several windows have a mean.
    pub(crate) fn level(&mut self, metric: &str, unit: Unit, value: f64, scope: &Scope) {
        self.readings.push(Reading::mean(metric, unit, value, scope.clone()));
    }
}

/// Everything that was sampled in a window, as the kernel delivered it.
#[derive(Clone, Debug, PartialEq)]
pub struct Capture {
    pub sampling: Sampling,
    /// What one count of the event is.
    pub unit: perf::Unit,
    /// Records of each CPU, one after the other.
    pub records: Vec<Vec<u8>>,
    /// When the window began, nanoseconds of the monotonic clock.
    pub begin: u64,
    /// Seconds of the window.
    pub seconds: f64,
    /// Seconds of it in which each CPU was idle, to a tick (`/proc/stat`); empty if unknown.
    pub idle: BTreeMap<u32, f64>,
    /// Samples that the kernel took and that were lost.
    pub lost: u64,
    /// Those of them for which there was no memory.
    pub dropped: u64,
    /// Times that the kernel stopped sampling because it took too long.
    pub throttled: u64,
    /// Part of the window in which the event was really counted, 0 to 1.
    pub counted: f64,
    /// Threads: process, thread, name.
    pub threads: Vec<(u32, u32, String)>,
    /// The text of `/proc/PID/maps` of processes that were sampled.
    pub maps: BTreeMap<u32, String>,
}
