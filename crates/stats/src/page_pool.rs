//! A receive queue whose buffers come from a pool of fixed size, simulated: when
//! does the pool run dry, so that the kernel has to copy?
//!
//! Packets arrive at a steady rate in polls of NAPI. Each takes a buffer from the
//! ring, which is refilled from the pool. The application reads so many buffers at
//! once, keeps each read for a while, and gives buffers back in batches. A packet
//! that finds no buffer is copied: devmem calls it a linear fragment, zcrx a
//! fallback buffer.

use super::sizing::POLL_WEIGHT;
use crate::record::{PoolRun, PoolSeen};
use serde::Serialize;
use std::collections::VecDeque;

/// One queue and what its application does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PoolModel {
    /// Buffers that arrive in a second.
    pub arrivals: f64,
    /// Buffers in all.
    pub buffers: u64,
    /// Of those, what the ring wants to have posted.
    pub ring: u64,
    /// Buffers the application takes with one read.
    pub read: u64,
    /// Seconds for which it keeps them.
    pub hold: f64,
    /// Buffers it gives back at once.
    pub batch: u64,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolCourse {
    /// When the first packet was copied, seconds; none if none was.
    pub first_copy: Option<f64>,
    /// Part of the packets that were copied.
    pub copied: f64,
    /// Fewest buffers that were free or posted.
    pub least: u64,
    /// Buffers free or posted over time, equal steps.
    pub course: Vec<u64>,
    /// Seconds of a step.
    pub step: f64,
}

/// Steps of [`PoolCourse::course`].
const STEPS: usize = 60;

/// Polls that are simulated at most, so that any model ends soon.
const MOST_POLLS: f64 = 4e6;

impl PoolModel {
    /// Lets packets arrive for so many seconds, or as long as is simulated at most.
    pub fn run(&self, seconds: f64) -> PoolCourse {
        self.run_in(seconds, STEPS)
    }

    /// As [`PoolModel::run`], with so many steps of the course.
    pub fn run_in(&self, seconds: f64, steps: usize) -> PoolCourse {
        let steps = steps.max(1);
        let poll = POLL_WEIGHT / self.arrivals.max(1e-9);
        let polls = (seconds / poll).clamp(1.0, MOST_POLLS) as u64;
        let (read, batch) = (self.read.max(1), self.batch.max(1));
        let mut posted = self.ring.min(self.buffers);
        let (mut free, mut queued, mut owed) = (self.buffers - posted, 0, 0);
        let mut held: VecDeque<(f64, u64)> = VecDeque::new();
        let mut result = PoolCourse {
            first_copy: None,
            copied: 0.0,
            least: self.buffers,
            course: Vec::with_capacity(steps),
            step: polls as f64 * poll / steps as f64,
        };
        let mut copied = 0;
        for turn in 0..polls {
            let now = turn as f64 * poll;
            let taken = posted.min(POLL_WEIGHT as u64);
            posted -= taken;
            queued += taken;
            if taken < POLL_WEIGHT as u64 {
                copied += POLL_WEIGHT as u64 - taken;
                result.first_copy.get_or_insert(now);
            }
            while queued >= read {
                queued -= read;
                held.push_back((now + self.hold, read));
            }
            while let Some((_, back)) = held.front().copied().filter(|(until, _)| *until <= now) {
                held.pop_front();
                owed += back;
            }
            free += owed / batch * batch;
            owed %= batch;
            let refill = free.min(self.ring.saturating_sub(posted));
            free -= refill;
            posted += refill;
            result.least = result.least.min(free + posted);
            let step = (turn as u128 * steps as u128 / u128::from(polls)) as usize;
            if result.course.len() <= step {
                result.course.push(free + posted);
            }
        }
        result.copied = copied as f64 / (polls as f64 * POLL_WEIGHT);
        result
    }

    /// Pools of half as many buffers, as many, and twice as many.
    pub fn sizes(&self) -> [PoolModel; 3] {
        let sizes = [self.buffers / 2, self.buffers, self.buffers.saturating_mul(2)];
        sizes.map(|buffers| PoolModel { buffers: buffers.max(1), ..*self })
    }

    /// Those pools, each with what becomes of it in so many seconds, in so many steps.
    pub fn neighbours(&self, seconds: f64, steps: usize) -> [(PoolModel, PoolCourse); 3] {
        self.sizes().map(|model| (model, model.run_in(seconds, steps)))
    }

    /// Seconds in which what is kept, and the pool itself, go round so many times.
    pub fn rounds(&self, rounds: f64) -> f64 {
        rounds * (self.hold + self.buffers as f64 / self.arrivals.max(1e-9))
    }

    /// The same pool at so many arrivals a second, and shrunk to so many buffers at
    /// most: time is stretched, and counts divided, alike everywhere. Nothing in the
    /// model depends on either, but for the packets of a poll.
    pub fn scaled(&self, arrivals: f64, most_buffers: u64) -> PoolModel {
        let shrink = (self.buffers as f64 / most_buffers.max(1) as f64).max(1.0);
        let count = |n: u64| if n == 0 { 0 } else { ((n as f64 / shrink) as u64).max(1) };
        let arrived = self.arrivals / shrink;
        let slow = arrived / arrivals;
        PoolModel {
            arrivals: arrived / slow,
            buffers: count(self.buffers),
            ring: count(self.ring),
            read: count(self.read),
            hold: self.hold * slow,
            batch: count(self.batch),
        }
    }

    /// The least number of buffers with which no packet is copied; none if not
    /// even `most` will do.
    pub fn least_buffers(&self, seconds: f64, most: u64) -> Option<u64> {
        let enough = |buffers| PoolModel { buffers, ..*self }.run(seconds).first_copy.is_none();
        if !enough(most) {
            return None;
        }
        let (mut too_few, mut enough_at) = (0, most);
        while enough_at - too_few > 1 {
            let middle = too_few + (enough_at - too_few) / 2;
            if enough(middle) {
                enough_at = middle;
            } else {
                too_few = middle;
            }
        }
        Some(enough_at)
    }
}

/// A pool that was run for real, beside what the model says of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckedPool {
    /// The model of the run: with the arrivals and the buffers that there really were.
    pub model: PoolModel,
    /// What it predicts.
    pub predicted: PoolCourse,
    /// What was seen.
    pub seen: PoolSeen,
}

impl CheckedPool {
    /// Lays the model beside a run.
    pub fn of(run: &PoolRun, seen: PoolSeen) -> CheckedPool {
        let seconds = if seen.seconds > 0.0 { seen.seconds } else { run.seconds };
        let model = PoolModel {
            arrivals: seen.packets as f64 / seconds,
            buffers: u64::from(seen.buffers),
            ring: u64::from(seen.buffers),
            read: u64::from(run.read),
            hold: run.hold,
            batch: u64::from(run.batch),
        };
        CheckedPool { model, predicted: model.run(seconds), seen }
    }

    /// The part of the packets that found no buffer.
    pub fn refused(&self) -> f64 {
        if self.seen.packets == 0 {
            return 0.0;
        }
        self.seen.refused as f64 / self.seen.packets as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 6.1 million buffers a second, as 200 Gbit/s in pages.
    const FAST: PoolModel =
        PoolModel { arrivals: 6.1e6, buffers: 16384, ring: 4096, read: 1024, hold: 1e-3, batch: 1 };

    #[test]
    fn a_pool_that_holds_everything_never_copies() {
        let course = FAST.run(0.05);
        assert_eq!((course.first_copy, course.copied), (None, 0.0));
        // A read is gathered (1024) while those of the last millisecond (6100) are held.
        assert!((8000..=9500).contains(&course.least), "{}", course.least);
        assert_eq!(course.course.len(), STEPS);
    }

    #[test]
    fn an_application_that_keeps_too_much_drains_it_and_when_is_known() {
        let course = PoolModel { hold: 10e-3, ..FAST }.run(0.05);
        // 16384 buffers at 6.1 a microsecond are gone after 2.7 ms.
        let first = course.first_copy.unwrap();
        assert!((first - 16384.0 / 6.1e6).abs() < 50e-6, "{first}");
        // Of 10 ms of packets 2.7 ms find a buffer.
        assert!((course.copied - 0.73).abs() < 0.03, "{}", course.copied);
        assert!(course.least < 64);
    }

    #[test]
    fn a_batch_that_cannot_fill_keeps_its_buffers_for_good() {
        let stuck = PoolModel { batch: 20_000, ..FAST }.run(0.05);
        assert!(stuck.copied > 0.9, "{stuck:?}");
    }

    #[test]
    fn the_least_pool_is_just_enough() {
        let least = FAST.least_buffers(0.05, 1 << 20).unwrap();
        assert!(PoolModel { buffers: least, ..FAST }.run(0.05).first_copy.is_none());
        assert!(PoolModel { buffers: least - 1, ..FAST }.run(0.05).first_copy.is_some());
        assert!(least < FAST.buffers, "{least}");
        assert_eq!(PoolModel { hold: 10.0, ..FAST }.least_buffers(0.05, 4096), None);
    }

    #[test]
    fn a_pool_that_is_slowed_down_and_shrunk_runs_dry_in_the_same_way() {
        let dry = PoolModel { hold: 10e-3, ..FAST };
        let fast = dry.run(0.05);
        for (rate, most) in [(6.1e5, 1 << 20), (6.1e4, 1 << 20), (1e5, 8192), (6.1e6, 4096)] {
            let slow = dry.scaled(rate, most);
            let shrink = dry.buffers as f64 / slow.buffers as f64;
            let stretch = slow.hold / dry.hold;
            assert!((slow.arrivals * shrink * stretch / dry.arrivals - 1.0).abs() < 1e-9);
            assert!(slow.arrivals <= rate * 1.000_001 && slow.buffers <= most);
            let course = slow.run(0.05 * stretch);
            assert!((course.copied - fast.copied).abs() < 0.03, "{course:?}");
            let (first, other) = (course.first_copy.unwrap(), fast.first_copy.unwrap());
            assert!((first / stretch / other - 1.0).abs() < 0.03, "{first} {other}");
        }
    }

    #[test]
    fn neighbours_are_half_and_twice_as_large() {
        let dry = PoolModel { hold: 3e-3, ..FAST };
        let [half, same, twice] = dry.neighbours(dry.rounds(10.0), 60);
        assert_eq!([half.0.buffers, same.0.buffers, twice.0.buffers], [8192, 16384, 32768]);
        assert!(half.1.first_copy.is_some() && twice.1.first_copy.is_none());
        assert!(half.1.copied > same.1.copied);
        let none = PoolModel { buffers: 0, ..FAST }.neighbours(0.01, 0);
        assert!(none.iter().all(|(model, course)| model.buffers == 1 && course.copied > 0.9));
    }

    #[test]
    fn no_model_panics_or_runs_for_ever() {
        for arrivals in [0.0, 1.0, 1e12, f64::MAX] {
            let odd = PoolModel { arrivals, buffers: 0, ring: 0, read: 0, hold: 0.0, batch: 0 };
            assert!(odd.run(1e9).copied <= 1.0);
        }
    }
}
