//! A simulated bad link: on request, loses frames at random, or delays them until the next one has
//! passed.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Rates of losses and reorderings, each per thousand frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LossConfig {
    /// Frames to lose.
    pub loss: u64,
    /// Frames that the next one overtakes.
    pub reorder: u64,
}

/// Loses and reorders frames of one direction. Allocates memory for each frame that is overtaken.
#[derive(Debug)]
pub(super) struct LossInjector {
    random: StdRng,
    config: LossConfig,
    /// The delayed frame, and whether another has overtaken it.
    waiting: Option<Box<[u8]>>,
    overtaken: bool,
    /// Frames that were lost or reordered.
    pub count: u64,
}

impl LossInjector {
    /// Picks the same frames for the same seed. `None` if none are to be lost or reordered.
    pub(super) fn new(config: LossConfig, seed: u64) -> Option<LossInjector> {
        (config != LossConfig::default()).then(|| LossInjector {
            random: StdRng::seed_from_u64(seed),
            config,
            waiting: None,
            overtaken: false,
            count: 0,
        })
    }

    /// Whether a frame passes. If not, it is lost, or [`LossInjector::next`] returns it later.
    pub(super) fn passes(&mut self, frame: &[u8]) -> bool {
        let drawn = self.random.random_range(0..1000);
        let lost = drawn < self.config.loss;
        let waits = !lost && drawn < self.config.loss + self.config.reorder;
        if lost || (waits && self.waiting.is_none()) {
            self.count += 1;
            if waits {
                (self.waiting, self.overtaken) = (Some(frame.into()), false);
            }
            return false;
        }
        self.overtaken = true;
        true
    }

    /// Returns the delayed frame once another has overtaken it, or, with `at_last`, even if none
    /// has.
    pub(super) fn next(&mut self, at_last: bool) -> Option<Box<[u8]>> {
        if self.overtaken || at_last { self.waiting.take() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loses_and_reorders_requested_share() {
        assert!(LossInjector::new(LossConfig::default(), 1).is_none());
        let mut injector = LossInjector::new(LossConfig { loss: 10, reorder: 50 }, 1).unwrap();
        let mut came = Vec::new();
        for number in 0..100_000u32 {
            let frame = number.to_be_bytes();
            if injector.passes(&frame) {
                came.push(number);
            }
            let late = injector.next(false);
            came.extend(late.map(|frame| u32::from_be_bytes((*frame).try_into().unwrap())));
        }
        came.extend(
            injector.next(true).map(|frame| u32::from_be_bytes((*frame).try_into().unwrap())),
        );
        let late = came.windows(2).filter(|pair| pair[0] > pair[1]).count();
        let lost = 100_000 - came.len();
        assert_eq!(lost + late, injector.count as usize);
        assert!((800..1200).contains(&lost), "{lost}");
        assert!((4000..6000).contains(&late), "{late}");
        came.sort_unstable();
        came.dedup();
        assert_eq!(came.len(), 100_000 - lost, "one came twice");
    }
}
