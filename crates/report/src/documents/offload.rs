//! Copy engines alone, compared with a first one.

use crate::document::{Column, Document, Section, Table};
use crate::wording::figures::{bytes, digits, effect_text, number};
use crate::wording::offload::{name, sentence, shape};
use bytepath_record::Work;
use bytepath_stats::{BreakEven, CopyRow};

/// Break-evens, then a table of all cells.
pub fn offload(rows: &[CopyRow], break_even: &[BreakEven], notes: &[String]) -> Document {
    let mut page = Document::default();
    let first = rows.first().map_or("", |row| row.beside.cell.engine.as_str());
    for line in break_even {
        page.text("", sentence(line, &shape(&line.at), first, Work::Bytes));
    }
    for rotate in [false, true] {
        let rows = rows.iter().filter(|row| row.beside.cell.at.rotate == rotate);
        let title = if rotate { "128 MiB in rotation" } else { "The same few buffers" };
        page.push([Section::new("", title).with(table(rows).flush())]);
    }
    page.gap();
    let rule = format!(
        "caller: its time for a copy, in submissions and successful polls; \
         empty polls count as time for other work. latency: from submission to \
         the poll that found the copy done. Ratios are to {first}, block by block, \
         with individual intervals."
    );
    page.text("", rule);
    notes.iter().for_each(|note| page.text("- ", note));
    page
}

fn table<'a>(rows: impl Iterator<Item = &'a CopyRow>) -> Table {
    let rows = rows.map(|row| (&row.beside, &row.beside.cell, &row.mean));
    Table::of(
        rows,
        [
            (Column::words("engine", 0, Some(9)), |(_, cell, _)| name(&cell.engine, cell.model)),
            (Column::number("", "size", 0), |(_, cell, _)| bytes(cell.size as f64)),
            (Column::number("", "depth", 0), |(_, cell, _)| cell.at.depth.to_string()),
            (Column::number("", "batch", 3), |(_, cell, _)| cell.at.batch.to_string()),
            (Column::number("", "GB/s", 0), |(.., mean)| three(mean.rate / 1e9)),
            (Column::number("", "ratio", 1), |(beside, ..)| effect_text(beside.faster.as_ref())),
            (Column::number("", "caller ns", 0), |(.., mean)| three(mean.caller * 1e9)),
            (Column::number("", "submit ns", 3), |(.., mean)| three(mean.submitting * 1e9)),
            (Column::number("", "ratio", 1), |(beside, ..)| effect_text(beside.dearer.as_ref())),
            (Column::number("", "latency us", 2), |(.., mean)| three(mean.latency * 1e6)),
            (Column::number("", "polls", 2), |(.., mean)| three(mean.polls)),
        ],
    )
}

/// Three significant digits, and at most three decimals.
fn three(value: f64) -> String {
    number(value, digits(value, 3).min(3))
}
