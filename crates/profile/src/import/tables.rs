//! Texts that may contain several tables, as mails do: before and after a change.

use crate::counts::{Count, Counts};
use crate::record::{Fault, FaultKind};

/// More counters than this have no table of `perf stat` or `perf trace`.
const MOST: usize = 1 << 16;

/// Tables of counters being read.
#[derive(Default)]
pub(super) struct Tables {
    /// Each with the line of its first row.
    tables: Vec<(u64, Vec<Count>)>,
    /// The next row begins a table.
    ended: bool,
    rows: usize,
    /// Lines of other text.
    pub(super) skipped: u64,
}

impl Tables {
    /// The next row begins another table.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Adds a row; one whose counter the table has already begins another.
    pub(super) fn push(&mut self, row: Count, line: u64) -> Result<(), String> {
        let same = |other: &Count| other.name == row.name && other.group == row.group;
        self.ended |= self.tables.last().is_some_and(|(_, rows)| rows.iter().any(same));
        self.add(row, line)
    }

    /// Adds a row to the table.
    pub(super) fn add(&mut self, row: Count, line: u64) -> Result<(), String> {
        self.rows += 1;
        if self.rows > MOST {
            return Err(format!("more than {MOST} counters"));
        }
        match self.tables.last_mut().filter(|_| !self.ended) {
            Some((_, rows)) => rows.push(row),
            None => self.tables.push((line, vec![row])),
        }
        self.ended = false;
        Ok(())
    }

    /// The only table, or the one of this number.
    pub(super) fn choose(mut self, title: &str, number: Option<usize>) -> Result<Counts, Fault> {
        let starts: Vec<u64> = self.tables.iter().map(|(line, _)| *line).collect();
        let (_, rows) = self.tables.swap_remove(chosen(title, &starts, number)?);
        let notes = left_out(self.skipped).into_iter().collect();
        Ok(Counts { title: title.to_owned(), rows, notes })
    }
}

/// What is reported about lines that are not rows.
pub(super) fn left_out(lines: u64) -> Option<String> {
    let word = if lines == 1 { "line" } else { "lines" };
    (lines > 0).then(|| format!("left out: {lines} {word} of other text"))
}

/// Which of the tables of a text, that begin in these lines, is meant.
pub(super) fn chosen(title: &str, starts: &[u64], number: Option<usize>) -> Result<usize, Fault> {
    let fault = |what: String| Fault::new(FaultKind::Storage, format!("{title} {what}"));
    let listed = || {
        let lines: Vec<String> = starts.iter().take(9).map(u64::to_string).collect();
        let more = if starts.len() > 9 { " and more" } else { "" };
        format!("which begin in lines {}{more}", lines.join(", "))
    };
    match (number, starts.len()) {
        (_, 0) => Err(fault("holds no row that can be read".into())),
        (None, 1) => Ok(0),
        (None, count) => Err(fault(format!("holds {count} tables, {}", listed()))
            .remedy(format!("choose one of them: {title}@1"))),
        (Some(number), count) if (1..=count).contains(&number) => Ok(number - 1),
        (Some(number), count) => {
            Err(fault(format!("has no table {number}: it holds {count}, {}", listed())))
        }
    }
}
