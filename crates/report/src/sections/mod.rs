//! The sections of the report of a study: each is written once, for all formats, from a
//! [`View`] of the study.

mod cost;
mod counters;
mod details;
mod ends;
mod engines;
mod factors;
pub(crate) mod frames;
mod functions;
mod hops;
mod latency;
mod ledger;
mod loops;
mod memory;
mod placement;
pub(crate) mod ranking;
mod rates;
mod residency;
mod returns;
mod scaling;
pub(crate) mod symptoms;
mod trials;
mod verdicts;
mod view;
pub(crate) mod waterfall;

pub(crate) use verdicts::{answer, setup};
pub(crate) use view::{View, class_of};

use crate::document::{Media, Section};

/// Returns all sections except for the answer and the setup, in reading order. Renderers filter
/// what their format does not show.
pub(crate) fn study(view: &View) -> Vec<Section> {
    let mut sections = vec![
        hops::charts(view),
        rates::section(view),
        latency::section(view),
        loops::ways(view),
        loops::section(view),
        hops::section(view),
        frames::section(view),
        frames::work(view),
        cost::section(view),
        cost::busy(view),
        cost::guests(view),
        cost::calls(view),
        counters::charts(view),
        counters::section(view),
        returns::energy(view),
        returns::section(view),
        engines::section(view),
        engines::copies(view),
        scaling::crossings(view),
        scaling::charts(view),
        factors::section(view),
        placement::section(view),
        verdicts::section(view),
        verdicts::profiles(view),
    ];
    if let Some(explanation) = view.explanation {
        let with_functions = view.details && view.medium == Media::TERMINAL;
        sections.push(waterfall::section(explanation, with_functions));
        sections.push(waterfall::symptoms_of(explanation));
        // With many pairs the waterfalls suffice, unless details are requested.
        let is_one = explanation.ranked.len() == 1;
        let media =
            if is_one || view.details { Media::TERMINAL.or(Media::PAGE) } else { Media::PAGE };
        sections.push(waterfall::functions_of(explanation).on(media));
    }
    sections.extend([
        ledger::section(view),
        verdicts::missing(view),
        verdicts::warnings(view),
        details::calls(view),
        details::sizes(view),
        details::idle(view),
        residency::section(view),
        memory::section(view),
        details::functions(view),
        details::fragments(view),
        details::course(view),
        details::pairs(view),
        trials::section(view),
        trials::readings(view),
    ]);
    let is_shown = |section: &Section| {
        let in_detail = view.details || view.medium == Media::PAGE;
        section.media.includes(view.medium) && (in_detail || !section.detail)
    };
    sections.retain(|section| is_shown(section) && !section.is_empty());
    sections
}
