//! Compares two studies of the same cells: before and after a patch, an update, a setting.
//!
//! Nothing pairs their trials, so each cell is compared by Welch's t over the logarithms of its
//! trials (Welch 1947; degrees of freedom by Satterthwaite), which requires neither equal spreads
//! nor equal numbers. Holm's rule and the words are those of one study. An A-against-A is not
//! possible: anything else that changed between the two (memory layout, neighbours, temperature, a
//! reboot) is in the effect and not in the interval. One study that has both states as levels of a
//! factor is always the better experiment.

use super::differences::{Difference, Weight, differences};
use crate::estimate::{Effect, Estimate, Interval, Summary, ratio};
use crate::metric::Metric;
use crate::rules::Rules;
use crate::study::{Analysis, Subject, analyse, counted};
use crate::trial::{Costs, other_rules};
use crate::verdict::{
    Findings, Test, Verdict, judge, tests, trial_differences, undeclared_differences,
};
use bytepath_math::{Moments, welch};
use bytepath_record::{Cell, CellId, Study, Trial, Work};
use schemars::JsonSchema;
use serde::Serialize;

/// The second study compared with the first.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StudyComparison {
    /// The rules used: those of the second study.
    pub rules: Rules,
    /// Whether each cell's ratio is first taken to the baseline of its own study.
    pub relative: bool,
    /// Differences in hosts and method.
    pub differences: Vec<Difference>,
    /// Every cell that both studies have, in the order of the second.
    pub pairings: Vec<CellComparison>,
    /// Cells that only the first has.
    pub only_first: Vec<CellId>,
    /// Cells that only the second has.
    pub only_second: Vec<CellId>,
}

/// One cell in two studies, in one metric.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CellComparison {
    pub cell: CellId,
    pub question: Metric,
    /// The kind of work that its trials count.
    pub work: Work,
    /// In the first study: work per second, CPU seconds or instructions per unit of work, or
    /// seconds.
    pub first: Option<Summary>,
    pub second: Option<Summary>,
    /// Second over first, by geometric means; `None` unless both have a figure.
    pub ratio: Option<f64>,
    pub interval: Option<Interval>,
    /// The tests of a claim, corrected for all cells.
    pub test: Option<Test>,
    pub verdict: Verdict,
    /// Reasons why the two cannot be compared; empty if they can.
    pub reasons: Vec<String>,
    #[serde(skip)]
    estimate: Option<Estimate>,
}

impl StudyComparison {
    /// Returns the differences that indicate two different machines.
    pub fn other_machine(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().filter(|d| d.weight == Weight::Machine)
    }

    /// Returns the subjects that the comparison has for thresholds.
    pub fn subjects(&self) -> Vec<Subject<'_>> {
        let measured = self.pairings.iter().filter(|p| p.is_measured());
        measured
            .map(|p| Subject { cell: &p.cell, question: p.question, estimate: p.estimate.clone() })
            .collect()
    }
}

impl CellComparison {
    /// Returns whether at least one study has a figure.
    pub fn is_measured(&self) -> bool {
        self.first.is_some() || self.second.is_some()
    }
}

/// Compares the second study with the first, cell by cell. If `relative`, it compares not the
/// cells' own figures but their ratios to the baseline of their study: then what a reboot or a
/// neighbour changed for all cells alike cancels.
pub fn between(first: &Study, second: &Study, relative: bool) -> StudyComparison {
    let rules = Rules::of(&second.header);
    let analyses = relative.then(|| [first, second].map(|study| analyse(study, &rules)));
    let cells = |study: &'_ Study| -> Vec<Cell> {
        let subject = |c: &&Cell| !c.null && (!relative || c.id != study.header.baseline);
        study.header.cells.iter().filter(subject).cloned().collect()
    };
    let (ours, theirs) = (cells(first), cells(second));
    let lacks = |all: &[Cell], cell: &Cell| !all.iter().any(|c| c.id == cell.id);
    let only = |all: &[Cell], others: &[Cell]| -> Vec<CellId> {
        all.iter().filter(|c| lacks(others, c)).map(|c| c.id.clone()).collect()
    };
    let shared: Vec<(&Cell, &Cell)> =
        theirs.iter().filter_map(|b| Some((ours.iter().find(|a| a.id == b.id)?, b))).collect();
    let mut pairings = Vec::new();
    for question in Metric::ALL {
        let mut drafts: Vec<Draft> = shared
            .iter()
            .map(|(a, b)| Draft::of(question, (first, a), (second, b), &rules))
            .filter(|d| matches!(question, Metric::Rate | Metric::Cpu) || d.pairing.is_measured())
            .collect();
        if let Some(analyses) = &analyses {
            drafts.iter_mut().for_each(|draft| draft.relate_to_baselines(analyses));
        }
        let usable = |d: &Draft| d.pairing.estimate.clone().filter(|_| d.is_comparable());
        let estimates: Vec<Option<Estimate>> = drafts.iter().map(usable).collect();
        let all = drafts.into_iter().zip(tests(&estimates, &rules));
        pairings.extend(all.map(|(draft, test)| draft.conclude(test, &rules)));
    }
    StudyComparison {
        differences: differences(&first.header, &second.header),
        pairings,
        only_first: only(&ours, &theirs),
        only_second: only(&theirs, &ours),
        relative,
        rules,
    }
}

/// A cell in both studies, before its verdict.
struct Draft {
    pairing: CellComparison,
    /// Number of trials in the smaller study.
    trials: usize,
    /// Standard deviation of the log ratio of one pair of trials.
    log_stddev: Option<f64>,
}

impl Draft {
    fn is_comparable(&self) -> bool {
        self.pairing.reasons.is_empty()
    }

    fn of<'a>(
        question: Metric,
        a: (&'a Study, &Cell),
        b: (&'a Study, &Cell),
        rules: &Rules,
    ) -> Draft {
        let trials = |(study, cell): (&'a Study, &Cell)| -> Vec<&'a Trial> {
            let of_cell = study.trials.iter().filter(|t| t.cell == cell.id).collect();
            let counted = counted(&study.header, cell, of_cell).into_iter();
            counted.filter(|t| t.rate().is_some()).collect()
        };
        let values = |side: (&'a Study, &Cell)| -> Vec<f64> {
            let figures = figures(question, side, &trials(side)).into_iter();
            figures.filter(|v| v.is_finite() && *v > 0.0).collect()
        };
        let (x, y) = (values(a), values(b));
        let summary =
            |values: &[f64]| Summary::with_interval(values.iter().copied(), rules.confidence);
        let logs = |values: &[f64]| values.iter().map(|v| v.ln()).collect::<Moments>();
        let (x_logs, y_logs) = (logs(&x), logs(&y));
        let both = !x.is_empty() && !y.is_empty();
        let log_mean = y_logs.mean() - x_logs.mean();
        let errors = x_logs.error().zip(y_logs.error());
        let estimate = errors.map(|(x, y)| Estimate::once(log_mean, vec![welch(&[x, y])]));
        let mut reasons = undeclared_differences("the first study", a.1, b.1);
        reasons.extend(trial_differences("the first study", &trials(a), &trials(b)));
        reasons.extend(other_cost(question, (a.1, &trials(a)), (b.1, &trials(b))));
        for (which, (study, _)) in [("first", a), ("second", b)] {
            if study.header.functional.is_some() && question != Metric::Instructions {
                reasons.push(format!("the {which} study shows that things work, not how fast"));
            }
        }
        if (&a.1.tx, &a.1.rx) != (&b.1.tx, &b.1.rx) {
            reasons.push("the path or its options are not those of the first study".into());
        }
        let pairing = CellComparison {
            cell: b.1.id.clone(),
            question,
            work: trials(b).first().or(trials(a).first()).map_or(Work::Bytes, |t| t.work),
            first: summary(&x),
            second: summary(&y),
            ratio: both.then(|| ratio(log_mean)),
            interval: None,
            test: None,
            verdict: Verdict::NotComparable,
            reasons,
            estimate,
        };
        let log_stddev = x_logs.stddev().zip(y_logs.stddev()).map(|(x, y)| x.hypot(y));
        Draft { pairing, trials: x.len().min(y.len()), log_stddev }
    }

    /// Compares the same cell by its ratios to the baselines, which are paired by block.
    fn relate_to_baselines(&mut self, analyses: &[Analysis; 2]) {
        let pairing = &mut self.pairing;
        let effects = analyses.each_ref().map(|analysis| {
            let row = analysis.rows.iter().find(|row| row.cell == pairing.cell)?;
            row.comparison(pairing.question).filter(|c| c.reasons.is_empty())?.effect.as_ref()
        });
        let [Some(first), Some(second)] = effects else {
            let reason = "one of the studies does not compare it with its baseline";
            pairing.reasons.push(reason.into());
            (pairing.estimate, pairing.ratio, self.log_stddev) = (None, None, None);
            return;
        };
        let log_mean = second.log_mean - first.log_mean;
        let widest = |effect: &Effect| {
            let errors = effect.estimate().errors.into_iter();
            errors.max_by(|a, b| a.size.total_cmp(&b.size))
        };
        let errors = widest(first).zip(widest(second));
        pairing.estimate = errors.map(|(a, b)| Estimate::once(log_mean, vec![welch(&[a, b])]));
        pairing.ratio = Some(ratio(log_mean));
        self.trials = first.blocks.min(second.blocks);
        self.log_stddev = first.log_stddev.zip(second.log_stddev).map(|(a, b)| a.hypot(b));
    }

    fn conclude(self, test: Option<Test>, rules: &Rules) -> CellComparison {
        let is_comparable = self.is_comparable();
        let mut pairing = self.pairing;
        pairing.interval = pairing.estimate.as_ref().and_then(|e| e.interval(rules.confidence));
        pairing.estimate = pairing.estimate.filter(|_| is_comparable);
        if is_comparable {
            let findings = Findings {
                question: pairing.question,
                estimate: pairing.estimate.as_ref().zip(test.as_ref()),
                blocks: self.trials,
                log_stddev: self.log_stddev,
                log_floor: 0.0,
            };
            pairing.verdict = judge(&findings, rules);
        }
        pairing.test = test;
        pairing
    }
}

/// Returns why the costs of two cells are not comparable, where both have some.
fn other_cost(
    question: Metric,
    first: (&Cell, &[&Trial]),
    second: (&Cell, &[&Trial]),
) -> Option<String> {
    let rules = |(cell, trials): (&Cell, &[&Trial])| {
        let costs = Costs::of_trials(cell, trials.iter().copied(), None);
        costs.iter().find_map(Costs::rules)
    };
    if !matches!(question, Metric::Cpu | Metric::Instructions) {
        return None;
    }
    other_rules("the first study's", Some(rules(first)?), Some(rules(second)?))
}

/// Returns the figures of measured trials of a study's cell.
pub(crate) fn figures(
    question: Metric,
    (study, cell): (&Study, &Cell),
    trials: &[&Trial],
) -> Vec<f64> {
    let trials = trials.iter().copied();
    match question {
        Metric::Rate => trials.filter_map(Trial::rate).collect(),
        Metric::Cpu | Metric::Instructions => {
            let costs = Costs::of_trials(cell, trials, study.header.instructions_per_second);
            costs.iter().filter_map(|costs| costs.answer(question)).collect()
        }
        Metric::Latency(percentile) => {
            trials.filter_map(|trial| trial.latency.as_ref()?.percentile(percentile)).collect()
        }
    }
}
