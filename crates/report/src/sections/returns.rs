//! Return on investment, service demand, and power.

use super::view::{View, mean};
use crate::document::{Cell, Column, Figure, Mark, Media, Scale, Section, Table};
use crate::wording::figures::{amount, number, rate};
use crate::wording::text::{middle_rule, powered, terms};
use bytepath_stats::{PerEnd, Row, Summary};

const ROI: &str = "T^n / C";
const POWER: &str = "T^n / P^m";
const DEMAND: &str = "CPU us per KiB";

/// The bars of a row: an end or both, its colour, and its vertical extent in pixels.
const BARS: [(&str, &str, f64, f64); 3] =
    [("tx", "user", 4.0, 13.0), ("rx", "system", 15.0, 24.0), ("both", "softirq", 26.0, 35.0)];

/// Height of a row with bars, in pixels.
const HEIGHT: f64 = 39.0;

/// A group of columns: the figures of a row, and how they are formatted.
struct Measure {
    group: &'static str,
    of: fn(&Row) -> &PerEnd,
    write: fn(Option<f64>) -> String,
}

/// Shows return on investment and service demand, and the rate as published work prints it.
pub(crate) fn section(view: &View) -> Section {
    let none = PerEnd::default();
    // Service demand is defined for bytes only.
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
        let all = rows.iter().map(|row| (measure.of)(row).clone()).collect::<Vec<_>>();
        let shown = table.group(measure.group);
        section.add_on(Media::PAGE, figure(caption(measure.group), shown, &all, measure.write));
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

/// Returns the columns for both ends, and for both together with the interval.
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

/// Returns a note on how to read the bars of a measure.
fn caption(group: &str) -> &'static str {
    match group {
        DEMAND => "Service demand, CPU microseconds per KiB delivered.",
        POWER => "Return on investment by power, T\u{207f} / P\u{1d50}.",
        _ => {
            "Return on investment, T\u{207f} / C: the mean over the trials and its interval. The \
             exponent rewards the rate and hides cost: read it together with the rate and the cost."
        }
    }
}

/// Draws bars with intervals for each end, and for both together, next to the columns of a table.
fn figure(
    caption: &str,
    table: Table,
    rows: &[PerEnd],
    write: impl Fn(Option<f64>) -> String,
) -> Figure {
    let summaries = |of: &PerEnd| [of.sender, of.receiver, of.total];
    let bounds = |s: Summary| s.interval.map_or([s.mean, s.mean], |(low, high)| [low, high]);
    let all = || rows.iter().flat_map(summaries).flatten();
    let scale = Scale::over(all().flat_map(bounds).chain(all().map(|s| s.mean)).chain([0.0]));
    let marks = |of: &PerEnd| -> Vec<Mark> {
        let bars = BARS.into_iter().zip(summaries(of));
        let marks = bars.filter_map(|((end, colour, top, bottom), s)| {
            let (mean, middle) = (s?.mean, (top + bottom) / 2.0);
            let range = s?.interval.map_or(String::new(), |(low, high)| {
                format!(", {} to {}", write(Some(low)), write(Some(high)))
            });
            let bar = Mark::bar(colour, (0.0, top), (mean, bottom));
            let bar = bar.tip(format!("{end}: {}{range}", write(Some(mean))));
            let line = |(low, high)| Mark::line("mean", (low, middle), (high, middle));
            Some([Some(bar), s?.interval.map(line)].into_iter().flatten())
        });
        marks.flatten().collect()
    };
    let marks: Vec<Vec<Mark>> = rows.iter().map(marks).collect();
    let has = |at: &usize| rows.iter().any(|of| summaries(of)[*at].is_some());
    let key = (0..BARS.len()).filter(has).map(|at| (BARS[at].1, BARS[at].0.to_owned())).collect();
    Figure { key, ..Figure::rows(caption, table, (scale, HEIGHT), marks) }
}

/// Shows watts and joules per unit of work, if a meter reported power.
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
    let table = Table::rows(columns, cells);
    let mut section = Section::new("energy", "Energy");
    if !table.rows.is_empty() {
        let watts = view.rows.iter().filter_map(|row| {
            let [[sender, receiver, total], _] = row.energy()?;
            Some(PerEnd { sender, receiver, total })
        });
        let watts: Vec<PerEnd> = watts.collect();
        let caption = "Power in watts: the mean over the trials and its interval.";
        let shown = table.group("watts");
        section.add_on(Media::PAGE, figure(caption, shown, &watts, |watts| number(watts, 1)));
    }
    section.with(table).note(
        "Watts: mean over the window, as seen by the source (`docs/reference/meters.md`): figures of \
         different sources do not compare.",
    )
}
