//! Tables of counters in a text, possibly amid the prose of a mail.

use super::lines::{Lines, first_lines};
use super::mail;
use super::tables::{chosen, left_out};
use crate::counts::{Count, Counts};
use crate::text::quote;
use bytepath_record::Fault;
use std::collections::HashSet;
use std::io::BufRead;

/// Most counters: no table of `perf stat` or `perf trace` has more.
const MOST: usize = 1 << 16;

/// State of reading tables of counters.
#[derive(Default)]
pub(super) struct Tables {
    /// The tables, each with the number of its first line.
    tables: Vec<(u64, Vec<Count>)>,
    /// Group and name of the counters in the last table.
    counters: HashSet<(String, String)>,
    /// Whether the next row begins a new table.
    pub(super) ended: bool,
    rows: usize,
    /// Number of lines with other text.
    pub(super) skipped: u64,
}

impl Tables {
    /// Adds a row; if the table already has its counter, a new table begins.
    pub(super) fn push(&mut self, row: Count, line: u64) {
        let counter = (row.group.clone(), row.name.clone());
        self.ended |= self.rows < MOST && self.counters.contains(&counter);
        self.add(row, line);
        self.counters.insert(counter);
    }

    /// Adds a row to the table; those beyond [`MOST`] are only counted.
    pub(super) fn add(&mut self, row: Count, line: u64) {
        self.rows += 1;
        match self.tables.last_mut().filter(|_| !self.ended) {
            _ if self.rows > MOST => {}
            Some((_, rows)) => rows.push(row),
            None => {
                self.counters.clear();
                self.tables.push((line, vec![row]));
            }
        }
        self.ended = false;
    }

    /// Chooses the only table, or the one with this number.
    fn choose(mut self, title: &str, number: Option<usize>) -> Result<Counts, Fault> {
        let starts: Vec<u64> = self.tables.iter().map(|(line, _)| *line).collect();
        let (_, rows) = self.tables.swap_remove(chosen(title, &starts, number)?);
        let notes = left_out(self.skipped).into_iter().collect();
        Ok(Counts { title: title.to_owned(), rows, notes })
    }
}

/// Returns whether any line of a text is a row of counters, and none a row of functions: a mail
/// that also shows functions is read for those.
pub(super) fn recognises(head: &[u8], is_row: impl Fn(&str) -> bool) -> bool {
    let mut lines = first_lines(head).map(String::from_utf8_lossy);
    lines.any(|line| is_row(mail::unquoted(&line))) && !mail::recognises(head)
}

/// Reads the only table of a text, or the one with this number. `row` is called with each line,
/// without quotation marks, and its number. Its error is reported with that line, and with the
/// advice to correct it if it is `what`.
pub(super) fn read(
    (title, table): (&str, Option<usize>),
    input: &mut dyn BufRead,
    what: &str,
    mut row: impl FnMut(&str, &mut Tables, u64) -> Result<(), String>,
) -> Result<Counts, Fault> {
    let mut lines = Lines::new(title, input);
    let mut line = Vec::new();
    let mut tables = Tables::default();
    while lines.next(&mut line)? {
        let text = String::from_utf8_lossy(&line);
        let text = mail::unquoted(&text);
        row(text, &mut tables, lines.number()).map_err(|why| {
            let remedy = format!("correct the line, or remove it if it is not {what}");
            lines.fault(format!("{} {why}", quote(text))).remedy(remedy)
        })?;
        if tables.rows > MOST {
            return Err(lines.fault(format!("more than {MOST} counters")));
        }
    }
    tables.choose(title, table)
}
