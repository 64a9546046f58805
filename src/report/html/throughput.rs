//! The first figure: every trial as a dot, and the interval that decides.

use super::axis::Axis;
use super::{View, changed, name, tone, verdict};
use crate::record::{Trial, TrialStatus};
use crate::report::figures::{gbit, number, percent, plural};
use crate::stats::{Effect, Question, Row};
use maud::{Markup, html};

/// Height of a row in pixels, and where its dots and its interval stand.
const HEIGHT: u32 = 38;
const DOTS: (f64, f64) = (7.0, 20.0);
const SPAN: u32 = 30;

/// A row of the figure: what it is of, what it is compared with.
struct Line<'a> {
    row: &'a Row,
    effect: Option<&'a Effect>,
    /// Mean of what it is compared with, bit/s: where its interval is drawn from.
    base: Option<f64>,
    /// Whether it is the second copy of a cell.
    null: bool,
}

/// Throughput of every cell.
pub fn figure(view: &View) -> Option<Markup> {
    let analysis = view.analysis;
    let mean = |row: &Row| row.throughput.map(|t| t.mean);
    let base = view.baseline().and_then(mean);
    let mut lines: Vec<Line> = Vec::new();
    for row in &view.rows {
        let effect = view.effect(row, Question::Throughput);
        lines.push(Line { row, effect, base, null: false });
        // The second copy of a cell stands below the first.
        let null = analysis.null.as_ref().filter(|n| n.status.measured > 0);
        if let Some(null) = null.filter(|_| analysis.noise_of.as_ref() == Some(&row.cell)) {
            let effect = analysis.noise.as_ref().map(|n| &n.effect);
            lines.push(Line { row: null, effect, base: mean(row), null: true });
        }
    }
    let rates = lines.iter().flat_map(|line| view.trials(line.row)).filter_map(|t| rate(t));
    let axis = Axis::over(rates.map(|bits| bits / 1e9));
    (!lines.is_empty()).then(|| {
        html! {
            figure {
                figcaption {
                    b { "Figure 1. " }
                    "Throughput at the receiver, Gbit/s. Each dot is one trial, blocks from top to \
                     bottom; an open circle is a trial that does not count. Below them the mean as \
                     a tick; the bar is the " (percent(analysis.rules.confidence))
                    " interval of the ratio to " (analysis.baseline)
                    ", drawn from the mean of " (analysis.baseline) " (dashed). "
                    @if axis.low() > 0.0 { "The axis does not begin at zero." }
                }
                table class="plot" {
                    thead { tr {
                        th { "cell" } th class="g" { (axis.head()) }
                        th class="n" { "mean" } th class="n" { "sd" } th class="n" { "change" } th { "verdict" }
                    } }
                    tbody { @for line in &lines { (drawn(view, &axis, base, line)) } }
                }
            }
        }
    })
}

fn drawn(view: &View, axis: &Axis, base: Option<f64>, line: &Line) -> Markup {
    let Line { row, effect, null, .. } = *line;
    let mean = row.throughput.map(|t| t.mean);
    let interval = effect.and_then(|e| e.interval).zip(line.base);
    html! {
        tr class=(if null { "off" } else { tone(row, Question::Throughput) }) {
            th scope="row" { (name(&row.cell)) }
            td class="g" {
                svg height=(HEIGHT) aria-hidden="true" {
                    (axis.grid(HEIGHT))
                    @if let Some(base) = base {
                        line class="baseline" x1=(axis.at(base / 1e9)) x2=(axis.at(base / 1e9)) y1="0" y2=(HEIGHT) {}
                    }
                    @if let Some((i, base)) = interval {
                        line class="span" x1=(axis.at(base * i.low / 1e9)) x2=(axis.at(base * i.high / 1e9)) y1=(SPAN) y2=(SPAN) {}
                    }
                    @if let Some(mean) = mean {
                        line class="mean" x1=(axis.at(mean / 1e9)) x2=(axis.at(mean / 1e9)) y1=(SPAN - 5) y2=(SPAN + 5) {}
                    }
                    (dots(view, axis, row))
                }
            }
            td class="n" data-h="mean" { (gbit(mean)) }
            td class="n" data-h="sd" { (percent(row.throughput.and_then(|t| t.relative_stddev()))) }
            td class="n" data-h="change" { @if !row.baseline { (changed(effect)) } }
            td { @if null { "A against A" } @else { (verdict(row, Question::Throughput)) } }
        }
    }
}

fn dots(view: &View, axis: &Axis, row: &Row) -> Markup {
    let trials = view.trials(row);
    let last = trials.iter().map(|t| t.block).max().unwrap_or(0);
    let height = |block: u32| {
        let part = if last == 0 { 0.5 } else { f64::from(block) / f64::from(last) };
        number(DOTS.0 + part * (DOTS.1 - DOTS.0), 1)
    };
    html! {
        @for (trial, bits) in trials.iter().filter_map(|t| Some((t, rate(t)?))) {
            @let counts = trial.status == TrialStatus::Measured;
            circle class=(if counts { "dot" } else { "out" }) cx=(axis.at(bits / 1e9)) cy=(height(trial.block)) r="3.4" {
                title {
                    (gbit(bits)) " Gbit/s, block " (u64::from(trial.block) + 1) ", " (nth(trial))
                    @if let TrialStatus::Rejected { events } = &trial.status {
                        ", rejected: " (events.join("; "))
                    }
                }
            }
        }
    }
}

fn nth(trial: &Trial) -> String {
    format!("trial {} of the study", u64::from(trial.order) + 1)
}

/// Throughput of a trial that ran, whether it counts or not, bit/s.
fn rate(trial: &Trial) -> Option<f64> {
    let ran = matches!(trial.status, TrialStatus::Measured | TrialStatus::Rejected { .. });
    let rate = trial.window_bytes as f64 * 8.0 / trial.window;
    (ran && trial.window > 0.0 && rate.is_finite()).then_some(rate)
}

/// How many trials a row has, in words.
pub fn trials_of(row: &Row) -> String {
    plural(row.status.measured.into(), "trial")
}
