//! Tables of functions in a mail: rows of `perf report` or `perf top`, and lists of `symbol
//! [address]: ticks`, quoted or not, with prose around:
//!
//! ```text
//! > On the sender I see this:
//! >  5.97%  vhost-4874  [kernel.kallsyms]  [k] memcpy
//! ```
//!
//! Mails do not preserve columns, so rows are read by tokens ([`super::perf_rows`]). A line that
//! does not begin like a row is counted as prose. One that does and cannot be parsed is an error.

use super::format::Importer;
use super::lines::{Lines, first_lines};
use super::perf_report::Reader;
use super::perf_rows::{self, Layout, LineItem};
use super::readprofile;
use super::tables::{chosen, left_out};
use crate::{Builder, Header, Profile};
use bytepath_record::Fault;
use std::io::BufRead;

/// See the module documentation.
pub(super) static FORMAT: Importer = Importer {
    name: "mail",
    summary: "rows of `perf report`, `perf top` or readprofile as found in a mail",
    certain: false,
    recognises,
    read: |title, _, input| read(title, None, input),
};

pub(super) fn recognises(head: &[u8]) -> bool {
    let mut layout = Layout::default();
    first_lines(head).any(|line| {
        let text = String::from_utf8_lossy(line);
        let text = unquoted(&text);
        readprofile::addressed(text).is_some()
            || match perf_rows::parse(text, &mut layout) {
                Ok(found) => {
                    found.iter().any(|it| matches!(it, LineItem::Row(row) if row.symbol.is_some()))
                }
                // It begins like a row: the reason why it cannot be read is more useful.
                Err(_) => true,
            }
    })
}

/// Reads the only table of a text, or the one with this number, counted from 1.
pub(super) fn read(
    title: &str,
    number: Option<usize>,
    input: &mut dyn BufRead,
) -> Result<Profile, Fault> {
    let mut lines = Lines::new(title, input);
    let mut line = Vec::new();
    let mut tables: Vec<Table> = Vec::new();
    let mut next = Heading::default();
    let (mut rows, mut skipped) = (0_usize, 0_u64);
    while lines.next(&mut line)? {
        let text = String::from_utf8_lossy(&line);
        let text = unquoted(&text);
        if let Some(entry) = readprofile::addressed(text) {
            let row = Row::Ticks(entry.symbol.to_owned(), entry.ticks);
            rows += 1;
            push(&mut tables, &mut next, row, lines.number());
            continue;
        }
        if next.read_line(text).map_err(|what| lines.fault(what))? {
            continue;
        }
        let found = perf_rows::parse(text, &mut next.layout).map_err(|what| {
            let remedy = "correct the line, or remove it if it is not a row";
            lines.fault(what).remedy(remedy)
        })?;
        for found in found {
            match found {
                LineItem::Row(row) => {
                    rows += 1;
                    push(&mut tables, &mut next, Row::Share(row), lines.number());
                }
                LineItem::Heading => next.fresh = true,
                LineItem::CallGraph => {}
                LineItem::Prose => skipped += 1,
            }
        }
        if rows > MOST {
            return Err(lines.fault(format!("more than {MOST} rows")));
        }
    }
    let starts = tables.iter().map(|table| table.line).collect::<Vec<_>>();
    let index = chosen(title, &starts, number)?;
    tables.swap_remove(index).profile(title, skipped).map_err(|what| lines.whole(what))
}

/// A table with more functions is not one: all kernels have fewer.
const MOST: usize = 1 << 18;

/// Removes quotation marks from the beginning of a line. A `>` at its end is part of the line:
/// `Vec<u8>`.
pub(super) fn unquoted(line: &str) -> &str {
    line.trim_start_matches(|c: char| c == '>' || c.is_ascii_whitespace()).trim_ascii_end()
}

enum Row {
    Share(perf_rows::Row),
    Ticks(String, u64),
}

impl Row {
    /// Returns the value by which tables are sorted, largest first.
    fn measure(&self) -> f64 {
        match self {
            Row::Share(row) => row.shares.first().copied().unwrap_or_default(),
            Row::Ticks(_, ticks) => *ticks as f64,
        }
    }
}

/// The text above a table.
#[derive(Default)]
struct Heading {
    layout: Layout,
    samples: Option<u64>,
    total: Option<u64>,
    event: String,
    /// Whether it has content for the next row that belongs to no earlier row.
    fresh: bool,
}

impl Heading {
    /// Stores what a line states about the table below it; returns true if it states anything.
    fn read_line(&mut self, text: &str) -> Result<bool, String> {
        let text = text.trim_start_matches(['#', ' ']);
        let count = "Event count (approx.):";
        if let Some(rest) = text.strip_prefix("Samples:") {
            let Some((samples, event)) = rest.split_once("of event") else { return Ok(false) };
            let event = event.split_once(count).map_or(event, |(event, _)| event);
            self.event = super::perf_report::event(event)?;
            let samples = super::perf_report::rounded(samples.trim());
            self.samples = Some(samples.ok_or("a number of samples was expected")?);
        } else if !text.starts_with(count) {
            return Ok(false);
        }
        if let Some((_, rest)) = text.split_once(count) {
            let number = rest.split_ascii_whitespace().next().unwrap_or_default();
            let number = super::number::whole(number.trim_end_matches(','));
            self.total = Some(number.ok_or("an event count was expected")?);
        }
        self.fresh = true;
        Ok(true)
    }
}

/// One table of a text.
struct Table {
    /// Number of the line with its first row.
    line: u64,
    heading: Heading,
    rows: Vec<Row>,
}

/// Adds a row to the last table, or begins a new one: after a heading, after rows of another kind,
/// or if the rows, which are sorted in descending order, become larger again.
fn push(tables: &mut Vec<Table>, next: &mut Heading, row: Row, line: u64) {
    let goes_on = !next.fresh
        && tables.last().and_then(|table| table.rows.last()).is_some_and(|last| {
            let alike = matches!((last, &row), (Row::Share(_), Row::Share(_)))
                || matches!((last, &row), (Row::Ticks(..), Row::Ticks(..)));
            alike && row.measure() <= last.measure()
        });
    match tables.last_mut().filter(|_| goes_on) {
        Some(table) => table.rows.push(row),
        None => {
            let layout = next.layout.clone();
            let heading = Heading { layout, ..std::mem::take(next) };
            next.layout = heading.layout.clone();
            tables.push(Table { line, heading, rows: vec![row] });
        }
    }
}

impl Table {
    fn profile(self, title: &str, skipped: u64) -> Result<Profile, String> {
        let Heading { layout, samples, total, event, .. } = self.heading;
        let notes = left_out(skipped).into_iter().collect();
        let header = Header { title: title.to_owned(), event, notes, ..Header::default() };
        let (mut builder, mut shares, mut ticks) = (Builder::new(header), Vec::new(), 0);
        for row in self.rows {
            match row {
                Row::Share(row) => shares.push(row),
                Row::Ticks(symbol, count) => {
                    readprofile::add(&mut builder, &mut ticks, &symbol, count)?;
                }
            }
        }
        if shares.is_empty() {
            return Ok(builder.build());
        }
        let rows = perf_rows::assign_columns(shares, &layout)?;
        Reader { builder, samples, total, rows, ..Reader::default() }.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Sample};

    /// Functions of the table with their weights, except what is in none of its rows.
    fn named(text: &str, number: Option<usize>) -> Result<Vec<(String, f64)>, Fault> {
        assert!(recognises(text.as_bytes()), "{text}");
        let profile = read("m", number, &mut text.as_bytes())?;
        let name = |s: &Sample| profile.frame(profile.stack(s.stack)[0]).function.clone();
        let all = profile.samples().iter().map(|s| (name(s), s.weight));
        Ok(all.filter(|(name, _)| name != "[not in the table]").collect())
    }

    #[test]
    fn shares_are_of_the_whole_and_not_of_the_rows_that_were_quoted() {
        let profile = read("m", None, &mut QUOTED.as_bytes()).unwrap();
        let weights: f64 = profile.samples().iter().map(|s| s.weight).sum();
        assert!((weights - 10_000.0).abs() < 2.0, "{weights}");
    }

    fn owned(rows: &[(&str, f64)]) -> Vec<(String, f64)> {
        rows.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect()
    }

    const QUOTED: &str = "\
On Monday I wrote:
> > # Samples: 2K of event 'cycles:P'
> > # Event count (approx.): 10.000
> > # Overhead Command Shared Object Symbol
> > # ........ ........... ................. ......
> >
> > 20,50% rx 0 [kernel.kallsyms] [k] copy_words
That is a lot.
> > 3,25% rx 0 [mod] [k] 0x0000000000001f70
> > 0,50% app /usr/lib/libz.so.1 [.] void pack<int>(int const&)
";

    #[test]
    fn names_end_with_what_they_end_with() {
        let text = "\
> # Samples: 2K of event 'cycles:P'
>  20.50%  app  /bin/app  [.] alpha<int>
>  10.50%  app  /bin/app  [.] core::ptr::drop_in_place<alloc::vec::Vec<u8>>
>   3.25%  app  /bin/app  0x13dc             B [.] Op::operator->
";
        let names: Vec<String> =
            named(text, None).unwrap().into_iter().map(|(name, _)| name).collect();
        let expected =
            ["alpha<int>", "core::ptr::drop_in_place<alloc::vec::Vec<u8>>", "Op::operator->"];
        assert_eq!(names, expected);
        let profile = read("m", None, &mut text.as_bytes()).unwrap();
        let is_shown = |frame: &&Frame| frame.function != "[not in the table]";
        let mut frames = profile.frames().iter().filter(is_shown);
        assert!(frames.all(|frame| frame.module == "/bin/app"));
    }

    #[test]
    fn a_table_with_prose_around_is_read_and_the_prose_is_counted() {
        let profile = read("m", None, &mut QUOTED.as_bytes()).unwrap();
        let rows = named(QUOTED, None).unwrap();
        let expected =
            [("copy_words", 2050.0), ("0x1f70", 325.0), ("void pack<int>(int const&)", 50.0)];
        assert_eq!(rows, owned(&expected));
        assert_eq!(profile.header.event, "cycles:P");
        assert_eq!(profile.threads()[0].name, "rx 0");
        assert_eq!(profile.frames()[1].module, "[mod]");
        assert!(profile.header.notes.contains(&"left out: 2 lines of other text".to_owned()));
    }

    #[test]
    fn rows_copied_from_the_screen_need_no_heading() {
        let rows = named(
            "+   18,61%     0,03%  app  [kernel.kallsyms]  [k] do_it\n\
             -   12,00%     2,00%  app  libc.so.6          [.] main\n   - main\n      + 9,00% start\n",
            None,
        );
        assert_eq!(rows.unwrap(), owned(&[("do_it", 0.03), ("main", 2.0)]));
    }

    #[test]
    fn one_of_two_tables_is_chosen_by_its_number() {
        let text =
            format!("{QUOTED}and with the change:\n7.10% a [veth] [k] f\n3.10% a [veth] [k] g\n");
        let error = named(&text, None).unwrap_err();
        assert_eq!(error.message, "m holds 2 tables, which begin in lines 7, 12");
        assert_eq!(named(&text, Some(2)).unwrap(), owned(&[("f", 7.1), ("g", 3.1)]));
        assert!(named(&text, Some(3)).is_err());
        let lists = "> idle [c0105280]: 72241\n> work [c0105280]: 3\n\nthen\n> idle [c1]: 9\n";
        assert_eq!(named(lists, Some(2)).unwrap(), owned(&[("idle", 9.0)]));
    }

    #[test]
    fn a_row_that_cannot_be_read_is_an_error_with_its_line() {
        let good = "9.00% a [kernel.kallsyms] [k] f\n";
        for (row, why) in [
            ("> 1.93% a [kernel.kallsyms] [k] sizeLet's", "is not a function name"),
            ("1.93% a [kernel.kallsyms] [k] sizeSo try it", "comes after the name"),
            ("1.93% a [kernel.kallsyms] [k]", "has no function"),
            ("1.93% a [kernel.kallsyms] c", "has no [k] or [.]"),
            ("1.93% a [.] of the same", "comes after the name"),
        ] {
            let error = named(&format!("{good}{row}\n"), None).unwrap_err();
            assert!(error.message.starts_with("m, line 2: '1.93% a"), "{error}");
            assert!(error.message.contains(why), "{error}");
        }
    }

    #[test]
    fn rows_that_were_joined_into_one_line_are_read_one_by_one() {
        let joined = "so: # Overhead Command Symbol # ........ ....... ...... # \
                      5.97% a b [k] f 2.68% a b [k] g 0.10% c [.] h";
        assert_eq!(named(joined, None).unwrap(), owned(&[("f", 5.97), ("g", 2.68), ("h", 0.1)]));
    }

    #[test]
    fn columns_collapsed_to_blanks_are_not_columns_of_perf_report() {
        let apart = "# Overhead  Symbol\n# ........  ......\n#\n     5.97%  [k] f\n";
        let collapsed = apart.replace("  ", " ");
        let report = super::super::perf_report::FORMAT.recognises;
        assert!(report(apart.as_bytes()) && !report(collapsed.as_bytes()));
        assert!(!report(format!("Hello,\n{apart}").as_bytes()));
        assert_eq!(named(&collapsed, None).unwrap(), owned(&[("f", 5.97)]));
        let graph = format!("Hello,\n{apart}            |\n            |--3.10%--g\n");
        assert_eq!(named(&graph, None).unwrap(), owned(&[("f", 5.97)]));
    }

    #[test]
    fn prose_alone_is_not_recognised() {
        for text in [
            "",
            "hello\n",
            "50% of it\n",
            "12.50% faster than that\n",
            "12 lines: 4\n",
            "> a: 1\n> b: 2\n",
        ] {
            assert!(!recognises(text.as_bytes()), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_profile_or_a_fault(
            text in "([>#+ ]{0,2}[0-9.,%]{0,6} ?[a-z\\[\\]k. ]{0,12}\n){0,8}",
            number in proptest::option::of(0usize..4),
        ) {
            let _ = recognises(text.as_bytes());
            let _ = read("m", number, &mut text.as_bytes());
        }
    }
}
