//! The cells that a study recommends over its baseline, and those it leaves undecided.

use super::analysis::{Analysis, Row};
use crate::estimate::{Effect, blocks_to_show};
use crate::metric::{BetterDirection, Metric};
use crate::verdict::{Comparison, Verdict};
use bytepath_record::Percentile;

/// A cell that the verdicts recommend.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommendation<'a> {
    pub row: &'a Row,
    /// The metrics in which it has the best ratio of all cells shown to be better than the
    /// baseline.
    pub questions: Vec<Metric>,
}

/// A cell with undecided metrics, all of them for the same kind of reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Undecided<'a> {
    pub row: &'a Row,
    pub questions: Vec<Metric>,
    /// What would decide them.
    pub needs: Requirement,
    /// About how many blocks would show the differences if they are as large as measured; `None` if
    /// it takes more than 1000, or if only less noise would help.
    pub as_measured: Option<u32>,
}

/// What it takes to decide a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requirement {
    /// This many blocks; `None` if it takes more than 1000.
    Blocks(Option<u32>),
    /// At least two blocks: one has no spread, from which to estimate how many it takes.
    Spread,
    /// A quieter machine: the difference is within this noise of the study, as a part of one.
    LessNoise(f64),
}

impl Analysis {
    /// Returns the metrics that recommendations rest on: rate, cost, and the tail of the latency;
    /// or instructions alone if no speed was measured.
    pub fn deciding(&self) -> Vec<Metric> {
        if self.functional.is_some() {
            return vec![Metric::Instructions];
        }
        let compared =
            |question: &Metric| self.candidates().any(|row| row.comparison(*question).is_some());
        let tail = [Percentile::P99, Percentile::P50].map(Metric::Latency);
        let tail = tail.into_iter().find(compared);
        [Metric::Rate, Metric::Cpu].into_iter().chain(tail).collect()
    }

    /// Returns the cells to use instead of the baseline, at most one per metric. Empty if none was
    /// shown to be better.
    pub fn choices(&self) -> Vec<Recommendation<'_>> {
        let mut choices: Vec<Recommendation> = Vec::new();
        for question in self.deciding() {
            let Some(row) = self.best(question) else { continue };
            match choices.iter_mut().find(|choice| choice.row.cell == row.cell) {
                Some(choice) => choice.questions.push(question),
                None => choices.push(Recommendation { row, questions: vec![question] }),
            }
        }
        choices
    }

    /// Returns other cells that were also shown to be better than the baseline and whose interval
    /// overlaps that of the choice: which of them is better is undecided.
    pub fn overlapping_choices(&self, choice: &Recommendation) -> Vec<&Row> {
        let overlaps = |row: &&Row, question: Metric| {
            let [a, b] = [choice.row, row].map(|row| better(row, question)?.interval);
            a.zip(b).is_some_and(|(a, b)| a.low <= b.high && b.low <= a.high)
        };
        let others = self.candidates().filter(|row| row.cell != choice.row.cell);
        others.filter(|row| choice.questions.iter().any(|q| overlaps(row, *q))).collect()
    }

    /// Returns the cells that more blocks, or a quieter machine, might decide.
    pub fn undecided(&self) -> Vec<Undecided<'_>> {
        let deciding = self.deciding();
        let of = |row| {
            let mut open: Vec<Undecided> = Vec::new();
            for question in &deciding {
                let Some(comparison) = Row::comparison(row, *question) else { continue };
                let needs = match comparison.verdict {
                    Verdict::Inconclusive { blocks, .. } => Requirement::Blocks(blocks),
                    Verdict::NotEnough { .. } => Requirement::Spread,
                    Verdict::NoiseTooHigh { floor } => Requirement::LessNoise(floor),
                    _ => continue,
                };
                let as_measured = to_show(comparison);
                let same = open.iter_mut().find_map(|u| Some((u.needs.with(needs)?, u)));
                match same {
                    Some((both, same)) => {
                        same.questions.push(*question);
                        same.needs = both;
                        same.as_measured = same.as_measured.zip(as_measured).map(|(a, b)| a.max(b));
                    }
                    None => {
                        open.push(Undecided { row, questions: vec![*question], needs, as_measured })
                    }
                }
            }
            open
        };
        self.candidates().flat_map(of).collect()
    }

    /// Returns the undecided cell with the most promising figures so far.
    pub(crate) fn most_to_gain(&self) -> Option<&Row> {
        let gain = |undecided: &Undecided| {
            let gains = undecided.questions.iter().filter_map(|question| {
                let effect = undecided.row.effect(*question)?;
                Some(match question.direction() {
                    BetterDirection::Higher => effect.log_mean,
                    BetterDirection::Lower => -effect.log_mean,
                })
            });
            gains.fold(f64::NEG_INFINITY, f64::max)
        };
        let undecided = self.undecided();
        let most = undecided.iter().max_by(|a, b| gain(a).total_cmp(&gain(b)))?;
        Some(most.row).filter(|_| gain(most) > 0.0)
    }

    /// Returns the measured cells that can be compared with the baseline.
    pub fn candidates(&self) -> impl Iterator<Item = &Row> {
        let comparable = |row: &&Row| {
            let mut verdicts = row.comparisons.iter().map(|comparison| comparison.verdict);
            row.status.measured > 0 && verdicts.any(|verdict| verdict != Verdict::NotComparable)
        };
        self.rows.iter().filter(comparable)
    }

    fn best(&self, question: Metric) -> Option<&Row> {
        let shown = |row| Some((row, better(row, question)?.ratio));
        question.best(self.candidates().filter_map(shown)).map(|(row, _)| row)
    }
}

impl Requirement {
    /// Returns the requirement that covers both; `None` if they are of different kinds.
    fn with(self, other: Requirement) -> Option<Requirement> {
        match (self, other) {
            (Requirement::Blocks(a), Requirement::Blocks(b)) => {
                Some(Requirement::Blocks(a.zip(b).map(|(a, b)| a.max(b))))
            }
            (Requirement::LessNoise(a), Requirement::LessNoise(b)) => {
                Some(Requirement::LessNoise(a.max(b)))
            }
            (Requirement::Spread, Requirement::Spread) => Some(self),
            _ => None,
        }
    }
}

/// Returns how many blocks would show a difference as large as the measured one, if more blocks
/// would help.
fn to_show(comparison: &Comparison) -> Option<u32> {
    let (effect, test) = (comparison.effect.as_ref()?, comparison.test?);
    let more_blocks_do = matches!(comparison.verdict, Verdict::Inconclusive { .. });
    let stddev = effect.log_stddev.filter(|_| more_blocks_do)?;
    blocks_to_show(stddev, effect.log_mean.abs(), test.different.confidence)
}

/// Returns the effect of a cell that was shown to be better than the baseline.
fn better(row: &Row, question: Metric) -> Option<&Effect> {
    let comparison = row.comparison(question)?;
    comparison.effect.as_ref().filter(|_| comparison.verdict.better() == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Rules;
    use crate::{analyse, tests::study};

    #[test]
    fn only_needs_of_one_kind_go_together() {
        use Requirement::{Blocks, LessNoise};
        let few = Blocks(Some(2));
        assert_eq!(few.with(Blocks(Some(40))), Some(Blocks(Some(40))));
        assert_eq!(few.with(Blocks(None)), Some(Blocks(None)), "too many for one of them");
        assert_eq!(LessNoise(0.02).with(LessNoise(0.03)), Some(LessNoise(0.03)));
        assert_eq!(LessNoise(0.02).with(few), None);
    }

    /// Cells a (the baseline), b and c, without any CPU time.
    #[test]
    fn recommends_proven_cells_and_lists_undecided_ones() {
        let chosen = |blocks: &[[u64; 3]]| -> (Vec<String>, Vec<String>, Vec<String>) {
            let study = study(0.1, blocks);
            let analysis = analyse(&study, &Rules::of(&study.header));
            let choices = analysis.choices();
            let name = |row: &Row| row.cell.0.clone();
            (
                choices.iter().map(|c| name(c.row)).collect(),
                choices.iter().flat_map(|c| analysis.overlapping_choices(c)).map(name).collect(),
                analysis.undecided().iter().map(|open| name(open.row)).collect(),
            )
        };
        let fast = [[1000, 2000, 500], [1010, 2020, 501], [990, 1990, 499]];
        assert_eq!(chosen(&fast), (vec!["b".into()], vec![], vec![]));
        let near = [[1000, 2000, 2010], [1010, 2020, 2010], [990, 1990, 1995]];
        let (choice, close, _) = chosen(&near);
        assert_eq!((choice.len(), close.len()), (1, 1));
        assert_ne!(choice, close);
        let noisy = [[1000, 900, 500], [1010, 1300, 501], [990, 1000, 499]];
        assert_eq!(chosen(&noisy), (vec![], vec![], vec!["b".into()]));
    }
}
