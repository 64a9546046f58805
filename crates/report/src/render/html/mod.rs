//! `html`: the study as one file that needs no network: for a browser, a phone,
//! a printer. Verdicts first, figures, tables, methods and host facts last.
//!
//! A document's sections become elements in one place ([`blocks`]); what only a page has
//! (the frontier, the filter, flame graphs, the verdicts by cell) is beside it.
//!
//! Every text that comes from outside goes through `maud`, which escapes it;
//! control and direction characters are made visible in the finished page
//! ([`visible`]); and the page's own policy lets nothing run but the scripts
//! whose digests it names. Figures are tables whose rows hold a small drawing
//! ([`plot`]): what is drawn can be read next to it. What the scripts need is data
//! (`#data`, as JSON); the page is whole without them, but for its flame graphs.

mod blocks;
mod filter;
mod flame;
mod frontier;
mod pages;
mod plot;
mod verdicts;

pub use pages::{between, difference, history, observation};

use crate::document::{Media, Section};
use crate::sections::{self, View, frames, waterfall};
use crate::wording::figures::NONE;
use crate::wording::setup::date;
use crate::{Report, Style, Subject, Why};
use bytepath_profile::Explanation;
use bytepath_record::{CellId, visible, visible_json};
use bytepath_stats::ThresholdResult;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};
use std::io::{self, Write};

const STYLE: &str = include_str!("style.css");

/// In this order: the later ones use what `tips.js` declares.
const SCRIPTS: [&str; 4] = [
    include_str!("tips.js"),
    include_str!("script.js"),
    include_str!("filter.js"),
    include_str!("flame.js"),
];

/// What the page may do: nothing but apply the style and run the scripts with these
/// digests (a test tells the right ones when they change).
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; \
     style-src 'sha256-UPzbn/J/CiAZsXj6fPEk84VjfpfiBaZsK5ofLeKa7eo='; \
     script-src 'sha256-2SWYJhghqhSKcqjCMOI/m9s6ZnmxlEEsQ9bJMzswSsY=' \
     'sha256-+FZ3g9Thq4rQ15pc5hvpkv54nn7Z2nbg4dhMbCehZms=' \
     'sha256-yJvMyagRT8EImCPtgs2h4l2Tki+Vfu6NZsOnqc+QyOc=' \
     'sha256-PU09N279wq97hX3X6629ffcrpCqtDuywPC+HPsA+WYs='";

pub(crate) static FORMAT: Report = Report {
    name: "html",
    summary: "one self-contained page with figures, for a browser or a printer",
    extension: "html",
    render,
    binary: false,
    short_names: true,
};

fn render(subject: &Subject, _: &Style, out: &mut dyn Write) -> io::Result<()> {
    study(subject, &[], out)
}

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

/// Writes a page that holds nothing but why cells differ.
pub fn explanation(
    explanation: &Explanation,
    why: Option<&Why>,
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
                section { (blocks::section(part)) }
            }
            section { (flame::graphs(&explanation.charts)) }
        }
    };
    let data = json!({ "flames": flame::data(&explanation.charts) });
    write(&title, env!("CARGO_PKG_VERSION"), content, &data, out)
}

/// Writes a page: its content, and what its scripts need. `version` is that of the program
/// the numbers are from.
fn write(
    title: &str,
    version: &str,
    content: Markup,
    data: &Value,
    out: &mut dyn Write,
) -> io::Result<()> {
    // JSON has this sign in texts alone, and there it may be an escape: no text ends the element.
    let data = visible_json(&data.to_string()).replace('<', "\\u003c");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, version))
            body {
                (content)
                script id="data" type="application/json" { (PreEscaped(data)) }
                @for script in SCRIPTS { script { (PreEscaped(script)) } }
            }
        }
    };
    out.write_all(visible(&page.into_string()).as_bytes())?;
    writeln!(out)
}

fn head(title: &str, version: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(POLICY);
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="generator" content={ "bytepath " (version) };
            title { (title) " \u{b7} bytepath" }
            style { (PreEscaped(STYLE)) }
        }
    }
}

/// A section with its title.
fn titled(section: &Section) -> Markup {
    html! {
        section id=[Some(section.id).filter(|id| !id.is_empty())] {
            @if !section.title.is_empty() { h2 { (section.title) } }
            (blocks::section(section))
        }
    }
}

fn content(view: &View, results: &[ThresholdResult]) -> Markup {
    let header = &view.study.header;
    let date = date(header.started_ms).unwrap_or_else(|| NONE.into());
    let mut parts = sections::study(view);
    parts.extend([verdicts::method(view), sections::setup(view)]);
    let charts = view.explanation.map_or(&[][..], |explanation| &explanation.charts);
    html! {
        header {
            p class="kicker" { "bytepath " (header.bytepath) " \u{b7} study of " (date) }
            h1 { (title(view)) }
            (verdicts::answer(view))
            (pages::thresholds(results))
            nav aria-label="Contents" {
                @for part in &parts { a href={ "#" (part.id) } { (part.title) } " " }
            }
        }
        main {
            @if let Some(figure) = frontier::figure(view) { section id="frontier" { (figure) } }
            (filter::bar(view))
            (verdicts::list(view))
            @for part in &parts { (titled(part)) }
            @if !charts.is_empty() {
                section id="flames" { h2 { "Flame graphs" } (flame::graphs(charts)) }
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

/// The head of a row that is of a cell: the page's filter knows it by its class.
fn cell(id: &CellId) -> Markup {
    html! { th scope="row" class="cell" { (blocks::name(&id.0)) } }
}

/// What colours mean: their classes and names.
fn key<'a>(colours: impl IntoIterator<Item = (&'a str, impl maud::Render)>) -> Markup {
    html! {
        ul class="key" {
            @for (class, name) in colours {
                li {
                    svg viewBox="0 0 14 10" aria-hidden="true" { rect class=(class) width="14" height="10" {} }
                    (name)
                }
            }
        }
    }
}
