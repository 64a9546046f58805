//! Sentences about the size from which copy engines pay off.

use super::figures::{bytes, effect_text};
use super::setup::pairs;
use bytepath_record::{Levels, Work};
use bytepath_stats::{Analysis, Benefit, BreakEven, CopyAt};

/// Returns sentences about the size from which the copy engines of a study pay off; empty if it has
/// none.
pub(crate) fn sentences(analysis: &Analysis) -> Vec<String> {
    let Some(offloading) = &analysis.offloading else { return Vec::new() };
    let of = |line: &BreakEven<Levels>| {
        let with = match pairs(&line.at) {
            at if at.is_empty() => String::new(),
            at => format!(" with {at}"),
        };
        sentence(line, &with, &offloading.first, analysis.work())
    };
    let mut lines: Vec<String> = offloading.break_even.iter().map(of).collect();
    lines.extend(offloading.break_even.iter().any(|line| line.model).then(|| format!("{MODEL}.")));
    lines
}

/// A note about the figures of a model.
pub const MODEL: &str = "(model): a software device with a configured latency and bandwidth; \
    it shows that the driver is correct, not how fast a device is";

/// Formats `dsa-model (model)`: marked everywhere, because its times are not a device's.
pub(crate) fn name(engine: &str, model: bool) -> String {
    if model { format!("{engine} (model)") } else { engine.to_owned() }
}

/// Returns how copies of an engine without a study are done.
pub(crate) fn shape(CopyAt { depth, batch, rotate }: &CopyAt) -> String {
    let under_way = if *depth == 1 { "1 copy".into() } else { format!("{depth} copies") };
    let batches = if *batch > 1 { format!(" in batches of {batch}") } else { String::new() };
    let memory = if *rotate { ", 128 MiB in rotation" } else { ", in cache" };
    format!(" with {under_way} in flight{batches}{memory}")
}

pub(crate) fn sentence<A>(line: &BreakEven<A>, with: &str, first: &str, work: Work) -> String {
    let BreakEven { engine, model, pays, from, largest, .. } = line;
    let engine = name(engine, *model);
    let Some((size, effect)) = from else {
        let not = match pays {
            Benefit::Time => "does not save the caller's time",
            Benefit::Rate => "is not faster",
            Benefit::Cpu => "does not save the sender's CPU time",
        };
        return format!("{engine} {not} with certainty up to {}{with}.", bytes(*largest as f64));
    };
    let cpu = &*format!("of its CPU time per {} with", work.terms().unit);
    let (what, more) = match pays {
        Benefit::Time => ("saves the caller's time", "of its time for a copy of"),
        Benefit::Rate => ("is faster", "the rate of"),
        Benefit::Cpu => ("saves the sender's CPU time", cpu),
    };
    let (size, effect) = (bytes(*size as f64), effect_text(Some(effect)));
    format!("{engine} {what} from {size} on{with}: {effect} {more} {first} there.")
}
