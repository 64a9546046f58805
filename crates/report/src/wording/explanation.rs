//! What all formats share of an explanation: the sentences, and which steps get a line.

use super::figures::{NONE, bytes, digits, level, number, plural};
use bytepath_profile::Explanation;
use bytepath_profile::change::Change;
use bytepath_profile::subsystem::Subsystem;
use bytepath_profile::waterfall::{Bar, Check, Function, Part, Waterfall};
use bytepath_record::{distinct, joined};

/// Steps below this part of the larger cost are combined into one line.
const SMALL: f64 = 0.01;

/// Packets whose sizes differ by less than this part are considered equal in size.
const ALIKE: f64 = 0.1;

/// Most steps that a sentence names.
const NAMED: usize = 6;

/// A line of a waterfall.
pub(crate) struct Step<'a> {
    /// A cell's id or the title of a subsystem.
    pub title: String,
    pub kind: Kind,
    /// Beginning and end of its bar.
    pub span: (f64, f64),
    /// The amount of a cost or a step.
    pub amount: f64,
    /// Half the width of its interval.
    pub half_width: Option<f64>,
    /// Whether its direction is certain.
    pub resolved: bool,
    /// The functions that contribute to it.
    pub functions: &'a [Function],
}

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cost,
    Part,
    /// Several small steps together, or the part that no step explains.
    Rest,
}

impl Step<'_> {
    /// Formats its amount; steps have a sign.
    pub(crate) fn amount(&self, decimals: usize) -> String {
        match self.kind {
            Kind::Cost => number(self.amount, decimals),
            _ => signed(self.amount, decimals),
        }
    }

    /// Formats its interval; a dash if there is none.
    pub(crate) fn interval(&self, decimals: usize) -> String {
        match self.half_width {
            None => NONE.into(),
            Some(half) if self.kind == Kind::Cost => format!("+-{}", number(half, decimals)),
            Some(half) => format!(
                "{} .. {}",
                signed(self.amount - half, decimals),
                signed(self.amount + half, decimals)
            ),
        }
    }
}

/// Returns the lines of a waterfall: the first cell's cost, every step that is large enough, the
/// others together, the unattributed rest, and the last cell's cost.
pub(crate) fn steps(waterfall: &Waterfall) -> Vec<Step<'_>> {
    let (first, last) = (&waterfall.before, &waterfall.after);
    let mut steps = vec![cost(first)];
    let mut at = first.cost();
    let mut step = |title: String, kind: Kind, change: Change, resolved, functions| {
        let span = (at, at + change.mean);
        at += change.mean;
        let (amount, half_width) = (change.mean, change.half_width);
        Step { title, kind, span, amount, half_width, resolved, functions }
    };
    let least = SMALL * larger_cost(waterfall);
    // Readers look for the cost of submitting copies even if it is small.
    let is_small = |part: &&Part| {
        part.change.mean.abs() < least && part.subsystem != Subsystem::CopySubmission
    };
    let (small, large): (Vec<&Part>, Vec<&Part>) = waterfall.parts.iter().partition(is_small);
    for part in large {
        let title = part.subsystem.title().to_owned();
        steps.push(step(title, Kind::Part, part.change, part.resolved, part.functions.as_slice()));
    }
    if !small.is_empty() {
        let sum = small.iter().map(|part| part.change.mean).fold(0.0, |sum, mean| sum + mean);
        let title = format!("{} smaller", small.len());
        steps.push(step(title, Kind::Rest, Change::plain(sum), false, &[]));
    }
    if let Some(check) = &waterfall.check {
        let rest = Change::plain(check.rest);
        steps.push(step("not attributed".into(), Kind::Rest, rest, false, &[]));
    }
    steps.push(cost(last));
    steps
}

fn cost(bar: &Bar) -> Step<'_> {
    Step {
        title: bar.cell.clone(),
        kind: Kind::Cost,
        span: (0.0, bar.cost()),
        amount: bar.cost(),
        half_width: bar.metered.and_then(|m| m.half_width),
        resolved: false,
        functions: &[],
    }
}

fn larger_cost(waterfall: &Waterfall) -> f64 {
    waterfall.before.cost().max(waterfall.after.cost())
}

/// Returns the number of decimals that gives the larger cost three significant digits.
pub(crate) fn decimals(waterfall: &Waterfall) -> usize {
    let cost = larger_cost(waterfall);
    if cost > 0.0 { digits(cost, 3) } else { 3 }
}

/// Formats a number with its sign: `+0.060`, `-0.250`, `0.000`.
pub(crate) fn signed(value: f64, decimals: usize) -> String {
    let text = number(value, decimals);
    let zero = text.chars().all(|c| "-0.".contains(c));
    if value > 0.0 && !zero { format!("+{text}") } else { text }
}

/// Returns the difference between the costs of the two cells, in words.
fn difference(waterfall: &Waterfall, functional: bool) -> String {
    let Waterfall { before, after, unit, .. } = waterfall;
    let all = total(waterfall);
    let by = if waterfall.check.is_some() { "" } else { " by the samples" };
    let (before, after) = (&before.cell, &after.cell);
    let size = number(all.mean.abs(), decimals(waterfall));
    match (all.resolved(), all.mean < 0.0) {
        (_, less) if functional => format!(
            "FUNCTIONAL ONLY: on an emulated processor {after} took {size} {unit} {} than \
             {before}{by}. Which functions ran is the same as on any machine, what they cost is \
             not",
            if less { "less" } else { "more" }
        ),
        (true, true) => format!("{after} saves {size} {unit} against {before}{by}"),
        (true, false) => format!("{after} costs {size} {unit} more than {before}{by}"),
        (false, less) => format!(
            "{after} takes {size} {unit} {} than {before}{by}, which is not significant",
            if less { "less" } else { "more" }
        ),
    }
}

/// Returns the whole difference: by the meter, or by the samples without one.
fn total(waterfall: &Waterfall) -> Change {
    waterfall.check.map_or(waterfall.sampled, |check| check.metered)
}

/// Returns the waterfall in words: the significant steps, or, if there are none, the largest,
/// marked as not significant. If the study is `functional`, nothing is stated about costs.
pub(crate) fn words(waterfall: &Waterfall, functional: bool) -> String {
    let Waterfall { before, after, .. } = waterfall;
    let digits = decimals(waterfall);
    let all = total(waterfall);
    let mut text = difference(waterfall, functional);
    let least = SMALL * larger_cost(waterfall);
    let change = |mean: f64| {
        format!("{} {}", number(mean.abs(), digits), if mean < 0.0 { "less" } else { "more" })
    };
    let step = |part: &Part| format!("{} {}", change(part.change.mean), part.subsystem.title());
    let resolved = resolved(waterfall);
    if resolved.is_empty() {
        if before.trials.min(after.trials) < 2 {
            return text
                + ". No step can be singled out: one profile trial of a cell has no interval.";
        }
        let largest = waterfall.parts.first();
        let largest = largest.map(|part| format!("; the largest is {}", step(part)));
        let (size, trials) = (level(SMALL), counted(waterfall));
        let largest = largest.unwrap_or_default();
        text += &format!(
            ". No step of {size} of the cost or more is significant with {trials}{largest}."
        );
        return text;
    }
    let more = resolved.len().saturating_sub(NAMED);
    let named = resolved.get(..NAMED).unwrap_or(&resolved);
    let rest = all.mean - named.iter().map(|part| part.change.mean).sum::<f64>();
    let smaller = if more > 0 { format!(", and {more} smaller") } else { String::new() };
    let (lead, tail) = match waterfall.parts.first() {
        // The named steps do not add up to the difference, and must not read as if they did.
        Some(largest) if !largest.resolved => (
            format!(". The largest step, {}, is not significant; these are: ", step(largest)),
            smaller,
        ),
        Some(largest) if functional || !all.resolved() || largest.change.mean * all.mean < 0.0 => {
            (". Of the steps these are significant: ".to_owned(), smaller)
        }
        // A reader adds up the named steps.
        _ if rest.abs() >= least => (": ".to_owned(), format!(", and {} elsewhere", change(rest))),
        _ => (": ".to_owned(), smaller),
    };
    let named = joined(named.iter().map(|part| step(part)), ", ");
    text += &format!("{lead}{named}{tail}.");
    text
}

/// Returns the steps that are large and significant.
pub(crate) fn resolved(waterfall: &Waterfall) -> Vec<&Part> {
    let least = SMALL * larger_cost(waterfall);
    let certain = |part: &&Part| part.resolved && part.change.mean.abs() >= least;
    waterfall.parts.iter().filter(certain).collect()
}

/// Returns the number of profile trials of each cell.
fn counted(waterfall: &Waterfall) -> String {
    let Waterfall { before, after, .. } = waterfall;
    let trials = plural(before.trials as u64, "profile trial");
    format!("{trials} of {} and {} of {}", before.cell, after.trials, after.cell)
}

/// Returns the sizes of packets, if costs are given per packet: packets of different size are
/// different kinds of work.
pub(crate) fn packets(waterfall: &Waterfall) -> Option<String> {
    let Waterfall { before, after, unit, .. } = waterfall;
    let (a, b) = (before.packet?, after.packet?);
    let is_other_work = (a / b).ln().abs() > ALIKE;
    let remark =
        if is_other_work { " These differ in kind of work: compare per GiB, too." } else { "" };
    let (a, b, before, after) = (bytes(a), bytes(b), &before.cell, &after.cell);
    unit.ends_with("/packet").then(|| {
        format!(
            "A packet is what the receiver's device counts as one: on average {a} of the stream in \
             {before}, {b} in {after}.{remark}"
        )
    })
}

/// Returns whether the steps add up to the meter's difference, in a sentence.
pub(crate) fn check(waterfall: &Waterfall) -> String {
    let digits = decimals(waterfall);
    let trials = counted(waterfall);
    let sampled = signed(waterfall.sampled.mean, digits);
    let Some(Check { metered, rest, tolerance, holds }) = waterfall.check else {
        return format!(
            "Over {trials}. The steps add up to {sampled} {}; there are no CPU meter readings of \
             both cells to compare that with.",
            waterfall.unit
        );
    };
    let verdict = if holds { "within" } else { "BEYOND" };
    // A check that cannot fail shows nothing.
    let weak = if holds && tolerance >= metered.mean.abs() {
        " That is wider than the difference itself: more profile trials are needed."
    } else {
        ""
    };
    format!(
        "Over {trials}. The steps add up to {sampled}, the CPU meter's difference is {}: {} is not \
         attributed, {verdict} the tolerance of {}.{weak}",
        signed(metered.mean, digits),
        signed(rest, digits),
        number(tolerance, digits)
    )
}

/// Returns a note on how to read the steps.
pub(crate) fn rule(waterfall: &Waterfall) -> String {
    format!(
        "Steps are CPU time of samples by subsystem, without idle and foreign ones; \
         intervals are Welch's at {}, not corrected for their number.",
        level(waterfall.confidence)
    )
}

/// Returns the remarks on all waterfalls together.
pub(crate) fn remarks(explanation: &Explanation) -> Vec<String> {
    let classified = explanation.classified.map(|part| {
        let part = super::figures::percent(part);
        format!("{part} of the kernel's busy samples are in a named subsystem.")
    });
    let notes = explanation.waterfalls.iter().flat_map(|w| &w.notes).chain(&explanation.notes);
    distinct(classified.into_iter().chain(notes.cloned()))
}
