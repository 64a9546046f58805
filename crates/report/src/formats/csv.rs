//! `csv`: the long table as text, quoted by RFC 4180, for spreadsheets and
//! scripts. Lines end in a line feed alone, which every CSV reader accepts and
//! every Unix tool expects. An absent value is an empty field.

use super::rows::{COLUMNS, Value, rows};
use crate::report::{Report, Style, Subject};
use bytepath_record::visible;
use std::io::{self, Write};

/// See the module's text.
pub(crate) static FORMAT: Report = Report {
    name: "csv",
    summary: "every value of every trial, one a line, for spreadsheets and scripts",
    extension: "csv",
    render,
    binary: false,
    short_names: false,
};

fn render(subject: &Subject, _: &Style, out: &mut dyn Write) -> io::Result<()> {
    let study = subject.study;
    let mut table = ::csv::Writer::from_writer(out);
    table.write_record(COLUMNS.iter().map(|c| c.name)).map_err(cause)?;
    for trial in &study.trials {
        for row in rows(study, trial) {
            for column in COLUMNS {
                match (column.of)(&row) {
                    Value::None => table.write_field(""),
                    Value::Text(text) => table.write_field(visible(&text).as_bytes()),
                    Value::Whole(number) => table.write_field(number.to_string()),
                    Value::Number(number) => table.write_field(exact(number)),
                    Value::Flag(flag) => table.write_field(flag.to_string()),
                }
                .map_err(cause)?;
            }
            table.write_record(None::<&[u8]>).map_err(cause)?;
        }
    }
    table.flush()
}

/// The shortest text that reads as the same number again; an exponent where
/// plain digits would be many.
fn exact(number: f64) -> String {
    match number.abs() {
        0.0 | 1e-5..1e16 => format!("{number}"),
        _ => format!("{number:e}"),
    }
}

/// Records all have the same length, so that only `out` can fail.
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
}
