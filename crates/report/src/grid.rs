//! A table that formats share, as texts: plain ones print it on a page, `html` in a page of its own.

use super::figures::NONE;
use super::page::{Page, Tone};
use super::table::{Column, Table};

/// Columns that stay however narrow the page is.
const STAY: usize = 5;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grid {
    pub title: String,
    /// How to read it.
    pub note: String,
    /// Columns that hold words: the first ones. The others hold numbers.
    pub words: usize,
    /// Heads, each with the group that it belongs to; may be empty.
    pub heads: Vec<(&'static str, String)>,
    /// A text for each head.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    /// The same without columns in which no row has anything.
    pub(crate) fn without_empty(mut self) -> Grid {
        let is_empty =
            |at: &usize| self.rows.iter().all(|row| row[*at].is_empty() || row[*at] == NONE);
        let empty: Vec<usize> = (self.words..self.heads.len()).filter(is_empty).collect();
        for at in empty.into_iter().rev() {
            self.heads.remove(at);
            self.rows.iter_mut().for_each(|row| drop(row.remove(at)));
        }
        self
    }

    /// Puts it on a page with its title and its note.
    pub(crate) fn print(&self, page: &mut Page) {
        page.heading(&self.title);
        let column = |(at, (group, head)): (usize, &(&'static str, String))| match at < self.words {
            true => Column::words(head, 0, Some(14)),
            false => Column::number(group, head, at.saturating_sub(STAY) as u8),
        };
        let mut table = Table::new(self.heads.iter().enumerate().map(column).collect());
        for row in &self.rows {
            table.row(row.iter().map(|text| (text.clone(), Tone::Plain)).collect());
        }
        table.print(page, 2);
        page.text("  ", &self.note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_without_anything_are_left_out() {
        let heads = ["path", "a", "b", "c"].map(|head| ("", head.to_owned())).to_vec();
        let row = |texts: [&str; 4]| texts.map(str::to_owned).to_vec();
        let rows = vec![row(["", "1", "-", ""]), row(["", "-", "-", "2"])];
        let (title, note) = ("t".to_owned(), String::new());
        let grid = Grid { title, note, words: 1, heads, rows }.without_empty();
        let heads: Vec<&str> = grid.heads.iter().map(|(_, head)| head.as_str()).collect();
        assert_eq!(
            (heads, &grid.rows[1]),
            (vec!["path", "a", "c"], &vec!["".into(), "-".into(), "2".into()])
        );
    }
}
