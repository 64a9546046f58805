//! How even the flows were: every trial's throughput over its window.

use super::{View, name};
use crate::record::{Role, Scope, Trial};
use crate::report::figures::{gbit, number, plural};
use crate::stats::{Pace, Row};
use maud::{Markup, html};

/// Lines drawn in one panel; more would be a blot.
const LINES: usize = 12;

/// Points of a line; longer windows are averaged down to it.
const POINTS: usize = 150;

/// Coordinates of a panel.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;

/// One small panel for each cell, all on the same scale.
pub fn figure(view: &View) -> Option<Markup> {
    let paced: Vec<(&Row, &Pace)> =
        view.rows.iter().filter_map(|row| Some((*row, row.pace.as_ref()?))).collect();
    let (_, first) = paced.first()?;
    let top = paced.iter().map(|(_, p)| p.max).fold(0.0, f64::max);
    let window = view.study.header.schedule.window;
    Some(html! {
        figure {
            figcaption {
                b { "Figure 5. " }
                "Throughput at the receiver in steps of " (number(first.step, 2)) " s over the window of "
                (number(window, 1)) " s, one line per trial, all panels from 0 to " (gbit(top))
                " Gbit/s (the dotted line is half of that). A stall is a step below 5 % of its trial\u{2019}s mean."
            }
            div class="panels" {
                @for (row, pace) in &paced { (panel(view, row, pace, top)) }
            }
        }
    })
}

fn panel(view: &View, row: &Row, pace: &Pace, top: f64) -> Markup {
    let lines: Vec<String> =
        view.trials(row).iter().filter_map(|t| steps(t)).map(|s| points(&s, top)).collect();
    html! {
        div class="panel" {
            h3 { (name(&row.cell)) }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
                line class="grid" x1="0" x2=(WIDTH) y1=(HEIGHT / 2.0) y2=(HEIGHT / 2.0) stroke-dasharray="2 3" {}
                @for line in lines.iter().take(LINES) { polyline class="course" points=(line) {} }
            }
            p {
                "slowest step " (gbit(pace.min)) ", fastest " (gbit(pace.max)) " Gbit/s; "
                @if pace.stalled_trials == 0 { "no stall" } @else {
                    "stalled " (number(pace.stalled, 1)) " s in " (pace.stalled_trials) " of "
                    (super::throughput::trials_of(row))
                }
                @if lines.len() > LINES { "; " (LINES) " of " (plural(lines.len() as u64, "line")) " drawn" }
            }
        }
    }
}

/// The receiver's throughput step by step, bit/s, all flows together.
fn steps(trial: &Trial) -> Option<Vec<f64>> {
    trial.throughput()?;
    let flows: Vec<&Vec<f64>> = trial
        .series
        .iter()
        .filter(|s| s.metric == "throughput" && matches!(s.scope, Scope::Flow(Role::Receiver, _)))
        .map(|s| &s.values)
        .collect();
    let length = flows.iter().map(|values| values.len()).min()?;
    let sum = |i: usize| flows.iter().map(|values| values[i]).sum::<f64>() * 8.0;
    (length > 1).then(|| (0..length).map(sum).collect())
}

/// A line through the steps, as coordinates of a panel.
fn points(steps: &[f64], top: f64) -> String {
    let count = steps.len().min(POINTS);
    let mut text = String::new();
    for i in 0..count {
        let part = &steps[i * steps.len() / count..(i + 1) * steps.len() / count];
        let mean = part.iter().map(|s| s / part.len() as f64).sum::<f64>();
        let height = if top > 0.0 && mean.is_finite() { (mean / top).clamp(0.0, 1.0) } else { 0.0 };
        let x = i as f64 * WIDTH / (count - 1).max(1) as f64;
        if i > 0 {
            text.push(' ');
        }
        text.push_str(&format!("{x:.0},{:.1}", HEIGHT * (1.0 - height)));
    }
    text
}
