//! Copy engines without a study, compared with a first one.

use crate::document::{Column, Document, Section, Table};
use crate::wording::figures::{bytes, digits, effect_text, number};
use crate::wording::offload::{name, sentence, shape};
use bytepath_record::Work;
use bytepath_stats::{BreakEven, CopyRow};

/// Shows break-evens, then tables of all cells. `absent` lists engines that cannot run here, with
/// the reason.
pub fn offload(
    rows: &[CopyRow],
    break_even: &[BreakEven],
    absent: &[(String, String)],
    notes: &[String],
) -> Document {
    let mut page = Document::default();
    let first = rows.first().map_or("", |row| row.comparison.cell.engine.as_str());
    for line in break_even {
        page.text("", sentence(line, &shape(&line.at), first, Work::Bytes));
    }
    for rotate in [false, true] {
        let rows: Vec<&CopyRow> =
            rows.iter().filter(|row| row.comparison.cell.at.rotate == rotate).collect();
        let memory = if rotate { "128 MiB in rotation" } else { "The same few buffers" };
        let of = |what, table: Table| Section::new("", format!("{memory}: {what}")).with(table);
        page.push([of("rate and latency", rates(&rows).flush())]);
        page.push([of("what the caller pays", costs(&rows).flush())]);
    }
    if !absent.is_empty() {
        let reasons = Table::of(
            absent.iter(),
            [
                (Column::words("engine", 0, Some(9)), |(engine, _)| engine.clone()),
                (Column::words("why", 0, Some(20)), |(_, why)| why.clone()),
            ],
        );
        page.push([Section::new("", "Not measured").with(reasons.flush())]);
    }
    page.gap();
    let rule = format!(
        "caller: its time for a copy, in submissions and successful polls; \
         empty polls count as time for other work. latency: from just before a \
         submission to the poll that found the copy done. peak: bytes by latency, of a copy that is \
         alone in flight. Ratios are to {first}, block by block, \
         with individual intervals."
    );
    page.text("", rule);
    notes.iter().for_each(|note| page.text("- ", note));
    page
}

fn rates(rows: &[&CopyRow]) -> Table {
    let [engine, size, depth, batch] = cell();
    let rate: Figure = |row| three(row.mean.rate / 1e9);
    Table::of(
        rows.iter(),
        [
            engine,
            size,
            depth,
            batch,
            (Column::number("", "GB/s", 0), rate),
            (Column::number("", "ratio", 0), |row| effect_text(row.comparison.faster.as_ref())),
            (Column::number("", "peak GB/s", 0), peak),
            (Column::number("", "latency us", 0), |row| three(row.mean.latency * 1e6)),
            (Column::number("", "polls", 0), |row| three(row.mean.polls)),
        ],
    )
}

/// Returns the bandwidth of a single copy: its bytes over its latency. With others in flight, a
/// copy's latency includes theirs.
fn peak(row: &&&CopyRow) -> String {
    match row.comparison.cell.at.depth {
        1 => three(row.comparison.cell.size as f64 / row.mean.latency / 1e9),
        _ => String::new(),
    }
}

fn costs(rows: &[&CopyRow]) -> Table {
    let [engine, size, depth, batch] = cell();
    let caller: Figure = |row| three(row.mean.caller * 1e9);
    Table::of(
        rows.iter(),
        [
            engine,
            size,
            depth,
            batch,
            (Column::number("", "caller ns", 0), caller),
            (Column::number("", "submit ns", 0), |row| three(row.mean.submitting * 1e9)),
            (Column::number("", "ratio", 0), |row| effect_text(row.comparison.dearer.as_ref())),
        ],
    )
}

/// Formats a column of a row.
type Figure = fn(&&&CopyRow) -> String;

/// Returns the columns that identify a cell; they are never dropped for lack of room.
fn cell() -> [(Column, Figure); 4] {
    let engine: Figure = |row| name(&row.comparison.cell.engine, row.comparison.cell.model);
    [
        (Column::words("engine", 0, Some(9)), engine),
        (Column::number("", "size", 0), |row| bytes(row.comparison.cell.size as f64)),
        (Column::number("", "depth", 0), |row| row.comparison.cell.at.depth.to_string()),
        (Column::number("", "batch", 0), |row| row.comparison.cell.at.batch.to_string()),
    ]
}

/// Formats three significant digits, with at most three decimals.
fn three(value: f64) -> String {
    number(value, digits(value, 3).min(3))
}
