//! Why cells differ, and what well-known functions mean.

use crate::document::Document;
use crate::sections::frames::{self, RateDifference};
use crate::sections::{symptoms, waterfall};
use bytepath_profile::Explanation;
use bytepath_profile::symptom::Seen;

/// Why cells differ: in words and in steps, function by function if there is room for that; of
/// two cells of frames first why their rates do.
pub fn explanation(
    explanation: &Explanation,
    why: Option<&RateDifference>,
    with_functions: bool,
) -> Document {
    Document::of([
        frames::differences(why),
        waterfall::section(explanation, with_functions),
        waterfall::symptoms_of(explanation),
    ])
}

/// What well-known functions of a profile mean.
pub fn symptoms(seen: &[Seen]) -> Document {
    Document::of([symptoms::section(seen, &[""; 0])])
}
