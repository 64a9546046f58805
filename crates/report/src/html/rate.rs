//! The first figure: every trial as a dot, and the interval that decides.

use super::plot::{self, Mark};
use super::scale::Scale;
use super::{View, cell, changed, tone, verdict};
use crate::figures::{percent, plural, rate as rate_of};
use bytepath_record::{Trial, TrialStatus, Work};
use bytepath_stats::{Effect, Question, Row};
use maud::{Markup, html};

/// Height of a row in pixels, and where its dots and its interval are.
const HEIGHT: f64 = 38.0;
const DOTS: (f64, f64) = (7.0, 20.0);
const SPAN: f64 = 30.0;

/// A row of the figure: what it is of, what it is compared with.
struct Line<'a> {
    row: &'a Row,
    effect: Option<&'a Effect>,
    /// Mean of what it is compared with, work per second: where its interval is drawn
    /// from.
    base: Option<f64>,
    /// Whether it is the second copy of a cell.
    null: bool,
}

/// The rate of every cell; a figure for each work.
pub(crate) fn figure(view: &View) -> Option<Markup> {
    let works = view.by_work();
    let figures = works.iter().map(|(work, rows)| of_work(view, *work, rows));
    (!works.is_empty()).then(|| html! { @for figure in figures { (figure) } })
}

fn of_work(view: &View, work: Work, rows: &[&Row]) -> Markup {
    let analysis = view.analysis;
    let mean = |row: &Row| row.rate.map(|t| t.mean);
    let base = view.baseline().filter(|row| row.work == work).and_then(mean);
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let effect = view.effect(row, Question::Rate);
        lines.push(Line { row, effect, base, null: false });
        // The second copy of a cell is below the first.
        let null = analysis.null.as_ref().filter(|n| n.status.measured > 0);
        if let Some(null) = null.filter(|_| analysis.noise_of.as_ref() == Some(&row.cell)) {
            let effect = analysis.noise(Question::Rate).map(|n| &n.effect);
            lines.push(Line { row: null, effect, base: mean(row), null: true });
        }
    }
    let terms = work.terms();
    let scale = scale(view, work, &lines);
    let mut ends = lines.iter().filter_map(interval).flatten();
    let cut = ends.any(|end| !scale.holds(end * terms.rate_scale));
    html! {
        figure {
            figcaption {
                (terms.rate_heading) " at the " (work.actor(work.counted_by())) ", " (terms.rate_unit)
                ". Each dot is one trial, blocks from top to \
                 bottom; an open circle is a trial that does not count. Below them the mean as \
                 a tick; the bar is the " (percent(analysis.rules.confidence))
                " interval of the ratio to " (analysis.baseline)
                ", drawn from the mean of " (analysis.baseline) " (dashed). "
                @if scale.low() > 0.0 { "The axis does not start at zero. " }
                @if cut { "An interval that reaches an end of the axis extends beyond it." }
            }
            table class="plot" {
                thead { tr {
                    th { "cell" } th class="g" { (plot::head(&scale)) }
                    th class="n" { "mean" } th class="n" { "sd" } th class="n" { "change" } th { "verdict" }
                    th class="n" { "trials" }
                } }
                tbody { @for line in &lines { (drawn(view, &scale, base, line)) } }
            }
        }
    }
}

/// An axis that holds every trial, and every interval that is not much wider than
/// all of the trials: an endless one goes to the end of the axis.
fn scale(view: &View, work: Work, lines: &[Line]) -> Scale {
    let shown = work.terms().rate_scale;
    let trials = lines.iter().flat_map(|line| view.trials(line.row)).filter_map(|t| rate(t));
    let trials: Vec<f64> = trials.map(|rate| rate * shown).collect();
    let least = trials.iter().copied().fold(f64::INFINITY, f64::min);
    let most = trials.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let wide = most - least;
    let ends = lines.iter().filter_map(interval).flatten();
    let ends = ends.map(|end| (end * shown).max(least - wide).min(most + wide).max(0.0));
    Scale::over(ends.chain(trials.iter().copied()))
}

/// The interval of a row's mean: that of the ratio, from the mean compared with.
fn interval(line: &Line) -> Option<[f64; 2]> {
    let (interval, base) = line.effect?.interval.zip(line.base)?;
    Some([base * interval.low, base * interval.high])
}

fn drawn(view: &View, scale: &Scale, base: Option<f64>, line: &Line) -> Markup {
    let Line { row, effect, null, .. } = *line;
    html! {
        tr class=(if null { "off" } else { tone(row, Question::Rate) }) {
            (cell(&row.cell))
            td class="g" { (plot::row(scale, HEIGHT, marks(view, base, line))) }
            td class="n" data-h="mean" { (rate_of(row.work, row.rate.map(|t| t.mean))) }
            td class="n" data-h="sd" { (percent(row.rate.and_then(|t| t.relative_stddev()))) }
            td class="n" data-h="change" { @if !row.baseline { (changed(effect)) } }
            td { @if null { "A against A" } @else { (verdict(row, Question::Rate)) } }
            td class="n" data-h="trials" {
                @if let Some(anchor) = view.anchor(&row.cell, None) {
                    a href={ "#" (anchor) } aria-label={ "Trials of " (row.cell) } {
                        (view.trials(row).len())
                    }
                }
            }
        }
    }
}

/// What is drawn of a row: the mean it is compared with, the interval, its own
/// mean, and the trials above them.
fn marks(view: &View, base: Option<f64>, line: &Line) -> Vec<Mark> {
    let shown = line.row.work.terms().rate_scale;
    let upright = |class, rate: f64, top, bottom| {
        Mark::line(class, (rate * shown, top), (rate * shown, bottom))
    };
    let mut marks = Vec::new();
    let (work, unit) = (line.row.work, line.row.work.terms().rate_unit);
    marks.extend(base.map(|rate| upright("baseline", rate, 0.0, HEIGHT)));
    let span = |[from, to]: [f64; 2]| {
        let span = Mark::line("span", (from * shown, SPAN), (to * shown, SPAN));
        span.says(format!("interval: {} to {} {unit}", rate_of(work, from), rate_of(work, to)))
    };
    marks.extend(interval(line).map(span));
    let mean = |rate| {
        let mean = upright("mean", rate, SPAN - 5.0, SPAN + 5.0);
        mean.says(format!("mean: {} {unit}", rate_of(work, rate)))
    };
    marks.extend(line.row.rate.map(|t| mean(t.mean)));
    let trials = view.trials(line.row);
    let last = trials.iter().map(|t| t.block).max().unwrap_or(0);
    for (trial, rate) in trials.iter().filter_map(|t| Some((t, rate(t)?))) {
        let part = if last == 0 { 0.5 } else { f64::from(trial.block) / f64::from(last) };
        let class = if trial.status == TrialStatus::Measured { "dot" } else { "out" };
        let at = (rate * shown, DOTS.0 + part * (DOTS.1 - DOTS.0));
        marks.push(Mark::dot(class, at, 3.4).says(words(trial, rate)));
    }
    marks
}

/// What a dot says of its trial.
fn words(trial: &Trial, rate: f64) -> String {
    let (block, order) = (u64::from(trial.block) + 1, u64::from(trial.order) + 1);
    let (figure, unit) = (rate_of(trial.work, rate), trial.work.terms().rate_unit);
    let mut words = format!("{figure} {unit}, block {block}, trial {order} of the study");
    if let TrialStatus::Rejected { events } = &trial.status {
        words += ", rejected: ";
        words += &events.join("; ");
    }
    words
}

/// Rate of a trial that ran, whether it counts or not.
fn rate(trial: &Trial) -> Option<f64> {
    trial.ran_at().filter(|rate| rate.is_finite())
}

/// How many trials a row has, in words.
pub(crate) fn trials_of(row: &Row) -> String {
    plural(row.status.measured.into(), "trial")
}
