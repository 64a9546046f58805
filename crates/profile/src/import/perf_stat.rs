//! Output of `perf stat`, alone or in a mail: `1,234 cycles # 1.2 GHz (50.24%)`. It is read by
//! tokens, with several counters in a line if a mail has joined them. What follows `#` is not read:
//! it is derived from the counters.
//!
//! ```text
//!      8,512,340,115      cycles          #    2.839 GHz       (50.24%)
//!        3.001725401 seconds time elapsed
//! ```

use super::counters;
use super::format::CountsImporter;
use super::lines::first_lines;
use super::mail::unquoted;
use super::number::{decimal, whole};
use crate::counts::{Count, Counts};
use crate::text::quote;
use bytepath_record::Fault;
use std::io::BufRead;

/// See the module documentation.
pub(super) static FORMAT: CountsImporter = CountsImporter {
    name: "perf-stat",
    summary: "what `perf stat` prints, also as found in a mail",
    recognises,
    read,
};

/// Excludes stacks of addresses, among which those without a letter look like counters.
fn recognises(head: &[u8]) -> bool {
    let is_row = |text: &str| matches!(parse(text), Ok(rows) if !rows.is_empty());
    let count = |is_row: &dyn Fn(&str) -> bool| {
        first_lines(head).filter(|line| is_row(&String::from_utf8_lossy(line))).count()
    };
    counters::recognises(head, is_row)
        && count(&is_address) <= count(&|text| is_row(unquoted(text)))
}

/// Returns whether a line begins with an address that is hardly a decimal number: `9ff0 main`.
fn is_address(line: &str) -> bool {
    let Some((first, _)) = line.trim_start().split_once(' ') else { return false };
    let has = |is: fn(&char) -> bool| first.chars().any(|c| is(&c));
    first.len() >= 4
        && first.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
        && has(char::is_ascii_digit)
        && has(char::is_ascii_alphabetic)
}

fn read(title: &str, table: Option<usize>, input: &mut dyn BufRead) -> Result<Counts, Fault> {
    counters::read((title, table), input, "a counter", |text, tables, line| {
        if text.starts_with("Performance counter stats for") {
            tables.ended = true;
            return Ok(());
        }
        let rows = parse(text)?;
        if rows.is_empty() && !text.is_empty() {
            tables.skipped += 1;
        }
        rows.into_iter().for_each(|row| tables.push(row, line));
        Ok(())
    })
}

/// The words after the number in the first of the last lines of a table.
const ELAPSED: [&str; 3] = ["seconds", "time", "elapsed"];

/// Parses the counters of a line; empty if it is not a line of counters.
fn parse(text: &str) -> Result<Vec<Count>, String> {
    let tokens: Vec<&str> = text.split_ascii_whitespace().collect();
    let mut rows = Vec::new();
    let mut rest = tokens.as_slice();
    let mut prose = false;
    while let Some((token, after)) = rest.split_first() {
        // There may be prose before the first counter and after the last one of a table.
        let outside = rows.last().is_none_or(|row: &Count| row.unit == "s");
        if !begins(token) {
            if !outside {
                return Err(format!("has {} where the next counter was expected", quote(token)));
            }
            (prose, rest) = (true, after);
            continue;
        }
        let end = after.iter().position(|token| begins(token) || follows(token));
        let (mut words, mut next) = after.split_at(end.unwrap_or(after.len()));
        // `0.05171 +- 0.00348 seconds time elapsed`
        if words == ["+-"]
            && let Some((_, behind)) = next.split_first()
        {
            let end = behind.iter().position(|token| follows(token));
            (words, next) = behind.split_at(end.unwrap_or(behind.len()));
        }
        // After the last line of a table there is prose again.
        if words.starts_with(&ELAPSED) {
            let behind = next.len() + words.len() - ELAPSED.len();
            next = tokens.get(tokens.len() - behind..).unwrap_or_default();
            words = &ELAPSED;
        }
        let annotated = next.first().is_some_and(|token| follows(token));
        // Amid prose, only what is followed by a metric is considered a counter.
        let read = match counter(token, words, annotated) {
            read if !prose => read?,
            read => read.ok().flatten().filter(|_| annotated),
        };
        let Some(mut row) = read else {
            if !outside {
                let text =
                    words.iter().take(4).fold(token.to_string(), |all, word| all + " " + word);
                return Err(format!("has {}, which is not a counter", quote(text)));
            }
            (prose, rest) = (true, after);
            continue;
        };
        prose = false;
        while next.first() == Some(&"#") {
            // The value of the metric is a number, but does not begin a counter.
            next = next.get(2..).unwrap_or_default();
            let end = next.iter().position(|token| begins(token) || follows(token));
            next = next.get(end.unwrap_or(next.len())..).unwrap_or_default();
        }
        while next.first().is_some_and(|token| token.starts_with('(')) {
            let end = next.iter().position(|token| token.ends_with(')'));
            let end = end.ok_or("has a parenthesis that is not closed")?;
            let (inside, behind) = next.split_at(end + 1);
            if !inside.contains(&"+-") {
                row.counted = Some(counted(&inside.concat())?);
            }
            next = behind;
        }
        rows.push(row);
        rest = next;
    }
    Ok(rows)
}

/// Parses a counter of this value; `None` if it is prose. `annotated`: a metric or a parenthesis
/// follows, which prose does not have.
fn counter(value: &str, words: &[&str], annotated: bool) -> Result<Option<Count>, String> {
    let (name, unit) = match words {
        _ if words == ELAPSED => ("time elapsed", "s"),
        ["seconds", name @ ("user" | "sys")] => (*name, "s"),
        ["counted>" | "supported>", name] if is_event(name) => (*name, ""),
        ["counted>" | "supported>", unit, name] if is_event(name) => (*name, scaled(unit).0),
        [name] if is_event(name) && (annotated || is_event_name(name)) => (*name, ""),
        [unit, name] if is_event(name) && is_unit(unit) => (*name, scaled(unit).0),
        _ if annotated => return Err("names no counter of perf stat".into()),
        [name, rest @ ..]
            if is_event_name(name) && rest.iter().any(|word| word.starts_with('(')) =>
        {
            return Err(format!("is ambiguous after {}", quote(name)));
        }
        _ => return Ok(None),
    };
    let unit_word = words.first().copied().filter(|_| !unit.is_empty()).unwrap_or_default();
    let counts = !value.starts_with('<');
    // Locales separate thousands by various kinds of blanks, and by apostrophes.
    let digits: String = value.chars().filter(|c| c.is_ascii()).filter(|c| *c != '\'').collect();
    let number = if unit.is_empty() {
        whole(&digits).map(|count| count as f64).or_else(|| decimal(&digits))
    } else {
        decimal(&digits)
    };
    if counts && number.is_none() {
        return Err(format!("has {}, which is not a number, or could be two", quote(value)));
    }
    let value = number.filter(|_| counts).map(|value| value * scaled(unit_word).1);
    Ok(Some(Count { name: name.to_owned(), unit: unit.to_owned(), value, ..Count::default() }))
}

/// Returns whether a counter may begin with this token.
fn begins(token: &str) -> bool {
    let digit =
        |c: char| c.is_ascii_digit() || !c.is_ascii() && !c.is_alphanumeric() || ".,'".contains(c);
    token == "<not" || token.starts_with(|c: char| c.is_ascii_digit()) && token.chars().all(digit)
}

/// Returns whether this may follow the name of a counter: a metric, or a percentage in parentheses.
fn follows(token: &str) -> bool {
    matches!(token, "#" | "(") || token.starts_with('(') && token.ends_with("%)")
}

/// Returns whether this is a unit that `perf stat` prints before the name of an event.
fn is_unit(word: &str) -> bool {
    let units =
        ["msec", "nsec", "ns", "Joules", "Bytes", "KiB", "MiB", "GiB", "W", "mW", "C", "degree_C"];
    units.contains(&word)
}

/// Returns the name of a unit as used here, and the factor for its values.
fn scaled(unit: &str) -> (&str, f64) {
    match unit {
        "msec" => ("ms", 1.0),
        "nsec" | "ns" => ("ms", 1e-6),
        other => (other, 1.0),
    }
}

fn is_event(word: &str) -> bool {
    let sign = |c: char| c.is_ascii_alphanumeric() || "-_:/=.,@~%".contains(c);
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(sign)
        && !word.ends_with([':', '.', ','])
}

/// Returns whether this is likely the name of an event and hardly anything else.
fn is_event_name(name: &str) -> bool {
    let plain = ["cycles", "instructions", "branches", "faults", "cs", "migrations", "slots"];
    name.contains(['-', '_', ':', '/']) || plain.contains(&name)
}

/// Parses `(50,24%)` as a part of one.
fn counted(text: &str) -> Result<f64, String> {
    let number = text.trim_matches(['(', ')']).strip_suffix('%').and_then(decimal);
    let part = number.map(|percent| percent / 100.0).filter(|part| *part <= 1.0);
    part.ok_or_else(|| format!("has {}, which is not a share of the time", quote(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> (String, String, Option<f64>, Option<f64>) {
        let [row] = parse(text).unwrap().try_into().unwrap();
        (row.name, row.unit, row.value, row.counted)
    }

    #[test]
    fn counters_of_every_form() {
        for (text, name, unit, value, counted) in [
            ("1,234,567      cycles", "cycles", "", Some(1_234_567.0), None),
            (
                "46.997 context-switches # 467,2 cs/sec cs_per_second",
                "context-switches",
                "",
                Some(46997.0),
                None,
            ),
            (
                "100.587,69 msec task-clock # 1,0 CPUs CPUs_utilized",
                "task-clock",
                "ms",
                Some(100_587.69),
                None,
            ),
            (
                "0.63 msec task-clock # 0.012 CPUs utilized ( +-  2.74% )",
                "task-clock",
                "ms",
                Some(0.63),
                None,
            ),
            (
                "8.491 branch-misses # 10,9 %  branch_miss_rate (50,25%)",
                "branch-misses",
                "",
                Some(8491.0),
                Some(0.5025),
            ),
            ("<not supported>      cycles", "cycles", "", None, None),
            ("<not counted> msec task-clock", "task-clock", "ms", None, None),
            ("12’345’678 cycles:u", "cycles:u", "", Some(12_345_678.0), None),
            ("1\u{202f}234 page-faults", "page-faults", "", Some(1234.0), None),
            ("12.50 Joules power/energy-pkg/", "power/energy-pkg/", "Joules", Some(12.5), None),
            (
                "100,100414494 seconds time elapsed",
                "time elapsed",
                "s",
                Some(100.100_414_494),
                None,
            ),
            (
                "0.05171 +- 0.00348 seconds time elapsed  ( +-  6.72% )",
                "time elapsed",
                "s",
                Some(0.05171),
                None,
            ),
            ("0.001412000 seconds user", "user", "s", Some(0.001412), None),
        ] {
            assert_eq!(row(text), (name.into(), unit.into(), value, counted), "{text}");
        }
    }

    #[test]
    fn counters_that_were_joined_into_one_line() {
        let rows = parse(
            "47 context-switches # 467,2 cs/sec cs_per_second 0 cpu-migrations # 0,0 \
             migrations/sec migrations_per_second 1.000 branches # 772,8 M/sec (66,85%) \
             2,5 seconds time elapsed",
        );
        let rows: Vec<_> = rows.unwrap().into_iter().map(|row| (row.name, row.value)).collect();
        let expected = [
            ("context-switches", 47.0),
            ("cpu-migrations", 0.0),
            ("branches", 1000.0),
            ("time elapsed", 2.5),
        ];
        assert_eq!(rows, expected.map(|(name, value)| (name.to_owned(), Some(value))));
    }

    #[test]
    fn tables_that_were_joined_into_one_line() {
        let rows = parse(
            "So it is. Before: 47 context-switches # 467,2 cs/sec 2,5 seconds time elapsed \
             After: 48 context-switches # 1,0 cs/sec 3,5 seconds time elapsed",
        );
        let rows: Vec<_> = rows.unwrap().into_iter().map(|row| row.value.unwrap()).collect();
        assert_eq!(rows, [47.0, 2.5, 48.0, 3.5]);
    }

    #[test]
    fn skips_prose_and_refuses_bad_counters() {
        for text in [
            "",
            "100 packets",
            "2 hosts were used",
            "3) what",
            "5 of 6 (see below)",
            "it was 3 of them # 7",
            "# 0.22 insn",
            "see 5 cycles",
        ] {
            assert_eq!(parse(text), Ok(Vec::new()), "{text}");
        }
        for text in [
            "1,2,3 cycles",
            "1,234 msec task-clock",
            "12 cycles (50%",
            "12 cycles (often)",
            "12 of them # 1.0 GHz",
            "12 cycles # 1.0 GHz (50.0%) and so on",
            "12 cycles # 1.0 GHz 2,5 seconds time elapsedAnd so on",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn tables_are_kept_apart() {
        let text = "> Stock:\n> 1.000 cycles\n> 1,5 seconds time elapsed\nand\n> 2.000 cycles\n";
        let read = |table| read("t", table, &mut text.as_bytes());
        assert!(recognises(text.as_bytes()));
        assert_eq!(read(None).unwrap_err().message, "t holds 2 tables, which begin in lines 2, 5");
        let second = read(Some(2)).unwrap();
        assert_eq!((second.rows.len(), second.rows[0].value), (1, Some(2000.0)));
        assert_eq!(second.notes, ["left out: 2 lines of other text"]);
    }

    #[test]
    fn stacks_in_which_an_address_has_no_letter_are_not_counters() {
        let stacks =
            "sh \n\t  48684 do_lookup_x\n\t  5641f8b21cc8 [unknown]\n\nsh \n\t  9ff0 [unknown]\n";
        assert!(!recognises(stacks.as_bytes()));
        let commit = "  1a2b3c4d net: faster\n\n  48,684 cycles\n  12,345 instructions\n";
        assert!(recognises(commit.as_bytes()));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_counters_or_a_fault(text in "([>#( ]{0,2}[0-9.,%]{0,6} ?[a-z# (+)-]{0,16}\n){0,8}") {
            let _ = recognises(text.as_bytes());
            let _ = read("t", Some(1), &mut text.as_bytes());
        }
    }
}
