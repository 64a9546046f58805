//! What formats share of the factors: the table of their levels, which depend on each
//! other, and the panels of the chart.

use super::figures::{NONE, interval, level, plural, probability, rate, ratio};
use super::page::{Page, Tone};
use super::table::{Column, Table};
use super::words::labels;
use bytepath_record::{Study, Work};
use bytepath_stats::{
    Analysis, Effect, Factor, FactorView, Interaction, LevelEffect, Question, Row,
};
use std::collections::BTreeMap;

/// What the section is called.
pub(crate) const TITLE: &str = "What each factor does";

/// Interactions that plain text lists; the largest come first.
const SENTENCES: usize = 12;

/// A line of the table: a level with what was found of it.
pub(crate) struct Line<'a> {
    /// The factor and its level: `hw-gro=true`.
    pub level: String,
    /// What it is compared with.
    pub against: &'a str,
    /// The rate, and the cost.
    pub found: [Option<&'a LevelEffect>; 2],
}

/// The levels in the order of the factors.
pub(crate) fn lines<'a>(view: &'a FactorView, analysis: &Analysis) -> Vec<Line<'a>> {
    let questions = [Question::Rate, analysis.cost()];
    let mut lines: Vec<Line> = Vec::new();
    for found in &view.effects {
        let Some(at) = questions.iter().position(|q| *q == found.question) else { continue };
        let level = format!("{}={}", found.factor, found.level);
        let known = lines.iter().position(|line| line.level == level).unwrap_or_else(|| {
            lines.push(Line { level, against: &found.against, found: [None; 2] });
            lines.len() - 1
        });
        lines[known].found[at] = Some(found);
    }
    lines
}

/// A ratio, its interval and its word.
pub(crate) fn cells(found: Option<&LevelEffect>) -> [String; 3] {
    let range = |effect: &Effect| effect.interval.map(|i| interval(i.low, i.high));
    [
        ratio(found.map(|f| f.effect.ratio)),
        found.and_then(|f| range(&f.effect)).unwrap_or_else(|| NONE.into()),
        found.map_or(String::new(), |f| f.verdict.word().to_owned()),
    ]
}

/// How to read the table.
pub(crate) fn rule(view: &FactorView, analysis: &Analysis) -> String {
    let confidence = level(analysis.rules.confidence);
    format!(
        "Each level relative to the rest of its factor: block by block, the mean over all combinations of \
         the other factors in which both were measured. Intervals are at {confidence}, \
         individually; the verdicts hold at {confidence} for all {} of a question together (Holm's rule).",
        plural(view.effects.len() as u64 / questions(view).max(1), "level")
    )
}

fn questions(view: &FactorView) -> u64 {
    let rates = view.effects.iter().filter(|e| e.question == Question::Rate).count();
    if rates < view.effects.len() { 2 } else { 1 }
}

/// The factors that depend on each other, each in a sentence, at most so many; or that none
/// was found to.
pub(crate) fn interactions(view: &FactorView, analysis: &Analysis, most: usize) -> Vec<String> {
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
    let what = super::verdicts::subject(pair.question, work);
    let range = pair.effect.interval.map(|i| format!(" {}", interval(i.low, i.high)));
    let p = pair
        .test
        .map(|test| format!(", p {} among {}", probability(test.different.adjusted), test.family));
    format!(
        "{first} with {second}: {what} is {}{} of the product of their individual effects{}",
        ratio(pair.effect.ratio),
        range.unwrap_or_default(),
        p.unwrap_or_default()
    )
}

/// Puts the view on a page of plain text: the chart, with bars of at most this many columns,
/// then the table of effects, if speed was measured.
pub(crate) fn print(page: &mut Page, study: &Study, analysis: &Analysis, bar: usize) {
    let Some(view) = &analysis.factors else { return };
    let panels = Panels::of(study, analysis);
    if panels.is_some() || !view.effects.is_empty() {
        page.heading(TITLE);
    }
    if let Some(panels) = panels {
        chart(page, &panels, analysis, bar);
    }
    if !view.effects.is_empty() {
        effects(page, view, analysis);
    }
}

/// A line for each cell, panel by panel: its rate as a bar, all on one scale. Where no speed
/// was measured, how its bytes went.
fn chart(page: &mut Page, panels: &Panels, analysis: &Analysis, bar: usize) {
    let work = analysis.work();
    let most = panels.rates(work).into_iter().fold(0.0, f64::max);
    let functional = analysis.functional.is_some();
    page.text("  ", &panels.caption(analysis));
    for panel in panels.each_panel() {
        page.gap();
        let head = panels.panels.zip(panel).map(|(f, level)| format!("{}={level}", f.name));
        let number = Column::number("", work.terms().rate_unit, 0);
        let mut columns = vec![
            Column::words(&panels.rows.name, 0, Some(14)),
            Column::words(&panels.bars.name, 0, Some(14)),
        ];
        columns.extend((!functional).then_some(number));
        columns.push(Column::words(&head.unwrap_or_default(), 0, None));
        let mut table = Table::new(columns);
        for row in &panels.rows.levels {
            for (at, level) in panels.bars.levels.iter().enumerate() {
                let figure = panels.figure(row, level, panel, analysis);
                let length = panels.rate(row, level, panel, work).map(|r| r / most * bar as f64);
                let drawn = "#".repeat(length.unwrap_or(0.0).round() as usize);
                let shown = if functional { vec![figure] } else { vec![figure, drawn] };
                let first = if at == 0 { row.as_str() } else { "" };
                let texts = [first.to_owned(), level.clone()].into_iter().chain(shown);
                table.row(texts.map(|text| (text, Tone::Plain)).collect());
            }
        }
        table.print(page, 2);
    }
    page.gap();
}

fn effects(page: &mut Page, view: &FactorView, analysis: &Analysis) {
    let cost = view.effects.iter().any(|effect| effect.question != Question::Rate);
    let rate = view.effects.iter().any(|effect| effect.question == Question::Rate);
    let mut columns = vec![Column::words("level", 0, Some(18)), Column::words("over", 3, Some(12))];
    let three = |title: &str, rank: u8| {
        [
            Column::number("", title, rank),
            Column::words("interval", 2 + rank, None),
            Column::words("verdict", rank, None),
        ]
    };
    columns.extend(rate.then(|| three(analysis.work().terms().rate, 0)).into_iter().flatten());
    columns.extend(cost.then(|| three("cost", 1)).into_iter().flatten());
    let mut table = Table::new(columns);
    for line in lines(view, analysis) {
        let mut row =
            vec![(line.level.clone(), Tone::Plain), (line.against.to_owned(), Tone::Faint)];
        for (found, shown) in line.found.into_iter().zip([rate, cost]) {
            let tone = match found.and_then(|f| f.verdict.better()) {
                Some(true) => Tone::Good,
                Some(false) => Tone::Bad,
                None => Tone::Plain,
            };
            let [ratio, range, word] = cells(found);
            let three = [(ratio, Tone::Plain), (range, Tone::Plain), (word, tone)];
            row.extend(shown.then_some(three).into_iter().flatten());
        }
        table.row(row);
    }
    table.print(page, 2);
    page.text("  ", &rule(view, analysis));
    page.gap();
    for line in interactions(view, analysis, SENTENCES) {
        page.text("  ", &line);
    }
}

/// The chart: one factor down the page, one as bars of each row, one as panels.
pub(crate) struct Panels<'a> {
    /// The factor whose levels are rows.
    pub rows: &'a Factor,
    /// The factor whose levels are the bars of a row.
    pub bars: &'a Factor,
    /// The factor that has a panel for each level, where three vary.
    pub panels: Option<&'a Factor>,
    /// The other factors, at the levels of the baseline.
    pub fixed: Vec<(&'a str, &'a str)>,
    cells: Vec<(&'a BTreeMap<String, String>, &'a Row)>,
}

impl<'a> Panels<'a> {
    /// The chart of a study: paths are rows, and placements panels, where they vary; of the
    /// others those with the largest effect on the rate. None where no cell was measured.
    pub(crate) fn of(study: &'a Study, analysis: &'a Analysis) -> Option<Panels<'a>> {
        let view = analysis.factors.as_ref()?;
        let rows = view
            .factors
            .iter()
            .find(|factor| factor.name == "path")
            .or_else(|| view.factors.iter().max_by_key(|factor| factor.levels.len()))?;
        let size = |factor: &Factor| {
            let of = |e: &&LevelEffect| e.factor == factor.name && e.question == Question::Rate;
            view.effects.iter().filter(of).map(|e| e.effect.log_mean.abs()).fold(0.0, f64::max)
        };
        let mut others: Vec<&Factor> =
            view.factors.iter().filter(|f| f.name != rows.name).collect();
        others.sort_by(|a, b| size(b).total_cmp(&size(a)));
        // Placements are panels where they vary: one CPU and two are different machines.
        let placement = others.iter().position(|factor| factor.name == "cores");
        let panels = placement.filter(|_| others.len() > 1).map(|at| others.remove(at));
        let mut others = others.into_iter();
        let bars = others.next()?;
        let panels = panels.or_else(|| others.next());
        let cells: Vec<_> = study
            .header
            .cells
            .iter()
            .filter_map(|cell| {
                let row = analysis.rows.iter().find(|row| row.cell == cell.id)?;
                (!cell.null && row.status.measured > 0).then_some((&cell.levels, row))
            })
            .collect();
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
        let mut wanted = self.fixed.clone();
        wanted.extend([(self.rows.name.as_str(), row), (self.bars.name.as_str(), bar)]);
        wanted.extend(self.panels.map(|factor| factor.name.as_str()).zip(panel));
        let fits = |levels: &BTreeMap<String, String>| {
            wanted.iter().all(|(k, v)| levels.get(*k).is_some_and(|level| level == v))
        };
        self.cells.iter().find(|(levels, _)| fits(levels)).map(|(_, row)| *row)
    }

    /// The mean rate of a cell that was measured.
    pub(crate) fn rate(
        &self,
        row: &str,
        bar: &str,
        panel: Option<&str>,
        work: Work,
    ) -> Option<f64> {
        let cell = self.row(row, bar, panel).filter(|cell| cell.work == work)?;
        cell.rate.map(|rate| rate.mean)
    }

    pub(crate) fn rates(&self, work: Work) -> Vec<f64> {
        let each = self.each_panel().into_iter().flat_map(|panel| {
            self.rows.levels.iter().flat_map(move |row| {
                self.bars.levels.iter().filter_map(move |bar| self.rate(row, bar, panel, work))
            })
        });
        each.collect()
    }

    /// What is shown of a cell: its rate, or, where no speed was measured, how its bytes went.
    pub(crate) fn figure(
        &self,
        row: &str,
        bar: &str,
        panel: Option<&str>,
        analysis: &Analysis,
    ) -> String {
        match (self.row(row, bar, panel), &analysis.functional) {
            (Some(row), Some(_)) => labels(&row.labels),
            (Some(row), None) if row.work == analysis.work() => {
                rate(row.work, row.rate.map(|rate| rate.mean))
            }
            _ => NONE.into(),
        }
    }

    /// What that is, and which levels all of it has.
    pub(crate) fn caption(&self, analysis: &Analysis) -> String {
        let terms = analysis.work().terms();
        let what = match &analysis.functional {
            Some(_) => "How the bytes were moved; no speed was measured".to_owned(),
            None => format!("{}, {}, mean of all trials", terms.rate_heading, terms.rate_unit),
        };
        let fixed = self.fixed.iter().map(|(factor, level)| format!("{factor}={level}"));
        let fixed: Vec<String> = fixed.collect();
        if fixed.is_empty() { format!("{what}.") } else { format!("{what}; {}.", fixed.join(", ")) }
    }

    /// The levels that have a panel; one without a name where there are none.
    pub(crate) fn each_panel(&self) -> Vec<Option<&'a str>> {
        match self.panels {
            Some(factor) => factor.levels.iter().map(|level| Some(level.as_str())).collect(),
            None => vec![None],
        }
    }
}
