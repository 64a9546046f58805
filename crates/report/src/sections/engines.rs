//! Copy engines of a study at each size, compared with the first one: curves and a table.

use super::view::View;
use crate::document::{Cell, Column, Drawing, Figure, Mark, Media, Panel, Scale, Section, Table};
use crate::wording::figures::{amount, bytes, effect_text, level, number};
use crate::wording::offload::name;
use crate::wording::setup::pairs;
use bytepath_record::{Levels, grouped};
use bytepath_stats::{CopyComparison, Effect, Row, Summary};

type Point = CopyComparison<Levels>;

/// Shows one small panel for each engine and each combination of other factors, all on the same
/// axes, with the numbers below.
pub(crate) fn section(view: &View) -> Section {
    let section = Section::new("engines", "Copy engines").on(Media::PAGE);
    let Some(offloading) = view.analysis.offloading.as_ref() else { return section };
    let across = Scale::sizes(offloading.points.iter().map(|point| point.cell.size as f64));
    let ends = offloading.points.iter().filter_map(|point| point.faster.as_ref()).map(bounds);
    let up = Scale::over(ends.flat_map(|(low, high)| [low, high]).chain([1.0]));
    let terms = view.analysis.work().terms();
    let caption = format!(
        "The {} of each engine, a multiple of that of {}, against the size of messages, with \
         intervals at {}, each for itself.",
        terms.rate,
        offloading.first,
        level(view.analysis.rules.confidence)
    );
    let cost = format!("sender\u{2019}s CPU per {}", terms.unit);
    let table = Table::of(
        &offloading.points,
        [
            (Column::words("engine", 0, None), |point| title(point)),
            (Column::number("", "size", 0), |point| bytes(point.cell.size as f64)),
            (Column::number("", terms.rate, 0), |point| effect_text(point.faster.as_ref())),
            (Column::number("", &cost, 0), |point| effect_text(point.dearer.as_ref())),
        ],
    );
    let panel = |(title, mut points): (String, Vec<&Point>)| {
        points.sort_by_key(|point| point.cell.size);
        Panel { title, marks: curve(&points, &across), ..Panel::default() }
    };
    let curves = grouped(offloading.points.iter().map(|point| (title(point), point)));
    let panels = curves.into_iter().map(panel).collect();
    let drawing = Drawing::Panels { across: across.clone(), up, panels };
    section.with(Figure { caption, key: Vec::new(), drawing, table })
}

/// Shows details of the copies that a path made by an engine, a line for each cell that has any.
pub(crate) fn copies(view: &View) -> Section {
    let rows = view.rows.iter().filter(|row| copied(view, row, "copy.attempts").is_some());
    let detail = if view.details || view.medium == Media::PAGE { Media::ALL } else { Media::NONE };
    let of = |metric: &'static str| move |row: &Row| copied(view, row, metric);
    let nanoseconds = |row: &Row| copied(view, row, "copy.time").map(|seconds| seconds * 1e9);
    let figures = |row: &&Row| {
        let figures = [
            amount(of("copy.attempts")(row)),
            amount(of("copy.refused")(row)),
            amount(of("copy.busy")(row)),
            amount(of("copy.made")(row)),
            amount(of("copy.cycles")(row)),
            number(nanoseconds(row), 0),
            number(of("copy.polls")(row), 1),
        ];
        [Cell::path(row)].into_iter().chain(figures.map(Cell::from)).collect::<Vec<_>>()
    };
    let columns = [
        Column::path(),
        Column::number("writes a second", "attempts", 0),
        Column::number("writes a second", "refused", 0),
        Column::number("writes a second", "busy", 1).on(detail),
        Column::number("", "copies/s", 0),
        Column::number("a copy", "cycles", 0),
        Column::number("a copy", "ns", 1),
        Column::number("a copy", "polls", 0),
    ];
    let note = "Of the whole stream. A write is refused where the FIFO has no room or no engine is \
                free; it is tried again at once. The cycles are the caller's, of submissions and of \
                polls that found something.";
    let table = Table::rows(columns, rows.map(figures)).without_empty();
    Section::new("copies", "Copies by an engine").with(table).note(note)
}

/// Returns the mean of a reading of copies over a cell's measured trials.
fn copied(view: &View, row: &Row, metric: &str) -> Option<f64> {
    let measured = view.trials(row).iter().filter(|trial| trial.rate().is_some());
    let readings = measured.flat_map(|trial| &trial.readings);
    let values = readings.filter(|reading| reading.metric == metric).map(|reading| reading.value);
    Summary::of(values).map(|summary| summary.mean)
}

fn title(point: &Point) -> String {
    let engine = name(&point.cell.engine, point.cell.model);
    match pairs(&point.cell.at) {
        at if at.is_empty() => engine,
        at => format!("{engine}, {at}"),
    }
}

/// Draws the ratios with their intervals, over a line at equality.
fn curve(points: &[&Point], across: &Scale) -> Vec<Mark> {
    let compared = points.iter().filter_map(|p| Some((p.cell.size as f64, p.faster.as_ref()?)));
    let compared: Vec<(f64, &Effect)> = compared.collect();
    let alike = Mark::line("mean", (across.low, 1.0), (f64::MAX, 1.0));
    let spans = compared.iter().map(|(size, effect)| {
        let (low, high) = bounds(effect);
        Mark::line("span", (*size, low), (*size, high)).tip(effect_text(Some(effect)))
    });
    let course = compared.iter().map(|(size, effect)| (*size, effect.ratio)).collect();
    [alike].into_iter().chain(spans).chain([Mark::course("course", course)]).collect()
}

fn bounds(effect: &Effect) -> (f64, f64) {
    effect.interval.map_or((effect.ratio, effect.ratio), |i| (i.low, i.high))
}
