//! What a difference is made of, and the options that it is made by.

use super::amount::{Per, Side};
use crate::subsystem::{Rules, Subsystem};
use crate::symptom::Seen;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How two profiles are compared.
#[derive(Clone, Debug, Default)]
pub struct Options<'a> {
    /// What of a function counts.
    pub measure: Measure,
    /// By what weights are divided; by itself, the bytes delivered where both
    /// sides record them, else the number of profiles where one side has several, else nothing.
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
    /// Half the width of the interval of `saved` (see `Change::between`); `None` below
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
    /// The subsystem of the function itself; `None` for a helper, which belongs to
    /// its callers.
    pub subsystem: Option<Subsystem>,
    /// In which profile it is.
    pub presence: Presence,
    #[serde(flatten)]
    pub amount: Pair,
}

/// What all functions of a group take together.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GroupTotal {
    /// What distinguishes it, as in [`Row::group`].
    pub group: String,
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
    /// What each group of [`Diff::by`] takes, the largest change first; none without groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupTotal>,
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
    /// Their amounts together. Of [`Measure::Total`] this means little, for one
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
