//! When a study may stop before all of its blocks are run. It looks at the rates, and
//! at the median and p99 of the latency where there is one.
//!
//! Looking at a result after each block, and stopping at will, inflates the error: stopping when
//! the effect looks large keeps the lucky moments. The rule here cannot do that, because **it never
//! looks at an effect, only at spreads**: it stops when the interval of every comparison is narrow
//! enough. Its error is bounded by an argument that needs no table of boundaries:
//!
//! Let the log ratios of one comparison be independent and normal with mean m and
//! standard deviation s. The mean of the first n of them is independent of all
//! their standard deviations S_2, S_3, ... S_n (Helmert's transformation), so
//! whatever the rule made of those, the mean at the block where it stopped still
//! is normal around m with standard deviation s / sqrt(n). And (mean - m) sqrt(n)
//! / S_k is then Student's t with k - 1 degrees of freedom for the spread S_k of
//! the first k blocks, k being fixed in advance. So
//!
//! > mean +- t(k - 1) S_k / sqrt(n)
//!
//! covers m with exactly the declared confidence, **however often the rule was applied and whenever
//! it stopped** (Stein 1945, "A two-sample test for a linear hypothesis whose power is independent
//! of the variance", with n free to depend on all spreads). k is
//! [`Stopping::at_least`](bytepath_record::Stopping).
//!
//! S_k comes from the opening alone, so it does not reflect a machine that grows noisier later.
//! Therefore the interval is the wider one of this and the usual one over all n blocks: the wider
//! one covers at least as often, and a noisy end is not hidden. For the same reason, the tests of a
//! study with a stopping rule take the larger of the two p-values
//! ([`Estimate`](crate::estimate::Estimate)). The price is the t quantile for k - 1 degrees of
//! freedom: 2.78 for 5 blocks, where 20 blocks have 2.09. An `at-least` of 8 (2.36) costs little.

use crate::estimate::Looks;
use crate::metric::Metric;
use crate::rules::Rules;
use crate::verdict::{Comparer, Side};
use bytepath_record::{CellId, Study, Trial};

/// Returns the reason if the declared stopping rule ends the study now; to be called at the end of
/// a block. `None` without a rule, before [`Stopping::at_least`](bytepath_record::Stopping) blocks
/// of every comparison, and if there is nothing to compare. Cells without a measured trial are not
/// compared.
pub fn should_stop(study: &Study) -> Option<String> {
    let header = &study.header;
    let rule = header.schedule.stopping.filter(|_| header.functional.is_none())?;
    let at_least = (rule.at_least as usize).max(2);
    let limit = rule.within.ln_1p();
    let (rules, schedule) = (Rules::of(header), &header.schedule);
    let looks = Looks::Spread { first: at_least };
    let comparer = Comparer {
        rules: &rules,
        looks,
        planned: schedule.blocks,
        ceiling: None,
        loads: &header.loads,
        functional: false,
    };
    let trials_of =
        |id: &CellId| -> Vec<&Trial> { study.trials.iter().filter(|t| t.cell == *id).collect() };
    let baseline_cell = header.cells.iter().find(|c| c.id == header.baseline)?;
    let baseline_trials = trials_of(&header.baseline);
    let baseline = Side { cell: baseline_cell, trials: &baseline_trials, costs: &[] };
    let mut widest: Option<(f64, String)> = None;
    let mut blocks = 0;
    for cell in header.cells.iter().filter(|c| !c.null && c.id != header.baseline) {
        let trials = trials_of(&cell.id);
        if !trials.iter().any(|t| t.rate().is_some()) {
            continue;
        }
        let side = Side { cell, trials: &trials, costs: &[] };
        for question in Metric::MAIN {
            let effect = match comparer.effect(question, baseline, side) {
                Some(effect) => effect,
                None if question == Metric::Rate => return None,
                // Not measured, or too few exchanges for this percentile.
                None => continue,
            };
            let half = effect.interval.filter(|_| effect.blocks >= at_least)?.log_half_width;
            if half > limit {
                return None;
            }
            blocks = blocks.max(effect.blocks);
            if widest.as_ref().is_none_or(|(widest_half, _)| half > *widest_half) {
                let of = match question {
                    Metric::Rate => cell.id.to_string(),
                    other => format!("{} of {}", other.name(), cell.id),
                };
                widest = Some((half, of));
            }
        }
    }
    let (half, cell) = widest?;
    Some(
        format!(
            "after {blocks} of at most {} blocks every {:.4}% interval is within {}% (the widest: \
         {cell}, {:.2}%)",
            header.schedule.blocks,
            rules.confidence * 100.0,
            rule.within * 100.0,
            half.exp_m1() * 100.0,
        )
        .replace(".0000%", "%"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::study;
    use bytepath_record::{Latency, TrialStatus, Work};
    use std::time::Duration;

    const QUIET: [[u64; 3]; 3] = [[1000, 1100, 2001], [1001, 1101, 2000], [1000, 1099, 2002]];

    #[test]
    fn it_stops_when_every_interval_is_narrow() {
        let reason = should_stop(&study(0.01, &QUIET)).unwrap();
        assert!(
            reason.starts_with(
                "after 3 of at most 20 blocks every 95% interval is within 1% (the widest: "
            ),
            "{reason}"
        );
    }

    #[test]
    fn a_wide_percentile_continues() {
        let mut exchanges = study(0.01, &QUIET);
        for trial in &mut exchanges.trials {
            let mut latency = Latency::default();
            (0..1000).for_each(|_| latency.record(Duration::from_micros(50)));
            (trial.work, trial.latency) = (Work::Exchanges, Some(latency));
        }
        assert!(should_stop(&exchanges).is_some());
        let slow = exchanges.trials.last_mut().unwrap().latency.as_mut().unwrap();
        (0..100).for_each(|_| slow.record(Duration::from_millis(1)));
        assert_eq!(should_stop(&exchanges), None);
    }

    #[test]
    fn one_wide_interval_continues() {
        let mut rows = QUIET;
        rows[1][2] = 2400;
        assert_eq!(should_stop(&study(0.01, &rows)), None);
        assert_eq!(should_stop(&study(0.0001, &QUIET)), None);
    }

    #[test]
    fn needs_a_rule_and_enough_blocks_to_stop() {
        assert_eq!(should_stop(&study(0.01, &QUIET[..2])), None);
        let mut undeclared = study(0.01, &QUIET);
        undeclared.header.schedule.stopping = None;
        assert_eq!(should_stop(&undeclared), None);
        // A rejected trial removes one block from its comparison.
        let mut rejected = study(0.01, &QUIET);
        rejected.trials[4].status = TrialStatus::Rejected { events: vec!["steal".into()] };
        assert_eq!(should_stop(&rejected), None);
        // A cell that cannot run does not keep the study going.
        let mut unable = study(0.01, &QUIET);
        unable.trials.retain(|t| t.cell.0 != "c");
        assert!(should_stop(&unable).is_some());
        unable.trials.retain(|t| t.cell.0 == "a");
        assert_eq!(should_stop(&unable), None, "nothing is compared");
    }

    #[test]
    fn noise_after_the_opening_blocks_stopping() {
        let mut rows = QUIET.to_vec();
        rows.extend([[1000, 1400, 2000], [1000, 900, 2000]]);
        assert_eq!(should_stop(&study(0.05, &rows)), None);
        assert!(should_stop(&study(0.05, &rows[..3])).is_some());
    }
}
