//! The text of `bytepath doctor`.

use crate::document::{Document, Section, Tone};
use bytepath_record::{Finding, Severity, Support, grouped, joined, listed};

/// Most items with the same reason that are named; the rest are only counted.
const NAMED: usize = 2;

/// Shows what works, group by group; the time that the runnable items of the last group take; and
/// findings, worst first.
pub fn examination(
    groups: &[(&str, Vec<(String, Support)>)],
    estimate: Option<&str>,
    findings: &[Finding],
) -> Document {
    let mut page = Document::default();
    for (title, items) in groups {
        page.heading(*title);
        let works = items.iter().filter(|(_, s)| s.is_yes()).map(|(name, _)| name);
        let works = joined(works, ", ");
        if !works.is_empty() {
            page.text("  yes  ", works);
        }
        for ((reason, remedy), names) in grouped(items.iter().filter_map(missing)) {
            page.text("  no   ", format!("{}: {reason}", listed(&names, NAMED)));
            if !remedy.is_empty() {
                page.text("       ", format!("remedy: {remedy}"));
            }
        }
        if items.is_empty() {
            page.text("  ", "none");
        }
    }
    if let Some(estimate) = estimate {
        page.heading("What can run");
        page.text("  ", estimate);
    }
    for (severity, title) in [
        (Severity::Blocks, "Blocks"),
        (Severity::Distorts, "Distorts"),
        (Severity::Note, "Good to know"),
    ] {
        let mut section = Section::new("", title);
        for finding in findings.iter().filter(|finding| finding.severity == severity) {
            section.text("  - ", format!("{}: {}.", finding.what, finding.effect));
            section.text("      ", &finding.command);
        }
        page.push([section]);
    }
    if findings.is_empty() {
        page.gap();
        page.line("Nothing was found that would distort measurements.", Tone::Strong);
    }
    page
}

/// Returns an item that does not work, preceded by its reason and remedy.
fn missing((name, support): &(String, Support)) -> Option<((&str, &str), &str)> {
    let Support::No { reason, remedy } = support else { return None };
    Some(((reason, remedy), name))
}
