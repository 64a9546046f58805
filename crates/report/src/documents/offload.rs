//! Copy engines alone, compared with a first one.

use crate::Style;
use crate::document::{Column, Document, Table};
use crate::render::plain;
use crate::wording::figures::{bytes, digits, number};
use crate::wording::offload::{effect_text, name, sentence, shape};
use bytepath_record::Work;
use bytepath_stats::{BreakEven, CopyComparison, CopyRow};
use std::io::{self, Write};

/// Writes break-evens, then a table of all cells.
pub fn offload(
    (rows, found): (&[CopyRow], &[BreakEven]),
    notes: &[String],
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut page = Document::default();
    let first = rows.first().map_or("", |row| row.beside.cell.engine.as_str());
    for line in found {
        page.text("", &sentence(line, &shape(&line.at), first, Work::Bytes));
    }
    for rotate in [false, true] {
        let here = |row: &&CopyRow| row.beside.cell.at.rotate == rotate;
        let rows: Vec<&CopyRow> = rows.iter().filter(here).collect();
        if rows.is_empty() {
            continue;
        }
        page.heading(if rotate { "128 MiB in rotation" } else { "The same few buffers" });
        page.table(table(&rows).flush());
    }
    page.gap();
    page.text(
        "",
        &format!(
            "caller: its time for a copy, in submissions and successful polls; \
             empty polls count as time for other work. latency: from submission to \
             the poll that found the copy done. Ratios are to {first}, block by block, \
             with individual intervals."
        ),
    );
    for note in notes {
        page.text("- ", note);
    }
    plain::write(&page, style, out)
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
        let CopyRow { beside: CopyComparison { cell, faster, dearer }, mean, .. } = row;
        let three = |value: f64| number(value, digits(value, 3).min(3));
        let cells = [
            name(&cell.engine, cell.model),
            bytes(cell.size as f64),
            cell.at.depth.to_string(),
            cell.at.batch.to_string(),
            three(mean.rate / 1e9),
            effect_text(faster.as_ref()),
            three(mean.caller * 1e9),
            three(mean.submitting * 1e9),
            effect_text(dearer.as_ref()),
            three(mean.latency * 1e6),
            three(mean.polls),
        ];
        table.row(cells);
    }
    table
}
