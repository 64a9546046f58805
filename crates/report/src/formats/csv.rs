//! `csv` and `summary-csv`: the two tables as text, quoted by RFC 4180, for spreadsheets and
//! scripts. Lines end in a line feed alone, which every CSV reader accepts and every Unix tool
//! expects. A missing value is an empty field; times are UTC in RFC 3339.

use super::rows::rows;
use super::summary::cells;
use super::table::{Record, Value};
use crate::report::Report;
use bytepath_record::visible;
use std::io::{self, Write};
use time::OffsetDateTime;
use time::macros::format_description;

/// The long table.
pub(crate) static FORMAT: Report = Report {
    name: "csv",
    summary: "every value of every trial, one a line, for spreadsheets and scripts",
    extension: "csv",
    render: |subject, _, out| {
        write(subject.study.trials.iter().flat_map(|trial| rows(subject.study, trial)), out)
    },
    binary: false,
    short_names: false,
};

/// The short one.
pub(crate) static SUMMARY: Report = Report {
    name: "summary-csv",
    summary: "a line per cell: rate, cost, ratios, intervals, verdicts",
    extension: "csv",
    render: |subject, _, out| write(cells(subject), out),
    binary: false,
    short_names: false,
};

fn write<R: Record>(rows: impl Iterator<Item = R>, out: &mut dyn Write) -> io::Result<()> {
    let columns = R::columns();
    let mut table = ::csv::Writer::from_writer(out);
    table.write_record(columns.iter().map(|(name, _)| name.as_bytes())).map_err(cause)?;
    for row in rows {
        for column in 0..columns.len() {
            match row.value(column) {
                Value::None => table.write_field(""),
                Value::Text(text) => table.write_field(visible(&text).as_bytes()),
                Value::Whole(number) => table.write_field(number.to_string()),
                Value::Number(number) => table.write_field(exact(number)),
                Value::Flag(flag) => table.write_field(flag.to_string()),
                Value::Moment(ms) => table.write_field(moment(ms).unwrap_or_default()),
            }
            .map_err(cause)?;
        }
        table.write_record(None::<&[u8]>).map_err(cause)?;
    }
    table.flush()
}

/// Formats `2026-11-18T11:06:40.250Z`; `None` before the year -9999 and after 9999.
fn moment(ms: i64) -> Option<String> {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok()?;
    let format =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    at.format(format).ok()
}

/// Returns the shortest text that parses to the same number; with an exponent if plain digits would
/// be many.
fn exact(number: f64) -> String {
    match number.abs() {
        0.0 | 1e-5..1e16 => format!("{number}"),
        _ => format!("{number:e}"),
    }
}

/// Returns the I/O error, the only possible one: all records have the same length.
fn cause(error: ::csv::Error) -> io::Error {
    match error.into_kind() {
        ::csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_and_short() {
        for number in [0.0, 1.0, 0.1, -2.5, 1e-9, 28_040_000_000.0, f64::MAX, f64::MIN_POSITIVE] {
            assert_eq!(exact(number).parse::<f64>(), Ok(number));
            assert!(exact(number).len() < 25);
        }
        assert_eq!(exact(28_040_000_000.0), "28040000000");
        assert_eq!(exact(1e-9), "1e-9");
    }

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(0).unwrap(), "1970-01-01T00:00:00.000Z");
        assert_eq!(moment(1_795_000_015_250).unwrap(), "2026-11-18T11:06:55.250Z");
        assert_eq!(moment(i64::MAX), None);
    }
}
