//! Why cells differ, and the meaning of well-known functions.

use crate::document::Document;
use crate::sections::frames::{self, RateDifference};
use crate::sections::{symptoms, waterfall};
use bytepath_profile::Explanation;
use bytepath_profile::symptom::FoundSymptom;

/// Explains why cells differ: in words and in steps, with functions if there is room for them; if
/// cells of frames are compared, preceded by why their packet rates differ.
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

/// Shows the meaning of well-known functions in a profile.
pub fn symptoms(seen: &[FoundSymptom]) -> Document {
    Document::of([symptoms::section(seen, &[""; 0])])
}
