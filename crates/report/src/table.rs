//! A table that fits the page: what matters least is left out first, names are
//! wrapped, never cut.

use super::page::{Page, Tone, plain, wrap};

/// Blanks between two columns.
const GAP: usize = 2;

#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Heading shared by neighbouring columns of the same group; may be empty.
    pub group: &'static str,
    pub title: String,
    /// Which side its text leans on.
    pub align: Align,
    /// When it goes if the page is too narrow: 0 stays forever, the highest
    /// goes first, equal ones go together.
    pub rank: u8,
    /// Least width of a column whose text may be wrapped; none is never wrapped.
    pub wrap: Option<usize>,
}

/// Which side text leans on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

impl Column {
    /// A column of numbers.
    pub(crate) fn number(group: &'static str, title: &str, rank: u8) -> Column {
        Column { group, title: title.to_owned(), align: Align::Right, rank, wrap: None }
    }

    /// A column of words.
    pub(crate) fn words(title: &str, rank: u8, wrap: Option<usize>) -> Column {
        Column { group: "", title: title.to_owned(), align: Align::Left, rank, wrap }
    }
}

/// A table being filled.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<(String, Tone)>>,
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Table {
        Table { columns, rows: Vec::new() }
    }

    /// Adds a row; one cell per column.
    pub(crate) fn row(&mut self, cells: Vec<(String, Tone)>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells.into_iter().map(|(text, tone)| (plain(&text), tone)).collect());
    }

    /// Puts the table on the page, indented.
    pub(crate) fn print(&self, page: &mut Page, indent: usize) {
        page.table(self, indent);
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Its rows: one cell per column.
    pub(crate) fn rows(&self) -> &[Vec<(String, Tone)>] {
        &self.rows
    }

    /// As lines of at most this width, each in pieces.
    pub(crate) fn lines(&self, width: usize, indent: usize) -> Vec<Vec<(String, Tone)>> {
        let fit = self.fit(width.saturating_sub(indent));
        let margin = (" ".repeat(indent), Tone::Plain);
        let mut lines = Vec::new();
        if fit.iter().any(|(at, _)| !self.columns[*at].group.is_empty()) {
            lines.push(vec![margin.clone(), (self.groups(&fit), Tone::Faint)]);
        }
        let titles = |at: usize| (self.columns[at].title.clone(), Tone::Faint);
        self.add_row(&mut lines, &margin, &fit, &titles);
        for row in &self.rows {
            self.add_row(&mut lines, &margin, &fit, &|at| row[at].clone());
        }
        lines
    }

    /// The columns that stay, and their widths.
    fn fit(&self, width: usize) -> Vec<(usize, usize)> {
        let mut stay: Vec<usize> = (0..self.columns.len()).collect();
        loop {
            let mut widths = self.least(&stay);
            let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
            let highest = stay.iter().map(|at| self.columns[*at].rank).max().unwrap_or(0);
            if total > width && highest > 0 {
                stay.retain(|at| self.columns[*at].rank != highest);
                continue;
            }
            let mut spare = width.saturating_sub(total);
            for (at, width) in stay.iter().zip(&mut widths) {
                let more = spare.min(self.natural(*at).saturating_sub(*width));
                *width += more;
                spare -= more;
            }
            return stay.into_iter().zip(widths).collect();
        }
    }

    /// The width a column would like to have.
    fn natural(&self, at: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[at].0.len());
        cells.chain([self.columns[at].title.len()]).max().unwrap_or(0)
    }

    /// The least widths of these columns. The first of a group gives room to a
    /// heading that is wider than its columns.
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

    /// Neighbours that share a group, as ranges; a column without one is separate.
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

    /// The line of group headings, each in a rule over its columns.
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
        self.runs(&stay).into_iter().map(heading).collect::<Vec<_>>().join(&" ".repeat(GAP))
    }

    fn add_row(
        &self,
        to: &mut Vec<Vec<(String, Tone)>>,
        margin: &(String, Tone),
        fit: &[(usize, usize)],
        cell: &dyn Fn(usize) -> (String, Tone),
    ) {
        let cells: Vec<(Vec<String>, Tone)> = fit
            .iter()
            .map(|(at, width)| {
                let (text, tone) = cell(*at);
                let lines =
                    if self.columns[*at].wrap.is_some() { wrap(&text, *width) } else { vec![text] };
                (lines, tone)
            })
            .collect();
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
        let plain = |s: &str| (s.to_owned(), Tone::Plain);
        table.row(vec![
            plain("socket"),
            plain("0.010"),
            plain("0.2"),
            plain("copied by the kernel"),
        ]);
        table.row(vec![plain("splice+zerocopy"), plain("7"), plain("12.345"), plain("no")]);
        let mut page = Page::new(width, false);
        table.print(&mut page, indent);
        let mut out = Vec::new();
        page.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_go_by_rank_and_words_wrap() {
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
}
