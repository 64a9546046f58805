//! A study on one screen: a line for each cell with its figures, how they compare with the
//! baseline, and the state of the comparison; both while the study runs and when it has ended.

use crate::document::{Cell, Column, Document, Section, Table, Tone};
use crate::report::Subject;
use crate::wording::figures::{effect_text, figure, percent, plural, unit};
use crate::wording::{answer, text};
use bytepath_record::{CellId, Study};
use bytepath_stats::{Analysis, LEAST_BLOCKS, Metric, Row, Rules, analyse, cells_to_run};
use std::collections::{HashMap, HashSet};

/// The results of a running study up to its last complete block.
pub struct Overview {
    analysis: Analysis,
    /// Cells that further blocks run, if the study ends once its answer is certain.
    open: Option<HashSet<CellId>>,
}

impl Overview {
    pub fn of(study: &Study) -> Overview {
        let open = study.header.schedule.until_sure.then(|| cells_to_run(study));
        Overview { analysis: analyse(study, &Rules::of(&study.header)), open }
    }

    /// Shows the table during a run, with current rates. Verdicts are shown only if the study may
    /// be looked at after each block; otherwise they follow at its end.
    pub fn with_rates(&self, rates: &HashMap<CellId, f64>) -> Document {
        let mut page = Document::default();
        let analysis = &self.analysis;
        let is_silent = |row: &Row| row.status.measured == 0 && row.status.ended() > 0;
        if analysis.functional.is_none() && analysis.rows.iter().all(is_silent) {
            page.text("  ", text::nothing(analysis));
        } else if analysis.functional.is_none() {
            page.add(table(&self.analysis, Some(rates), |row| self.state(row)));
            page.text("  ", unavailable(&self.analysis));
        }
        page
    }

    fn state(&self, row: &Row) -> Cell {
        match &self.open {
            None if !row.baseline => String::new().into(),
            Some(open) if !row.baseline && open.contains(&row.cell) => {
                Cell::from("deciding".to_owned()).tone(Tone::Faint)
            }
            _ => verdict(&self.analysis, row),
        }
    }
}

/// Shows a study that has ended: the table, whether it can be trusted, why, and finally the answer,
/// with the next command to type.
pub fn screen(subject: &Subject, folder: &str) -> Document {
    let Subject { study, analysis, explanation, .. } = *subject;
    let header = &study.header;
    let blocks: HashSet<u32> = study.trials.iter().map(|trial| trial.block).collect();
    let mut page = Document::default();
    let host = header
        .facts
        .first()
        .map(|facts| format!(", Linux {}, {} CPUs", facts.kernel_release, facts.cpus.len()));
    page.text(
        "",
        format!(
            "bytepath {}{}, testbed {}, {} of {} cells",
            header.bytepath,
            host.unwrap_or_default(),
            header.testbed,
            plural(blocks.len() as u64, "block"),
            analysis.rows.len(),
        ),
    );
    page.gap();
    page.add(table(analysis, None, |row| verdict(analysis, row)));
    page.text("  ", unavailable(analysis));
    page.gap();
    let mut paragraphs = answer::short_answer(analysis, explanation);
    // Elsewhere the most important part comes first; on a terminal it comes last.
    paragraphs.sort_by_key(|(lead, _)| matches!(*lead, "Use" | "Keep"));
    let check = check(analysis);
    if !answer::is_asked(analysis) && check.is_none() {
        text::answer(analysis).into_iter().for_each(|(lead, text)| page.text(&lead, text));
    }
    paragraphs.splice(0..0, check.map(|text| ("A/A check", text)));
    if header.schedule.until_sure && (blocks.len() as u32) < LEAST_BLOCKS {
        let text = format!("{} are too few to decide by.", plural(blocks.len() as u64, "block"));
        paragraphs.insert(0, ("Preliminary", text));
    }
    let widest = paragraphs.iter().map(|(lead, _)| lead.len()).max().unwrap_or(0);
    for (lead, text) in paragraphs {
        page.text(&format!("{lead:<widest$}  "), text);
    }
    let mut next = Section::new("", "");
    next.text("all tables  ", format!("bytepath show {folder} --details"));
    next.text("page        ", format!("bytepath show {folder} -o report.html"));
    page.gap();
    page.push([next]);
    page
}

fn table(
    analysis: &Analysis,
    rates: Option<&HashMap<CellId, f64>>,
    state: impl Fn(&Row) -> Cell,
) -> Table {
    let work = analysis.work();
    let rows = || analysis.rows.iter().filter(|row| row.status.unavailable.is_none());
    let is_measured =
        |question: &Metric| rows().any(|row| text::mean(analysis, row, *question).is_some());
    let mut questions = analysis.deciding();
    questions.retain(is_measured);
    let mut columns = vec![Column::path()];
    columns.extend(rates.map(|_| Column::number("", "now", 0)));
    for (question, rank) in questions.iter().zip([1, 3, 5]) {
        let heading = match question {
            Metric::Latency(p) => format!("{} {}", p.name(), unit(*question, work)),
            _ => unit(*question, work).to_owned(),
        };
        columns.push(Column::number("", &heading, rank));
        columns.push(Column::words("ratio", rank + 1, None));
    }
    columns.push(Column::words("", 1, Some(24)));
    let cells = |row: &Row| {
        let tone = if row.baseline { Tone::Strong } else { Tone::Plain };
        let mark = if row.status.disturbed.is_empty() { "" } else { "~" };
        let mut cells = vec![Cell::from(row.cell.to_string()).tone(tone)];
        if let Some(rates) = rates {
            let now = figure(Metric::Rate, work, rates.get(&row.cell).copied());
            cells.push(Cell::from(now).tone(Tone::Faint));
        }
        for question in &questions {
            let mean = figure(*question, work, text::mean(analysis, row, *question));
            cells.push(Cell::from(format!("{mark}{mean}")).tone(tone));
            let ratio = if row.baseline { "1".into() } else { effect_text(row.effect(*question)) };
            cells.push(Cell::from(ratio).tone(Tone::Faint));
        }
        cells.push(state(row));
        cells
    };
    Table::rows(columns, rows().map(cells)).without_empty()
}

/// Returns the words of a cell's comparisons; undecided ones only if none is decided.
fn verdict(analysis: &Analysis, row: &Row) -> Cell {
    if row.baseline {
        return String::from("baseline").into();
    }
    let questions = analysis.deciding();
    let verdicts = questions.iter().filter_map(|q| Some(row.comparison(*q)?.verdict));
    let (sure, open): (Vec<_>, Vec<_>) = verdicts.partition(|verdict| verdict.better().is_some());
    let better = sure.iter().filter_map(|verdict| verdict.better()).reduce(|a, b| a && b);
    let shown = if sure.is_empty() { open } else { sure };
    let mut words: Vec<&str> = shown.iter().map(|verdict| verdict.word()).collect();
    words.dedup();
    Cell::from(words.join(", ")).tone(Tone::of(better))
}

/// Returns the cells that cannot run; empty if all can.
fn unavailable(analysis: &Analysis) -> String {
    let unable = analysis.rows.iter().filter(|row| row.status.unavailable.is_some());
    let names: Vec<String> = unable.map(|row| row.cell.to_string()).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("{}: cannot run here (bytepath doctor)", names.join(", ")),
    }
}

/// Compares the baseline with itself, in a sentence; `None` without a second copy.
fn check(analysis: &Analysis) -> Option<String> {
    let noise = analysis.noise(Metric::Rate)?;
    Some(format!(
        "{} against itself: {}; differences below {} are noise.",
        analysis.noise_of.as_ref().unwrap_or(&analysis.baseline),
        effect_text(Some(&noise.effect)),
        percent(noise.floor)
    ))
}
