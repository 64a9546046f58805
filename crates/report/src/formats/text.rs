//! `text`: the report for a terminal. The answer first, then the tables, then the evidence.

use crate::document::{Document, Media};
use crate::report::{Report, Style, Subject};
use crate::sections::{self, View};
use std::io::{self, Write};

pub(crate) static FORMAT: Report = Report {
    name: "text",
    summary: "tables and plain text, for a terminal or a mail",
    render,
    extension: "txt",
    binary: false,
    short_names: true,
};

fn render(subject: &Subject, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let view = View::new(subject, Media::TERMINAL, style.details);
    let opening = [sections::answer(&view), sections::setup(&view)];
    Document::of(opening.into_iter().chain(sections::study(&view))).write(style, out)
}
