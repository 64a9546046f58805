//! The first figure: every trial as a dot, and the interval that decides.

use super::plot::{self, Mark};
use super::scale::Scale;
use super::{View, changed, name, tone, verdict};
use crate::record::{Trial, TrialStatus};
use crate::report::figures::{gbit, percent, plural};
use crate::stats::{Effect, Question, Row};
use maud::{Markup, html};

/// Height of a row in pixels, and where its dots and its interval stand.
const HEIGHT: f64 = 38.0;
const DOTS: (f64, f64) = (7.0, 20.0);
const SPAN: f64 = 30.0;

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
    let scale = scale(view, &lines);
    let cut = lines.iter().filter_map(interval).flatten().any(|end| !scale.holds(end / 1e9));
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
                    @if scale.low() > 0.0 { "The axis does not begin at zero. " }
                    @if cut { "An interval that reaches an end of the axis goes on beyond it." }
                }
                table class="plot" {
                    thead { tr {
                        th { "cell" } th class="g" { (plot::head(&scale)) }
                        th class="n" { "mean" } th class="n" { "sd" } th class="n" { "change" } th { "verdict" }
                    } }
                    tbody { @for line in &lines { (drawn(view, &scale, base, line)) } }
                }
            }
        }
    })
}

/// An axis that holds every trial, and every interval that is not much wider than
/// all of the trials: an endless one goes to the end of the axis.
fn scale(view: &View, lines: &[Line]) -> Scale {
    let trials = lines.iter().flat_map(|line| view.trials(line.row)).filter_map(|t| rate(t));
    let trials: Vec<f64> = trials.map(|bits| bits / 1e9).collect();
    let least = trials.iter().copied().fold(f64::INFINITY, f64::min);
    let most = trials.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let wide = most - least;
    let ends = lines.iter().filter_map(interval).flatten();
    let ends = ends.map(|end| (end / 1e9).max(least - wide).min(most + wide).max(0.0));
    Scale::over(ends.chain(trials.iter().copied()))
}

/// The interval of a row's mean: that of the ratio, from the mean compared with, bit/s.
fn interval(line: &Line) -> Option<[f64; 2]> {
    let (interval, base) = line.effect?.interval.zip(line.base)?;
    Some([base * interval.low, base * interval.high])
}

fn drawn(view: &View, scale: &Scale, base: Option<f64>, line: &Line) -> Markup {
    let Line { row, effect, null, .. } = *line;
    html! {
        tr class=(if null { "off" } else { tone(row, Question::Throughput) }) {
            th scope="row" { (name(&row.cell)) }
            td class="g" { (plot::row(scale, HEIGHT, marks(view, base, line))) }
            td class="n" data-h="mean" { (gbit(row.throughput.map(|t| t.mean))) }
            td class="n" data-h="sd" { (percent(row.throughput.and_then(|t| t.relative_stddev()))) }
            td class="n" data-h="change" { @if !row.baseline { (changed(effect)) } }
            td { @if null { "A against A" } @else { (verdict(row, Question::Throughput)) } }
        }
    }
}

/// What is drawn of a row: the mean it is compared with, the interval, its own
/// mean, and the trials above them.
fn marks(view: &View, base: Option<f64>, line: &Line) -> Vec<Mark> {
    let upright =
        |class, bits: f64, top, bottom| Mark::line(class, (bits / 1e9, top), (bits / 1e9, bottom));
    let mut marks = Vec::new();
    marks.extend(base.map(|bits| upright("baseline", bits, 0.0, HEIGHT)));
    marks.extend(
        interval(line).map(|[from, to]| Mark::line("span", (from / 1e9, SPAN), (to / 1e9, SPAN))),
    );
    let mean = line.row.throughput.map(|t| t.mean);
    marks.extend(mean.map(|bits| upright("mean", bits, SPAN - 5.0, SPAN + 5.0)));
    let trials = view.trials(line.row);
    let last = trials.iter().map(|t| t.block).max().unwrap_or(0);
    for (trial, bits) in trials.iter().filter_map(|t| Some((t, rate(t)?))) {
        let part = if last == 0 { 0.5 } else { f64::from(trial.block) / f64::from(last) };
        let class = if trial.status == TrialStatus::Measured { "dot" } else { "out" };
        let at = (bits / 1e9, DOTS.0 + part * (DOTS.1 - DOTS.0));
        marks.push(Mark::dot(class, at, 3.4).says(words(trial, bits)));
    }
    marks
}

/// What a dot says of its trial.
fn words(trial: &Trial, bits: f64) -> String {
    let (block, order) = (u64::from(trial.block) + 1, u64::from(trial.order) + 1);
    let mut words = format!("{} Gbit/s, block {block}, trial {order} of the study", gbit(bits));
    if let TrialStatus::Rejected { events } = &trial.status {
        words += ", rejected: ";
        words += &events.join("; ");
    }
    words
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
