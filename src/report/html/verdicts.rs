//! The answer and the verdicts, in words.

use super::{View, signed, verdict};
use crate::report::figures::{cpu, gbit, plural};
use crate::report::verdicts::{
    compared, comparison, events_rule, noise, rule, sentence, stopping, subject,
};
use crate::report::words::{functional, labels};
use crate::stats::{Comparison, Question, Row};
use maud::{Markup, html};

/// What came out, in two sentences.
pub fn answer(view: &View) -> Markup {
    if let Some(text) = functional(view.analysis) {
        return html! { p class="lede" { (text) } };
    }
    let Some(best) = view.rows.first() else {
        return html! { p class="lede" { "No trial was measured, so there is nothing to compare." } };
    };
    let cheapest = view
        .rows
        .iter()
        .filter_map(|row| Some((row, row.cpu_per_gib?.mean)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    html! {
        p class="lede" {
            strong { (best.cell) }
            " has the highest mean throughput of " (plural(view.rows.len() as u64, "cell")) ": "
            (gbit(best.throughput.map(|t| t.mean))) " Gbit/s"
            (standing(view, best, Question::Throughput)) ". "
            "Its label is \u{201c}" (labels(&best.labels)) "\u{201d}."
            @if let Some((row, cost)) = cheapest {
                " The least CPU goes to " strong { (row.cell) } ": " (cpu(cost))
                " CPU seconds per GiB, both ends together" (standing(view, row, Question::Cpu)) "."
            }
        }
    }
}

/// How a row stands to the baseline.
fn standing(view: &View, row: &Row, question: Question) -> Markup {
    let effect = comparison(row, question).and_then(|c| c.effect.as_ref());
    html! {
        @if let Some(effect) = effect {
            ", " (signed(effect.ratio)) " against " (view.analysis.baseline) ", "
            (verdict(row, question))
        } @else if row.baseline { ", the baseline" }
    }
}

/// Cells that are listed whatever is said of them; of more, those without a claim
/// are folded, so that a large matrix does not bury its answer.
const LISTED: usize = 8;

const QUESTIONS: [Question; 2] = [Question::Throughput, Question::Cpu];

/// What is said of a cell: the question and its comparison.
type Said<'a> = Vec<(Question, &'a Comparison)>;

/// Every comparison in a sentence, and what the words rest on.
pub fn list(view: &View) -> Markup {
    let analysis = view.analysis;
    let said = |row| -> Said {
        QUESTIONS.into_iter().filter_map(|q| Some((q, comparison(row, q)?))).collect()
    };
    let rows: Vec<(&Row, Said)> = view.rows.iter().map(|row| (*row, said(row))).collect();
    let rows: Vec<_> = rows.into_iter().filter(|(_, said)| !said.is_empty()).collect();
    if rows.is_empty() || analysis.functional.is_some() {
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
                    summary { (plural(folded.len() as u64, "cell")) " not told apart from " (analysis.baseline) }
                    (bullets(view, &folded))
                }
            }
            @for question in QUESTIONS {
                @if !compared(analysis, question).is_empty() {
                    p class="note" { "On " (subject(question)) ". " (noise(analysis, question)) }
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
                    strong { (row.cell) }
                    // What makes two cells incomparable does so in every question.
                    @if let [(question, one), (_, other)] = said[..]
                        && !one.reasons.is_empty() && one.reasons == other.reasons {
                        ": " (verdict(row, question)) span class="note" { (rest(view, one)) "." }
                    } @else {
                        @for (question, comparison) in said {
                            br; (subject(*question)) ": " (verdict(row, *question))
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

/// A sentence behind its word.
fn rest(view: &View, comparison: &Comparison) -> String {
    let told = sentence(comparison, view.analysis);
    told.strip_prefix(comparison.verdict.word()).unwrap_or(&told).to_owned()
}
