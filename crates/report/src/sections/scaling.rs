//! Paths over numbers of connections: from which number on each is better than the first, and rate
//! and cost as a line for each.

use super::view::View;
use crate::document::{Cell, Column, Figure, List, Mark, Media, Scale, Section, Table};
use crate::wording::figures::{cost, level, rate};
use crate::wording::scaling::sentences;
use crate::wording::setup::pairs;
use bytepath_record::{Cost, Work, distinct, grouped};
use bytepath_stats::{Course, Metric, Row, Scaling, ScalingPoint, Summary};

/// Classes of a path's colour: for the legend, for its line, for its intervals.
const COLOURS: [[&str; 3]; 5] = [
    ["system", "course system", "span system"],
    ["user", "course user", "span user"],
    ["free", "course free", "span free"],
    ["copied", "course copied", "span copied"],
    ["discarded", "course discarded", "span discarded"],
];

/// How far a drawing extends beyond its largest mean: an interval of few trials may be much longer.
const HEADROOM: f64 = 1.25;

/// Factor by which each path is shifted to the right of the previous one.
const BESIDE: f64 = 1.08;

/// Shows the number of connections from which each path is better than the first.
pub(crate) fn crossings(view: &View) -> Section {
    Section::new("crossings", "By number of connections").with(List::of(sentences(view.analysis)))
}

/// Shows a figure each for rate and cost, for each combination of the other factors.
pub(crate) fn charts(view: &View) -> Section {
    let mut section =
        Section::new("connections", "Rate and cost by number of connections").in_detail();
    let Some(scaling) = &view.analysis.scaling else { return section };
    for metric in [Metric::Rate, view.analysis.cost()] {
        let figures = Figures { view, metric, scaling };
        let by_level = grouped(scaling.courses.iter().map(|course| (&course.at, course)));
        for (at, courses) in by_level {
            let levels = (!at.is_empty()).then(|| format!(" with {}", pairs(at)));
            let title = format!("{}{}", figures.what(), levels.unwrap_or_default());
            section.heading(&title);
            section.add_on(Media::PAGE, figures.plot(&title, &courses));
            section.add(figures.table(&courses));
        }
    }
    section.note(format!(
        "Ratios are those to {} at as many connections; the verdicts hold for all of rate, or of \
         cost, together.",
        scaling.first
    ))
}

/// The figures of one metric, all on the same axes.
struct Figures<'a> {
    view: &'a View<'a>,
    metric: Metric,
    scaling: &'a Scaling,
}

impl Figures<'_> {
    fn plot(&self, title: &str, courses: &[&Course]) -> Figure {
        let points = || self.scaling.courses.iter().flat_map(|course| &course.points);
        let beside = BESIDE.powi(COLOURS.len() as i32);
        let across = Scale::counts(points().map(|point| f64::from(point.connections) * beside));
        let means = points().filter_map(|point| Some(self.summary(point)?.mean * self.scale()));
        let up = Scale::over(means.map(|mean| mean * HEADROOM).chain([0.0]));
        let paths = distinct(self.scaling.courses.iter().map(|course| course.path.as_str()));
        let colours: Vec<_> = paths.into_iter().zip((0..COLOURS.len()).cycle()).collect();
        let colour = |course: &Course| colours.iter().find(|(path, _)| *path == course.path);
        let marks = courses.iter().filter_map(|one| Some(self.line(one, colour(one)?.1)));
        let marks = marks.flatten().collect();
        let confidence = level(self.view.analysis.rules.confidence);
        let caption = format!("{title}; intervals of the mean at {confidence}, cut at the top.");
        let titles = ["connections".to_owned(), self.what().to_owned()];
        let key = colours.iter().map(|(path, at)| (COLOURS[*at][0], (*path).to_owned())).collect();
        Figure { key, ..Figure::plot(caption, [across, up], titles, marks) }
    }

    fn summary(&self, point: &ScalingPoint) -> Option<Summary> {
        let row: &Row = self.view.rows.iter().find(|row| row.cell == point.cell)?;
        if self.metric == Metric::Rate { row.rate } else { row.cpu_per_unit }
    }

    fn work(&self) -> Work {
        self.view.analysis.work()
    }

    fn unit(&self) -> Cost {
        self.work().cost(self.view.analysis.instructions_per_second)
    }

    /// Returns the factor from a figure to its display unit.
    fn scale(&self) -> f64 {
        if self.metric == Metric::Rate { self.work().terms().rate_scale } else { self.unit().scale }
    }

    fn what(&self) -> &'static str {
        if self.metric == Metric::Rate { self.work().terms().rate_unit } else { self.unit().words }
    }

    fn text(&self, value: Option<f64>) -> String {
        match self.metric {
            Metric::Rate => rate(self.work(), value),
            _ => cost(self.unit(), value),
        }
    }

    /// Draws the course of a path in a colour, with its intervals next to those of the others.
    fn line(&self, course: &Course, colour: usize) -> Vec<Mark> {
        let [_, line, span] = COLOURS[colour];
        let beside = BESIDE.powi(colour as i32);
        let of = |point: &ScalingPoint| Some((f64::from(point.connections), self.summary(point)?));
        let points: Vec<(f64, Summary)> = course.points.iter().filter_map(of).collect();
        let place = |(at, of): &(f64, Summary)| (at * beside, of.mean * self.scale());
        let spans = points.iter().map(|(at, of)| {
            let [low, high] = bounds(of).map(|end| end * self.scale());
            let tip = format!("{}, {at}: {}", course.path, self.text(Some(of.mean)));
            Mark::line(span, (at * beside, low), (at * beside, high)).tip(tip)
        });
        let whole = Mark::course(line, points.iter().map(place).collect());
        spans.chain([whole]).collect()
    }

    fn table(&self, courses: &[&Course]) -> Table {
        let columns = [
            Column::words("path", 0, Some(24)),
            Column::number("", "connections", 0),
            Column::number("", "mean", 0),
            Column::number("", "ratio", 0).interval(0),
            Column::words("verdict", 0, None),
        ];
        let all = courses.iter();
        let all = all.flat_map(|course| course.points.iter().map(move |point| (course, point)));
        let cells = all.map(|(course, point)| {
            let compared = point.comparison(self.metric);
            [
                Cell::from(course.path.as_str()),
                point.connections.to_string().into(),
                self.text(self.summary(point).map(|of| of.mean)).into(),
                compared.map_or("".into(), |one| Cell::factor(one.effect.as_ref())),
                compared.map_or("".into(), |one| Cell::verdict(&one.verdict)),
            ]
        });
        Table::rows(columns, cells)
    }
}

/// Returns the interval of the mean, cut at zero, below which it may extend with two trials.
fn bounds(of: &Summary) -> [f64; 2] {
    let (low, high) = of.interval.unwrap_or((of.mean, of.mean));
    [low.max(0.0), high]
}
