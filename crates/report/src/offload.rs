//! Copy engines compared with a first one: from which size each pays off, in sentences that every format
//! shares, and engines alone as text.

use super::Style;
use super::figures::{NONE, bytes, digits, interval, number, ratio};
use super::page::{Page, Tone};
use super::table::{Column, Table};
use bytepath_record::{Levels, Work};
use bytepath_stats::{Analysis, BreakEven, CopyAt, CopyComparison, CopyRow, Effect, Pays};
use std::io::{self, Write};

/// From which size on the copy engines of a study pay; nothing where it has none.
pub(crate) fn sentences(analysis: &Analysis) -> Vec<String> {
    let Some(found) = &analysis.offloading else { return Vec::new() };
    let of = |line: &BreakEven<Levels>| {
        let with = match levels(&line.at) {
            at if at.is_empty() => String::new(),
            at => format!(" with {at}"),
        };
        sentence(line, &with, &found.first, analysis.work())
    };
    let mut lines: Vec<String> = found.break_even.iter().map(of).collect();
    lines.extend(found.break_even.iter().any(|line| line.model).then(|| format!("{MODEL}.")));
    lines
}

/// What to know about a model's figures.
pub const MODEL: &str = "(model): a software device with a configured latency and bandwidth; \
    it shows that the driver is correct, not how fast a device is";

/// Levels in one line: `writer=thread, mtu=9000`.
pub(crate) fn levels(levels: &Levels) -> String {
    let each = levels.iter().map(|(factor, level)| format!("{factor}={level}"));
    each.collect::<Vec<_>>().join(", ")
}

/// Writes break-evens, then a table of all cells.
pub fn offload(
    (rows, found): (&[CopyRow], &[BreakEven]),
    notes: &[String],
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut page = Page::new(style.width, style.colour);
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
        table(&rows).print(&mut page, 0);
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
        table.row(cells.map(|cell| (cell, Tone::Plain)).into());
    }
    table
}

/// `dsa-model (model)`: the label says wherever it is named that its times are not a device's.
pub(crate) fn name(engine: &str, model: bool) -> String {
    if model { format!("{engine} (model)") } else { engine.to_owned() }
}

pub(crate) fn effect_text(effect: Option<&Effect>) -> String {
    let Some(effect) = effect else { return NONE.into() };
    let range = effect.interval.map(|i| format!(" {}", interval(i.low, i.high)));
    format!("{}{}", ratio(effect.ratio), range.unwrap_or_default())
}

/// How copies of an engine alone are done.
fn shape(CopyAt { depth, batch, rotate }: &CopyAt) -> String {
    let under_way = if *depth == 1 { "1 copy".into() } else { format!("{depth} copies") };
    let batches = if *batch > 1 { format!(" in batches of {batch}") } else { String::new() };
    let memory = if *rotate { ", 128 MiB in rotation" } else { ", in cache" };
    format!(" with {under_way} in flight{batches}{memory}")
}

fn sentence<A>(line: &BreakEven<A>, with: &str, first: &str, work: Work) -> String {
    let BreakEven { engine, model, pays, from, largest, .. } = line;
    let engine = name(engine, *model);
    let unit = work.terms().unit;
    let (what, not, more) = match pays {
        Pays::Time => (
            "saves the caller's time",
            "does not save the caller's time",
            format!("of its time for a copy of {first} there"),
        ),
        Pays::Rate => ("is faster", "is not faster", format!("the rate of {first} there")),
        Pays::Cpu => (
            "saves the sender's CPU time",
            "does not save the sender's CPU time",
            format!("of its CPU time per {unit} with {first} there"),
        ),
    };
    match from {
        Some((size, effect)) => format!(
            "{engine} {what} from {} on{with}: {} {more}.",
            bytes(*size as f64),
            effect_text(Some(effect)),
        ),
        None => format!("{engine} {not} with certainty up to {}{with}.", bytes(*largest as f64)),
    }
}
