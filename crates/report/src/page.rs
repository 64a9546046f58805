//! Lines that never exceed their width and hold nothing but printable ASCII,
//! whatever names and messages they are made of.

use super::table::Table;
use std::io::{self, Write};

/// Narrowest page; narrower ones are not worth breaking words for.
const NARROWEST: usize = 40;

/// A page being written. Lines are kept until [`Page::finish`].
#[derive(Debug)]
pub(crate) struct Page {
    width: usize,
    colour: bool,
    lines: Vec<String>,
    blocks: Vec<Block>,
}

/// What was put on a page, for a format that lays it out itself.
#[derive(Debug)]
pub(crate) enum Block {
    Heading(String),
    /// A text after its lead.
    Text(String, String),
    /// A line of its own.
    Line(String),
    Table(Table),
}

/// Weight of a piece of text, for those who see colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    /// Headings, the baseline.
    Strong,
    /// What is less important.
    Faint,
    /// Better than the baseline.
    Good,
    /// Worse than the baseline, or failed.
    Bad,
}

impl Page {
    /// An empty page of at most this many columns.
    pub(crate) fn new(width: usize, colour: bool) -> Page {
        Page { width: width.max(NARROWEST), colour, lines: Vec::new(), blocks: Vec::new() }
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// An empty line, unless the page begins or the last line is empty already.
    pub(crate) fn gap(&mut self) {
        if self.lines.last().is_some_and(|l| !l.is_empty()) {
            self.lines.push(String::new());
        }
    }

    /// A heading with a gap above it.
    pub(crate) fn heading(&mut self, text: &str) {
        self.blocks.push(Block::Heading(text.to_owned()));
        self.gap();
        for line in wrap(&plain(text), self.width) {
            let line = self.paint(&line, Tone::Strong);
            self.lines.push(line);
        }
    }

    /// A text after a lead ("kernel    "), broken into lines that start below
    /// the text's own beginning.
    pub(crate) fn text(&mut self, lead: &str, text: &str) {
        self.blocks.push(Block::Text(lead.to_owned(), text.to_owned()));
        let lead = plain(lead);
        // A lead that would leave no room gets lines of its own.
        let (lead, indent) = if lead.len() + 20 > self.width {
            self.lines.extend(wrap(lead.trim_end(), self.width));
            ("    ".to_owned(), 4)
        } else {
            let indent = lead.len();
            (lead, indent)
        };
        for (i, line) in wrap(&plain(text), self.width - indent).into_iter().enumerate() {
            let lead = if i == 0 { lead.as_str() } else { "" };
            // Text of nothing but spaces, as a title may be, is not a line.
            match format!("{lead:indent$}{line}").trim_end() {
                "" => self.gap(),
                line => self.lines.push(line.to_owned()),
            }
        }
    }

    /// A line of pieces, each padded already and of plain ASCII. Pieces beyond
    /// the width are cut.
    pub(crate) fn pieces(&mut self, pieces: &[(String, Tone)]) {
        let line: String = pieces.iter().map(|(text, _)| text.as_str()).collect();
        self.blocks.push(Block::Line(line));
        self.line(pieces);
    }

    /// A table, indented.
    pub(crate) fn table(&mut self, table: &Table, indent: usize) {
        self.blocks.push(Block::Table(table.clone()));
        for line in table.lines(self.width, indent) {
            self.line(&line);
        }
    }

    /// What was put on it, without the plain text's layout.
    pub(crate) fn into_blocks(self) -> Vec<Block> {
        self.blocks
    }

    fn line(&mut self, pieces: &[(String, Tone)]) {
        let mut room = self.width;
        let mut line = String::new();
        let last = pieces.iter().rposition(|(text, _)| !text.trim_end().is_empty());
        for (i, (text, tone)) in pieces.iter().take(last.map_or(0, |l| l + 1)).enumerate() {
            let text = if Some(i) == last { text.trim_end() } else { text };
            let text = &text[..text.len().min(room)];
            room -= text.len();
            line.push_str(&self.paint(text, *tone));
        }
        self.lines.push(line.trim_end().to_owned());
    }

    pub(crate) fn finish(self, out: &mut dyn Write) -> io::Result<()> {
        for line in &self.lines {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn paint(&self, text: &str, tone: Tone) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Strong => 1,
            Tone::Faint => 2,
            Tone::Good => 32,
            Tone::Bad => 31,
        };
        // Padding stays outside, so that trailing blanks can be trimmed.
        let body = text.trim();
        if !self.colour || body.is_empty() {
            return text.to_owned();
        }
        text.replacen(body, &format!("\x1b[{code}m{body}\x1b[0m"), 1)
    }
}

/// Text as printable ASCII on one line. Blanks of any kind become one space;
/// common signs become their plain form; everything else that is not ASCII, and
/// every control character, is written as an escape, so that no name or message
/// can steer a terminal or disguise itself.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' '..='~' => plain.push(c),
            '\n' | '\r' | '\t' => plain.push(' '),
            '\u{b5}' | '\u{3bc}' => plain.push('u'),
            '\u{d7}' => plain.push('x'),
            '\u{b1}' => plain.push_str("+-"),
            '\u{2013}' | '\u{2014}' | '\u{2212}' => plain.push('-'),
            '\u{2018}' | '\u{2019}' => plain.push('\''),
            '\u{201c}' | '\u{201d}' => plain.push('"'),
            '\u{2026}' => plain.push_str("..."),
            other => plain.extend(other.escape_unicode()),
        }
    }
    plain
}

/// Breaks plain ASCII text into lines of at most `width`: at blanks, else
/// after a character that joins parts of a name, otherwise anywhere. At least one line.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut rest = text.trim_end();
    let mut lines = Vec::new();
    while rest.len() > width {
        let head = &rest[..width];
        let at_blank = rest[..=width].rfind(' ').filter(|at| !rest[..*at].trim().is_empty());
        let at_joint = head.rfind(['+', ',', '/', ';', '=']).map(|at| at + 1);
        let at = at_blank.or(at_joint).unwrap_or(width);
        lines.push(rest[..at].trim_end().to_owned());
        rest = rest[at..].trim_start();
    }
    lines.push(rest.to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(page: Page) -> String {
        let mut out = Vec::new();
        page.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\u{202e}c\u{7f}"), "a\\u{1b}[2Jb\\u{202e}c\\u{7f}");
        assert_eq!(plain("two\nlines, 3 \u{b5}s"), "two lines, 3 us");
    }

    #[test]
    fn lines_break_at_blanks_then_joints_then_anywhere() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("one two", 7), ["one two"]);
        assert_eq!(
            wrap("splice+tcp-zerocopy-receive", 16),
            ["splice+", "tcp-zerocopy-rec", "eive"]
        );
        assert_eq!(wrap("", 8), [""]);
        assert_eq!(wrap("   x", 2), ["", "x"]);
    }

    #[test]
    fn a_lead_stands_out_and_a_long_one_gives_way() {
        let mut page = Page::new(40, false);
        page.text("kernel  ", "6.18.0 and so many words that a second line is needed");
        page.text(&"n".repeat(70), "text");
        assert_eq!(
            written(page),
            format!(
                "kernel  6.18.0 and so many words that a\n        second line is needed\n{}\n{}\n    text\n",
                "n".repeat(40),
                "n".repeat(30)
            )
        );
    }

    #[test]
    fn colour_adds_no_width_and_is_off_unless_asked() {
        let pieces = [("  FASTER  ".to_owned(), Tone::Good), ("  ".to_owned(), Tone::Plain)];
        for (colour, expected) in [(false, "  FASTER\n"), (true, "  \x1b[32mFASTER\x1b[0m\n")] {
            let mut page = Page::new(40, colour);
            page.pieces(&pieces);
            assert_eq!(written(page), expected);
        }
    }
}
