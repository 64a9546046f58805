//! What every source of power does, and how readings of power become energy.

use super::domain::Part;
use bytepath_record::Fault;
use std::time::Instant;

/// A source that is being read.
pub(super) trait Gauge: Send {
    /// Called about every tenth of a second.
    fn tick(&mut self) {}

    /// The energy since it was started.
    fn stop(self: Box<Self>) -> Result<Measured, Fault>;
}

/// What a source saw of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    /// Length of the window that the source saw, seconds.
    pub seconds: f64,
    pub parts: Vec<Part>,
    /// How many readings of power the energy was made of; `None` if the source counts
    /// energy itself.
    pub readings: Option<u32>,
    /// What the reader should know.
    pub warnings: Vec<String>,
}

/// Joules of readings of power (moment, watts) between two moments, by straight lines
/// from reading to reading; before the first and after the last it is as they are.
/// None of no readings.
pub(super) fn integrate(readings: &[(Instant, f64)], begin: Instant, end: Instant) -> Option<f64> {
    let (first, last) = (readings.first()?, readings.last()?);
    let at = |moment: Instant| (moment.saturating_duration_since(begin)).as_secs_f64();
    let mut points = vec![(0.0, first.1)];
    points.extend(readings.iter().map(|(moment, watts)| (at(*moment), *watts)));
    points.push((at(end), last.1));
    let step = |pair: &[(f64, f64)]| match pair {
        [(from, before), (to, after)] => (to - from).max(0.0) * (before + after) / 2.0,
        _ => 0.0,
    };
    Some(points.windows(2).map(step).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn power_over_time_is_energy() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let steady = [(at(100), 50.0), (at(900), 50.0)];
        assert!((integrate(&steady, begin, at(1000)).unwrap() - 50.0).abs() < 1e-9);
        let ramp = [(at(0), 0.0), (at(1000), 100.0)];
        assert!((integrate(&ramp, begin, at(2000)).unwrap() - 150.0).abs() < 1e-9);
        assert_eq!(integrate(&[], begin, at(1000)), None);
    }
}
