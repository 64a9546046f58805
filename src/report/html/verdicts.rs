//! The answer and the verdicts, in words.

use super::{View, signed, tone, verdict};
use crate::report::figures::{cpu, gbit, plural};
use crate::report::verdicts::{
    compared, comparison, events_rule, noise, rule, sentence, stopping, subject,
};
use crate::report::words::labels;
use crate::stats::{Question, Row};
use maud::{Markup, html};

/// What came out, in two sentences.
pub fn answer(view: &View) -> Markup {
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

/// Every comparison in a sentence, and what the words rest on.
pub fn list(view: &View) -> Markup {
    let analysis = view.analysis;
    let questions = [Question::Throughput, Question::Cpu]
        .into_iter()
        .filter(|question| !compared(analysis, *question).is_empty());
    let questions: Vec<Question> = questions.collect();
    html! {
        @if !questions.is_empty() {
            section id="verdict" {
                @for question in &questions {
                    h2 { "Verdicts on " (subject(*question)) ", against " (analysis.baseline) }
                    (sentences(view, *question))
                    p class="note" { (noise(analysis, *question)) }
                }
                p class="note" { (rule(analysis)) " " (events_rule()) }
                @if let Some(text) = stopping(analysis) { p class="note" { (text) } }
            }
        }
    }
}

fn sentences(view: &View, question: Question) -> Markup {
    let rows = view.rows.iter().filter_map(|row| Some((row, comparison(row, question)?)));
    html! {
        ul {
            @for (row, comparison) in rows {
                @let told = sentence(comparison, view.analysis);
                @let rest = told.strip_prefix(comparison.verdict.word()).unwrap_or(&told);
                li {
                    strong { (row.cell) } ": "
                    span class={ "word " (tone(row, question)) } { (comparison.verdict.word()) }
                    @if comparison.verdict.better().is_some() {
                        @if let Some(effect) = &comparison.effect { " " (signed(effect.ratio)) ":" }
                    }
                    (rest)
                }
            }
        }
    }
}
