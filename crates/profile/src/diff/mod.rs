//! The difference between two profiles: every function with its
//! share in both, ranked by the savings.
//!
//! `without` is the profile before a change, `with` the one after it, and saved =
//! without - with, so that a positive number is a gain. Each side may be several
//! profiles, repeated trials say, which are added up.

mod amount;
mod places;
mod rank;

pub use amount::Side;

pub use places::{Placed, Places, places};

use super::change::Change;
use super::subsystem::{Class, Classes, Coverage, Rules, Subsystem, is_idle};
use super::symptom::{Seen, Tally};
use super::{FrameKind, Owner, Profile, Sample, normalise};
use crate::record::Fault;
use bytepath_math::Moments;
use hashbrown::{HashMap, HashSet};
use rank::Ranking;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Confidence of the intervals.
pub const CONFIDENCE: f64 = 0.95;

/// How two profiles are compared.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// What of a function counts.
    pub measure: Measure,
    /// By what weights are divided; by itself, the bytes delivered where both
    /// sides record them, else nothing.
    pub per: Option<Per>,
    /// What distinguishes two rows of one function.
    pub by: GroupBy,
    /// Whether idle samples are rows like all others.
    pub idle: bool,
    /// Whether those of threads that have nothing to do with the stream are.
    pub foreign: bool,
    /// Which subsystem a function belongs to.
    pub rules: &'a Rules,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            measure: Measure::SelfOnly,
            per: None,
            by: GroupBy::None,
            idle: false,
            foreign: false,
            rules: Rules::built_in(),
        }
    }
}

/// What of a function counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    #[default]
    #[serde(rename = "self")]
    SelfOnly,
    /// Its own code and all that it called. One that calls itself counts once.
    Total,
}

/// By what weights are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    Gib,
    /// Packets delivered.
    Packet,
    /// Seconds of wall time.
    Second,
    /// All samples that are compared: shares in percent.
    Sample,
    None,
}

/// What distinguishes two rows of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GroupBy {
    /// Nothing: there is one row.
    #[default]
    None,
    /// The name of the thread.
    Thread,
    /// For whom the time was spent.
    Role,
    /// The subsystem the sample was in.
    Subsystem,
}

/// In which of the two profiles a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    Both,
    /// Only in the one after the change.
    Appeared,
    /// Only in the one before it.
    Vanished,
}

/// An amount on both sides. Of several profiles it is the mean of what each takes for
/// its own work; where amounts are not divided by work, their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pair {
    pub with: f64,
    pub without: f64,
    /// `without - with`.
    pub saved: f64,
    /// Half the width of the interval of `saved` (see [`Change::between`]); none below
    /// two profiles on each side, and where amounts are not divided by work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Name, without what differs between two builds.
    pub function: String,
    /// The file it is from; empty if unknown.
    pub module: String,
    /// Thread, role or subsystem; empty where rows are not grouped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The subsystem of the function itself; none for a helper, which belongs to
    /// its callers.
    pub subsystem: Option<Subsystem>,
    /// In which profile it is.
    pub presence: Presence,
    #[serde(flatten)]
    pub amount: Pair,
}

/// The difference of two profiles.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Diff {
    /// What of a function counts.
    pub measure: Measure,
    /// By what weights were divided.
    pub per: Per,
    /// What distinguishes rows of one function.
    pub by: GroupBy,
    /// Unit of all amounts.
    pub unit: String,
    pub without: Side,
    pub with: Side,
    /// All samples that are compared.
    pub total: Pair,
    /// Idle samples, where they are not rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Pair>,
    /// Samples of foreign threads, where they are not rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Pair>,
    /// The part of the kernel's time on both sides that the rules could name.
    pub classified: Option<f64>,
    /// Functions, most saved first.
    pub rows: Vec<Row>,
    /// Functions that only the profile after the change has, the largest first.
    pub appeared: Vec<String>,
    /// Functions that only the profile before the change has, the largest first.
    pub vanished: Vec<String>,
    /// Rows that [`Diff::keep`] left out, added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// What well-known functions of either side mean; shares without and with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub symptoms: Vec<Seen>,
    /// What has to be kept in mind.
    pub notes: Vec<String>,
    /// By what the weights of each profile were multiplied, without and with.
    #[serde(skip)]
    pub scales: [Vec<f64>; 2],
}

/// Rows that are not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    pub rows: usize,
    /// Their amounts together. Of [`Measure::Total`] this says little, for one
    /// function's total holds that of another.
    #[serde(flatten)]
    pub amount: Pair,
}

impl Diff {
    /// Keeps the rows that make the most difference, gain or loss: at most `top`
    /// of them, and only those of at least `threshold` times the larger total. They
    /// stay in their order.
    pub fn keep(&mut self, top: Option<usize>, threshold: f64) {
        let least = threshold * self.total.with.max(self.total.without);
        let mut sizes: Vec<f64> = self.rows.iter().map(|r| r.amount.saved.abs()).collect();
        sizes.sort_unstable_by(|a, b| b.total_cmp(a));
        let top = top.unwrap_or(usize::MAX);
        let bound = top
            .checked_sub(1)
            .map_or(f64::INFINITY, |last| sizes.get(last).copied().unwrap_or(0.0));
        // Of rows that differ by just as much as the last one, the first stay.
        let mut room = top.saturating_sub(sizes.iter().filter(|size| **size > bound).count());
        let mut left = LeftOut::default();
        self.rows.retain(|row| {
            let size = row.amount.saved.abs();
            let fits = size > bound || size == bound && room > 0;
            if size == bound && room > 0 {
                room -= 1;
            }
            let stays = fits && size >= least;
            if !stays {
                let Pair { with, without, .. } = left.amount;
                left.rows += 1;
                left.amount = Pair::new(without + row.amount.without, with + row.amount.with);
            }
            stays
        });
        self.left_out = (left.rows > 0).then_some(left);
    }
}

impl Pair {
    /// An amount from both of its values.
    pub fn new(without: f64, with: f64) -> Pair {
        Pair { with, without, saved: without - with, half_width: None }
    }

    /// Whether there is an interval, and it holds zero.
    pub fn in_doubt(&self) -> bool {
        self.half_width.is_some_and(|half| self.saved.abs() <= half)
    }
}

pub fn diff(without: &[Profile], with: &[Profile], options: &Options) -> Result<Diff, Fault> {
    let sides = [Side::of("without", without)?, Side::of("with", with)?];
    let per = options.per.unwrap_or_else(|| amount::natural([&sides[0], &sides[1]]));
    amount::comparable([&sides[0], &sides[1]], per)?;
    let mut scales = [amount::scales("without", without, per)?, amount::scales("with", with, per)?];
    let mut ranking = Ranking::new(options, [without, with]);
    for (side, (profiles, scales)) in [without, with].into_iter().zip(&scales).enumerate() {
        for (profile, scale) in profiles.iter().zip(scales) {
            ranking.add(side, profile, *scale);
        }
    }
    let scaling = Scaling::new(per, [without.len(), with.len()], ranking.busy);
    for (side, scales) in scales.iter_mut().enumerate() {
        scales.iter_mut().for_each(|scale| *scale *= scaling.factor(side));
    }
    let pair = |amounts: [Moments; 2]| scaling.pair(amounts);
    let rows = ranking.rows(pair);
    let apart = |amounts: [Moments; 2]| {
        amounts.iter().any(|amount| amount.sum() != 0.0).then(|| pair(amounts))
    };
    let unit = amount::unit(if sides[0].event.is_empty() { &sides[1] } else { &sides[0] }, per);
    let [before, after] = sides;
    Ok(Diff {
        measure: options.measure,
        per,
        by: options.by,
        unit,
        notes: notes(&before, &after, per),
        total: pair(ranking.busy),
        idle: apart(ranking.idle),
        foreign: apart(ranking.foreign),
        classified: ranking.coverage.share(),
        symptoms: ranking.symptoms.seen(),
        appeared: only(&rows, Presence::Appeared),
        vanished: only(&rows, Presence::Vanished),
        rows,
        left_out: None,
        without: before,
        with: after,
        scales,
    })
}

/// How sums are scaled for output.
struct Scaling {
    /// Profiles of each side, where amounts are means over them.
    means: Option<[usize; 2]>,
    /// By what sums are multiplied.
    sums: [f64; 2],
}

impl Scaling {
    fn new(per: Per, profiles: [usize; 2], busy: [Moments; 2]) -> Scaling {
        let share = |all: f64| if all > 0.0 { 100.0 / all } else { 0.0 };
        match per {
            Per::Gib | Per::Packet | Per::Second => {
                Scaling { means: Some(profiles), sums: profiles.map(|n| 1.0 / n.max(1) as f64) }
            }
            Per::Sample => Scaling { means: None, sums: busy.map(|busy| share(busy.sum())) },
            Per::None => Scaling { means: None, sums: [1.0; 2] },
        }
    }

    /// By what the weight of one profile counts in the amount of its side.
    fn factor(&self, side: usize) -> f64 {
        self.sums[side]
    }

    fn pair(&self, amounts: [Moments; 2]) -> Pair {
        let [without, with] = [0, 1].map(|side| amounts[side].sum() * self.sums[side]);
        let half_width = self.means.and_then(|profiles| {
            let [without, with] = [0, 1].map(|side| amounts[side].among(profiles[side]));
            Change::between(without, with, CONFIDENCE).half_width
        });
        Pair { half_width, ..Pair::new(without, with) }
    }
}

/// Functions that one side alone has in any of its groups, the largest first.
fn only(rows: &[Row], presence: Presence) -> Vec<String> {
    let key = |row: &'_ Row| (row.function.clone(), row.module.clone());
    let elsewhere: HashSet<(String, String)> =
        rows.iter().filter(|row| row.presence != presence).map(key).collect();
    let mut only: Vec<&Row> = rows
        .iter()
        .filter(|row| row.presence == presence && !elsewhere.contains(&key(row)))
        .collect();
    only.sort_by(|a, b| b.amount.saved.abs().total_cmp(&a.amount.saved.abs()));
    let mut seen = HashSet::new();
    only.retain(|row| seen.insert(key(row)));
    only.into_iter().map(|row| row.function.clone()).collect()
}

fn notes(without: &Side, with: &Side, per: Per) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, side) in [("without", without), ("with", with)] {
        if side.lost > 0 {
            notes.push(format!(
                "the profile {name} lost {} of its samples: its amounts are too small",
                side.lost
            ));
        }
        // Shares alone give no number of samples.
        if side.samples == 0 && side.weight == 0.0 {
            notes.push(format!("the profile {name} has no sample"));
        }
    }
    let (a, b) = (without.profiles.len(), with.profiles.len());
    if per == Per::None && a != b {
        notes.push(format!(
            "{a} profiles without and {b} with are added up unnormalised: use --per to \
             divide by the work"
        ));
    }
    if without.event != with.event && !without.event.is_empty() && !with.event.is_empty() {
        notes.push(format!(
            "the samples are of different events: {} without, {} with",
            without.event, with.event
        ));
    }
    notes
}

#[cfg(test)]
mod tests;
