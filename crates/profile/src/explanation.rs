//! Explains the results of a study by its profiles: where the cost of each cell differs from the
//! baseline's, with flame graphs. Plain data, built once and rendered in any format.

use super::WorkUnit;
use super::diff::{self, Diff, LeftOut, Options, Pair, Per, RankingLine, Row};
use super::ends::Ends;
use super::flame::{BOXES, Chart, flames};
use super::subsystem::{Classes, Coverage, Rules};
use super::symptom::{FoundSymptom, Tally};
use super::waterfall::{Trials, Waterfall, waterfall};
use bytepath_record::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most boxes of all flame graphs together.
const ALL_BOXES: usize = 7000;

/// The explanation of a study's differences.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The unit of work that costs refer to.
    #[serde(default)]
    pub per: WorkUnit,
    /// From the baseline to each other cell.
    pub waterfalls: Vec<Waterfall>,
    /// The functions of the same pairs, most saved first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranked: Vec<Ranked>,
    /// A flame graph of each cell, and two of each difference to the baseline: with the widths of
    /// the cell, which show what appeared, and with those of the baseline, which show what
    /// vanished.
    pub charts: Vec<Chart>,
    /// The part of the kernel's time that the rules could assign.
    pub classified: Option<f64>,
    /// Symptoms found in well-known functions.
    #[serde(default)]
    pub symptoms: Symptoms,
    /// The cost of each end by itself, for each cell and from the baseline to each other cell; only
    /// if known per packet and end.
    #[serde(default, skip_serializing_if = "Ends::is_empty")]
    pub ends: Ends,
    /// Whether the processor was emulated: then which functions ran is valid, but not what they
    /// cost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub functional: bool,
    /// Caveats for the reader.
    pub notes: Vec<String>,
}

/// Symptoms of several cells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Symptoms {
    /// The cells that the shares refer to, the baseline first.
    pub cells: Vec<String>,
    /// The symptoms above their limit, largest share first.
    pub seen: Vec<FoundSymptom>,
}

/// The functions of two cells side by side, ranked by savings. A function's amount is its own code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ranked {
    /// The cell before the change: the baseline.
    pub without: String,
    /// The cell after it.
    pub with: String,
    /// Unit of all amounts.
    pub unit: String,
    pub total: Pair,
    /// The rows with the largest differences, most saved first.
    pub rows: Vec<Row>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// The functions with the highest cost on each side, in two columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<RankingLine>,
}

/// Number of functions in a ranking.
const RANKED: usize = 15;

/// Explains the difference in cost per unit of work between every other cell and the baseline.
pub fn explain(
    baseline: &Trials,
    others: &[Trials],
    rules: &Rules,
    unit: WorkUnit,
) -> Result<Explanation, Fault> {
    let mut explanation = Explanation { per: unit, ..Explanation::default() };
    let per = match unit {
        WorkUnit::Gib => Per::Gib,
        WorkUnit::Packet => Per::Packet,
        WorkUnit::Run => Per::Run,
    };
    let options = Options { per: Some(per), rules, ..Options::default() };
    let most = (ALL_BOXES / (1 + 3 * others.len())).min(BOXES);
    let all: Vec<Trials> = std::iter::once(*baseline).chain(others.iter().copied()).collect();
    let (symptoms, coverage) = symptoms(&all, rules);
    for (i, other) in others.iter().enumerate() {
        explanation.waterfalls.push(waterfall(baseline, other, rules, (unit, None))?);
        let mut found = diff::diff(baseline.profiles, other.profiles, &options)?;
        let flames = flames(baseline.profiles, other.profiles, &found, rules);
        // The baseline's own graph is included only once.
        let charts = flames.charts([baseline.cell, other.cell], most).into_iter();
        explanation.charts.extend(charts.skip(usize::from(i > 0)));
        let places = diff::places(&found.rows, RANKED);
        found.keep(Some(RANKED), 0.0);
        let [without, with] = [baseline.cell, other.cell].map(str::to_owned);
        let Diff { unit, total, rows, left_out, .. } = found;
        explanation.ranked.push(Ranked { without, with, unit, total, rows, left_out, places });
    }
    explanation.charts.retain(|chart| !chart.boxes.is_empty());
    explanation.classified = coverage.share();
    explanation.symptoms = symptoms;
    Ok(explanation)
}

/// Returns the symptoms of these cells, and how much of the kernel's time the rules could assign.
pub fn symptoms(cells: &[Trials], rules: &Rules) -> (Symptoms, Coverage) {
    let (mut tally, mut coverage) = (Tally::new(cells.len()), Coverage::default());
    for (side, trials) in cells.iter().enumerate() {
        for profile in trials.profiles {
            let classes = Classes::of(profile, rules);
            coverage.add(profile, &classes);
            tally.add(side, profile, &classes);
        }
    }
    let cells = cells.iter().map(|trials| trials.cell.to_owned()).collect();
    (Symptoms { cells, seen: tally.into_symptoms() }, coverage)
}
