//! The cost of a unit of work: CPU by role and kind, and system calls.

use super::view::{View, mean};
use crate::document::{Cell, Column, Figure, Mark, Media, Scale, Section, Table};
use crate::wording::figures::{amount, cost, number, percent};
use crate::wording::text::cpu_rule;
use bytepath_record::{Cost, Role, Work};
use bytepath_stats::{CpuCost, GuestCost, Row};

/// Kinds of CPU time: class, name.
const KINDS: [(&str, &str); 4] = [
    ("user", "application (user)"),
    ("system", "system calls"),
    ("softirq", "softirq"),
    ("unsplit", "unattributed"),
];

/// Pixels of a row with two bars: its height, beginning and end of each bar.
pub(super) const HEIGHT: f64 = 34.0;
pub(super) const BARS: [(Role, f64, f64); 2] =
    [(Role::Sender, 5.0, 16.0), (Role::Receiver, 18.0, 29.0)];

pub(crate) fn section(view: &View) -> Section {
    let terms = view.analysis.work().terms();
    let mut section = Section::new("cpu", format!("CPU per {}", terms.unit));
    for (work, rows) in view.by_work() {
        let cost_unit = work.cost(view.analysis.instructions_per_second);
        let has_cost = |row: &&Row| Role::ALL.iter().any(|role| row.end(*role).cpu.is_some());
        let rows: Vec<&Row> = rows.into_iter().filter(has_cost).collect();
        if rows.is_empty() {
            continue;
        }
        let (words, done) = (cost_unit.words, work.terms().done);
        section.heading(format!("Cost: {words} {done}"));
        section.add(figure(view, work, cost_unit, &rows));
        section.add_on(Media::PAGE, parts(work, cost_unit, &rows));
    }
    let rule = format!("soft: softirq; total: with user time. {}", cpu_rule(view.analysis));
    section.note(rule)
}

/// The same with a third bar for both ends together.
const HEIGHT_OF_THREE: f64 = 47.0;
const BAR_OF_BOTH: (f64, f64) = (31.0, 42.0);

/// Characters of the bar of both ends in plain text, and the length of the longest bar.
const SIGNS: [char; 5] = ['a', 's', 'f', '?', '.'];
const LONGEST: f64 = 32.0;

/// Shows CPU time that each end kept busy, by kind, and both together.
pub(crate) fn busy(view: &View) -> Section {
    let section = Section::new("cpu-busy", "CPU in use, in per cent of one CPU").in_detail();
    let has_cost = |row: &&Row| Role::ALL.iter().any(|role| row.end(*role).cpu.is_some());
    let rows: Vec<&Row> = view.rows.iter().copied().filter(has_cost).collect();
    if rows.is_empty() {
        return section;
    }
    let [tx, rx] = view.analysis.work().terms().actors;
    let sums = rows.iter().flat_map(|row| busy_of(row)).flatten().map(|s| s.iter().sum::<f64>());
    let most = sums.fold(0.0, f64::max);
    let scale = Scale::over([0.0, most]);
    let mut columns = vec![Column::path()];
    for group in [tx, rx, "both ends"] {
        let parts = ["app", "sys", "soft", "iowait"].map(|title| Column::number(group, title, 1));
        columns.extend(parts.map(|column| column.on(Media::PLAIN)));
        columns.push(Column::number(group, "total", 0));
    }
    columns.push(Column::words("bar", 1, None).on(Media::PLAIN));
    let total = |[user, system, softirq, unsplit, _]: [f64; 5]| user + system + softirq + unsplit;
    let table = Table::rows(
        columns,
        rows.iter().map(|row| {
            let all = busy_of(row);
            let mut cells = vec![Cell::path(row)];
            for end in all {
                let of = |part: usize| number(end.map(|shares| shares[part]), 1);
                let parts = [of(0), of(1), of(2), of(4), number(end.map(total), 1)];
                cells.extend(parts.map(Cell::from));
            }
            cells.push(bar_of_signs(all[2], most).into());
            cells
        }),
    );
    let caption = format!(
        "In each row the {tx}, the {rx}, and both together; 100 is one CPU all the time. Waits \
         for I/O are idle: they are drawn, and in no total."
    );
    let iowait = [("free", "iowait (idle)".to_owned())];
    let key = KINDS.iter().map(|(class, name)| (*class, (*name).to_owned())).chain(iowait);
    let marks = rows.iter().map(|row| stacked(row));
    let figure = Figure::rows(caption, table, (scale, HEIGHT_OF_THREE), marks);
    let mut section = section.with(Figure { key: key.collect(), ..figure });
    section.add_on(Media::PAGE, shares_of_ends(&rows));
    section.note_on(
        Media::PLAIN,
        format!(
            "The bar has both ends: a application, s system, f softirq, ? unattributed, '.' iowait, \
             which is idle and in no total; {} signs are {} %.",
            LONGEST,
            number(most, 1)
        ),
    )
}

/// Shows CPU time that a guest, playing one end, takes of the other end's host.
pub(crate) fn guests(view: &View) -> Section {
    fn share(cores: f64) -> Cell {
        number(cores * 100.0, 1).into()
    }
    let title = "What a guest takes of the host that runs it, in per cent of one CPU";
    let guests = view.ends().filter_map(|(row, end)| Some((row, end, end.guest?)));
    let table = Table::of(
        guests,
        [
            (Column::path(), |(row, ..)| Cell::path(row)),
            (Column::words("role", 1, None), |(row, end, _)| row.work.actor(end.role).into()),
            (Column::number("of the host", "vCPUs", 0), |(.., guest)| share(guest.vcpu)),
            (Column::number("of the host", "qemu", 0), |(.., guest)| share(guest.qemu)),
            (Column::number("of the host", "vhost", 0), |(.., guest)| share(guest.vhost)),
            (Column::number("of the host", "total", 0), |(.., g)| share(g.total.mean)),
            (Column::number("CPU s", "a trial", 0), |(.., g)| number(g.seconds.mean, 2).into()),
            (Column::number("in the guest", "its own", 0), |(_, end, _)| {
                number(end.cpu.as_ref().map(|cpu| cpu.cores.mean * 100.0), 1).into()
            }),
        ],
    );
    let section = Section::new("guests", title);
    // A mail is not asked for details.
    let section = if view.medium == Media::MAIL { section } else { section.in_detail() };
    section.with(table).note(
        "vCPUs: all that ran in the guest, and its exits; qemu: its other threads; vhost: the kernel's \
         workers. Its own: the end's CPU time as the guest counts it, a part of the vCPUs'; the clock of an \
         emulated guest goes on while the host runs others, so that may be more. Both ends together have \
         the host's figure.",
    )
}

/// Returns the shares of each end, and of both together if both are known; for a guest, what it
/// took of its host.
fn busy_of(row: &Row) -> [Option<[f64; 5]>; 3] {
    let [tx, rx] = Role::ALL.map(|role| row.end(role).cpu.as_ref().map(shares));
    let of_host = |guest: GuestCost| {
        let [user, system] = [guest.user, guest.total.mean - guest.user];
        [user * 100.0, system * 100.0, 0.0, 0.0, 0.0]
    };
    let [tx_of_both, rx_of_both] = [(Role::Sender, tx), (Role::Receiver, rx)]
        .map(|(role, own)| row.end(role).guest.map(of_host).or(own));
    let both = tx_of_both.zip(rx_of_both);
    let both = both.map(|(tx, rx)| std::array::from_fn(|part| tx[part] + rx[part]));
    [tx, rx, both]
}

/// Returns a bar with characters proportional to CPU time, one kind after the other.
fn bar_of_signs(shares: Option<[f64; 5]>, most: f64) -> String {
    let (mut sum, mut bar) = (0.0, String::new());
    for (sign, share) in SIGNS.into_iter().zip(shares.into_iter().flatten()) {
        sum += share;
        let length = ((sum / most).clamp(0.0, 1.0) * LONGEST).round() as usize;
        bar.extend(std::iter::repeat_n(sign, length.saturating_sub(bar.len())));
    }
    bar
}

/// Builds the table of the figures behind the bars.
fn shares_of_ends(rows: &[&Row]) -> Table {
    let columns = [Column::path(), Column::words("role", 0, None)].into_iter();
    let titles = ["application", "system", "softirq", "unattributed", "iowait"];
    let columns = columns.chain(titles.map(|title| Column::number("", title, 0)));
    let ends = rows.iter().flat_map(|row| Role::ALL.map(|role| (row, role)));
    let cells = ends.filter_map(|(row, role)| {
        let shares = shares(row.end(role).cpu.as_ref()?).map(|share| number(share, 1));
        let names = [row.cell.to_string(), row.work.actor(role).to_owned()];
        Some(names.into_iter().chain(shares).collect::<Vec<String>>())
    });
    Table::rows(columns, cells).folded("The same in numbers")
}

/// Returns application, system, softirq, unattributed, and idle with a wait for I/O, each in
/// percent of a CPU.
fn shares(c: &CpuCost) -> [f64; 5] {
    let percent = |part: f64| match part / c.total.mean * c.cores.mean * 100.0 {
        share if share.is_finite() => share,
        _ => 0.0,
    };
    let iowait = c.iowait.unwrap_or(0.0) * 100.0;
    [percent(c.user), percent(c.system), percent(c.softirq), percent(c.unsplit), iowait]
}

/// Draws the bars of both ends of a row, and of both together, with the kinds side by side.
fn stacked(row: &Row) -> Vec<Mark> {
    let kinds = KINDS.iter().copied().chain([("free", "iowait (idle)")]);
    let ends = BARS.map(|(role, top, bottom)| (row.work.actor(role), top, bottom));
    let both = ("both ends", BAR_OF_BOTH.0, BAR_OF_BOTH.1);
    let mut marks = Vec::new();
    for ((end, top, bottom), shares) in ends.into_iter().chain([both]).zip(busy_of(row)) {
        let mut from = 0.0;
        for ((class, name), part) in kinds.clone().zip(shares.into_iter().flatten()) {
            if part > 0.0 {
                let bar = Mark::bar(class, (from, top), (from + part, bottom));
                marks.push(bar.tip(format!("{end}, {name}: {} %", number(part, 1))));
                from += part;
            }
        }
    }
    marks
}

/// Shows system calls per unit of work.
pub(crate) fn calls(view: &View) -> Section {
    let unit = view.analysis.work().terms().unit;
    let mut section = Section::new("calls-per-unit", format!("System calls per {unit}"));
    for (work, rows) in view.by_work() {
        let group = work.terms().calls_unit;
        let [tx, rx] = if work == Work::Bytes { ["tx", "rx"] } else { work.terms().actors };
        let calls = |row: &Row| Role::ALL.map(|role| mean(&row.end(role).calls_per_unit));
        let rows = rows.into_iter().map(|row| (row, calls(row)));
        section.add(Table::of(
            rows.filter(|(_, calls)| calls.iter().any(Option::is_some)),
            [
                (Column::path(), |(row, _)| Cell::path(row)),
                (Column::number(group, tx, 0), |(_, calls)| amount(calls[0]).into()),
                (Column::number(group, rx, 0), |(_, calls)| amount(calls[1]).into()),
                (Column::number("", "retrans", 1), |(row, _)| number(row.retransmits, 0).into()),
            ],
        ));
    }
    section
}

/// Draws CPU time per unit of work, as stacked bars.
fn figure(view: &View, work: Work, cost_unit: Cost, rows: &[&Row]) -> Figure {
    let [tx, rx] = work.terms().actors;
    let costs =
        || rows.iter().flat_map(|row| Role::ALL.map(|role| row.end(role).cpu.as_ref())).flatten();
    let scale = Scale::over(costs().map(|c| c.total.mean * cost_unit.scale).chain([0.0]));
    let kinds = if costs().any(|c| c.unsplit > 0.0) { 4 } else { 3 };
    let caption = format!(
        "In each row the {tx} above, the {rx} below. The change is that of both ends together \
         against {}.",
        view.analysis.baseline
    );
    let key = KINDS[..kinds].iter().map(|(class, name)| (*class, (*name).to_owned())).collect();
    // A mail has no room for the parts, and the change must not precede the totals.
    let [total, change] = if view.medium == Media::MAIL { [1, 0] } else { [0, 2] };
    let mut columns = vec![Column::path()];
    for group in [tx, rx] {
        let parts = [("user", 4), ("sys", 1), ("soft", 1)];
        let parts = parts.map(|(title, rank)| Column::number(group, title, rank));
        columns.extend(parts.map(|column| column.on(Media::TERMINAL)));
        columns.push(Column::number(group, "total", total));
    }
    columns.extend([
        Column::number("both ends", "total", 0),
        Column::ratio("both ends", change).interval(5),
        Column::words("verdict", 0, None),
    ]);
    let cells = |row: &&Row| {
        let mut cells = vec![Cell::path(row)];
        for role in Role::ALL {
            let of =
                |part: fn(&CpuCost) -> f64| cost(cost_unit, row.end(role).cpu.as_ref().map(part));
            let parts = [of(|c| c.user), of(|c| c.system), of(|c| c.softirq), of(|c| c.total.mean)];
            cells.extend(parts.map(Cell::from));
        }
        let total = Cell::from(cost(cost_unit, mean(&row.cpu_per_unit)));
        cells.push(total.strong_if(row.baseline));
        cells.extend(Cell::comparison(row, row.comparison(view.analysis.cost())));
        cells
    };
    let table = Table::rows(columns, rows.iter().map(cells));
    let marks = rows.iter().map(|row| bars(row, cost_unit));
    Figure { key, ..Figure::rows(caption, table, (scale, HEIGHT), marks) }
}

/// Draws the bars of both ends of a row, with the kinds of CPU time side by side.
fn bars(row: &Row, cost_unit: Cost) -> Vec<Mark> {
    let scale = cost_unit.scale;
    let mut marks = Vec::new();
    for (role, top, bottom) in BARS {
        let Some(c) = &row.end(role).cpu else { continue };
        let end = row.work.actor(role);
        let mut from = 0.0;
        for ((class, name), part) in KINDS.iter().zip([c.user, c.system, c.softirq, c.unsplit]) {
            if part > 0.0 && part.is_finite() {
                let bar = Mark::bar(class, (from * scale, top), ((from + part) * scale, bottom));
                marks.push(bar.tip(format!(
                    "{end}, {name}: {} {}",
                    cost(cost_unit, part),
                    cost_unit.unit
                )));
                from += part;
            }
        }
    }
    marks
}

/// Builds the table of the figures behind the bars.
fn parts(work: Work, cost_unit: Cost, rows: &[&Row]) -> Table {
    let titles = ["user", "system", "softirq", "unattributed", "total", "sd", "CPUs busy"];
    let titles = titles.into_iter().chain(["iowait", "not its threads"]);
    let columns = [Column::path(), Column::words("role", 0, None)].into_iter();
    let columns = columns.chain(titles.map(|title| Column::number("", title, 0)));
    let ends = rows.iter().flat_map(|row| Role::ALL.map(|role| (row, role)));
    let cells = ends.filter_map(|(row, role)| {
        let c = row.end(role).cpu.as_ref()?;
        let mut texts = vec![row.cell.to_string(), work.actor(role).to_owned()];
        let parts = [c.user, c.system, c.softirq, c.unsplit, c.total.mean];
        texts.extend(parts.map(|part| cost(cost_unit, part)));
        texts.extend([
            percent(c.total.relative_stddev()),
            number(c.cores.mean, 2),
            percent(c.iowait),
            percent(c.other),
        ]);
        Some(texts)
    });
    Table::rows(columns, cells).folded("The same in numbers")
}
