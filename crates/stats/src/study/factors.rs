//! The effect of each level of each factor, and interactions between factors.
//!
//! A **context** is one combination of the levels of all other factors. In one block and one
//! context, the effect of a level is the mean log figure of its cells minus that of all cells with
//! another level. Its effect on the study is the mean over the contexts, block by block, as one
//! cell is compared with another. So drift from block to block cancels, and so do the effects of
//! the other factors.

use crate::estimate::Effect;
use crate::metric::Metric;
use crate::rules::Rules;
use crate::verdict::{
    Comparer, Findings, Noise, Side, Test, Verdict, judge, tests, trial_differences,
    undeclared_differences,
};
use bytepath_record::{Cell, distinct};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The factors of a study in which at least two vary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FactorView {
    /// The factors with at least two levels, in alphabetical order.
    pub factors: Vec<Factor>,
    /// The effect of each level against the rest of its factor, metric by metric. A factor of two
    /// levels has only the effect of the one that is not the baseline's: the other is its inverse.
    pub effects: Vec<LevelEffect>,
    /// Pairs of levels of two factors whose effects significantly depend on each other, largest
    /// first.
    pub interactions: Vec<Interaction>,
    /// Number of pairs tested in each metric.
    pub looked_at: usize,
}

/// A factor that varies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Factor {
    pub name: String,
    /// Its levels, in the order of the cells.
    pub levels: Vec<String>,
}

/// The effect of a level.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LevelEffect {
    pub question: Metric,
    pub factor: String,
    pub level: String,
    /// The other level, or "the rest".
    pub against: String,
    /// Number of contexts that it is the mean of.
    pub contexts: usize,
    /// Its figures over those of the rest.
    pub effect: Effect,
    /// Its tests, corrected for all levels of all factors.
    pub test: Option<Test>,
    pub verdict: Verdict,
}

/// Two levels that change each other's effect.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Interaction {
    pub question: Metric,
    pub factors: [String; 2],
    /// One level of each factor.
    pub levels: [String; 2],
    /// Number of contexts that it is the mean of.
    pub contexts: usize,
    /// Factor by which the effect of the first level is multiplied in the presence of the second;
    /// it is symmetric.
    pub effect: Effect,
    /// Its tests, corrected for all pairs that were tested.
    pub test: Option<Test>,
}

/// Builds the view of a study; without effects if no speed was measured or no block has both sides.
/// `None` if fewer than two factors vary: the comparison of the cells then covers everything.
pub(crate) fn factor_view(
    comparer: &Comparer,
    cells: &[Side],
    baseline: Option<&Cell>,
    noises: &[Noise],
) -> Option<FactorView> {
    let factors = varied(cells);
    if factors.len() < 2 {
        return None;
    }
    let mut view = FactorView { factors, ..FactorView::default() };
    let levels: Vec<Level> = view.factors.iter().flat_map(|f| Level::all(f, baseline)).collect();
    let rules = comparer.rules;
    let alpha = 1.0 - rules.confidence;
    for question in [Metric::Rate, Metric::Cpu, Metric::Instructions] {
        if comparer.is_silent(question) {
            continue;
        }
        let grid = Grid::of(question, cells);
        let noise = noises.iter().find(|noise| noise.question == question);
        let effects: Vec<LevelEffect> =
            levels.iter().filter_map(|level| grid.level_effect(level, comparer)).collect();
        let tested = with_tests(effects, |level| &level.effect, rules);
        view.effects.extend(tested.map(|(level, test)| level.judged(test, noise, rules)));
        let pairs = levels.iter().enumerate().flat_map(|(at, first)| {
            let others = levels.iter().skip(at + 1);
            others.filter(|second| second.factor != first.factor).map(move |second| [first, second])
        });
        let pairs: Vec<Interaction> =
            pairs.filter_map(|pair| grid.interaction(pair, comparer)).collect();
        view.looked_at = view.looked_at.max(pairs.len());
        let tested = with_tests(pairs, |pair| &pair.effect, rules);
        let sure = tested.filter(|(_, test)| test.is_some_and(|t| t.different.adjusted <= alpha));
        view.interactions.extend(sure.map(|(pair, test)| Interaction { test, ..pair }));
    }
    let size = |pair: &Interaction| pair.effect.log_mean.abs();
    view.interactions.sort_by(|a, b| size(b).total_cmp(&size(a)));
    view.interactions.sort_by_key(|pair| pair.question != Metric::Rate);
    Some(view)
}

/// Adds the tests, corrected for all of them together.
fn with_tests<T>(
    all: Vec<T>,
    effect: impl Fn(&T) -> &Effect,
    rules: &Rules,
) -> impl Iterator<Item = (T, Option<Test>)> {
    let usable = |one: &T| effect(one).interval.map(|_| effect(one).estimate());
    let tests = tests(&all.iter().map(usable).collect::<Vec<_>>(), rules);
    all.into_iter().zip(tests)
}

impl LevelEffect {
    fn judged(self, test: Option<Test>, noise: Option<&Noise>, rules: &Rules) -> LevelEffect {
        let estimate = self.effect.estimate();
        let blocks = self.effect.blocks;
        let findings = Findings {
            question: self.question,
            estimate: test.as_ref().map(|test| (&estimate, test)),
            blocks,
            log_stddev: self.effect.log_stddev,
            log_floor: noise.and_then(|noise| noise.log_floor(blocks)).unwrap_or(0.0),
        };
        LevelEffect { verdict: judge(&findings, rules), test, ..self }
    }
}

/// Returns the factors with at least two levels among the cells.
fn varied(cells: &[Side]) -> Vec<Factor> {
    let names: BTreeSet<&String> = cells.iter().flat_map(|side| side.cell.levels.keys()).collect();
    let factor = |name: &&String| {
        let levels = cells.iter().filter_map(|side| side.cell.levels.get(*name));
        Factor { name: (*name).clone(), levels: distinct(levels.cloned()) }
    };
    names.iter().map(factor).filter(|factor| factor.levels.len() > 1).collect()
}

/// A level whose effect is computed.
struct Level {
    factor: String,
    level: String,
    /// What it is compared with.
    against: String,
}

impl Level {
    /// Returns the levels of a factor.
    fn all(factor: &Factor, baseline: Option<&Cell>) -> Vec<Level> {
        let base = baseline.and_then(|cell| cell.levels.get(&factor.name));
        let level = |level: &String, against: &str| Level {
            factor: factor.name.clone(),
            level: level.clone(),
            against: against.to_owned(),
        };
        match factor.levels.as_slice() {
            [first, second] if base == Some(second) => vec![level(first, second)],
            [first, second] => vec![level(second, first)],
            all => all.iter().map(|one| level(one, "the rest")).collect(),
        }
    }
}

/// The figures of one metric, cell by cell.
struct Grid<'a> {
    question: Metric,
    cells: Vec<(Side<'a>, BTreeMap<u32, f64>)>,
}

impl<'a> Grid<'a> {
    /// Takes the logarithms of the figures of all cells that have any.
    fn of(question: Metric, cells: &[Side<'a>]) -> Grid<'a> {
        let figures = |side: &Side<'a>| {
            let logs = side.figures(question).into_iter().map(|(block, v)| (block, v.ln()));
            (*side, logs.filter(|(_, log)| log.is_finite()).collect::<BTreeMap<u32, f64>>())
        };
        let cells = cells.iter().map(figures).filter(|(_, logs)| !logs.is_empty()).collect();
        Grid { question, cells }
    }

    /// Returns the effect of a level, without verdict.
    fn level_effect(&self, level: &Level, comparer: &Comparer) -> Option<LevelEffect> {
        let (effect, contexts) = self.contrast(&[level], comparer)?;
        Some(LevelEffect {
            question: self.question,
            factor: level.factor.clone(),
            level: level.level.clone(),
            against: level.against.clone(),
            contexts,
            test: None,
            verdict: Verdict::NotEnough { blocks: effect.blocks },
            effect,
        })
    }

    /// Returns the interaction of two levels, without test.
    fn interaction(&self, pair: [&Level; 2], comparer: &Comparer) -> Option<Interaction> {
        let (effect, contexts) = self.contrast(&pair, comparer)?;
        Some(Interaction {
            question: self.question,
            factors: pair.map(|level| level.factor.clone()),
            levels: pair.map(|level| level.level.clone()),
            contexts,
            effect,
            test: None,
        })
    }

    /// Returns the contrast of one level, or of two of different factors: the mean over all
    /// contexts that have cells on every side of it, block by block; and the number of these
    /// contexts.
    fn contrast(&self, levels: &[&Level], comparer: &Comparer) -> Option<(Effect, usize)> {
        // For each context, the cells for each combination of "has the level".
        let mut contexts: BTreeMap<Vec<(&str, &str)>, Vec<Vec<usize>>> = BTreeMap::new();
        for (at, (side, _)) in self.cells.iter().enumerate() {
            let others =
                side.cell.levels.iter().filter(|(k, _)| levels.iter().all(|l| l.factor != **k));
            let key = others.map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let has = |l: &&Level| side.cell.levels.get(&l.factor) == Some(&l.level);
            let group = levels.iter().fold(0, |group, l| 2 * group + usize::from(has(l)));
            let groups = contexts.entry(key).or_insert_with(|| vec![Vec::new(); 1 << levels.len()]);
            groups[group].push(at);
        }
        let differences: Vec<BTreeMap<u32, f64>> = contexts
            .values()
            .filter(|groups| groups.iter().all(|cells| !cells.is_empty()))
            .filter(|groups| self.alike(groups))
            .map(|groups| self.difference(groups))
            .filter(|blocks| !blocks.is_empty())
            .collect();
        let pairs = by_block(&differences);
        let effect = Effect::looked_at(&pairs, comparer.rules.confidence, comparer.looks)?;
        Some((effect, differences.len()))
    }

    /// Returns whether the cells of a context were given the same task except for the factors, and
    /// their figures obtained by the same rules.
    fn alike(&self, groups: &[Vec<usize>]) -> bool {
        let mut sides = groups.iter().flatten().map(|at| self.cells[*at].0);
        let Some(first) = sides.next() else { return false };
        sides.all(|side| {
            (self.question == Metric::Rate || first.cost_rules() == side.cost_rules())
                && undeclared_differences("", first.cell, side.cell).is_empty()
                && trial_differences("", first.trials, side.trials).is_empty()
        })
    }

    /// Returns the difference within a context in every block in which all of its cells were
    /// measured: a level minus the rest; for two levels, how far the first depends on the second.
    fn difference(&self, groups: &[Vec<usize>]) -> BTreeMap<u32, f64> {
        let Some(first) = groups.iter().flatten().next() else { return BTreeMap::new() };
        let in_block = |block: &u32| {
            let mean = |cells: &Vec<usize>| {
                let logs: Option<Vec<f64>> =
                    cells.iter().map(|at| self.cells[*at].1.get(block).copied()).collect();
                logs.map(|logs| logs.iter().sum::<f64>() / logs.len() as f64)
            };
            let means: Vec<f64> = groups.iter().map(mean).collect::<Option<_>>()?;
            // The sign of a group depends on how many of the levels it lacks.
            let signed = means.iter().enumerate().map(|(group, mean)| {
                let lacks = groups.len().trailing_zeros() - group.count_ones();
                if lacks.is_multiple_of(2) { *mean } else { -mean }
            });
            Some((*block, signed.sum()))
        };
        self.cells[*first].1.keys().filter_map(in_block).collect()
    }
}

/// Returns the mean over the contexts in each block, as pairs of figures. A context missing from a
/// block is taken to deviate there from its own mean as the others do on average, so that the mean
/// of a block does not depend on which contexts it has.
pub(crate) fn by_block(differences: &[BTreeMap<u32, f64>]) -> Vec<(f64, f64)> {
    let mean = |blocks: &BTreeMap<u32, f64>| blocks.values().sum::<f64>() / blocks.len() as f64;
    let means: Vec<f64> = differences.iter().map(mean).collect();
    let all = means.iter().sum::<f64>() / means.len() as f64;
    let blocks: BTreeSet<u32> = differences.iter().flat_map(|d| d.keys().copied()).collect();
    let pair = |block: u32| {
        let off: Vec<f64> = differences
            .iter()
            .zip(&means)
            .filter_map(|(d, mean)| Some(d.get(&block)? - mean))
            .collect();
        (1.0, (all + off.iter().sum::<f64>() / off.len() as f64).exp())
    };
    blocks.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_that_is_missing_in_a_block_does_not_move_the_mean() {
        let context = |logs: &[f64]| -> BTreeMap<u32, f64> {
            logs.iter().enumerate().map(|(block, log)| (block as u32, *log)).collect()
        };
        let mut differences = [context(&[1.0, 1.2, 0.8]), context(&[0.0, 0.1, -0.1])];
        let logs = |d: &[BTreeMap<u32, f64>]| -> Vec<f64> {
            by_block(d).iter().map(|(_, ratio)| ratio.ln()).collect()
        };
        let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near(&logs(&differences), &[0.5, 0.65, 0.35]));
        differences[0].remove(&1);
        // 0.9 is now the mean of the first; what is left of block 1 is off by 0.1.
        assert!(near(&logs(&differences), &[0.5, 0.55, 0.35]), "{:?}", logs(&differences));
    }
}
