//! The cost of one sample: the time by which it interrupts a loop that only reads the clock.

use super::sampler::{Rate, Refused, Request, Sampler};
use super::{Event, Record, records};
use crate::clock;
use std::time::Duration;

/// The cost of one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Seconds that a sample takes from the interrupted code.
    pub seconds: f64,
    /// Number of samples measured.
    pub samples: u64,
}

/// Samples intended per turn, at a rate within the limits below (per second).
const SAMPLES: f64 = 20.0;
const MOST_RATE: f64 = 5000.0;
const LEAST_RATE: f64 = 1000.0;

/// Turns with sampling, and as many without.
const TURNS: u32 = 4;

/// Gaps between two clock readings, in seconds, that count as interrupts: longer than a reading
/// takes, shorter than waiting for another thread's turn on the CPU.
const GAP: std::ops::Range<f64> = 0.5e-6..300e-6;

/// Measures the cost of a sample of this event on a CPU: the interruptions of a busy loop with
/// sampling minus those without, divided by the number of samples. Takes eight turns of length
/// `turn`. `None` if no sample came (the event does not happen in such a loop).
///
/// It is the cost of a short call chain with warm caches, so a lower bound.
pub fn sample_cost(event: &Event, cpu: u32, turn: Duration) -> Result<Option<Cost>, Refused> {
    let rate = (SAMPLES / turn.as_secs_f64()).clamp(LEAST_RATE, MOST_RATE) as u64;
    let request = Request { event: event.clone(), rate: Rate::Frequency(rate), cpus: vec![cpu] };
    let mut sampler = Sampler::open(&request)?;
    let refused =
        |error| Refused { step: super::Step::Wait, event: event.name.clone(), cpu, error };
    let threshold = GAP.start / clock::tick_seconds();
    let limit = GAP.end / clock::tick_seconds();
    // The thread is pinned, so it is a separate one.
    let measured = std::thread::scope(|scope| {
        let work = || {
            crate::thread::pin(cpu)?;
            let own = crate::thread::id();
            let control = sampler.control();
            let (mut with, mut without, mut samples) = (0.0, 0.0, 0);
            for _ in 0..TURNS {
                without += interrupted(turn, threshold, limit);
                control.enable()?;
                with += interrupted(turn, threshold, limit);
                control.disable()?;
                let mut count = |_: usize, first: &[u8], second: &[u8]| {
                    let bytes = [first, second].concat();
                    // On a busy machine other threads are sampled too while they have the CPU.
                    let sampled = |record: &Result<Record, _>| matches!(record, Ok(Record::Sample(sample)) if sample.task.tid == own);
                    samples += records(&bytes).filter(sampled).count() as u64;
                };
                sampler.drain(&mut count).map_err(std::io::Error::other)?;
            }
            Ok((with, without, samples))
        };
        let thread = std::thread::Builder::new().name("sample-cost".into());
        let panicked = |_| std::io::Error::other("the measuring thread panicked");
        thread.spawn_scoped(scope, work)?.join().map_err(panicked)?
    });
    let (with, without, samples): (f64, f64, u64) = measured.map_err(refused)?;
    let ticks = (with - without).max(0.0);
    let seconds = ticks * clock::tick_seconds() / samples.max(1) as f64;
    Ok((samples > 0).then_some(Cost { seconds, samples }))
}

/// Returns the ticks of one turn in gaps above the threshold and below the limit.
fn interrupted(turn: Duration, threshold: f64, limit: f64) -> f64 {
    let length = (turn.as_secs_f64() / clock::tick_seconds()) as u64;
    let (threshold, limit) = (threshold as u64, limit as u64);
    let begin = clock::now();
    let (mut last, mut sum) = (begin, 0u64);
    loop {
        let now = clock::now();
        let gap = now.saturating_sub(last);
        if gap > threshold && gap < limit {
            sum += gap;
        }
        last = now;
        if now.saturating_sub(begin) > length {
            return sum as f64;
        }
    }
}
