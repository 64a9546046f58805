//! The load of an open loop as a part of the peak: the measured peaks, and the rate derived from
//! them.

use super::{Cell, CellId, OptionValue, without_levels};
use super::{joined, shared_levels};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The option of a workload that sets the load.
const RATE: &str = "rate";

/// The rate of cells that differ only in their paths, and how it was derived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// The requested percentage of the peak.
    pub percent: u64,
    /// That percentage of the lowest peak, in exchanges per second: the rate of the trials.
    pub rate: u64,
    /// The cells that run at this rate.
    pub cells: Vec<CellId>,
    /// The peak of each path; the second copy of a baseline has the peak of the first.
    pub peaks: Vec<Peak>,
    /// The pair of hosts, if the study was merged from several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<String>,
}

/// The rate of a cell in a closed loop, from pilot trials before the first block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Peak {
    pub cell: CellId,
    /// Exchanges per second of each pilot.
    pub pilots: Vec<f64>,
}

impl Peak {
    /// Returns the median of the pilots in exchanges per second.
    pub fn rate(&self) -> f64 {
        let mut rates = self.pilots.clone();
        rates.sort_by(f64::total_cmp);
        let at = |place: usize| rates.get(place).copied().unwrap_or(0.0);
        (at(rates.len() / 2) + at(rates.len().saturating_sub(1) / 2)) / 2.0
    }
}

impl Load {
    /// Largest percentage of the peak: at twice what a server can answer, a study shows its
    /// overload.
    pub const MOST: u64 = 200;

    /// Derives the rate from a percentage of the lowest peak; `None` if there are no peaks.
    pub fn new(percent: u64, cells: Vec<CellId>, peaks: Vec<Peak>) -> Option<Load> {
        let lowest = peaks.iter().map(Peak::rate).min_by(f64::total_cmp)?;
        let rate = ((lowest * percent as f64 / 100.0) as u64).max(1);
        Some(Load { percent, rate, cells, peaks, pair: None })
    }
}

/// For users: the rate, and each peak.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.peaks.iter().map(|peak| peak.cell.0.as_str()).collect();
        let shared = shared_levels(&names);
        let peak = |peak: &Peak| {
            let name = without_levels(&peak.cell.0, &shared);
            format!("{name} reaches {}/s", thousands(peak.rate() as u64))
        };
        let (levels, rate) = (joined(&shared, " "), thousands(self.rate));
        write!(f, "{levels} is {rate}/s: {}", joined(self.peaks.iter().map(peak), ", "))
    }
}

impl Cell {
    /// Returns the percentage of the peak that is its load; `None` if its rate is a number, or for
    /// a closed loop.
    pub fn part_of_peak(&self) -> Option<u64> {
        self.workload.options.word(RATE).strip_suffix('%')?.parse().ok()
    }

    /// Returns the same cell in a closed loop.
    pub fn at_peak(&self) -> Cell {
        self.with_rate(OptionValue::Word("auto".into()))
    }

    /// Returns the requests per second that are due; `None` in a closed loop, for a percentage of a
    /// peak that is not known yet, and if the workload is not `rr`.
    pub fn offered(&self) -> Option<f64> {
        let of_requests = self.workload.name == "rr";
        self.workload.options.number(RATE).filter(|_| of_requests).map(|rate| rate as f64)
    }

    /// Returns the same cell with this many requests per second.
    pub fn at_rate(&self, rate: u64) -> Cell {
        self.with_rate(OptionValue::Number(rate))
    }

    fn with_rate(&self, rate: OptionValue) -> Cell {
        let mut cell = self.clone();
        cell.workload.options.0.insert(RATE.into(), rate);
        cell
    }
}

/// Formats a number with thousands separators.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let comma = |at: usize| at > 0 && (digits.len() - at).is_multiple_of(3);
    let digits = digits.char_indices();
    digits.flat_map(|(at, digit)| comma(at).then_some(',').into_iter().chain([digit])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_a_part_of_the_lowest_peak() {
        let peak = |cell: &str, pilots: &[f64]| {
            let cell = CellId(format!("{cell} rr:rate=70% flows=256"));
            Peak { cell, pilots: pilots.to_vec() }
        };
        let peaks = [
            peak("epoll", &[173_300.0, 1.0, 180_000.0]),
            peak("epoll+uring-loop", &[210_000.0, 211_000.0]),
        ];
        let load = Load::new(70, Vec::new(), peaks.to_vec()).unwrap();
        assert_eq!(load.rate, 121_310);
        assert_eq!(
            load.to_string(),
            "rr:rate=70% flows=256 is 121,310/s: epoll reaches 173,300/s, epoll+uring-loop reaches \
             210,500/s"
        );
        assert_eq!(Load::new(70, Vec::new(), Vec::new()), None);
        assert_eq!([0, 999, 1000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
