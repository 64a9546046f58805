//! `text`: the report for a terminal. The answer first, then the tables, then what they rest on.

use crate::document::{Block, Document, Media, Section};
use crate::render::plain;
use crate::sections::{self, View};
use crate::wording::{answer, offload, text};
use crate::{Report, Style, Subject};
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
    let mut document = Document::default();
    document.push([answer(&view), sections::setup(&view)]);
    document.push(sections::study(&view));
    plain::write(&document, style, out)
}

/// From which size on copy engines pay; which cell to use, why, and what is undecided. If
/// nothing is recommended, because one cell was measured or no speed, what leads in what.
fn answer(view: &View) -> Section {
    let mut section = Section::new("answer", "");
    offload::sentences(view.analysis).iter().for_each(|line| section.text("", line));
    section.add(Block::Gap);
    let paragraphs = answer::answer(view.analysis, view.explanation);
    let leads = paragraphs.into_iter().map(|paragraph| (paragraph.lead.to_owned(), paragraph.text));
    let mut leads: Vec<(String, String)> = leads.collect();
    if leads.is_empty() {
        leads = text::answer(view.analysis);
    }
    let widest = leads.iter().map(|(lead, _)| lead.len()).max().unwrap_or(0);
    for (lead, text) in leads {
        let lead = if lead.is_empty() { lead } else { format!("{lead:<widest$}  ") };
        section.text(&lead, &text);
    }
    section.with(Block::Gap)
}
