//! The functions with the highest cost on each side, in two columns, each with its rank on the
//! other side.

use super::types::Row;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A line of two rankings: the function with this rank before the change, and the one after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankingLine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<Placed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<Placed>,
}

/// A function with its rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Placed {
    /// Name; with its thread, role or subsystem if rows are grouped.
    pub function: String,
    /// Its amount on this side.
    pub amount: f64,
    /// Its rank on the other side, from 1; `None` if it has no amount there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<usize>,
}

/// Returns the first `top` ranks among all rows of a difference. Functions with equal amounts are
/// ordered by name.
pub fn places(rows: &[Row], top: usize) -> Vec<RankingLine> {
    let ranked = |amount: fn(&Row) -> f64| {
        let mut all: Vec<(usize, f64)> = rows.iter().map(amount).enumerate().collect();
        all.retain(|(_, amount)| *amount > 0.0);
        let name = |at: usize| (&rows[at].function, &rows[at].group);
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| name(a.0).cmp(&name(b.0))));
        all
    };
    let sides = [ranked(|row| row.amount.without), ranked(|row| row.amount.with)];
    let mut stands = [vec![None; rows.len()], vec![None; rows.len()]];
    for (stands, side) in stands.iter_mut().zip(&sides) {
        for (place, (row, _)) in side.iter().enumerate() {
            stands[*row] = Some(place + 1);
        }
    }
    let placed = |side: usize, place: usize| {
        let (at, amount) = *sides[side].get(place)?;
        let Row { function, group, .. } = &rows[at];
        let function =
            if group.is_empty() { function.clone() } else { format!("{function} [{group}]") };
        Some(Placed { function, amount, other: stands[1 - side][at] })
    };
    let longest = sides[0].len().max(sides[1].len());
    (0..longest.min(top))
        .map(|place| RankingLine { without: placed(0, place), with: placed(1, place) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::{Pair, Presence};

    fn row(function: &str, without: f64, with: f64) -> Row {
        Row {
            function: function.into(),
            module: String::new(),
            group: String::new(),
            subsystem: None,
            presence: Presence::Both,
            amount: Pair::new(without, with),
        }
    }

    #[test]
    fn ranks_each_side_with_the_rank_on_the_other() {
        let rows = [
            row("copy", 50.0, 5.0),
            row("lock", 20.0, 20.0),
            row("pin", 0.0, 30.0),
            row("free", 3.0, 0.0),
            row("alloc", 3.0, 0.0),
        ];
        let parts = |placed: &Option<Placed>| {
            placed.as_ref().map(|p| (p.function.clone(), p.amount, p.other))
        };
        let lines = places(&rows, 4);
        let all: Vec<_> =
            lines.iter().map(|line| (parts(&line.without), parts(&line.with))).collect();
        let of = |name: &str, amount, other| Some((name.to_owned(), amount, other));
        assert_eq!(
            all,
            [
                (of("copy", 50.0, Some(3)), of("pin", 30.0, None)),
                (of("lock", 20.0, Some(2)), of("lock", 20.0, Some(2))),
                (of("alloc", 3.0, None), of("copy", 5.0, Some(1))),
                (of("free", 3.0, None), None),
            ]
        );
        assert_eq!(places(&rows, 1).len(), 1);
        assert_eq!(places(&[], 5), []);
    }
}
