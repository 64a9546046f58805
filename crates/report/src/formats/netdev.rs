//! `netdev`: the study as the text of a mail to a kernel list: at most 72
//! columns, plain ASCII, nothing to touch before it is sent. An opening, sections of the
//! report, and how to reproduce them.

use crate::document::{Document, Media, Tone};
use crate::render::plain::{self, MAIL_WIDTH};
use crate::sections::{self, View, frames, waterfall};
use crate::wording::figures::{change, plural};
use crate::wording::{answer, offload, reproduce, setup, text, verdicts};
use crate::{Report, Style, Subject, Why};
use bytepath_profile::Explanation;
use bytepath_record::{Cell, Study, StudyHeader};
use bytepath_stats::Question;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Longest experiment file that is printed whole, in lines.
const FILE_LINES: usize = 24;

pub(crate) static FORMAT: Report = Report {
    name: "netdev",
    summary: "plain text of at most 72 columns, to paste into a mail",
    render,
    extension: "txt",
    binary: false,
    short_names: true,
};

fn render(subject: &Subject, _: &Style, out: &mut dyn Write) -> io::Result<()> {
    let view = View::new(subject, Media::MAIL, false);
    let mut document = Document::default();
    opening(&mut document, &view);
    document.push(sections::study(&view));
    document.push([sections::setup(&view)]);
    reproduction(&mut document, subject.recorded);
    plain::write_mail(&document, out)
}

/// Why cells differ: sentences and steps.
pub(crate) fn explanation(
    explanation: &Explanation,
    why: Option<&Why>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut document = Document::default();
    document.push([
        frames::differences(why),
        waterfall::section(explanation, false),
        waterfall::symptoms_of(explanation),
    ]);
    plain::write_mail(&document, out)
}

/// What was compared, and the answer.
fn opening(page: &mut Document, view: &View) {
    let View { study, analysis, explanation, .. } = *view;
    let header = &study.header;
    for line in offload::sentences(analysis) {
        page.text("", &line);
    }
    page.gap();
    let paragraphs = answer::answer(analysis, explanation);
    for paragraph in &paragraphs {
        page.text("", &format!("{}: {}", paragraph.lead, paragraph.text));
    }
    page.gap();
    if !header.title.is_empty() {
        page.text("", &header.title);
        page.gap();
    }
    let varied = if differ_in_path_alone(study) { "data path" } else { "configuration" };
    let mut text = format!(
        "{} for {}, measured against {} on Linux {} over {} in random order.",
        plural(view.rows.len() as u64, varied),
        analysis.work().terms().load,
        analysis.baseline,
        kernel(study),
        plural(blocks(study), "block"),
    );
    // The answer names them already.
    let leaders = if paragraphs.is_empty() { text::leaders(analysis) } else { Vec::new() };
    match text::functional(analysis) {
        Some(functional) => text += &format!(" {functional}"),
        None if leaders.is_empty() && paragraphs.is_empty() => {
            text += &format!(" {}", text::nothing(analysis))
        }
        None => {}
    }
    for leader in &leaders {
        let (row, question) = (leader.row, leader.question);
        let word = verdicts::word(row, question);
        let standing = match leader.effect() {
            Some(effect) => format!(" ({}, {word})", change(effect.ratio)),
            None if row.baseline => " (the baseline)".into(),
            None if word.is_empty() => String::new(),
            None => format!(" ({word})"),
        };
        let label = match question {
            Question::Rate => format!(", {}", text::labels(&row.labels)),
            _ => String::new(),
        };
        let title = capital(&leader.title());
        text += &format!(" {title}: {}, {}{standing}{label}.", row.cell, leader.figure);
    }
    page.text("", &text);
}

/// The words with a capital at their beginning.
fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn differ_in_path_alone(study: &Study) -> bool {
    let cells: Vec<&Cell> = study.header.cells.iter().collect();
    setup::common(&cells, |c| &c.link).is_some()
        && setup::common(&cells, |c| &c.stream).is_some()
        && setup::common(&cells, |c| &c.placement).is_some()
}

fn kernel(study: &Study) -> &str {
    study.header.facts.first().map_or("(version unknown)", |f| f.kernel_release.as_str())
}

/// Blocks that really have a trial.
fn blocks(study: &Study) -> u64 {
    study.trials.iter().map(|t| t.block).collect::<BTreeSet<_>>().len() as u64
}

/// How to run it again.
fn reproduction(page: &mut Document, header: &StudyHeader) {
    let version = &header.bytepath;
    page.heading(&format!("To reproduce, with bytepath {version}:"));
    page.gap();
    let Some(pieces) = reproduce::command(header) else {
        page.line("  bytepath run EXPERIMENT.toml", Tone::Plain);
        page.gap();
        return page.text(
            "",
            "with the experiment file of this study; experiment.toml in the folder of the study \
             lists every cell with all its options.",
        );
    };
    let mut line = String::from(" ");
    for (i, piece) in pieces.iter().enumerate() {
        // Room for the sign that continues the line.
        if line.len() + 1 + piece.len() + 2 > MAIL_WIDTH && line.trim() != "" {
            page.text("", &format!("{line} \\"));
            line = String::from("     ");
        }
        line += &format!(" {piece}");
        if i + 1 == pieces.len() {
            page.text("", &line);
        }
    }
    match reproduce::file(header) {
        Some(lines) if lines.len() <= FILE_LINES => {
            page.gap();
            page.text("", "with this file:");
            page.gap();
            for line in lines {
                page.text("  ", line);
            }
        }
        Some(_) => {
            page.gap();
            page.text("", "with the file that experiment.toml in the folder of the study holds.");
        }
        None => {}
    }
}
