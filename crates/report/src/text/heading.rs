//! The head of the report: what was run, on what, under which contract.

use crate::Subject;
use crate::page::{Page, Tone, plain};
use crate::setup::{date, facts};

pub(crate) fn print(page: &mut Page, subject: &Subject) {
    let header = &subject.study.header;
    let title = format!("bytepath {}", plain(&header.bytepath));
    let when = date(header.started_ms).map(|d| format!(", study of {d}")).unwrap_or_default();
    page.pieces(&[(title, Tone::Strong), (when, Tone::Plain)]);
    page.gap();
    for (name, text) in facts(subject) {
        page.text(&format!("{name:<11}"), &text);
    }
}
