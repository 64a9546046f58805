//! The rate of every cell, its basis, and the verdict.

use super::ledger::not_copied;
use super::view::{View, class, mean};
use crate::document::{Cell, Column, Figure, Mark, Media, Scale, Section, Table};
use crate::wording::figures::{kpps, percent, rate as rate_of};
use crate::wording::text::{label, on_a_wire};
use bytepath_record::{Trial, TrialStatus, Work};
use bytepath_stats::{Effect, Metric, Row, Summary};

/// Height of a row in pixels, and the positions of its dots and its interval.
const HEIGHT: f64 = 38.0;
const DOTS: (f64, f64) = (7.0, 20.0);
const SPAN: f64 = 30.0;

/// A row of the figure.
struct Line<'a> {
    row: &'a Row,
    effect: Option<&'a Effect>,
    /// Mean rate of the cell it is compared with, work per second; its interval is drawn from
    /// there.
    base: Option<f64>,
    /// Whether it is the second copy of a cell.
    is_null: bool,
}

pub(crate) fn section(view: &View) -> Section {
    let mut section = Section::new("rate", "Result");
    for (work, rows) in view.by_work() {
        section.add(figure(view, work, &rows));
    }
    section.note_on(Media::TERMINAL, on_a_wire(view.analysis).unwrap_or_default())
}

fn figure(view: &View, work: Work, rows: &[&Row]) -> Figure {
    let analysis = view.analysis;
    let base = view.baseline().filter(|row| row.work == work).and_then(|row| mean(&row.rate));
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        lines.push(Line { row, effect: row.effect(Metric::Rate), base, is_null: false });
        // The second copy of a cell is listed below the first.
        let null = analysis.null.as_ref().filter(|n| n.status.measured > 0);
        if let Some(null) = null.filter(|_| analysis.noise_of.as_ref() == Some(&row.cell)) {
            let effect = analysis.noise(Metric::Rate).map(|n| &n.effect);
            lines.push(Line { row: null, effect, base: mean(&row.rate), is_null: true });
        }
    }
    let terms = work.terms();
    let scale = scale(view, work, &lines);
    let mut ends = lines.iter().filter_map(interval).flatten();
    let is_cut = ends.any(|end| !scale.holds(end * terms.rate_scale));
    let caption = format!(
        "{} at the {}, {}. Each dot is one trial, blocks from top to bottom; an open circle is a \
         trial that does not count. Below them the mean as a tick; the bar is the {} interval of \
         the ratio to {base}, drawn from the mean of {base} (dashed). {}{}",
        terms.rate_heading,
        work.actor(work.counted_by()),
        terms.rate_unit,
        percent(analysis.rules.confidence),
        if scale.low > 0.0 { "The axis does not start at zero. " } else { "" },
        if is_cut { "An interval that reaches an end of the axis extends beyond it." } else { "" },
        base = analysis.baseline,
    );
    let marks = lines.iter().map(|line| marks(view, base, line));
    Figure::rows(caption, table(view, work, &lines), (scale, HEIGHT), marks)
}

fn table(view: &View, work: Work, lines: &[Line]) -> Table {
    // Only rates of bytes have a copy ceiling.
    let ceiling = if work == Work::Bytes { Media::TERMINAL } else { Media::NONE };
    let by_packets = work == Work::Bytes && lines.iter().any(|line| has_own_stack(line.row));
    let packets = if by_packets { Media::ALL } else { Media::NONE };
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(16)),
        Column::number("", "n", 6).on(Media::PLAIN),
        Column::number("", work.terms().rate_unit, 0),
        Column::number("", "Kpps", 0).on(packets),
        Column::number("", "sd", 2),
        Column::number("", "ceiling", 3).on(ceiling),
        Column::number("not copied", "tx", 5).on(Media::TERMINAL),
        Column::number("not copied", "rx", 5).on(Media::TERMINAL),
        Column::ratio("", 0).interval(1),
        Column::words("verdict", 0, None),
        Column::words("label", 0, Some(18)).on(Media::TERMINAL),
        Column::number("", "trials", 0).on(Media::PAGE),
    ]);
    let packets = |row| has_own_stack(row).then(|| packets_a_second(view, row)).flatten();
    for Line { row, effect, is_null, .. } in lines {
        let mut comparison = Cell::comparison(row, row.comparison(Metric::Rate));
        if *is_null {
            comparison = [Cell::ratio(*effect), Cell::from("A against A")];
        }
        let [ratio, word] = comparison;
        // Marks a figure that was measured while others used its CPUs.
        let mark = if row.status.disturbed.is_empty() { "" } else { "~" };
        let cells = [
            Cell::path(row),
            row.status.measured.to_string().into(),
            Cell::from(format!("{mark}{}", rate_of(work, mean(&row.rate)))).strong_if(row.baseline),
            // The kernel counts data that is not yet segmented as one packet.
            kpps(packets(row)).into(),
            percent(row.rate.and_then(|t| t.relative_stddev())).into(),
            percent(row.ceiling_share).into(),
            not_copied(&row.sender).into(),
            not_copied(&row.receiver).into(),
            ratio,
            word,
            label(row).into(),
            Cell::from(view.trials(row).len().to_string()).link(view.anchor(&row.cell, None)),
        ];
        let line = table.row(cells);
        line.class = if *is_null { "off" } else { class(row, Metric::Rate) };
        line.media = if *is_null { Media::PAGE } else { Media::ALL };
    }
    table
}

/// Returns whether a user-space stack makes each packet, so that packets may be what limits it.
fn has_own_stack(row: &Row) -> bool {
    [&row.tx, &row.rx].iter().any(|path| path.starts_with("userspace"))
}

/// Returns the packets per second received by the receiver's device, averaged over a cell's
/// measured trials.
fn packets_a_second(view: &View, row: &Row) -> Option<f64> {
    let counted = view.trials(row).iter().filter(|trial| trial.rate().is_some());
    let rates = counted.filter_map(|trial| Some(trial.packets()? / trial.window));
    Summary::of(rates).map(|rate| rate.mean)
}

/// Returns an axis that includes every trial, and every interval that is not much wider than all of
/// the trials; longer ones are cut at the end of the axis.
fn scale(view: &View, work: Work, lines: &[Line]) -> Scale {
    let factor = work.terms().rate_scale;
    let trials = lines.iter().flat_map(|line| view.trials(line.row)).filter_map(|t| rate(t));
    let trials: Vec<f64> = trials.map(|rate| rate * factor).collect();
    let least = trials.iter().copied().fold(f64::INFINITY, f64::min);
    let most = trials.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let width = most - least;
    let ends = lines.iter().filter_map(interval).flatten();
    let ends = ends.map(|end| (end * factor).max(least - width).min(most + width).max(0.0));
    Scale::over(ends.chain(trials.iter().copied()))
}

/// Returns the interval of a row's mean: that of the ratio times the mean it is compared with.
fn interval(line: &Line) -> Option<[f64; 2]> {
    let (interval, base) = line.effect?.interval.zip(line.base)?;
    Some([base * interval.low, base * interval.high])
}

/// Marks for the mean that a row is compared with, the interval, its own mean, and the trials above
/// them.
fn marks(view: &View, base: Option<f64>, line: &Line) -> Vec<Mark> {
    let (work, terms) = (line.row.work, line.row.work.terms());
    let factor = terms.rate_scale;
    let unit = terms.rate_unit;
    let upright = |class, rate: f64, top, bottom| {
        Mark::line(class, (rate * factor, top), (rate * factor, bottom))
    };
    let mut marks = Vec::new();
    marks.extend(base.map(|rate| upright("baseline", rate, 0.0, HEIGHT)));
    marks.extend(interval(line).map(|[from, to]| {
        let span = Mark::line("span", (from * factor, SPAN), (to * factor, SPAN));
        span.tip(format!("interval: {} to {} {unit}", rate_of(work, from), rate_of(work, to)))
    }));
    marks.extend(mean(&line.row.rate).map(|rate| {
        let mean = upright("mean", rate, SPAN - 5.0, SPAN + 5.0);
        mean.tip(format!("mean: {} {unit}", rate_of(work, rate)))
    }));
    let trials = view.trials(line.row);
    let last = trials.iter().map(|t| t.block).max().unwrap_or(0);
    for (trial, rate) in trials.iter().filter_map(|t| Some((t, rate(t)?))) {
        let part = if last == 0 { 0.5 } else { f64::from(trial.block) / f64::from(last) };
        let class = if trial.status == TrialStatus::Measured { "dot" } else { "out" };
        let at = (rate * factor, DOTS.0 + part * (DOTS.1 - DOTS.0));
        marks.push(Mark::dot(class, at, 3.4).tip(tip(trial, rate)));
    }
    marks
}

fn tip(trial: &Trial, rate: f64) -> String {
    let (block, order) = (u64::from(trial.block) + 1, u64::from(trial.order) + 1);
    let (figure, unit) = (rate_of(trial.work, rate), trial.work.terms().rate_unit);
    let mut text = format!("{figure} {unit}, block {block}, trial {order} of the study");
    if let TrialStatus::Rejected { events } = &trial.status {
        text += &format!(", rejected: {}", events.join("; "));
    } else if !trial.disturbances.is_empty() {
        text += &format!(", disturbed: {}", trial.disturbances.join("; "));
    }
    text
}

/// Returns the rate of a trial, whether it counts or not.
fn rate(trial: &Trial) -> Option<f64> {
    trial.rate_even_if_rejected().filter(|rate| rate.is_finite())
}
