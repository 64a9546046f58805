//! Documents about several studies, and thresholds: two studies side by side, a figure over many,
//! and the outcome of thresholds.

use crate::document::{Cell, Column, Document, Section, Table, Tone};
use crate::wording::figures::{
    figure, interval, level, number, percent, plural, probability, ratio, unit,
};
use crate::wording::setup::date;
use crate::wording::verdicts;
use bytepath_record::{Study, Work, joined};
use bytepath_stats::{
    BetterDirection, CHANGE_LEVEL, CellComparison, Difference, Entry, History, Metric, Shift,
    StudyComparison, Summary, ThresholdResult, Weight,
};

/// Most differences of a kind that are named; the rest are only counted.
const NAMED: usize = 12;

/// Shows the comparison of two studies; `names` are those that the user typed.
pub fn between(names: [&str; 2], studies: [&Study; 2], between: &StudyComparison) -> Document {
    let mut document = Document::default();
    let page = &mut document;
    page.line("bytepath: the second study against the first", Tone::Strong);
    page.gap();
    for (lead, (name, study)) in ["first   ", "second  "].iter().zip(names.iter().zip(studies)) {
        let header = &study.header;
        let when = date(header.started_ms).map(|d| format!(", {d}")).unwrap_or_default();
        let facts = header.facts.last();
        let host =
            facts.map(|f| format!(", {}, {}", f.kernel_release, f.cpu_model)).unwrap_or_default();
        page.text(lead, format!("{name}{when}{host}"));
    }
    differences(page, &between.differences);
    for work in Work::ALL {
        for question in Metric::ALL {
            let of =
                |p: &&CellComparison| (p.question, p.work) == (question, work) && p.is_measured();
            let pairings: Vec<&CellComparison> = between.pairings.iter().filter(of).collect();
            pairs(page, question, work, &pairings);
        }
    }
    for (what, cells) in [("first", &between.only_first), ("second", &between.only_second)] {
        if !cells.is_empty() {
            page.gap();
            page.text(&format!("Only in the {what}: "), joined(cells, ", "));
        }
    }
    page.gap();
    let rules = &between.rules;
    if between.relative {
        let text = "Ratios are ratios of ratios: each cell's to the baseline of its own study, \
                    second over first. What changed for all cells of a study cancels out.";
        page.text("", text);
    }
    let (confidence, margin) = (level(rules.confidence), level(rules.margin));
    let rule = format!(
        "Rule: intervals are {confidence} by Welch's t over the logarithms of all trials, \
         individually; verdicts hold at {confidence} for all cells of a table together (Holm; \
         the second p); EQUIVALENT requires an interval within {margin}. Trials of the two \
         studies are not paired and there is no A-against-A between them, so anything else that \
         changed between the studies is in the ratio and not in the interval."
    );
    page.text("", rule);
    document
}

fn differences(page: &mut Document, all: &[Difference]) {
    if all.is_empty() {
        page.text("hosts   ", "no recorded difference in hosts or method");
        return;
    }
    for (weight, title) in [
        (Weight::Machine, "Another machine"),
        (Weight::State, "The hosts differ in"),
        (Weight::Method, "Measured differently"),
    ] {
        let of: Vec<&Difference> = all.iter().filter(|d| d.weight == weight).collect();
        let mut section = Section::new("", title);
        let width = of.iter().map(|d| d.what.len()).filter(|n| *n <= 24).max().unwrap_or(0);
        for Difference { what, first, second, .. } in of.iter().take(NAMED) {
            section.text(&format!("  {what:<width$}  "), format!("{first} -> {second}"));
        }
        if of.len() > NAMED {
            section.text("  ", format!("and {} more (--json has all)", of.len() - NAMED));
        }
        page.push([section]);
    }
}

fn pairs(page: &mut Document, question: Metric, work: Work, pairings: &[&CellComparison]) {
    if pairings.is_empty() {
        return;
    }
    let terms = work.terms();
    page.heading(match question {
        Metric::Rate => format!("{}, {}", terms.rate_heading, terms.rate_unit),
        Metric::Cpu => format!("{}, both ends", terms.cost.words),
        Metric::Instructions => format!("{}, both ends", terms.instructions.words),
        Metric::Latency(percentile) => format!("Latency, {}, us", percentile.name()),
    });
    fn n(side: Option<Summary>) -> Cell {
        side.map_or(0, |s| s.n).to_string().into()
    }
    fn mean(p: &CellComparison, side: Option<Summary>) -> Cell {
        figure(p.question, p.work, side.map(|s| s.mean)).into()
    }
    fn sd(side: Option<Summary>) -> Cell {
        percent(side.and_then(|s| s.relative_stddev())).into()
    }
    fn chance(p: Option<f64>) -> Cell {
        p.map_or(String::new(), probability).into()
    }
    page.add(Table::of(
        pairings,
        [
            (Column::words("path", 0, Some(16)), |p| p.cell.to_string().into()),
            (Column::number("first", "n", 4), |p| n(p.first)),
            (Column::number("first", "mean", 0), |p| mean(p, p.first)),
            (Column::number("first", "sd", 3), |p| sd(p.first)),
            (Column::number("second", "n", 4), |p| n(p.second)),
            (Column::number("second", "mean", 0), |p| mean(p, p.second)),
            (Column::number("second", "sd", 3), |p| sd(p.second)),
            (Column::number("", "ratio", 0), |p| ratio(p.ratio).into()),
            (Column::words("interval", 1, None), |p| {
                p.interval.map_or(String::new(), |i| interval(i.low, i.high)).into()
            }),
            (Column::words("verdict", 0, None), |p| Cell::verdict(&p.verdict)),
            (Column::number("p", "alone", 2), |p| chance(p.test.map(|t| t.different.p))),
            (Column::number("p", "among all", 2), |p| chance(p.test.map(|t| t.different.adjusted))),
        ],
    ));
    for p in pairings.iter().filter(|p| !p.reasons.is_empty()) {
        page.text("  ", format!("{}: {}", p.cell, p.reasons.join("; ")));
    }
}

/// Shows the outcome of thresholds.
pub fn thresholds(results: &[ThresholdResult]) -> Document {
    Document::of([threshold_section(results)])
}

/// Shows the outcome of thresholds; empty if there are none.
pub(crate) fn threshold_section(results: &[ThresholdResult]) -> Section {
    let mut section = Section::new("", "Thresholds");
    for r in results {
        let measured = match r.interval {
            Some(i) => format!("{} (limit {})", interval(i.low, i.high), limit(r.threshold.limit)),
            None => "nothing to compare".into(),
        };
        let lead = format!("  {:<9}  ", r.outcome.word());
        section.text(&lead, format!("{}: {} is {measured}", r.threshold.text, r.cell));
    }
    if let Some(i) = results.iter().find_map(|r| r.interval) {
        let text = format!(
            "FAILED: the whole interval lies beyond the limit; UNDECIDED: it contains \
             the limit. Intervals are {} each, for {} together.",
            // Enough digits to distinguish it from 100 %.
            level((i.confidence * 1e4).floor() / 1e4),
            plural(results.len() as u64, "check"),
        );
        section.text("  ", text);
    }
    section
}

/// Returns a limit with enough decimals: 0.98 for a threshold at 2 % is exact.
fn limit(ratio: f64) -> String {
    let text = number(ratio, 4);
    text.trim_end_matches('0').to_owned() + "x"
}

/// Shows a figure over time.
pub fn history(history: &History) -> Document {
    let mut page = Document::default();
    let History { question, work, .. } = *history;
    let what = verdicts::subject(question, work);
    let studies = plural(history.entries.len() as u64, "study").replace("studys", "studies");
    page.heading(format!("{}: {what}, {studies}", history.cell));
    let entries = history.entries.iter().enumerate().map(|(at, entry)| {
        let shift = history.shifts.iter().find(|s| s.at == at);
        let better =
            shift.map(|s| (s.ratio > 1.0) == (question.direction() == BetterDirection::Higher));
        let remark = Cell::from(remark(entry, shift)).tone(Tone::of(better));
        (entry, figure(question, work, entry.mean), remark)
    });
    page.add(Table::of(
        entries,
        [
            (Column::words("started", 1, None), |(e, ..)| {
                date(e.started_ms).unwrap_or_default().into()
            }),
            (Column::words("study", 0, Some(12)), |(e, ..)| e.study.clone().into()),
            (Column::number("", "n", 2), |(e, ..)| e.n.to_string().into()),
            (Column::number("", unit(question, work), 0), |(_, mean, _)| mean.clone().into()),
            (Column::number("", "sd", 2), |(e, ..)| percent(e.stddev.map(|s| s / e.mean)).into()),
            (Column::words("", 0, Some(20)), |(.., remark)| remark.clone()),
        ],
    ));
    page.gap();
    let found = match history.shifts.len() {
        0 => "No change was found".to_owned(),
        n => format!("{} found", plural(n as u64, "change")),
    };
    let level = level(CHANGE_LEVEL);
    let text = format!(
        "{found}: e-divisive (energy distance, random orders) at {level}. A change can \
         be found from ten studies on, with at least two on either side of it."
    );
    page.text("", text);
    page
}

/// Notes on one study: a change of level, and other changes.
fn remark(entry: &Entry, shift: Option<&Shift>) -> String {
    let mut parts = Vec::new();
    if let Some(s) = shift {
        parts.push(format!("CHANGE {} (p {})", ratio(s.ratio), probability(s.p)));
    }
    let named = entry.changed.iter().take(3);
    parts.extend(named.map(|(what, before, now)| format!("{what}: {before} -> {now}")));
    if entry.changed.len() > 3 {
        parts.push(format!("and {} more", entry.changed.len() - 3));
    }
    parts.join("; ")
}
