//! Advice as text.

use super::{Advice, Alternative, LEAST, Range, Refusal, role_words};
use crate::Style;
use crate::document::Document;
use crate::render::plain;
use crate::wording::figures::{bytes, plural, three};
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

/// The answer in one sentence: the way that saves most, or why there is none.
pub(super) fn first(advice: &Advice) -> String {
    let best = advice.directions.iter().filter_map(|direction| {
        let option = direction.options.iter().find(|o| o.shown && o.saved.mean > 0.0)?;
        Some((direction, option))
    });
    let best = best.max_by(|a, b| a.1.saved.mean.total_cmp(&b.1.saved.mean));
    match (best, advice.directions.first(), advice.refused.first()) {
        (Some((direction, option)), ..) => {
            format!("{} instead of {}: {}", option.calls, direction.calls, sentence(option))
        }
        (None, Some(_), _) => "The study shows no way that would save CPU time.".into(),
        (None, None, Some(refusal)) => format!("No answer: {}", refusal.reason),
        (None, None, None) => "No answer: the program moved no bytes over TCP.".into(),
    }
}

fn sentence(option: &Alternative) -> String {
    if !option.shown {
        let Range { low, high, .. } = option.saved_per_gib;
        return format!(
            "no difference shown: between {} less and {} more CPU s per GiB.",
            three(high),
            three(-low)
        );
    }
    format!(
        "{} per GiB, {} over all of these bytes{}.",
        difference(option.saved_per_gib, "CPU s"),
        difference(option.saved, "CPU s"),
        match option.time_saved {
            Some(time) if time.low <= 0.0 && time.high >= 0.0 =>
                "; no difference in time shown".to_owned(),
            Some(time) => format!("; {} of time", difference(time, "s")),
            None => String::new(),
        }
    )
}

/// What is saved, or spent in addition: `1.8 s less (1.7 to 1.9)`.
fn difference(saved: Range, unit: &str) -> String {
    let (word, sign) = if saved.mean > 0.0 { ("less", 1.0) } else { ("more", -1.0) };
    let (one, other) = (sign * saved.low, sign * saved.high);
    let (low, high) = (three(one.min(other)), three(one.max(other)));
    format!("{} {unit} {word} ({low} to {high})", three(sign * saved.mean))
}
