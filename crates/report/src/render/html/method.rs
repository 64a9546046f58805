//! A note on how to read a page.

use crate::document::{Block, List, Section};
use crate::sections::View;
use crate::wording::figures::{level, plural};

pub(crate) fn section(view: &View) -> Section {
    let rules = &view.analysis.rules;
    let mut section = Section::new("method", "How to read this");
    let text = format!(
        "Every cell does the same work under the same contract. The cells run in {}, each cell \
         once a block in random order, so that slow drift of the machine affects all of them. A \
         cell is compared with the baseline block by block: the effect is the mean of the \
         logarithms of the ratios, its interval is by Student\u{2019}s t over the blocks. Figures \
         show the {} interval of each comparison by itself; the verdicts rest on wider ones, so \
         that they hold for all comparisons together.",
        plural(view.study.header.schedule.blocks.into(), "block"),
        level(rules.confidence)
    );
    section.text("", text);
    let mut sided = match view.analysis.instructions_per_second {
        Some(_) => "FEWER INSTRUCTIONS, MORE INSTRUCTIONS".to_owned(),
        None => "FASTER, SLOWER, LESS CPU, MORE CPU".to_owned(),
    };
    if view.rows.iter().any(|row| row.latency.is_some()) {
        sided += ", LOWER LATENCY, HIGHER LATENCY";
    }
    let mut points = vec![
        format!("{sided}: the whole interval lies on one side of the baseline."),
        format!(
            "EQUIVALENT: the whole interval lies within {}. This has to be shown; few blocks \
             cannot show it.",
            level(rules.margin)
        ),
        "INCONCLUSIVE: these blocks cannot decide. It does not mean that there is no difference."
            .into(),
        "NOISE TOO HIGH: a cell differs from its own second copy (A against A) by as much as the \
         claim."
            .into(),
    ];
    points.extend(view.analysis.functional.is_none().then(|| {
        "SATURATED: both reach the same ceiling, so that the ceiling was measured and not the \
         paths; compare their CPU."
            .into()
    }));
    points.push(
        "NOT COMPARABLE: the two were not given the same task, or something happened to one of \
         them."
            .into(),
    );
    section.add(List::of(points));
    section.with(Block::Text(
        String::new(),
        "A trial is left out for a recorded event only, never for its value, and the event is \
         shown. \u{201c}Zero-copy\u{201d} is a label on which both ledgers and the witness page \
         have to agree; bytes without proof count as unknown, not as zero-copy."
            .into(),
    ))
}
