//! The interface of all power sources, and how power readings become energy.

use super::domain::{Domain, Part};
use bytepath_record::{Fault, joined};
use std::time::Instant;

/// A source that is being read.
pub(super) trait Gauge: Send {
    /// Called about every tenth of a second.
    fn tick(&mut self) {}

    /// Ends the reading; returns the energy since it was started.
    fn stop(self: Box<Self>) -> Result<Measured, Fault>;
}

/// A source's results for a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    /// Length of the window as measured by the source, in seconds.
    pub seconds: f64,
    pub parts: Vec<Part>,
    /// Number of power readings that the energy was computed from; `None` if the source counts
    /// energy itself.
    pub readings: Option<u32>,
    /// Warnings for the report.
    pub warnings: Vec<String>,
}

impl Measured {
    /// Removes counters that did not move. Anything powered draws power: if the counter of a
    /// processor, its memory or the machine did not move, it counts nothing, and its zero is
    /// not a measurement. A part of a processor, such as graphics, may be at rest; but if nothing at
    /// all moved, its zero is not one either.
    pub(super) fn leave_out_still_counters(&mut self) {
        if self.readings.is_some() || self.seconds < 0.01 {
            return;
        }
        let moved = self.parts.iter().any(|part| part.joules > 0.0);
        let is_still =
            |part: &mut Part| part.joules == 0.0 && (!moved || part.domain != Domain::Part);
        let still: Vec<Part> = self.parts.extract_if(.., is_still).collect();
        if !still.is_empty() {
            let names = joined(still.iter().map(|part| part.name.as_str()), ", ");
            self.warnings.push(format!(
                "power: energy counters that stood still for the whole window, and are left out: \
                 {names}"
            ));
        }
    }
}

/// Integrates power readings (moment, watts) between two moments, in joules: linear between
/// readings, constant before the first and after the last. `None` if there are no readings.
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
    fn a_counter_that_stands_still_is_no_figure() {
        let part = |name: &str, joules| Part::named(name.into(), joules);
        let left = |parts: Vec<Part>| {
            let mut measured = Measured { seconds: 0.2, parts, ..Measured::default() };
            measured.leave_out_still_counters();
            let names = measured.parts.into_iter().map(|part| part.name).collect::<Vec<_>>();
            (names.join(" "), measured.warnings.join(" "))
        };
        let (parts, warning) = left(vec![part("energy-pkg", 0.0), part("energy-psys", 0.0)]);
        assert_eq!(parts, "");
        assert!(warning.ends_with("left out: energy-pkg, energy-psys"), "{warning}");
        let server = vec![part("package-0", 9.0), part("package-0/uncore", 0.0), part("psys", 0.0)];
        assert_eq!(left(server).0, "package-0 package-0/uncore");
        assert_eq!(left(vec![part("package-0", 9.0)]), ("package-0".into(), String::new()));
    }

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
