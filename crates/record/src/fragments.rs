//! Fragments per receive: into how many pieces a device cuts what one call delivers, and what
//! giving back their tokens in batches saves.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest number of fragments whose tokens one call gives back; more take a second call.
pub const FREED_AT_ONCE: u64 = 1024;

/// Half of that: with fewer, a call is far from giving back as many as it could.
pub const FEW: u64 = 512;

/// Counts over those receives of the measured window that delivered fragments in device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FragmentCounts {
    /// Receives that delivered at least one fragment.
    pub calls: u64,
    /// Fragments that they delivered.
    pub fragments: u64,
    /// Fewest in one call.
    pub min: u64,
    /// Most in one call.
    pub max: u64,
    /// Calls that delivered more than 1024.
    pub above_1024: u64,
    /// Calls that delivered 512 to 1024.
    pub from_512_to_1024: u64,
    /// Calls that delivered fewer than 512.
    pub below_512: u64,
    /// Calls after which more than 1024 tokens were held, including those collected before.
    pub gathered_above_1024: u64,
    /// Calls after which no token was given back, because tokens were being collected.
    pub frees_avoided: u64,
}

impl FragmentCounts {
    /// Counts a call that received `fragments`, after which `held` tokens were held; `freed` if
    /// they were given back at once.
    #[inline]
    pub fn enter(&mut self, fragments: u64, held: u64, freed: bool) {
        if fragments == 0 {
            return;
        }
        self.min = if self.calls == 0 { fragments } else { self.min.min(fragments) };
        self.max = self.max.max(fragments);
        self.calls += 1;
        self.fragments += fragments;
        match fragments {
            n if n > FREED_AT_ONCE => self.above_1024 += 1,
            n if n >= FEW => self.from_512_to_1024 += 1,
            _ => self.below_512 += 1,
        }
        self.gathered_above_1024 += u64::from(held > FREED_AT_ONCE);
        self.frees_avoided += u64::from(!freed);
    }

    /// Adds the counts of another flow or trial.
    pub fn add(&mut self, other: &FragmentCounts) {
        if other.calls == 0 {
            return;
        }
        self.min = if self.calls == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        for (mine, theirs) in [
            (&mut self.calls, other.calls),
            (&mut self.fragments, other.fragments),
            (&mut self.above_1024, other.above_1024),
            (&mut self.from_512_to_1024, other.from_512_to_1024),
            (&mut self.below_512, other.below_512),
            (&mut self.gathered_above_1024, other.gathered_above_1024),
            (&mut self.frees_avoided, other.frees_avoided),
        ] {
            // A damaged record may contain any number.
            *mine = mine.saturating_add(theirs);
        }
    }

    /// Average number of fragments per call; `None` if there was no call.
    pub fn average(&self) -> Option<f64> {
        share(self.fragments, self.calls)
    }

    /// Fraction of all calls that delivered more than 1024.
    pub fn above_share(&self) -> Option<f64> {
        share(self.above_1024, self.calls)
    }

    /// Fraction of the calls with more than 1024 tokens held that delivered this many
    /// themselves; the others reached it by collecting.
    pub fn above_share_of_gathered(&self) -> Option<f64> {
        share(self.above_1024, self.gathered_above_1024)
    }

    /// Fraction of all calls that delivered fewer than 512.
    pub fn below_share(&self) -> Option<f64> {
        share(self.below_512, self.calls)
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_fall_into_three_classes_by_the_published_bounds() {
        let mut counts = FragmentCounts::default();
        for (fragments, held, freed) in [
            (0, 900, false), // brought nothing into device memory: no such call
            (511, 511, false),
            (512, 1023, false),
            (1024, 2047, true),
            (1025, 1025, true),
            (1, 1, true),
        ] {
            counts.enter(fragments, held, freed);
        }
        let FragmentCounts { calls, fragments, min, max, .. } = counts;
        assert_eq!((calls, fragments, min, max), (5, 3073, 1, 1025));
        let classes = (counts.above_1024, counts.from_512_to_1024, counts.below_512);
        assert_eq!(classes, (1, 2, 2));
        assert_eq!((counts.gathered_above_1024, counts.frees_avoided), (2, 2));
        assert_eq!(counts.average(), Some(614.6));
        assert_eq!(counts.above_share(), Some(0.2));
        assert_eq!(counts.above_share_of_gathered(), Some(0.5));
        assert_eq!(counts.below_share(), Some(0.4));
    }

    #[test]
    fn counts_add_up_and_nothing_has_no_share() {
        let mut one = FragmentCounts::default();
        assert_eq!((one.average(), one.above_share_of_gathered()), (None, None));
        one.enter(700, 700, true);
        let mut sum = FragmentCounts::default();
        sum.add(&one);
        sum.add(&FragmentCounts::default());
        assert_eq!(sum, one, "an idle flow changes nothing");
        let mut other = FragmentCounts::default();
        other.enter(3, 3, false);
        sum.add(&other);
        assert_eq!((sum.calls, sum.min, sum.max, sum.frees_avoided), (2, 3, 700, 1));
    }
}
