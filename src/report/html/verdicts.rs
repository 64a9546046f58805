//! The answer and the verdicts, in words.

use super::{View, signed, tone, word};
use crate::report::figures::{cpu, gbit, plural};
use crate::report::words::{labels, noise, rule, sentence};
use crate::stats::{Row, Verdict};
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
            (gbit(best.throughput.map(|t| t.mean))) " Gbit/s" (standing(view, best)) ". "
            "Its label is \u{201c}" (labels(&best.labels)) "\u{201d}."
            @if let Some((row, cost)) = cheapest {
                " The least CPU goes to " strong { (row.cell) } ": " (cpu(cost))
                " CPU seconds per GiB, both ends together" (dearer(view, row)) "."
            }
        }
    }
}

/// How the best row stands to the baseline.
fn standing(view: &View, row: &Row) -> Markup {
    let effect = row.comparison.as_ref().and_then(|c| c.effect.as_ref());
    html! {
        @if let Some(effect) = effect {
            ", " (signed(effect.ratio)) " against " (view.analysis.baseline) ", "
            span class={ "word " (tone(row)) } { (word(row)) }
        } @else if row.baseline { ", the baseline" }
    }
}

fn dearer(view: &View, row: &Row) -> Markup {
    let base = view.baseline().filter(|b| b.cell != row.cell);
    html! {
        @if let Some(cost) = base.and_then(|b| b.cpu_per_gib) {
            " (" (view.analysis.baseline) ": " (cpu(cost.mean)) ")"
        }
    }
}

/// Every comparison in a sentence, and what the words rest on.
pub fn list(view: &View) -> Markup {
    let compared = || view.rows.iter().filter_map(|row| Some((row, row.comparison.as_ref()?)));
    if compared().next().is_none() {
        return html! {};
    }
    let analysis = view.analysis;
    html! {
        section id="verdict" {
            h2 { "Verdicts on throughput, against " (analysis.baseline) }
            ul {
                @for (row, comparison) in compared() {
                    @let told = sentence(comparison, analysis);
                    @let rest = told.strip_prefix(comparison.verdict.word()).unwrap_or(&told);
                    li {
                        strong { (row.cell) } ": "
                        span class={ "word " (tone(row)) } { (word(row)) }
                        @if matches!(comparison.verdict, Verdict::Faster | Verdict::Slower) {
                            @if let Some(effect) = &comparison.effect { " " (signed(effect.ratio)) ":" }
                        }
                        (rest)
                    }
                }
            }
            p class="note" { (noise(analysis)) }
            p class="note" { (rule(analysis)) }
        }
    }
}
