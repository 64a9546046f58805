//! The answer and the verdicts, in words.

use super::blocks::minus;
use crate::document::{Block, List, Section};
use crate::sections::{View, class};
use crate::wording::answer;
use crate::wording::figures::{change, level, plural};
use crate::wording::offload::sentences;
use crate::wording::text::{Leader, functional, labels, leaders, nothing};
use crate::wording::verdicts::{compared, events_rule, noise, rule, sentence, stopping};
use crate::wording::verdicts::{subject, word};
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

/// The verdicts on a cell: each question with its comparison.
type Decided<'a> = Vec<(Question, &'a Comparison)>;

fn decided(row: &Row) -> Decided<'_> {
    let of = |question| Some((question, row.comparison(question)?));
    let all = Question::MAIN.into_iter().filter_map(of);
    all.filter(|(_, comparison)| comparison.verdict != Verdict::Functional).collect()
}

/// Every comparison in a sentence, and what the words rest on.
pub(crate) fn list(view: &View) -> Markup {
    let analysis = view.analysis;
    let rows = view.rows.iter().map(|row| (*row, decided(row)));
    let rows: Vec<(&Row, Decided)> = rows.collect();
    let rows: Vec<_> = rows.into_iter().filter(|(_, decided)| !decided.is_empty()).collect();
    if rows.is_empty() {
        return html! {};
    }
    let many = rows.len() > LISTED;
    let claims = |decided: &Decided| decided.iter().any(|(_, c)| c.verdict.better().is_some());
    let (shown, folded): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|(_, decided)| !many || claims(decided));
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

fn bullets(view: &View, rows: &[(&Row, Decided)]) -> Markup {
    html! {
        ul {
            @for (row, decided) in rows {
                li {
                    strong class="cell" { (row.cell) }
                    // What makes two cells incomparable does so in every question.
                    @if let Some((question, one)) = decided.first()
                        && !one.reasons.is_empty() && decided.iter().all(|(_, c)| c.reasons == one.reasons) {
                        ": " (verdict(row, *question)) span class="note" { (rest(view, one)) "." }
                    } @else {
                        @for (question, comparison) in decided {
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

/// The word of a verdict, in its colour.
fn verdict(row: &Row, question: Question) -> Markup {
    html! { span class={ "word " (class(row, question)) } { (word(row, question)) } }
}

/// A ratio as a difference in percent.
fn signed(ratio: f64) -> String {
    minus(&change(ratio))
}

/// How to read the page.
pub(crate) fn method(view: &View) -> Section {
    let rules = &view.analysis.rules;
    let mut section = Section::new("method", "How to read this");
    section.text(
        "",
        &format!(
            "Every cell does the same work under the same contract. The cells run in {}, each cell \
         once a block in random order, so that slow drift of the machine affects all of them. A \
         cell is compared with the baseline block by block: the effect is the mean of the \
         logarithms of the ratios, its interval is by Student\u{2019}s t over the blocks. Figures \
         show the {} interval of each comparison by itself; the verdicts rest on wider ones, so \
         that they hold for all comparisons together.",
            plural(view.study.header.schedule.blocks.into(), "block"),
            level(rules.confidence)
        ),
    );
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
