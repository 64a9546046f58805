//! The verdicts in words, and the rules behind them; the same in every format.

use super::figures::{effect_text, level, percent, plural, probability, ratio};
use bytepath_record::Work;
use bytepath_stats::{
    Analysis, Ceiling, Comparison, Effect, FOREIGN_LIMIT, Looks, Metric, Row, STEAL_LIMIT, Test,
    Verdict,
};

/// Returns the comparisons in one metric, in the order of the rows; empty if the study measured no
/// speed.
pub(crate) fn compared(analysis: &Analysis, question: Metric) -> Vec<(&Row, &Comparison)> {
    let all = analysis.rows.iter().filter_map(|row| Some((row, row.comparison(question)?)));
    all.filter(|(_, comparison)| comparison.verdict != Verdict::Functional).collect()
}

/// Returns the subject of a metric, for a heading.
pub(crate) fn subject(question: Metric, work: Work) -> String {
    match question {
        Metric::Rate => work.terms().rate.into(),
        Metric::Cpu => format!("CPU per {}, both ends", work.terms().unit),
        Metric::Instructions => format!("instructions per {}, both ends", work.terms().unit),
        Metric::Latency(percentile) => format!("latency, {}", percentile.name()),
    }
}

/// Returns the best value of a metric: "highest throughput".
pub(crate) fn superlative(question: Metric, work: Work) -> String {
    match question {
        Metric::Rate => format!("highest {}", work.terms().rate),
        Metric::Cpu => "least CPU".into(),
        Metric::Instructions => "fewest instructions".into(),
        Metric::Latency(percentile) => format!("lowest {}", percentile.name()),
    }
}

/// Returns a comparison in a sentence: the word, its basis, and what more blocks would show.
pub(crate) fn sentence(comparison: &Comparison, analysis: &Analysis) -> String {
    let word = comparison.verdict.word();
    if comparison.verdict == Verdict::Functional {
        return format!("{word}: speed was not measured");
    }
    if !comparison.reasons.is_empty() {
        return format!("{word}: {}", comparison.reasons.join("; "));
    }
    let Some(effect) = &comparison.effect else {
        return format!("{word}: no block has measurements of both");
    };
    let blocks = plural(effect.blocks as u64, "block");
    let mut text = format!("{word} {}, {blocks}", effect_text(Some(effect)));
    if let Some(test) = &comparison.test {
        text += &format!(", {}", chance(test, comparison.verdict));
    }
    if let Some(p) = &effect.permutation {
        text += &format!(" (permutation p {})", probability(*p));
    }
    let margin = level(analysis.rules.margin);
    match comparison.verdict {
        Verdict::Inconclusive { smallest, blocks } => {
            let plan = match blocks {
                Some(n) => format!("{margin} requires about {n} blocks"),
                None => format!("{margin} requires more than 1000 blocks"),
            };
            let smallest = percent(smallest);
            text += &format!(": minimum detectable effect {smallest} (80% power); {plan}");
        }
        Verdict::NoiseTooHigh { floor } => {
            text += &format!(": within the noise of this study, {}", percent(floor));
        }
        Verdict::NotEnough { .. } => text += ": an interval requires two",
        Verdict::Equivalent => text += &format!(": the whole interval is within {margin}"),
        Verdict::Saturated { ceiling } => {
            let at = match ceiling {
                Ceiling::Copy => "one core's copy bandwidth",
                Ceiling::Link => "the rate of the link",
            };
            let unit = Work::Bytes.terms().unit;
            text += &format!(": both are at {at}, within {margin}; compare CPU per {unit}");
        }
        _ => {}
    }
    if effect.left_out > 0 {
        let left = plural(effect.left_out as u64, "block");
        text += &format!("; {left} left out, where a figure was zero");
    }
    text
}

/// Formats `p 0.004, 0.02 among 5`: the p-value alone and among all. For EQUIVALENT it is the p of
/// a difference as large as the margin, for every other word that of no difference.
pub(crate) fn chance(test: &Test, verdict: Verdict) -> String {
    let claim = if verdict == Verdict::Equivalent { test.equivalent } else { test.different };
    let alone = format!("p {}", probability(claim.p));
    if test.family < 2 {
        return alone;
    }
    format!("{alone}, {} among {}", probability(claim.adjusted), test.family)
}

/// Returns how much a cell differed from itself.
pub(crate) fn noise(analysis: &Analysis, question: Metric) -> String {
    let measured = analysis.noise(question).zip(analysis.noise_of.as_ref());
    let Some((noise, cell)) = measured else {
        return "Noise: unknown, because no cell was measured against itself in two \
                or more blocks. Verdicts rest on their own spread alone."
            .into();
    };
    let e = &noise.effect;
    format!(
        "Noise: {cell} against itself came out between {} and {} in single blocks ({}), on average \
         {}. An average difference below {} is within the noise.",
        ratio(e.range.0),
        ratio(e.range.1),
        e.blocks,
        effect_text(Some(e)),
        percent(noise.floor),
    )
}

/// Returns the rule that decides between the words.
pub(crate) fn rule(analysis: &Analysis) -> String {
    let confidence = level(analysis.rules.confidence);
    let all = Metric::MAIN.map(|question| compared(analysis, question));
    let effects = || all.iter().flatten().filter_map(|(_, comparison)| comparison.effect.as_ref());
    let each_block = |effect: &Effect| matches!(effect.looks, Looks::EachBlock { .. });
    let interval = match effects().any(each_block) {
        true => format!(
            "holds at {confidence} however often one looks (a confidence sequence of the blocks' log \
             ratios, and at the planned end Student's t, each at half of the error)"
        ),
        false => format!("is a {confidence} t interval of the blocks' log ratios"),
    };
    let mut text = format!(
        "Rule: each printed interval {interval}. \
         Verdicts hold at {confidence} for all comparisons of their kind together (Holm; \
         the second p); EQUIVALENT requires an interval within {}.",
        level(analysis.rules.margin),
    );
    if effects().any(|effect| effect.permutation.is_some()) {
        text += " The permutation p is a cross-check and decides nothing.";
    }
    text
}

/// Returns the events that reject a trial.
pub(crate) fn events_rule() -> String {
    format!(
        "Trials are rejected for interference only, never for their result: settings changed, a CPU \
         was throttled, or a meter missed part of the window. Where the hypervisor took more than {} \
         of a role's CPU, or other work more than {}, a trial is marked with ~, or rejected if the \
         study limits that.",
        level(STEAL_LIMIT),
        level(FOREIGN_LIMIT),
    )
}

/// Returns the stopping rule and its outcome; `None` if none was declared.
pub(crate) fn stopping(analysis: &Analysis) -> Option<String> {
    let s = analysis.stopping?;
    Some(format!(
        "Stopping rule, declared in advance: after {} of at most {}, end when every interval is \
         within {}; it looks at spreads only, and intervals are at least as wide as those \
         {} give. {} run.",
        plural(s.at_least.into(), "block"),
        s.most,
        level(s.within),
        plural(s.at_least.into(), "block"),
        if s.run == 1 { "1 block was".into() } else { format!("{} blocks were", s.run) },
    ))
}
