//! What one sample costs: the time by which it interrupts a loop that does
//! only read the clock.

use super::sampler::{Rate, Refused, Request, Sampler};
use super::{Event, Record, records};
use crate::clock;
use std::time::Duration;

/// What one sample costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Seconds that a sample takes from what it interrupts.
    pub seconds: f64,
    /// Samples that this was measured with.
    pub samples: u64,
}

/// Samples in a turn while it is measured; at most a thousand a second in a long one.
const SAMPLES: f64 = 20.0;
const MOST_RATE: f64 = 5000.0;
const LEAST_RATE: f64 = 1000.0;

/// Turns with and without sampling.
const TURNS: u32 = 4;

/// Gaps between two readings of the clock that are interrupts: longer than the
/// reading takes, shorter than to wait for another thread's turn on the CPU.
const GAP: std::ops::Range<f64> = 0.5e-6..300e-6;

/// Measures the cost of a sample of this event on a CPU: the time of all
/// interruptions of a busy loop with sampling less those without, over the number
/// of samples. Takes eight turns of this length. `None` if no sample came (the event does
/// not happen in such a loop).
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
    // Pinned, so on a thread of its own.
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
                    // On a busy machine others are sampled too while they have the CPU.
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

/// Ticks of one turn within gaps above the threshold and below the limit.
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
