//! Latency of exchanges: percentiles, and how each compares with the baseline.

use super::view::View;
use crate::document::{Cell, Column, Figure, Mark, Media, Scale, Section, Table};
use crate::wording::figures::{amount, microseconds};
use bytepath_record::Percentile;
use bytepath_stats::{LatencyRow, Metric, Row};

/// Height of a row in pixels.
const HEIGHT: f64 = 24.0;

pub(crate) fn section(view: &View) -> Section {
    let rows: Vec<(&Row, &LatencyRow)> =
        view.rows.iter().filter_map(|row| Some((*row, row.latency.as_ref()?))).collect();
    let mut section =
        Section::new("latency", "Latency in microseconds, all measured trials together");
    if rows.is_empty() {
        return section;
    }
    let of_rounds = rows.iter().filter(|(row, _)| is_of_rounds(view, row)).count();
    let what = match of_rounds {
        0 => "exchanges",
        all if all == rows.len() => "rounds",
        _ => "exchanges, rounds",
    };
    section.add(figure(&rows, what));
    if of_rounds > 0 {
        section = section.note(
            "With incast latency is of a round: from its first request until the last response is there.",
        );
    }
    let against = against(&rows);
    if view.analysis.functional.is_none() && !against.rows.is_empty() {
        section.heading(format!("Latency against {}", view.analysis.baseline));
        section.add(against);
        section = section.note_on(
            Media::PLAIN,
            "Ratios are of the percentiles of each block; a percentile is given if at least ten \
             exchanges took longer.",
        );
    }
    section
}

/// Returns whether rounds of exchanges were timed.
fn is_of_rounds(view: &View, row: &Row) -> bool {
    let cells = &view.study.header.cells;
    cells.iter().any(|cell| cell.id == row.cell && cell.workload.options.flag("incast"))
}

fn figure(rows: &[(&Row, &LatencyRow)], what: &'static str) -> Figure {
    let mut columns = vec![Column::path(), Column::number("", "mean", 2).on(Media::PLAIN)];
    columns.extend(Percentile::ALL.map(|p| Column::number("", p.name(), 0)));
    columns.extend([Column::number("", "max", 0), Column::number("", what, 3)]);
    let cells = |(row, latency): &(&Row, &LatencyRow)| {
        let percentiles = Percentile::ALL.map(|p| pooled(latency, p));
        let times = [latency.mean].into_iter().chain(percentiles).chain([latency.max]);
        let times = times.map(|time| Cell::from(microseconds(time)));
        let count = Cell::from(amount(latency.count as f64));
        [Cell::path(row)].into_iter().chain(times).chain([count])
    };
    let table = Table::rows(columns, rows.iter().map(cells));
    let highest = |latency: &LatencyRow| latency.percentiles.last().map_or(0.0, |p| p.pooled * 1e6);
    let scale = Scale::over(rows.iter().map(|(_, latency)| highest(latency)).chain([0.0]));
    let marks = rows.iter().map(|(_, latency)| marks(latency));
    let caption = "The dot is the median, the thick line reaches to p99, the thin one to the \
                   highest percentile in the row. A percentile is given if at least ten exchanges \
                   took longer.";
    Figure::rows(caption, table, (scale, HEIGHT), marks)
}

fn pooled(latency: &LatencyRow, percentile: Percentile) -> Option<f64> {
    latency.percentile(percentile).map(|row| row.pooled)
}

fn marks(latency: &LatencyRow) -> Vec<Mark> {
    let at = |percentile| pooled(latency, percentile).map(|s| s * 1e6);
    let middle = HEIGHT / 2.0;
    let line = |class, from: f64, to: f64| Mark::line(class, (from, middle), (to, middle));
    let Some(median) = at(Percentile::P50) else { return Vec::new() };
    let tip = |mark: Mark, name: &str, us: f64| {
        mark.tip(format!("{name}: {} \u{b5}s", microseconds(us / 1e6)))
    };
    let thin = latency.percentiles.last().map(|row| {
        let end = row.pooled * 1e6;
        tip(line("thin", median, end), row.percentile.name(), end)
    });
    let thick = at(Percentile::P99).map(|end| tip(line("thick", median, end), "p99", end));
    let dot = tip(Mark::dot("point", (median, middle), 3.6), "median", median);
    thin.into_iter().chain(thick).chain([dot]).collect()
}

/// Builds the table that compares each percentile with the baseline.
fn against(rows: &[(&Row, &LatencyRow)]) -> Table {
    let columns = [
        Column::path(),
        Column::words("", 0, None),
        Column::ratio("", 0).interval(1),
        Column::words("verdict", 0, None),
    ];
    let pairs = rows.iter().flat_map(|(row, _)| Percentile::ALL.map(|p| (row, p)));
    let cells = pairs.filter_map(|(row, percentile)| {
        let comparison = row.comparison(Metric::Latency(percentile))?;
        let [ratio, word] = Cell::comparison(row, Some(comparison));
        Some([row.cell.to_string().into(), percentile.name().into(), ratio, word])
    });
    Table::rows(columns, cells)
}
