//! Which cells are profiled, and what sampling cost in throughput.

use crate::estimate::{Estimate, Interval, ratio};
use crate::rules::Rules;
use crate::trial::why_not_measured;
use bytepath_math::{Moments, StandardError, welch};
use bytepath_record::{CellId, Design, Study, Trial, distinct};
use schemars::JsonSchema;
use serde::Serialize;

/// Summary of a study's profiles, and of what sampling cost.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ProfilingNote {
    /// The event that was sampled.
    pub event: String,
    /// Samples per second and CPU.
    pub rate: u64,
    /// Cells with a valid profile.
    pub cells: Vec<CellId>,
    /// Number of valid profile trials.
    pub trials: u32,
    /// Failed or invalidated profile trials, with the reason.
    pub spoiled: Vec<String>,
    /// The rate with sampling over the rate without; `None` if no cell has both.
    pub cost: Option<SamplingCost>,
}

/// The rate with sampling over the rate without.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SamplingCost {
    /// The ratio: 0.99 is one percent less.
    pub ratio: f64,
    /// Its interval; `None` if there is only one trial.
    pub interval: Option<Interval>,
    /// Whether the trials without sampling were whole trials too. If those took turns in slices,
    /// the ratio also includes the difference between the designs.
    pub same_design: bool,
}

/// Summarises the profiles of a study; `None` if it has none.
pub(crate) fn profiling_note(study: &Study, rules: &Rules) -> Option<ProfilingNote> {
    let first = study.profiles.iter().find_map(|trial| trial.profile.as_ref())?;
    let (counted, spoiled): (Vec<&Trial>, Vec<&Trial>) =
        study.profiles.iter().partition(|trial| trial.rate().is_some());
    let cells = distinct(counted.iter().map(|trial| trial.cell.clone()));
    let why = |trial: &Trial| {
        let why = why_not_measured(trial).unwrap_or("it has no window".into());
        format!("{}: {why}", trial.cell)
    };
    Some(ProfilingNote {
        event: first.event.clone(),
        rate: first.rate,
        trials: counted.len() as u32,
        spoiled: spoiled.into_iter().map(why).collect(),
        cost: cost(study, &cells, rules.confidence),
        cells,
    })
}

/// Returns the mean over the cells of log(sampled) - log(not sampled), each a difference of two
/// means with Welch's standard error; the degrees of freedom follow from all of their variances
/// together (Satterthwaite).
fn cost(study: &Study, cells: &[CellId], confidence: f64) -> Option<SamplingCost> {
    let both = cells.iter().filter_map(|cell| {
        let logs = |trials: &[Trial]| -> Option<Moments> {
            let of_cell = trials.iter().filter(|trial| trial.cell == *cell);
            let rates = of_cell.filter_map(Trial::rate);
            let mut rates = rates.filter(|rate| *rate > 0.0 && rate.is_finite()).peekable();
            rates.peek()?;
            Some(rates.map(f64::ln).collect())
        };
        Some([logs(&study.profiles)?, logs(&study.trials)?])
    });
    let both: Vec<[Moments; 2]> = both.collect();
    if both.is_empty() {
        return None;
    }
    let means = both.iter().map(|[with, without]| with.mean() - without.mean());
    let log_mean = means.collect::<Moments>().mean();
    let errors: Option<Vec<StandardError>> = both.iter().flatten().map(Moments::error).collect();
    let errors = errors.iter().map(|all| {
        let sum = welch(all);
        StandardError { size: sum.size / both.len() as f64, ..sum }
    });
    let estimate = Estimate::once(log_mean, errors.collect());
    let (ratio, interval) = (ratio(log_mean), estimate.interval(confidence));
    let same_design = study.header.schedule.design == Design::Trials;
    Some(SamplingCost { ratio, interval, same_design })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::analyse;
    use crate::tests::study as sliced;
    use crate::tests::trial;
    use bytepath_record::{ProfileRecord, TrialStatus};

    fn profile(cell: &str, number: u32, bytes: u64) -> Trial {
        let record = ProfileRecord {
            number,
            file: format!("profiles/{cell}-{number}.pb.gz"),
            event: "cpu-clock".into(),
            rate: 499,
            samples: 1000,
            lost: 0,
        };
        Trial { profile: Some(record), ..trial(cell, number - 1, 1.0, bytes) }
    }

    fn study() -> Study {
        // Cells a (the baseline), b and c; b is twice as fast, c half as fast again.
        sliced(0.1, &[[1000, 2000, 500], [1010, 2020, 501], [990, 1990, 499]])
    }

    #[test]
    fn the_cost_of_sampling_by_hand() {
        let mut study = study();
        assert_eq!(profiling_note(&study, &Rules::default()), None);
        for (number, bytes) in [(1, 980), (2, 990), (3, 970)] {
            study.profiles.push(profile("a", number, bytes));
        }
        let mut lost = profile("a", 4, 1);
        lost.status = TrialStatus::Rejected { events: vec!["7 samples were lost".into()] };
        study.profiles.push(lost);
        let note = profiling_note(&study, &Rules::default()).unwrap();
        assert_eq!((note.trials, note.cells.len()), (3, 1));
        assert_eq!(note.spoiled, ["a: 7 samples were lost"]);
        // Means of the logarithms of 980, 990, 970 and of 1000, 1010, 990: -0.020203;
        // variances of the means 3.4711e-5 and 3.3337e-5, 3.9984 degrees of freedom,
        // t(0.975) = 2.7766, half-width 0.022906.
        let cost = note.cost.unwrap();
        assert!((cost.ratio.ln() + 0.020_204_7).abs() < 2e-6, "{}", cost.ratio.ln());
        let half = cost.interval.unwrap().log_half_width;
        assert!((half - 0.022_906).abs() < 2e-5, "{half}");
        // Profile trials do not affect the trials that count.
        let row = &analyse(&study, &Rules::default()).rows[0];
        assert_eq!(row.status.measured, 3);
    }

    #[test]
    fn one_trial_has_no_interval() {
        let mut study = study();
        study.profiles.push(profile("b", 1, 1900));
        let cost = profiling_note(&study, &Rules::default()).unwrap().cost.unwrap();
        assert!(cost.interval.is_none() && cost.ratio < 1.0);
    }
}
