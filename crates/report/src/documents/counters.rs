//! Counters of two texts, side by side.

use crate::document::{Column, Document, Table};
use crate::render::plain;
use crate::report::Style;
use crate::wording::figures::{NONE, digits, ratio};
use bytepath_profile::counts::{Compared, ComparedRow};
use std::io::{self, Write};

/// Prints counter, before, after and ratio; what follows from the counters in a table of its own.
pub fn counters(compared: &Compared, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut page = Document::default();
    let [before, after] = &compared.titles;
    page.text("before  ", before);
    page.text("after   ", after);
    if let Some([before, after]) = compared.work {
        page.text("work    ", &format!("{before} units before, {after} after"));
    }
    for derived in [false, true] {
        let rows: Vec<&ComparedRow> =
            compared.rows.iter().filter(|row| row.derived == derived).collect();
        if rows.is_empty() {
            continue;
        }
        page.gap();
        let mut table = Table::new(vec![
            Column::words(if derived { "worked out" } else { "counter" }, 0, Some(24)),
            Column::number("", "before", 0),
            Column::number("", "after", 0),
            Column::number("", "ratio", 0),
        ]);
        for row in rows {
            let values = [value(row.before), value(row.after), ratio(row.ratio)];
            let cells = std::iter::once(name(row)).chain(values);
            table.row(cells);
        }
        page.table(table.flush());
    }
    page.gap();
    page.text("", "ratio = after / before. - means that nothing was counted, or a ratio to zero.");
    for note in &compared.notes {
        page.text("- ", note);
    }
    plain::write(&page, style, out)
}

/// One row a counter, tabs between.
pub fn counters_tsv(compared: &Compared, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "group\tcounter\tunit\tbefore\tafter\tratio\tderived")?;
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    for row in &compared.rows {
        let ComparedRow { group, name, unit, before, after, ratio, derived } = row;
        let [before, after, ratio] = [before, after, ratio].map(|value| number(*value));
        writeln!(out, "{group}\t{name}\t{unit}\t{before}\t{after}\t{ratio}\t{derived}")?;
    }
    Ok(())
}

/// `app: write (calls)`.
fn name(row: &ComparedRow) -> String {
    let group = if row.group.is_empty() { String::new() } else { format!("{}: ", row.group) };
    let unit = if row.unit.is_empty() { String::new() } else { format!(" ({})", row.unit) };
    format!("{group}{}{unit}", row.name)
}

/// All digits of a count, four of anything else.
fn value(value: Option<f64>) -> String {
    match value {
        None => NONE.into(),
        Some(count) if count.fract() == 0.0 && count.abs() < 1e15 => format!("{count:.0}"),
        Some(value) => format!("{value:.*}", digits(value.abs(), 4)),
    }
}
