//! The verdicts in sentences, and the rule that they rest on.

use super::prose::Leads;
use crate::report::figures::{interval, level, percent, plural, probability, ratio};
use crate::report::page::Page;
use crate::stats::{
    Analysis, Ceiling, Comparison, FOREIGN_LIMIT, Noise, Question, Row, STEAL_LIMIT, Test, Verdict,
};

/// Every comparison in a sentence, and what the words rest on.
pub fn print(page: &mut Page, analysis: &Analysis) {
    let of = |question| -> Vec<(&Row, &Comparison)> {
        analysis
            .rows
            .iter()
            .filter_map(|row| {
                let found = match question {
                    Question::Throughput => &row.comparison,
                    Question::Cpu => &row.cpu_comparison,
                };
                Some((row, found.as_ref()?))
            })
            .collect()
    };
    let (throughput, cpu) = (of(Question::Throughput), of(Question::Cpu));
    for (what, compared, noise) in [
        ("throughput", &throughput, &analysis.noise),
        ("CPU per GiB, both ends", &cpu, &analysis.cpu_noise),
    ] {
        if compared.is_empty() {
            continue;
        }
        page.heading(&format!("Verdicts on {what}, against {}", analysis.baseline));
        let leads = Leads::of(compared.iter().map(|(r, _)| *r));
        for (row, comparison) in compared.iter() {
            page.text(&leads.lead(&row.cell.0), &sentence(comparison, analysis));
        }
        page.text("  ", &noise_of(analysis, noise.as_ref()));
    }
    if !throughput.is_empty() || !cpu.is_empty() {
        let all: Vec<&Comparison> = throughput.iter().chain(&cpu).map(|(_, c)| *c).collect();
        page.gap();
        page.text("  ", &rule(analysis, &all));
        page.text("  ", &events_rule());
        if let Some(text) = stopping(analysis) {
            page.text("  ", &text);
        }
    }
}

fn sentence(comparison: &Comparison, analysis: &Analysis) -> String {
    let word = comparison.verdict.word();
    if !comparison.reasons.is_empty() {
        return format!("{word}: {}", comparison.reasons.join("; "));
    }
    let Some(effect) = &comparison.effect else {
        return format!("{word}: no block has measured both");
    };
    let mut text = format!("{word} {}", ratio(effect.ratio));
    if let Some(i) = &effect.interval {
        text += &format!(" {}", interval(i.low, i.high));
    }
    text += &format!(", {}", plural(effect.blocks as u64, "block"));
    if let Some(test) = &comparison.test {
        text += &format!(", {}", chance(test, comparison.verdict));
    }
    if let Some(p) = &effect.permutation {
        text += &format!(" (sign flips {})", probability(p.p));
    }
    let margin = level(analysis.rules.margin);
    match comparison.verdict {
        Verdict::Inconclusive { smallest, blocks } => {
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
        Verdict::Equivalent => text += &format!(": the whole interval is within {margin}"),
        Verdict::Saturated { ceiling } => {
            let at = match ceiling {
                Ceiling::Copy => "one core's copy bandwidth",
                Ceiling::Link => "the rate of the link",
            };
            text += &format!(": both are at {at}, within {margin}; compare CPU per GiB");
        }
        Verdict::Faster
        | Verdict::Slower
        | Verdict::LessCpu
        | Verdict::MoreCpu
        | Verdict::NotComparable => {}
    }
    if effect.left_out > 0 {
        let left = plural(effect.left_out as u64, "block");
        text += &format!("; {left} left out, where a figure was zero");
    }
    text
}

/// `p 0.004, 0.02 among 5`: alone and among all. Of EQUIVALENT it is the p of a
/// difference as large as the margin, of every other word that of none.
pub fn chance(test: &Test, verdict: Verdict) -> String {
    let claim = if verdict == Verdict::Equivalent { test.equivalent } else { test.different };
    let own = format!("p {}", probability(claim.p));
    if test.family < 2 {
        return own;
    }
    format!("{own}, {} among {}", probability(claim.adjusted), test.family)
}

fn noise_of(analysis: &Analysis, noise: Option<&Noise>) -> String {
    let known = noise.zip(analysis.noise_of.as_ref());
    let Some((noise, cell)) = known else {
        return "Noise: not known, because no cell was measured against itself in two blocks or \
                more. Verdicts rest on their own spread alone."
            .into();
    };
    let e = &noise.effect;
    format!(
        "Noise: {cell} against itself came out between {} and {} over {}, on average {}. A \
         difference below {} is within the noise.",
        ratio(e.range.0),
        ratio(e.range.1),
        plural(e.blocks as u64, "block"),
        ratio(e.ratio),
        percent(noise.floor),
    )
}

fn rule(analysis: &Analysis, compared: &[&Comparison]) -> String {
    let confidence = level(analysis.rules.confidence);
    let mut text = format!(
        "Rule: printed intervals are {confidence} by t over the blocks' log ratios, each by \
         itself. Words hold at {confidence} for all comparisons of their kind together (Holm; the \
         second p); EQUIVALENT takes an interval within {}.",
        level(analysis.rules.margin),
    );
    let tests = compared.iter().filter_map(|c| {
        let effect = c.effect.as_ref()?;
        Some((effect.blocks as u64, effect.permutation?.least))
    });
    if let Some((blocks, least)) = tests.max_by_key(|(blocks, _)| *blocks) {
        text += " Sign flips decide nothing";
        if least > 1.0 - analysis.rules.confidence {
            text += &format!(
                ": with {} their p cannot fall below {}",
                plural(blocks, "block"),
                probability(least),
            );
        }
        text += ".";
    }
    text
}

fn events_rule() -> String {
    format!(
        "A trial is rejected for what happened to it, never for its value: steal above {} or \
         foreign work above {} of a role's CPU, meters that lost a part of it.",
        level(STEAL_LIMIT),
        level(FOREIGN_LIMIT),
    )
}

fn stopping(analysis: &Analysis) -> Option<String> {
    let s = analysis.stopping?;
    Some(format!(
        "Stopping rule, declared in advance: after {} of at most {}, end when every interval is \
         within {}; it looks at spreads only, and intervals are no narrower than those {} say. \
         {} run.",
        plural(s.at_least.into(), "block"),
        s.most,
        level(s.within),
        plural(s.at_least.into(), "block"),
        if s.run == 1 { "1 block was".into() } else { format!("{} blocks were", s.run) },
    ))
}
