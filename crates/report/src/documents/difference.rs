//! The difference of two profiles as a table.

use crate::document::Document;
use crate::sections::ranking::{self, INTERVALS, Labels, decimals};
use crate::sections::symptoms;
use crate::wording::figures::{amount, change, number, percent, plural};
use bytepath_profile::Weight;
use bytepath_profile::diff::{Diff, GroupBy, Measure, Pair, Per, RankingLine, Side};
use bytepath_profile::symptom::FoundSymptom;
use bytepath_record::{grouped, joined, listed, unit::GIB};

/// Most names in the lists of appeared and vanished functions.
const NAMES: usize = 12;

/// Most groups in a table.
const GROUPS: usize = 12;

/// Least change of a symptom, as a part of the busy time, for it to be shown.
const CHANGED: f64 = 0.005;

pub fn difference(diff: &Diff) -> Document {
    let mut page = Document::default();
    if let Some(answer) = answer(diff) {
        page.text("", answer);
        page.gap();
    }
    details(&mut page, diff);
    page
}

/// Adds everything except the answer.
pub(crate) fn details(page: &mut Document, diff: &Diff) {
    heading(page, diff);
    table(page, diff);
    remarks(page, diff);
}

/// Shows the functions with the highest cost on each side of a difference, in two columns.
pub fn side_by_side(diff: &Diff, places: &[RankingLine]) -> Document {
    let mut page = Document::default();
    heading(&mut page, diff);
    let table = ranking::side_by_side(places, ["before", "after"], decimals(diff.total));
    page.add(table.flush());
    page.text("", "to, from: the rank on the other side; -: it takes no time there");
    diff.notes.iter().for_each(|note| page.text("note: ", note));
    page
}

/// Returns how much more or less all functions take together, and whether that is significant.
/// `None` if amounts are shares, or if one side has none.
pub(crate) fn answer(diff: &Diff) -> Option<String> {
    let Pair { without, with, saved, half_width } = diff.total;
    let shares = diff.per == Per::Sample || diff.without.counts == Weight::Percent;
    if shares || without <= 0.0 || with <= 0.0 {
        return None;
    }
    let [before, after] = [without, with].map(|value| number(value, decimals(diff.total)));
    let interval = half_width.map(|half| {
        let [low, high] = [-half, half].map(|off| change((1.0 + (off - saved) / without).max(0.0)));
        let doubt = if diff.total.in_doubt() { ": no difference is shown" } else { "" };
        format!(", interval {low} to {high}{doubt}")
    });
    let single = diff.without.profiles.len() == 1 && diff.with.profiles.len() == 1;
    let interval = interval.unwrap_or_else(|| match single {
        true => " (one profile each, so without an interval)".into(),
        false => String::new(),
    });
    let (unit, by) = (&diff.unit, change(with / without));
    Some(format!("{after} {unit} after the change, {before} before: {by}{interval}."))
}

fn heading(page: &mut Document, diff: &Diff) {
    let what = match diff.measure {
        Measure::SelfOnly => "each function's own code",
        Measure::Total => "each function with all that it called",
    };
    page.text("", format!("{} by function: {what}; change = after - before.", diff.unit));
    page.text("before  ", side(&diff.without));
    page.text("after   ", side(&diff.with));
    page.gap();
}

fn side(side: &Side) -> String {
    let Side { event, samples, bytes, packets, seconds, .. } = side;
    let parts = [
        Some(format!("{}: {samples} samples", titles(&side.profiles))),
        (!event.is_empty()).then(|| format!(" of {event}")),
        bytes.map(|bytes| format!(", {} GiB", number(bytes / GIB, 2))),
        packets.map(|packets| format!(", {} packets", amount(packets))),
        seconds.map(|seconds| format!(", {} s", number(seconds, 1))),
    ];
    parts.into_iter().flatten().collect()
}

/// Returns the titles of a side's profiles: titles that differ only in the number of the trial,
/// `socket (1)` and `socket (2)`, are combined, as are equal ones.
fn titles(titles: &[String]) -> String {
    let numbered = |title: &'_ String| {
        let (name, number) = title.strip_suffix(')')?.rsplit_once(" (")?;
        let whole = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        whole.then(|| (name.to_owned(), number.to_owned()))
    };
    let split: Option<Vec<(String, String)>> = titles.iter().map(numbered).collect();
    match split.as_deref() {
        Some([(name, first), .., (_, last)]) if split.iter().flatten().all(|(n, _)| n == name) => {
            format!("{name} ({first} .. {last}, {} profiles)", titles.len())
        }
        _ => {
            let groups = grouped(titles.iter().map(|title| (title, ()))).into_iter();
            let counted = groups.map(|(title, times)| match times.len() {
                1 => title.clone(),
                times => format!("{title} ({times} profiles)"),
            });
            joined(counted, ", ")
        }
    }
}

fn table(page: &mut Document, diff: &Diff) {
    let group = match diff.by {
        GroupBy::None => None,
        GroupBy::Thread => Some("thread"),
        GroupBy::Role => Some("role"),
        GroupBy::Subsystem => Some("subsystem"),
    };
    if let Some(title) = group {
        page.add(ranking::groups(diff.total, (title, &diff.groups), GROUPS).flush());
        page.gap();
    }
    // Totals of functions include each other and do not add up.
    let rest = diff.left_out.filter(|_| diff.measure == Measure::SelfOnly);
    let labels = Labels { group, subsystem: diff.by != GroupBy::Subsystem, module: true };
    let table = ranking::functions(diff.total, &diff.rows, rest, labels);
    page.add(table.flush());
    if let (Some(left), Measure::Total) = (diff.left_out, diff.measure) {
        page.text("", format!("and {} more", plural(left.rows as u64, "row")));
    }
}

fn remarks(page: &mut Document, diff: &Diff) {
    page.gap();
    if diff.total.half_width.is_some() {
        page.text("", INTERVALS);
    }
    for (names, lead) in
        [(&diff.appeared, "appeared (only after): "), (&diff.vanished, "vanished (only before): ")]
    {
        if !names.is_empty() {
            page.text("", format!("{lead}{}", listed(names, NAMES)));
        }
    }
    let digits = decimals(diff.total);
    for (what, excluded) in [("idle", diff.idle), ("foreign threads", diff.foreign)] {
        if let Some(Pair { with, without, .. }) = excluded {
            let (before, after) = (number(without, digits), number(with, digits));
            page.text("", format!("{what}, not in the table: {before} before, {after} after"));
        }
    }
    if let Some(part) = diff.classified {
        page.text("", format!("{} of the kernel's time is in a named subsystem", percent(part)));
    }
    diff.notes.iter().for_each(|note| page.text("note: ", note));
    // Unchanged symptoms do not explain a difference.
    let changed = |symptom: &&FoundSymptom| match symptom.shares.as_slice() {
        [before, after] => (after - before).abs() >= CHANGED,
        _ => true,
    };
    let changed: Vec<FoundSymptom> = diff.symptoms.iter().filter(changed).cloned().collect();
    page.push([symptoms::section(&changed, &["before", "after"])]);
}
