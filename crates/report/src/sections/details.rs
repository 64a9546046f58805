//! Details: system calls, transfer sizes, idle states, functions, fragments, throughput over
//! time, and pairs of hosts.

use super::functions::rankings;
use super::view::View;
use crate::document::{Block, Column, Drawing, Figure, Mark, Media, Panel, Scale, Section, Table};
use crate::wording::figures::{
    NONE, amount, bytes, milliseconds, number, percent, plural, rate, ratio,
};
use bytepath_record::{CallRow, Role, SizeDistribution, Trial, Work, joined};
use bytepath_stats::{End, Pace, PooledCall, Row, receiver_steps};

/// Shows one table per thread in plain text, a single one in HTML, where it can be sorted.
pub(crate) fn calls(view: &View) -> Section {
    let title = "System calls of the engines, all measured trials together";
    let mut section = Section::new("calls", title).in_detail();
    let ends: Vec<(&Row, String, &[PooledCall])> =
        view.ends().flat_map(|(row, end)| threads(view, row, end)).collect();
    if ends.is_empty() {
        return section;
    }
    section.text(
        "  ",
        "stddev: of the mean of all calls, as perf trace -s prints it; trials' sd: of the trials' \
         means. A call that would block is an error.",
    );
    section.add_on(Media::PAGE, calls_of_all(&ends));
    for (row, thread, calls) in ends {
        let rows = || calls.iter().map(|call| &call.row);
        let count = rows().fold(0_u64, |sum, call| sum.saturating_add(call.calls));
        let count = plural(count, "call");
        let total = milliseconds(rows().map(|call| call.total).sum());
        let title = format!("{}, {thread}: {count} in {total} ms", row.cell);
        section.add_on(Media::PLAIN, Block::Heading(title, None));
        section.add_on(Media::PLAIN, calls_of_thread(calls));
    }
    section
}

/// Returns the threads of an end that made calls. The role's name replaces that of an only thread,
/// or of all together.
fn threads<'a>(
    view: &View,
    row: &'a Row,
    end: &'a End,
) -> Vec<(&'a Row, String, &'a [PooledCall])> {
    let of_each = end.calls_by_thread.iter();
    let of_each = of_each.map(|of| (row, of.thread.clone(), of.calls.as_slice()));
    let mut all: Vec<_> = of_each.filter(|(.., calls)| !calls.is_empty()).collect();
    if all.is_empty() && !end.calls.is_empty() {
        let cell = view.study.header.cells.iter().find(|cell| cell.id == row.cell);
        let threads = cell.map(|cell| cell.threads(end.role)).filter(|threads| *threads > 1);
        let of = threads.map(|threads| format!(" ({threads} threads)")).unwrap_or_default();
        all.push((row, format!("{}{of}", end.role), &end.calls));
    }
    all
}

/// Builds a table with the columns of `perf trace -s`, and two more.
fn calls_of_thread(calls: &[PooledCall]) -> Table {
    Table::of(
        calls.iter().map(|call| (call.calls_percent, &call.row)),
        [
            (Column::words("call", 0, Some(14)), |(_, c)| c.name.clone()),
            (Column::number("", "calls", 0), |(_, c)| c.calls.to_string()),
            (Column::number("", "errors", 0), |(_, c)| c.errors.to_string()),
            (Column::number("milliseconds", "total", 0), |(_, c)| milliseconds(c.total)),
            (Column::number("milliseconds", "min", 0), |(_, c)| milliseconds(c.min)),
            (Column::number("milliseconds", "avg", 0), |(_, c)| milliseconds(c.avg)),
            (Column::number("milliseconds", "max", 0), |(_, c)| milliseconds(c.max)),
            (Column::number("", "stddev", 0), |(of_calls, _)| per_cent(*of_calls)),
            (Column::number("trials", "sd", 0), |(_, c)| per_cent(c.stddev_percent)),
            (Column::number("", "bytes/call", 0), |(_, c)| number(bytes_per_call(c), 0)),
        ],
    )
}

fn calls_of_all(ends: &[(&Row, String, &[PooledCall])]) -> Table {
    let calls = ends.iter().flat_map(|(row, thread, calls)| {
        calls.iter().map(move |call| (*row, thread, call.calls_percent, &call.row))
    });
    Table::of(
        calls,
        [
            (Column::path(), |(row, ..)| row.cell.to_string()),
            (Column::words("thread", 0, None), |(_, thread, ..)| (*thread).clone()),
            (Column::words("call", 0, None), |(.., c)| c.name.clone()),
            (Column::number("", "calls", 0), |(.., c)| c.calls.to_string()),
            (Column::number("", "errors", 0), |(.., c)| c.errors.to_string()),
            (Column::number("seconds", "total", 0), |(.., c)| number(c.total, 3)),
            (Column::number("milliseconds", "min", 0), |(.., c)| milliseconds(c.min)),
            (Column::number("milliseconds", "avg", 0), |(.., c)| milliseconds(c.avg)),
            (Column::number("milliseconds", "max", 0), |(.., c)| milliseconds(c.max)),
            (Column::number("", "stddev", 0), |(_, _, of_calls, _)| per_cent(*of_calls)),
            (Column::number("trials", "sd", 0), |(.., c)| per_cent(c.stddev_percent)),
            (Column::number("", "bytes/call", 0), |(.., c)| {
                bytes_per_call(c).map_or(NONE.into(), bytes)
            }),
        ],
    )
}

fn per_cent(of: f64) -> String {
    format!("{}%", number(of, 2))
}

/// Returns the average bytes per successful call; `None` if no call succeeded.
fn bytes_per_call(call: &CallRow) -> Option<f64> {
    let done = call.calls.saturating_sub(call.errors);
    (done > 0).then(|| call.bytes as f64 / done as f64)
}

/// Height of a row of sizes, in pixels.
const HEIGHT: f64 = 22.0;

/// Shows bytes transferred per call, at both ends.
pub(crate) fn sizes(view: &View) -> Section {
    let section = Section::new("sizes", "Transfer sizes").in_detail();
    let ends = view.ends().filter(|(_, end)| end.sizes.count > 0).map(|(row, end)| {
        let trial = middle(view.trials(row)).and_then(|trial| trial.role(end.role));
        let percentile = |p: f64| {
            let percentiles = &trial?.sizes.percentiles;
            Some(percentiles.iter().find(|(percentile, _)| *percentile == p)?.1 as f64)
        };
        (row, end.role, &end.sizes, [10.0, 50.0, 90.0, 99.0].map(percentile))
    });
    let ends: Vec<(&Row, Role, &SizeDistribution, [Option<f64>; 4])> = ends.collect();
    if ends.is_empty() {
        return section;
    }
    let table = Table::of(
        &ends,
        [
            (Column::path(), |(row, ..)| row.cell.to_string()),
            (Column::words("role", 0, None), |(_, role, ..)| role.to_string()),
            (Column::number("", "pieces", 0), |(_, _, all, _)| amount(all.count as f64)),
            (Column::number("", "smallest", 0), |(_, _, all, _)| bytes(all.min as f64)),
            (Column::number("", "mean", 0), |(_, _, all, _)| bytes(all.mean)),
            (Column::number("", "largest", 0), |(_, _, all, _)| bytes(all.max as f64)),
            (Column::number("", "median", 1).on(Media::PAGE), |(.., percentiles)| {
                percentiles[1].map(bytes).unwrap_or_default()
            }),
            (Column::number("", "99 %", 1).on(Media::PAGE), |(.., percentiles)| {
                percentiles[3].map(bytes).unwrap_or_default()
            }),
        ],
    );
    let marks = ends.iter().map(|(_, _, all, [low, _, high, _])| size_marks(all, low.zip(*high)));
    let bounds = ends.iter().flat_map(|(_, _, all, _)| [all.min as f64, all.max as f64]);
    let caption = "Bytes per transfer, on a logarithmic scale. The thin line spans the smallest \
                   to the largest transfer of all trials, the thick one the 10th to the 90th \
                   percentile of the trial with the median rate; the dot is the mean.";
    section.with(Figure::rows(caption, table, (Scale::sizes(bounds), HEIGHT), marks))
}

fn size_marks(all: &SizeDistribution, most: Option<(f64, f64)>) -> Vec<Mark> {
    let middle = HEIGHT / 2.0;
    let span = |class, what: &str, low: f64, high: f64| {
        let line = Mark::line(class, (low, middle), (high, middle));
        line.tip(format!("{what}: {} to {}", bytes(low), bytes(high)))
    };
    let thin = span("thin", "all", all.min as f64, all.max as f64);
    let thick = most.map(|(low, high)| span("thick", "10th to 90th percentile", low, high));
    let mean = Mark::dot("point", (all.mean, middle), 3.4);
    let mean = mean.tip(format!("mean: {}", bytes(all.mean)));
    [thin].into_iter().chain(thick).chain([mean]).collect()
}

/// Returns the measured trial with the median rate.
fn middle<'a>(trials: &[&'a Trial]) -> Option<&'a Trial> {
    let mut measured: Vec<(f64, &Trial)> =
        trials.iter().filter_map(|t| Some((t.rate()?, *t))).collect();
    measured.sort_by(|a, b| a.0.total_cmp(&b.0));
    measured.get(measured.len().saturating_sub(1) / 2).map(|(_, trial)| *trial)
}

pub(crate) fn idle(view: &View) -> Section {
    let shares = view.ends().flat_map(|(row, end)| end.idle.iter().map(move |s| (row, end, s)));
    let table = Table::of(
        shares,
        [
            (Column::path(), |(row, ..)| row.cell.to_string()),
            (Column::words("role", 0, None), |(_, end, _)| end.role.to_string()),
            (Column::words("state", 0, None), |(.., share)| share.state.clone()),
            (Column::number("", "share", 0), |(.., share)| percent(share.share)),
            (Column::number("", "entries/s", 1), |(.., share)| amount(share.entries)),
            (Column::words("by", 2, None), |(.., share)| {
                if share.hardware { "done by the hardware" } else { "requested (cpuidle)" }
                    .to_owned()
            }),
        ],
    );
    let title = "Idle states of each role's CPU, as shares of the window";
    Section::new("idle", title).in_detail().with(table).note_on(
        Media::PAGE,
        "What the kernel requested and what the hardware did are counted apart; they are not the \
         same.",
    )
}

/// Shows the functions that waited for locks, and that handed work to other CPUs.
pub(crate) fn functions(view: &View) -> Section {
    let mut section = Section::new("functions", "Locks and other CPUs").in_detail();
    for ranking in rankings(view.study, view.analysis) {
        let mut columns = vec![Column::path(), Column::words("function", 0, Some(24))];
        columns.extend(ranking.timed.then(|| Column::number("per unit", "us", 0)));
        columns.extend([Column::number("per unit", "times", 0), Column::words("unit", 1, None)]);
        section.heading(ranking.title);
        section = section.with(Table::rows(columns, ranking.lines)).note(ranking.note);
    }
    section
}

pub(crate) fn fragments(view: &View) -> Section {
    let rows = view.rows.iter();
    let rows = rows.filter_map(|row| row.receiver.fragments.map(|f| (row, f.average, f.counts)));
    let table = Table::of(
        rows,
        [
            (Column::path(), |(row, ..)| row.cell.to_string()),
            (Column::number("", "calls", 0), |(.., c)| c.calls.to_string()),
            (Column::number("fragments per call", "average", 0), |(_, each, _)| number(*each, 1)),
            (Column::number("fragments per call", "min", 0), |(.., c)| c.min.to_string()),
            (Column::number("fragments per call", "max", 0), |(.., c)| c.max.to_string()),
            (Column::number("calls", "> 1024", 0), |(.., c)| c.above_1024.to_string()),
            (Column::number("calls", "512-1024", 0), |(.., c)| c.from_512_to_1024.to_string()),
            (Column::number("calls", "< 512", 0), |(.., c)| c.below_512.to_string()),
            (Column::number("calls", "> 1024 gathered", 0), |(.., c)| {
                c.gathered_above_1024.to_string()
            }),
            (Column::number("frees", "avoided", 0), |(.., c)| c.frees_avoided.to_string()),
            (Column::number("share of calls", "> 1024", 0), |(.., c)| percent(c.above_share())),
            (Column::number("share of calls", "of gathered", 1), |(.., c)| {
                percent(c.above_share_of_gathered())
            }),
            (Column::number("share of calls", "< 512", 0), |(.., c)| percent(c.below_share())),
        ],
    );
    let title = "Fragments per receive into device memory";
    Section::new("fragments", title).in_detail().with(table).note(
        "One call returns at most 1024 fragments. > 1024 gathered: calls after which more than \
         1024 were held. Frees avoided: calls after which nothing was returned, because fragments \
         were gathered. Of gathered: calls that alone brought more than 1024, among those after \
         which more were held.",
    )
}

/// Most lines in one panel; more would be unreadable.
const LINES: usize = 12;

/// Most points of a line; longer windows are averaged down to this.
const POINTS: usize = 150;

/// Characters by darkness, from nothing to all, and the most characters in a line of them.
const SHADES: &[u8] = b"_.:-=+*#%@";
const SIGNS: usize = 38;

/// Shows throughput over time: the median trial in plain text, every trial in HTML.
pub(crate) fn course(view: &View) -> Section {
    let section = Section::new("course", "Throughput over time").in_detail();
    let paced: Vec<(&Row, &Pace)> =
        view.rows.iter().filter_map(|row| Some((*row, row.pace.as_ref()?))).collect();
    let Some((_, first)) = paced.first() else { return section };
    let terms = Work::Bytes.terms();
    let unit = terms.rate_unit;
    let mut table = Table::of(
        &paced,
        [
            (Column::path(), |(row, _)| row.cell.to_string()),
            (Column::number(unit, "slowest", 0), |(_, pace)| rate(Work::Bytes, pace.min)),
            (Column::number(unit, "fastest", 0), |(_, pace)| rate(Work::Bytes, pace.max)),
            (Column::number("", "stalled", 0), |(_, pace)| match pace.stalled_trials {
                0 => "no".into(),
                _ => format!("{} s", number(pace.stalled, 1)),
            }),
            (Column::words("course", 1, None), |(_, pace)| sparkline(pace, SIGNS)),
        ],
    );
    table.columns.iter_mut().for_each(|column| column.media = Media::PLAIN);
    let window = view.study.header.schedule.window;
    let step = number(first.step, 2);
    let caption = format!(
        "{} at the {} in steps of {step} s over the window of {} s, one line per trial: {} \
         against seconds since the window began, all panels on the same axes. A stall is a step \
         below 5 % of its trial\u{2019}s mean.",
        terms.rate_heading,
        view.analysis.work().actor(Role::Receiver),
        number(window, 1),
        terms.rate_unit
    );
    let top = paced.iter().map(|(_, p)| p.max * terms.rate_scale).fold(0.0, f64::max);
    let panels = paced.iter().map(|(row, pace)| panel(view, row, pace)).collect();
    let (across, up) = (Scale::over([0.0, window]), Scale::over([0.0, top]));
    let drawing = Drawing::Panels { across, up, panels };
    let ceiling = |row: &&Row| Some(format!("{} {}", row.cell, percent(row.ceiling_share?)));
    let ceilings = joined(view.rows.iter().filter_map(ceiling), ", ");
    let mut note =
        format!("In steps of {step} s; drawn: the median trial, from 0 to its fastest step.");
    if !ceilings.is_empty() {
        note += &format!(" Share of the copy ceiling: {ceilings}.");
    }
    section.with(Figure { caption, key: Vec::new(), drawing, table }).note_on(Media::PLAIN, note)
}

fn panel(view: &View, row: &Row, pace: &Pace) -> Panel {
    let courses = view.trials(row).iter().filter_map(|trial| Some((*trial, steps(trial)?)));
    let courses: Vec<(&Trial, Vec<f64>)> = courses.collect();
    let line = |(trial, steps): &(&Trial, Vec<f64>)| {
        let course = Mark::course("course", points(steps, pace.step, row.work));
        course.tip(course_tip(trial, steps))
    };
    let marks = courses.iter().take(LINES).map(line).collect();
    let stalled = match pace.stalled_trials {
        0 => "no stall".to_owned(),
        trials => format!(
            "stalled {} s in {trials} of {}",
            number(pace.stalled, 1),
            plural(row.status.measured.into(), "trial")
        ),
    };
    let mut text = format!(
        "slowest step {}, fastest {} {}; {stalled}",
        rate(row.work, pace.min),
        rate(row.work, pace.max),
        row.work.terms().rate_unit
    );
    if courses.len() > LINES {
        text += &format!("; {LINES} of {} drawn", plural(courses.len() as u64, "line"));
    }
    Panel { title: row.cell.to_string(), of_cell: true, marks, text }
}

fn course_tip(trial: &Trial, steps: &[f64]) -> String {
    let least = steps.iter().copied().fold(f64::INFINITY, f64::min);
    let most = steps.iter().copied().fold(0.0, f64::max);
    let [mean, least, most] =
        [trial.rate(), Some(least), Some(most)].map(|each| rate(trial.work, each));
    let (unit, order) = (trial.work.terms().rate_unit, u64::from(trial.order) + 1);
    format!("trial {order}: mean {mean} {unit}, slowest step {least}, fastest {most}")
}

/// Returns the receiver's work per second for each step, all flows together.
fn steps(trial: &Trial) -> Option<Vec<f64>> {
    receiver_steps(trial).map(|(_, steps)| steps).filter(|steps| steps.len() > 1)
}

/// Returns a line through steps of `step` seconds: (second, displayed rate). Each point is in the
/// middle of the steps that it averages.
fn points(steps: &[f64], step: f64, work: Work) -> Vec<(f64, f64)> {
    let part = steps.len().div_ceil(POINTS).max(1);
    let point = |(i, values): (usize, &[f64])| {
        let mean = values.iter().map(|value| value / values.len() as f64).sum::<f64>();
        let at = (i * part) as f64 * step + values.len() as f64 * step / 2.0;
        (at, mean * work.terms().rate_scale)
    };
    steps.chunks(part).enumerate().map(point).collect()
}

/// Draws the median trial in at most `width` characters; neighbouring steps may share one.
fn sparkline(pace: &Pace, width: usize) -> String {
    let steps = &pace.typical;
    let signs = steps.len().min(width);
    let top = steps.iter().copied().fold(0.0, f64::max);
    let mean_of = |part: &[f64]| part.iter().map(|s| s / part.len() as f64).sum::<f64>();
    (0..signs)
        .map(|i| {
            let part = &steps[i * steps.len() / signs..(i + 1) * steps.len() / signs];
            let height = if top > 0.0 { mean_of(part) / top } else { 0.0 };
            shade(height)
        })
        .collect()
}

/// Returns the character for a part of one.
pub(super) fn shade(part: f64) -> char {
    let shade = (part * (SHADES.len() - 1) as f64).round() as usize;
    char::from(SHADES[shade.min(SHADES.len() - 1)])
}

pub(crate) fn pairs(view: &View) -> Section {
    let all = view.rows.iter().flat_map(|row| row.comparisons.iter().map(move |c| (row, c)));
    let rows = all.filter_map(|(row, c)| Some((row, c.question, c.pairs?)));
    let table = Table::of(
        rows,
        [
            (Column::path(), |(row, ..)| row.cell.to_string()),
            (Column::words("question", 0, None), |(_, question, _)| question.name().to_owned()),
            (Column::number("", "pairs", 0), |(.., spread)| spread.pairs.to_string()),
            (Column::number("standard deviation", "between pairs", 0), |(.., spread)| {
                percent(spread.log_between.exp_m1())
            }),
            (Column::number("standard deviation", "within one", 0), |(.., spread)| {
                percent(spread.log_within.exp_m1())
            }),
            (Column::number("ratio on a pair", "smallest", 0), |(.., spread)| {
                ratio(spread.range.0)
            }),
            (Column::number("ratio on a pair", "largest", 0), |(.., spread)| ratio(spread.range.1)),
        ],
    );
    let title = "Pairs of hosts: how the ratio to the baseline varies";
    Section::new("pairs", title).in_detail().with(table).note(
        "Intervals are for these pairs together. Another pair would vary around them by the \
         standard deviation between pairs in addition.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_a_stall() {
        let typical = vec![50.0, 50.0, 0.0, 25.0, 50.0, 50.0];
        let pace =
            Pace { step: 0.1, min: 0.0, max: 50.0, stalled: 0.1, stalled_trials: 1, typical };
        assert_eq!(sparkline(&pace, 60), "@@_+@@");
        assert_eq!(sparkline(&pace, 3), "@:@");
        assert_eq!(sparkline(&Pace { typical: vec![0.0, 0.0], ..pace }, 3), "__");
    }
}
