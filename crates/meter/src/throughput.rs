//! Work over time by flow, by the engine's own count: bytes, or exchanges.

use super::{Context, Meter, Output, Reach, Running};
use bytepath_record::{Fault, MOST_VALUES, Role, Scope, Series, Unit};
use std::sync::Arc;
use std::time::Instant;

/// Throughput of every flow: over the window, and in steps of a tenth of a second, which show a
/// ramp or a stall; in longer steps if many flows make many values.
pub(crate) static METER: Meter = Meter {
    name: "throughput",
    summary: "bytes or exchanges per second of every flow, and over time in steps of 0.1 s",
    reach: Reach::Agent,
    start,
    ..Meter::BASE
};

/// Length of a step in seconds.
const STEP: f64 = 0.1;

/// Number of samples allocated from the start: ten minutes and the two edges.
const ROOM: usize = 6002;

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    let flows = context.threads.len();
    let mut window = Window {
        role: context.role,
        unit: context.work.unit_per_second(),
        moved: Arc::clone(&context.moved),
        begin: Instant::now(),
        times: Vec::with_capacity(ROOM),
        counts: (0..flows).map(|_| Vec::with_capacity(ROOM)).collect(),
    };
    window.begin = Instant::now();
    window.tick();
    Ok(Box::new(window))
}

struct Window {
    role: Role,
    unit: Unit,
    moved: Arc<dyn Fn(u32) -> u64 + Send + Sync>,
    begin: Instant,
    /// Times of the samples, in seconds after `begin`.
    times: Vec<f64>,
    /// By flow: the work done at each of these times.
    counts: Vec<Vec<u64>>,
}

impl Running for Window {
    fn tick(&mut self) {
        self.times.push(self.begin.elapsed().as_secs_f64());
        for (flow, counts) in (0..).zip(&mut self.counts) {
            counts.push((self.moved)(flow));
        }
    }

    fn stop(mut self: Box<Self>) -> Result<Output, Fault> {
        self.tick();
        let mut output = Output::default();
        for (flow, counts) in (0..).zip(&self.counts) {
            let scope = Scope::Flow(self.role, flow);
            let rate = mean_rate(&self.times, counts);
            output.level("throughput.flow", self.unit, rate, &scope);
            output.series.push(Series {
                metric: "throughput".into(),
                unit: self.unit,
                scope,
                step: STEP,
                values: resample(&self.times, counts, STEP),
            });
        }
        Series::thin(&mut output.series, MOST_VALUES);
        Ok(output)
    }
}

/// Returns the work per second from the first sample to the last; zero if no time passed.
fn mean_rate(times: &[f64], counts: &[u64]) -> f64 {
    let (Some(t0), Some(t1)) = (times.first(), times.last()) else { return 0.0 };
    let (Some(c0), Some(c1)) = (counts.first(), counts.last()) else { return 0.0 };
    if t1 > t0 { c1.saturating_sub(*c0) as f64 / (t1 - t0) } else { 0.0 }
}

/// Returns rates over equal steps from the first sample on. Between two samples the count is
/// assumed to grow evenly, so a late tick spreads what it missed and never causes a peak. If the
/// end of the window falls within a step, the step is kept, with the rate of the part covered, if
/// that is at least half.
fn resample(times: &[f64], counts: &[u64], step: f64) -> Vec<f64> {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return Vec::new() };
    let steps = ((last - first) / step).round() as usize;
    let mut values = Vec::with_capacity(steps);
    let mut cursor = 0;
    let (mut from, mut at) = (*first, counts[0] as f64);
    for n in 1..=steps {
        let to = (first + n as f64 * step).min(*last);
        while cursor + 2 < times.len() && times[cursor + 1] < to {
            cursor += 1;
        }
        let next = between(times, counts, cursor, to);
        values.push(if to > from { ((next - at) / (to - from)).max(0.0) } else { 0.0 });
        (from, at) = (to, next);
    }
    values
}

/// Returns the count at a moment between samples `i` and `i + 1`.
fn between(times: &[f64], counts: &[u64], i: usize, t: f64) -> f64 {
    let (Some(t1), Some(c1)) = (times.get(i + 1), counts.get(i + 1)) else {
        return counts[i] as f64;
    };
    let (t0, c0) = (times[i], counts[i] as f64);
    let part = if *t1 > t0 { (t - t0) / (t1 - t0) } else { 1.0 };
    c0 + part * (*c1 as f64 - c0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(values: &[f64], expected: &[f64]) {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-6 * b.abs().max(1.0);
        assert_eq!(values.len(), expected.len(), "{values:?}");
        assert!(values.iter().zip(expected).all(near), "{values:?} for {expected:?}");
    }

    #[test]
    fn ticks_in_time_give_their_own_rates() {
        close(&resample(&[0.0, 0.1, 0.2, 0.3], &[50, 60, 80, 110], 0.1), &[100.0, 200.0, 300.0]);
    }

    #[test]
    fn late_ticks_make_no_peak() {
        // A steady 1000 bytes per second, sampled late, early and in a burst.
        let times = [0.0, 0.13, 0.35, 0.351, 0.4, 0.55, 0.6];
        let counts = times.map(|t: f64| (t * 1e9) as u64);
        close(&resample(&times, &counts, 0.1), &[1e9; 6]);
    }

    #[test]
    fn a_missed_tick_is_spread_over_what_it_missed() {
        // 0 bytes until 0.1, then 300 bytes by 0.4, at unknown times.
        let values = resample(&[0.0, 0.1, 0.4], &[0, 0, 300], 0.1);
        close(&values, &[0.0, 1000.0, 1000.0, 1000.0]);
    }

    #[test]
    fn the_last_step_is_kept_if_half_of_it_is_there() {
        let rates = |end: f64| resample(&[0.0, 0.1, end], &[0, 100, (end * 1000.0) as u64], 0.1);
        close(&rates(0.14), &[1000.0]);
        close(&rates(0.16), &[1000.0, 1000.0]);
        close(&rates(0.2), &[1000.0, 1000.0]);
    }

    #[test]
    fn steps_add_up_to_the_work_done() {
        let times: Vec<f64> = (0..=40).map(|n| n as f64 * 0.1 + (n % 7) as f64 * 0.011).collect();
        let counts: Vec<u64> = (0..=40u64).map(|n| n * n * 12_345).collect();
        let values = resample(&times, &counts, 0.1);
        let covered = values.len() as f64 * 0.1;
        let sum: f64 = values.iter().sum::<f64>() * 0.1;
        let end = times[40];
        let expected = counts[40] as f64;
        // The rest of the window beyond the last whole step is not included in the sum.
        assert!((end - covered).abs() <= 0.05 + 1e-9);
        assert!((sum / expected - 1.0).abs() < 0.05, "{sum} of {expected}");
    }

    #[test]
    fn a_window_of_no_length_has_no_rates() {
        assert!(resample(&[0.0], &[5], 0.1).is_empty());
        assert!(resample(&[], &[], 0.1).is_empty());
        assert_eq!(mean_rate(&[0.0], &[5]), 0.0);
        assert_eq!(mean_rate(&[], &[]), 0.0);
        close(&resample(&[0.0, 0.0, 0.1], &[5, 5, 105], 0.1), &[1000.0]);
    }
}
