//! The verdicts in sentences, what did not run, warnings, and how a study was set up.

use super::view::View;
use crate::document::{Block, List, Media, Section, Tone};
use crate::wording::ascii::plain;
use crate::wording::setup::{self, date};
use crate::wording::text::{self, Unmeasured};
use crate::wording::{reproduce, verdicts};
use bytepath_record::Facts;
use bytepath_stats::Question;

/// Every comparison in a sentence, and what the words rest on. A page has them first, by cell.
pub(crate) fn section(view: &View) -> Section {
    let analysis = view.analysis;
    let mut section = Section::new("verdict", "Verdicts").on(Media::PLAIN);
    // Why nothing was measured is the answer.
    if view.rows.is_empty() {
        return section;
    }
    let mut is_compared = false;
    for question in Question::MAIN {
        let compared = verdicts::compared(analysis, question);
        let what = verdicts::subject(question, analysis.work());
        let noise = verdicts::noise(analysis, question);
        if !compared.is_empty() {
            is_compared = true;
            section.heading(format!("Verdicts on {what}, against {}", analysis.baseline));
            let sentence = |c| verdicts::sentence(c, analysis);
            let items = compared.iter().map(|(row, c)| (row.cell.to_string(), sentence(c)));
            section.add(List::of_cells(items));
            section.text("  ", &noise);
        } else if analysis.noise(question).is_some() {
            // A cell against itself has nothing but its noise to report.
            section.heading(format!("Noise of {what}"));
            section.text("  ", &noise);
        }
    }
    if is_compared {
        section.add(Block::Gap);
        section.text("  ", &verdicts::rule(analysis));
        section.text("  ", &verdicts::events_rule());
        section.text("  ", &verdicts::stopping(analysis).unwrap_or_default());
    }
    section
}

/// Which profiles there are, and what it cost to take them.
pub(crate) fn profiles(view: &View) -> Section {
    let mut section = Section::new("profiles", "").on(Media::TERMINAL);
    if let Some(line) = text::profiles(view.analysis) {
        section.add(Block::Gap);
        section.text("Profiles: ", &line);
    }
    section
}

/// Cells that cannot run here, that failed, that have no trial.
pub(crate) fn missing(view: &View) -> Section {
    let mut section = Section::new("missing", "Not measured");
    for (title, all) in [
        ("Not available here", text::unavailable(view.analysis)),
        ("Trials that do not count", text::not_counted(view.analysis)),
    ] {
        if !all.is_empty() {
            section.heading(title);
        }
        let mut list = List::of_cells([]);
        for Unmeasured { row, reason, remedy } in all {
            let remedy = if remedy.is_empty() { String::new() } else { format!(" -> {remedy}") };
            list.items.push((row.cell.to_string(), format!("{reason}{remedy}")));
        }
        section.add(list);
    }
    let never = text::never_run(view.analysis);
    if !never.is_empty() {
        section.add(Block::Gap);
        section.text("Not run: ", &never.join(", "));
    }
    section
}

/// Warnings beyond this many are only counted in a mail, which is not a log.
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

/// What was run, on what, under which contract.
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
    let mut items: Vec<(String, String)> =
        facts.map(|(name, text)| (name.to_owned(), text)).collect();
    if view.medium == Media::PAGE {
        items.push(("meters".into(), header.meters.join(", ")));
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

/// All recorded settings of a host.
fn settings(host: &Facts, at: usize, of: usize) -> List {
    let name = match (at, of) {
        (_, 1) => "host",
        (0, _) => "the sender\u{2019}s host",
        _ => "the receiver\u{2019}s host",
    };
    let mut items = vec![("kernel".to_owned(), host.kernel_version.clone())];
    if !host.privileges.capabilities.is_empty() {
        items.push(("capabilities".into(), host.privileges.capabilities.join(", ")));
    }
    items.extend(host.settings.iter().map(|(name, value)| (name.clone(), value.clone())));
    List { items, ..List::default() }.folded(&format!("Settings of {name}"))
}
