//! The answer and the verdicts, in words.

use super::{View, signed, verdict};
use crate::answer;
use crate::figures::plural;
use crate::offload::sentences;
use crate::verdicts::{compared, events_rule, noise, rule, sentence, stopping, subject};
use crate::words::{Leader, functional, labels, leaders, nothing};
use bytepath_stats::{Comparison, Question, Row, Verdict};
use maud::{Markup, html};

/// What came out, in a few sentences.
pub(crate) fn answer(view: &View) -> Markup {
    let paragraphs = answer::answer(view.analysis, view.explanation);
    if paragraphs.is_empty() {
        return leading(view);
    }
    html! {
        @for line in sentences(view.analysis) { p class="lede" { (line) } }
        @for (at, paragraph) in paragraphs.iter().enumerate() {
            p class=[(at == 0).then_some("lede")] { strong { (paragraph.lead) } " " (paragraph.text) }
        }
    }
}

/// What leads in what, where nothing is recommended.
fn leading(view: &View) -> Markup {
    let leaders = leaders(view.analysis);
    let functional = functional(view.analysis);
    let opening = functional.or_else(|| leaders.is_empty().then(|| nothing(view.analysis)));
    html! {
        @for line in sentences(view.analysis) { p class="lede" { (line) } }
        @if let Some(text) = &opening { p class="lede" { (text) } }
        p class="lede" {
            @for leader in &leaders {
                @if leader.question == Question::Rate {
                    strong { (leader.row.cell) } " has the " (leader.title()) " of "
                    (plural(view.rows.len() as u64, "cell")) ": " (leader.figure) (standing(view, leader))
                    ". Its label is \u{201c}" (labels(&leader.row.labels)) "\u{201d}."
                } @else {
                    " The " (leader.title()) " goes to " strong { (leader.row.cell) } ": "
                    (leader.figure) (standing(view, leader)) "."
                }
            }
        }
    }
}

/// How a leader compares with the baseline.
fn standing(view: &View, leader: &Leader) -> Markup {
    html! {
        @if let Some(effect) = leader.effect() {
            ", " (signed(effect.ratio)) " against " (view.analysis.baseline) ", "
            (verdict(leader.row, leader.question))
        } @else if leader.row.baseline { ", the baseline" }
    }
}

/// Cells that are listed whatever their verdict; of more, those without a claim
/// are folded, so that a large matrix does not bury its answer.
const LISTED: usize = 8;

/// The verdict on a cell: the question and its comparison.
type Said<'a> = Vec<(Question, &'a Comparison)>;

fn said(row: &Row) -> Said<'_> {
    let of = |question| Some((question, row.comparison(question)?));
    let all = Question::MAIN.into_iter().filter_map(of);
    all.filter(|(_, comparison)| comparison.verdict != Verdict::Functional).collect()
}

/// Every comparison in a sentence, and what the words rest on.
pub(crate) fn list(view: &View) -> Markup {
    let analysis = view.analysis;
    let rows = view.rows.iter().map(|row| (*row, said(row)));
    let rows: Vec<(&Row, Said)> = rows.collect();
    let rows: Vec<_> = rows.into_iter().filter(|(_, said)| !said.is_empty()).collect();
    if rows.is_empty() {
        return html! {};
    }
    let many = rows.len() > LISTED;
    let claims = |said: &Said| said.iter().any(|(_, c)| c.verdict.better().is_some());
    let (shown, folded): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|(_, said)| !many || claims(said));
    html! {
        section id="verdict" {
            h2 { "Verdicts, against " (analysis.baseline) }
            (bullets(view, &shown))
            @if !folded.is_empty() {
                details {
                    summary { (plural(folded.len() as u64, "cell")) " not distinguishable from " (analysis.baseline) }
                    (bullets(view, &folded))
                }
            }
            @for question in Question::MAIN {
                @if !compared(analysis, question).is_empty() {
                    p class="note" { "On " (subject(question, analysis.work())) ". " (noise(analysis, question)) }
                }
            }
            p class="note" { (rule(analysis)) " " (events_rule()) }
            @if let Some(text) = stopping(analysis) { p class="note" { (text) } }
        }
    }
}

fn bullets(view: &View, rows: &[(&Row, Said)]) -> Markup {
    html! {
        ul {
            @for (row, said) in rows {
                li {
                    strong class="cell" { (row.cell) }
                    // What makes two cells incomparable does so in every question.
                    @if let Some((question, one)) = said.first()
                        && !one.reasons.is_empty() && said.iter().all(|(_, c)| c.reasons == one.reasons) {
                        ": " (verdict(row, *question)) span class="note" { (rest(view, one)) "." }
                    } @else {
                        @for (question, comparison) in said {
                            br; (subject(*question, row.work)) ": " (verdict(row, *question))
                            @if comparison.verdict.better().is_some() {
                                @if let Some(effect) = &comparison.effect { " " (signed(effect.ratio)) ":" }
                            }
                            (rest(view, comparison)) "."
                        }
                    }
                }
            }
        }
    }
}

/// A sentence after its word.
fn rest(view: &View, comparison: &Comparison) -> String {
    let whole = sentence(comparison, view.analysis);
    whole.strip_prefix(comparison.verdict.word()).unwrap_or(&whole).to_owned()
}
