//! Return on investment and service demand, and the power that was drawn.

use super::view::{View, mean};
use crate::document::{Cell, Column, Figure, Mark, Media, Scale, Section, Table};
use crate::wording::figures::{amount, number, rate};
use crate::wording::text::{middle_rule, powered, terms};
use bytepath_stats::{PerEnd, Row, Summary};

const ROI: &str = "T^n / C";
const POWER: &str = "T^n / P^m";
const DEMAND: &str = "CPU us per KiB";

/// Height of a row with one interval, in pixels.
const HEIGHT: f64 = 24.0;

/// What a group of columns shows of a row, and how its figures are written.
struct Measure {
    group: &'static str,
    of: fn(&Row) -> &PerEnd,
    write: fn(Option<f64>) -> String,
}

/// What came back for the cost, and the rate as published work prints it.
pub(crate) fn section(view: &View) -> Section {
    let none = PerEnd::default();
    // The service demand of anything but bytes is the cost itself.
    let rows = || view.rows.iter().copied();
    let demand = rows().any(|row| row.service_demand != none);
    let what = if demand { " and service demand" } else { "" };
    let section = Section::new("roi", format!("Return on investment{what}, per trial"));
    let returns = |row: &Row| row.roi != none || row.roi_power != none;
    let rows: Vec<&Row> = rows().filter(|row| returns(row) || row.service_demand != none).collect();
    if rows.is_empty() || (view.medium != Media::PAGE && !rows.iter().any(|row| returns(row))) {
        return section;
    }
    let roi = Measure { group: ROI, of: |row| &row.roi, write: |v| amount(v) };
    let power = Measure { group: POWER, of: |row| &row.roi_power, write: |v| amount(v) };
    let kib = Measure { group: DEMAND, of: |row| &row.service_demand, write: |v| number(v, 3) };
    let has_power = powered(view.analysis);
    let measures = [Some(roi), has_power.then_some(power), demand.then_some(kib)];
    with_measures(section, view, &rows, &measures.into_iter().flatten().collect::<Vec<_>>())
}

fn with_measures(mut section: Section, view: &View, rows: &[&Row], all: &[Measure]) -> Section {
    let mean_of_all = Column::number("", "all", 9).on(Media::PAGE);
    let mut columns = vec![Column::path(), Column::number("", "middle", 2), mean_of_all];
    columns.extend(all.iter().flat_map(|measure| per_end(measure.group, [3, 3, 0])));
    let cells = |row: &&Row| {
        let mut cells = vec![
            Cell::path(row),
            rate(row.work, row.headline.map(|h| h.mean)).into(),
            rate(row.work, mean(&row.rate)).into(),
        ];
        for Measure { of, write, .. } in all {
            let PerEnd { sender, receiver, total } = of(row);
            cells.extend(ends([*sender, *receiver, *total], *write));
        }
        cells
    };
    let table = Table::rows(columns, rows.iter().map(cells));
    for measure in all.iter().filter(|m| rows.iter().any(|row| *(m.of)(row) != PerEnd::default())) {
        section.add_on(Media::PAGE, figure(&table, rows, measure));
    }
    let middle = middle_rule(view.analysis);
    if middle.is_some() {
        let printed = table.group("").folded("The rate as published work prints it");
        section.add_on(Media::PAGE, printed);
    }
    section.add_on(Media::PLAIN, table);
    let terms = terms(view.analysis);
    let middle = middle.map(|middle| format!(" {middle}")).unwrap_or_default();
    section.note(format!("{terms}. Intervals are of the mean over the trials.{middle}"))
}

/// Columns for both ends, and for both together with the interval.
fn per_end(group: &'static str, [tx, rx, both]: [u8; 3]) -> [Column; 3] {
    [
        Column::number(group, "tx", tx),
        Column::number(group, "rx", rx),
        Column::number(group, "both", both).interval(4),
    ]
}

fn ends(of: [Option<Summary>; 3], write: impl Fn(Option<f64>) -> String) -> [Cell; 3] {
    let interval = of[2].and_then(|both| both.interval);
    let range =
        interval.map(|(low, high)| format!("[{}, {}]", write(Some(low)), write(Some(high))));
    let [tx, rx, both] = of.map(|summary| Cell::from(write(mean(&summary))));
    [tx, rx, both.within(range)]
}

/// The columns of one measure with the interval of both ends together.
fn figure(table: &Table, rows: &[&Row], measure: &Measure) -> Figure {
    let Measure { group, of, write } = measure;
    let caption = match *group {
        DEMAND => "Service demand, CPU microseconds per KiB delivered, both ends together.",
        POWER => "Return on investment by power, T\u{207f} / P\u{1d50}, both ends together.",
        _ => {
            "Return on investment, T\u{207f} / C, both ends together: the mean over the trials \
             and its interval. The exponent rewards the rate and hides cost: read it together \
             with the rate and the cost."
        }
    };
    let bounds = |s: Summary| s.interval.map_or([s.mean, s.mean], |(low, high)| [low, high]);
    let totals = rows.iter().filter_map(|row| of(row).total);
    let scale = Scale::over(totals.flat_map(bounds).chain([0.0]));
    let middle = HEIGHT / 2.0;
    let text = |value: f64| write(Some(value));
    let marks = |row: &&Row| -> Vec<Mark> {
        let Some(both) = of(row).total else { return Vec::new() };
        let span = both.interval.map(|(low, high)| {
            let span = Mark::line("thin", (low, middle), (high, middle));
            span.tip(format!("interval: {} to {}", text(low), text(high)))
        });
        let dot = Mark::dot("point", (both.mean, middle), 3.6);
        let dot = dot.tip(format!("mean: {}", text(both.mean)));
        span.into_iter().chain([dot]).collect()
    };
    Figure::rows(caption, table.group(group), (scale, HEIGHT), rows.iter().map(marks))
}

/// Watts and joules per unit of work, where a meter reported power.
pub(crate) fn energy(view: &View) -> Section {
    let terms = view.analysis.work().terms();
    let mut columns = vec![Column::path()];
    columns.extend(per_end("watts", [2, 2, 1]));
    columns.extend(per_end(terms.energy_unit, [2, 2, 0]));
    columns.push(Column::number("", "trials", 3));
    let cells = view.rows.iter().filter_map(|row| {
        let energy = row.energy()?;
        let mut cells = vec![Cell::path(row)];
        for (figures, scale) in energy.iter().zip([1.0, terms.energy_scale]) {
            let write = |value: Option<f64>| number(value.map(|v| v * scale), 1);
            cells.extend(ends(*figures, write).map(|cell| cell.strong_if(row.baseline)));
        }
        let trials = energy[0].iter().flatten().map(|s| s.n as f64).reduce(f64::max);
        cells.push(number(trials, 0).into());
        Some(cells)
    });
    Section::new("energy", "Energy").with(Table::rows(columns, cells)).note(
        "Watts: mean over the window, as seen by the source (`docs/reference/meters.md`): figures of \
         different sources do not compare.",
    )
}
