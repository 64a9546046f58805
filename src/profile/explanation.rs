//! What a report shows of the profiles of a study: where the cost of each cell
//! differs from the baseline's, and flame graphs. Plain data, to be made once and
//! rendered in any format.

use super::Profile;
use super::diff::{self, Options, Per};
use super::flame::{Chart, Widths, flames};
use super::subsystem::{Classes, Coverage, Rules};
use super::waterfall::{Trials, Waterfall, waterfall};
use crate::record::Fault;
use serde::{Deserialize, Serialize};

/// Boxes of one flame graph at most, and of all together: a page stays below 2 MB.
const BOXES: usize = 700;
const ALL_BOXES: usize = 7000;

/// Confidence of the intervals.
pub const CONFIDENCE: f64 = 0.95;

/// The explanation of a study's differences.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// From the baseline to each other cell.
    pub waterfalls: Vec<Waterfall>,
    /// A flame graph of each cell, and of each difference to the baseline.
    pub charts: Vec<Chart>,
    /// The part of the kernel's time that the rules could name.
    pub classified: Option<f64>,
    /// What has to be kept in mind.
    pub notes: Vec<String>,
}

/// Explains what every other cell costs more or less than the baseline.
pub fn explain(baseline: &Trials, others: &[Trials], rules: &Rules) -> Result<Explanation, Fault> {
    let mut explanation = Explanation::default();
    let options = Options { per: Some(Per::Gib), rules, ..Options::default() };
    let most = (ALL_BOXES / (1 + 2 * others.len())).min(BOXES);
    let mut coverage = covered(baseline.profiles, rules);
    for (i, other) in others.iter().enumerate() {
        explanation.waterfalls.push(waterfall(baseline, other, rules, CONFIDENCE)?);
        coverage = coverage.and(covered(other.profiles, rules));
        let found = diff::diff(baseline.profiles, other.profiles, &options)?;
        let flames = flames(baseline.profiles, other.profiles, &found, rules);
        let charts = &mut explanation.charts;
        if i == 0 {
            charts.push(flames.chart(baseline.cell, Widths::Without, false, most));
        }
        charts.push(flames.chart(other.cell, Widths::With, false, most));
        let title = format!("{} against {}", other.cell, baseline.cell);
        charts.push(flames.chart(&title, Widths::With, true, most));
    }
    explanation.charts.retain(|chart| !chart.boxes.is_empty());
    explanation.classified = coverage.share();
    Ok(explanation)
}

fn covered(profiles: &[Profile], rules: &Rules) -> Coverage {
    profiles.iter().fold(Coverage::default(), |sum, profile| {
        sum.and(Coverage::of(profile, &Classes::of(profile, rules)))
    })
}
