//! The first figure: every trial as a dot, and the interval that decides.

use super::axis::Axis;
use super::{View, signed, tone, word};
use crate::record::{Trial, TrialStatus};
use crate::report::figures::{gbit, number, percent, plural};
use crate::stats::{Effect, Row};
use maud::{Markup, html};

/// Height of a row in pixels, and where its dots and its interval stand.
const HEIGHT: u32 = 38;
const DOTS: (f64, f64) = (7.0, 20.0);
const SPAN: u32 = 30;

/// Throughput of every cell.
pub fn figure(view: &View) -> Option<Markup> {
    let base = view.baseline().and_then(|b| b.throughput).map(|t| t.mean);
    let mut rows: Vec<(&Row, Option<&Effect>)> = Vec::new();
    for row in &view.rows {
        rows.push((row, row.comparison.as_ref().and_then(|c| c.effect.as_ref())));
        if let Some(null) =
            view.analysis.null.as_ref().filter(|n| row.baseline && n.status.measured > 0)
        {
            rows.push((null, view.analysis.noise.as_ref().map(|n| &n.effect)));
        }
    }
    let trials = || rows.iter().flat_map(|(row, _)| view.trials(row));
    let axis = Axis::over(trials().filter_map(|t| rate(t)).map(|bits| bits / 1e9));
    (!rows.is_empty()).then(|| {
        html! {
            figure {
                figcaption {
                    b { "Figure 1. " }
                    "Throughput at the receiver, Gbit/s. Each dot is one trial, blocks from top to \
                     bottom; an open circle is a trial that does not count. Below them the mean as \
                     a tick; the bar is the " (percent(view.analysis.rules.confidence))
                    " interval of the ratio to " (view.analysis.baseline)
                    ", drawn from the mean of " (view.analysis.baseline) " (dashed). "
                    @if axis.low() > 0.0 { "The axis does not begin at zero." }
                }
                table class="plot" {
                    thead { tr {
                        th { "cell" } th class="g" { (axis.head()) }
                        th class="n" { "mean" } th class="n" { "sd" } th class="n" { "change" } th { "verdict" }
                    } }
                    tbody {
                        @for (row, effect) in &rows { (line(view, &axis, base, row, *effect)) }
                    }
                }
            }
        }
    })
}

fn line(view: &View, axis: &Axis, base: Option<f64>, row: &Row, effect: Option<&Effect>) -> Markup {
    let null = view.analysis.null.as_ref().is_some_and(|n| n.cell == row.cell);
    let mean = row.throughput.map(|t| t.mean);
    let interval = effect.and_then(|e| e.interval).zip(base);
    html! {
        tr class=(if null { "off" } else { tone(row) }) {
            th scope="row" { (row.cell) }
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
            td class="n" data-h="change" {
                @if !row.baseline {
                    (signed(effect.map(|e| e.ratio)))
                    @if let Some(i) = effect.and_then(|e| e.interval) {
                        br; " " span class="off" { (signed(i.low)) " \u{2026} " (signed(i.high)) }
                    }
                }
            }
            td { @if null { "A against A" } @else { span class="word" { (word(row)) } } }
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
