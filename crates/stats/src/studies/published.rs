//! Compares a study with a published work: the work's ratios to its own baseline, with the study's
//! over the pairs of cells that have the same levels.
//!
//! If a row's levels leave factors of the study open, there are several such pairs, one for each
//! combination of those factors' levels; the ratio is their mean, block by block.
//!
//! A figure without a baseline has no such ratio. If its numbers are of a quantity that the study
//! measured too, they are shown side by side: these are two machines, so there is no verdict.

use crate::estimate::{Effect, Summary};
use crate::metric::Metric;
use crate::rules::Rules;
use crate::study::{CellTrials, by_block, cell_trials};
use crate::trial::sum_of;
use crate::verdict::{Side, trial_differences, undeclared_differences};
use bytepath_record::{
    Cell, Levels, Published, PublishedFactor, PublishedFigure, ReadFrom, Role, Scope, Study,
    StudyFigure, Trial, joined,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The quantity that is compared.
const RATE: &str = "rate";

/// The factor by which works distinguish several numbers for the same levels.
const ITEM: &str = "item";

/// A study compared with a work.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PublishedComparison {
    /// The figures of the work with ratios of rates.
    pub figures: Vec<FigureComparison>,
    /// Numbers of figures without ratios, next to the study's numbers of the same quantity.
    pub numbers: Vec<NumberComparison>,
    /// Ids of figures with neither, which nothing in the study is compared with.
    pub not_compared: Vec<String>,
}

/// A published number and that of the study.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct NumberComparison {
    /// Id of its figure.
    pub figure: String,
    /// The quantity, and its unit.
    pub quantity: String,
    pub unit: String,
    /// Its levels, including those of the figure.
    pub at: Levels,
    /// How the number was read from the work.
    pub read: ReadFrom,
    pub theirs: f64,
    /// The study's number, over all measured trials of the cells that have these levels.
    pub ours: Option<Summary>,
    /// Why the study has none; `None` if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
}

/// A figure of the work.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FigureComparison {
    pub id: String,
    pub title: String,
    /// Unit of the work's numbers.
    pub unit: String,
    /// Levels that all rows share.
    pub at: Levels,
    /// The levels of its baseline.
    pub baseline: Levels,
    /// All rows but the baseline's.
    pub rows: Vec<RowComparison>,
}

/// A row of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RowComparison {
    pub at: Levels,
    /// How its number was read from the work.
    pub read: ReadFrom,
    pub theirs: f64,
    /// Its ratio to the work's baseline.
    pub their_ratio: f64,
    /// The study's ratio; `None` if it has no such cells.
    pub ours: Option<Effect>,
    /// Number of pairs of cells that it is the mean of.
    pub pairs: usize,
    pub outcome: Agreement,
}

/// How a published ratio agrees with that of a study.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// It lies in the study's interval.
    Agrees,
    Disagrees,
    /// The study does not have it, for this reason.
    NotMeasured(String),
}

impl PublishedComparison {
    /// Returns how many rows agree, disagree, and are not measured.
    pub fn counts(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for row in self.figures.iter().flat_map(|figure| &figure.rows) {
            counts[match row.outcome {
                Agreement::Agrees => 0,
                Agreement::Disagrees => 1,
                Agreement::NotMeasured(_) => 2,
            }] += 1;
        }
        counts
    }
}

/// Compares a study with a published work.
pub fn compare_published(work: &Published, study: &Study, rules: &Rules) -> PublishedComparison {
    let mut cells = cell_trials(study);
    cells.retain(|cell| !cell.cell.null);
    let comparer = PublishedComparer { work, study, rules, cells: &cells };
    let figures: Vec<FigureComparison> =
        work.figures.iter().filter_map(|figure| comparer.figure(figure)).collect();
    let plain = work.figures.iter().filter(|figure| figure.baseline.is_none());
    let numbers: Vec<NumberComparison> =
        plain.flat_map(|figure| comparer.numbers(figure)).collect();
    let compared = |id: &String| {
        figures.iter().any(|figure| figure.id == *id) || numbers.iter().any(|n| n.figure == *id)
    };
    let ids = work.figures.iter().map(|figure| &figure.id);
    let not_compared = ids.filter(|id| !compared(id)).cloned().collect();
    PublishedComparison { figures, numbers, not_compared }
}

struct PublishedComparer<'a> {
    work: &'a Published,
    study: &'a Study,
    rules: &'a Rules,
    cells: &'a [CellTrials<'a>],
}

impl PublishedComparer<'_> {
    fn figure(&self, figure: &PublishedFigure) -> Option<FigureComparison> {
        let base = figure.baseline.as_ref()?;
        let column = figure.columns.iter().position(|column| column.quantity == RATE)?;
        let value = |at: &Levels| figure.rows.iter().find(|row| row.at == *at)?.values.get(column);
        let base_value = *value(base)?;
        let others = figure.rows.iter().filter(|row| row.at != *base);
        let rows = others.filter_map(|row| {
            let theirs = *row.values.get(column)?;
            let their_ratio = theirs / base_value;
            let outcome = self.outcome(figure, base, &row.at, their_ratio);
            let (ours, pairs, outcome) = match outcome {
                Ok((effect, pairs, agreement)) => (Some(effect), pairs, agreement),
                Err(why) => (None, 0, Agreement::NotMeasured(why)),
            };
            let (at, read) = (row.at.clone(), row.read.unwrap_or(figure.read));
            Some(RowComparison { at, read, theirs, their_ratio, ours, pairs, outcome })
        });
        Some(FigureComparison {
            id: figure.id.clone(),
            title: figure.title.clone(),
            unit: figure.columns[column].unit.clone(),
            at: figure.at.clone(),
            baseline: base.clone(),
            rows: rows.collect(),
        })
    }

    /// Returns the numbers of a figure whose columns are quantities that studies measure.
    fn numbers(&self, figure: &PublishedFigure) -> Vec<NumberComparison> {
        let mut all = Vec::new();
        for row in &figure.rows {
            let at = levels(figure.at.iter().chain(&row.at));
            for (column, theirs) in figure.columns.iter().zip(&row.values) {
                let Some(ours) = &column.ours else { continue };
                let number = self.number(&at, ours);
                all.push(NumberComparison {
                    figure: figure.id.clone(),
                    quantity: column.quantity.clone(),
                    unit: column.unit.clone(),
                    at: at.clone(),
                    read: row.read.unwrap_or(figure.read),
                    theirs: *theirs,
                    ours: number.as_ref().ok().copied(),
                    not_measured: number.err(),
                });
            }
        }
        all
    }

    fn number(&self, at: &Levels, ours: &StudyFigure) -> Result<Summary, String> {
        self.require_speed()?;
        let cells = self.cells(&levels(at.iter().filter(|(factor, _)| *factor != ITEM)))?;
        let trials = cells.iter().flat_map(|side| side.trials).filter(|t| t.rate().is_some());
        let figure = |trial: &&Trial| match ours.figure.as_str() {
            RATE => trial.rate(),
            "packets" => Some(trial.packets()? / trial.window),
            name => sum_of(trial, |r| {
                r.metric == name && matches!(r.scope, Scope::Flow(Role::Sender, _))
            }),
        };
        let values = trials.filter_map(|trial| Some(figure(trial)? * ours.scale));
        Summary::with_interval(values, self.rules.confidence)
            .ok_or_else(|| format!("no trial has {}", ours.figure))
    }

    fn outcome(
        &self,
        figure: &PublishedFigure,
        base: &Levels,
        row: &Levels,
        their_ratio: f64,
    ) -> Result<(Effect, usize, Agreement), String> {
        self.require_speed()?;
        let with = |of_row: &Levels| levels(figure.at.iter().chain(of_row));
        let (firsts, seconds) = (self.cells(&with(base))?, self.cells(&with(row))?);
        let named: Vec<&String> = figure.at.keys().chain(base.keys()).chain(row.keys()).collect();
        let others =
            |cell: &Cell| levels(cell.levels.iter().filter(|(factor, _)| !named.contains(factor)));
        let mut reasons = Vec::new();
        let mut logs = Vec::new();
        for second in &seconds {
            let same = |first: &&Side| others(first.cell) == others(second.cell);
            let Some(first) = firsts.iter().find(same) else { continue };
            let name = &first.cell.id.0;
            let mut apart = undeclared_differences(name, first.cell, second.cell);
            apart.extend(trial_differences(name, first.trials, second.trials));
            if apart.is_empty() { logs.push(ratios(first, second)) } else { reasons.extend(apart) }
        }
        logs.retain(|blocks| !blocks.is_empty());
        let why = reasons.into_iter().next().unwrap_or("no two cells differ only in this".into());
        let effect = Effect::of(&by_block(&logs), self.rules.confidence).ok_or(why)?;
        let outcome = match effect.interval {
            None => Agreement::NotMeasured("an interval requires two blocks".into()),
            Some(i) if (i.low..=i.high).contains(&their_ratio) => Agreement::Agrees,
            Some(_) => Agreement::Disagrees,
        };
        Ok((effect, logs.len(), outcome))
    }

    fn require_speed(&self) -> Result<(), String> {
        match self.study.header.functional {
            Some(_) => Err("the study measured no speed".into()),
            None => Ok(()),
        }
    }

    /// Returns the measured cells that have all of these levels, or why there are none.
    fn cells(&self, required: &Levels) -> Result<Vec<Side<'_>>, String> {
        for factor in required.keys() {
            if let Some(PublishedFactor::None(why)) = self.work.factors.get(factor) {
                return Err(format!("{factor}: {why}"));
            }
        }
        let apart = self.study.header.testbed.starts_with("hosts");
        let has = |cell: &Cell, (factor, level): (&String, &String)| {
            level_of(cell, factor, apart).is_some_and(|actual| actual == *level)
        };
        let fits = |side: &Side| required.iter().all(|level| has(side.cell, level));
        let measured = |side: &Side| !side.figures(Metric::Rate).is_empty();
        let all: Vec<Side> = self.cells.iter().map(CellTrials::side).collect();
        let fitting: Vec<Side> = all.iter().copied().filter(fits).collect();
        if fitting.is_empty() {
            let none = |level: &(&String, &String)| !all.iter().any(|s| has(s.cell, *level));
            let missing = required.iter().filter(none).map(|(k, v)| format!("{k}={v}"));
            return Err(match joined(missing, ", ").as_str() {
                "" => "no cell has all of these levels".into(),
                missing => format!("no cell has {missing}"),
            });
        }
        let measured: Vec<Side> = fitting.into_iter().filter(measured).collect();
        if measured.is_empty() { Err("its cell was not measured".into()) } else { Ok(measured) }
    }
}

fn levels<'a>(levels: impl Iterator<Item = (&'a String, &'a String)>) -> Levels {
    levels.map(|(factor, level)| (factor.clone(), level.clone())).collect()
}

/// Returns the log ratio of each block that measured both.
fn ratios(first: &Side, second: &Side) -> BTreeMap<u32, f64> {
    let (first, second) = (first.figures(Metric::Rate), second.figures(Metric::Rate));
    let ratio = |(block, a): (&u32, &f64)| Some((*block, (second.get(block)? / a).ln()));
    first.iter().filter_map(ratio).filter(|(_, log)| log.is_finite()).collect()
}

/// Returns a cell's level of a factor, as published works state it; the flag is true if each end
/// has its own machine.
type LevelOf = fn(&Cell, bool) -> Option<String>;

/// The factors whose levels can be derived from a cell, whether or not the experiment varies them.
pub const PUBLISHED_FACTORS: [(&str, LevelOf); 16] = [
    ("path", |cell, _| match cell.levels.get("path") {
        Some(path) => Some(path.clone()),
        None => cell.id.0.split(' ').next().map(str::to_owned),
    }),
    ("rx", |cell, _| Some(tap_reader(cell).unwrap_or(&cell.rx.path).to_owned())),
    ("cores", |cell, apart| cores(cell, apart).map(str::to_owned)),
    ("hw-gro", |cell, _| Some(cell.link.hw_gro.to_string())),
    ("gso-max", |cell, _| Some(or_auto(cell.link.gso_max))),
    ("gro-max", |cell, _| Some(or_auto(cell.link.gro_max))),
    ("mtu", |cell, _| Some(cell.link.mtu.to_string())),
    ("message-size", |cell, _| Some(size(cell.stream.message_size))),
    ("read-size", |cell, _| Some(size(cell.stream.read_size))),
    ("flows", |cell, _| Some(cell.stream.flows.to_string())),
    ("backpressure", |cell, _| Some(cell.link.tap?.backpressure.to_string())),
    ("qdisc", |cell, _| Some(cell.link.qdisc.clone())),
    ("vhost", |cell, _| {
        tap_reader(cell).filter(|reader| *reader == "vhost")?;
        Some(if cell.placement.vhost.is_some() { "pinned" } else { "not pinned" }.to_owned())
    }),
    ("writer", |cell, _| {
        cell.tx.copy_engine()?;
        Some(cell.tx.options.word("writer").to_owned())
    }),
    ("copy", |cell, _| Some(cell.tx.copy_engine()?.split(':').next()?.to_owned())),
    ("load", |cell, _| Some(cell.workload.options.word("load").to_owned())),
];

/// Returns what reads a tap on behalf of a guest, whatever the guest does with the frames.
fn tap_reader(cell: &Cell) -> Option<&'static str> {
    let tap = cell.link.tap.filter(|tap| tap.guest)?;
    Some(if tap.vhost { "vhost" } else { "tap" })
}

fn level_of(cell: &Cell, factor: &str, apart: bool) -> Option<String> {
    let (_, level) = PUBLISHED_FACTORS.iter().find(|(name, _)| *name == factor)?;
    level(cell, apart)
}

fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{}M", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}

fn or_auto(bytes: Option<u32>) -> String {
    bytes.map_or("auto".to_owned(), |bytes| bytes.to_string())
}

/// Returns whether the program and the network work of each end are on one CPU or on two, in the
/// words of the factor. `None` if a part is left to the scheduler, if the two ends differ, or if
/// they share a CPU.
fn cores(cell: &Cell, apart: bool) -> Option<&'static str> {
    let cpus = |role| Some([cell.placement.cpu(role)?, cell.softirq_cpu(role)?]);
    let [sender, receiver] = [cpus(Role::Sender)?, cpus(Role::Receiver)?];
    if !apart && sender.iter().any(|cpu| receiver.contains(cpu)) {
        return None;
    }
    match [sender, receiver].map(|[program, network]| program == network) {
        [true, true] => Some("together"),
        [false, false] => Some("apart"),
        _ => None,
    }
}
