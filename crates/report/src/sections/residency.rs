//! How long every CPU of the machine rested in each idle state, whoever ran on it.

use super::details::shade;
use super::view::View;
use crate::document::{Cell, Column, Section, Table};
use crate::wording::figures::percent;
use bytepath_record::{Scope, Trial, Unit, distinct};
use bytepath_stats::{Row, Summary};

/// CPUs in a line.
const SIGNS: usize = 32;

/// A CPU and the part of the window that it was in a state, the mean over the trials.
type Share = (u32, f64);

pub(crate) fn section(view: &View) -> Section {
    let lines = view.rows.iter().flat_map(|row| {
        let trials = view.trials(row);
        let lines = states(trials).into_iter().map(move |metric| lines(row, metric, trials));
        lines.flatten().collect::<Vec<_>>()
    });
    let share = |title| Column::number("share of the window", title, 0);
    let columns = [
        Column::path(),
        Column::words("state", 0, None),
        Column::words("by", 2, None),
        Column::words("CPUs", 0, None),
        share("average"),
        share("least"),
        share("most"),
        Column::words("CPU by CPU", 1, None),
    ];
    let section = Section::new("residency", "Idle states of every CPU").in_detail();
    section.with(Table::rows(columns, lines)).note(
        "A sign for each CPU, from '_' for never in that state to '@' for all of the window. What \
         the kernel requested and what the hardware did are counted apart.",
    )
}

/// The metrics of all states, in the order in which the meter reports them.
fn states<'t>(trials: &[&'t Trial]) -> Vec<&'t str> {
    let readings = trials.iter().flat_map(|trial| &trial.readings);
    let shares = readings.filter(|r| r.unit == Unit::Ratio && r.metric.starts_with("cstate."));
    distinct(shares.map(|reading| reading.metric.as_str()))
}

/// A state of a cell: as many CPUs to a line as have room.
fn lines(row: &Row, metric: &str, trials: &[&Trial]) -> Vec<Vec<Cell>> {
    let state = metric.trim_start_matches("cstate.");
    let (state, by) = match state.strip_prefix("hw.") {
        Some(state) => (state, "done by the hardware"),
        None => (state, "requested (cpuidle)"),
    };
    let line = |cpus: &[Share]| {
        let all = Summary::of(cpus.iter().map(|(_, share)| *share));
        let figures = [all.map(|all| all.mean), all.map(|all| all.min), all.map(|all| all.max)];
        let signs: String = cpus.iter().map(|(_, share)| shade(*share)).collect();
        let words = [state, by].map(Cell::from).into_iter().chain([range(cpus).into()]);
        let figures = figures.map(|figure| Cell::from(percent(figure)));
        let cells = [Cell::path(row)].into_iter().chain(words).chain(figures);
        cells.chain([signs.into()]).collect()
    };
    shares(metric, trials).chunks(SIGNS).map(line).collect()
}

/// What each CPU had of a state, by number.
fn shares(metric: &str, trials: &[&Trial]) -> Vec<Share> {
    let measured = || trials.iter().filter(|trial| trial.rate().is_some());
    let readings = measured().flat_map(|trial| &trial.readings).filter(|r| r.metric == metric);
    let mut cpus = distinct(readings.filter_map(|reading| match reading.scope {
        Scope::Cpu(cpu) => Some(cpu),
        _ => None,
    }));
    cpus.sort_unstable();
    let share = |cpu: u32| {
        let of = measured().filter_map(|trial| trial.reading(metric, &Scope::Cpu(cpu)));
        Some((cpu, Summary::of(of)?.mean))
    };
    cpus.into_iter().filter_map(share).collect()
}

/// `0-31`, or each number where some are absent.
fn range(cpus: &[Share]) -> String {
    match cpus {
        [] => String::new(),
        [(only, _)] => only.to_string(),
        [(first, _), .., (last, _)] if (last - first) as usize + 1 == cpus.len() => {
            format!("{first}-{last}")
        }
        some => some.iter().map(|(cpu, _)| cpu.to_string()).collect::<Vec<_>>().join(","),
    }
}
