//! Renders a document as plain text: lines that never exceed their width and contain only printable
//! ASCII, whatever names and messages they consist of.

mod table;

use crate::document::{Block, Document, List, Media, Point, Ratios, Section, Table, Tone};
use crate::report::Style;
use crate::wording::ascii::{plain, wrap};
use std::io::{self, Write};

/// Narrowest page: a narrower one would only break words.
const NARROWEST: usize = 40;

/// Longest lead that others are aligned with; a longer one must not indent all of them.
const LONGEST_LEAD: usize = 24;

/// Width of a mail, in columns: that of a commit message, so that a reply can quote it twice
/// without breaking a line.
pub(crate) const MAIL_WIDTH: usize = 72;

impl Document {
    /// Writes the document for a terminal.
    pub fn write(&self, style: &Style, out: &mut dyn Write) -> io::Result<()> {
        let (width, colour) = (style.width.max(NARROWEST), style.colour);
        let (medium, whole) = (Media::TERMINAL, style.details);
        Page { width, colour, medium, whole, lines: Vec::new() }.print(self, out)
    }

    /// Writes the document for a mail.
    pub fn write_mail(&self, out: &mut dyn Write) -> io::Result<()> {
        let (width, colour) = (MAIL_WIDTH, false);
        let (medium, whole) = (Media::MAIL, false);
        Page { width, colour, medium, whole, lines: Vec::new() }.print(self, out)
    }
}

/// The lines written so far.
struct Page {
    width: usize,
    colour: bool,
    medium: Media,
    /// Whether the tables of all sections have every column, and not only those of sections in
    /// detail.
    whole: bool,
    lines: Vec<String>,
}

impl Page {
    fn print(mut self, document: &Document, out: &mut dyn Write) -> io::Result<()> {
        for section in &document.sections {
            self.section(section);
        }
        if self.lines.last().is_some_and(String::is_empty) {
            self.lines.pop();
        }
        self.lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    fn section(&mut self, section: &Section) {
        let medium = self.medium;
        if !section.media.includes(medium) {
            return;
        }
        let mut blocks = section.blocks.iter().filter(|(m, _)| m.includes(medium)).peekable();
        if blocks.peek().is_none() && section.title.is_empty() {
            return;
        }
        if !section.title.is_empty() && !matches!(blocks.peek(), Some((_, Block::Heading(..)))) {
            self.heading(&section.title);
        }
        let whole = self.whole || section.detail;
        blocks.for_each(|(_, block)| self.block(block, whole));
    }

    fn heading(&mut self, title: &str) {
        self.gap();
        for line in wrap(&plain(title), self.width) {
            let line = self.paint(&line, Tone::Strong);
            self.lines.push(line);
        }
    }

    /// Writes a block; if `whole`, with every column of a table.
    fn block(&mut self, block: &Block, whole: bool) {
        match block {
            Block::Heading(title, _) => self.heading(title),
            Block::Text(lead, text) => self.text(lead, text),
            Block::Line(pieces) => self.line(pieces),
            Block::List(list) => self.list(list),
            Block::Code(text) => self.lines.extend(text.lines().map(plain)),
            Block::Table(table) => self.table(table, whole),
            Block::Figure(figure) => self.table(&figure.table, whole),
            Block::Gap => self.gap(),
        }
    }

    /// Adds an empty line, unless the page is empty or the last line is.
    fn gap(&mut self) {
        if self.lines.last().is_some_and(|l| !l.is_empty()) {
            self.lines.push(String::new());
        }
    }

    /// Adds a text after a lead ("kernel    "), wrapped into lines that are aligned with its
    /// beginning.
    fn text(&mut self, lead: &str, text: &str) {
        let lead = plain(lead);
        // A lead that would leave too little room gets separate lines.
        let (lead, indent) = if lead.len() + 20 > self.width {
            self.lines.extend(wrap(lead.trim_end(), self.width));
            ("    ".to_owned(), 4)
        } else {
            let indent = lead.len();
            (lead, indent)
        };
        for (i, line) in wrap(&plain(text), self.width - indent).into_iter().enumerate() {
            let lead = if i == 0 { lead.as_str() } else { "" };
            // Text of only blanks, such as an empty title, is not a line.
            match format!("{lead:indent$}{line}").trim_end() {
                "" => self.gap(),
                line => self.lines.push(line.to_owned()),
            }
        }
    }

    fn list(&mut self, list: &List) {
        let widths = list.items.iter().map(|point| plain(&point.lead).len());
        let widest = widths.filter(|n| *n <= LONGEST_LEAD).max().unwrap_or(0);
        for Point { lead, text, .. } in &list.items {
            match widest {
                0 if lead.is_empty() => self.text("  - ", text),
                _ => self.text(&format!("  {:<widest$}  ", plain(lead)), text),
            }
        }
    }

    fn table(&mut self, table: &Table, whole: bool) {
        let ratios = if self.medium == Media::MAIL { Ratios::Changes } else { Ratios::Factors };
        for line in table::lines(table, self.medium, ratios, self.width, whole) {
            self.line(&line);
        }
    }

    /// Adds a line of padded pieces, cut at the width.
    fn line(&mut self, pieces: &[(String, Tone)]) {
        let mut room = self.width;
        let mut line = String::new();
        let last = pieces.iter().rposition(|(text, _)| !text.trim_end().is_empty());
        for (i, (text, tone)) in pieces.iter().take(last.map_or(0, |l| l + 1)).enumerate() {
            let text = plain(text);
            let text = if Some(i) == last { text.trim_end() } else { text.as_str() };
            let text = &text[..text.len().min(room)];
            room -= text.len();
            line.push_str(&self.paint(text, *tone));
        }
        self.lines.push(line.trim_end().to_owned());
    }

    fn paint(&self, text: &str, tone: Tone) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Strong => 1,
            Tone::Faint => 2,
            Tone::Good => 32,
            Tone::Bad => 31,
        };
        // Keep the padding outside of the colour, so that trailing blanks can be trimmed.
        let body = text.trim();
        if !self.colour || body.is_empty() {
            return text.to_owned();
        }
        text.replacen(body, &format!("\x1b[{code}m{body}\x1b[0m"), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(document: &Document, colour: bool) -> String {
        let mut out = Vec::new();
        document.write(&Style { width: 40, colour, details: false }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn long_leads_get_lines_of_their_own() {
        let mut page = Document::default();
        page.text("kernel  ", "6.18.0 and so many words that a second line is needed");
        page.text(&"n".repeat(70), "text");
        assert_eq!(
            written(&page, false),
            format!(
                "kernel  6.18.0 and so many words that a\n        second line is needed\n{}\n{}\n    text\n",
                "n".repeat(40),
                "n".repeat(30)
            )
        );
    }

    #[test]
    fn colour_is_optional_and_adds_no_width() {
        for (colour, expected) in [(false, "  FASTER\n"), (true, "  \x1b[32mFASTER\x1b[0m\n")] {
            let mut page = Document::default();
            page.line("  FASTER  ", Tone::Good);
            assert_eq!(written(&page, colour), expected);
        }
    }
}
