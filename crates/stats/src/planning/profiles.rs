//! Which cells are profiled after a study's measured trials.

use crate::rules::Rules;
use crate::study::{Row, analyse};
use bytepath_record::{CellId, ProfiledCells, Study};

/// The cells of which profiles are taken, the baseline first.
///
/// `Largest`: the baseline and the cell whose CPU seconds per unit of work differ most
/// from its own, as a ratio; where no meter saw CPU time, whose rate does. `Leading`: the
/// baseline and the first cell that the study recommends, or, where it recommends none,
/// the same as `Largest`. `None` if there is nothing to compare.
pub fn cells_to_profile(study: &Study, which: ProfiledCells) -> Vec<CellId> {
    let analysis = analyse(study, &Rules::of(&study.header));
    let measured = |row: &&Row| row.rate.is_some();
    let rows = || analysis.rows.iter().filter(measured);
    let Some(baseline) = rows().find(|row| row.baseline) else { return Vec::new() };
    let others = rows().filter(|row| !row.baseline);
    match which {
        ProfiledCells::All => {
            std::iter::once(baseline).chain(others).map(|row| row.cell.clone()).collect()
        }
        ProfiledCells::Leading | ProfiledCells::Largest => {
            if which == ProfiledCells::Leading
                && let Some(choice) = analysis.choices().first()
            {
                return vec![baseline.cell.clone(), choice.row.cell.clone()];
            }
            let distance = |row: &Row| {
                let cost = |row: &Row| row.cpu_per_unit.map(|cost| cost.mean);
                let speed = |row: &Row| row.rate.map(|rate| rate.mean);
                let apart = |(a, b): (f64, f64)| (a / b).ln().abs();
                let by_cost = cost(row).zip(cost(baseline)).map(apart);
                // Any difference in cost comes before one in the rate alone.
                let by_speed = speed(row).zip(speed(baseline)).map(apart);
                let finite = |d: Option<f64>| d.filter(|d| d.is_finite());
                (finite(by_cost).is_some(), finite(by_cost).or(finite(by_speed)).unwrap_or(0.0))
            };
            let farthest = others.max_by(|a, b| {
                let ((seen_a, a), (seen_b, b)) = (distance(a), distance(b));
                seen_a.cmp(&seen_b).then(a.total_cmp(&b))
            });
            farthest.map_or_else(Vec::new, |row| vec![baseline.cell.clone(), row.cell.clone()])
        }
    }
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
        study.trials.retain(|t| t.cell.0 == "a");
        assert_eq!(ids(cells_to_profile(&study, ProfiledCells::Largest)), [""; 0]);
        assert_eq!(ids(cells_to_profile(&study, ProfiledCells::All)), ["a"]);
        study.trials.clear();
        assert_eq!(ids(cells_to_profile(&study, ProfiledCells::All)), [""; 0]);
    }
}
