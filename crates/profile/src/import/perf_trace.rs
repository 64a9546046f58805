//! Output of `perf trace -s`, alone or in a mail: system calls by thread with their number, errors
//! and milliseconds. Times are from call to return, including waits.
//!
//! ```text
//!  iperf3 (8865), 218 events, 97.3%
//!    write       2833      0   123.456     0.001     0.043     1.234      1.23%
//! ```

use super::counters;
use super::format::CountsImporter;
use super::number::{decimal, whole};
use crate::counts::{Count, Counts};
use crate::text::quote;
use bytepath_record::Fault;
use std::io::BufRead;

/// See the module documentation.
pub(super) static FORMAT: CountsImporter = CountsImporter {
    name: "perf-trace",
    summary: "what `perf trace -s` prints, also as found in a mail",
    recognises,
    read,
};

fn recognises(head: &[u8]) -> bool {
    counters::recognises(head, |text| matches!(call(text), Ok(Some(_))))
}

fn read(title: &str, table: Option<usize>, input: &mut dyn BufRead) -> Result<Counts, Fault> {
    let mut thread = String::new();
    counters::read((title, table), input, "a system call", |text, tables, line| {
        if let Some(call) = call(text)? {
            for (unit, value) in call.values {
                let (group, name) = (thread.clone(), call.name.to_owned());
                let (unit, value) = (unit.to_owned(), Some(value));
                tables.add(Count { group, name, unit, value, ..Count::default() }, line);
            }
        } else if let Some(name) = traced(text) {
            thread = name.to_owned();
        } else if text.starts_with("Summary of events") {
            tables.ended = true;
        } else if !text.is_empty() && !is_heading(text) {
            tables.skipped += 1;
        }
        Ok(())
    })
}

#[derive(Debug, PartialEq)]
struct Call<'a> {
    name: &'a str,
    /// The values with their units.
    values: [(&'static str, f64); 3],
}

/// Parses `write 2833 0 123.456 0.001 0.043 1.234 1.23%`, in older versions without the errors;
/// `None` if it is not a row.
fn call(text: &str) -> Result<Option<Call<'_>>, String> {
    let tokens: Vec<&str> = text.split_ascii_whitespace().collect();
    let [name, rest @ .., deviation] = tokens.as_slice() else { return Ok(None) };
    let numeric = |token: &&str| token.starts_with(|c: char| c.is_ascii_digit());
    if !deviation.ends_with('%') || rest.len() < 4 || !rest.iter().all(numeric) {
        return Ok(None);
    }
    let (calls, errors, times) = match rest {
        [calls, times @ ..] if times.len() == 4 => (calls, &"0", times),
        [calls, errors, times @ ..] if times.len() == 4 => (calls, errors, times),
        _ => return Err("has more or fewer columns than perf trace prints".into()),
    };
    if numeric(name) || name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        return Err(format!("begins with {}, which is not a system call", quote(name)));
    }
    let count = |text: &str| {
        let count = whole(text).map(|n| n as f64);
        count.ok_or_else(|| format!("has {}, which is not a number", quote(text)))
    };
    let [total, ..] = times else { return Ok(None) };
    for time in times {
        milliseconds(time)?;
    }
    let values =
        [("calls", count(calls)?), ("errors", count(errors)?), ("ms", milliseconds(total)?)];
    Ok(Some(Call { name, values }))
}

/// Parses a time. Times have three decimals, so a single mark is the decimal one.
fn milliseconds(text: &str) -> Result<f64, String> {
    let bad = || format!("has {}, which is not a time in milliseconds", quote(text));
    let (whole, part) =
        text.rsplit_once(['.', ',']).filter(|(_, part)| part.len() == 3).ok_or_else(bad)?;
    decimal(&format!("{whole}.{part}")).ok_or_else(bad)
}

/// Parses `app (8865), 218 events, 97.3%`, to the thread's name.
fn traced(text: &str) -> Option<&str> {
    let (name, events) = text.split_once("), ")?;
    let (name, id) = name.rsplit_once(" (")?;
    let counted = events.split_once(" events")?.0;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(id) && digits(counted)).then_some(name.trim())
}

fn is_heading(text: &str) -> bool {
    text.starts_with("syscall ") || text.starts_with("(msec)") || text.starts_with("---")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made up, in the form of perf 6.1.
    const SUMMARY: &str = "\
> Summary of events:
>
> app (71), 30 events, 97.3%
>
>   syscall            calls  errors  total       min       avg       max       stddev
>                                     (msec)    (msec)    (msec)    (msec)        (%)
>   --------------- --------  ------ -------- --------- --------- ---------     ------
>   write                 12      1    50.087     0.087     4.000    20.087      1.00%
So much for that.
> app (72), 4 events, 2.7%
>   write                  3      0     1,500     0,100     0,500     0,900      0,50%
";

    #[test]
    fn calls_of_every_thread_are_read() {
        let counts = read("t", None, &mut SUMMARY.as_bytes()).unwrap();
        assert!(recognises(SUMMARY.as_bytes()));
        let rows: Vec<_> = counts
            .rows
            .iter()
            .map(|r| (r.group.as_str(), r.name.as_str(), r.unit.as_str(), r.value.unwrap()))
            .collect();
        assert_eq!(
            rows,
            [
                ("app", "write", "calls", 12.0),
                ("app", "write", "errors", 1.0),
                ("app", "write", "ms", 50.087),
                ("app", "write", "calls", 3.0),
                ("app", "write", "errors", 0.0),
                ("app", "write", "ms", 1.5),
            ]
        );
        assert_eq!(counts.notes, ["left out: 1 line of other text"]);
        let twice = format!("{SUMMARY}{SUMMARY}");
        let second = read("t", Some(2), &mut twice.as_bytes()).unwrap();
        assert_eq!(second.rows, counts.rows);
    }

    #[test]
    fn rows_of_older_versions_have_no_errors() {
        let found = call("read 7 3.000 0.001 0.430 1.234 1.23%").unwrap().unwrap();
        assert_eq!(found.values, [("calls", 7.0), ("errors", 0.0), ("ms", 3.0)]);
    }

    #[test]
    fn skips_call_graphs_and_refuses_other_lines() {
        assert_eq!(call("we saw 12 of them, 50%"), Ok(None));
        for text in [
            "read 7 0 3.000 0.001 0.430 1.234 1.0 1.23%",
            "read 7.5.1 3.000 0.001 0.430 1.234 1.23%",
            "read 7 3.00 0.001 0.430 1.234 1.23%",
            "re;ad 7 3.000 0.001 0.430 1.234 1.23%",
        ] {
            assert!(call(text).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_calls_or_a_fault(text in "(([a-z]{1,4}|[0-9.,]{1,6}|[0-9]%) ?){0,60}") {
            let _ = recognises(text.as_bytes());
            let _ = read("t", None, &mut text.as_bytes());
        }
    }
}
