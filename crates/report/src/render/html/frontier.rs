//! A figure of each cell's rate against its cost, with intervals, and the frontier of cells that no
//! other one beats in both.

use super::plot::LARGE;
use crate::document::{Figure, Mark, Scale};
use crate::sections::View;
use crate::wording::figures::{cost, level, rate};
use bytepath_record::{Work, joined};
use bytepath_stats::Row;

/// Radius in pixels of a dot, and of that of a recommended cell or the baseline.
const DOTS: (f64, f64) = (4.0, 5.5);

/// Most cells that are all named; with more, only those on the frontier and the baseline are.
const NAMED: usize = 16;

/// Approximate width of a letter and height of a line, in pixels.
const LETTER: (f64, f64) = (6.0, 12.0);

/// A cell with both of its figures, in display units.
struct Point<'a> {
    row: &'a Row,
    at: (f64, f64),
    /// Intervals of the means of its cost and its rate, if known.
    ranges: [Option<(f64, f64)>; 2],
    /// Whether no other cell has a higher rate at the same or a lower cost.
    leads: bool,
    /// Whether it is recommended over the baseline.
    chosen: bool,
}

/// Draws the figure, for cells with the baseline's kind of work; `None` with fewer than two.
pub(crate) fn figure(view: &View) -> Option<Figure> {
    let work = view.analysis.work();
    let points = points(view, work);
    if points.len() < 2 || view.analysis.functional.is_some() {
        return None;
    }
    let terms = work.terms();
    let cost_unit = work.cost(view.analysis.instructions_per_second);
    let scale = |ends: Vec<f64>| Scale::over(ends.into_iter().map(|end| end * ROOM).chain([0.0]));
    let ends = |at: f64, range: Option<(f64, f64)>| [at, range.map_or(at, |(_, high)| high)];
    let scales = [
        scale(points.iter().flat_map(|p| ends(p.at.0, p.ranges[0])).collect()),
        scale(points.iter().flat_map(|p| ends(p.at.1, p.ranges[1])).collect()),
    ];
    let leading: Vec<&Point> = points.iter().filter(|point| point.leads).collect();
    let line = match leading.len() {
        0 | 1 => String::new(),
        _ => format!(
            " The line joins the cells that no other cell beats in both means: {}.",
            joined(leading.iter().map(|point| &point.row.cell), ", ")
        ),
    };
    let caption = format!(
        "{} against {}, both ends: higher and further left is better, with the {} intervals of the \
         means. Green is better than the baseline by its verdicts.{line}",
        terms.rate_heading,
        cost_unit.unit,
        level(view.analysis.rules.confidence),
    );
    let marks = marks(&points, &scales, work, view);
    let titles = [cost_unit.unit.to_owned(), terms.rate_unit.to_owned()];
    Some(Figure::plot(caption, scales, titles, marks))
}

/// Room at the far end of both axes, as a multiple of the largest value.
pub(super) const ROOM: f64 = 1.06;

fn points<'a>(view: &View<'a>, work: Work) -> Vec<Point<'a>> {
    let scale = work.cost(view.analysis.instructions_per_second).scale;
    let rate_scale = work.terms().rate_scale;
    let at = |row: &Row| {
        let (cost, rate) = (row.cpu_per_unit?.mean * scale, row.rate?.mean * rate_scale);
        (cost.is_finite() && rate.is_finite()).then_some((cost, rate))
    };
    let ranges = |row: &Row| {
        [(row.cpu_per_unit, scale), (row.rate, rate_scale)].map(|(summary, scale)| {
            let (low, high) = summary?.interval?;
            Some((low.max(0.0) * scale, high * scale))
        })
    };
    let rows = view.rows.iter().filter(|row| row.work == work);
    let candidates: Vec<(&Row, (f64, f64))> =
        rows.filter_map(|row| Some((*row, at(row)?))).collect();
    let beaten = |(cost, rate): (f64, f64)| {
        candidates.iter().any(|(_, (c, r))| *c <= cost && *r >= rate && (*c < cost || *r > rate))
    };
    let choices = view.analysis.choices();
    let chosen = |row: &Row| choices.iter().any(|choice| choice.row.cell == row.cell);
    let point = |(row, at): &(&'a Row, (f64, f64))| Point {
        row,
        at: *at,
        ranges: ranges(row),
        leads: !beaten(*at),
        chosen: chosen(row),
    };
    candidates.iter().map(point).collect()
}

fn marks(points: &[Point], scales: &[Scale; 2], work: Work, view: &View) -> Vec<Mark> {
    let mut frontier: Vec<(f64, f64)> = points.iter().filter(|p| p.leads).map(|p| p.at).collect();
    frontier.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut marks = Vec::new();
    if frontier.len() > 1 {
        marks.push(Mark::course("frontier", frontier));
    }
    for Point { at, ranges: [cost, rate], .. } in points {
        marks.extend(cost.map(|(low, high)| Mark::line("thin", (low, at.1), (high, at.1))));
        marks.extend(rate.map(|(low, high)| Mark::line("thin", (at.0, low), (at.0, high))));
    }
    let cost_unit = work.cost(view.analysis.instructions_per_second);
    for point in points {
        let class = match (point.row.baseline, point.chosen) {
            (true, _) => "spot first",
            (_, true) => "spot leads",
            _ => "spot",
        };
        let radius = if point.chosen || point.row.baseline { DOTS.1 } else { DOTS.0 };
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

/// Places the names so that none covers another or a dot, and if possible no interval; a name
/// without room is shown only in the tooltip of its dot.
fn names(points: &[Point], [across, up]: &[Scale; 2]) -> Vec<Mark> {
    let place = |point: &Point| LARGE.place((across, up), point.at);
    let around = |(x, y): (f64, f64)| [x - 6.0, y - 6.0, x + 6.0, y + 6.0];
    let mut occupied: Vec<[f64; 4]> = points.iter().map(|point| around(place(point))).collect();
    let intervals = points.iter().flat_map(|point| {
        let [cost, rate] = point.ranges;
        let span = |from, to| {
            let ((x, y), (right, up)) =
                (LARGE.place((across, up), from), LARGE.place((across, up), to));
            [x, up, right, y]
        };
        let across = cost.map(|(low, high)| span((low, point.at.1), (high, point.at.1)));
        let along = rate.map(|(low, high)| span((point.at.0, low), (point.at.0, high)));
        [across, along]
    });
    let intervals: Vec<[f64; 4]> = intervals.flatten().collect();
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
        let spots =
            [0.0, -LETTER.1, LETTER.1].into_iter().flat_map(|down| [(9.0, down), (-9.0, down)]);
        let spots = spots.map(|off| {
            let from = if off.0 < 0.0 { x + off.0 - wide } else { x + off.0 };
            let middle = y + off.1;
            (off, [from, middle - LETTER.1 / 2.0, from + wide, middle + LETTER.1 / 2.0])
        });
        let mut spots = spots.filter(|(_, spot)| free(&occupied, spot)).collect::<Vec<_>>();
        spots.sort_by_key(|(_, spot)| !free(&intervals, spot));
        if let Some((off, spot)) = spots.first() {
            occupied.push(*spot);
            marks.push(Mark::name(point.at, *off, name).of(&point.row.cell));
        }
    }
    marks
}
