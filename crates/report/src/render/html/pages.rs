//! The HTML pages of other commands: the answer, a figure, and the sections of their plain text.

use super::frontier::ROOM;
use super::shell::{titled, write};
use super::{blocks, flame};
use crate::document::{Cell, Column, Document, Figure, Mark, Scale, Section, Table};
use crate::documents::advice::Advice;
use crate::documents::observation::{self, direction};
use crate::documents::{difference, studies};
use crate::sections::{class_of, ranking};
use crate::wording::figures::{
    digits, figure, interval, number, plural, ratio, unit, unit_and_scale,
};
use crate::wording::setup::date;
use crate::wording::verdicts;
use bytepath_profile::diff::{Diff, Row};
use bytepath_profile::flame::Chart;
use bytepath_record::{Observation, ObservedThread, Study, Work, joined};
use bytepath_stats::{
    BetterDirection, CellComparison, Entry, History, Metric, StudyComparison, ThresholdResult,
    Verdict,
};
use maud::{Markup, html};
use serde_json::json;
use std::io::{self, Write};

/// Height of a row with one bar or one interval in pixels, and the edges of the bar.
const HEIGHT: f64 = 22.0;
const BAR: (f64, f64) = (5.0, 17.0);

/// Most functions and threads that are drawn.
const DRAWN: usize = 20;

/// Writes the page that compares two studies; `names` are those that the user typed.
pub fn between(
    names: [&str; 2],
    studies: [&Study; 2],
    between: &StudyComparison,
    results: &[ThresholdResult],
    out: &mut dyn Write,
) -> io::Result<()> {
    let document = studies::between(names, studies, between);
    let groups = Work::ALL.into_iter().flat_map(|work| Metric::ALL.map(|q| (q, work)));
    let groups = groups.filter_map(|(question, work)| {
        let of =
            |p: &&CellComparison| (p.question, p.work) == (question, work) && p.ratio.is_some();
        let pairings: Vec<&CellComparison> = between.pairings.iter().filter(of).collect();
        (!pairings.is_empty()).then(|| (verdicts::subject(question, work), pairings))
    });
    let groups: Vec<(String, Vec<&CellComparison>)> = groups.collect();
    let answer = html! {
        @for (what, pairings) in &groups { p class="lede" { (changes(what, pairings)) } }
        @if groups.is_empty() { p class="lede" { "No cell was measured in both studies." } }
        (thresholds(results))
    };
    let figures = groups.iter().map(|(what, pairings)| ratios(what, pairings));
    finish(&format!("{} against {}", names[1], names[0]), answer, figures, &[], &document, out)
}

/// Renders what changed in one metric, in a sentence.
fn changes(what: &str, pairings: &[&CellComparison]) -> Markup {
    let changed = pairings.iter().filter(|p| p.verdict.better().is_some());
    let changed = changed.map(|p| format!("{} {} ({})", p.cell, ratio(p.ratio), p.verdict.word()));
    let changed = joined(changed, ", ");
    let alike = pairings.iter().filter(|p| p.verdict == Verdict::Equivalent).count();
    html! {
        strong { (what) ": " }
        @if changed.is_empty() { "no change was shown in " } @else { (changed) ", of " }
        (plural(pairings.len() as u64, "cell")) "."
        @if alike > 0 { " " (plural(alike as u64, "cell")) " EQUIVALENT." }
    }
}

fn ratios(what: &str, pairings: &[&CellComparison]) -> Figure {
    let ends =
        pairings.iter().flat_map(|p| [p.interval.map(|i| i.low), p.interval.map(|i| i.high)]);
    let means = pairings.iter().filter_map(|p| p.ratio);
    let scale = Scale::over(ends.flatten().chain(means).filter(|r| *r < 10.0).chain([1.0]));
    let middle = HEIGHT / 2.0;
    let marks = |p: &CellComparison| -> Vec<Mark> {
        let unchanged = Mark::line("baseline", (1.0, 0.0), (1.0, HEIGHT));
        let span = p.interval.map(|i| {
            Mark::line("span", (i.low, middle), (i.high, middle))
                .tip(format!("interval: {}", interval(i.low, i.high)))
        });
        let mean = p.ratio.map(|r| {
            Mark::line("mean", (r, middle - 5.0), (r, middle + 5.0))
                .tip(format!("ratio: {}", ratio(r)))
        });
        [unchanged].into_iter().chain(span).chain(mean).collect()
    };
    let mut table = Table::new(vec![
        Column::path(),
        Column::number("", "ratio", 0).interval(0),
        Column::words("verdict", 0, None),
    ]);
    for p in pairings {
        let range = p.interval.map(|i| interval(i.low, i.high));
        let ratio = Cell::from(ratio(p.ratio)).within(range);
        let cells = [p.cell.to_string().into(), ratio, Cell::verdict(&p.verdict)];
        table.row(cells).class = class_of(p.verdict.better());
    }
    let caption = format!(
        "{what}. The second study as a multiple of the first, with intervals; the dashed line is \
         no change. {}",
        if scale.low > 0.0 { "The axis does not start at zero." } else { "" }
    );
    Figure::rows(caption, table, (scale, HEIGHT), pairings.iter().map(|p| marks(p)))
}

/// Writes the page of a figure over time.
pub fn history(history: &History, out: &mut dyn Write) -> io::Result<()> {
    let document = studies::history(history);
    let History { question, work, .. } = *history;
    let what = verdicts::subject(question, work);
    let unit = unit(question, work);
    let named = |at: usize| history.entries.get(at).map_or("", |entry| entry.study.as_str());
    let answer = html! {
        @if let Some(newest) = history.entries.last() {
            p class="lede" {
                strong { "Newest: " } (figure(question, work, newest.mean)) " " (unit) " in "
                (newest.study) ", of " (plural(newest.n as u64, "trial")) "."
            }
        }
        @for shift in &history.shifts {
            @let better = (shift.ratio > 1.0) == (question.direction() == BetterDirection::Higher);
            p class="lede" {
                strong class={ "word " (class_of(Some(better))) } { "CHANGE" } " "
                (ratio(shift.ratio)) " with the study " (named(shift.at)) "."
            }
        }
        @if history.shifts.is_empty() { p class="lede" { "No change was found." } }
    };
    let title = format!("{}: {what}", history.cell);
    finish(&title, answer, [course(history, &what)], &[], &document, out)
}

/// Draws the studies of a history over time.
fn course(history: &History, what: &str) -> Figure {
    let History { question, work, .. } = *history;
    // Draw in the unit that is printed.
    let (unit, shown) = unit_and_scale(question, work);
    let reach = |mean: f64, stddev: Option<f64>| {
        let off = stddev.unwrap_or(0.0);
        [(mean - off) * shown, (mean + off) * shown]
    };
    let first = history.entries.first().map_or(0, |entry| entry.started_ms);
    let since = |entry: &Entry| entry.started_ms.saturating_sub(first) as f64;
    let last = history.entries.iter().map(since).fold(0.0, f64::max);
    let (name, length) = TIMES.into_iter().rfind(|(_, ms)| last >= 2.0 * ms).unwrap_or(TIMES[0]);
    let entries = history.entries.iter().map(|entry| (since(entry) / length, entry));
    let at = |at: usize| history.entries.get(at).map_or(0.0, |entry| since(entry) / length);
    let ends = |(_, entry): (f64, &Entry)| reach(entry.mean, entry.stddev);
    let up = Scale::over(entries.clone().flat_map(ends).flat_map(|end| [end, end * ROOM]));
    let across = Scale::over([0.0, (last / length * ROOM).max(1.0)]);
    let changes = history.shifts.iter().map(|shift| {
        let before = (at(shift.at.saturating_sub(1)) + at(shift.at)) / 2.0;
        let line = Mark::line("baseline", (before, up.low), (before, f64::MAX));
        line.tip(format!("change: {}", ratio(shift.ratio)))
    });
    let path = entries.clone().map(|(at, entry)| (at, entry.mean * shown)).collect();
    let spread = entries.clone().map(|(at, entry)| {
        let [low, high] = reach(entry.mean, entry.stddev);
        Mark::line("thin", (at, low), (at, high))
    });
    let dots = entries.clone().map(|(at, entry)| {
        let mean = figure(question, work, entry.mean);
        let when = date(entry.started_ms).unwrap_or_default();
        let words = format!("{}, {when}: {mean} {unit}", entry.study);
        Mark::dot("spot", (at, entry.mean * shown), 4.0).tip(words)
    });
    let marks = changes.chain([Mark::course("course", path)]).chain(spread).chain(dots).collect();
    let caption = format!(
        "{what}. {unit}, the studies by when they started; the thin line is one standard deviation \
         of the trials to either side, a dashed one a change. {}",
        if up.low > 0.0 { "The axis does not start at zero." } else { "" }
    );
    let since = format!("{name} since {}", date(first).unwrap_or_default());
    Figure::plot(caption, [across, up], [since, unit.to_owned()], marks)
}

/// Units of the time axis, with their milliseconds.
const TIMES: [(&str, f64); 3] = [("minutes", 60e3), ("hours", 3600e3), ("days", 86400e3)];

/// Writes the page of an observation, with the flame graph of its profile.
pub fn observation(
    observed: &Observation,
    charts: &[Chart],
    advice: Option<&Advice>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let document = observation::observation(observed, true);
    let answer = html! {
        @for line in &observed.limits { p class="lede" { (line) } }
        @for (lead, traffic) in [("Sent", &observed.sent), ("Received", &observed.received)] {
            @if traffic.ledger.delivered > 0 {
                p class="lede" { strong { (lead) ": " } (direction(traffic)) "." }
            }
        }
        @if let Some(advice) = advice { p class="lede" { (advice.first) } }
    };
    finish(
        &observation::command(observed),
        answer,
        threads(&observed.threads),
        charts,
        &document,
        out,
    )
}

/// Draws the CPU time of the threads that ran longest.
fn threads(all: &[ObservedThread]) -> Option<Figure> {
    let mut times: Vec<_> = all.iter().filter_map(|thread| thread.time.as_ref()).collect();
    times.sort_by(|a, b| b.run.total_cmp(&a.run));
    times.truncate(DRAWN);
    let scale = Scale::over(times.iter().map(|time| time.user + time.system).chain([0.0]));
    let bar = |class, from: f64, to: f64| {
        let bar = Mark::bar(class, (from, BAR.0), (to, BAR.1));
        bar.tip(format!("{class}: {} s", number(to - from, 3)))
    };
    let table = Table::of(
        &times,
        [
            (Column::words("thread", 0, None), |time| format!("{} ({})", time.name, time.tid)),
            (Column::number("", "user", 0), |time| number(time.user, 3)),
            (Column::number("", "system", 0), |time| number(time.system, 3)),
        ],
    );
    let marks = times.iter().map(|time| {
        vec![bar("user", 0.0, time.user), bar("system", time.user, time.user + time.system)]
    });
    let caption = "CPU time of its threads, seconds while it was observed.";
    let key = vec![("user", "program".to_owned()), ("system", "kernel".to_owned())];
    let figure = Figure { key, ..Figure::rows(caption, table, (scale, HEIGHT), marks) };
    (!times.is_empty()).then_some(figure)
}

/// Writes the page of the difference of two profiles, with flame graphs.
pub fn difference(diff: &Diff, charts: &[Chart], out: &mut dyn Write) -> io::Result<()> {
    let mut document = Document::default();
    difference::details(&mut document, diff);
    let places = digits(diff.total.with.max(diff.total.without), 4);
    let answer = html! {
        @if let Some(answer) = difference::answer(diff) { p class="lede" { strong { (answer) } } }
    };
    let title = charts.iter().find(|chart| chart.boxes.iter().any(|b| b.change.is_some()));
    let title = title.and_then(|chart| chart.title.split(", widths of ").next());
    let figure = functions(&diff.rows, &diff.unit, places);
    finish(title.unwrap_or("Two profiles"), answer, figure, charts, &document, out)
}

/// Draws the functions that differ most, as bars to both sides of zero.
fn functions(rows: &[Row], unit: &str, places: usize) -> Option<Figure> {
    let mut rows: Vec<&Row> = rows.iter().filter(|row| row.amount.saved != 0.0).collect();
    rows.sort_by(|a, b| b.amount.saved.abs().total_cmp(&a.amount.saved.abs()));
    rows.truncate(DRAWN);
    let change = |row: &Row| -row.amount.saved;
    let scale = Scale::over(rows.iter().map(|row| change(row)).chain([0.0]));
    let signed = |value: f64| ranking::signed(value, places);
    let bar = |row: &Row| {
        let class = match (row.amount.in_doubt(), change(row) < 0.0) {
            (false, true) => "less",
            (true, true) => "less unsure",
            (false, false) => "more",
            (true, false) => "more unsure",
        };
        let bar = Mark::bar(class, (0.0, BAR.0), (change(row), BAR.1));
        bar.tip(format!("{}: {} {unit}", row.function, signed(change(row))))
    };
    let columns = [Column::words("function", 0, None), Column::number("", "change", 0)];
    let cells = rows.iter().map(|row| [row.function.clone(), signed(change(row))]);
    let table = Table::rows(columns, cells);
    let caption = format!(
        "The functions that differ most, {unit} after minus before; a bar is pale if its interval \
         contains zero."
    );
    let marks = rows.iter().map(|row| vec![bar(row)]);
    (!rows.is_empty()).then(|| Figure::rows(caption, table, (scale, HEIGHT), marks))
}

fn finish(
    title: &str,
    answer: Markup,
    figures: impl IntoIterator<Item = Figure>,
    charts: &[Chart],
    document: &Document,
    out: &mut dyn Write,
) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let content = html! {
        header {
            p class="kicker" { "bytepath " (version) }
            h1 { (title) }
            (answer)
        }
        main {
            section { @for figure in figures { (blocks::figure(&figure)) } }
            @if !charts.is_empty() { section { h2 { "Flame graphs" } (flame::graphs(charts)) } }
            @for part in document.sections.iter().filter(is_body) { (titled(part)) }
        }
    };
    write(title, version, content, &json!({ "flames": flame::data(charts) }), out)
}

/// Returns whether the section is more than the title of the plain text: the page has its own.
fn is_body(section: &&Section) -> bool {
    !section.title.starts_with("bytepath") || section.blocks.len() > 1
}

/// Renders the outcome of thresholds; nothing if there are none.
pub(crate) fn thresholds(results: &[ThresholdResult]) -> Markup {
    let section = studies::threshold_section(results);
    html! { @if !section.is_empty() { h2 { (section.title) } (blocks::section(&section)) } }
}
