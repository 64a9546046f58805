//! Details: system calls, transfer sizes, and throughput over time.

use crate::figures::{amount, bytes, milliseconds, number, percent, rate, ratio};
use crate::frames;
use crate::functions::{Ranking, rankings};
use crate::page::{Page, Tone};
use crate::table::{Column, Table};
use bytepath_record::{CallRow, Role, Study, Work};
use bytepath_stats::{Analysis, Fragments, Pace};

/// Steps of darkness, from nothing to all.
const SHADES: &[u8] = b"_.:-=+*#%@";

pub(crate) fn print(page: &mut Page, study: &Study, analysis: &Analysis) {
    frames::grid(analysis).iter().for_each(|grid| grid.print(page));
    calls(page, analysis);
    sizes(page, analysis);
    idle(page, analysis);
    rankings(study, analysis).iter().for_each(|ranking| functions(page, ranking));
    fragments(page, analysis);
    course(page, analysis);
    pairs(page, analysis);
}

fn calls(page: &mut Page, analysis: &Analysis) {
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::words("role", 0, None),
        Column::words("call", 0, Some(14)),
        Column::number("", "calls", 0),
        Column::number("", "errors", 0),
        Column::number("", "bytes/call", 3),
        Column::number("milliseconds", "total", 1),
        Column::number("milliseconds", "min", 1),
        Column::number("milliseconds", "avg", 0),
        Column::number("milliseconds", "max", 0),
        Column::number("trials", "sd", 2),
    ]);
    let mut any = false;
    for row in &analysis.rows {
        for end in Role::ALL.map(|role| row.end(role)) {
            for call in &end.calls {
                any = true;
                table.row(call_cells(row.cell.to_string(), end.role.to_string(), call));
            }
        }
    }
    if any {
        page.heading("System calls of the engines, all measured trials together");
        table.print(page, 2);
    }
}

fn call_cells(cell: String, role: String, call: &CallRow) -> Vec<(String, Tone)> {
    let done = call.calls.saturating_sub(call.errors);
    let per_call = (done > 0).then(|| call.bytes as f64 / done as f64);
    let texts = vec![
        cell,
        role,
        call.name.clone(),
        call.calls.to_string(),
        call.errors.to_string(),
        number(per_call, 0),
        milliseconds(call.total),
        milliseconds(call.min),
        milliseconds(call.avg),
        milliseconds(call.max),
        format!("{}%", number(call.stddev_percent, 2)),
    ];
    texts.into_iter().map(|text| (text, Tone::Plain)).collect()
}

fn sizes(page: &mut Page, analysis: &Analysis) {
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::words("role", 0, None),
        Column::number("", "pieces", 0),
        Column::number("", "smallest", 0),
        Column::number("", "mean", 0),
        Column::number("", "largest", 0),
    ]);
    let mut any = false;
    for row in &analysis.rows {
        for end in Role::ALL.map(|role| row.end(role)).into_iter().filter(|e| e.sizes.count > 0) {
            any = true;
            let s = &end.sizes;
            let texts = [
                row.cell.to_string(),
                end.role.to_string(),
                amount(s.count as f64),
                bytes(s.min as f64),
                bytes(s.mean),
                bytes(s.max as f64),
            ];
            table.row(texts.map(|text| (text, Tone::Plain)).to_vec());
        }
    }
    if any {
        page.heading("Transfer sizes");
        table.print(page, 2);
    }
}

fn idle(page: &mut Page, analysis: &Analysis) {
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::words("role", 0, None),
        Column::words("state", 0, None),
        Column::number("", "share", 0),
        Column::number("", "entries/s", 1),
        Column::words("by", 2, None),
    ]);
    let mut any = false;
    for row in &analysis.rows {
        for end in Role::ALL.map(|role| row.end(role)) {
            for share in &end.idle {
                any = true;
                let by =
                    if share.hardware { "done by the hardware" } else { "requested (cpuidle)" };
                let texts = [
                    row.cell.to_string(),
                    end.role.to_string(),
                    share.state.clone(),
                    percent(share.share),
                    amount(share.entries),
                    by.to_owned(),
                ];
                table.row(texts.map(|text| (text, Tone::Plain)).to_vec());
            }
        }
    }
    if any {
        page.heading("Idle states of each role's CPU, as shares of the window");
        table.print(page, 2);
    }
}

fn functions(page: &mut Page, ranking: &Ranking) {
    let mut columns =
        vec![Column::words("path", 0, Some(14)), Column::words("function", 0, Some(24))];
    columns.extend(ranking.timed.then(|| Column::number("per unit", "us", 0)));
    columns.extend([Column::number("per unit", "times", 0), Column::words("unit", 1, None)]);
    let mut table = Table::new(columns);
    for line in &ranking.lines {
        let mut texts = vec![line.cell.to_string(), line.function.clone()];
        texts.extend(line.time.clone());
        texts.extend([line.count.clone(), line.unit.to_owned()]);
        table.row(texts.into_iter().map(|text| (text, Tone::Plain)).collect());
    }
    page.heading(ranking.title);
    table.print(page, 2);
    page.text("  ", ranking.note);
}

fn fragments(page: &mut Page, analysis: &Analysis) {
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::number("", "calls", 0),
        Column::number("fragments per call", "average", 0),
        Column::number("fragments per call", "min", 0),
        Column::number("fragments per call", "max", 0),
        Column::number("calls", "> 1024", 0),
        Column::number("calls", "512-1024", 0),
        Column::number("calls", "< 512", 0),
        Column::number("frees", "avoided", 0),
        Column::number("share of calls", "> 1024", 0),
        Column::number("share of calls", "of gathered", 1),
        Column::number("share of calls", "< 512", 0),
    ]);
    let rows = analysis.rows.iter().filter_map(|row| Some((row, row.receiver.fragments?)));
    let mut any = false;
    for (row, Fragments { counts, average, .. }) in rows.clone() {
        any = true;
        let texts = [
            row.cell.to_string(),
            counts.calls.to_string(),
            number(average, 1),
            counts.min.to_string(),
            counts.max.to_string(),
            counts.above_1024.to_string(),
            counts.from_512_to_1024.to_string(),
            counts.below_512.to_string(),
            counts.frees_avoided.to_string(),
            percent(counts.above_share()),
            percent(counts.above_share_of_gathered()),
            percent(counts.below_share()),
        ];
        table.row(texts.map(|text| (text, Tone::Plain)).to_vec());
    }
    if any {
        page.heading("Fragments per receive into device memory");
        table.print(page, 2);
        page.text("  ", FRAGMENTS);
    }
}

/// What the columns of fragments mean.
const FRAGMENTS: &str = "One call returns at most 1024 fragments. Frees \
                         avoided: calls after which nothing was returned, because fragments were \
                         gathered. Of gathered: calls that alone brought more than 1024, among \
                         those after which more than 1024 were held.";

fn course(page: &mut Page, analysis: &Analysis) {
    let paced: Vec<_> = analysis.rows.iter().filter_map(|r| Some((r, r.pace.as_ref()?))).collect();
    let Some((_, first)) = paced.first() else { return };
    page.heading(&format!(
        "Throughput over time, in steps of {} s (drawn: the median trial, from 0 to its fastest step)",
        number(first.step, 2)
    ));
    let drawn = page.width().saturating_sub(62).clamp(10, 60);
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::number(Work::Bytes.terms().rate_unit, "slowest", 0),
        Column::number(Work::Bytes.terms().rate_unit, "fastest", 0),
        Column::number("", "stalled", 0),
        Column::words("course", 1, None),
    ]);
    for (row, pace) in paced {
        let stalled = match pace.stalled_trials {
            0 => "no".into(),
            _ => format!("{} s", number(pace.stalled, 1)),
        };
        let [slowest, fastest] = [pace.min, pace.max].map(|step| rate(Work::Bytes, step));
        let texts = [row.cell.to_string(), slowest, fastest, stalled, sparkline(pace, drawn)];
        table.row(texts.map(|text| (text, Tone::Plain)).to_vec());
    }
    table.print(page, 2);
    let ceilings: Vec<String> = analysis
        .rows
        .iter()
        .filter_map(|r| Some(format!("{} {}", r.cell, percent(r.ceiling_share?))))
        .collect();
    if !ceilings.is_empty() {
        page.text("  ", &format!("Share of the copy ceiling: {}.", ceilings.join(", ")));
    }
}

fn pairs(page: &mut Page, analysis: &Analysis) {
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::words("question", 0, None),
        Column::number("", "pairs", 0),
        Column::number("standard deviation", "between pairs", 0),
        Column::number("standard deviation", "within one", 0),
        Column::number("ratio on a pair", "smallest", 0),
        Column::number("ratio on a pair", "largest", 0),
    ]);
    let mut any = false;
    let all = analysis.rows.iter().flat_map(|row| row.comparisons.iter().map(move |c| (row, c)));
    let spread = all.filter_map(|(row, c)| Some((row, c.question, c.pairs?)));
    for (row, question, spread) in spread {
        any = true;
        let texts = [
            row.cell.to_string(),
            question.name().to_string(),
            spread.pairs.to_string(),
            percent(spread.log_between.exp_m1()),
            percent(spread.log_within.exp_m1()),
            ratio(spread.range.0),
            ratio(spread.range.1),
        ];
        table.row(texts.map(|text| (text, Tone::Plain)).to_vec());
    }
    if any {
        page.heading("Pairs of hosts: how the ratio to the baseline varies");
        table.print(page, 2);
        page.text("  ", PAIRS);
    }
}

/// What an interval says of pairs.
const PAIRS: &str = "Intervals are for these pairs together. Another pair would vary \
                     around them by the standard deviation between pairs in addition.";

/// The typical trial in at most `width` signs; neighbouring steps share one.
fn sparkline(pace: &Pace, width: usize) -> String {
    let steps = &pace.typical;
    let signs = steps.len().min(width);
    let top = steps.iter().copied().fold(0.0, f64::max);
    let mean_of = |part: &[f64]| part.iter().map(|s| s / part.len() as f64).sum::<f64>();
    (0..signs)
        .map(|i| {
            let part = &steps[i * steps.len() / signs..(i + 1) * steps.len() / signs];
            let height = if top > 0.0 { mean_of(part) / top } else { 0.0 };
            let shade = (height * (SHADES.len() - 1) as f64).round() as usize;
            char::from(SHADES[shade.min(SHADES.len() - 1)])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_seen_in_the_line() {
        let typical = vec![50.0, 50.0, 0.0, 25.0, 50.0, 50.0];
        let pace =
            Pace { step: 0.1, min: 0.0, max: 50.0, stalled: 0.1, stalled_trials: 1, typical };
        assert_eq!(sparkline(&pace, 60), "@@_+@@");
        assert_eq!(sparkline(&pace, 3), "@:@");
        assert_eq!(sparkline(&Pace { typical: vec![0.0, 0.0], ..pace }, 3), "__");
    }
}
