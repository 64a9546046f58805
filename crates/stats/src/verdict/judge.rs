//! The verdict of a comparison, and the rule behind it.
//!
//! The rule, in order:
//! 0. The study measured no speed, because its hosts were emulated: FUNCTIONAL ONLY.
//!    Instructions, if they were counted, are still judged.
//! 1. An event prevents it, or the two were not given the same task: NOT COMPARABLE.
//! 2. Fewer than two blocks: TOO FEW BLOCKS.
//! 3. Rates of bytes only: both at the same ceiling: SATURATED. Then the ceiling was measured, not
//!    the paths; their CPU per GiB distinguishes them.
//! 4. The whole interval inside the margin: EQUIVALENT. There may even be a proven difference; it
//!    is too small to matter.
//! 5. The whole interval on one side of 1: FASTER or SLOWER for a rate, LESS CPU or
//!    MORE CPU for CPU per unit of work, FEWER INSTRUCTIONS or MORE INSTRUCTIONS for
//!    instructions per unit of work, LOWER LATENCY or HIGHER LATENCY for a percentile.
//! 6. Otherwise: INCONCLUSIVE, which does not mean "no difference": these blocks do not suffice to
//!    decide.
//!
//! "The interval" of 4 and 5 is not the printed one, which is for its own comparison only, but the
//! wider one that [Holm's rule](holm) requires, so that the confidence holds for all cells. The
//! comparisons of one metric (the rate; CPU per unit of work; one percentile) form two families:
//! all claims of a difference, and all claims of EQUIVALENT. So at 95 %, for each metric, in 95 of
//! 100 studies no two equals are called different, and in 95 of 100 no two that differ by the
//! margin or more are called EQUIVALENT.
//!
//! A claim of 4 or 5 is withheld as NOISE TOO HIGH if the study's own A-against-A comparison is too
//! coarse for it: the noise floor ([`Noise::floor`]) lies above the margin (4), or above the effect
//! (5).
//!
//! The decision rests on the t interval; the permutation p is printed with it from six blocks on
//! and decides nothing, because it cannot be small with few blocks.

use crate::estimate::{Effect, Estimate, Interval, POWER_OF_PLAN, blocks_for, one_sided, ratio};
use crate::metric::Metric;
use crate::rules::Rules;
use bytepath_math::{Adjusted, holm, two_sided};
use schemars::JsonSchema;
use serde::Serialize;

/// The claim that a comparison supports.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "word")]
pub enum Verdict {
    /// A higher rate: the whole interval lies above 1.
    Faster,
    /// A lower rate: the whole interval lies below 1.
    Slower,
    /// Less CPU per unit of work: the whole interval lies below 1.
    LessCpu,
    /// More CPU per unit of work: the whole interval lies above 1.
    MoreCpu,
    /// Fewer instructions per unit of work: the whole interval lies below 1.
    FewerInstructions,
    /// More instructions per unit of work: the whole interval lies above 1.
    MoreInstructions,
    /// A lower percentile of the latency: the whole interval lies below 1.
    LowerLatency,
    /// A higher percentile of the latency: the whole interval lies above 1.
    HigherLatency,
    /// The whole interval lies inside the margin.
    Equivalent,
    /// The interval is compatible with more than one answer.
    Inconclusive {
        /// The minimum detectable effect, as a part of one (0.05 is five percent): a true effect of
        /// this size is detected in 80 % of all studies.
        smallest: f64,
        /// About how many blocks would show in 80 % of all studies that there is, or is not, a
        /// difference of the margin; `None` if it takes more than 1000.
        blocks: Option<u32>,
    },
    /// The interval alone would support a claim, but the baseline differs as much from itself.
    NoiseTooHigh {
        /// The noise floor, as a part of one.
        floor: f64,
    },
    /// Both reach the same ceiling, so their rates do not distinguish them.
    Saturated { ceiling: Ceiling },
    /// An event prevents it, or they were not given the same task; the comparison's `reasons`
    /// explain it.
    NotComparable,
    /// The study shows that things work, but not how fast.
    Functional,
    /// Fewer than two blocks have both cells.
    NotEnough { blocks: usize },
}

/// What limits a rate of bytes from outside of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ceiling {
    /// The memory-copy bandwidth of one core.
    Copy,
    /// The payload that fits into the link's rate.
    Link,
}

impl Verdict {
    /// Returns the word that tables show.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Faster => "FASTER",
            Verdict::Slower => "SLOWER",
            Verdict::LessCpu => "LESS CPU",
            Verdict::MoreCpu => "MORE CPU",
            Verdict::FewerInstructions => "FEWER INSTRUCTIONS",
            Verdict::MoreInstructions => "MORE INSTRUCTIONS",
            Verdict::LowerLatency => "LOWER LATENCY",
            Verdict::HigherLatency => "HIGHER LATENCY",
            Verdict::Equivalent => "EQUIVALENT",
            Verdict::Inconclusive { .. } => "INCONCLUSIVE",
            Verdict::NoiseTooHigh { .. } => "NOISE TOO HIGH",
            Verdict::Saturated { .. } => "SATURATED",
            Verdict::NotComparable => "NOT COMPARABLE",
            Verdict::Functional => "FUNCTIONAL ONLY",
            Verdict::NotEnough { .. } => "TOO FEW BLOCKS",
        }
    }

    /// Returns `Some(true)` if the word means better than the baseline, `Some(false)` if worse;
    /// `None` if neither.
    pub fn better(&self) -> Option<bool> {
        use Verdict::*;
        match self {
            Faster | LessCpu | FewerInstructions | LowerLatency => Some(true),
            Slower | MoreCpu | MoreInstructions | HigherLatency => Some(false),
            _ => None,
        }
    }
}

/// The noise of a study: the baseline compared with a second copy of itself.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Noise {
    pub question: Metric,
    /// The comparison of the second copy with the first.
    pub effect: Effect,
    /// Root mean square of the per-block log ratios. It is taken around zero, the known truth, so
    /// that a bias of the design counts as noise too.
    pub log_rms: f64,
    /// The noise floor for as many blocks as the null cell has, as a part of one.
    pub floor: f64,
    /// Confidence of the floor.
    pub confidence: f64,
}

impl Noise {
    /// Returns the noise of a null comparison; `None` below two blocks.
    pub fn of(question: Metric, effect: Effect, confidence: f64) -> Option<Noise> {
        let n = effect.blocks as f64;
        let stddev = effect.log_stddev?;
        let variance = stddev * stddev * (n - 1.0) / n;
        let log_rms = (effect.log_mean * effect.log_mean + variance).sqrt();
        let mut noise = Noise { question, log_rms, floor: 0.0, confidence, effect };
        noise.floor = excess(noise.log_floor(noise.effect.blocks)?);
        Some(noise)
    }

    /// Returns the noise floor of a comparison over `blocks` blocks, as a logarithm: if nothing
    /// differs, the mean log ratio stays within it with the given confidence. It is t (with one
    /// degree of freedom per null block, since the mean is known to be zero) times the null's root
    /// mean square over the root of `blocks`.
    pub fn log_floor(&self, blocks: usize) -> Option<f64> {
        let t = two_sided(self.confidence, self.effect.blocks as f64)?;
        (blocks > 0).then(|| t * self.log_rms / (blocks as f64).sqrt())
    }
}

/// The two tests of a comparison, corrected for its family.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Test {
    /// Number of comparisons of the same metric in the study.
    pub family: usize,
    /// Differences below this part of one are too small to matter.
    #[serde(skip)]
    pub margin: f64,
    /// Test of the claim that there is a difference.
    pub different: Adjusted,
    /// Test of the claim that there is none beyond the margin.
    pub equivalent: Adjusted,
    /// The interval that decides on a difference: as wide as Holm's rule requires.
    pub deciding: Interval,
}

/// Returns the tests of one metric's comparisons, in their order. `None` for those without an
/// interval, which are not part of the family.
pub(crate) fn tests(estimates: &[Option<Estimate>], rules: &Rules) -> Vec<Option<Test>> {
    let margin = rules.margin.max(0.0).ln_1p();
    let ps: Vec<Option<(f64, f64)>> = estimates
        .iter()
        .map(|e| e.as_ref().and_then(|e| Some((e.p_different()?, e.p_equivalent(margin)?))))
        .collect();
    let (different, equivalent): (Vec<f64>, Vec<f64>) = ps.iter().flatten().copied().unzip();
    let family = different.len();
    let adjusted = holm(&different, rules.confidence);
    let mut adjusted = adjusted.into_iter().zip(holm(&equivalent, rules.confidence));
    let test = |(estimate, ps): (&Option<Estimate>, &Option<(f64, f64)>)| {
        ps.as_ref()?;
        let (different, equivalent) = adjusted.next()?;
        let deciding = estimate.as_ref()?.interval(different.confidence)?;
        Some(Test { family, margin: rules.margin.max(0.0), different, equivalent, deciding })
    };
    estimates.iter().zip(&ps).map(test).collect()
}

/// The input of a verdict.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Findings<'a> {
    pub question: Metric,
    /// The estimate and its tests; `None` if there are too few values.
    pub estimate: Option<(&'a Estimate, &'a Test)>,
    /// Blocks that have both; if two studies are compared, trials in the smaller one.
    pub blocks: usize,
    /// Standard deviation of one block's log ratio, for planning.
    pub log_stddev: Option<f64>,
    /// If nothing differs, the mean log ratio stays within this.
    pub log_floor: f64,
}

/// Returns the verdict on two comparable cells. The margin is a part of one; as a ratio it reaches
/// from 1 / (1 + margin) to 1 + margin.
pub(crate) fn judge(findings: &Findings, rules: &Rules) -> Verdict {
    let Some((estimate, test)) = findings.estimate else {
        return Verdict::NotEnough { blocks: findings.blocks };
    };
    let alpha = 1.0 - rules.confidence;
    let margin = rules.margin.max(0.0).ln_1p();
    let floor = findings.log_floor;
    let unless_noisy = |claim: Verdict, sought: f64| {
        if floor > sought { Verdict::NoiseTooHigh { floor: excess(floor) } } else { claim }
    };
    if test.equivalent.adjusted <= alpha {
        unless_noisy(Verdict::Equivalent, margin)
    } else if test.different.adjusted <= alpha {
        let claim = claim(findings.question, estimate.log_mean > 0.0);
        unless_noisy(claim, estimate.log_mean.abs())
    } else {
        let stddev = findings.log_stddev.unwrap_or(f64::NAN);
        let confidences = (test.different.confidence, test.equivalent.confidence);
        let blocks = blocks_for(stddev, margin, confidences.0, confidences.1);
        let beyond = estimate.interval(one_sided(POWER_OF_PLAN)).map_or(0.0, |i| i.log_half_width);
        let smallest = excess(test.deciding.log_half_width + beyond);
        Verdict::Inconclusive { smallest, blocks }
    }
}

/// Returns the claim that a value lies above or below the baseline's.
fn claim(question: Metric, above: bool) -> Verdict {
    match (question, above) {
        (Metric::Rate, true) => Verdict::Faster,
        (Metric::Rate, false) => Verdict::Slower,
        (Metric::Cpu, true) => Verdict::MoreCpu,
        (Metric::Cpu, false) => Verdict::LessCpu,
        (Metric::Instructions, true) => Verdict::MoreInstructions,
        (Metric::Instructions, false) => Verdict::FewerInstructions,
        (Metric::Latency(_), true) => Verdict::HigherLatency,
        (Metric::Latency(_), false) => Verdict::LowerLatency,
    }
}

/// Returns how far a ratio lies above 1, from its logarithm.
fn excess(log: f64) -> f64 {
    ratio(log) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::CONFIDENCE;
    use bytepath_math::Random;

    fn effect(ratios: &[f64]) -> Effect {
        let pairs: Vec<_> = ratios.iter().map(|r| (1.0, *r)).collect();
        Effect::of(&pairs, CONFIDENCE).unwrap()
    }

    /// The word for the throughput of a comparison that is the only one of its family.
    fn alone(effect: Option<&Effect>, noise: Option<&Noise>) -> Verdict {
        each(Metric::Rate, &[effect], noise).remove(0)
    }

    /// The words of a family.
    fn each(question: Metric, all: &[Option<&Effect>], noise: Option<&Noise>) -> Vec<Verdict> {
        let rules = Rules::default();
        let estimates: Vec<_> = all.iter().map(|e| e.map(Effect::estimate)).collect();
        let tests = tests(&estimates, &rules);
        let word = |((effect, estimate), test): ((&Option<&Effect>, &Option<Estimate>), _)| {
            let blocks = effect.map_or(0, |e| e.blocks);
            let test: &Option<Test> = test;
            let found = Findings {
                question,
                estimate: estimate.as_ref().zip(test.as_ref()),
                blocks,
                log_stddev: effect.and_then(|e| e.log_stddev),
                log_floor: noise.and_then(|n| n.log_floor(blocks)).unwrap_or(0.0),
            };
            judge(&found, &rules)
        };
        all.iter().zip(&estimates).zip(&tests).map(word).collect()
    }

    fn word(ratios: &[f64], null: &[f64]) -> &'static str {
        let noise = (!null.is_empty()).then(|| {
            Noise::of(Metric::Rate, effect(null), CONFIDENCE).expect("two blocks or more")
        });
        alone(Some(&effect(ratios)), noise.as_ref()).word()
    }

    const QUIET: [f64; 5] = [0.999, 1.001, 1.0, 1.002, 0.998];
    const LOUD: [f64; 5] = [0.8, 1.3, 0.9, 1.1, 1.0];

    #[test]
    fn faster_requires_an_interval_above_one() {
        assert_eq!(word(&[1.10, 1.12, 1.11, 1.09, 1.13], &QUIET), "FASTER");
        assert_eq!(word(&[1.10, 1.12, 1.11, 0.89, 1.13], &QUIET), "INCONCLUSIVE");
        assert_eq!(word(&[1.10, 1.12, 1.11, 1.09, 1.13], &LOUD), "NOISE TOO HIGH");
    }

    #[test]
    fn slower_requires_an_interval_below_one() {
        assert_eq!(word(&[0.90, 0.88, 0.89, 0.91, 0.87], &QUIET), "SLOWER");
        assert_eq!(word(&[0.90, 0.88, 0.89, 1.11, 0.87], &QUIET), "INCONCLUSIVE");
        assert_eq!(word(&[0.90, 0.88, 0.89, 0.91, 0.87], &LOUD), "NOISE TOO HIGH");
    }

    #[test]
    fn equivalent_requires_an_interval_within_the_margin() {
        // A proven difference of half a percent is still within the margin.
        assert_eq!(word(&[1.005, 1.006, 1.004, 1.005, 1.005], &QUIET), "EQUIVALENT");
        assert_eq!(word(&[1.0, 1.001, 0.999, 1.0, 1.0], &[]), "EQUIVALENT");
        // Centred on 1, but too wide: nothing is shown, least of all equality.
        assert_eq!(word(&[1.0, 1.05, 0.95, 1.02, 0.98], &QUIET), "INCONCLUSIVE");
        assert_eq!(word(&[1.005, 1.006, 1.004, 1.005, 1.005], &LOUD), "NOISE TOO HIGH");
        // An interval that reaches beyond the margin on one side only.
        assert_eq!(word(&[1.018, 1.022, 1.017, 1.019, 1.021], &QUIET), "FASTER");
    }

    #[test]
    fn inconclusive_reports_the_smallest_detectable_effect() {
        let e = effect(&[1.0, 1.05, 0.95, 1.02, 0.98]);
        let Verdict::Inconclusive { smallest, blocks } = alone(Some(&e), None) else {
            panic!("{e:?}");
        };
        // Four degrees of freedom: t(0.975) = 2.7764, t(0.8) = 0.9410.
        let stddev = e.log_stddev.unwrap();
        let by_hand = ((2.776_445 + 0.940_965) * stddev / 5f64.sqrt()).exp_m1();
        assert!((smallest - by_hand).abs() < 1e-6, "{smallest} and {by_hand}");
        assert_eq!(blocks, blocks_for(stddev, 0.02f64.ln_1p(), 0.95, 0.95));
    }

    #[test]
    fn one_block_is_not_enough() {
        assert_eq!(alone(Some(&effect(&[2.0])), None), Verdict::NotEnough { blocks: 1 });
        assert_eq!(alone(None, None), Verdict::NotEnough { blocks: 0 });
        assert_ne!(word(&[2.0, 2.001], &[]), "TOO FEW BLOCKS");
        assert_eq!(Noise::of(Metric::Rate, effect(&[1.3]), CONFIDENCE), None);
    }

    #[test]
    fn the_metric_selects_the_word() {
        let cheaper = effect(&[0.90, 0.88, 0.89, 0.91, 0.87]);
        let dearer = effect(&[1.10, 1.12, 1.11, 1.09, 1.13]);
        for (effect, question, word) in [
            (&cheaper, Metric::Cpu, "LESS CPU"),
            (&cheaper, Metric::Rate, "SLOWER"),
            (&dearer, Metric::Cpu, "MORE CPU"),
            (&cheaper, Metric::Instructions, "FEWER INSTRUCTIONS"),
            (&dearer, Metric::Instructions, "MORE INSTRUCTIONS"),
            (&dearer, Metric::Rate, "FASTER"),
        ] {
            assert_eq!(each(question, &[Some(effect)], None)[0].word(), word);
        }
    }

    #[test]
    fn many_comparisons_withdraw_only_weak_claims() {
        // Alone, each of the two holds at 95 %; the weak one has p about 0.02.
        let (strong, weak) =
            (effect(&[1.10, 1.12, 1.11, 1.09, 1.13]), effect(&[1.09, 1.03, 1.12, 1.02, 1.08]));
        let nothing: Vec<Effect> =
            (0..8).map(|i| effect(&[1.1, 0.9, 1.05, 0.96, 1.0 + f64::from(i) / 100.0])).collect();
        let words = |effects: Vec<&Effect>| -> Vec<&'static str> {
            let effects: Vec<_> = effects.into_iter().map(Some).collect();
            each(Metric::Rate, &effects, None).iter().map(Verdict::word).collect()
        };
        assert_eq!(words(vec![&strong, &weak]), ["FASTER", "FASTER"]);
        let all = words([&strong, &weak].into_iter().chain(&nothing).collect());
        assert_eq!(all[..2], ["FASTER", "INCONCLUSIVE"], "{all:?}");
        let estimates = [&strong, &weak].map(|e| Some(e.estimate()));
        let tests = tests(&estimates, &Rules::default());
        assert_eq!(tests[0].unwrap().family, 2);
        for (effect, test) in [&strong, &weak].into_iter().zip(tests.iter().flatten()) {
            // The deciding interval is the printed one when no error is left to share.
            let (own, deciding) = (effect.interval.unwrap(), test.deciding);
            assert!(deciding.log_half_width >= own.log_half_width - 1e-12 && deciding.low > 1.0);
        }
    }

    #[test]
    fn the_noise_floor_by_hand() {
        // Logs +-0.1 alternating over 4 blocks: mean 0, root mean square 0.1;
        // t(4, 0.975) = 2.776445, over 4 blocks 0.138822, over 16 half of that.
        let up = 0.1f64.exp();
        let noise =
            Noise::of(Metric::Rate, effect(&[up, 1.0 / up, up, 1.0 / up]), CONFIDENCE).unwrap();
        assert!((noise.log_rms - 0.1).abs() < 1e-12);
        assert!((noise.log_floor(4).unwrap() - 0.138_822_255).abs() < 1e-7);
        assert!((noise.log_floor(16).unwrap() - 0.069_411_128).abs() < 1e-7);
        assert!((noise.floor - (0.138_822_255f64.exp() - 1.0)).abs() < 1e-7);
        // A constant bias has no spread around its mean and is still noise.
        let biased = Noise::of(Metric::Rate, effect(&[1.1, 1.1, 1.1]), CONFIDENCE).unwrap();
        assert!((biased.log_rms - 1.1f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn identical_cells_are_seldom_distinguished() {
        // Baseline, null and cell all draw from the same distribution: the two words together may
        // appear in 5 % of 2000 studies, and the guard by the null cell keeps them well below.
        let mut random = Random::new(7);
        let mut noisy = || random.normal() * 0.05;
        let (mut bare, mut guarded) = (0, 0);
        for _ in 0..2000 {
            let base: Vec<f64> = (0..5).map(|_| noisy().exp()).collect();
            let mut against = || {
                let pairs: Vec<_> = base.iter().map(|a| (*a, noisy().exp())).collect();
                Effect::of(&pairs, CONFIDENCE).unwrap()
            };
            let (null, cell) = (Noise::of(Metric::Rate, against(), CONFIDENCE), against());
            let claims = |v: Verdict| matches!(v, Verdict::Faster | Verdict::Slower);
            bare += u32::from(claims(alone(Some(&cell), None)));
            guarded += u32::from(claims(alone(Some(&cell), null.as_ref())));
        }
        assert!((60..140).contains(&bare), "{bare} of 2000");
        assert!(guarded < bare && guarded < 60, "{guarded} of 2000, unguarded {bare}");
    }
}
