//! The first figure: what each cell moves against what that costs, and the cells that
//! no other one beats in both.

use super::plot::LARGE;
use crate::document::{Figure, Mark, Scale};
use crate::sections::View;
use crate::wording::figures::{cost, rate};
use bytepath_record::{Work, joined};
use bytepath_stats::Row;

/// Radius of a dot, and of one on the frontier.
const DOTS: (f64, f64) = (4.0, 5.5);

/// Beyond this many cells only those on the frontier, and the baseline, have their names in
/// the figure.
const NAMED: usize = 16;

/// About the width of a letter and the height of a line, in pixels.
const LETTER: (f64, f64) = (6.0, 12.0);

/// A cell with both of its figures, as they are shown.
struct Point<'a> {
    row: &'a Row,
    at: (f64, f64),
    /// Whether no other cell has a higher rate at the same or a lower cost.
    leads: bool,
}

/// The figure, of the baseline's work; `None` of fewer than two cells.
pub(crate) fn figure(view: &View) -> Option<Figure> {
    let work = view.analysis.work();
    let points = points(view, work);
    if points.len() < 2 || view.analysis.functional.is_some() {
        return None;
    }
    let terms = work.terms();
    let cost_unit = work.cost(view.analysis.instructions_per_second);
    let scales = [
        Scale::over(points.iter().map(|point| point.at.0).chain([0.0])),
        Scale::over(points.iter().map(|point| point.at.1).chain([0.0])),
    ];
    let leading = points.iter().filter(|point| point.leads);
    let caption = format!(
        "{} (up, {}) against {}, both ends (across): higher and further left is better. The line \
         joins the cells that no other cell beats in both means: {}. Which of the differences are \
         real is in the verdicts.",
        terms.rate_heading,
        terms.rate_unit,
        cost_unit.unit,
        joined(leading.map(|point| &point.row.cell), ", ")
    );
    let marks = marks(&points, &scales, work, view);
    Some(Figure::plot(caption, scales, marks))
}

fn points<'a>(view: &View<'a>, work: Work) -> Vec<Point<'a>> {
    let scale = work.cost(view.analysis.instructions_per_second).scale;
    let at = |row: &Row| {
        let (cost, rate) =
            (row.cpu_per_unit?.mean * scale, row.rate?.mean * work.terms().rate_scale);
        (cost.is_finite() && rate.is_finite()).then_some((cost, rate))
    };
    let rows = view.rows.iter().filter(|row| row.work == work);
    let candidates: Vec<(&Row, (f64, f64))> =
        rows.filter_map(|row| Some((*row, at(row)?))).collect();
    let beaten = |(cost, rate): (f64, f64)| {
        candidates.iter().any(|(_, (c, r))| *c <= cost && *r >= rate && (*c < cost || *r > rate))
    };
    candidates.iter().map(|(row, at)| Point { row, at: *at, leads: !beaten(*at) }).collect()
}

fn marks(points: &[Point], scales: &[Scale; 2], work: Work, view: &View) -> Vec<Mark> {
    let mut frontier: Vec<(f64, f64)> = points.iter().filter(|p| p.leads).map(|p| p.at).collect();
    frontier.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut marks = vec![Mark::course("frontier", frontier)];
    let cost_unit = work.cost(view.analysis.instructions_per_second);
    for point in points {
        let class = match (point.row.baseline, point.leads) {
            (true, _) => "spot first",
            (_, true) => "spot leads",
            _ => "spot",
        };
        let radius = if point.leads { DOTS.1 } else { DOTS.0 };
        let words = format!(
            "{}: {} {}, {} {}",
            point.row.cell,
            rate(work, point.row.rate.map(|rate| rate.mean)),
            work.terms().rate_unit,
            cost(cost_unit, point.row.cpu_per_unit.map(|cost| cost.mean)),
            cost_unit.unit,
        );
        marks.push(Mark::dot(class, point.at, radius).tip(words).of(&point.row.cell));
    }
    marks.extend(names(points, scales));
    marks
}

/// The names, each where it covers no other and no dot; one that has no place is left to
/// those who point at its dot.
fn names(points: &[Point], [across, up]: &[Scale; 2]) -> Vec<Mark> {
    let place = |point: &Point| LARGE.place((across, up), point.at);
    let around = |(x, y): (f64, f64)| [x - 6.0, y - 6.0, x + 6.0, y + 6.0];
    let mut occupied: Vec<[f64; 4]> = points.iter().map(|point| around(place(point))).collect();
    let free = |occupied: &[[f64; 4]], new: &[f64; 4]| {
        let apart = |old: &[f64; 4]| {
            old[2] <= new[0] || new[2] <= old[0] || old[3] <= new[1] || new[3] <= old[1]
        };
        LARGE.holds(*new) && occupied.iter().all(apart)
    };
    let mut marks = Vec::new();
    let is_named = |point: &&Point| points.len() <= NAMED || point.leads || point.row.baseline;
    for point in points.iter().filter(is_named) {
        let name = point.row.cell.to_string();
        let wide = name.chars().count() as f64 * LETTER.0;
        let (x, y) = place(point);
        let offsets =
            [0.0, -LETTER.1, LETTER.1].into_iter().flat_map(|down| [(9.0, down), (-9.0, down)]);
        for off in offsets {
            let from = if off.0 < 0.0 { x + off.0 - wide } else { x + off.0 };
            let middle = y + off.1;
            let spot = [from, middle - LETTER.1 / 2.0, from + wide, middle + LETTER.1 / 2.0];
            if free(&occupied, &spot) {
                occupied.push(spot);
                marks.push(Mark::name(point.at, off, name).of(&point.row.cell));
                break;
            }
        }
    }
    marks
}
