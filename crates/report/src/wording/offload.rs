//! From which size on copy engines pay, in sentences.

use super::figures::{NONE, bytes, interval, ratio};
use bytepath_record::{Levels, Work};
use bytepath_stats::{Analysis, Benefit, BreakEven, CopyAt, Effect};

/// From which size on the copy engines of a study pay; nothing where it has none.
pub(crate) fn sentences(analysis: &Analysis) -> Vec<String> {
    let Some(offloading) = &analysis.offloading else { return Vec::new() };
    let of = |line: &BreakEven<Levels>| {
        let with = match levels(&line.at) {
            at if at.is_empty() => String::new(),
            at => format!(" with {at}"),
        };
        sentence(line, &with, &offloading.first, analysis.work())
    };
    let mut lines: Vec<String> = offloading.break_even.iter().map(of).collect();
    lines.extend(offloading.break_even.iter().any(|line| line.model).then(|| format!("{MODEL}.")));
    lines
}

/// What to know about a model's figures.
pub const MODEL: &str = "(model): a software device with a configured latency and bandwidth; \
    it shows that the driver is correct, not how fast a device is";

/// Levels in one line: `writer=thread, mtu=9000`.
pub(crate) fn levels(levels: &Levels) -> String {
    let each = levels.iter().map(|(factor, level)| format!("{factor}={level}"));
    each.collect::<Vec<_>>().join(", ")
}

/// `dsa-model (model)`: the label says wherever it is named that its times are not a device's.
pub(crate) fn name(engine: &str, model: bool) -> String {
    if model { format!("{engine} (model)") } else { engine.to_owned() }
}

pub(crate) fn effect_text(effect: Option<&Effect>) -> String {
    let Some(effect) = effect else { return NONE.into() };
    let range = effect.interval.map(|i| format!(" {}", interval(i.low, i.high)));
    format!("{}{}", ratio(effect.ratio), range.unwrap_or_default())
}

/// How copies of an engine alone are done.
pub(crate) fn shape(CopyAt { depth, batch, rotate }: &CopyAt) -> String {
    let under_way = if *depth == 1 { "1 copy".into() } else { format!("{depth} copies") };
    let batches = if *batch > 1 { format!(" in batches of {batch}") } else { String::new() };
    let memory = if *rotate { ", 128 MiB in rotation" } else { ", in cache" };
    format!(" with {under_way} in flight{batches}{memory}")
}

pub(crate) fn sentence<A>(line: &BreakEven<A>, with: &str, first: &str, work: Work) -> String {
    let BreakEven { engine, model, pays, from, largest, .. } = line;
    let engine = name(engine, *model);
    let unit = work.terms().unit;
    let (what, not, more) = match pays {
        Benefit::Time => (
            "saves the caller's time",
            "does not save the caller's time",
            format!("of its time for a copy of {first} there"),
        ),
        Benefit::Rate => ("is faster", "is not faster", format!("the rate of {first} there")),
        Benefit::Cpu => (
            "saves the sender's CPU time",
            "does not save the sender's CPU time",
            format!("of its CPU time per {unit} with {first} there"),
        ),
    };
    match from {
        Some((size, effect)) => format!(
            "{engine} {what} from {} on{with}: {} {more}.",
            bytes(*size as f64),
            effect_text(Some(effect)),
        ),
        None => format!("{engine} {not} with certainty up to {}{with}.", bytes(*largest as f64)),
    }
}
