//! A receive queue whose buffers come from a pool of fixed size, simulated: when
//! does the pool run dry, so that the kernel has to copy?
//!
//! Packets arrive at a steady rate in polls of NAPI. Each takes a buffer from the
//! ring, which is refilled from the pool. The application reads so many buffers at
//! once, keeps each read for a while, and gives buffers back in batches. A packet
//! that finds no buffer is copied: devmem calls it a linear fragment, zcrx a
//! fallback buffer.

use super::sizing::POLL_WEIGHT;
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
            course: Vec::with_capacity(STEPS),
            step: polls as f64 * poll / STEPS as f64,
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
            let step = (turn as u128 * STEPS as u128 / u128::from(polls)) as usize;
            if result.course.len() <= step {
                result.course.push(free + posted);
            }
        }
        result.copied = copied as f64 / (polls as f64 * POLL_WEIGHT);
        result
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
    fn no_model_panics_or_runs_for_ever() {
        for arrivals in [0.0, 1.0, 1e12, f64::MAX] {
            let odd = PoolModel { arrivals, buffers: 0, ring: 0, read: 0, hold: 0.0, batch: 0 };
            assert!(odd.run(1e9).copied <= 1.0);
        }
    }
}
