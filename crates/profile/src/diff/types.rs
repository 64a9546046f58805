//! The parts of a difference, and its options.

use super::amount::{Per, Side};
use crate::subsystem::{Rules, Subsystem};
use crate::symptom::FoundSymptom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Options of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Options<'a> {
    /// Which part of a function's weight counts.
    pub measure: Measure,
    /// What weights are divided by. By default the bytes delivered if both sides record them, else
    /// the number of profiles if one side has several, else nothing.
    pub per: Option<Per>,
    /// What distinguishes rows of the same function.
    pub by: GroupBy,
    /// Whether idle samples are rows like all others.
    pub idle: bool,
    /// Whether samples of foreign threads are.
    pub foreign: bool,
    /// The rules that assign functions to subsystems.
    pub rules: &'a Rules,
}

/// Which part of a function's weight counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    #[default]
    #[serde(rename = "self")]
    SelfOnly,
    /// Its own code and its callees. A recursive function counts once.
    Total,
}

/// What distinguishes rows of the same function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GroupBy {
    /// Nothing: one row per function.
    #[default]
    None,
    /// The name of the thread.
    Thread,
    /// For whom the time was spent.
    Role,
    /// The subsystem that the sample was in.
    Subsystem,
}

/// The profiles that a row is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    Both,
    /// Only in the profile after the change.
    Appeared,
    /// Only in the profile before it.
    Vanished,
}

/// An amount on both sides. With several profiles it is the mean of each one's amount per its own
/// work; if amounts are not divided by work, it is their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pair {
    pub with: f64,
    pub without: f64,
    /// `without - with`.
    pub saved: f64,
    /// Half the width of the interval of `saved` (see `Change::between`); `None` with fewer than
    /// two profiles on each side, and if amounts are not divided by work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Name, without what differs between two builds.
    pub function: String,
    /// Its file; empty if unknown.
    pub module: String,
    /// Thread, role or subsystem; empty if rows are not grouped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The subsystem of the function itself; `None` for a helper, which belongs to
    /// its callers.
    pub subsystem: Option<Subsystem>,
    /// The profiles that it is in.
    pub presence: Presence,
    #[serde(flatten)]
    pub amount: Pair,
}

/// Amount of all functions of a group together.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GroupTotal {
    /// Name of the group, as in [`Row::group`].
    pub group: String,
    #[serde(flatten)]
    pub amount: Pair,
}

/// The difference of two profiles.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Diff {
    /// Which part of a function's weight counts.
    pub measure: Measure,
    /// What weights were divided by.
    pub per: Per,
    /// What distinguishes rows of the same function.
    pub by: GroupBy,
    /// Unit of all amounts.
    pub unit: String,
    pub without: Side,
    pub with: Side,
    /// All samples that are compared.
    pub total: Pair,
    /// Amount of each group of [`Diff::by`], the largest change first; empty without groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupTotal>,
    /// Idle samples, unless they are rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Pair>,
    /// Samples of foreign threads, unless they are rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Pair>,
    /// The part of the kernel's time on both sides that the rules could assign.
    pub classified: Option<f64>,
    /// Functions, most saved first.
    pub rows: Vec<Row>,
    /// Functions that only the profile after the change has, the largest first.
    pub appeared: Vec<String>,
    /// Functions that only the profile before the change has, the largest first.
    pub vanished: Vec<String>,
    /// Sum of the rows that [`Diff::keep`] left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// Symptoms on either side; shares are without and with the change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub symptoms: Vec<FoundSymptom>,
    /// Caveats for the reader.
    pub notes: Vec<String>,
    /// Factor for the weights of each profile, without and with the change.
    #[serde(skip)]
    pub scales: [Vec<f64>; 2],
}

/// Rows that are not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    pub rows: usize,
    /// Sum of their amounts. For [`Measure::Total`] it means little, because one function's total
    /// includes that of others.
    #[serde(flatten)]
    pub amount: Pair,
}

impl Diff {
    /// Keeps the rows with the largest differences, gain or loss: at most `top` of them, and only
    /// those of at least `threshold` times the larger total. Their order does not change.
    pub fn keep(&mut self, top: Option<usize>, threshold: f64) {
        let least = threshold * self.total.with.max(self.total.without);
        let mut sizes: Vec<f64> = self.rows.iter().map(|r| r.amount.saved.abs()).collect();
        sizes.sort_unstable_by(|a, b| b.total_cmp(a));
        let top = top.unwrap_or(usize::MAX);
        let bound = top
            .checked_sub(1)
            .map_or(f64::INFINITY, |last| sizes.get(last).copied().unwrap_or(0.0));
        // Among rows as large as the last one kept, the first ones stay.
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
    /// Creates an amount from both values.
    pub fn new(without: f64, with: f64) -> Pair {
        Pair { with, without, saved: without - with, half_width: None }
    }

    /// Returns whether there is an interval that includes zero.
    pub fn in_doubt(&self) -> bool {
        self.half_width.is_some_and(|half| self.saved.abs() <= half)
    }
}
