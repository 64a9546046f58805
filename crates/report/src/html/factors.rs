//! The effect of each factor: the bars of two or three of them, and the effects of all.

use super::plot::{self, Mark};
use super::scale::Scale;
use super::{View, key};
use crate::factors::{Line, Panels, cells, interactions, lines, rule};
use crate::figures::rate;
use bytepath_record::Work;
use bytepath_stats::Analysis;
use maud::{Markup, html};

/// Colours of the bars of a row, by the classes that have them.
const COLOURS: [&str; 5] = ["system", "user", "free", "copied", "discarded"];

/// Pixels of a bar with the gap below it, and of what is above and below all of a row.
const BAR: f64 = 11.0;
const GAP: f64 = 2.0;
const MARGIN: f64 = 4.0;

/// The section; none where fewer than two factors vary.
pub(crate) fn section(view: &View) -> Option<Markup> {
    let analysis = view.analysis;
    let factors = analysis.factors.as_ref()?;
    let panels = Panels::of(view.study, analysis);
    if panels.is_none() && factors.effects.is_empty() {
        return None;
    }
    Some(html! {
        @if let Some(panels) = panels { (chart(&panels, analysis)) }
        @if !factors.effects.is_empty() {
            (effects(&lines(factors, analysis)))
            p class="note" { (rule(factors, analysis)) }
            ul { @for line in interactions(factors, analysis, usize::MAX) { li { (line) } } }
        }
    })
}

/// The rate of each row's cells as bars side by side, panel by panel, all on one scale. Where
/// no speed was measured there are no bars, and the table says how the bytes went.
fn chart(panels: &Panels, analysis: &Analysis) -> Markup {
    let work = analysis.work();
    let terms = work.terms();
    let all = panels.rates(work).into_iter().map(|rate| rate * terms.rate_scale);
    let scale = Scale::over(all.chain([0.0]));
    let drawn = analysis.functional.is_none();
    let named = |level: &String| format!("{}={level}", panels.bars.name);
    html! {
        figure {
            figcaption {
                (panels.caption(analysis))
                @if drawn {
                    (key(COLOURS.into_iter().cycle().zip(panels.bars.levels.iter().map(named))))
                }
            }
            @for panel in panels.each_panel() {
                @if let Some((factor, level)) = panels.panels.zip(panel) {
                    h3 { (factor.name) "=" (level) }
                }
                table class="plot" {
                    thead { tr {
                        th { (panels.rows.name) } @if drawn { th class="g" { (plot::head(&scale)) } }
                        @for bar in &panels.bars.levels { th class="n" { @if !drawn { (panels.bars.name) "=" } (bar) } }
                    } }
                    tbody {
                        @for row in &panels.rows.levels {
                            @let values: Vec<Option<f64>> = panels.bars.levels.iter().map(|bar| panels.rate(row, bar, panel, work)).collect();
                            tr {
                                th scope="row" { (row) }
                                @if drawn { td class="g" { (plot::row(&scale, height(values.len()), bars(&values, work, panels.bars.levels.iter().map(named)))) } }
                                @for bar in &panels.bars.levels {
                                    td class="n" data-h=(bar) { (panels.figure(row, bar, panel, analysis)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn height(bars: usize) -> f64 {
    2.0 * MARGIN + bars as f64 * BAR - GAP
}

/// A bar for each value that there is.
fn bars(values: &[Option<f64>], work: Work, names: impl Iterator<Item = String>) -> Vec<Mark> {
    let terms = work.terms();
    let all = values.iter().zip(names).zip(COLOURS.into_iter().cycle()).enumerate();
    let bar = |(at, ((value, name), colour)): (usize, ((&Option<f64>, String), &'static str))| {
        let top = MARGIN + at as f64 * BAR;
        let bar = Mark::bar(colour, (0.0, top), ((*value)? * terms.rate_scale, top + BAR - GAP));
        Some(bar.says(format!("{name}: {} {}", rate(work, *value), terms.rate_unit)))
    };
    all.filter_map(bar).collect()
}

/// The levels with what was found of them.
fn effects(lines: &[Line]) -> Markup {
    let asked = |at: usize| lines.iter().any(|line| line.found[at].is_some());
    let titles = [(0, "rate"), (1, "cost")];
    let shown: Vec<(usize, &str)> = titles.into_iter().filter(|(at, _)| asked(*at)).collect();
    html! {
        div class="scroll" {
            table class="sortable" {
                thead { tr {
                    th { "level" } th { "over" }
                    @for (_, title) in &shown {
                        th class="n" { (title) } th class="n" { "interval" } th { "verdict" }
                    }
                } }
                tbody {
                    @for line in lines {
                        tr {
                            th scope="row" { (line.level) } td { (line.against) }
                            @for (at, _) in &shown {
                                @let found = line.found[*at];
                                @let [ratio, interval, word] = cells(found);
                                td class="n" data-v=(found.map_or(0.0, |f| f.effect.ratio)) { (ratio) }
                                td class="n" { (interval) }
                                td { (word) }
                            }
                        }
                    }
                }
            }
        }
    }
}
