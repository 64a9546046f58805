//! The word for a comparison, and the rule that earns it.
//!
//! The rule, in order:
//! 1. Fewer than two blocks: NOT ENOUGH.
//! 2. The whole t interval inside the margin: EQUIVALENT. A difference may
//!    even be proven then; it is one too small to matter.
//! 3. The whole interval on one side of 1: FASTER or SLOWER.
//! 4. Otherwise: INCONCLUSIVE, which is not "no difference": these blocks
//!    cannot tell.
//!
//! A claim of 2 or 3 is withheld as NOISE TOO HIGH where the study's own
//! A-against-A comparison is worse than the claim is fine: the noise floor
//! ([`Noise::floor`]) lies above the margin (2), or above the effect (3).
//!
//! The decision rests on the t interval; the permutation p is printed beside
//! it and decides nothing, because with few blocks it cannot be small.

use super::effect::{Effect, ratio};
use super::student::{blocks_for, two_sided};
use serde::Serialize;

/// Differences within this part are too small to matter, unless asked otherwise.
pub const DEFAULT_MARGIN: f64 = 0.02;

/// What may be said of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "word")]
pub enum Verdict {
    /// The whole interval lies above 1.
    Faster,
    /// The whole interval lies below 1.
    Slower,
    /// The whole interval lies inside the margin.
    Equivalent,
    /// The interval allows more than one answer.
    Inconclusive {
        /// The smallest effect that would have been seen, as a part of one (0.05 is
        /// five percent): the half-width of the interval. A true effect of just
        /// this size is seen about half of the time.
        smallest: f64,
        /// About how many blocks would bring the half-width down to the margin;
        /// none where it takes more than 1000.
        blocks: Option<u32>,
    },
    /// The interval alone would allow a claim, but the baseline against itself
    /// differs as much.
    NoiseTooHigh {
        /// The noise floor, as a part of one.
        floor: f64,
    },
    /// Fewer than two blocks have both cells.
    NotEnough {
        /// How many have.
        blocks: usize,
    },
}

impl Verdict {
    /// The word that tables show.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Faster => "FASTER",
            Verdict::Slower => "SLOWER",
            Verdict::Equivalent => "EQUIVALENT",
            Verdict::Inconclusive { .. } => "INCONCLUSIVE",
            Verdict::NoiseTooHigh { .. } => "NOISE TOO HIGH",
            Verdict::NotEnough { .. } => "NOT ENOUGH",
        }
    }
}

/// What the baseline measured against a second copy of itself says of the noise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Noise {
    /// The comparison of the second copy with the first.
    pub effect: Effect,
    /// Root of the mean square of the per-block log ratios. It is taken around
    /// zero, the known truth, so that a bias of the design counts as noise too.
    pub log_rms: f64,
    /// The noise floor for as many blocks as the null cell has, as a part of one.
    pub floor: f64,
    /// Confidence of the floor.
    pub confidence: f64,
}

impl Noise {
    /// The noise of a null comparison; none below two blocks.
    pub fn of(effect: Effect, confidence: f64) -> Option<Noise> {
        let n = effect.blocks as f64;
        let stddev = effect.log_stddev?;
        let variance = stddev * stddev * (n - 1.0) / n;
        let log_rms = (effect.log_mean * effect.log_mean + variance).sqrt();
        let mut noise = Noise { log_rms, floor: 0.0, confidence, effect };
        noise.floor = excess(noise.log_floor(noise.effect.blocks)?);
        Some(noise)
    }

    /// The noise floor of a comparison over `blocks` blocks: where nothing
    /// differs, the mean log ratio stays within it with the given confidence.
    /// It is t (with one degree of freedom per null block, since the mean is
    /// known to be zero) times the null's root mean square over root `blocks`.
    pub fn log_floor(&self, blocks: usize) -> Option<f64> {
        let t = two_sided(self.confidence, self.effect.blocks as f64)?;
        (blocks > 0).then(|| t * self.log_rms / (blocks as f64).sqrt())
    }
}

/// Puts a word to a comparison. `margin` is a part of one; as a ratio it
/// reaches from 1 / (1 + margin) to 1 + margin.
pub fn judge(effect: Option<&Effect>, noise: Option<&Noise>, margin: f64) -> Verdict {
    let blocks = effect.map_or(0, |e| e.blocks);
    let Some((effect, interval, stddev)) =
        effect.and_then(|e| Some((e, e.interval?, e.log_stddev?)))
    else {
        return Verdict::NotEnough { blocks };
    };
    let margin = margin.max(0.0).ln_1p();
    let half = interval.log_half_width;
    let floor = noise.and_then(|n| n.log_floor(blocks)).unwrap_or(0.0);
    let unless_noisy = |claim: Verdict, sought: f64| {
        if floor > sought { Verdict::NoiseTooHigh { floor: excess(floor) } } else { claim }
    };
    if effect.log_mean.abs() + half <= margin {
        unless_noisy(Verdict::Equivalent, margin)
    } else if effect.log_mean - half > 0.0 {
        unless_noisy(Verdict::Faster, effect.log_mean)
    } else if effect.log_mean + half < 0.0 {
        unless_noisy(Verdict::Slower, -effect.log_mean)
    } else {
        let blocks = blocks_for(stddev, margin, interval.confidence);
        Verdict::Inconclusive { smallest: excess(half), blocks }
    }
}

/// How far a ratio lies above 1, from its logarithm.
fn excess(log: f64) -> f64 {
    ratio(log) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::effect::CONFIDENCE;

    fn effect(ratios: &[f64]) -> Effect {
        let pairs: Vec<_> = ratios.iter().map(|r| (1.0, *r)).collect();
        Effect::of(&pairs, CONFIDENCE).unwrap()
    }

    fn word(ratios: &[f64], null: &[f64]) -> &'static str {
        let noise = (!null.is_empty())
            .then(|| Noise::of(effect(null), CONFIDENCE).expect("two blocks or more"));
        judge(Some(&effect(ratios)), noise.as_ref(), DEFAULT_MARGIN).word()
    }

    const QUIET: [f64; 5] = [0.999, 1.001, 1.0, 1.002, 0.998];
    const LOUD: [f64; 5] = [0.8, 1.3, 0.9, 1.1, 1.0];

    #[test]
    fn faster_is_earned_and_denied() {
        assert_eq!(word(&[1.10, 1.12, 1.11, 1.09, 1.13], &QUIET), "FASTER");
        assert_eq!(word(&[1.10, 1.12, 1.11, 0.89, 1.13], &QUIET), "INCONCLUSIVE");
        assert_eq!(word(&[1.10, 1.12, 1.11, 1.09, 1.13], &LOUD), "NOISE TOO HIGH");
    }

    #[test]
    fn slower_is_earned_and_denied() {
        assert_eq!(word(&[0.90, 0.88, 0.89, 0.91, 0.87], &QUIET), "SLOWER");
        assert_eq!(word(&[0.90, 0.88, 0.89, 1.11, 0.87], &QUIET), "INCONCLUSIVE");
        assert_eq!(word(&[0.90, 0.88, 0.89, 0.91, 0.87], &LOUD), "NOISE TOO HIGH");
    }

    #[test]
    fn equivalent_is_earned_and_denied() {
        // A proven difference of half a percent is still within the margin.
        assert_eq!(word(&[1.005, 1.006, 1.004, 1.005, 1.005], &QUIET), "EQUIVALENT");
        assert_eq!(word(&[1.0, 1.001, 0.999, 1.0, 1.0], &[]), "EQUIVALENT");
        // Centred on 1, but too wide: nothing was shown, least of all equality.
        assert_eq!(word(&[1.0, 1.05, 0.95, 1.02, 0.98], &QUIET), "INCONCLUSIVE");
        assert_eq!(word(&[1.005, 1.006, 1.004, 1.005, 1.005], &LOUD), "NOISE TOO HIGH");
        // An interval that reaches over the margin on one side only.
        assert_eq!(word(&[1.018, 1.022, 1.017, 1.019, 1.021], &QUIET), "FASTER");
    }

    #[test]
    fn inconclusive_tells_what_it_could_have_seen() {
        let e = effect(&[1.0, 1.05, 0.95, 1.02, 0.98]);
        let Verdict::Inconclusive { smallest, blocks } = judge(Some(&e), None, 0.02) else {
            panic!("{e:?}");
        };
        let i = e.interval.unwrap();
        assert!((smallest - (i.high / e.ratio - 1.0)).abs() < 1e-12);
        let n = blocks.unwrap();
        let half = |n: u32| {
            two_sided(0.95, f64::from(n) - 1.0).unwrap() * e.log_stddev.unwrap()
                / f64::from(n).sqrt()
        };
        assert!(half(n) <= 0.02f64.ln_1p() && half(n - 1) > 0.02f64.ln_1p(), "{n}");
        let wild = effect(&[0.1, 10.0, 1.0]);
        assert!(matches!(
            judge(Some(&wild), None, 0.02),
            Verdict::Inconclusive { blocks: None, .. }
        ));
    }

    #[test]
    fn one_block_is_not_enough() {
        assert_eq!(judge(Some(&effect(&[2.0])), None, 0.02), Verdict::NotEnough { blocks: 1 });
        assert_eq!(judge(None, None, 0.02), Verdict::NotEnough { blocks: 0 });
        assert_ne!(word(&[2.0, 2.001], &[]), "NOT ENOUGH");
        assert_eq!(Noise::of(effect(&[1.3]), CONFIDENCE), None);
    }

    #[test]
    fn the_noise_floor_by_hand() {
        // Logs +-0.1 alternating over 4 blocks: mean 0, root mean square 0.1;
        // t(4, 0.975) = 2.776445, over 4 blocks 0.138822, over 16 half of that.
        let up = 0.1f64.exp();
        let noise = Noise::of(effect(&[up, 1.0 / up, up, 1.0 / up]), CONFIDENCE).unwrap();
        assert!((noise.log_rms - 0.1).abs() < 1e-12);
        assert!((noise.log_floor(4).unwrap() - 0.138_822_255).abs() < 1e-7);
        assert!((noise.log_floor(16).unwrap() - 0.069_411_128).abs() < 1e-7);
        assert!((noise.floor - (0.138_822_255f64.exp() - 1.0)).abs() < 1e-7);
        // A constant bias has no spread around its mean and is noise all the same.
        let biased = Noise::of(effect(&[1.1, 1.1, 1.1]), CONFIDENCE).unwrap();
        assert!((biased.log_rms - 1.1f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn identical_cells_are_seldom_told_apart() {
        // Baseline, null and cell all draw from the same distribution: the two
        // words together may come up in 5 % of 2000 studies, and the guard by the
        // null cell keeps them well below.
        let mut state = 7u64;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / 2f64.powi(53)
        };
        let mut noisy = || ((0..12).map(|_| uniform()).sum::<f64>() - 6.0) * 0.05;
        let (mut bare, mut guarded) = (0, 0);
        for _ in 0..2000 {
            let base: Vec<f64> = (0..5).map(|_| noisy().exp()).collect();
            let mut against = || {
                let pairs: Vec<_> = base.iter().map(|a| (*a, noisy().exp())).collect();
                Effect::of(&pairs, CONFIDENCE).unwrap()
            };
            let (null, cell) = (Noise::of(against(), CONFIDENCE), against());
            let claims = |v: Verdict| matches!(v, Verdict::Faster | Verdict::Slower);
            bare += u32::from(claims(judge(Some(&cell), None, DEFAULT_MARGIN)));
            guarded += u32::from(claims(judge(Some(&cell), null.as_ref(), DEFAULT_MARGIN)));
        }
        assert!((60..140).contains(&bare), "{bare} of 2000");
        assert!(guarded < bare && guarded < 60, "{guarded} of 2000, unguarded {bare}");
    }
}
