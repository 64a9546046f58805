//! `netdev`: the study as the text of a mail to a kernel list: at most 72 columns of plain ASCII,
//! ready to be sent. An opening, sections of the report, and how to reproduce them.

use crate::document::{Document, Media, Tone};
use crate::render::plain::MAIL_WIDTH;
use crate::report::{Report, Style, Subject};
use crate::sections::{self, View};
use crate::wording::figures::plural;
use crate::wording::{reproduce, setup};
use bytepath_record::{Cell, Study, StudyHeader};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Longest experiment file that is printed in full, in lines.
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
    let mut document = Document::of([sections::answer(&view)]);
    opening(&mut document, &view);
    document.push(sections::study(&view));
    document.push([sections::setup(&view)]);
    reproduction(&mut document, subject.recorded);
    document.write_mail(out)
}

/// Adds what was compared.
fn opening(page: &mut Document, view: &View) {
    let View { study, analysis, .. } = *view;
    let header = &study.header;
    if !header.title.is_empty() {
        page.text("", &header.title);
        page.gap();
    }
    let varied = if differ_in_path_alone(study) { "data path" } else { "configuration" };
    let kernel = header.facts.first().map_or("(version unknown)", |facts| &facts.kernel_release);
    // Only blocks that have a trial.
    let blocks: BTreeSet<u32> = study.trials.iter().map(|trial| trial.block).collect();
    let text = format!(
        "{} for {}, measured against {} on Linux {} over {} in random order.",
        plural(view.rows.len() as u64, varied),
        analysis.work().terms().load,
        analysis.baseline,
        kernel,
        plural(blocks.len() as u64, "block"),
    );
    page.text("", text);
}

fn differ_in_path_alone(study: &Study) -> bool {
    let cells: Vec<&Cell> = study.header.cells.iter().collect();
    setup::common(&cells, |c| &c.link).is_some()
        && setup::common(&cells, |c| &c.stream).is_some()
        && setup::common(&cells, |c| &c.placement).is_some()
}

/// Adds how to reproduce the study.
fn reproduction(page: &mut Document, header: &StudyHeader) {
    let version = &header.bytepath;
    page.heading(format!("To reproduce, with bytepath {version}:"));
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
    for piece in pieces {
        // Leave room for the backslash that continues the line.
        if line.len() + 1 + piece.len() + 2 > MAIL_WIDTH && line.trim() != "" {
            page.text("", format!("{line} \\"));
            line = String::from("     ");
        }
        line += &format!(" {piece}");
    }
    page.text("", line);
    match reproduce::file(header) {
        Some(lines) if lines.len() <= FILE_LINES => {
            page.gap();
            page.text("", "with this file:");
            page.gap();
            lines.into_iter().for_each(|line| page.text("  ", line));
        }
        Some(_) => {
            page.gap();
            page.text("", "with the file that experiment.toml in the folder of the study holds.");
        }
        None => {}
    }
}
