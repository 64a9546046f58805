//! Advice as a document.

use super::advise::{Advice, LEAST, Refusal, measurement, moved, role_words, sentence};
use super::loops::{ServerAdvice, size_words};
use super::server::Server;
use crate::document::{Document, Section};
use crate::wording::figures::{bytes, microseconds, plural};
use bytepath_record::Observation;

pub fn advice(advice: &Advice) -> Document {
    let mut page = Document::default();
    page.heading(format!("Advice for {}", advice.command.join(" ")));
    page.text("  ", &advice.first);
    for direction in &advice.directions {
        page.heading(format!(
            "{} by {}: {}, {} a call, {}",
            role_words(direction.role),
            direction.calls,
            bytes(direction.bytes as f64),
            bytes(direction.bytes_per_call.round()),
            plural(direction.flows as u64, "flow"),
        ));
        let each = bytes(direction.cell_bytes_per_call.round());
        let flows = plural(direction.cell_flows.into(), "flow");
        let text = format!("cell '{}', {each} a call, {flows}", direction.cell);
        page.text("  in the study: ", text);
        for option in &direction.options {
            page.text(&format!("  '{}': ", option.cell), sentence(option));
            page.text("      ", &option.basis);
        }
        if !direction.refused.is_empty() {
            page.text("  ", "No answer for these cells:");
            refusals(&mut page, &direction.refused);
        }
    }
    if let Some(advice) = &advice.server {
        server(&mut page, advice);
    }
    if !advice.refused.is_empty() {
        page.heading("No answer");
        refusals(&mut page, &advice.refused);
        if !advice.measurement.is_empty() {
            let command = format!("bytepath {}", advice.measurement.join(" "));
            page.text("  To measure it: ", format!("{command} (advise --run does)"));
        }
    }
    page.texts("Notes", "  ", &advice.remarks);
    page
}

/// Adds other event loops for the connections of a server.
fn server(page: &mut Document, advice: &ServerAdvice) {
    let flows = plural(advice.flows as u64, "connection");
    page.heading(format!("served by {}: {flows}, {}", advice.path, size_words(advice.sizes)));
    let transactions = plural(advice.transactions, "transaction");
    let each = advice.cpu_per_transaction.map(|cpu| {
        format!(", {} us of CPU each with all that the program does", microseconds(cpu))
    });
    page.text("  observed: ", transactions + each.as_deref().unwrap_or_default());
    let flows = plural(advice.cell_flows.into(), "connection");
    let text = format!("cell '{}', {flows}, {}", advice.cell, size_words(advice.cell_sizes));
    page.text("  in the study: ", text);
    for row in &advice.loops {
        page.text(&format!("  '{}': ", row.cell), row.sentences.join(" "));
    }
    if !advice.refused.is_empty() {
        page.text("  ", "No answer for these cells:");
        refusals(page, &advice.refused);
    }
}

/// Returns the end of an observation: the answer in one sentence, or how to get one; `None` if too
/// little was moved for advice.
pub fn advice_or_hint(advice: Option<&Advice>, observed: &Observation) -> Option<Document> {
    let server = Server::of(observed);
    let text = match (advice, measurement(observed).as_slice()) {
        (Some(advice), _) => Some(advice.first.clone()),
        // The server's note has the command.
        (None, _) if server.is_some() => None,
        (None, _) if moved(&observed.sent).saturating_add(moved(&observed.received)) < LEAST => {
            None
        }
        (None, []) => None,
        (None, words) => Some(format!(
            "`bytepath {}` measures whether other calls would save CPU time; then observe with \
             --study STUDY, its folder.",
            words.join(" ")
        )),
    };
    let mut section = Section::new("", "Advice");
    let unanswered = server.filter(|_| advice.is_none_or(|advice| advice.server.is_none()));
    let note = unanswered.map(|server| server.note());
    text.into_iter().chain(note).for_each(|text| section.text("  ", &text));
    (!section.is_empty()).then(|| Document::of([section]))
}

fn refusals(page: &mut Document, refused: &[Refusal]) {
    for refusal in refused {
        page.text(&format!("  {}: ", refusal.what), &refusal.reason);
    }
}
