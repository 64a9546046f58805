//! Computes the difference of two sides.

use super::amount::{self, Per, Side};
use super::rank::Ranking;
use super::types::{Diff, GroupBy, Options, Pair, Presence, Row};
use crate::Profile;
use crate::change::Change;
use bytepath_math::Moments;
use bytepath_record::Fault;
use hashbrown::HashSet;

pub fn diff(without: &[Profile], with: &[Profile], options: &Options) -> Result<Diff, Fault> {
    let sides = [Side::of("before", without)?, Side::of("after", with)?];
    let per = options.per.unwrap_or_else(|| amount::natural([&sides[0], &sides[1]]));
    amount::comparable([&sides[0], &sides[1]], per)?;
    let mut scales = [amount::scales("before", without, per)?, amount::scales("after", with, per)?];
    let mut ranking = Ranking::new(options, [without, with]);
    for (side, (profiles, scales)) in [without, with].into_iter().zip(&scales).enumerate() {
        for (profile, scale) in profiles.iter().zip(scales) {
            ranking.add(side, profile, *scale);
        }
    }
    let scaling = Scaling::new(per, [without.len(), with.len()], ranking.busy);
    for (scales, factor) in scales.iter_mut().zip(scaling.sums) {
        scales.iter_mut().for_each(|scale| *scale *= factor);
    }
    let pair = |amounts: [Moments; 2]| scaling.pair(amounts);
    let rows = ranking.rows(pair);
    let groups = if options.by == GroupBy::None { Vec::new() } else { ranking.groups(pair) };
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
        notes: notes(&before, &after, per, ranking.programs.as_ref()),
        total: pair(ranking.busy),
        groups,
        idle: apart(ranking.idle),
        foreign: apart(ranking.foreign),
        classified: ranking.coverage.share(),
        symptoms: ranking.symptoms.into_symptoms(),
        appeared: only(&rows, Presence::Appeared),
        vanished: only(&rows, Presence::Vanished),
        rows,
        left_out: None,
        without: before,
        with: after,
        scales,
    })
}

/// Scaling of sums for output.
struct Scaling {
    /// Number of profiles of each side, if amounts are means over them.
    means: Option<[usize; 2]>,
    /// Factors for sums.
    sums: [f64; 2],
}

impl Scaling {
    fn new(per: Per, profiles: [usize; 2], busy: [Moments; 2]) -> Scaling {
        let share = |all: f64| if all > 0.0 { 100.0 / all } else { 0.0 };
        match per {
            Per::Gib | Per::Packet | Per::Second | Per::Run => {
                Scaling { means: Some(profiles), sums: profiles.map(|n| 1.0 / n.max(1) as f64) }
            }
            Per::Sample => Scaling { means: None, sums: busy.map(|busy| share(busy.sum())) },
            Per::None => Scaling { means: None, sums: [1.0; 2] },
        }
    }

    fn pair(&self, amounts: [Moments; 2]) -> Pair {
        let [without, with] = [0, 1].map(|side| amounts[side].sum() * self.sums[side]);
        let half_width = self.means.and_then(|profiles| {
            let [without, with] = [0, 1].map(|side| amounts[side].among(profiles[side]));
            Change::between(without, with).half_width
        });
        Pair { half_width, ..Pair::new(without, with) }
    }
}

/// Returns the functions that only one side has, in any of its groups, the largest first.
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

fn notes(without: &Side, with: &Side, per: Per, programs: Option<&[String; 2]>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some([before, after]) = programs {
        notes.push(format!(
            "functions of {before} and {after} are compared as those of one program"
        ));
    }
    for (name, side) in [("before", without), ("after", with)] {
        if side.lost > 0 {
            notes.push(format!(
                "the profile {name} lost {} of its samples: its amounts are too small",
                side.lost
            ));
        }
        // Shares alone have no sample count.
        if side.samples == 0 && side.weight == 0.0 {
            notes.push(format!("the profile {name} has no sample"));
        }
    }
    let (a, b) = (without.profiles.len(), with.profiles.len());
    if per == Per::None && a != b {
        notes.push(format!(
            "{a} profiles before and {b} after are added up: --per run compares their means"
        ));
    }
    if without.event != with.event && !without.event.is_empty() && !with.event.is_empty() {
        notes.push(format!(
            "the samples are of different events: {} before, {} after",
            without.event, with.event
        ));
    }
    notes
}
