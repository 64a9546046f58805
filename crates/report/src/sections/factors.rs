//! The effect of each factor: a chart of two or three of them, a table of the levels of all, and
//! interactions.

use super::view::{View, mean};
use crate::document::{Block, Table, Tone};
use crate::document::{Cell, Column, Figure, List, Mark, Media, Scale, Section};
use crate::wording::figures::{NONE, effect_text, level, plural, probability, rate};
use crate::wording::text::labels;
use crate::wording::verdicts::subject;
use bytepath_record::{Study, Work, grouped, joined};
use bytepath_stats::{Analysis, Factor, FactorView, Interaction, LevelEffect, Metric, Row};
use std::collections::BTreeMap;

/// Most interactions listed in plain text; the largest come first.
const SENTENCES: usize = 12;

/// Widths of the bars in plain text, in columns.
const BARS: f64 = 32.0;
const BARS_OF_MAIL: f64 = 18.0;

/// Classes with the colours of the bars in a row.
const COLOURS: [&str; 5] = ["system", "user", "free", "copied", "discarded"];

/// Pixels of a bar, of the gap below it, and of the space above and below all bars of a row.
const BAR: f64 = 11.0;
const GAP: f64 = 2.0;
const MARGIN: f64 = 4.0;

pub(crate) fn section(view: &View) -> Section {
    let analysis = view.analysis;
    let mut section = Section::new("factors", "What each factor does");
    let Some(factors) = &analysis.factors else { return section };
    if let Some(panels) = Panels::of(view.study, analysis) {
        match view.medium == Media::PAGE {
            true => drawn(&mut section, &panels, analysis),
            false => printed(&mut section, &panels, view),
        }
    }
    if !factors.effects.is_empty() {
        section.add(effects(factors, analysis));
        section = section.note(rule(factors, analysis));
        section.add(Block::Gap);
        let most = if view.medium == Media::PAGE { usize::MAX } else { SENTENCES };
        section.add(List::of(interactions(factors, analysis, most)));
    }
    section
}

/// Draws the rate of each row's cells as bars side by side, panel by panel, all on one scale. If no
/// speed was measured there are no bars, and the table shows how the bytes were moved.
fn drawn(section: &mut Section, panels: &Panels, analysis: &Analysis) {
    let work = analysis.work();
    let terms = work.terms();
    let rates = panels.rates(work).into_iter().map(|rate| rate * terms.rate_scale);
    let scale = Scale::over(rates.chain([0.0]));
    let levels = &panels.bars.levels;
    let names = || levels.iter().map(|level| format!("{}={level}", panels.bars.name));
    let key = COLOURS.into_iter().cycle().zip(names()).collect();
    let (mut caption, mut key) = (panels.caption(analysis), Some(key));
    for panel in panels.each_panel() {
        if let Some((factor, level)) = panels.panels.zip(panel) {
            section.heading(format!("{}={level}", factor.name));
        }
        let columns = [Column::words(&panels.rows.name, 0, None)].into_iter();
        let columns = columns.chain(levels.iter().map(|level| Column::number("", level, 0)));
        let figures = panels.rows.levels.iter().map(|row| {
            let figures = levels.iter().map(|bar| panels.figure(row, bar, panel, analysis));
            std::iter::once(row.clone()).chain(figures)
        });
        let table = Table::rows(columns, figures);
        let caption = std::mem::take(&mut caption);
        if analysis.functional.is_some() {
            section.text("  ", caption);
            section.add(table);
            continue;
        }
        let marks = panels.rows.levels.iter().map(|row| {
            let rates = levels.iter().map(|bar| panels.rate(row, bar, panel, work));
            bars(rates, work, names())
        });
        let height = 2.0 * MARGIN + levels.len() as f64 * BAR - GAP;
        let figure = Figure::rows(caption, table, (scale.clone(), height), marks);
        section.add(Figure { key: key.take().unwrap_or_default(), ..figure });
    }
}

/// Draws a bar for each existing rate.
fn bars(
    rates: impl Iterator<Item = Option<f64>>,
    work: Work,
    names: impl Iterator<Item = String>,
) -> Vec<Mark> {
    let terms = work.terms();
    let all = rates.zip(names).zip(COLOURS.into_iter().cycle()).enumerate();
    all.filter_map(|(at, ((value, name), colour))| {
        let top = MARGIN + at as f64 * BAR;
        let bar = Mark::bar(colour, (0.0, top), (value? * terms.rate_scale, top + BAR - GAP));
        Some(bar.tip(format!("{name}: {} {}", rate(work, value), terms.rate_unit)))
    })
    .collect()
}

/// Adds a line for each cell, panel by panel, with its rate as a bar of characters.
fn printed(section: &mut Section, panels: &Panels, view: &View) {
    let analysis = view.analysis;
    let work = analysis.work();
    let most = panels.rates(work).into_iter().fold(0.0, f64::max);
    let width = if view.medium == Media::MAIL { BARS_OF_MAIL } else { BARS };
    let functional = analysis.functional.is_some();
    section.text("  ", panels.caption(analysis));
    for panel in panels.each_panel() {
        section.add(Block::Gap);
        let head = panels.panels.zip(panel).map(|(f, level)| format!("{}={level}", f.name));
        let number = Column::number("", work.terms().rate_unit, 0);
        let mut columns = vec![
            Column::words(&panels.rows.name, 0, Some(14)),
            Column::words(&panels.bars.name, 0, Some(14)),
        ];
        columns.extend((!functional).then_some(number));
        columns.push(Column::words(&head.unwrap_or_default(), 0, None));
        let bars = || panels.bars.levels.iter().enumerate();
        let all = panels.rows.levels.iter().flat_map(|row| bars().map(move |bar| (row, bar)));
        let cells = all.map(|(row, (at, level))| {
            let first = if at == 0 { row.as_str() } else { "" };
            let figure = panels.figure(row, level, panel, analysis);
            let length = panels.rate(row, level, panel, work).map_or(0.0, |r| r / most * width);
            let bar = (!functional).then(|| "#".repeat(length.round() as usize));
            [first.to_owned(), level.clone(), figure].into_iter().chain(bar)
        });
        section.add(Table::rows(columns, cells));
    }
    section.add(Block::Gap);
}

/// Builds the table of levels with their effects on the rate and on the cost.
fn effects(view: &FactorView, analysis: &Analysis) -> Table {
    let questions = [Metric::Rate, analysis.cost()];
    let is_asked = |question: &Metric| view.effects.iter().any(|e| e.question == *question);
    let titles = [analysis.work().terms().rate, "cost"];
    let shown = (0u8..).zip(questions.into_iter().zip(titles));
    let shown: Vec<(u8, (Metric, &str))> = shown.filter(|(_, (q, _))| is_asked(q)).collect();
    let mut columns = vec![Column::words("level", 0, Some(18)), Column::words("over", 3, Some(12))];
    for (rank, (_, title)) in &shown {
        columns.push(Column::number("", title, *rank).interval(2 + rank));
        columns.push(Column::words("verdict", *rank, None));
    }
    let asked = view.effects.iter().filter(|effect| questions.contains(&effect.question));
    // `hw-gro=true`, in the order of the factors.
    let lines = grouped(asked.map(|of| ((format!("{}={}", of.factor, of.level), &of.against), of)));
    let cells = |((level, against), effects): ((String, &String), Vec<&LevelEffect>)| {
        let against = Cell::from(against.as_str()).tone(Tone::Faint);
        let mut cells = vec![Cell::from(level), against];
        for (_, (question, _)) in &shown {
            let of = effects.iter().find(|of| of.question == *question);
            cells.push(Cell::factor(of.map(|of| &of.effect)));
            cells.push(of.map_or("".into(), |of| Cell::verdict(&of.verdict)));
        }
        cells
    };
    Table::rows(columns, lines.into_iter().map(cells))
}

/// Returns a note on how to read the table.
fn rule(view: &FactorView, analysis: &Analysis) -> String {
    let confidence = level(analysis.rules.confidence);
    format!(
        "Each level relative to the rest of its factor: block by block, the mean over all combinations of \
         the other factors in which both were measured. Intervals are at {confidence}, \
         individually; the verdicts hold at {confidence} for all {} of a question together (Holm's rule).",
        plural(view.effects.len() as u64 / questions(view).max(1), "level")
    )
}

fn questions(view: &FactorView) -> u64 {
    let rates = view.effects.iter().filter(|e| e.question == Metric::Rate).count();
    if rates < view.effects.len() { 2 } else { 1 }
}

/// Returns sentences about the factors that interact, at most `most`; or that no interaction was
/// found.
fn interactions(view: &FactorView, analysis: &Analysis, most: usize) -> Vec<String> {
    if view.interactions.is_empty() {
        let pairs = plural(view.looked_at as u64, "pair");
        return vec![format!(
            "No interaction between factors was shown ({pairs} of levels examined)."
        )];
    }
    let shown = view.interactions.iter().take(most);
    let mut lines: Vec<String> = shown.map(|pair| interaction(pair, analysis.work())).collect();
    let more = view.interactions.len().saturating_sub(most);
    if more > 0 {
        lines.push(format!("and {} with weaker interactions", plural(more as u64, "pair")));
    }
    lines
}

fn interaction(pair: &Interaction, work: Work) -> String {
    let [first, second] = [0, 1].map(|i| format!("{}={}", pair.factors[i], pair.levels[i]));
    let what = subject(pair.question, work);
    let p = pair
        .test
        .map(|test| format!(", p {} among {}", probability(test.different.adjusted), test.family));
    format!(
        "{first} with {second}: {what} is {} of the product of their individual effects{}",
        effect_text(Some(&pair.effect)),
        p.unwrap_or_default()
    )
}

/// The chart: one factor gives the rows, one the bars of each row, one the panels.
struct Panels<'a> {
    /// The factor whose levels are rows.
    rows: &'a Factor,
    /// The factor whose levels are the bars of a row.
    bars: &'a Factor,
    /// The factor with a panel for each level, if three vary.
    panels: Option<&'a Factor>,
    /// The other factors, fixed at the levels of the baseline.
    fixed: Vec<(&'a str, &'a str)>,
    cells: Vec<(&'a BTreeMap<String, String>, &'a Row)>,
}

impl<'a> Panels<'a> {
    /// Lays out the chart of a study: rows are paths, and panels are placements, if these vary; the
    /// other factors are chosen by the size of their effect on the rate. `None` if no cell was
    /// measured.
    fn of(study: &'a Study, analysis: &'a Analysis) -> Option<Panels<'a>> {
        let view = analysis.factors.as_ref()?;
        let rows = view
            .factors
            .iter()
            .find(|factor| factor.name == "path")
            .or_else(|| view.factors.iter().max_by_key(|factor| factor.levels.len()))?;
        let size = |factor: &Factor| {
            let of = |e: &&LevelEffect| e.factor == factor.name && e.question == Metric::Rate;
            view.effects.iter().filter(of).map(|e| e.effect.log_mean.abs()).fold(0.0, f64::max)
        };
        let mut others: Vec<&Factor> =
            view.factors.iter().filter(|f| f.name != rows.name).collect();
        others.sort_by(|a, b| size(b).total_cmp(&size(a)));
        // Placements are panels if they vary: one CPU and two are like different machines.
        let placement = others.iter().position(|factor| factor.name == "cores");
        let panels = placement.filter(|_| others.len() > 1).map(|at| others.remove(at));
        let mut others = others.into_iter();
        let bars = others.next()?;
        let panels = panels.or_else(|| others.next());
        let cells = study.header.cells.iter().filter_map(|cell| {
            let row = analysis.rows.iter().find(|row| row.cell == cell.id)?;
            (!cell.null && row.status.measured > 0).then_some((&cell.levels, row))
        });
        let cells: Vec<_> = cells.collect();
        if cells.is_empty() {
            return None;
        }
        let base = study.header.cells.iter().find(|cell| cell.id == analysis.baseline)?;
        let at_base = |factor: &'a Factor| {
            Some((factor.name.as_str(), base.levels.get(&factor.name)?.as_str()))
        };
        let fixed = others.filter_map(at_base).collect();
        Some(Panels { rows, bars, panels, fixed, cells })
    }

    fn row(&self, row: &str, bar: &str, panel: Option<&str>) -> Option<&'a Row> {
        let mut levels_of = self.fixed.clone();
        levels_of.extend([(self.rows.name.as_str(), row), (self.bars.name.as_str(), bar)]);
        levels_of.extend(self.panels.map(|factor| factor.name.as_str()).zip(panel));
        let fits = |levels: &BTreeMap<String, String>| {
            levels_of.iter().all(|(k, v)| levels.get(*k).is_some_and(|level| level == v))
        };
        self.cells.iter().find(|(levels, _)| fits(levels)).map(|(_, row)| *row)
    }

    /// Returns the mean rate of a measured cell.
    fn rate(&self, row: &str, bar: &str, panel: Option<&str>, work: Work) -> Option<f64> {
        let cell = self.row(row, bar, panel).filter(|cell| cell.work == work)?;
        cell.rate.map(|rate| rate.mean)
    }

    fn rates(&self, work: Work) -> Vec<f64> {
        let each = self.each_panel().into_iter().flat_map(|panel| {
            self.rows.levels.iter().flat_map(move |row| {
                self.bars.levels.iter().filter_map(move |bar| self.rate(row, bar, panel, work))
            })
        });
        each.collect()
    }

    /// Returns the figure of a cell: its rate, or, if no speed was measured, how its bytes were
    /// moved.
    fn figure(&self, row: &str, bar: &str, panel: Option<&str>, analysis: &Analysis) -> String {
        match (self.row(row, bar, panel), &analysis.functional) {
            (Some(row), Some(_)) => labels(&row.labels),
            (Some(row), None) if row.work == analysis.work() => rate(row.work, mean(&row.rate)),
            _ => NONE.into(),
        }
    }

    /// Returns a caption for the figures, with the levels that all of them share.
    fn caption(&self, analysis: &Analysis) -> String {
        let terms = analysis.work().terms();
        let what = match &analysis.functional {
            Some(_) => "How the bytes were moved; no speed was measured".to_owned(),
            None => format!("{}, {}, mean of all trials", terms.rate_heading, terms.rate_unit),
        };
        let fixed = self.fixed.iter().map(|(factor, level)| format!("{factor}={level}"));
        let fixed = joined(fixed, ", ");
        if fixed.is_empty() { format!("{what}.") } else { format!("{what}; {fixed}.") }
    }

    /// Returns the levels with a panel each; a single `None` without panels.
    fn each_panel(&self) -> Vec<Option<&'a str>> {
        match self.panels {
            Some(factor) => factor.levels.iter().map(|level| Some(level.as_str())).collect(),
            None => vec![None],
        }
    }
}
