//! Thresholds that a CI server checks: `socket.rate slower 2%`.
//!
//! ```text
//! threshold = subject " " word " " amount
//! subject   = cell "." metric          cell: its full name, or as reports shorten it, or * for all
//! metric    = "rate" | "throughput"    two names of work per second
//!           | "cpu"                    CPU time per unit of work, both ends
//!           | "instructions"           the same, if they are counted instead of time
//!           | "p50" | "p90" | "p99" | "p99.9" | "p99.99"    latency
//! word      = "lower" | "higher"       of any metric
//!           | "slower" | "faster"      of a rate
//!           | "less" | "more"          of cpu
//!           | "fewer" | "more"         of instructions
//! amount    = number "%"
//! ```
//!
//! A threshold fails if the difference is *shown*: the whole interval lies beyond the limit. It
//! passes if the whole interval lies on the good side of it, and is undecided otherwise, which is
//! not a pass: more blocks are needed. The intervals have a Bonferroni correction for the number of
//! checks made together, so that the confidence holds for the whole build and not only for each
//! check.

use super::analysis::Analysis;
use crate::estimate::{Estimate, Interval};
use crate::metric::Metric;
use crate::rules::Rules;
use crate::verdict::{Comparison, Verdict};
use bytepath_record::{CellId, Fault};
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Threshold {
    pub text: String,
    /// The cell; `None` for all cells.
    #[serde(skip)]
    cell: Option<String>,
    #[serde(skip)]
    question: Metric,
    /// The ratio that must not be exceeded, or not fallen below.
    pub limit: f64,
    /// True if ratios above the limit fail, false if those below it do.
    #[serde(skip)]
    above: bool,
}

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ThresholdResult {
    #[serde(flatten)]
    pub threshold: Threshold,
    pub cell: CellId,
    pub outcome: Outcome,
    /// The interval of the ratio at the confidence of this check; `None` if nothing was measured.
    pub interval: Option<Interval>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The whole interval lies beyond the limit.
    Failed,
    /// The whole interval lies on the good side.
    Passed,
    /// The interval contains the limit, or there is none.
    Undecided,
}

impl Outcome {
    /// Returns the word that reports show.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Failed => "FAILED",
            Outcome::Passed => "passed",
            Outcome::Undecided => "UNDECIDED",
        }
    }
}

/// One cell's result in one metric, which a threshold may refer to.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    pub cell: &'a CellId,
    pub question: Metric,
    /// The measured estimate; `None` without an interval.
    pub estimate: Option<Estimate>,
}

impl Threshold {
    /// Parses a threshold; the fault has an example of correct syntax.
    pub fn parse(text: &str) -> Result<Threshold, Fault> {
        const EXAMPLE: &str = "write CELL.rate slower 2%, CELL.cpu more 5%, CELL.instructions \
                               more 3% or CELL.p99 higher 10%";
        let wrong =
            |why: String| Fault::usage(format!("threshold '{text}': {why}")).remedy(EXAMPLE);
        let mut parts = text.trim().rsplitn(3, ' ').map(str::trim);
        let (Some(amount), Some(word), Some(subject)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong("it needs a subject, a word and an amount".into()));
        };
        let Some((cell, question)) = Metric::split(subject) else {
            let names = Metric::ALL.map(Metric::name).join(", ");
            return Err(wrong(format!("'{subject}' does not end in a metric ({names})")));
        };
        let [below, above] = question.words();
        let is_above = [below, "lower"].contains(&word).then_some(false);
        let is_above = is_above.or([above, "higher"].contains(&word).then_some(true));
        let Some(above) = is_above else {
            let name = question.name();
            return Err(wrong(format!("{name} is {below} or {above}, not '{word}'")));
        };
        let number = amount.strip_suffix('%').and_then(|n| n.parse::<f64>().ok());
        let Some(part) = number.map(|n| n / 100.0).filter(|p| (0.0..1.0).contains(p)) else {
            return Err(wrong(format!("'{amount}' is not an amount from 0% to below 100%")));
        };
        Ok(Threshold {
            text: text.trim().to_owned(),
            cell: (cell != "*").then(|| cell.to_owned()),
            question,
            limit: if above { 1.0 + part } else { 1.0 - part },
            above,
        })
    }

    /// Returns the threshold with the cell's full name, which `whole` finds from a possibly short
    /// one.
    pub fn named(&self, whole: impl Fn(&str) -> Option<String>) -> Threshold {
        let cell = self.cell.as_ref().map(|name| whole(name).unwrap_or_else(|| name.clone()));
        Threshold { cell, ..self.clone() }
    }

    fn is_about(&self, subject: &Subject) -> bool {
        self.question == subject.question
            && self.cell.as_ref().is_none_or(|cell| *cell == subject.cell.0)
    }

    fn outcome(&self, interval: Option<Interval>) -> Outcome {
        let Some(i) = interval else { return Outcome::Undecided };
        match self.above {
            true if i.low > self.limit => Outcome::Failed,
            true if i.high <= self.limit => Outcome::Passed,
            false if i.high < self.limit => Outcome::Failed,
            false if i.low >= self.limit => Outcome::Passed,
            _ => Outcome::Undecided,
        }
    }
}

/// Checks every threshold against every subject that it refers to. One that refers to none is a
/// fault: a limit that is never checked guards nothing.
pub fn judge_thresholds(
    thresholds: &[Threshold],
    subjects: &[Subject],
    rules: &Rules,
) -> Result<Vec<ThresholdResult>, Fault> {
    let mut checks: Vec<(&Threshold, &Subject)> = Vec::new();
    for threshold in thresholds {
        let before = checks.len();
        checks.extend(subjects.iter().filter(|s| threshold.is_about(s)).map(|s| (threshold, s)));
        if checks.len() == before {
            let compared = subjects.iter().filter(|s| s.question == threshold.question);
            let cells: Vec<&str> = compared.map(|s| s.cell.0.as_str()).collect();
            let what = format!("threshold '{}': no such cell is compared", threshold.text);
            let fault = Fault::usage(what);
            return Err(match cells.is_empty() {
                true => fault.remedy("this metric was measured in no cell but the baseline"),
                false => fault.remedy(format!("compared are: {}", cells.join(", "))),
            });
        }
    }
    let confidence = 1.0 - (1.0 - rules.confidence) / checks.len().max(1) as f64;
    let check = |(threshold, subject): (&Threshold, &Subject)| {
        let interval = subject.estimate.as_ref().and_then(|e| e.interval(confidence));
        ThresholdResult {
            threshold: threshold.clone(),
            cell: subject.cell.clone(),
            outcome: threshold.outcome(interval),
            interval,
        }
    };
    Ok(checks.into_iter().map(check).collect())
}

/// Returns the subjects that a study has for thresholds: every cell but the baseline.
pub fn subjects(analysis: &Analysis) -> Vec<Subject<'_>> {
    let mut subjects = Vec::new();
    for row in analysis.rows.iter().filter(|row| !row.baseline) {
        for question in Metric::ALL {
            let comparison = row.comparison(question);
            // A metric that no trial has a figure for is not a subject, so that a limit on it is a
            // fault and not a check that never fails.
            let other_cost = matches!(question, Metric::Cpu | Metric::Instructions)
                && question != analysis.cost();
            if comparison.is_none() && (other_cost || matches!(question, Metric::Latency(_))) {
                continue;
            }
            // A limit does not fail if the report makes no claim.
            let claims = |c: &&Comparison| {
                let withheld =
                    matches!(c.verdict, Verdict::NoiseTooHigh { .. } | Verdict::Saturated { .. });
                c.reasons.is_empty() && !withheld
            };
            let comparable = comparison.filter(claims);
            let effect = comparable.and_then(|c| c.effect.as_ref());
            subjects.push(Subject {
                cell: &row.cell,
                question,
                estimate: effect.filter(|e| e.interval.is_some()).map(|e| e.estimate()),
            });
        }
    }
    subjects
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_math::StandardError;
    use bytepath_record::FaultKind;

    fn estimate(ratio: f64, error: f64) -> Option<Estimate> {
        let errors = vec![StandardError { size: error, freedom: 9.0 }];
        Some(Estimate::once(f64::ln(ratio), errors))
    }

    fn outcome(text: &str, ratio: f64, error: f64) -> Outcome {
        let cell = CellId("socket".into());
        let subjects = Metric::ALL.map(|question| Subject {
            cell: &cell,
            question,
            estimate: estimate(ratio, error),
        });
        let threshold = Threshold::parse(text).unwrap();
        let results = judge_thresholds(&[threshold], &subjects, &Rules::default()).unwrap();
        assert_eq!(results.len(), 1);
        results[0].outcome
    }

    #[test]
    fn fails_only_if_the_whole_interval_is_beyond_the_limit() {
        use Outcome::{Failed, Passed, Undecided};
        for (text, ratio, error, expected) in [
            ("socket.throughput slower 2%", 0.95, 0.005, Failed),
            ("socket.throughput slower 2%", 0.95, 0.05, Undecided),
            ("socket.throughput slower 2%", 0.99, 0.002, Passed),
            ("socket.throughput slower 2%", 1.5, 0.002, Passed),
            ("*.throughput faster 2.5%", 1.05, 0.005, Failed),
            ("socket.cpu more 5%", 1.1, 0.005, Failed),
            ("socket.cpu more 5%", 0.9, 0.005, Passed),
            ("socket.cpu less 0%", 0.9, 0.005, Failed),
            ("socket.rate slower 2%", 0.95, 0.005, Failed),
            ("socket.rate lower 2%", 0.95, 0.005, Failed),
            ("socket.p99 higher 10%", 1.2, 0.005, Failed),
            ("*.p99.9 higher 10%", 1.0, 0.005, Passed),
            ("socket.p50 lower 5%", 0.9, 0.005, Failed),
        ] {
            assert_eq!(outcome(text, ratio, error), expected, "{text} at {ratio} +- {error}");
        }
    }

    #[test]
    fn unmeasured_is_undecided_and_unknown_cells_are_faults() {
        let cell = CellId("splice".into());
        let subject = Subject { cell: &cell, question: Metric::Rate, estimate: None };
        let judge = |text: &str| {
            let threshold = Threshold::parse(text).unwrap();
            judge_thresholds(&[threshold], std::slice::from_ref(&subject), &Rules::default())
        };
        assert_eq!(judge("splice.throughput slower 2%").unwrap()[0].outcome, Outcome::Undecided);
        let fault = judge("sokcet.throughput slower 2%").unwrap_err();
        assert_eq!(fault.kind, FaultKind::Usage);
        assert!(fault.to_string().contains("compared are: splice"), "{fault}");
        assert!(judge("splice.cpu more 2%").unwrap_err().to_string().contains("no cell but"));
    }

    #[test]
    fn many_checks_share_one_error() {
        let names: Vec<CellId> = (0..20).map(|i| CellId(format!("c{i}"))).collect();
        let subject = |cell| Subject {
            cell,
            question: Metric::Rate,
            // 2.8 standard errors below the limit: a failure if it is the only check, p 0.02.
            estimate: estimate(0.98 * (-0.028f64).exp(), 0.01),
        };
        let subjects: Vec<Subject> = names.iter().map(subject).collect();
        let threshold = |text: &str| Threshold::parse(text).unwrap();
        let judge = |t| judge_thresholds(&[t], &subjects, &Rules::default()).unwrap();
        assert_eq!(judge(threshold("c3.throughput slower 2%"))[0].outcome, Outcome::Failed);
        let all = judge(threshold("*.throughput slower 2%"));
        assert_eq!((all.len(), all[3].outcome), (20, Outcome::Undecided));
    }

    #[test]
    fn refuses_nonsense_with_an_example() {
        for (text, words) in [
            ("", "a subject, a word and an amount"),
            ("socket slower", "a subject, a word and an amount"),
            (
                "socket slower 2%",
                "'socket' does not end in a metric (rate, cpu, instructions, p50,",
            ),
            (".cpu more 2%", "'.cpu' does not end in a metric"),
            ("socket.pps slower 2%", "'socket.pps' does not end in a metric"),
            ("socket.throughput more 2%", "slower or faster, not 'more'"),
            ("socket.p99 slower 2%", "lower or higher, not 'slower'"),
            ("socket.cpu slower 2%", "less or more, not 'slower'"),
            ("socket.throughput slower 2", "'2' is not an amount"),
            ("socket.throughput slower -1%", "'-1%' is not an amount"),
            ("socket.throughput slower 100%", "'100%' is not an amount"),
            ("socket.throughput slower nan%", "'nan%' is not an amount"),
        ] {
            let fault = Threshold::parse(text).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Usage);
            let said = fault.to_string();
            assert!(said.contains(words) && said.contains("CELL.rate slower 2%"), "{said}");
        }
        // A cell id may contain blanks, dots and signs.
        let t = Threshold::parse("splice+socket mtu=9000 v1.2.throughput slower 2%").unwrap();
        assert_eq!(t.cell.as_deref(), Some("splice+socket mtu=9000 v1.2"));
    }
}
