//! Why the packet rates of two cells differ, in sentences: only what the readings and profiles of
//! both show, each with its figure.

use super::view::View;
use crate::document::{Block, Column, List, Media, Section, Table};
use crate::wording::figures::{NONE, level, number, percent, three};
use bytepath_profile::waterfall::{Part, Waterfall};
use bytepath_profile::{Ends, Explanation};
use bytepath_record::{CellId, Role, Work, distinct, joined};
use bytepath_stats::{Analysis, FactKind, FactStep, RateLimit, Row, fact_steps};

const TITLE: &str = "Why the packet rate differs";

/// Changes below this part of the larger figure get no sentence; the second limit applies if there
/// is no interval.
const SMALL: f64 = 0.02;
const SMALL_AND_ALONE: f64 = 0.1;

/// Rank of the last cell column that is never dropped, however narrow the page is.
const FIRST: u8 = 4;

/// Most subsystems of an end that are named.
const NAMED: usize = 3;

/// Why one cell's packet rate differs from another's.
#[derive(Clone, Debug, PartialEq)]
pub struct RateDifference {
    /// The cell before the change: the baseline.
    pub before: CellId,
    /// The cell after it.
    pub after: CellId,
    /// The sentences, one per line.
    pub lines: Vec<String>,
}

/// Returns the differences of each cell from the baseline; empty if frames are not counted.
fn all(analysis: &Analysis, explanation: Option<&Explanation>) -> Vec<RateDifference> {
    let Some(baseline) = analysis.rows.iter().find(|row| row.baseline) else { return Vec::new() };
    let ends = explanation.map(|explanation| &explanation.ends);
    let others = analysis.rows.iter().filter(|row| !row.baseline);
    let (functional, confidence) = (analysis.functional.is_some(), analysis.rules.confidence);
    others.filter_map(|row| why([baseline, row], ends, functional, confidence)).collect()
}

/// Explains how the second cell differs from the first; `None` if one of them has no frames.
pub fn why(
    [before, after]: [&Row; 2],
    ends: Option<&Ends>,
    functional: bool,
    confidence: f64,
) -> Option<RateDifference> {
    let (first, last) = (before.hops.as_ref()?, after.hops.as_ref()?);
    let steps = fact_steps(&before.facts, &after.facts, confidence);
    let reportable = |step: &&FactStep| !(functional && is_speed(step.what));
    let mut lines = Vec::new();
    let [bound, now] = [first, last].map(|row| bound_by(row.bound));
    lines.push(match bound == now {
        _ if functional => {
            "On an emulated processor no figure shows how fast anything is: these are counts."
                .to_owned()
        }
        true => format!("The rate is bound by {bound} in both."),
        false => format!("The rate is bound by {bound} before and by {now} after."),
    });
    let large = steps.iter().filter(reportable).filter(|step| matters(step));
    lines.extend(large.map(|step| sentence(step, confidence)));
    let pair = |pair: &&[Waterfall; 2]| {
        pair[0].before.cell == before.cell.0 && pair[0].after.cell == after.cell.0
    };
    if let Some(pair) = ends.and_then(|ends| ends.steps.iter().find(pair)).filter(|_| !functional) {
        let of_end = |(role, steps): (Role, &Waterfall)| by_function(role, steps);
        lines.extend(Role::ALL.into_iter().zip(pair).filter_map(of_end));
    }
    let open =
        steps.iter().filter(reportable).filter(|step| !matters(step) && is_large_enough(step));
    let open = joined(open.map(|step| short(step.what)), ", ");
    if !open.is_empty() {
        lines.push(format!("Not resolved, or too small to matter: {open}."));
    }
    Some(RateDifference { before: before.cell.clone(), after: after.cell.clone(), lines })
}

fn bound_by(bound: RateLimit) -> &'static str {
    match bound {
        RateLimit::Rate => "the requested rate",
        RateLimit::Generator => "the generator",
        RateLimit::Sink => "the sink",
        RateLimit::Neither => "neither end",
    }
}

/// Returns whether the fact depends on speed.
fn is_speed(what: &FactKind) -> bool {
    matches!(
        what,
        FactKind::Rate | FactKind::Busy { .. } | FactKind::Cost { .. } | FactKind::Spinning
    )
}

/// Returns whether the amount on either side is large enough for a sentence.
fn is_large_enough(step: &FactStep) -> bool {
    let least = match step.what {
        FactKind::Rate => 0.0,
        FactKind::Cost { .. } | FactKind::Spinning => 10e-9,
        _ => 0.01,
    };
    step.before.mean.max(step.after.mean) >= least
}

fn matters(step: &FactStep) -> bool {
    let part = step.change().abs() / step.before.mean.abs().max(step.after.mean.abs());
    let changed = match step.half_width {
        Some(_) => step.resolved() && part >= SMALL,
        None => part >= SMALL_AND_ALONE,
    };
    *step.what == FactKind::Rate || (changed && is_large_enough(step))
}

fn actor(role: Role) -> &'static str {
    Work::Packets.actor(role)
}

/// Returns a figure in its display unit.
fn figure(what: &FactKind, value: f64) -> String {
    match what {
        FactKind::Rate => format!("{} Kpps", three(value / 1e3)),
        FactKind::Lost | FactKind::TurnedBack | FactKind::Busy { .. } => percent(value),
        FactKind::Cost { .. } | FactKind::Spinning => format!("{} ns", three(value * 1e9)),
        _ => three(value),
    }
}

/// Formats `452 Kpps before and 410 Kpps after (-42; 95% interval -55 to -29)`.
fn change(step: &FactStep, confidence: f64) -> String {
    let [before, after] = [step.before.mean, step.after.mean].map(|mean| figure(step.what, mean));
    let signed = |value: f64| {
        let text = match step.what {
            FactKind::Lost | FactKind::TurnedBack | FactKind::Busy { .. } => {
                format!("{} points", number(value * 100.0, 1))
            }
            what => figure(what, value),
        };
        if value > 0.0 { format!("+{text}") } else { text }
    };
    let change = step.change();
    let interval = match step.half_width.map(|half| [change - half, change + half].map(signed)) {
        Some([low, high]) => format!("{} interval {low} to {high}", level(confidence)),
        None => "one trial of a cell has no interval".to_owned(),
    };
    format!("{before} before and {after} after ({}; {interval})", signed(change))
}

fn sentence(step: &FactStep, confidence: f64) -> String {
    let change = change(step, confidence);
    let each = |what: &str| format!("{what}, for each packet: {change}.");
    match step.what {
        FactKind::Rate if step.half_width.is_some() && !step.resolved() => {
            format!("The sink takes in {change}, which is not significant.")
        }
        FactKind::Rate => format!("The sink takes in {change}."),
        FactKind::Lost => format!("Lost, of the generated packets: {change}."),
        FactKind::TurnedBack => {
            let is_worse = step.change() > 0.0;
            let spins = if is_worse { ", so that it spins on a stopped queue" } else { "" };
            format!("Rejected, of what the generator offers{spins}: {change}.")
        }
        FactKind::Busy { role } => {
            format!("Of the time, a thread of the {} runs {change}.", actor(*role))
        }
        FactKind::Cost { role } => {
            format!("By the CPU meter a packet costs the {} {change}.", actor(*role))
        }
        FactKind::Spinning => format!("Spinning for locks of the kernel costs a packet {change}."),
        FactKind::Requeues => {
            each("Requeued by the queueing discipline because the device is full")
        }
        FactKind::Woken { from, to, .. } => {
            let who = short(step.what);
            each(&format!("In the profile trials {who}, from CPU {from} to run on CPU {to}"))
        }
        what => each(&capital(&short(what))),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Names a fact in a few words.
fn short(what: &FactKind) -> String {
    let of = |role: &Role, what: &str| format!("the {}'s {what}", actor(*role));
    let plain = |text: &str| text.to_owned();
    match what {
        FactKind::Rate => plain("the rate"),
        FactKind::Lost => plain("losses"),
        FactKind::TurnedBack => plain("what is rejected"),
        FactKind::Busy { role } => of(role, "share of its CPU"),
        FactKind::Cost { role } => of(role, "cost"),
        FactKind::Spinning => plain("spinning for locks"),
        FactKind::Requeues => plain("requeues"),
        FactKind::Stops => plain("stops of the device's queues"),
        FactKind::Sleeps { role } => of(role, "threads going to sleep"),
        FactKind::WorkerSleeps { role } => {
            format!("sleeps of kernel threads that work for the {}", actor(*role))
        }
        FactKind::Waits => of(&Role::Receiver, "waits"),
        FactKind::Reads => of(&Role::Receiver, "reads"),
        FactKind::Wakes => of(&Role::Receiver, "waits ended by a packet"),
        FactKind::Batches => plain("batches of vhost's queue"),
        FactKind::Woken { role, group, by, .. } => {
            let who = match group.as_str() {
                "flows" => format!("the {}", actor(*role)),
                other => format!("a {other} thread"),
            };
            let by = match by.as_str() {
                "sender" => "the generator",
                "receiver" => "the sink",
                "vhost" => "a vhost thread",
                "pktgen" => "a pktgen thread",
                _ => "other work",
            };
            format!("{who} is woken by {by}")
        }
        FactKind::Reschedules => plain("rescheduling interrupts"),
        FactKind::Calls => plain("function-call interrupts"),
        FactKind::NetTx => plain("NET_TX softirqs"),
        FactKind::NetRx => plain("NET_RX softirqs"),
    }
}

/// Returns the largest steps of an end's own profile: significant among all of them, or without an
/// interval. `None` if there is no such step.
fn by_function(role: Role, steps: &Waterfall) -> Option<String> {
    let least = SMALL * steps.before.sampled.max(steps.after.sampled);
    let large = |part: &&Part| {
        let relevant = part.resolved || part.change.half_width.is_none();
        relevant && part.change.mean.abs() >= least
    };
    let part = |part: &Part| {
        let signed = |value: f64| format!("{}{}", if value > 0.0 { "+" } else { "" }, three(value));
        let mean = part.change.mean;
        let interval = part.change.half_width.map_or("no interval".to_owned(), |half| {
            format!("{} to {}", signed(mean - half), signed(mean + half))
        });
        let most = part.functions.first().map_or(String::new(), |function| {
            let [before, after] = [function.before, function.after].map(three);
            format!("; most {}, {before} before and {after} after", function.name)
        });
        format!("{} {} ({interval}{most})", part.subsystem.title(), signed(mean))
    };
    let named = joined(steps.parts.iter().filter(large).take(NAMED).map(part), "; ");
    let (actor, unit) = (actor(role), &steps.unit);
    (!named.is_empty()).then(|| format!("By its profile, the {actor} spends in {unit}: {named}."))
}

/// Most cells that plain text explains; with more, the differences are in the details.
const SHOWN: usize = 3;

/// Shows why each cell's packet rate differs from the baseline's.
pub(crate) fn section(view: &View) -> Section {
    let all = all(view.analysis, view.explanation);
    let most = if view.details || view.medium == Media::PAGE { usize::MAX } else { SHOWN };
    differences(all.iter().take(most))
}

/// Shows the sentences of each pair of cells.
pub(crate) fn differences<'a>(all: impl IntoIterator<Item = &'a RateDifference>) -> Section {
    let mut section = Section::new("differs", TITLE);
    for RateDifference { before, after, lines } in all {
        let title = format!("{TITLE}: {after} (after) against {before} (before)");
        section.add(Block::Heading(title, Some(after.to_string())));
        section.add(List::of(lines.iter().cloned()));
    }
    section
}

/// Shows the work of every cell's ends per packet received.
pub(crate) fn work(view: &View) -> Section {
    let analysis = view.analysis;
    let is_shown = |what: &FactKind| match what {
        FactKind::Rate | FactKind::Lost | FactKind::Busy { .. } | FactKind::Woken { .. } => false,
        FactKind::Cost { .. } | FactKind::Spinning => analysis.functional.is_none(),
        _ => true,
    };
    let rows = || analysis.rows.iter().filter(|row| !row.facts.is_empty());
    let facts = rows().flat_map(|row| &row.facts).map(|fact| &fact.what);
    let kinds = distinct(facts.filter(|what| is_shown(what)));
    let columns = (0u8..)
        .zip(rows())
        .map(|(rank, row)| Column::number("", &row.cell.0, rank.saturating_sub(FIRST)).of_cell());
    let columns = [Column::words("each packet", 0, Some(14))].into_iter().chain(columns);
    let cells = kinds.into_iter().map(|what| {
        let text = move |row: &Row| {
            let fact = row.facts.iter().find(|fact| fact.what == *what);
            fact.map_or(NONE.to_owned(), |fact| figure(what, fact.value.mean))
        };
        std::iter::once(capital(&short(what))).chain(rows().map(text))
    });
    let table = Table::rows(columns, cells);
    let media = Media::TERMINAL.or(Media::PAGE);
    Section::new("work", "Work per packet").on(media).in_detail().with(table).note(
        "Means over the measured trials, per packet received; rejected frames are a share of \
         those offered. Interrupts and softirqs are those of the whole machine.",
    )
}
