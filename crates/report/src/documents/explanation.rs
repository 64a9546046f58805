//! Why cells differ, and what well-known functions mean.

use crate::document::Document;
use crate::render::plain;
use crate::report::Style;
use crate::sections::frames::{self, RateDifference};
use crate::sections::{symptoms, waterfall};
use bytepath_profile::Explanation;
use bytepath_profile::symptom::Seen;
use std::io::{self, Write};

/// Prints why cells differ, for a terminal: in words, in steps, function by function; of two
/// cells of frames first why their rates do.
pub fn explanation(
    explanation: &Explanation,
    why: Option<&RateDifference>,
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    plain::write(&document(explanation, why, true), style, out)
}

fn document(
    explanation: &Explanation,
    why: Option<&RateDifference>,
    with_functions: bool,
) -> Document {
    let mut document = Document::default();
    document.push([
        frames::differences(why),
        waterfall::section(explanation, with_functions),
        waterfall::symptoms_of(explanation),
    ]);
    document
}

/// Prints what well-known functions of a profile mean.
pub fn symptoms(seen: &[Seen], style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut document = Document::default();
    document.push([symptoms::section(seen, &[""; 0])]);
    plain::write(&document, style, out)
}

/// Prints why cells differ, for a mail: at most 72 columns.
pub fn explanation_for_mail(
    explanation: &Explanation,
    why: Option<&RateDifference>,
    out: &mut dyn Write,
) -> io::Result<()> {
    plain::write_mail(&document(explanation, why, false), out)
}
