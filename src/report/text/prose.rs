//! What is said in words: the answer, the evidence, what did not run, and what
//! to beware of.

use super::tables::labels;
use crate::record::{Evidence, Manner, Role};
use crate::report::figures::{amount, bytes, cpu, gbit, number, percent, plural, ratio};
use crate::report::page::{Page, plain};
use crate::report::verdicts;
use crate::stats::{Analysis, Comparison, Counted, CpuRule, End, Question, Row};

/// Parts above this one are worth a sentence.
const NOTABLE_OTHER: f64 = 0.05;
const NOTABLE_IOWAIT: f64 = 0.01;

/// The answer in two lines: what is fastest, what is cheapest.
pub fn answer(page: &mut Page, analysis: &Analysis) {
    let measured = || analysis.rows.iter().filter(|r| r.status.measured > 0);
    page.gap();
    let best =
        measured().filter_map(|r| Some((r, r.throughput?.mean))).max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((row, bits)) = best else {
        return page.text("", "No trial was measured, so there is nothing to compare.");
    };
    page.text(
        "fastest    ",
        &format!("{}: {} Gbit/s{}", row.cell, gbit(bits), standing(row, analysis)),
    );
    let cheapest = measured()
        .filter_map(|r| Some((r, r.cpu_per_gib?.mean)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((row, cost)) = cheapest {
        let base = analysis.rows.iter().find(|r| r.baseline && !row.baseline);
        let base = base.and_then(|b| Some((b, b.cpu_per_gib?.mean)));
        let than = base.map(|(b, c)| format!(" ({} {})", b.cell, cpu(c))).unwrap_or_default();
        page.text(
            "least CPU  ",
            &format!("{}: {} CPU-s per GiB, both ends{than}{}", row.cell, cpu(cost), cheap(row)),
        );
    }
}

/// The word on a row's CPU, where it has one.
fn cheap(row: &Row) -> String {
    let word = row.cpu_comparison.as_ref().map(|c| format!(": {}", c.verdict.word()));
    word.unwrap_or_default()
}

/// Label of a row and how it stands to the baseline.
fn standing(row: &Row, analysis: &Analysis) -> String {
    let label = format!(", {}", labels(&row.labels));
    match &row.comparison {
        Some(Comparison { effect: Some(e), verdict, .. }) => {
            format!("{label}; {} {}: {}", ratio(e.ratio), analysis.baseline, verdict.word())
        }
        _ if row.baseline => format!("{label}; it is the baseline"),
        _ => label,
    }
}

/// Every comparison in a sentence, and what the words rest on.
pub fn verdicts(page: &mut Page, analysis: &Analysis) {
    let mut any = false;
    for question in [Question::Throughput, Question::Cpu] {
        let compared = verdicts::compared(analysis, question);
        if compared.is_empty() {
            continue;
        }
        any = true;
        let what = verdicts::subject(question);
        page.heading(&format!("Verdicts on {what}, against {}", analysis.baseline));
        let leads = Leads::of(compared.iter().map(|(r, _)| *r));
        for (row, comparison) in compared {
            page.text(&leads.lead(&row.cell.0), &verdicts::sentence(comparison, analysis));
        }
        page.text("  ", &verdicts::noise(analysis, question));
    }
    if any {
        page.gap();
        page.text("  ", &verdicts::rule(analysis));
        page.text("  ", &verdicts::events_rule());
        if let Some(text) = verdicts::stopping(analysis) {
            page.text("  ", &text);
        }
    }
}

/// How CPU time was given to the roles, and what is not in it.
pub fn cpu_rule(analysis: &Analysis) -> String {
    let ends = || analysis.rows.iter().flat_map(|row| Role::ALL.map(|role| (row, row.end(role))));
    let rules: Vec<CpuRule> = ends().filter_map(|(_, e)| Some(e.cpu.as_ref()?.rule)).collect();
    let mut parts: Vec<String> = Vec::new();
    if rules.iter().any(|r| matches!(r, CpuRule::WholeCpu(_))) {
        parts.push(
            "CPU: busy time of the role's own CPU, split by ticks (soft: softirq); iowait is idle."
                .into(),
        );
    }
    if rules.contains(&CpuRule::Threads) {
        parts.push(
            "CPU: run time of the role's threads; softirq on top of them is in sys, softirq on an \
             idle CPU is not seen."
                .into(),
        );
    }
    let notable = |part: fn(&End) -> Option<f64>, above: f64| -> Vec<String> {
        let name = |(row, end): (&Row, &End)| {
            let part = part(end).filter(|p| *p > above)?;
            Some(format!("{} {} {}", row.cell, end.role, percent(part)))
        };
        ends().filter_map(name).collect()
    };
    let other = notable(|e| Some(e.cpu.as_ref()?.other), NOTABLE_OTHER);
    if !other.is_empty() {
        parts.push(format!(
            "Not by the role's own threads (interrupts on an idle CPU, or foreign): {}.",
            other.join(", ")
        ));
    }
    let iowait = notable(|e| e.cpu.as_ref()?.iowait, NOTABLE_IOWAIT);
    if !iowait.is_empty() {
        parts.push(format!("iowait, in no total: {}.", iowait.join(", ")));
    }
    parts.join(" ")
}

/// What each label rests on.
pub fn zero_copy(page: &mut Page, analysis: &Analysis) {
    let proven: Vec<&Row> = analysis
        .rows
        .iter()
        .filter(|r| Role::ALL.iter().any(|role| r.end(*role).ledger.is_some()))
        .collect();
    if proven.is_empty() {
        return;
    }
    page.heading("What the labels rest on");
    let leads = Leads::of(proven.iter().copied());
    for row in proven {
        let ends = format!(
            "tx {} {}; rx {} {}",
            row.tx,
            evidence(&row.sender),
            row.rx,
            evidence(&row.receiver)
        );
        page.text(&leads.lead(&row.cell.0), &ends);
    }
}

fn evidence(end: &End) -> String {
    let Some(ledger) = &end.ledger else { return "kept no ledger".into() };
    let mut parts = Vec::new();
    for (manner, share, words) in [
        (Manner::NotCopied, ledger.not_copied, "not copied"),
        (Manner::Copied, ledger.copied, "copied"),
        (Manner::Unknown, ledger.unknown, "unknown"),
    ] {
        if share > 0.0 {
            let sources: Vec<String> = ledger.evidence_of(manner).into_iter().map(source).collect();
            let by = if sources.is_empty() { "no evidence".into() } else { sources.join(", ") };
            parts.push(format!("{} {words} ({by})", percent(share)));
        }
    }
    let mut text = parts.join(", ");
    let w = end.witness;
    text += &match (w.shared, w.copied) {
        (0, 0) => String::new(),
        (_, 0) => ", witness page shared".into(),
        (0, _) => ", witness page copied".into(),
        (s, c) => format!(", witness page shared in {s}, copied in {c} trials"),
    };
    text
}

fn source(e: &Evidence) -> String {
    if e.events == 0 {
        return e.source.clone();
    }
    format!("{}: {}, {} events", e.source, bytes(e.bytes as f64), amount(e.events as f64))
}

/// Cells that cannot run here, that failed, that have no trial.
pub fn not_measured(page: &mut Page, analysis: &Analysis) {
    let all = || analysis.rows.iter().chain(&analysis.null);
    let unavailable: Vec<_> =
        all().filter_map(|r| Some((r, r.status.unavailable.as_ref()?))).collect();
    if !unavailable.is_empty() {
        page.heading("Not available here");
        let leads = Leads::of(unavailable.iter().map(|(r, _)| *r));
        for (row, (reason, remedy)) in unavailable {
            page.text(&leads.lead(&row.cell.0), reason);
            if !remedy.is_empty() {
                page.text(&leads.lead(""), &format!("-> {remedy}"));
            }
        }
    }
    let failed: Vec<_> = all().filter(|r| !r.status.failed.is_empty()).collect();
    if !failed.is_empty() {
        page.heading("Failed trials (not counted)");
        let leads = Leads::of(failed.iter().copied());
        for row in failed {
            for failure in &row.status.failed {
                let of =
                    row.status.measured + row.status.failed.iter().map(|f| f.count).sum::<u32>();
                let text = format!("{} of {of}: {}", failure.count, failure.fault.message);
                page.text(&leads.lead(&row.cell.0), &text);
                if let Some(remedy) = &failure.fault.remedy {
                    page.text(&leads.lead(""), &format!("-> {remedy}"));
                }
            }
        }
    }
    let rejected: Vec<_> = all().filter(|r| !r.status.rejected.is_empty()).collect();
    if !rejected.is_empty() {
        page.heading("Rejected trials (something happened to them; not counted)");
        let leads = Leads::of(rejected.iter().copied());
        for row in rejected {
            for events in &row.status.rejected {
                page.text(&leads.lead(&row.cell.0), events);
            }
        }
    }
    let never: Vec<_> =
        all().filter(|r| r.status.never_run()).map(|r| r.cell.to_string()).collect();
    if !never.is_empty() {
        page.gap();
        page.text("Not run: ", &never.join(", "));
    }
}

/// Warnings of the trials, stalls, notes of the engines, remarks on the study.
pub fn warnings(page: &mut Page, analysis: &Analysis) {
    let mut lines: Vec<String> = analysis.remarks.clone();
    for row in analysis.rows.iter().chain(&analysis.null) {
        if let Some(pace) = row.pace.as_ref().filter(|p| p.stalled_trials > 0) {
            lines.push(format!(
                "{}: the flow stalled for {} s in {} of {}",
                row.cell,
                number(pace.stalled, 1),
                pace.stalled_trials,
                plural(row.status.measured.into(), "trial"),
            ));
        }
    }
    lines.extend(analysis.warnings.iter().map(counted));
    for row in &analysis.rows {
        for end in Role::ALL.map(|role| row.end(role)) {
            for note in &end.notes {
                lines.push(format!("{} {}: {}", row.cell, end.role, counted(note)));
            }
        }
    }
    if lines.is_empty() {
        return;
    }
    page.heading("Beware");
    for line in lines {
        page.text("  - ", &line);
    }
}

/// A sentence and how often it was said.
fn counted(sentence: &Counted) -> String {
    match sentence.count {
        0 | 1 => sentence.text.clone(),
        n => format!("{} ({} more like it)", sentence.text, n - 1),
    }
}

/// Leads of equal width for a list of rows.
pub struct Leads(usize);

impl Leads {
    /// As wide as the longest name, but for very long ones, which must not push
    /// all others aside.
    pub fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Leads {
        let widths = rows.map(|row| plain(&row.cell.0).len());
        Leads(widths.filter(|n| *n <= 24).max().unwrap_or(0))
    }

    /// The lead of one row; that of no name stands below the others.
    pub fn lead(&self, name: &str) -> String {
        format!("  {:<width$}  ", plain(name), width = self.0)
    }
}
