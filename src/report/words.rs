//! What is said in words, the same in every format: the answer, the verdicts,
//! the evidence, what did not run, and what to beware of.

use super::figures::NONE;
use super::figures::{
    amount, bytes, cpu, gbit, interval, level, number, percent, plural, probability, ratio,
};
use crate::record::{Evidence, Manner, Role};
use crate::stats::{Analysis, Comparison, Counted, CpuRule, Effect, End, Row, Verdict};

/// Parts above this one are worth a sentence.
const NOTABLE_OTHER: f64 = 0.05;
const NOTABLE_IOWAIT: f64 = 0.01;

/// The answer in a line or two, each with its lead: what is fastest, what is cheapest.
pub fn answer(analysis: &Analysis) -> Vec<(&'static str, String)> {
    let measured = || analysis.rows.iter().filter(|r| r.status.measured > 0);
    let best =
        measured().filter_map(|r| Some((r, r.throughput?.mean))).max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((row, bits)) = best else {
        return vec![("", "No trial was measured, so there is nothing to compare.".into())];
    };
    let mut answer = vec![(
        "fastest",
        format!("{}: {} Gbit/s{}", row.cell, gbit(bits), standing(row, analysis)),
    )];
    let cheapest = measured()
        .filter_map(|r| Some((r, r.cpu_per_gib?.mean)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((row, cost)) = cheapest {
        let base = analysis.rows.iter().find(|r| r.baseline && !row.baseline);
        let base = base.and_then(|b| Some((b, b.cpu_per_gib?.mean)));
        let than = base.map(|(b, c)| format!(" ({} {})", b.cell, cpu(c))).unwrap_or_default();
        answer.push((
            "least CPU",
            format!("{}: {} CPU-s per GiB, both ends{than}", row.cell, cpu(cost)),
        ));
    }
    answer
}

/// Label of a row and how it stands to the baseline.
fn standing(row: &Row, analysis: &Analysis) -> String {
    let label = format!(", {}", labels(&row.labels));
    match &row.comparison {
        Some(Comparison { effect: Some(e), verdict }) => {
            format!("{label}; {} {}: {}", ratio(e.ratio), analysis.baseline, verdict.word())
        }
        _ if row.baseline => format!("{label}; it is the baseline"),
        _ => label,
    }
}

/// The label, or all of them with their counts where trials disagree.
pub fn labels(labels: &[Counted]) -> String {
    match labels {
        [] => NONE.into(),
        [one] => one.text.clone(),
        many => {
            let each: Vec<_> = many.iter().map(|l| format!("{}x {}", l.count, l.text)).collect();
            format!("trials disagree: {}", each.join("; "))
        }
    }
}

/// A comparison in a sentence: the word, what it rests on, what more blocks would show.
pub fn sentence(comparison: &Comparison, analysis: &Analysis) -> String {
    let word = comparison.verdict.word();
    let Some(effect) = &comparison.effect else {
        return format!("{word}: no block has a throughput of both");
    };
    let mut text = format!("{word} {}", ratio(effect.ratio));
    if let Some(i) = &effect.interval {
        text += &format!(" {}", interval(i.low, i.high));
    }
    text += &format!(", {}", plural(effect.blocks as u64, "block"));
    if let Some(p) = &effect.permutation {
        text += &format!(", p {}", probability(p.p));
    }
    match comparison.verdict {
        Verdict::Inconclusive { smallest, blocks } => {
            let margin = level(analysis.rules.margin);
            let plan = match blocks {
                Some(n) => format!("about {n} blocks would do for {margin}"),
                None => format!("more than 1000 blocks would be needed for {margin}"),
            };
            text += &format!(": these blocks see effects from {}; {plan}", percent(smallest));
        }
        Verdict::NoiseTooHigh { floor } => {
            text += &format!(": within the noise of this study, {}", percent(floor));
        }
        Verdict::NotEnough { .. } => text += ": an interval takes two",
        Verdict::Equivalent => {
            text += &format!(": the whole interval is within {}", level(analysis.rules.margin));
        }
        Verdict::Faster | Verdict::Slower => {}
    }
    if effect.left_out > 0 {
        let left = plural(effect.left_out as u64, "block");
        text += &format!("; {left} left out, where a throughput was zero");
    }
    text
}

/// How far the baseline was from itself.
pub fn noise(analysis: &Analysis) -> String {
    let Some(noise) = &analysis.noise else {
        return "Noise: not known, because the baseline was not measured against itself in two \
                blocks or more. Verdicts rest on their own spread alone."
            .into();
    };
    let e: &Effect = &noise.effect;
    format!(
        "Noise: {} against itself came out between {} and {} over {}, on average {}. A difference \
         below {} is within the noise.",
        analysis.baseline,
        ratio(e.range.0),
        ratio(e.range.1),
        plural(e.blocks as u64, "block"),
        ratio(e.ratio),
        percent(noise.floor),
    )
}

/// What decides between the words.
pub fn rule(analysis: &Analysis) -> String {
    let confidence = level(analysis.rules.confidence);
    let mut text = format!(
        "Rule: {confidence} intervals by t over the blocks' log ratios decide, each by itself; \
         EQUIVALENT within {}.",
        level(analysis.rules.margin),
    );
    let tests = analysis.rows.iter().filter_map(|row| {
        let effect = row.comparison.as_ref()?.effect.as_ref()?;
        Some((effect.blocks as u64, effect.permutation?.least))
    });
    match tests.max_by_key(|(blocks, _)| *blocks) {
        Some((blocks, least)) if least > 1.0 - analysis.rules.confidence => {
            text += &format!(
                " p (sign flips) decides nothing: with {} it cannot fall below {}.",
                plural(blocks, "block"),
                probability(least),
            );
        }
        Some(_) => text += " p is by sign flips and decides nothing.",
        None => {}
    }
    text
}

/// How CPU time was given to the roles, and what is not in it.
pub fn cpu_rule(analysis: &Analysis) -> String {
    let ends = || analysis.rows.iter().flat_map(|row| Role::ALL.map(|role| (row, row.end(role))));
    let rules: Vec<CpuRule> = ends().filter_map(|(_, e)| Some(e.cpu.as_ref()?.rule)).collect();
    let mut text = String::new();
    if rules.iter().any(|r| matches!(r, CpuRule::WholeCpu(_))) {
        text += "CPU: busy time of the role's own CPU, split by ticks; iowait is idle. ";
    }
    if rules.contains(&CpuRule::Threads) {
        text += "CPU: run time of the role's threads; softirq on top of them is in sys, softirq on \
                 an idle CPU is not seen. ";
    }
    text += "ROI: (Gbit/s)^2 per CPU kept busy.";
    let notable = |part: fn(&End) -> Option<f64>, above: f64| -> Vec<String> {
        let name = |(row, end): (&Row, &End)| {
            let part = part(end).filter(|p| *p > above)?;
            Some(format!("{} {} {}", row.cell, end.role, percent(part)))
        };
        ends().filter_map(name).collect()
    };
    let other = notable(|e| Some(e.cpu.as_ref()?.other), NOTABLE_OTHER);
    if !other.is_empty() {
        text += &format!(
            " Not by the role's own threads (interrupts on an idle CPU, or foreign): {}.",
            other.join(", ")
        );
    }
    let iowait = notable(|e| e.cpu.as_ref()?.iowait, NOTABLE_IOWAIT);
    if !iowait.is_empty() {
        text += &format!(" iowait, in no total: {}.", iowait.join(", "));
    }
    text
}

/// What the ledger and the witness page say of one end.
pub fn evidence(end: &End) -> String {
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

/// A cell, or some of its trials, without a number.
pub struct Unmeasured<'a> {
    /// The cell.
    pub row: &'a Row,
    /// What happened.
    pub reason: String,
    /// What would help; may be empty.
    pub remedy: &'a str,
}

/// Cells that cannot run on this host.
pub fn unavailable(analysis: &Analysis) -> Vec<Unmeasured<'_>> {
    let of = |row| -> Option<Unmeasured> {
        let row: &Row = row;
        let (reason, remedy) = row.status.unavailable.as_ref()?;
        Some(Unmeasured { row, reason: reason.clone(), remedy })
    };
    all(analysis).filter_map(of).collect()
}

/// Trials that failed, or that an event spoiled: none of them counts.
pub fn not_counted(analysis: &Analysis) -> Vec<Unmeasured<'_>> {
    let mut found = Vec::new();
    for row in all(analysis) {
        let status = &row.status;
        let failed: u32 = status.failed.iter().map(|f| f.count).sum();
        let of = status.measured + failed + status.rejected.len() as u32;
        for failure in &status.failed {
            let reason = format!("{} of {of}: {}", failure.count, failure.fault.message);
            let remedy = failure.fault.remedy.as_deref().unwrap_or("");
            found.push(Unmeasured { row, reason, remedy });
        }
        for events in &status.rejected {
            let reason = format!("1 of {of} rejected: {events}");
            found.push(Unmeasured { row, reason, remedy: "" });
        }
    }
    found
}

/// Cells that have no trial at all.
pub fn never_run(analysis: &Analysis) -> Vec<String> {
    all(analysis).filter(|r| r.status.never_run()).map(|r| r.cell.to_string()).collect()
}

fn all(analysis: &Analysis) -> impl Iterator<Item = &Row> {
    analysis.rows.iter().chain(&analysis.null)
}

/// What the reader has to beware of: remarks on the study, stalls, warnings of the
/// trials, notes of the engines.
pub fn cautions(analysis: &Analysis) -> Vec<String> {
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
    lines
}

/// A sentence and how often it was said.
pub fn counted(sentence: &Counted) -> String {
    match sentence.count {
        0 | 1 => sentence.text.clone(),
        n => format!("{} ({} more like it)", sentence.text, n - 1),
    }
}
