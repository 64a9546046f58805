//! One trial of an engine alone: copies of one size, a fixed number in flight, for a given time.

use super::{Copy, Engine, EngineKind, Events, Memories, Memory, Place, Shape};
use bytepath_record::{Fault, FaultKind, Options};
use bytepath_sys::{clock, thread};
use std::time::Duration;

/// Bytes on each side that copies cycle through, so that none are in a cache.
pub const ROTATION: usize = 128 << 20;

/// Maximum number of bytes of the target that are verified after the trial.
const VERIFIED: usize = 8 << 20;

/// Parameters of the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes per copy.
    pub size: u32,
    /// Number of copies in flight, and submitted together.
    pub shape: Shape,
    /// Whether copies cycle through [`ROTATION`] bytes instead of reusing a few places.
    pub rotate: bool,
    /// Length of the measurement.
    pub time: Duration,
}

/// Outcome of a trial. Times are those of the calling thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Number of completed copies.
    pub copies: u64,
    /// Elapsed seconds.
    pub seconds: f64,
    /// Seconds within submissions.
    pub submitting: f64,
    /// Seconds within polls that found completions.
    pub polling: f64,
    /// Number of polls, including those that found nothing.
    pub polls: u64,
    /// Mean seconds from just before a submission to the poll that found the copy complete.
    pub latency: f64,
    /// What else the engine had to do.
    pub events: Events,
}

/// Runs `work` on a new thread, pinned to this CPU if one is given. The process's first thread is
/// not pinned: a helper chooses one of its CPUs other than its caller's ([`thread::leave`]).
pub fn on_cpu<R: Send>(
    cpu: Option<u32>,
    work: impl FnOnce() -> Result<R, Fault> + Send,
) -> Result<R, Fault> {
    let life = || {
        if let Some(cpu) = cpu {
            thread::pin(cpu).map_err(|e| Fault::system(format!("cannot use CPU {cpu}"), &e))?;
        }
        work()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("copy".into()).spawn_scoped(scope, life);
        let done = thread.map_err(|e| Fault::not_started("a thread", &e))?.join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Memory for loads: one source and one target, each large enough for any of them.
pub fn memories(loads: &[Load]) -> Result<Memories, Fault> {
    let most = loads.iter().map(|load| load.places() * load.stride()).max().unwrap_or(1);
    let one = || Memory::new(most).map_err(|e| Fault::system("cannot map memory", &e));
    let (source, target) = (one()?, one()?);
    // The contents differ from place to place, so that a copy from the wrong place is detected.
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = [0; 4096];
    for at in (0..most).step_by(block.len()) {
        for part in block.chunks_exact_mut(8) {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            part.copy_from_slice(&word.to_le_bytes());
        }
        source.write(at, &block[..block.len().min(most - at)]);
    }
    Ok(Memories::from([source, target]))
}

impl Load {
    /// Distance between the places of two copies: whole cache lines, so that copies share none.
    fn stride(&self) -> usize {
        (self.size as usize).next_multiple_of(64)
    }

    fn places(&self) -> usize {
        let few = self.shape.depth;
        if self.rotate { (ROTATION / self.stride()).max(few) } else { few }
    }

    fn copy(&self, number: u64) -> Copy {
        let at = (number % self.places() as u64) as usize * self.stride();
        let place = |memory| Place { memory, at };
        Copy { from: place(0), to: place(1), len: self.size }
    }
}

/// Runs a load on an engine, and verifies what it copied.
pub fn run(
    (kind, options): (&EngineKind, &Options),
    memories: &Memories,
    load: &Load,
) -> Result<Outcome, Fault> {
    let target = &memories[1];
    let reach = (load.places() * load.stride()).min(VERIFIED);
    target.write(0, &vec![0; reach]);
    let mut engine = (kind.open)(memories, load.shape, options)?;
    let tick = clock::tick_seconds();
    let ticks = |time: Duration| (time.as_secs_f64() / tick) as u64;
    let (mut submitted, mut done) = (0_u64, 0_u64);
    let mut counted = Counted::default();
    let mut events = Events::default();
    let mut begin = clock::now();
    let mut end = begin + ticks(load.time / 5);
    let mut warm = false;
    loop {
        let before = clock::now();
        // Not before a copy is complete, however busy the machine is.
        if before >= end && counted.copies > 0 {
            if warm {
                break;
            }
            // The warm-up is over: copies in flight count from now on.
            (warm, begin, end) = (true, before, before + ticks(load.time));
            counted = Counted { under_way: submitted - done, ..Counted::default() };
            counted.submitted_at = u128::from(before) * u128::from(counted.under_way);
            events = engine.events();
        }
        let between = counted.submit(engine.as_mut(), load, &mut submitted, (done, before))?;
        let new = engine.poll()?;
        let after = clock::now();
        counted.polls += 1;
        if new > done {
            counted.polling += after - between;
            counted.done_at += u128::from(after) * u128::from(new - done);
            counted.copies += new - done;
            done = new;
        }
    }
    let last = clock::now();
    counted.done_at += u128::from(last) * u128::from(submitted - done);
    let after = engine.events();
    engine.flush()?;
    while engine.poll()? < submitted {
        std::hint::spin_loop();
    }
    drop(engine);
    verify(memories, load, submitted, reach)?;
    Ok(counted.outcome(last - begin, tick, after.since(&events)))
}

/// Sums, in ticks. The mean time in flight follows from the sums of submission and completion times
/// (Little's law), so no copy needs a timestamp of its own.
#[derive(Default)]
struct Counted {
    copies: u64,
    polls: u64,
    submitting: u64,
    polling: u64,
    under_way: u64,
    submitted_at: u128,
    done_at: u128,
}

impl Counted {
    /// Submits copies until the depth is in flight; returns when the last submission ended. Each is
    /// timed from just before it, which is when the previous one ended.
    fn submit(
        &mut self,
        engine: &mut dyn Engine,
        load: &Load,
        submitted: &mut u64,
        (done, begin): (u64, u64),
    ) -> Result<u64, Fault> {
        let mut end = begin;
        while *submitted - done < load.shape.depth as u64 {
            let taken = engine.submit(&load.copy(*submitted))?;
            let began = std::mem::replace(&mut end, clock::now());
            if !taken {
                break;
            }
            self.submitted_at += u128::from(began);
            *submitted += 1;
        }
        self.submitting += end - begin;
        Ok(end)
    }

    fn outcome(&self, ticks: u64, tick: f64, events: Events) -> Outcome {
        let seconds = |ticks: u64| ticks as f64 * tick;
        let waited = self.done_at.saturating_sub(self.submitted_at) as f64 * tick;
        Outcome {
            copies: self.copies,
            seconds: seconds(ticks),
            submitting: seconds(self.submitting),
            polling: seconds(self.polling),
            polls: self.polls,
            latency: waited / self.copies.max(1) as f64,
            events,
        }
    }
}

/// Compares the copies with their source.
fn verify(memories: &Memories, load: &Load, copies: u64, reach: usize) -> Result<(), Fault> {
    let size = load.size as usize;
    let (mut source, mut target) = (vec![0; size], vec![0; size]);
    for number in 0..copies.min(load.places() as u64) {
        let Copy { from, to, .. } = load.copy(number);
        if to.at + size > reach {
            break;
        }
        memories[from.memory].read(from.at, &mut source);
        memories[to.memory].read(to.at, &mut target);
        if source != target {
            let what = format!("copy {number} of {size} bytes differs from its source");
            return Err(Fault::new(FaultKind::Corrupt, what));
        }
    }
    Ok(())
}
