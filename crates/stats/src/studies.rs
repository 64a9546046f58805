//! Two studies of the same cells: before and after a patch, an update, a setting.
//!
//! Nothing pairs their trials, so each cell is compared by Welch's t over the
//! logarithms of its trials (Welch 1947; degrees of freedom by Satterthwaite),
//! which asks neither for equal spreads nor for equal numbers. Holm's rule and the
//! words are those of one study. An A-against-A is not possible: anything
//! else that changed between the two (memory layout, neighbours, temperature, a reboot)
//! is in the effect and not in the interval. One study that holds both as levels
//! of a factor is always the better experiment.

use super::analysis::{Analysis, Rules};
use super::budget;
use super::build::analyse;
use super::contract::{undeclared, unlike};
use super::effect::Effect;
use super::estimate::{Estimate, Interval, ratio};
use super::summary::Summary;
use super::threshold::Subject;
use super::verdict::{Findings, Question, Test, Verdict, judge, tests};
use super::worth::Costs;
use crate::math::{Moments, welch};
use crate::record::{Cell, CellId, Facts, Role, Study, StudyHeader, Trial, Work, unit};
use serde::Serialize;

/// Copy bandwidths that differ by more than this part are worth a word: then the
/// machine itself was faster or slower, whatever the paths did.
const CEILING_APART: f64 = 0.1;

/// Memory sizes that differ by less are the same machine under another kernel.
const MEMORY_APART: f64 = 0.05;

/// Two studies, the second against the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Between {
    /// What decides: the rules of the second study.
    pub rules: Rules,
    /// Whether ratios are of ratios: each cell's to the baseline of its own study.
    pub relative: bool,
    /// What differs in hosts and method.
    pub differences: Vec<Difference>,
    /// Every cell that both have, in the order of the second study.
    pub pairings: Vec<Pairing>,
    /// Cells that only the first has.
    pub only_first: Vec<CellId>,
    /// Cells that only the second has.
    pub only_second: Vec<CellId>,
}

/// Something in which hosts or method differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub what: String,
    /// In the first study.
    pub first: String,
    pub second: String,
    /// What it means for the comparison.
    pub weight: Weight,
}

/// What a difference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Another machine: its numbers say nothing of what changed in software.
    Machine,
    /// The same machine in another state: it may be the cause, or the subject.
    State,
    /// Another way to measure.
    Method,
}

/// One cell in two studies, in one question.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pairing {
    pub cell: CellId,
    pub question: Question,
    /// What its trials count.
    pub work: Work,
    /// In the first study: work per second, CPU seconds or instructions per unit of work,
    /// or seconds.
    pub first: Option<Summary>,
    pub second: Option<Summary>,
    /// Second over first, of geometric means; none without both.
    pub ratio: Option<f64>,
    pub interval: Option<Interval>,
    /// How sure a claim is among all cells.
    pub test: Option<Test>,
    pub verdict: Verdict,
    /// Why the two cannot be compared, if so.
    pub reasons: Vec<String>,
    #[serde(skip)]
    estimate: Option<Estimate>,
}

impl Between {
    /// The differences that make it two machines.
    pub fn other_machine(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().filter(|d| d.weight == Weight::Machine)
    }

    /// What the studies offer to thresholds.
    pub fn subjects(&self) -> Vec<Subject<'_>> {
        let measured = |p: &&Pairing| p.first.is_some() || p.second.is_some();
        self.pairings
            .iter()
            .filter(measured)
            .map(|p| Subject { cell: &p.cell, question: p.question, estimate: p.estimate.clone() })
            .collect()
    }
}

/// Compares the second study with the first, cell by cell. If `relative`, not the cells'
/// own figures but their ratios to the baseline of their study: what a reboot or a
/// neighbour changed for all cells alike cancels.
pub fn between(first: &Study, second: &Study, relative: bool) -> Between {
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
    for question in Question::ALL {
        let samples: Vec<Sample> = shared
            .iter()
            .map(|(a, b)| {
                let sample = Sample::of(question, (first, a), (second, b), &rules);
                match &analyses {
                    Some(analyses) => sample.against_baselines(question, analyses),
                    None => sample,
                }
            })
            .filter(|s| matches!(question, Question::Rate | Question::Cpu) || s.measured())
            .collect();
        let estimates: Vec<Option<Estimate>> =
            samples.iter().map(|s| s.estimate.clone().filter(|_| s.reasons.is_empty())).collect();
        let tests = tests(&estimates, &rules);
        let all = samples.into_iter().zip(tests);
        pairings.extend(all.map(|(sample, test)| sample.pair(question, test, &rules)));
    }
    Between {
        differences: differences(&first.header, &second.header),
        pairings,
        only_first: only(&ours, &theirs),
        only_second: only(&theirs, &ours),
        relative,
        rules,
    }
}

/// The trials of one cell in both studies.
struct Sample {
    cell: CellId,
    work: Work,
    first: Option<Summary>,
    second: Option<Summary>,
    estimate: Option<Estimate>,
    /// Trials in the smaller one.
    trials: usize,
    /// What one pair of trials would scatter with.
    log_stddev: Option<f64>,
    ratio: Option<f64>,
    reasons: Vec<String>,
}

impl Sample {
    /// Whether either study has a figure.
    fn measured(&self) -> bool {
        self.first.is_some() || self.second.is_some()
    }

    fn of<'a>(
        question: Question,
        a: (&'a Study, &Cell),
        b: (&'a Study, &Cell),
        rules: &Rules,
    ) -> Sample {
        let trials = |(study, cell): (&'a Study, &Cell)| -> Vec<&'a Trial> {
            let of_cell = study.trials.iter().filter(|t| t.cell == cell.id).collect();
            let counted = budget::counted(&study.header, cell, of_cell).into_iter();
            counted.filter(|t| t.rate().is_some()).collect()
        };
        let values = |side: (&'a Study, &Cell)| -> Vec<f64> {
            let figures = trials(side).into_iter().filter_map(|t| figure(question, side, t));
            figures.filter(|v| v.is_finite() && *v > 0.0).collect()
        };
        let (x, y) = (values(a), values(b));
        let summary =
            |values: &[f64]| Summary::of(values.iter().copied()).map(|s| s.at(rules.confidence));
        let logs = |values: &[f64]| values.iter().map(|v| v.ln()).collect::<Moments>();
        let (x_logs, y_logs) = (logs(&x), logs(&y));
        let both = !x.is_empty() && !y.is_empty();
        let log_mean = y_logs.mean() - x_logs.mean();
        let errors = x_logs.error().zip(y_logs.error());
        let estimate = errors.map(|(x, y)| Estimate { log_mean, errors: vec![welch(&[x, y])] });
        let mut reasons = undeclared("the first study", a.1, b.1);
        reasons.extend(unlike("the first study", &trials(a), &trials(b)));
        for (which, (study, _)) in [("first", a), ("second", b)] {
            if study.header.functional.is_some() && question != Question::Instructions {
                reasons.push(format!("the {which} study shows that things work, not how fast"));
            }
        }
        if (&a.1.tx, &a.1.rx) != (&b.1.tx, &b.1.rx) {
            reasons.push("the path or its options are not those of the first study".into());
        }
        Sample {
            cell: b.1.id.clone(),
            work: trials(b).first().or(trials(a).first()).map_or(Work::Bytes, |t| t.work),
            first: summary(&x),
            second: summary(&y),
            estimate,
            trials: x.len().min(y.len()),
            log_stddev: x_logs.stddev().zip(y_logs.stddev()).map(|(x, y)| x.hypot(y)),
            ratio: both.then(|| ratio(log_mean)),
            reasons,
        }
    }

    /// The same cell by its ratios to the baselines, which are paired by block.
    fn against_baselines(self, question: Question, analyses: &[Analysis; 2]) -> Sample {
        let effects = analyses.each_ref().map(|analysis| {
            let row = analysis.rows.iter().find(|row| row.cell == self.cell)?;
            row.comparison(question).filter(|c| c.reasons.is_empty())?.effect.as_ref()
        });
        let [Some(first), Some(second)] = effects else {
            let mut reasons = self.reasons;
            reasons.push("one of the studies does not compare it with its baseline".into());
            return Sample { estimate: None, ratio: None, log_stddev: None, reasons, ..self };
        };
        let log_mean = second.log_mean - first.log_mean;
        let widest = |effect: &Effect| {
            let errors = effect.estimate().errors.into_iter();
            errors.max_by(|a, b| a.size.total_cmp(&b.size))
        };
        let errors = widest(first).zip(widest(second));
        Sample {
            estimate: errors.map(|(a, b)| Estimate { log_mean, errors: vec![welch(&[a, b])] }),
            trials: first.blocks.min(second.blocks),
            log_stddev: first.log_stddev.zip(second.log_stddev).map(|(a, b)| a.hypot(b)),
            ratio: Some(ratio(log_mean)),
            ..self
        }
    }

    fn pair(self, question: Question, test: Option<Test>, rules: &Rules) -> Pairing {
        let found = Findings {
            question,
            estimate: self.estimate.as_ref().zip(test.as_ref()),
            blocks: self.trials,
            log_stddev: self.log_stddev,
            log_floor: 0.0,
        };
        let verdict = match self.reasons.is_empty() {
            true => judge(&found, rules),
            false => Verdict::NotComparable,
        };
        Pairing {
            cell: self.cell,
            question,
            work: self.work,
            first: self.first,
            second: self.second,
            ratio: self.ratio,
            interval: self.estimate.as_ref().and_then(|e| e.interval(rules.confidence)),
            test,
            verdict,
            estimate: self.estimate.filter(|_| self.reasons.is_empty()),
            reasons: self.reasons,
        }
    }
}

/// The figure of a measured trial of a study's cell.
pub(crate) fn figure(
    question: Question,
    (study, cell): (&Study, &Cell),
    trial: &Trial,
) -> Option<f64> {
    match question {
        Question::Rate => trial.rate(),
        Question::Cpu | Question::Instructions => {
            Costs::of(cell, trial, study.header.instructions_per_second).answer(question)
        }
        Question::Latency(percentile) => trial.latency.as_ref()?.percentile(percentile),
    }
}

/// What two studies differ in besides their trials.
pub fn differences(first: &StudyHeader, second: &StudyHeader) -> Vec<Difference> {
    let mut found = Found::default();
    found.check(Weight::Machine, "testbed", &first.testbed, &second.testbed);
    for role in Role::ALL {
        let of = |header: &'_ StudyHeader| header.facts.get(role as usize).cloned();
        if let (Some(a), Some(b)) = (of(first), of(second)) {
            found.hosts(&a, &b);
        }
    }
    let (a, b) = (&first.schedule, &second.schedule);
    let seconds = |s: f64| format!("{s} s");
    found.check(Weight::Method, "window", &seconds(a.window), &seconds(b.window));
    found.check(Weight::Method, "warm-up", &seconds(a.warm_up), &seconds(b.warm_up));
    let design = |d| format!("{d:?}").to_lowercase();
    found.check(Weight::Method, "design", &design(a.design), &design(b.design));
    found.check(Weight::Method, "bytepath", &first.bytepath, &second.bytepath);
    let meters = |header: &StudyHeader| header.meters.join(" ");
    found.check(Weight::Method, "meters", &meters(first), &meters(second));
    if let (Some(a), Some(b)) = (first.ceiling, second.ceiling)
        && apart(a.workload, b.workload, CEILING_APART)
    {
        let terms = Work::Bytes.terms();
        let rate = |bytes: f64| format!("{:.1} {}", bytes * terms.rate_scale, terms.rate_unit);
        found.check(Weight::State, "copy ceiling", &rate(a.workload), &rate(b.workload));
    }
    found.0
}

/// What two hosts differ in.
pub fn host_differences(a: &Facts, b: &Facts) -> Vec<Difference> {
    let mut found = Found::default();
    found.hosts(a, b);
    found.0
}

fn apart(a: f64, b: f64, part: f64) -> bool {
    (a - b).abs() > part * a.abs().max(b.abs())
}

#[derive(Default)]
struct Found(Vec<Difference>);

impl Found {
    /// Notes a difference once, even if both hosts show it.
    fn check(&mut self, weight: Weight, what: &str, first: &str, second: &str) {
        let (what, first, second) = (what.to_owned(), first.to_owned(), second.to_owned());
        let difference = Difference { what, first, second, weight };
        if difference.first != difference.second && !self.0.contains(&difference) {
            self.0.push(difference);
        }
    }

    fn hosts(&mut self, a: &Facts, b: &Facts) {
        self.check(Weight::Machine, "CPU", &a.cpu_model, &b.cpu_model);
        self.check(Weight::Machine, "architecture", &a.architecture, &b.architecture);
        let count = |f: &Facts| f.cpus.len().to_string();
        self.check(Weight::Machine, "CPUs", &count(a), &count(b));
        if apart(a.memory as f64, b.memory as f64, MEMORY_APART) {
            let gib = |f: &Facts| format!("{:.1} GiB", f.memory as f64 / unit::GIB);
            self.check(Weight::Machine, "memory", &gib(a), &gib(b));
        }
        self.check(Weight::State, "kernel", &a.kernel_release, &b.kernel_release);
        self.check(Weight::State, "kernel build", &a.kernel_version, &b.kernel_version);
        let page = |f: &Facts| f.page_size.to_string();
        self.check(Weight::State, "page size", &page(a), &page(b));
        let user = |f: &Facts| match (f.privileges.user_namespace, f.privileges.euid) {
            (true, _) => "in a user namespace",
            (false, 0) => "root",
            (false, _) => "not root",
        };
        self.check(Weight::State, "user", user(a), user(b));
        let names = a.settings.keys().chain(b.settings.keys());
        let names: std::collections::BTreeSet<&String> = names.collect();
        for name in names {
            let of =
                |f: &Facts| f.settings.get(name).cloned().unwrap_or_else(|| "not there".into());
            self.check(Weight::State, name, &of(a), &of(b));
        }
    }
}
