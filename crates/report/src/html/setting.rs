//! What did not run, warnings, how to read the page, and the hosts.

use super::View;
use crate::figures::{level, plural};
use crate::words::{Unmeasured, cautions, never_run, not_counted, unavailable};
use crate::{placement, reproduce, setup};
use bytepath_record::Facts;
use maud::{Markup, html};

/// Cells and trials without a number, each with its reason.
pub(crate) fn missing(view: &View) -> Option<Markup> {
    let (cannot, lost) = (unavailable(view.analysis), not_counted(view.analysis));
    let never = never_run(view.analysis);
    if cannot.is_empty() && lost.is_empty() && never.is_empty() {
        return None;
    }
    Some(html! {
        @if !cannot.is_empty() { h3 { "Not available on this host" } (list(&cannot)) }
        @if !lost.is_empty() { h3 { "Trials that do not count" } (list(&lost)) }
        @if !never.is_empty() { p { "Not run: " (never.join(", ")) "." } }
    })
}

fn list(all: &[Unmeasured]) -> Markup {
    html! {
        ul {
            @for one in all {
                li {
                    strong class="cell" { (one.row.cell) } ": " (one.reason)
                    @if !one.remedy.is_empty() { span class="off" { " \u{2192} " (one.remedy) } }
                }
            }
        }
    }
}

pub(crate) fn warnings(view: &View) -> Option<Markup> {
    let lines = cautions(view.analysis);
    (!lines.is_empty()).then(|| html! { ul { @for line in &lines { li { (line) } } } })
}

/// How to read the page.
pub(crate) fn method(view: &View) -> Option<Markup> {
    let rules = &view.analysis.rules;
    Some(html! {
        p {
            "Every cell does the same work under the same contract. The cells run in "
            (plural(view.study.header.schedule.blocks.into(), "block"))
            ", each cell once a block in random order, so that slow drift of the machine affects \
             all of them. A cell is compared with the baseline block by block: the effect is the mean of the \
             logarithms of the ratios, its interval is by Student\u{2019}s t over the blocks. \
             Figures show the " (level(rules.confidence)) " interval of each comparison by itself; the \
             verdicts rest on wider ones, so that they hold for all comparisons together."
        }
        ul {
            li {
                @if view.analysis.instructions_per_second.is_some() {
                    span class="word better" { "FEWER INSTRUCTIONS" } ", "
                    span class="word worse" { "MORE INSTRUCTIONS" }
                } @else {
                    span class="word better" { "FASTER" } ", " span class="word worse" { "SLOWER" } ", "
                    span class="word better" { "LESS CPU" } ", " span class="word worse" { "MORE CPU" }
                }
                @if view.rows.iter().any(|row| row.latency.is_some()) {
                    ", " span class="word better" { "LOWER LATENCY" } ", "
                    span class="word worse" { "HIGHER LATENCY" }
                }
                ": the whole interval lies on one side of the baseline." }
            li { span class="word" { "EQUIVALENT" } ": the whole interval lies within " (level(rules.margin))
                ". This has to be shown; few blocks cannot show it." }
            li { span class="word" { "INCONCLUSIVE" } ": these blocks cannot decide. It does \
                not mean that there is no difference." }
            li { span class="word" { "NOISE TOO HIGH" } ": a cell differs from its own second copy \
                (A against A) by as much as the claim." }
            @if view.analysis.functional.is_none() {
                li { span class="word" { "SATURATED" } ": both reach the same ceiling, so that the ceiling \
                was measured and not the paths; compare their CPU." }
            }
            li { span class="word" { "NOT COMPARABLE" } ": the two were not given the same \
                task, or something happened to one of them." }
        }
        p {
            "A trial is left out for a recorded event only, never for its value, and the event is \
             shown. \u{201c}Zero-copy\u{201d} is a label on which both ledgers and the witness page \
             have to agree; bytes without proof count as unknown, not as zero-copy."
        }
    })
}

/// The setup, the command, the hosts.
pub(crate) fn facts(view: &View) -> Option<Markup> {
    let hosts = &view.study.header.facts;
    Some(html! {
        dl class="facts" {
            @for (name, text) in setup::facts(&view.subject) { dt { (name) } dd { (text) } }
            dt { "meters" } dd { (view.study.header.meters.join(", ")) }
            @for line in &placement::lines(view.analysis) {
                dt { "where it ran" } dd { (line.cells) ": " (line.text) }
            }
        }
        @if let Some(pieces) = reproduce::command(view.subject.recorded) {
            p class="note" { "To run it again:" }
            pre { (pieces.join(" \\\n    ")) }
        }
        @for (i, host) in hosts.iter().enumerate() {
            @if i == 0 || *host != hosts[0] { (details(host, i, hosts.len())) }
        }
    })
}

fn details(host: &Facts, at: usize, of: usize) -> Markup {
    let name = match (at, of) {
        (_, 1) => "host",
        (0, _) => "the sender\u{2019}s host",
        _ => "the receiver\u{2019}s host",
    };
    html! {
        details {
            summary { "Settings of " (name) }
            dl class="facts" {
                dt { "kernel" } dd { (host.kernel_version) }
                @if !host.privileges.capabilities.is_empty() {
                    dt { "capabilities" } dd { (host.privileges.capabilities.join(", ")) }
                }
                @for (name, value) in &host.settings { dt { (name) } dd { (value) } }
            }
        }
    }
}
