//! Evenness of the flows: every trial's throughput over its window.

use super::plot::{self, Mark};
use super::scale::Scale;
use super::{View, name};
use crate::figures::{number, plural, rate};
use bytepath_record::{Role, Scope, Trial, Work};
use bytepath_stats::{Pace, Row};
use maud::{Markup, html};

/// Lines drawn in one panel; more would be a blot.
const LINES: usize = 12;

/// Points of a line; longer windows are averaged down to it.
const POINTS: usize = 150;

/// One small panel for each cell, all on the same scale.
pub(crate) fn figure(view: &View) -> Option<Markup> {
    let paced: Vec<(&Row, &Pace)> =
        view.rows.iter().filter_map(|row| Some((*row, row.pace.as_ref()?))).collect();
    let (_, first) = paced.first()?;
    let window = view.study.header.schedule.window;
    let work = view.analysis.work();
    let terms = work.terms();
    let top = paced.iter().map(|(_, p)| p.max * terms.rate_scale).fold(0.0, f64::max);
    let axes = (Scale::over([0.0, window]), Scale::over([0.0, top]));
    Some(html! {
        figure {
            figcaption {
                (terms.rate_heading) " at the " (work.actor(Role::Receiver)) " in steps of " (number(first.step, 2)) " s over the window of "
                (number(window, 1)) " s, one line per trial: " (terms.rate_unit) " against seconds since the window \
                 began, all panels on the same axes. A stall is a step below 5 % of its trial\u{2019}s mean."
            }
            div class="panels" {
                @for (row, pace) in &paced { (panel(view, row, pace, &axes)) }
            }
        }
    })
}

fn panel(view: &View, row: &Row, pace: &Pace, (across, up): &(Scale, Scale)) -> Markup {
    let courses = view.trials(row).iter().filter_map(|trial| Some((*trial, steps(trial)?)));
    let courses: Vec<(&Trial, Vec<f64>)> = courses.collect();
    let line = |(trial, steps): &(&Trial, Vec<f64>)| {
        let course = Mark::course("course", points(steps, pace.step, row.work));
        course.says(words(trial, steps))
    };
    let lines = courses.iter().take(LINES).map(line).collect();
    html! {
        div class="panel" {
            h3 class="cell" { (name(&row.cell)) }
            (plot::SMALL.drawn(across, up, lines))
            p {
                "slowest step " (rate(row.work, pace.min)) ", fastest " (rate(row.work, pace.max))
                " " (row.work.terms().rate_unit) "; "
                @if pace.stalled_trials == 0 { "no stall" } @else {
                    "stalled " (number(pace.stalled, 1)) " s in " (pace.stalled_trials) " of "
                    (super::rate::trials_of(row))
                }
                @if courses.len() > LINES { "; " (LINES) " of " (plural(courses.len() as u64, "line")) " drawn" }
            }
        }
    }
}

/// What a line says of its trial.
fn words(trial: &Trial, steps: &[f64]) -> String {
    let least = steps.iter().copied().fold(f64::INFINITY, f64::min);
    let most = steps.iter().copied().fold(0.0, f64::max);
    let [mean, least, most] =
        [trial.rate(), Some(least), Some(most)].map(|each| rate(trial.work, each));
    let (unit, order) = (trial.work.terms().rate_unit, u64::from(trial.order) + 1);
    format!("trial {order}: mean {mean} {unit}, slowest step {least}, fastest {most}")
}

/// The receiver's work per second step by step, all flows together.
fn steps(trial: &Trial) -> Option<Vec<f64>> {
    trial.rate()?;
    let flows: Vec<&Vec<f64>> = trial
        .series
        .iter()
        .filter(|s| s.metric == "throughput" && matches!(s.scope, Scope::Flow(Role::Receiver, _)))
        .map(|s| &s.values)
        .collect();
    let length = flows.iter().map(|values| values.len()).min()?;
    let sum = |i: usize| flows.iter().map(|values| values[i]).sum::<f64>();
    (length > 1).then(|| (0..length).map(sum).collect())
}

/// A line through the steps of this many seconds: second, shown rate. Each point is in
/// the middle of what it is the mean of.
fn points(steps: &[f64], step: f64, work: Work) -> Vec<(f64, f64)> {
    let part = steps.len().div_ceil(POINTS).max(1);
    let point = |(i, part_of): (usize, &[f64])| {
        let mean = part_of.iter().map(|step| step / part_of.len() as f64).sum::<f64>();
        (
            (i * part) as f64 * step + part_of.len() as f64 * step / 2.0,
            mean * work.terms().rate_scale,
        )
    };
    steps.chunks(part).enumerate().map(point).collect()
}
