//! Where the kernel's receive work ran, and which parts of the work shared a CPU.

use super::view::View;
use crate::document::{List, Section};
use crate::wording::figures::percent;
use bytepath_record::{grouped, joined};
use bytepath_stats::{Analysis, ReceiveWork, Row};

pub(crate) fn section(view: &View) -> Section {
    let has_work = view.analysis.rows.iter().any(|row| row.receive_work.is_some());
    let list = List::of_cells(lines(view.analysis));
    Section::new("placement", "Where it ran").with(list).note(if has_work { RULE } else { "" })
}

/// Returns every placement with the CPUs that its receive work ran on. Cells with the same
/// requested CPU share a line, with the means of their parts.
fn lines(analysis: &Analysis) -> Vec<(String, String)> {
    let rows = analysis.rows.iter();
    let rows = rows.filter(|row| row.receive_work.is_some() || !row.collisions.is_empty());
    let requested = |row: &Row| row.receive_work.as_ref().map(|work| work.asked.clone());
    let groups = grouped(rows.map(|row| ((requested(row), &row.collisions, placement(row)), row)));
    let alone = groups.len() == 1;
    groups.iter().map(|(_, group)| placed(group, alone)).collect()
}

fn placed(group: &[&Row], alone: bool) -> (String, String) {
    let cells = match group {
        [one] => one.cell.to_string(),
        _ if alone => "all cells".to_owned(),
        several => format!("{} cells", several.len()),
    };
    let at = |work: fn(&Row) -> &Option<ReceiveWork>| {
        let works: Vec<&ReceiveWork> = group.iter().filter_map(|row| work(row).as_ref()).collect();
        Some((*works.first()?, ReceiveWork::mean(&works)))
    };
    let ends = [
        ("softirq of the sender", at(|row| &row.sender_work)),
        ("softirq", at(|row| &row.receive_work)),
    ];
    let ran = |(what, works): (&str, Option<Works>)| {
        let (first, cpus) = works?;
        let of_cpu = |(cpu, part): &(u32, f64)| format!("CPU {cpu}: {}", percent(*part));
        let ran = joined(cpus.iter().filter(|(_, part)| *part >= 0.001).map(of_cpu), ", ");
        let request = match &first.asked[..] {
            [] => "left free".to_owned(),
            [cpu] => format!("requested: CPU {cpu}"),
            several => format!("requested: CPUs {} in turn", joined(several, ", ")),
        };
        let sender = match &first.asked_of_sender[..] {
            of_sender if of_sender == first.asked => String::new(),
            [] => String::new(),
            [cpu] => format!(", CPU {cpu} for the sender"),
            several => format!(", CPUs {} in turn for the sender", joined(several, ", ")),
        };
        Some(format!("{what} ran on {ran}; {request}{sender}"))
    };
    let mut parts: Vec<String> = ends.into_iter().filter_map(ran).collect();
    if let Some(first) = group.first() {
        parts.extend(first.collisions.iter().cloned());
    }
    (cells, parts.join("; "))
}

/// The first of the cells' receive work, and the parts of all by CPU.
type Works<'a> = (&'a ReceiveWork, Vec<(u32, f64)>);

/// Returns the part of a cell's id that names its placement.
fn placement(row: &Row) -> Option<&str> {
    row.cell.0.split(' ').find(|level| level.starts_with("cores="))
}

/// A note on what the figures are parts of.
const RULE: &str = "softirq: time in softirqs (by ticks, of any device) and in the threads \
                        that poll for the receiver's device (by their run time).";
