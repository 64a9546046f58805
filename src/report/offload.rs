//! Copy engines beside the CPU, as text: from which size each pays comes first.

use super::Style;
use super::figures::{NONE, bytes, digits, interval, number, ratio};
use super::page::{Page, Tone};
use super::table::{Column, Table};
use crate::stats::{BreakEven, CopyAt, CopyRow, Effect, Pays};
use std::io::{self, Write};

/// Writes break-evens, then a table of all cells.
pub fn offload(
    (rows, found): (&[CopyRow], &[BreakEven]),
    notes: &[String],
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut page = Page::new(style.width, style.colour);
    let first = rows.first().map_or("", |row| row.cell.engine.as_str());
    for line in found {
        page.text("", &sentence(line, first));
    }
    for rotate in [false, true] {
        let rows: Vec<&CopyRow> = rows.iter().filter(|row| row.cell.at.rotate == rotate).collect();
        if rows.is_empty() {
            continue;
        }
        page.heading(if rotate { "128 MiB in rotation" } else { "The same few buffers" });
        table(&rows).print(&mut page, 0);
    }
    page.gap();
    page.text(
        "",
        &format!(
            "caller: its time for a copy, within submissions and polls that found something; \
             empty polls are time it has for other work. latency: from submission to the poll \
             that found it done. Ratios are to {first}, block by block, with their intervals, \
             each for itself."
        ),
    );
    for note in notes {
        page.text("- ", note);
    }
    page.finish(out)
}

fn table(rows: &[&CopyRow]) -> Table {
    let mut table = Table::new(vec![
        Column::words("engine", 0, Some(9)),
        Column::number("", "size", 0),
        Column::number("", "depth", 0),
        Column::number("", "batch", 3),
        Column::number("", "GB/s", 0),
        Column::number("", "ratio", 1),
        Column::number("", "caller ns", 0),
        Column::number("", "submit ns", 3),
        Column::number("", "ratio", 1),
        Column::number("", "latency us", 2),
        Column::number("", "polls", 2),
    ]);
    for row in rows {
        let CopyRow { cell, mean, faster, dearer, .. } = row;
        let three = |value: f64| number(value, digits(value, 3).min(3));
        let cells = [
            name(&cell.engine, cell.model),
            bytes(cell.size.into()),
            cell.at.depth.to_string(),
            cell.at.batch.to_string(),
            three(mean.rate / 1e9),
            beside(faster.as_ref()),
            three(mean.caller * 1e9),
            three(mean.submitting * 1e9),
            beside(dearer.as_ref()),
            three(mean.latency * 1e6),
            three(mean.polls),
        ];
        table.row(cells.map(|cell| (cell, Tone::Plain)).into());
    }
    table
}

/// `dsa-model (model)`: whose times are no device's is said wherever it is named.
fn name(engine: &str, model: bool) -> String {
    if model { format!("{engine} (model)") } else { engine.to_owned() }
}

fn beside(effect: Option<&Effect>) -> String {
    let Some(effect) = effect else { return NONE.into() };
    let range = effect.interval.map(|i| format!(" {}", interval(i.low, i.high)));
    format!("{}{}", ratio(effect.ratio), range.unwrap_or_default())
}

fn sentence(line: &BreakEven, first: &str) -> String {
    let BreakEven { engine, model, at: CopyAt { depth, batch, rotate }, pays, from, largest } =
        line;
    let engine = name(engine, *model);
    let under_way = if *depth == 1 { "1 copy".into() } else { format!("{depth} copies") };
    let batches = if *batch > 1 { format!(" in batches of {batch}") } else { String::new() };
    let memory = if *rotate { ", 128 MiB in rotation" } else { ", in cache" };
    let with = format!("with {under_way} under way{batches}{memory}");
    let (what, more) = match pays {
        Pays::Time => ("saves the caller's time", "of its time for a copy"),
        Pays::Rate => ("is faster", "times the rate"),
    };
    match from {
        Some((size, effect)) => format!(
            "{engine} {what} from {} on {with}: {} {more} of {first} there.",
            bytes(f64::from(*size)),
            beside(Some(effect)),
        ),
        None => format!(
            "{engine} {} up to {} {with}.",
            match pays {
                Pays::Time => "does not save the caller's time beyond doubt",
                Pays::Rate => "is not faster beyond doubt",
            },
            bytes(f64::from(*largest))
        ),
    }
}
