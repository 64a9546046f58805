//! Lays out a table within the width of the page: the least important columns are dropped, or, if
//! all are requested, moved to further tables below; names are wrapped, never cut.

use crate::document::{Align, Cell, Column, Media, Ratios, Table, Tone};
use crate::wording::ascii::{plain, wrap};
use bytepath_record::joined;

/// Blanks between two columns.
const GAP: usize = 2;

/// Returns the lines of a table, of at most this width, each in pieces. If `whole`, columns without
/// room go into tables below, each of which begins with the row names.
pub(crate) fn lines(
    table: &Table,
    medium: Media,
    ratios: Ratios,
    width: usize,
    whole: bool,
) -> Vec<Vec<(String, Tone)>> {
    let table = table.shown_on(medium);
    let mut columns = Vec::new();
    for column in &table.columns {
        columns.push(Column { title: column.heading(ratios).to_owned(), ..column.clone() });
        let interval = |rank| Column::words("interval", rank, None);
        columns.extend(column.interval.map(interval));
    }
    let row = |cells: &[Cell]| {
        let mut texts = Vec::new();
        for (cell, column) in cells.iter().zip(&table.columns) {
            texts.push((plain(&cell.written(ratios)), cell.tone));
            let interval = || (plain(&cell.written_interval(ratios)), Tone::Plain);
            texts.extend(column.interval.map(|_| interval()));
        }
        texts
    };
    let rows = table.rows.iter().map(|line| row(&line.cells)).collect();
    Grid { columns, rows }.lines(width, table.indent, whole)
}

/// Cell texts, with separate columns for intervals.
struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<(String, Tone)>>,
}

impl Grid {
    /// Returns the lines, of at most this width, each in pieces.
    fn lines(&self, width: usize, indent: usize, whole: bool) -> Vec<Vec<(String, Tone)>> {
        let room = width.saturating_sub(indent);
        let parts = if whole { self.parts(room) } else { vec![self.most_important(room)] };
        let mut lines = Vec::new();
        for stay in parts {
            if !lines.is_empty() {
                lines.push(Vec::new());
            }
            self.add_part(&mut lines, indent, &self.spread(stay, room));
        }
        lines
    }

    /// Adds the lines of some columns, given with their widths.
    fn add_part(
        &self,
        lines: &mut Vec<Vec<(String, Tone)>>,
        indent: usize,
        fit: &[(usize, usize)],
    ) {
        let margin = (" ".repeat(indent), Tone::Plain);
        if fit.iter().any(|(at, _)| !self.columns[*at].group.is_empty()) {
            lines.push(vec![margin.clone(), (self.groups(fit), Tone::Faint)]);
        }
        let titles =
            self.columns.iter().map(|column| (column.title.clone(), Tone::Faint)).collect();
        for row in std::iter::once(&titles).chain(&self.rows) {
            self.add_row(lines, &margin, fit, row);
        }
    }

    /// Drops the least important columns until the rest fits.
    fn most_important(&self, room: usize) -> Vec<usize> {
        let mut stay: Vec<usize> = (0..self.columns.len()).collect();
        loop {
            let highest = stay.iter().map(|at| self.columns[*at].rank).max().unwrap_or(0);
            if self.total(&stay) <= room || highest == 0 {
                return stay;
            }
            stay.retain(|at| self.columns[*at].rank != highest);
        }
    }

    /// Distributes all columns over as many parts as necessary, each after the row names. A group
    /// is kept in one part if it fits.
    fn parts(&self, room: usize) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let names = self.columns.iter().take_while(|column| column.is_name()).count();
        let (names, others) = all.split_at(names);
        let fits = |part: &[usize], more: &[usize]| self.total(&[part, more].concat()) <= room;
        let mut parts = Vec::new();
        let mut last = names.to_vec();
        for (from, to) in self.runs(others) {
            let group = &others[from..to];
            let pieces = if fits(names, group) { group.len() } else { 1 };
            for more in group.chunks(pieces) {
                if last.len() > names.len() && !fits(&last, more) {
                    parts.push(std::mem::replace(&mut last, names.to_vec()));
                }
                last.extend(more);
            }
        }
        parts.push(last);
        parts
    }

    /// Returns the least total width of some columns.
    fn total(&self, stay: &[usize]) -> usize {
        self.least(stay).iter().sum::<usize>() + GAP * stay.len().saturating_sub(1)
    }

    /// Assigns widths to these columns: those that would be wrapped get the spare width.
    fn spread(&self, stay: Vec<usize>, room: usize) -> Vec<(usize, usize)> {
        let mut widths = self.least(&stay);
        let mut spare = room.saturating_sub(self.total(&stay));
        for (at, width) in stay.iter().zip(&mut widths) {
            let more = spare.min(self.natural(*at).saturating_sub(*width));
            *width += more;
            spare -= more;
        }
        stay.into_iter().zip(widths).collect()
    }

    /// Returns the width of a column without wrapping.
    fn natural(&self, at: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[at].0.len());
        cells.chain([self.columns[at].title.len()]).max().unwrap_or(0)
    }

    /// Returns the least widths of these columns. If a group's heading is wider than its columns,
    /// the first one is widened.
    fn least(&self, stay: &[usize]) -> Vec<usize> {
        let alone = |at: &usize| match self.columns[*at].wrap {
            Some(least) => least.max(self.columns[*at].title.len()).min(self.natural(*at)),
            None => self.natural(*at),
        };
        let mut widths: Vec<usize> = stay.iter().map(alone).collect();
        for (from, to) in self.runs(stay) {
            let span = widths[from..to].iter().sum::<usize>() + GAP * (to - from - 1);
            widths[from] += self.columns[stay[from]].group.len().saturating_sub(span);
        }
        widths
    }

    /// Returns the ranges of neighbours that share a group; a column without a group is a range by
    /// itself.
    fn runs(&self, stay: &[usize]) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (i, at) in stay.iter().enumerate() {
            let group = self.columns[*at].group;
            match runs.last_mut() {
                Some(run) if !group.is_empty() && self.columns[stay[run.0]].group == group => {
                    run.1 = i + 1;
                }
                _ => runs.push((i, i + 1)),
            }
        }
        runs
    }

    /// Returns the line of group headings, each in a rule over its columns.
    fn groups(&self, fit: &[(usize, usize)]) -> String {
        let stay: Vec<usize> = fit.iter().map(|(at, _)| *at).collect();
        let heading = |(from, to): (usize, usize)| {
            let width = fit[from..to].iter().map(|(_, w)| w + GAP).sum::<usize>() - GAP;
            let group = self.columns[stay[from]].group;
            let rule = width.saturating_sub(group.len() + 2);
            if group.is_empty() || rule < 2 {
                return format!("{group:^width$}");
            }
            format!("{} {group} {}", "-".repeat(rule / 2), "-".repeat(rule - rule / 2))
        };
        joined(self.runs(&stay).into_iter().map(heading), &" ".repeat(GAP))
    }

    fn add_row(
        &self,
        to: &mut Vec<Vec<(String, Tone)>>,
        margin: &(String, Tone),
        fit: &[(usize, usize)],
        row: &[(String, Tone)],
    ) {
        let lines_of = |at: usize, width: usize| match self.columns[at].wrap {
            Some(_) => wrap(&row[at].0, width),
            None => vec![row[at].0.clone()],
        };
        let cells = fit.iter().map(|(at, width)| (lines_of(*at, *width), row[*at].1));
        let cells: Vec<(Vec<String>, Tone)> = cells.collect();
        let height = cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or(0);
        for i in 0..height {
            let mut pieces = vec![margin.clone()];
            for ((at, width), (lines, tone)) in fit.iter().zip(&cells) {
                if pieces.len() > 1 {
                    pieces.push((" ".repeat(GAP), Tone::Plain));
                }
                let text = lines.get(i).map_or("", String::as_str);
                let padded = match self.columns[*at].align {
                    Align::Left => format!("{text:<width$}"),
                    Align::Right => format!("{text:>width$}"),
                };
                pieces.push((padded, *tone));
            }
            to.push(pieces);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(width: usize, indent: usize) -> String {
        let mut table = Table::new(vec![
            Column::words("path", 0, Some(8)),
            Column::number("cost", "user", 2),
            Column::number("cost", "sys", 1),
            Column::words("label", 0, Some(10)),
        ]);
        table.row(["socket", "0.010", "0.2", "copied by the kernel"]);
        table.row(["splice+zerocopy", "7", "12.345", "no"]);
        table.indent = indent;
        written(&table, width, false)
    }

    fn written(table: &Table, width: usize, whole: bool) -> String {
        let lines = lines(table, Media::TERMINAL, Ratios::Factors, width, whole);
        let text = |line: Vec<(String, Tone)>| -> String {
            line.into_iter().map(|(text, _)| text).collect::<String>().trim_end().to_owned() + "\n"
        };
        lines.into_iter().map(text).collect()
    }

    #[test]
    fn drops_columns_by_rank_and_wraps_words() {
        assert_eq!(
            printed(60, 1),
            "\
\x20                 --- cost ----
 path              user     sys  label
 socket           0.010     0.2  copied by the kernel
 splice+zerocopy      7  12.345  no
"
        );
        for width in 40..80 {
            let text = printed(width, 1);
            assert!(text.lines().all(|l| l.len() <= width), "{width}:\n{text}");
            assert!(text.contains("splice+"), "a name is never lost");
        }
        let narrow = printed(40, 8);
        assert!(!narrow.contains("user") && narrow.contains("sys"), "{narrow}");
        assert!(narrow.contains("copied by\n") && narrow.contains("zerocopy"), "{narrow}");
    }

    #[test]
    fn whole_table_continues_below() {
        let number = |title| Column::number("time", title, 1);
        let names = [Column::path(), Column::words("role", 0, None)];
        let columns = names.into_iter().chain(["total", "average", "longest"].map(number));
        let mut table = Table::new(columns.collect());
        table.row(["socket", "sender", "12.5", "1.25", "3.5"]);
        assert_eq!(
            written(&table, 32, true),
            "\
\x20                 ---- time ----
  path    role    total  average
  socket  sender   12.5     1.25

                   time
  path    role    longest
  socket  sender      3.5
"
        );
        assert_eq!(written(&table, 80, true), written(&table, 80, false));
        for width in 20..60 {
            let text = written(&table, width, true);
            assert!(["total", "average", "longest"].iter().all(|t| text.contains(t)), "{text}");
            assert!(width < 25 || text.lines().all(|l| l.len() <= width), "{width}:\n{text}");
        }
    }
}
