//! Where frames went: a line for each cell, and in a mail a chart.

use super::view::{View, mean};
use crate::document::{Block, Cell, Column, Media, Section, Table, Tone};
use crate::render::plain::MAIL_WIDTH;
use crate::wording::ascii::{plain, wrap};
use crate::wording::figures::{NONE, kpps, percent, plural};
use crate::wording::setup;
use bytepath_record::{
    self as record, CellId, LinkSettings, Placement, Study, TapSettings, distinct, grouped,
};
use bytepath_stats::{Analysis, HopsRow, Row, Summary};
use std::collections::HashSet;

/// How to read the table.
const RULE: &str = "Rates of all threads together; 'a thread' is the received rate by each generator. Losses are \
     shares of what was generated, at the sink including those on the wire and in its device's driver; queued \
     frames were in a queue at the end. The rate is bound by \
     the generator if that has no time left (97 % of a CPU) and less than 1 % is lost: a faster \
     one would achieve more.";

/// Shows where frames went.
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

/// Returns the received rate per generator thread.
fn of_a_thread(row: &HopsRow) -> Option<f64> {
    mean(&row.received).map(|rate| rate / f64::from(row.threads[0]))
}

fn lost(row: &HopsRow, count: u64) -> Cell {
    if count == 0 { "0".into() } else { percent(row.share(count)).into() }
}

fn busy(row: &HopsRow, end: usize) -> Cell {
    percent(mean(&row.busy[end])).into()
}

/// Widths of the columns for the sink and for the figure.
const WIDTHS: [usize; 2] = [9, 11];

/// Most variants side by side, and the column width if there are only one or two.
const SIDE_BY_SIDE: usize = 3;
const WIDE: usize = 13;

/// Shows the packet rates as charts for a mail to a kernel list: what was transmitted and what was
/// lost, by sink, with the variants of everything else side by side. There is one chart for each
/// number of generating threads.
pub(crate) fn charts(view: &View) -> Section {
    lines(blocks(view.study, view.analysis))
}

/// Creates a section of text blocks for a mail.
pub(super) fn lines(blocks: Vec<Vec<String>>) -> Section {
    let line = |line: String| Block::Line(vec![(line, Tone::Plain)]);
    let block = |block: Vec<String>| [Block::Gap].into_iter().chain(block.into_iter().map(line));
    blocks.into_iter().flat_map(block).fold(Section::new("", "").on(Media::MAIL), Section::with)
}

fn blocks(study: &Study, analysis: &Analysis) -> Vec<Vec<String>> {
    let places = places(study, analysis);
    let mut blocks = Vec::new();
    for threads in distinct(places.iter().map(|place| place.hops.threads[0])) {
        let here = places.iter().filter(|place| place.hops.threads[0] == threads);
        let here: Vec<&ChartPosition> = here.collect();
        let columns = distinct(here.iter().map(|place| place.column.clone()));
        let groups = columns.chunks(SIDE_BY_SIDE);
        blocks.extend(groups.map(|columns| block(study, &here, columns, threads)));
    }
    blocks
}

/// The position of a cell's figures; it is unique.
struct ChartPosition<'a> {
    cell: &'a record::Cell,
    hops: &'a HopsRow,
    /// The name of its rows: the sink.
    row: String,
    /// The lines of its column's heading: everything else that differs.
    column: Vec<String>,
}

fn places<'a>(study: &'a Study, analysis: &'a Analysis) -> Vec<ChartPosition<'a>> {
    let outcome = |row: &'a Row| {
        let cell = study.header.cells.iter().find(|c| c.id == row.cell)?;
        Some((cell, row.hops.as_ref()?))
    };
    let outcomes: Vec<(&record::Cell, &HopsRow)> =
        analysis.rows.iter().filter_map(outcome).collect();
    let generators = distinct(outcomes.iter().map(|(cell, _)| &cell.tx)).len();
    let place = |(cell, hops): (&'a record::Cell, &'a HopsRow)| ChartPosition {
        cell,
        hops,
        row: sink(cell, generators),
        column: variant(cell),
    };
    let mut places: Vec<ChartPosition> = outcomes.into_iter().map(place).collect();
    // Distinguish other cells by the parts of their names that differ.
    let keys: HashSet<&str> = shared(&places).into_iter().flat_map(differing).collect();
    for place in &mut places {
        let words = parts(&place.cell.id).filter(|part| keys.contains(key(part)));
        place.column.extend(words.map(str::to_owned));
    }
    // As a last resort, by their full names, which are unique.
    for ids in shared(&places) {
        let these = places.iter_mut().filter(|place| ids.contains(&&place.cell.id));
        these.for_each(|place| place.column.push(place.cell.id.to_string()));
    }
    places
}

/// Returns the cells of each position that has more than one.
fn shared<'a>(places: &[ChartPosition<'a>]) -> Vec<Vec<&'a CellId>> {
    let of = |place: &ChartPosition<'a>| {
        let key = (place.hops.threads[0], place.row.clone(), place.column.clone());
        (key, &place.cell.id)
    };
    let groups = grouped(places.iter().map(of)).into_iter().map(|(_, ids)| ids);
    groups.filter(|ids| ids.len() > 1).collect()
}

/// Returns the options by which these names differ.
fn differing(ids: Vec<&CellId>) -> Vec<&str> {
    let has = |id: &CellId, part: &str| parts(id).any(|other| other == part);
    let options = ids.iter().flat_map(|id| parts(id)).filter(|part| part.contains('='));
    options.filter(|part| !ids.iter().all(|id| has(id, part))).map(key).collect()
}

/// Splits a name: `packet`, `bypass=on`, `tap`, `packets`, `burst=32`, `cores=none`.
fn parts(CellId(id): &CellId) -> impl Iterator<Item = &str> {
    id.split([' ', ',', ':', '+'])
}

fn key(part: &str) -> &str {
    part.split('=').next().unwrap_or(part)
}

/// Returns the variant in the established wording of such mails, as lines of a heading.
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

/// Returns the sink in the wording of such mails; with the generator, unless all have the same.
fn sink(cell: &record::Cell, generators: usize) -> String {
    let tap = if cell.link.tap.is_some_and(|tap| tap.macvtap) { "MACVTAP" } else { "TAP" };
    let sink = match (cell.rx.path.as_str(), cell.rx.options.word("by")) {
        ("tap", "" | "read") => tap.to_owned(),
        ("tap", by) => format!("{tap} {by}"),
        ("vhost", _) => format!("{tap} + vhost-net"),
        (other, _) => match cell.link.tap.filter(|tap| tap.guest) {
            Some(TapSettings { vhost: true, .. }) => format!("{tap} + vhost-net, guest {other}"),
            Some(_) => format!("{tap}, guest {other}"),
            None => other.to_owned(),
        },
    };
    if generators < 2 {
        return sink;
    }
    let bypass = if cell.tx.options.flag("bypass") { ", bypass" } else { "" };
    format!("{sink} {}{bypass}", cell.tx.path)
}

fn block(
    study: &Study,
    places: &[&ChartPosition],
    columns: &[Vec<String>],
    threads: u32,
) -> Vec<String> {
    let [first, second] = WIDTHS;
    let whole = first + second + 3;
    let wide = ((MAIL_WIDTH - whole - 4) / columns.len().max(1)).saturating_sub(3).min(WIDE);
    let rule = |left: &[usize]| {
        let all = left.iter().copied().chain(columns.iter().map(|_| wide));
        all.fold("+".to_owned(), |line, width| line + &"-".repeat(width + 2) + "+")
    };
    let line = |left: &[(&str, usize)], right: &[&str]| {
        let all = left.iter().copied().chain(right.iter().map(|text| (*text, wide)));
        all.fold("|".to_owned(), |line, (text, width)| line + &format!(" {text:<width$} |"))
    };
    let head = title(study, places, threads, whole);
    let heads: Vec<Vec<String>> = columns
        .iter()
        .map(|words| words.iter().flat_map(|word| wrap(&plain(word), wide)).collect())
        .collect();
    let high = heads.iter().map(Vec::len).max().unwrap_or(0).max(head.len());
    let mut lines = vec![rule(&[whole])];
    for at in 0..high {
        let right: Vec<&str> = heads.iter().map(|lines| nth(lines, at)).collect();
        lines.push(line(&[(nth(&head, at), whole)], &right));
    }
    for name in distinct(places.iter().map(|place| &place.row)) {
        let of = |column: &Vec<String>| {
            places.iter().find(|place| place.row == *name && place.column == *column)
        };
        let hops: Vec<Option<&HopsRow>> =
            columns.iter().map(|column| of(column).map(|place| place.hops)).collect();
        if hops.iter().all(Option::is_none) {
            continue;
        }
        let rows = figures(study, &hops, threads);
        let name = wrap(name, first);
        lines.push(rule(&[first, second]));
        for at in 0..rows.len().max(name.len()) {
            let (what, right) =
                rows.get(at).cloned().unwrap_or(("", vec![String::new(); columns.len()]));
            let right: Vec<&str> = right.iter().map(String::as_str).collect();
            lines.push(line(&[(nth(&name, at), first), (what, second)], &right));
        }
    }
    lines.push(rule(&[first, second]));
    lines
}

fn nth(lines: &[String], at: usize) -> &str {
    lines.get(at).map_or("", String::as_str)
}

/// Returns the figures of a sink, each in every column.
fn figures(
    study: &Study,
    hops: &[Option<&HopsRow>],
    threads: u32,
) -> Vec<(&'static str, Vec<String>)> {
    let figure = |of: &dyn Fn(&HopsRow) -> String| -> Vec<String> {
        hops.iter().map(|hops| hops.map_or(NONE.into(), of)).collect()
    };
    let rate = |rate: Option<Summary>, threads: u32| {
        format!("{} Kpps", kpps(rate.map(|rate| rate.mean / f64::from(threads))))
    };
    // Losses are valid even if no speed was measured.
    if study.header.functional.is_some() {
        return vec![
            ("Transmitted", figure(&|row| row.hops.received.to_string())),
            ("Lost", figure(&|row| row.hops.lost().to_string())),
        ];
    }
    let mut rows = vec![("Transmitted", figure(&|row| rate(row.received, 1)))];
    if threads > 1 {
        rows.push(("a thread", figure(&|row| rate(row.received, threads))));
    }
    rows.push(("Lost", figure(&|row| rate(row.lost, 1))));
    rows
}

/// Returns machine, frames, threads and placement.
fn title(study: &Study, places: &[&ChartPosition], threads: u32, width: usize) -> Vec<String> {
    let cells: Vec<&record::Cell> = places.iter().map(|place| place.cell).collect();
    let machine = study.header.facts.first().map(|facts| facts.cpu_model.as_str());
    let count =
        setup::common(&cells, |cell| &cell.workload).and_then(|w| w.options.number("count"));
    let parts = [
        machine.unwrap_or_default().to_owned(),
        count.map_or(String::new(), |count| format!("{count} packets")),
        plural(threads.into(), "generating thread"),
        pinned(&cells),
        study.header.functional.as_ref().map_or("", |_| "emulated: counts").to_owned(),
    ];
    let parts = parts.iter().filter(|part| !part.is_empty());
    parts.flat_map(|part| wrap(&plain(part), width)).collect()
}

/// Returns whether the ends are pinned: one word if both are alike. The sink of vhost-net is its
/// worker.
fn pinned(cells: &[&record::Cell]) -> String {
    let word = |is_pinned: fn(&record::Cell) -> bool| match cells
        .iter()
        .filter(|cell| is_pinned(cell))
        .count()
    {
        0 => "not pinned",
        pinned if pinned == cells.len() => "pinned",
        _ => "pinned in some",
    };
    let generator = word(|cell| cell.placement.sender.is_some());
    let sink = word(|cell| {
        let is_worker = cell.rx.path == "vhost" || cell.link.tap.is_some_and(|tap| tap.vhost);
        let Placement { receiver, vhost, .. } = cell.placement;
        if is_worker { vhost.is_some() } else { receiver.is_some() }
    });
    if generator == sink && generator != "pinned in some" {
        return generator.to_owned();
    }
    format!("generator {generator}; sink {sink}")
}
