//! `netdev`: the study as the text of a mail to a kernel list: at most 72
//! columns, plain ASCII, nothing to touch before it is sent. What was compared
//! and what came out first, then the numbers, then what they rest on, then how
//! to repeat them.

use super::figures::{
    NONE, amount, change, cost as cost_of, level, microseconds, number, percent, plural, rate,
};
use super::page::{Page, Tone, plain};
use super::table::{Column, Table};
use super::words::{self, by_work, cautions, label, labels};
use super::{
    Report, Style, Subject, Why, answer, counted, factors, frames, hops, offload, reproduce, setup,
    verdicts, waterfall,
};
use bytepath_profile::Explanation;
use bytepath_record::{Cell, Percentile, Role, Study, StudyHeader, Work};
use bytepath_stats::{Analysis, End, Question, Row, Summary, Verdict};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Columns of a mail: those of a commit message, so that a reply can quote it
/// twice without breaking a line.
const WIDTH: usize = 72;

/// Columns of the bars of a waterfall or chart.
const BARS: usize = 18;

/// Longest experiment file that is printed whole, in lines.
const FILE_LINES: usize = 24;

/// Warnings beyond this many are only counted: a mail is not a log.
const CAUTIONS: usize = 8;

/// See the module's text.
pub(crate) static FORMAT: Report = Report {
    name: "netdev",
    summary: "plain text of at most 72 columns, to paste into a mail",
    render,
    extension: "txt",
    binary: false,
    short_names: true,
};

fn render(subject: &Subject, _: &Style, out: &mut dyn Write) -> io::Result<()> {
    let Subject { study, analysis, explanation, .. } = *subject;
    let mut page = Page::new(WIDTH, false);
    opening(&mut page, subject);
    for block in hops::blocks(study, analysis) {
        page.gap();
        block.into_iter().for_each(|line| page.pieces(&[(line, Tone::Plain)]));
    }
    for (work, rows) in &by_work(analysis) {
        rates(&mut page, analysis, *work, rows);
        latency(&mut page, rows);
        cost(&mut page, analysis, *work, rows);
        energy(&mut page, analysis, *work, rows);
    }
    for block in counted::blocks(study, analysis) {
        page.gap();
        block.into_iter().for_each(|line| page.pieces(&[(plain(&line), Tone::Plain)]));
    }
    frames::print(&mut page, frames::all(analysis, explanation).iter().take(frames::SHOWN));
    factors::print(&mut page, study, analysis, BARS);
    if let Some(explanation) = explanation {
        waterfall::print(&mut page, explanation, BARS, false);
    }
    zero_copy(&mut page, analysis);
    rules(&mut page, analysis);
    missing(&mut page, analysis);
    warnings(&mut page, analysis);
    head(&mut page, subject);
    again(&mut page, subject.recorded);
    page.finish(out)
}

/// Why cells differ, compact: words and steps.
pub(crate) fn explanation(
    explanation: &Explanation,
    why: Option<&Why>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut page = Page::new(WIDTH, false);
    frames::print(&mut page, why);
    waterfall::print(&mut page, explanation, BARS, false);
    page.finish(out)
}

fn measured(analysis: &Analysis) -> impl Iterator<Item = &Row> {
    analysis.rows.iter().filter(|row| row.status.measured > 0)
}

/// What was compared, and the answer.
fn opening(page: &mut Page, subject: &Subject) {
    let Subject { study, analysis, explanation, .. } = *subject;
    let header = &study.header;
    for line in offload::sentences(analysis) {
        page.text("", &line);
    }
    page.gap();
    let paragraphs = answer::answer(analysis, explanation);
    for paragraph in &paragraphs {
        page.text("", &format!("{}: {}", paragraph.lead, paragraph.text));
    }
    page.gap();
    if !header.title.is_empty() {
        page.text("", &header.title);
        page.gap();
    }
    let varied = if differ_in_path_alone(study) { "data path" } else { "configuration" };
    let mut text = format!(
        "{} for {}, measured against {} on Linux {} over {} in random order.",
        plural(measured(analysis).count() as u64, varied),
        analysis.work().terms().load,
        analysis.baseline,
        kernel(study),
        plural(blocks(study), "block"),
    );
    // The answer names them already.
    let leaders = if paragraphs.is_empty() { words::leaders(analysis) } else { Vec::new() };
    match words::functional(analysis) {
        Some(functional) => text += &format!(" {functional}"),
        None if leaders.is_empty() && paragraphs.is_empty() => {
            text += &format!(" {}", words::nothing(analysis))
        }
        None => {}
    }
    for leader in &leaders {
        let (row, question) = (leader.row, leader.question);
        let word = verdicts::word(row, question);
        let standing = match leader.effect() {
            Some(effect) => format!(" ({}, {word})", change(effect.ratio)),
            None if row.baseline => " (the baseline)".into(),
            None if word.is_empty() => String::new(),
            None => format!(" ({word})"),
        };
        let label = match question {
            Question::Rate => format!(", {}", labels(&row.labels)),
            _ => String::new(),
        };
        let title = capital(&leader.title());
        text += &format!(" {title}: {}, {}{standing}{label}.", row.cell, leader.figure);
    }
    page.text("", &text);
}

/// The words with a capital at their beginning.
fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn differ_in_path_alone(study: &Study) -> bool {
    let cells: Vec<&Cell> = study.header.cells.iter().collect();
    setup::common(&cells, |c| &c.link).is_some()
        && setup::common(&cells, |c| &c.stream).is_some()
        && setup::common(&cells, |c| &c.placement).is_some()
}

fn kernel(study: &Study) -> &str {
    study.header.facts.first().map_or("(version unknown)", |f| f.kernel_release.as_str())
}

/// Blocks that really have a trial.
fn blocks(study: &Study) -> u64 {
    study.trials.iter().map(|t| t.block).collect::<BTreeSet<_>>().len() as u64
}

fn rates(page: &mut Page, analysis: &Analysis, work: Work, rows: &[&Row]) {
    let terms = work.terms();
    page.heading(&format!(
        "{} at the {}, with {} intervals:",
        terms.rate_heading,
        work.actor(work.counted_by()),
        level(analysis.rules.confidence)
    ));
    page.gap();
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::number("", "n", 4),
        Column::number("", terms.rate_unit, 0),
        Column::number("", "sd", 3),
        Column::number("", "change", 0),
        Column::number("", "interval", 1),
        Column::words("verdict", 0, None),
    ]);
    for row in rows {
        let effect = row.comparison(Question::Rate).and_then(|c| c.effect.as_ref());
        let interval = effect.and_then(|e| e.interval);
        let range = interval.map(|i| format!("{} .. {}", change(i.low), change(i.high)));
        let texts = [
            row.cell.to_string(),
            row.status.measured.to_string(),
            rate(work, mean(&row.rate)),
            percent(row.rate.and_then(|t| t.relative_stddev())),
            if row.baseline { String::new() } else { change(effect.map(|e| e.ratio)) },
            range.unwrap_or_default(),
            verdicts::word(row, Question::Rate).to_owned(),
        ];
        table.row(texts.map(|text| (text, Tone::Plain)).to_vec());
    }
    table.print(page, 2);
}

fn cost(page: &mut Page, analysis: &Analysis, work: Work, rows: &[&Row]) {
    let seen = |r: &&Row| Role::ALL.iter().any(|role| r.end(*role).cpu.is_some());
    if !rows.iter().any(seen) {
        return;
    }
    let terms = work.terms();
    let shown = work.cost(analysis.instructions_per_second);
    page.heading(&format!("{} {}:", shown.words, terms.done));
    page.gap();
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::number("", work.actor(Role::Sender), 1),
        Column::number("", work.actor(Role::Receiver), 1),
        Column::number("", "both", 0),
        Column::number("", "change", 0),
        Column::words("verdict", 0, None),
    ]);
    for row in rows {
        let effect = row.comparison(analysis.cost()).and_then(|c| c.effect.as_ref());
        let total = |end: &End| cost_of(shown, end.cpu.as_ref().map(|c| c.total.mean));
        let texts = [
            row.cell.to_string(),
            total(&row.sender),
            total(&row.receiver),
            cost_of(shown, mean(&row.cpu_per_unit)),
            if row.baseline { String::new() } else { change(effect.map(|e| e.ratio)) },
            verdicts::word(row, analysis.cost()).to_owned(),
        ];
        table.row(texts.map(|text| (text, Tone::Plain)).to_vec());
    }
    table.print(page, 2);
    worth(page, analysis, work, rows);
}

/// What came back for the cost, and how many calls it took.
fn worth(page: &mut Page, analysis: &Analysis, work: Work, rows: &[&Row]) {
    page.gap();
    // Of anything but bytes the demand is the cost itself.
    let demand = rows.iter().any(|row| row.service_demand.total.is_some());
    // Where no speed was measured nothing came back.
    let returns = analysis.functional.is_none();
    let mut columns = vec![Column::words("path", 0, Some(14))];
    let two = [Column::number("", "middle", 2), Column::number("", "ROI", 0)];
    columns.extend(two.into_iter().filter(|_| returns));
    columns.extend(demand.then(|| Column::number("", "us/KiB", 0)));
    columns.extend([
        Column::number(work.terms().calls_unit, "tx", 1),
        Column::number(work.terms().calls_unit, "rx", 1),
        Column::number("", "retrans", 3),
    ]);
    let mut table = Table::new(columns);
    for row in rows {
        let mut texts = vec![row.cell.to_string()];
        let two = [rate(work, row.headline.map(|h| h.mean)), amount(mean(&row.roi.total))];
        texts.extend(two.into_iter().filter(|_| returns));
        texts.extend(demand.then(|| number(mean(&row.service_demand.total), 3)));
        texts.extend([
            amount(mean(&row.sender.calls_per_unit)),
            amount(mean(&row.receiver.calls_per_unit)),
            row.retransmits.map_or(NONE.into(), amount),
        ]);
        table.row(texts.into_iter().map(|text| (text, Tone::Plain)).collect());
    }
    table.print(page, 2);
    if !returns {
        return;
    }
    page.gap();
    let mut text = format!("Both ends together: ROI is T^n / C ({})", words::terms(analysis));
    text += if demand { ", us/KiB the CPU time per KiB delivered." } else { "." };
    if let Some(middle) = words::middle_rule(analysis) {
        text += &format!(" {middle}");
    }
    page.text("", &text);
}

/// What was drawn and what came back for it, where a meter reported power.
fn energy(page: &mut Page, analysis: &Analysis, work: Work, rows: &[&Row]) {
    let rows: Vec<_> = rows.iter().filter_map(|row| Some((*row, row.energy()?))).collect();
    if rows.is_empty() {
        return;
    }
    let terms = work.terms();
    page.heading(&format!("Watts, {}, and return by power:", terms.energy_unit));
    page.gap();
    // Of an emulated processor's speed nothing came back.
    let returns = analysis.functional.is_none();
    let groups = ["watts", terms.energy_unit].into_iter().chain(returns.then_some("T^n / P^m"));
    let mut columns = vec![Column::words("path", 0, Some(14))];
    for group in groups {
        columns.extend(
            [("tx", 1), ("rx", 1), ("both", 0)].map(|(end, rank)| Column::number(group, end, rank)),
        );
    }
    let mut table = Table::new(columns);
    for (row, [watts, joules]) in rows {
        let mut texts = vec![row.cell.to_string()];
        texts.extend(watts.map(|s| number(mean(&s), 1)));
        texts.extend(joules.map(|s| number(mean(&s).map(|j| j * terms.energy_scale), 1)));
        let roi = [row.roi_power.sender, row.roi_power.receiver, row.roi_power.total];
        texts.extend(roi.into_iter().filter(|_| returns).map(|s| amount(mean(&s))));
        table.row(texts.into_iter().map(|text| (text, Tone::Plain)).collect());
    }
    table.print(page, 2);
}

/// Percentiles, and what was found of the two that are judged.
fn latency(page: &mut Page, rows: &[&Row]) {
    let rows = rows.iter().filter_map(|row| Some((*row, row.latency.as_ref()?)));
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return;
    }
    page.heading("Latency in microseconds, all trials together:");
    page.gap();
    let mut columns = vec![Column::words("path", 0, Some(14))];
    columns.extend(Percentile::ALL.map(|p| Column::number("", p.name(), 0)));
    columns.push(Column::number("", "max", 0));
    let mut table = Table::new(columns);
    for (row, latency) in &rows {
        let mut texts = vec![row.cell.to_string()];
        texts.extend(
            Percentile::ALL.map(|p| microseconds(latency.percentile(p).map(|row| row.pooled))),
        );
        texts.push(microseconds(latency.max));
        table.row(texts.into_iter().map(|text| (text, Tone::Plain)).collect());
    }
    table.print(page, 2);
    if rows.iter().all(|(row, _)| row.baseline) {
        return;
    }
    page.gap();
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::words("", 0, None),
        Column::number("", "change", 0),
        Column::number("", "interval", 1),
        Column::words("verdict", 0, None),
    ]);
    for (row, _) in rows.iter().filter(|(row, _)| !row.baseline) {
        for percentile in Percentile::ALL {
            let question = Question::Latency(percentile);
            let Some(comparison) = row.comparison(question) else { continue };
            let effect = comparison.effect.as_ref();
            let interval = effect.and_then(|e| e.interval);
            let range = interval.map(|i| format!("{} .. {}", change(i.low), change(i.high)));
            let texts = [
                row.cell.to_string(),
                percentile.name().into(),
                change(effect.map(|e| e.ratio)),
                range.unwrap_or_default(),
                comparison.verdict.word().into(),
            ];
            table.row(texts.map(|text| (text, Tone::Plain)).to_vec());
        }
    }
    table.print(page, 2);
}

fn zero_copy(page: &mut Page, analysis: &Analysis) {
    let proven = |r: &&Row| Role::ALL.iter().any(|role| r.end(*role).ledger.is_some());
    if measured(analysis).filter(proven).count() == 0 {
        return;
    }
    page.heading("Bytes proven not to have been copied, at each end:");
    page.gap();
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::number("not copied", "tx", 0),
        Column::number("not copied", "rx", 0),
        Column::words("witness page", 1, None),
        Column::words("label", 0, Some(18)),
    ]);
    for row in measured(analysis).filter(proven) {
        let share = |end: &End| percent(end.ledger.as_ref().map(|l| l.not_copied));
        let witness = match (row.sender.witness.shared, row.sender.witness.copied) {
            (0, 0) => NONE,
            (_, 0) => "shared",
            (0, _) => "copied",
            _ => "differs",
        };
        let texts = [
            row.cell.to_string(),
            share(&row.sender),
            share(&row.receiver),
            witness.to_owned(),
            label(row),
        ];
        table.row(texts.map(|text| (text, Tone::Plain)).to_vec());
    }
    table.print(page, 2);
    if let Some(text) = words::on_a_wire(analysis) {
        page.gap();
        page.text("", &text);
    }
}

/// What the words rest on, and what the undecided ones would take.
fn rules(page: &mut Page, analysis: &Analysis) {
    let mut any = false;
    for question in Question::MAIN {
        let compared = verdicts::compared(analysis, question);
        if compared.is_empty() {
            continue;
        }
        any = true;
        page.heading(&format!("On {}:", verdicts::subject(question, analysis.work())));
        page.gap();
        for (row, comparison) in compared {
            if comparison.verdict.better().is_none() && comparison.verdict != Verdict::Equivalent {
                let text = format!("{}: {}", row.cell, verdicts::sentence(comparison, analysis));
                page.text("  - ", &text);
            }
        }
        page.text("  - ", &verdicts::noise(analysis, question));
    }
    if any {
        page.gap();
        page.text("", &verdicts::rule(analysis));
        page.gap();
        page.text("", &verdicts::events_rule());
        if let Some(text) = verdicts::stopping(analysis) {
            page.gap();
            page.text("", &text);
        }
        page.gap();
        page.text("", &words::cpu_rule(analysis));
    }
}

fn missing(page: &mut Page, analysis: &Analysis) {
    for (title, list) in [
        ("Could not run on this host:", words::unavailable(analysis)),
        ("Trials that do not count:", words::not_counted(analysis)),
    ] {
        if list.is_empty() {
            continue;
        }
        page.heading(title);
        page.gap();
        for unmeasured in list {
            page.text("  - ", &format!("{}: {}", unmeasured.row.cell, unmeasured.reason));
        }
    }
    let never = words::never_run(analysis);
    if !never.is_empty() {
        page.gap();
        page.text("", &format!("Not run: {}.", never.join(", ")));
    }
}

fn warnings(page: &mut Page, analysis: &Analysis) {
    let lines = cautions(analysis);
    if lines.is_empty() {
        return;
    }
    page.heading("Warnings:");
    page.gap();
    for line in lines.iter().take(CAUTIONS) {
        page.text("  - ", line);
    }
    if lines.len() > CAUTIONS {
        page.text("  - ", &format!("and {} more, in the study", lines.len() - CAUTIONS));
    }
}

fn head(page: &mut Page, subject: &Subject) {
    page.heading("Setup:");
    page.gap();
    for (name, text) in setup::facts(subject) {
        page.text(&format!("  {name:<11}"), &text);
    }
}

/// How to run it again.
fn again(page: &mut Page, header: &StudyHeader) {
    let version = &header.bytepath;
    page.heading(&format!("To reproduce, with bytepath {version}:"));
    page.gap();
    let Some(pieces) = reproduce::command(header) else {
        page.pieces(&[("  bytepath run EXPERIMENT.toml".into(), Tone::Plain)]);
        page.gap();
        return page.text(
            "",
            "with the experiment file of this study; experiment.toml in the folder of the study \
             lists every cell with all its options.",
        );
    };
    let mut line = String::from(" ");
    for (i, piece) in pieces.iter().enumerate() {
        // Room for the sign that continues the line.
        if line.len() + 1 + piece.len() + 2 > WIDTH && line.trim() != "" {
            page.text("", &format!("{line} \\"));
            line = String::from("     ");
        }
        line += &format!(" {piece}");
        if i + 1 == pieces.len() {
            page.text("", &line);
        }
    }
    match reproduce::file(header) {
        Some(lines) if lines.len() <= FILE_LINES => {
            page.gap();
            page.text("", "with this file:");
            page.gap();
            for line in lines {
                page.text("  ", line);
            }
        }
        Some(_) => {
            page.gap();
            page.text("", "with the file that experiment.toml in the folder of the study holds.");
        }
        None => {}
    }
}

fn mean(summary: &Option<Summary>) -> Option<f64> {
    summary.map(|s| s.mean)
}
