//! `html`: the study as one file that needs no network: for a browser, a phone,
//! a printer. Verdicts first, figures, tables, methods and host facts last.
//!
//! Every text that comes from outside goes through `maud`, which escapes it;
//! control and direction characters are made visible in the finished page
//! ([`visible`]); and the page's own policy lets nothing run but the scripts
//! whose digests it names. Figures are tables whose rows hold a small drawing
//! ([`plot`]): what is drawn can be read next to it. What the scripts need is data
//! (`#data`, as JSON); the page is whole without them, but for its flame graphs.

mod cost;
mod course;
mod energy;
mod factors;
mod filter;
mod flame;
mod frontier;
mod latency;
mod ledger;
mod offload;
mod pages;
mod plot;
mod rate;
mod scale;
mod setting;
mod sizes;
mod tables;
mod verdicts;
mod waterfall;

pub use pages::{between, difference, history, observation};

use super::figures::{NONE, change};
use super::verdicts::word;
use super::{Report, Style, Subject, Why, counted, frames, hops, setup};
use bytepath_profile::Explanation;
use bytepath_record::{CellId, Study, Trial, Work, visible, visible_json};
use bytepath_stats::{Analysis, Effect, Question, Row, ThresholdResult};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};
use std::collections::HashMap;
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

/// See the module's text.
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
    let view = View::new(subject);
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
    let content = html! {
        header { h1 { (title) } }
        main { section {
            @if let Some(why) = why { (tables::why(why)) }
            @if let Some(part) = waterfall::section(explanation) { (part) }
        } }
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

/// What every part of the page is made from.
struct View<'a> {
    subject: Subject<'a>,
    study: &'a Study,
    analysis: &'a Analysis,
    explanation: Option<&'a Explanation>,
    /// Measured rows in the order of all figures: the fastest first.
    rows: Vec<&'a Row>,
    /// The trials of each cell, in the order run.
    trials: HashMap<&'a str, Vec<&'a Trial>>,
}

impl<'a> View<'a> {
    fn new(subject: &Subject<'a>) -> View<'a> {
        let Subject { study, analysis, explanation, .. } = *subject;
        let mut rows: Vec<&Row> = analysis.rows.iter().filter(|r| r.status.measured > 0).collect();
        rows.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
        let mut trials: HashMap<&str, Vec<&Trial>> = HashMap::new();
        for trial in &study.trials {
            trials.entry(&trial.cell.0).or_default().push(trial);
        }
        View { subject: *subject, study, analysis, explanation, rows, trials }
    }

    /// Its rows by what they count, in the order of all figures.
    fn by_work(&self) -> Vec<(Work, Vec<&'a Row>)> {
        let of = |work| -> Vec<&'a Row> {
            self.rows.iter().copied().filter(|row| row.work == work).collect()
        };
        let all = Work::ALL.into_iter().map(|work| (work, of(work)));
        all.filter(|(_, rows)| !rows.is_empty()).collect()
    }

    fn trials(&self, row: &Row) -> &[&'a Trial] {
        self.trials.get(row.cell.0.as_str()).map_or(&[], Vec::as_slice)
    }

    /// Where the trials of a cell begin in the table of all: the id of that row, which is
    /// that of this trial if one is given and it is the first.
    fn anchor(&self, cell: &CellId, of: Option<&Trial>) -> Option<String> {
        let at = self.study.trials.iter().position(|trial| trial.cell == *cell)?;
        let is_first = of.is_none_or(|trial| std::ptr::eq(trial, &self.study.trials[at]));
        is_first.then(|| format!("trial-{at}"))
    }

    fn baseline(&self) -> Option<&'a Row> {
        self.analysis.rows.iter().find(|r| r.baseline)
    }

    /// Effect of a row in one question.
    fn effect(&self, row: &'a Row, question: Question) -> Option<&'a Effect> {
        row.comparison(question)?.effect.as_ref()
    }
}

/// Mean rate, by which rows are sorted.
fn rank(row: &Row) -> f64 {
    row.rate.map_or(0.0, |t| t.mean)
}

fn content(view: &View, results: &[ThresholdResult]) -> Markup {
    let header = &view.study.header;
    let date = setup::date(header.started_ms).unwrap_or_else(|| NONE.into());
    let terms = view.analysis.work().terms();
    let cost = format!("CPU per {}", terms.unit);
    let parts = [
        ("rate", terms.rate_heading, rate::figure(view)),
        ("latency", "Latency", latency::figure(view)),
        ("hops", hops::TITLE, tables::hops(view)),
        ("differs", frames::TITLE, tables::whys(view)),
        ("cpu", &cost, cost::figure(view)),
        (
            "counters",
            "Counters of threads",
            counted::grid(view.study, view.analysis).map(|grid| tables::grid(&grid)),
        ),
        ("engines", "Copy engines", offload::figure(view)),
        ("factors", "What each factor does", factors::section(view)),
        ("why", "Where the CPU time goes", view.explanation.and_then(waterfall::section)),
        ("roi", "Return on investment", cost::returns(view)),
        ("energy", "Energy", energy::energy(view)),
        ("idle", "Idle states", energy::idle(view)),
        ("ledger", "Zero-copy ledger", ledger::figure(view)),
        ("course", "Throughput over time", course::figure(view)),
        ("sizes", "Transfer sizes", sizes::figure(view)),
        ("functions", "Locks and other CPUs", tables::functions(view)),
        ("fragments", "Fragments", tables::fragments(view)),
        ("calls", "System calls", tables::calls(view)),
        ("trials", "All trials", tables::trials(view)),
        ("readings", "All readings", tables::readings(view)),
        ("missing", "Not measured", setting::missing(view)),
        ("warnings", "Warnings", setting::warnings(view)),
        ("method", "How to read this", setting::method(view)),
        ("setup", "Setup", setting::facts(view)),
    ];
    let parts: Vec<_> =
        parts.into_iter().filter_map(|(id, name, p)| Some((id, name, p?))).collect();
    html! {
        header {
            p class="kicker" { "bytepath " (header.bytepath) " \u{b7} study of " (date) }
            h1 { (title(view)) }
            (verdicts::answer(view))
            (pages::thresholds(results))
            nav aria-label="Contents" {
                @for (id, name, _) in &parts { a href={ "#" (id) } { (name) } " " }
            }
        }
        main {
            @if let Some(figure) = frontier::figure(view) { section id="frontier" { (figure) } }
            (filter::bar(view))
            (verdicts::list(view))
            @for (id, name, part) in &parts {
                section id=(id) {
                    h2 { (name) }
                    (part)
                }
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

/// Class of a row by its verdict on one question.
fn tone(row: &Row, question: Question) -> &'static str {
    match row.comparison(question).map(|c| c.verdict.better()) {
        Some(Some(true)) => "better",
        Some(Some(false)) => "worse",
        None if row.baseline => "base",
        _ => "open",
    }
}

/// The head of a row that is of a cell: the page's filter knows it by its class.
fn cell(id: &CellId) -> Markup {
    html! { th scope="row" class="cell" { (name(id)) } }
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

/// The name of a cell, which may be broken after a sign that joins its parts.
fn name(id: &CellId) -> Markup {
    html! {
        @for (i, part) in id.0.split_inclusive([',', '+', ';', '/']).enumerate() {
            @if i > 0 { wbr; } (part)
        }
    }
}

/// What a comparison came to, for a table: the change and its interval.
fn changed(effect: Option<&Effect>) -> Markup {
    html! {
        (signed(effect.map(|e| e.ratio)))
        @if let Some(i) = effect.and_then(|e| e.interval) {
            br; " " span class="off" { (signed(i.low)) " \u{2026} " (signed(i.high)) }
        }
    }
}

/// The word of a verdict, in its colour.
fn verdict(row: &Row, question: Question) -> Markup {
    html! { span class={ "word " (tone(row, question)) } { (word(row, question)) } }
}

/// A ratio as a difference in percent, with a minus as long as the plus.
fn signed(ratio: impl Into<Option<f64>>) -> String {
    change(ratio).replace('-', "\u{2212}")
}
