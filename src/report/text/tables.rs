//! The two tables: what each path reached, and what it cost.

use crate::record::Role;
use crate::report::figures::{NONE, amount, cpu, gbit, interval, number, percent, ratio};
use crate::report::page::{Page, Tone};
use crate::report::table::{Column, Table};
use crate::report::words::{cpu_rule, labels, middle_rule, powered, terms};
use crate::stats::{Analysis, Comparison, End, PerEnd, Row, Summary};

/// Throughput, what it rests on, and the verdict.
pub fn result(page: &mut Page, analysis: &Analysis) {
    if !analysis.rows.iter().any(|row| row.status.measured > 0) {
        return;
    }
    page.heading("Result");
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(16)),
        Column::number("", "n", 6),
        Column::number("", "Gbit/s", 0),
        Column::number("", "sd", 2),
        Column::number("", "ceiling", 3),
        Column::number("not copied", "tx", 5),
        Column::number("not copied", "rx", 5),
        Column::number("", "ratio", 0),
        Column::words("interval", 1, None),
        Column::words("verdict", 0, None),
        Column::words("label", 0, Some(18)),
    ]);
    for row in analysis.rows.iter().filter(|row| row.status.measured > 0) {
        let tone = if row.baseline { Tone::Strong } else { Tone::Plain };
        let (shown, range, word, word_tone) = verdict(row, &row.comparison);
        let not_copied = |end: &End| percent(end.ledger.as_ref().map(|l| l.not_copied));
        table.row(vec![
            (row.cell.to_string(), tone),
            (row.status.measured.to_string(), Tone::Plain),
            (gbit(mean(&row.throughput)), tone),
            (percent(row.throughput.and_then(|t| t.relative_stddev())), Tone::Plain),
            (percent(row.ceiling_share), Tone::Plain),
            (not_copied(&row.sender), Tone::Plain),
            (not_copied(&row.receiver), Tone::Plain),
            (shown, Tone::Plain),
            (range, Tone::Plain),
            (word.into(), word_tone),
            (labels(&row.labels), Tone::Plain),
        ]);
    }
    table.print(page, 2);
}

/// Ratio, interval, word, and how to show the word.
fn verdict(row: &Row, comparison: &Option<Comparison>) -> (String, String, &'static str, Tone) {
    let Some(comparison) = comparison else {
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

/// CPU, system calls, return on investment.
pub fn cost(page: &mut Page, analysis: &Analysis) {
    let measured = || analysis.rows.iter().filter(|row| row.status.measured > 0);
    let seen = |row: &Row| {
        Role::ALL
            .iter()
            .any(|role| row.end(*role).cpu.is_some() || row.end(*role).calls_per_gib.is_some())
    };
    if !measured().any(seen) {
        return;
    }
    page.heading("Cost: CPU seconds and system calls per GiB delivered");
    const TX: &str = "sender";
    const RX: &str = "receiver";
    const CALLS: &str = "calls";
    const VERSUS: &str = "both ends";
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::number(TX, "user", 4),
        Column::number(TX, "sys", 1),
        Column::number(TX, "soft", 1),
        Column::number(TX, "total", 0),
        Column::number(RX, "user", 4),
        Column::number(RX, "sys", 1),
        Column::number(RX, "soft", 1),
        Column::number(RX, "total", 0),
        Column::number(VERSUS, "total", 0),
        Column::number(VERSUS, "ratio", 2),
        Column::words("verdict", 0, None),
        Column::number(CALLS, "tx", 3),
        Column::number(CALLS, "rx", 3),
        Column::number("", "retrans", 6),
    ]);
    for row in measured() {
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
            cells.extend(parts.map(|part| (cpu(part), Tone::Plain)));
        }
        cells.push((cpu(mean(&row.cpu_per_gib)), tone));
        let (shown, _, word, word_tone) = verdict(row, &row.cpu_comparison);
        cells.push((shown, Tone::Plain));
        cells.push((word.into(), word_tone));
        for role in Role::ALL {
            cells.push((amount(mean(&row.end(role).calls_per_gib)), Tone::Plain));
        }
        cells.push((number(row.retransmits, 0), Tone::Plain));
        table.row(cells);
    }
    table.print(page, 2);
    page.text("  ", &format!("soft: softirq. {}", cpu_rule(analysis)));
}

/// What was drawn: one line a path, where a meter reported power.
pub fn energy(page: &mut Page, analysis: &Analysis) {
    let rows = analysis.rows.iter().filter(|row| row.watts.is_some());
    let rows: Vec<&Row> = rows.collect();
    if rows.is_empty() {
        return;
    }
    page.heading("Energy, both ends together");
    let mut table = Table::new(vec![
        Column::words("path", 0, Some(14)),
        Column::number("", "watts", 1),
        Column::words("interval", 4, None),
        Column::number("", "J/GiB", 0),
        Column::words("interval", 4, None),
        Column::number("", "trials", 3),
    ]);
    for row in rows {
        let tone = if row.baseline { Tone::Strong } else { Tone::Plain };
        let mut cells = vec![(row.cell.to_string(), tone)];
        for (figure, decimals) in [(&row.watts, 1), (&row.joules_per_gib, 1)] {
            let write = |value: f64| number(value, decimals);
            let range = figure.and_then(|s| s.interval);
            let range = range.map(|(low, high)| format!("[{}, {}]", write(low), write(high)));
            cells.push((number(mean(figure), decimals), tone));
            cells.push((range.unwrap_or_default(), Tone::Plain));
        }
        let trials = row.watts.map(|s| s.n as f64);
        cells.push((number(trials, 0), Tone::Plain));
        table.row(cells);
    }
    table.print(page, 2);
    page.text(
        "  ",
        "Watts: mean over the window, of what the source sees (`docs/meters.md`): figures of \
         different sources do not compare.",
    );
}

/// What came back for the cost, and throughput as published work prints it.
pub fn worth(page: &mut Page, analysis: &Analysis) {
    let rows: Vec<&Row> = analysis
        .rows
        .iter()
        .filter(|row| {
            row.service_demand != Default::default() || row.roi_power != Default::default()
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    page.heading("Return on investment and service demand, per trial");
    const ROI: &str = "T^n / C";
    const POWER: &str = "T^n / P^m";
    const DEMAND: &str = "CPU us per KiB";
    let powered = powered(analysis);
    let mut columns = vec![Column::words("path", 0, Some(14)), Column::number("", "middle", 2)];
    for group in [ROI].into_iter().chain(powered.then_some(POWER)).chain([DEMAND]) {
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
        cells.push((gbit(row.headline.map(|h| h.mean)), Tone::Plain));
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
        add(&row.service_demand, |v| number(v, 3));
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
