//! The answer and the verdicts in sentences, cells without results, warnings, and the setup of a
//! study.

use super::view::View;
use crate::document::{Block, List, Media, Point, Section, Tone};
use crate::wording::ascii::plain;
use crate::wording::figures::plural;
use crate::wording::setup::{self, date};
use crate::wording::text;
use crate::wording::{answer, offload, reproduce, verdicts};
use bytepath_record::Facts;
use bytepath_stats::{Analysis, Comparison, Metric, Row};

/// Shows the size from which copy engines pay off; which cell to use, why, and what is undecided.
/// If nothing is recommended, because only one cell or no speed was measured, it lists the leading
/// cells.
pub(crate) fn answer(view: &View) -> Section {
    let mut section = Section::new("answer", "");
    offload::sentences(view.analysis).iter().for_each(|line| section.text("", line));
    section.add(Block::Gap);
    let named = |(lead, text): (&str, String)| (lead.to_owned(), text);
    let paragraphs = answer::answer(view.analysis, view.explanation).into_iter();
    let mut leads: Vec<(String, String)> = paragraphs.map(named).collect();
    if leads.is_empty() {
        leads = text::answer(view.analysis);
        leads.extend(answer::reservations(view.analysis).map(named));
    }
    let widest = leads.iter().map(|(lead, _)| lead.len()).max().unwrap_or(0);
    for (lead, text) in leads {
        let lead = if lead.is_empty() { lead } else { format!("{lead:<widest$}  ") };
        section.text(&lead, text);
    }
    section.with(Block::Gap)
}

/// Most cells that a page lists whatever their verdict; with more, those without a claim are
/// folded, so that a large matrix does not hide its answer.
const LISTED: usize = 8;

/// Shows every comparison in a sentence, and the basis of the words.
pub(crate) fn section(view: &View) -> Section {
    let analysis = view.analysis;
    let base = &analysis.baseline;
    let mut section = Section::new("verdict", format!("Verdicts, against {base}"));
    // Then the reason why nothing was measured is the answer.
    if view.rows.is_empty() {
        return section;
    }
    let mut is_compared = false;
    for question in Metric::MAIN {
        let compared = verdicts::compared(analysis, question);
        let what = verdicts::subject(question, analysis.work());
        let noise = verdicts::noise(analysis, question);
        if !compared.is_empty() {
            is_compared = true;
            section.heading(format!("Verdicts on {what}, against {base}"));
            let is_long = view.medium == Media::PAGE && compared.len() > LISTED;
            let claims = |c: &Comparison| !is_long || c.verdict.better().is_some();
            let (listed, folded): (Vec<_>, Vec<_>) =
                compared.into_iter().partition(|(_, c)| claims(c));
            let folded = sentences(folded, analysis);
            let cells = plural(folded.items.len() as u64, "cell");
            section.add(sentences(listed, analysis));
            section.add(folded.folded(&format!("{cells} not distinguishable from {base}")));
            section.text("  ", noise);
        } else if analysis.noise(question).is_some() {
            // A comparison of a cell with itself shows only noise.
            section.heading(format!("Noise of {what}"));
            section.text("  ", noise);
        }
    }
    if is_compared {
        section.add(Block::Gap);
        section.text("  ", verdicts::rule(analysis));
        section.text("  ", verdicts::events_rule());
        section.text("  ", verdicts::stopping(analysis).unwrap_or_default());
    }
    section
}

fn sentences(compared: Vec<(&Row, &Comparison)>, analysis: &Analysis) -> List {
    let point = |(row, comparison): (&Row, &Comparison)| Point {
        lead: row.cell.to_string(),
        word: comparison.verdict.word(),
        tone: Tone::of(comparison.verdict.better()),
        text: verdicts::sentence(comparison, analysis),
    };
    List { items: compared.into_iter().map(point).collect(), ..List::of_cells([]) }
}

/// Shows which profiles there are, and what sampling cost.
pub(crate) fn profiles(view: &View) -> Section {
    let mut section = Section::new("profiles", "").on(Media::TERMINAL);
    if let Some(line) = text::profiles(view.analysis) {
        section.add(Block::Gap);
        section.text("Profiles: ", line);
    }
    section
}

/// Shows the cells that cannot run here, that failed, or that have no trial.
pub(crate) fn missing(view: &View) -> Section {
    let mut section = Section::new("missing", "Not measured");
    for (title, all) in [
        ("Not available here", text::unavailable(view.analysis)),
        ("Trials left out", text::not_counted(view.analysis)),
    ] {
        if !all.is_empty() {
            section.heading(title);
        }
        section.add(List::of_cells(all.into_iter().map(|(row, reason, remedy)| {
            let remedy = if remedy.is_empty() { String::new() } else { format!(" -> {remedy}") };
            (row.cell.to_string(), format!("{reason}{remedy}"))
        })));
    }
    let never = text::never_run(view.analysis);
    if !never.is_empty() {
        section.add(Block::Gap);
        section.text("Not run: ", never.join(", "));
    }
    section
}

/// In a mail, which is not a log, further warnings are only counted.
const WARNINGS_OF_MAIL: usize = 8;

pub(crate) fn warnings(view: &View) -> Section {
    let mut lines = text::warnings(view.analysis);
    if view.medium == Media::MAIL && lines.len() > WARNINGS_OF_MAIL {
        let more = lines.len() - WARNINGS_OF_MAIL;
        lines.truncate(WARNINGS_OF_MAIL);
        lines.push(format!("and {more} more, in the study"));
    }
    Section::new("warnings", "Warnings").with(List::of(lines))
}

/// Shows what was run, where, and under which contract.
pub(crate) fn setup(view: &View) -> Section {
    let header = &view.study.header;
    let mut section = Section::new("setup", "Setup");
    if view.medium == Media::TERMINAL {
        let title = format!("bytepath {}", plain(&header.bytepath));
        let when = date(header.started_ms).map(|d| format!(", study of {d}")).unwrap_or_default();
        section.title = String::new();
        section.add(Block::Gap);
        section.add(Block::Line(vec![(title, Tone::Strong), (when, Tone::Plain)]));
        section.add(Block::Gap);
    }
    let facts = setup::facts(&view.subject).into_iter();
    let mut items: Vec<Point> = facts.map(|(name, text)| Point::new(name, text)).collect();
    if view.medium == Media::PAGE {
        items.push(Point::new("meters", header.meters.join(", ")));
    }
    section.add(List { items, ..List::default() });
    if view.medium == Media::PAGE {
        if let Some(pieces) = reproduce::command(view.subject.recorded) {
            section.text("  ", "To run it again:");
            section.add(Block::Code(pieces.join(" \\\n    ")));
        }
        for (i, host) in header.facts.iter().enumerate() {
            if i == 0 || *host != header.facts[0] {
                section.add(settings(host, i, header.facts.len()));
            }
        }
    }
    section
}

/// Returns all recorded settings of a host.
fn settings(host: &Facts, at: usize, of: usize) -> List {
    let name = match (at, of) {
        (_, 1) => "host",
        (0, _) => "the sender\u{2019}s host",
        _ => "the receiver\u{2019}s host",
    };
    let mut items = vec![Point::new("kernel", host.kernel_version.clone())];
    if !host.privileges.capabilities.is_empty() {
        items.push(Point::new("capabilities", host.privileges.capabilities.join(", ")));
    }
    items.extend(host.settings.iter().map(|(name, value)| Point::new(name, value.clone())));
    List { items, ..List::default() }.folded(&format!("Settings of {name}"))
}
