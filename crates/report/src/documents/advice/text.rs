//! Advice as text.

use super::advise::{Advice, LEAST, Refusal, measurement, moved, role_words, sentence};
use super::server;
use crate::document::{Document, Section};
use crate::wording::figures::{bytes, plural};
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

/// The end of an observation: the answer in one sentence, or how to get one; `None` if it moved
/// too little for advice.
pub fn advice_or_hint(advice: Option<&Advice>, observed: &Observation) -> Option<Document> {
    let text = match (advice, measurement(observed).as_slice()) {
        (Some(advice), _) => Some(advice.first.clone()),
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
    text.into_iter().chain(server::hint(observed)).for_each(|text| section.text("  ", &text));
    (!section.is_empty()).then(|| Document::of([section]))
}

fn refusals(page: &mut Document, refused: &[Refusal]) {
    for refusal in refused {
        page.text(&format!("  {}: ", refusal.what), &refusal.reason);
    }
}
