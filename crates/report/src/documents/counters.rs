//! The counters of two texts side by side.

use crate::document::{Column, Document, Table};
use crate::wording::figures::{NONE, digits, ratio};
use bytepath_profile::counts::{Compared, ComparedRow};
use std::io::{self, Write};

/// Shows counter, before, after and ratio; derived figures are in a separate table.
pub fn counters(compared: &Compared) -> Document {
    let mut page = Document::default();
    let [before, after] = &compared.titles;
    page.text("before  ", before);
    page.text("after   ", after);
    if let Some([before, after]) = compared.work {
        page.text("work    ", format!("{before} units before, {after} after"));
    }
    for derived in [false, true] {
        let title = if derived { "worked out" } else { "counter" };
        let table = Table::of(
            compared.rows.iter().filter(|row| row.derived == derived),
            [
                (Column::words(title, 0, Some(24)), |row| name(row)),
                (Column::number("", "before", 0), |row| value(row.before)),
                (Column::number("", "after", 0), |row| value(row.after)),
                (Column::number("", "ratio", 0), |row| ratio(row.ratio)),
            ],
        );
        page.gap();
        page.add(table.flush());
    }
    page.gap();
    page.text("", "ratio = after / before. - means that nothing was counted, or a ratio to zero.");
    compared.notes.iter().for_each(|note| page.text("- ", note));
    page
}

/// Writes one row per counter, with tabs in between.
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

/// Formats `app: write (calls)`.
fn name(row: &ComparedRow) -> String {
    let group = if row.group.is_empty() { String::new() } else { format!("{}: ", row.group) };
    let unit = if row.unit.is_empty() { String::new() } else { format!(" ({})", row.unit) };
    format!("{group}{}{unit}", row.name)
}

/// Formats all digits of a count, four significant digits of anything else.
fn value(value: Option<f64>) -> String {
    match value {
        None => NONE.into(),
        Some(count) if count.fract() == 0.0 && count.abs() < 1e15 => format!("{count:.0}"),
        Some(value) => format!("{value:.*}", digits(value.abs(), 4)),
    }
}
