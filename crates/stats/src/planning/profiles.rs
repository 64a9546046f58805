//! Which cells are profiled, and whether that can be decided yet.

use super::until_sure::LEAST_BLOCKS;
use crate::estimate::Summary;
use crate::rules::Rules;
use crate::study::{Row, analyse};
use bytepath_record::{CellId, ProfiledCells, Study};

/// Returns whether a cell was shown to be better than the baseline, by as many blocks as a decision
/// takes, so that it is known which difference matters most.
pub fn has_choice(study: &Study) -> bool {
    let analysis = analyse(study, &Rules::of(&study.header));
    analysis.choices().iter().any(|choice| choice.row.status.measured >= LEAST_BLOCKS)
}

/// Returns the cells to profile, the baseline first.
///
/// `Largest`: the baseline and the cell whose CPU seconds per unit of work differ most from the
/// baseline's, as a ratio; or whose rate does, if no meter measured CPU time. `Leading`: the
/// baseline and the first cell that the study recommends; if it recommends none, the undecided cell
/// that may gain most; if none is undecided, the same as `Largest`. Empty if there is nothing to
/// compare.
pub fn cells_to_profile(study: &Study, which: ProfiledCells) -> Vec<CellId> {
    let analysis = analyse(study, &Rules::of(&study.header));
    let measured = |row: &&Row| row.rate.is_some();
    let rows = || analysis.rows.iter().filter(measured);
    let Some(baseline) = rows().find(|row| row.baseline) else { return Vec::new() };
    let others = rows().filter(|row| !row.baseline);
    let pair = |row: &Row| vec![baseline.cell.clone(), row.cell.clone()];
    if which == ProfiledCells::All {
        return std::iter::once(baseline).chain(others).map(|row| row.cell.clone()).collect();
    }
    let choices = analysis.choices();
    if let Some(choice) = choices.first().filter(|_| which == ProfiledCells::Leading) {
        return pair(choice.row);
    }
    let hopeful = analysis.most_to_gain().filter(|_| which == ProfiledCells::Leading);
    if let Some(row) = hopeful {
        return pair(row);
    }
    let distance = |row: &Row| {
        let apart = |of: fn(&Row) -> Option<Summary>| {
            let apart = (of(row)?.mean / of(baseline)?.mean).ln().abs();
            Some(apart).filter(|apart| apart.is_finite())
        };
        // Any difference in cost comes before one in the rate alone.
        let by_cost = apart(|row| row.cpu_per_unit);
        (by_cost.is_some(), by_cost.or_else(|| apart(|row| row.rate)).unwrap_or(0.0))
    };
    let farthest = others.max_by(|a, b| {
        let ((has_cost, a), (other_has_cost, b)) = (distance(a), distance(b));
        has_cost.cmp(&other_has_cost).then(a.total_cmp(&b))
    });
    farthest.map_or_else(Vec::new, pair)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::study;

    #[test]
    fn the_largest_difference_is_a_ratio() {
        let ids = |cells: Vec<CellId>| -> Vec<String> { cells.into_iter().map(|c| c.0).collect() };
        // b is twice as fast as the baseline a, c half as fast.
        let mut study = study(0.1, &[[1000, 2000, 500], [1010, 2020, 501], [990, 1990, 499]]);
        assert_eq!(ids(cells_to_profile(&study, ProfiledCells::All)), ["a", "b", "c"]);
        study.trials.iter_mut().filter(|t| t.cell.0 == "c").for_each(|t| t.count = 100);
        assert_eq!(ids(cells_to_profile(&study, ProfiledCells::Largest)), ["a", "c"]);
        assert_eq!(ids(cells_to_profile(&study, ProfiledCells::Leading)), ["a", "b"]);
        // By now b may be a little faster: of the undecided b and the worst, b is of interest.
        for trial in study.trials.iter_mut().filter(|t| t.cell.0 == "b") {
            trial.count = [1100, 900, 1300][trial.block as usize];
        }
        assert_eq!(ids(cells_to_profile(&study, ProfiledCells::Leading)), ["a", "b"]);
        assert_eq!(ids(cells_to_profile(&study, ProfiledCells::Largest)), ["a", "c"]);
        study.trials.retain(|t| t.cell.0 == "a");
        assert_eq!(ids(cells_to_profile(&study, ProfiledCells::Largest)), [""; 0]);
        assert_eq!(ids(cells_to_profile(&study, ProfiledCells::All)), ["a"]);
        study.trials.clear();
        assert_eq!(ids(cells_to_profile(&study, ProfiledCells::All)), [""; 0]);
    }
}
