//! The tables: what each path reached, how long it took, and what it cost.

use crate::figures::{
    NONE, amount, cost as cost_of, interval, microseconds, number, percent, rate, ratio,
};
use crate::hops;
use crate::page::{Page, Tone};
use crate::table::{Column, Table};
use crate::words::{by_work, cpu_rule, label, middle_rule, on_a_wire, powered, terms};
use bytepath_record::{Percentile, Role, Work};
use bytepath_stats::{Analysis, End, PerEnd, Question, Row, Summary};

/// The rate, what it rests on, and the verdict; a table for each work.
pub(crate) fn result(page: &mut Page, analysis: &Analysis) {
    for (work, rows) in by_work(analysis) {
        page.heading("Result");
        // Only bytes have the ceiling of a copy.
        let ceiling = work == Work::Bytes;
        let mut columns = vec![
            Column::words("path", 0, Some(16)),
            Column::number("", "n", 6),
            Column::number("", work.terms().rate_unit, 0),
            Column::number("", "sd", 2),
        ];
        columns.extend(ceiling.then(|| Column::number("", "ceiling", 3)));
        columns.extend([
            Column::number("not copied", "tx", 5),
            Column::number("not copied", "rx", 5),
            Column::number("", "ratio", 0),
            Column::words("interval", 1, None),
            Column::words("verdict", 0, None),
            Column::words("label", 0, Some(18)),
        ]);
        let mut table = Table::new(columns);
        for row in rows {
            let tone = if row.baseline { Tone::Strong } else { Tone::Plain };
            let (shown, range, word, word_tone) = verdict(row, Question::Rate);
            let not_copied = |end: &End| percent(end.ledger.as_ref().map(|l| l.not_copied));
            let mut cells = vec![
                (row.cell.to_string(), tone),
                (row.status.measured.to_string(), Tone::Plain),
                (rate(work, mean(&row.rate)), tone),
                (percent(row.rate.and_then(|t| t.relative_stddev())), Tone::Plain),
            ];
            cells.extend(ceiling.then(|| (percent(row.ceiling_share), Tone::Plain)));
            cells.extend([
                (not_copied(&row.sender), Tone::Plain),
                (not_copied(&row.receiver), Tone::Plain),
                (shown, Tone::Plain),
                (range, Tone::Plain),
                (word.into(), word_tone),
                (label(row), Tone::Plain),
            ]);
            table.row(cells);
        }
        table.print(page, 2);
    }
    if let Some(text) = on_a_wire(analysis) {
        page.text("  ", &text);
    }
}

/// Percentiles of the latency, and how each compares.
pub(crate) fn latency(page: &mut Page, analysis: &Analysis) {
    let rows: Vec<_> =
        analysis.rows.iter().filter_map(|row| Some((row, row.latency.as_ref()?))).collect();
    if rows.is_empty() {
        return;
    }
    page.heading("Latency in microseconds, all measured trials together");
    let mut columns = vec![Column::words("path", 0, Some(14)), Column::number("", "mean", 2)];
    columns.extend(Percentile::ALL.map(|p| Column::number("", p.name(), 0)));
    columns.extend([Column::number("", "max", 0), Column::number("", "exchanges", 3)]);
    let mut table = Table::new(columns);
    for (row, latency) in &rows {
        let tone = if row.baseline { Tone::Strong } else { Tone::Plain };
        let mut cells = vec![(row.cell.to_string(), tone)];
        let pooled = Percentile::ALL.map(|p| latency.percentile(p).map(|row| row.pooled));
        let times = [Some(latency.mean)].into_iter().chain(pooled).chain([Some(latency.max)]);
        cells.extend(times.map(|time| (microseconds(time), Tone::Plain)));
        cells.push((amount(latency.count as f64), Tone::Plain));
        table.row(cells);
    }
    table.print(page, 2);
    let compared = |row: &Row| {
        Percentile::ALL.map(Question::Latency).into_iter().any(|q| row.comparison(q).is_some())
    };
    if analysis.functional.is_some() || !rows.iter().any(|(row, _)| compared(row)) {
        return;
    }
    page.heading(&format!("Latency against {}", analysis.baseline));
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::words("", 0, None),
        Column::number("", "ratio", 0),
        Column::words("interval", 1, None),
        Column::words("verdict", 0, None),
    ]);
    for (row, _) in rows.iter().filter(|(row, _)| compared(row)) {
        for percentile in Percentile::ALL {
            let question = Question::Latency(percentile);
            if row.comparison(question).is_none() {
                continue;
            }
            let (shown, range, word, tone) = verdict(row, question);
            table.row(vec![
                (row.cell.to_string(), Tone::Plain),
                (percentile.name().into(), Tone::Plain),
                (shown, Tone::Plain),
                (range, Tone::Plain),
                (word.into(), tone),
            ]);
        }
    }
    table.print(page, 2);
    page.text(
        "  ",
        "Ratios are of the percentiles of each block; a percentile is given if at least \
         ten exchanges took longer.",
    );
}

/// Where frames went.
pub(crate) fn hops(page: &mut Page, analysis: &Analysis) {
    let rows = hops::rows(analysis);
    if rows.is_empty() {
        return;
    }
    page.heading(hops::TITLE);
    let mut columns = vec![Column::words("path", 0, Some(14))];
    columns.extend(hops::HEADS.map(|(group, title)| Column::number(group, title, 0)));
    let mut table = Table::new(columns);
    for (row, found) in rows {
        let tone = if row.baseline { Tone::Strong } else { Tone::Plain };
        let mut cells = vec![(row.cell.to_string(), tone)];
        cells.extend(hops::cells(found).map(|text| (text, Tone::Plain)));
        table.row(cells);
    }
    table.print(page, 2);
    page.text("  ", hops::RULE);
}

/// Ratio, interval, word, and how to show the word.
fn verdict(row: &Row, question: Question) -> (String, String, &'static str, Tone) {
    let Some(comparison) = row.comparison(question) else {
        return if row.baseline {
            ("1".into(), String::new(), "baseline", Tone::Faint)
        } else {
            (NONE.into(), String::new(), "", Tone::Plain)
        };
    };
    let effect = comparison.effect.as_ref();
    let range = effect.and_then(|e| e.interval).map(|i| interval(i.low, i.high));
    let tone = match comparison.verdict.better() {
        Some(true) => Tone::Good,
        Some(false) => Tone::Bad,
        None => Tone::Plain,
    };
    let shown = ratio(effect.map(|e| e.ratio));
    (shown, range.unwrap_or_default(), comparison.verdict.word(), tone)
}

/// CPU and system calls; a table for each work.
pub(crate) fn cost(page: &mut Page, analysis: &Analysis) {
    let seen = |row: &&Row| {
        Role::ALL
            .iter()
            .any(|role| row.end(*role).cpu.is_some() || row.end(*role).calls_per_unit.is_some())
    };
    for (work, rows) in by_work(analysis) {
        if rows.iter().any(seen) {
            costs(page, analysis, work, &rows);
        }
    }
}

fn costs(page: &mut Page, analysis: &Analysis, work: Work, rows: &[&Row]) {
    let terms = work.terms();
    let shown = work.cost(analysis.instructions_per_second);
    let words = shown.words.split_once(" per ").map_or(shown.words, |(what, _)| what);
    page.heading(&format!("Cost: {words} and system calls per {} {}", terms.unit, terms.done));
    let [tx, rx] = terms.actors;
    const CALLS: &str = "calls";
    const VERSUS: &str = "both ends";
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::number(tx, "user", 4),
        Column::number(tx, "sys", 1),
        Column::number(tx, "soft", 1),
        Column::number(tx, "total", 0),
        Column::number(rx, "user", 4),
        Column::number(rx, "sys", 1),
        Column::number(rx, "soft", 1),
        Column::number(rx, "total", 0),
        Column::number(VERSUS, "total", 0),
        Column::number(VERSUS, "ratio", 2),
        Column::words("verdict", 0, None),
        Column::number(CALLS, "tx", 3),
        Column::number(CALLS, "rx", 3),
        Column::number("", "retrans", 6),
    ]);
    for row in rows {
        let tone = if row.baseline { Tone::Strong } else { Tone::Plain };
        let mut cells = vec![(row.cell.to_string(), tone)];
        for role in Role::ALL {
            let cost = row.end(role).cpu.as_ref();
            let parts = [
                cost.map(|c| c.user),
                cost.map(|c| c.system),
                cost.map(|c| c.softirq),
                cost.map(|c| c.total.mean),
            ];
            cells.extend(parts.map(|part| (cost_of(shown, part), Tone::Plain)));
        }
        cells.push((cost_of(shown, mean(&row.cpu_per_unit)), tone));
        let (ratio, _, word, word_tone) = verdict(row, analysis.cost());
        cells.push((ratio, Tone::Plain));
        cells.push((word.into(), word_tone));
        for role in Role::ALL {
            cells.push((amount(mean(&row.end(role).calls_per_unit)), Tone::Plain));
        }
        cells.push((number(row.retransmits, 0), Tone::Plain));
        table.row(cells);
    }
    table.print(page, 2);
    page.text("  ", &format!("soft: softirq; total: with user time. {}", cpu_rule(analysis)));
}

/// What was drawn: one line a path, where a meter reported power.
pub(crate) fn energy(page: &mut Page, analysis: &Analysis) {
    let rows = analysis.rows.iter().filter_map(|row| Some((row, row.energy()?)));
    let rows: Vec<(&Row, _)> = rows.collect();
    if rows.is_empty() {
        return;
    }
    page.heading("Energy");
    let terms = analysis.work().terms();
    let mut columns = vec![Column::words("path", 0, Some(14))];
    for (group, rank) in [("watts", 1), (terms.energy_unit, 0)] {
        columns.extend([
            Column::number(group, "tx", 2),
            Column::number(group, "rx", 2),
            Column::number(group, "both", rank),
            Column::words("interval", 4, None),
        ]);
    }
    columns.push(Column::number("", "trials", 3));
    let mut table = Table::new(columns);
    for (row, energy) in rows {
        let tone = if row.baseline { Tone::Strong } else { Tone::Plain };
        let mut cells = vec![(row.cell.to_string(), tone)];
        for (figures, scale) in energy.iter().zip([1.0, terms.energy_scale]) {
            let write = |value: f64| number(value * scale, 1);
            let means = figures.map(|figure| number(mean(&figure).map(|m| m * scale), 1));
            cells.extend(means.map(|text| (text, tone)));
            let range = figures[2].and_then(|s| s.interval);
            let range = range.map(|(low, high)| format!("[{}, {}]", write(low), write(high)));
            cells.push((range.unwrap_or_default(), Tone::Plain));
        }
        let trials = energy[0].iter().flatten().map(|s| s.n as f64).reduce(f64::max);
        cells.push((number(trials, 0), Tone::Plain));
        table.row(cells);
    }
    table.print(page, 2);
    page.text(
        "  ",
        "Watts: mean over the window, as seen by the source (`docs/meters.md`): figures of \
         different sources do not compare.",
    );
}

/// What came back for the cost, and the rate as published work prints it.
pub(crate) fn worth(page: &mut Page, analysis: &Analysis) {
    let rows: Vec<&Row> = analysis
        .rows
        .iter()
        .filter(|row| row.roi != Default::default() || row.roi_power != Default::default())
        .collect();
    if rows.is_empty() {
        return;
    }
    // Of anything but bytes the demand is the cost itself.
    let demand = rows.iter().any(|row| row.service_demand != Default::default());
    page.heading(if demand {
        "Return on investment and service demand, per trial"
    } else {
        "Return on investment, per trial"
    });
    const ROI: &str = "T^n / C";
    const POWER: &str = "T^n / P^m";
    const DEMAND: &str = "CPU us per KiB";
    let powered = powered(analysis);
    let mut columns = vec![Column::words("path", 0, Some(14)), Column::number("", "middle", 2)];
    for group in [ROI].into_iter().chain(powered.then_some(POWER)).chain(demand.then_some(DEMAND)) {
        columns.extend([
            Column::number(group, "tx", 3),
            Column::number(group, "rx", 3),
            Column::number(group, "both", 0),
            Column::words("interval", 4, None),
        ]);
    }
    let mut table = Table::new(columns);
    for row in &rows {
        let tone = if row.baseline { Tone::Strong } else { Tone::Plain };
        let mut cells = vec![(row.cell.to_string(), tone)];
        cells.push((rate(row.work, row.headline.map(|h| h.mean)), Tone::Plain));
        let mut add = |of: &PerEnd, write: fn(Option<f64>) -> String| {
            let parts = [&of.sender, &of.receiver, &of.total];
            cells.extend(parts.map(|part| (write(mean(part)), Tone::Plain)));
            let range = of.total.and_then(|s| s.interval);
            let range =
                range.map(|(low, high)| format!("[{}, {}]", write(Some(low)), write(Some(high))));
            cells.push((range.unwrap_or_default(), Tone::Plain));
        };
        add(&row.roi, amount);
        if powered {
            add(&row.roi_power, amount);
        }
        if demand {
            add(&row.service_demand, |v| number(v, 3));
        }
        table.row(cells);
    }
    table.print(page, 2);
    let mut text = format!("{}. Intervals are of the mean over the trials.", terms(analysis));
    if let Some(middle) = middle_rule(analysis) {
        text += &format!(" {middle}");
    }
    page.text("  ", &text);
}

fn mean(summary: &Option<Summary>) -> Option<f64> {
    summary.map(|s| s.mean)
}
