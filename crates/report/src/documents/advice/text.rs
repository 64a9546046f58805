//! Advice as text.

use super::advise::{Advice, LEAST, Refusal, role_words, sentence};
use crate::document::Document;
use crate::render::plain;
use crate::report::Style;
use crate::wording::figures::{bytes, plural};
use bytepath_record::Observation;
use std::io::{self, Write};

pub fn advice(advice: &Advice, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut page = Document::default();
    page.heading(&format!("Advice for {}", advice.command.join(" ")));
    page.text("  ", &advice.first);
    for direction in &advice.directions {
        page.heading(&format!(
            "{} by {}: {}, {} a call, {}",
            role_words(direction.role),
            direction.calls,
            bytes(direction.bytes as f64),
            bytes(direction.bytes_per_call.round()),
            plural(direction.flows as u64, "flow"),
        ));
        page.text(
            "  in the study: ",
            &format!(
                "cell '{}', {} a call, {}",
                direction.cell,
                bytes(direction.cell_bytes_per_call.round()),
                plural(direction.cell_flows.into(), "flow")
            ),
        );
        for option in &direction.options {
            page.text(&format!("  '{}': ", option.cell), &sentence(option));
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
    }
    if !advice.remarks.is_empty() {
        page.heading("Notes");
        for remark in &advice.remarks {
            page.text("  ", remark);
        }
    }
    plain::write(&page, style, out)
}

/// The end of an observation: the answer in one sentence, or how to get one.
pub fn advice_or_hint(
    advice: Option<&Advice>,
    observed: &Observation,
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let ways = observed.sent.ways.iter().chain(&observed.received.ways);
    let moved = ways.map(|way| way.bytes).fold(0, u64::saturating_add);
    let text = match advice {
        Some(advice) => advice.first.clone(),
        None if moved >= LEAST => "Whether other calls would save CPU time: observe with --study \
             STUDY, the folder of a `bytepath run` on this host."
            .into(),
        None => return Ok(()),
    };
    let mut page = Document::default();
    writeln!(out)?;
    page.heading("Advice");
    page.text("  ", &text);
    plain::write(&page, style, out)
}

fn refusals(page: &mut Document, refused: &[Refusal]) {
    for refusal in refused {
        page.text(&format!("  {}: ", refusal.what), &refusal.reason);
    }
}
