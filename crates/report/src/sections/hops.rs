//! Where frames went: a line for each cell, and of a mail a chart.

use super::view::{View, mean};
use crate::document::{Block, Cell, Column, Media, Section, Table, Tone};
use crate::wording::ascii::{plain, wrap};
use crate::wording::figures::{NONE, number, percent, plural};
use crate::wording::setup;
use bytepath_record::{self as record, LinkSettings, Study, distinct};
use bytepath_stats::{Analysis, HopsRow, Row, Summary};

/// How to read the table.
const RULE: &str = "Rates of all threads together; 'a thread' is the received rate by each generator. Losses are \
     shares of what was generated, at the sink including those on the wire and in its device's driver; queued \
     frames were in a queue at the end. The rate is bound by \
     the generator if that has no time left (97 % of a CPU) and less than 1 % is lost: a faster \
     one would achieve more.";

/// Where frames went.
pub(crate) fn section(view: &View) -> Section {
    let rows = view.rows.iter().filter_map(|row| Some((*row, row.hops.as_ref()?)));
    let table = Table::of(
        rows,
        [
            (Column::path(), |(row, _)| Cell::path(row)),
            (Column::number("Kpps", "generated", 0), |(_, h)| kpps(mean(&h.generated)).into()),
            (Column::number("Kpps", "received", 0), |(_, h)| kpps(mean(&h.received)).into()),
            (Column::number("Kpps", "a thread", 0), |(_, h)| kpps(of_a_thread(h)).into()),
            (Column::number("Kpps", "lost", 0), |(_, h)| kpps(mean(&h.lost)).into()),
            (Column::number("lost at", "qdisc", 0), |(_, h)| lost(h, h.hops.qdisc_dropped)),
            (Column::number("lost at", "device", 0), |(_, h)| lost(h, h.hops.device_dropped)),
            (Column::number("lost at", "sink", 0), |(_, h)| {
                lost(h, h.hops.wire_dropped + h.hops.arrival_dropped + h.hops.sink_dropped)
            }),
            (Column::number("", "queued", 0), |(_, h)| h.hops.queued().to_string().into()),
            (Column::number("CPU of a thread", "generator", 0), |(_, h)| busy(h, 0)),
            (Column::number("CPU of a thread", "sink", 0), |(_, h)| busy(h, 1)),
            (Column::number("", "bound by", 0), |(_, h)| h.bound.word().into()),
        ],
    );
    let media = Media::TERMINAL.or(Media::PAGE);
    Section::new("hops", "Where the frames went").on(media).with(table).note(RULE)
}

/// The received rate by each generator.
fn of_a_thread(row: &HopsRow) -> Option<f64> {
    mean(&row.received).map(|rate| rate / f64::from(row.threads[0]))
}

fn lost(row: &HopsRow, count: u64) -> Cell {
    if count == 0 { "0".into() } else { percent(row.share(count)).into() }
}

fn busy(row: &HopsRow, end: usize) -> Cell {
    percent(mean(&row.busy[end])).into()
}

/// Frames a second in thousands: `1330`, `71.3`, `0`.
fn kpps(rate: Option<f64>) -> String {
    let kpps = rate.map(|rate| rate / 1e3);
    let decimals = match kpps {
        Some(rate) if rate > 0.0 && rate < 9.995 => 2,
        Some(rate) if rate > 0.0 && rate < 99.95 => 1,
        _ => 0,
    };
    number(kpps, decimals)
}

/// Width of the columns of the block: of the sink, of the figure, and of each variant.
const WIDTHS: [usize; 3] = [9, 11, 13];

/// Variants side by side: as many as a mail's 72 columns hold.
const SIDE_BY_SIDE: usize = 3;

/// The packet rates as charts for a mail to a kernel list: what was transmitted and
/// what was lost, by sink, and side by side the variants of link and kernel. One chart for
/// each number of generating threads.
pub(crate) fn charts(view: &View) -> Section {
    lines(blocks(view.study, view.analysis))
}

/// Blocks of lines for a mail.
pub(super) fn lines(blocks: Vec<Vec<String>>) -> Section {
    let line = |line: String| Block::Line(vec![(line, Tone::Plain)]);
    let block = |block: Vec<String>| [Block::Gap].into_iter().chain(block.into_iter().map(line));
    blocks.into_iter().flat_map(block).fold(Section::new("", "").on(Media::MAIL), Section::with)
}

fn blocks<'a>(study: &'a Study, analysis: &'a Analysis) -> Vec<Vec<String>> {
    let outcome = |row: &'a Row| {
        let cell = study.header.cells.iter().find(|c| c.id == row.cell)?;
        Some((cell, row.hops.as_ref()?))
    };
    let outcomes: Vec<FrameOutcome> = analysis.rows.iter().filter_map(outcome).collect();
    let mut blocks = Vec::new();
    for threads in distinct(outcomes.iter().map(|(_, hops)| hops.threads[0])) {
        let here = outcomes.iter().filter(|(_, hops)| hops.threads[0] == threads);
        let here: Vec<FrameOutcome> = here.copied().collect();
        let variants = distinct(here.iter().map(|(cell, _)| variant(cell)));
        let groups = variants.chunks(SIDE_BY_SIDE);
        blocks.extend(groups.map(|group| block(study, &here, group, threads)));
    }
    blocks
}

/// A cell and the outcome of its frames.
type FrameOutcome<'a> = (&'a record::Cell, &'a HopsRow);

/// Everything side by side, in lines of a head.
fn variant(cell: &record::Cell) -> Vec<String> {
    let LinkSettings { qdisc, tap, queue_length, .. } = &cell.link;
    let qdisc = if qdisc == "none" { "noqueue" } else { qdisc };
    let mut lines = vec![qdisc.to_owned()];
    lines.extend(tap.map(|tap| match tap.backpressure {
        true => "backpressure".to_owned(),
        false => "stock".to_owned(),
    }));
    lines.extend(tap.filter(|tap| tap.uso).map(|_| "uso".to_owned()));
    lines.extend(queue_length.map(|packets| format!("queue {packets}")));
    let queues = tap.map_or(1, |tap| tap.queues);
    lines.extend((queues > 1).then(|| plural(queues.into(), "queue")));
    lines.extend(cell.kernel.as_ref().map(|kernel| kernel.name.clone()));
    lines
}

/// The sink in the words of such mails; with the generator, where not all have the same.
fn sink(cell: &record::Cell, generators: usize) -> String {
    let tap = if cell.link.tap.is_some_and(|tap| tap.macvtap) { "MACVTAP" } else { "TAP" };
    let sink = match (cell.rx.path.as_str(), cell.rx.options.word("by")) {
        ("tap", "" | "read") => tap.to_owned(),
        ("tap", by) => format!("{tap} {by}"),
        ("vhost", _) => format!("{tap} + vhost-net"),
        (other, _) => other.to_owned(),
    };
    if generators < 2 {
        return sink;
    }
    let bypass = if cell.tx.options.flag("bypass") { ", bypass" } else { "" };
    format!("{sink} {}{bypass}", cell.tx.path)
}

fn block(
    study: &Study,
    outcomes: &[FrameOutcome],
    variants: &[Vec<String>],
    threads: u32,
) -> Vec<String> {
    let [first, second, wide] = WIDTHS;
    let rule = |left: &[usize]| {
        let all = left.iter().copied().chain(variants.iter().map(|_| wide));
        all.fold("+".to_owned(), |line, width| line + &"-".repeat(width + 2) + "+")
    };
    let line = |left: &[(String, usize)], right: &[String]| {
        let all = left.iter().cloned().chain(right.iter().map(|text| (text.clone(), wide)));
        all.fold("|".to_owned(), |line, (text, width)| {
            let text: String = text.chars().take(width).collect();
            line + &format!(" {text:<width$} |")
        })
    };
    let whole = first + second + 3;
    let head = title(study, outcomes, threads, whole);
    let high = variants.iter().map(Vec::len).max().unwrap_or(0).max(head.len());
    let mut lines = vec![rule(&[whole])];
    for at in 0..high {
        let of = |lines: &Vec<String>| lines.get(at).cloned().unwrap_or_default();
        let right: Vec<String> = variants.iter().map(of).collect();
        lines.push(line(&[(of(&head), whole)], &right));
    }
    let generators = distinct(outcomes.iter().map(|(cell, _)| &cell.tx)).len();
    let sink = |cell: &record::Cell| sink(cell, generators);
    for name in distinct(outcomes.iter().map(|(cell, _)| sink(cell))) {
        let figure = |of: &dyn Fn(&HopsRow) -> String| -> Vec<String> {
            let text = |lines: &Vec<String>| {
                let is = |(cell, _): &&FrameOutcome| sink(cell) == name && variant(cell) == *lines;
                outcomes.iter().find(is).map_or(NONE.into(), |(_, hops)| of(hops))
            };
            variants.iter().map(text).collect()
        };
        let rate = |rate: Option<Summary>, threads: u32| {
            format!("{} Kpps", kpps(rate.map(|rate| rate.mean / f64::from(threads))))
        };
        // Where no speed was measured, losses are still true.
        let rows = match &study.header.functional {
            Some(_) => vec![
                ("Transmitted", figure(&|row| row.hops.received.to_string())),
                ("Lost", figure(&|row| row.hops.lost().to_string())),
            ],
            None => {
                let mut rows = vec![("Transmitted", figure(&|row| rate(row.received, 1)))];
                if threads > 1 {
                    rows.push(("a thread", figure(&|row| rate(row.received, threads))));
                }
                rows.push(("Lost", figure(&|row| rate(row.lost, 1))));
                rows
            }
        };
        let name = wrap(&name, first);
        lines.push(rule(&[first, second]));
        for at in 0..rows.len().max(name.len()) {
            let (what, right) = rows.get(at).cloned().unwrap_or_default();
            let left = [(name.get(at).cloned().unwrap_or_default(), first), (what.into(), second)];
            lines.push(line(&left, &right));
        }
    }
    lines.push(rule(&[first, second]));
    lines
}

/// Machine, frames, threads and placement.
fn title(study: &Study, outcomes: &[FrameOutcome], threads: u32, width: usize) -> Vec<String> {
    let cells: Vec<&record::Cell> = outcomes.iter().map(|(cell, _)| *cell).collect();
    let machine = study.header.facts.first().map(|facts| facts.cpu_model.as_str());
    let count =
        setup::common(&cells, |cell| &cell.workload).and_then(|w| w.options.number("count"));
    let pinned = cells.iter().all(|cell| cell.placement.sender.is_some());
    let parts = [
        machine.unwrap_or_default().to_owned(),
        count.map_or(String::new(), |count| format!("{count} packets")),
        plural(threads.into(), "generating thread"),
        if pinned { "pinned".to_owned() } else { "not pinned".to_owned() },
        study.header.functional.as_ref().map_or("", |_| "emulated: counts").to_owned(),
    ];
    let parts = parts.iter().filter(|part| !part.is_empty());
    parts.flat_map(|part| wrap(&plain(part), width)).collect()
}
