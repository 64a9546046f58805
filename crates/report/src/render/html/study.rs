//! `html`: the page of a study, and the page that explains why cells differ.

use super::shell::{titled, write};
use super::{blocks, filter, flame, frontier, method, pages};
use crate::document::{Block, Media, Section};
use crate::report::{Report, Subject};
use crate::sections::frames::RateDifference;
use crate::sections::{self, View, frames, waterfall};
use crate::wording::figures::NONE;
use crate::wording::setup::date;
use bytepath_profile::Explanation;
use bytepath_stats::ThresholdResult;
use maud::{Markup, html};
use serde_json::json;
use std::io::{self, Write};

pub(crate) static FORMAT: Report = Report {
    name: "html",
    summary: "one self-contained page with figures, for a browser or a printer",
    extension: "html",
    render: |subject, _, out| study(subject, &[], out),
    binary: false,
    short_names: true,
};

/// Writes the page of a study, with the outcome of thresholds.
pub fn study(
    subject: &Subject,
    results: &[ThresholdResult],
    out: &mut dyn Write,
) -> io::Result<()> {
    let view = View::new(subject, Media::PAGE, true);
    let charts = subject.explanation.map_or(&[][..], |explanation| &explanation.charts);
    let data = json!({ "study": filter::data(&view), "flames": flame::data(charts) });
    write(&title(&view), &view.study.header.bytepath, content(&view, results), &data, out)
}

/// Writes a page that only explains why cells differ.
pub fn explanation(
    explanation: &Explanation,
    why: Option<&RateDifference>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let title = match explanation.waterfalls.as_slice() {
        [one] => format!("{} against {}", one.after.cell, one.before.cell),
        all => format!("{} differences", all.len()),
    };
    let parts = [
        frames::differences(why),
        waterfall::section(explanation, false),
        waterfall::symptoms_of(explanation),
        waterfall::functions_of(explanation),
    ];
    let content = html! {
        header { h1 { (title) } }
        main {
            @for part in parts.iter().filter(|part| !part.is_empty()) {
                (titled(part))
            }
            section { (flame::graphs(&explanation.charts)) }
        }
    };
    let data = json!({ "flames": flame::data(&explanation.charts) });
    write(&title, env!("CARGO_PKG_VERSION"), content, &data, out)
}

fn content(view: &View, results: &[ThresholdResult]) -> Markup {
    let header = &view.study.header;
    let date = date(header.started_ms).unwrap_or_else(|| NONE.into());
    let mut parts = sections::study(view);
    parts.extend([method::section(view), sections::setup(view)]);
    parts.sort_by_key(|part| FIRST.iter().position(|id| *id == part.id).unwrap_or(FIRST.len()));
    let charts = view.explanation.map_or(&[][..], |explanation| &explanation.charts);
    html! {
        header {
            p class="kicker" { "bytepath " (header.bytepath) " \u{b7} study of " (date) }
            h1 { (title(view)) }
            (answer(view))
            (pages::thresholds(results))
            nav aria-label="Contents" {
                @for part in &parts { a href={ "#" (part.id) } { (short(&part.title)) } " " }
            }
        }
        main {
            (filter::bar(view))
            @for part in &parts {
                @match part.id {
                    "verdict" => (in_words(part)),
                    _ => (titled(part)),
                }
                @if part.id == "cpu" {
                    @if let Some(figure) = frontier::figure(view) {
                        section id="frontier" { (blocks::figure(&figure)) }
                    }
                }
            }
            @if !charts.is_empty() {
                section id="flames" { h2 { "Flame graphs" } (flame::graphs(charts)) }
            }
        }
    }
}

/// The sections to read first: the figures, and why they differ.
const FIRST: [&str; 7] = ["rate", "latency", "cpu", "differs", "why", "symptoms", "verdict"];

/// Renders a section of sentences that repeat the figures, folded.
fn in_words(section: &Section) -> Markup {
    html! {
        section id=(section.id) {
            h2 { (section.title) }
            details { summary { "Every comparison in words" } (blocks::section(section)) }
        }
    }
}

/// Returns a title up to its first punctuation, so that it fits the width of a phone.
fn short(title: &str) -> &str {
    title.split([',', ':', '(']).next().unwrap_or(title).trim_end()
}

/// Renders the result, with its first part in larger type.
fn answer(view: &View) -> Markup {
    let section = sections::answer(view);
    let texts = section.blocks.iter().filter_map(|(_, block)| match block {
        Block::Text(lead, text) => Some((lead.trim(), text)),
        _ => None,
    });
    html! {
        @for (at, (lead, text)) in texts.enumerate() {
            p class=[(at == 0).then_some("lede")] {
                @if !lead.is_empty() { strong { (lead) } " " }
                (text)
            }
        }
    }
}

fn title(view: &View) -> String {
    let header = &view.study.header;
    if !header.title.is_empty() {
        return header.title.clone();
    }
    let what = match view.rows.len() {
        0 => "No data path measured".to_owned(),
        1 => format!("One data path: {}", view.rows[0].cell),
        n => format!("{n} data paths for {}", view.analysis.work().terms().load),
    };
    match header.facts.first() {
        Some(facts) => format!("{what}, Linux {}", facts.kernel_release),
        None => what,
    }
}
