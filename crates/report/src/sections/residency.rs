//! Time that every CPU of the machine spent in each idle state, whatever ran on it.

use super::details::shade;
use super::view::View;
use crate::document::{Cell, Column, Figure, Mark, Media, Scale, Section, Table};
use crate::wording::figures::percent;
use bytepath_record::{Scope, Trial, Unit, distinct};
use bytepath_stats::{Row, Summary};

/// CPUs in a line of plain text; an HTML page has all of them in a row of this many pixels.
const SIGNS: usize = 32;
const HEIGHT: f64 = 28.0;

/// Width of a CPU's bar.
const BAR: f64 = 0.8;

/// A CPU and the part of the window that it spent in a state, the mean over the trials.
type Share = (u32, f64);

pub(crate) fn section(view: &View) -> Section {
    let section = Section::new("residency", "Idle states of every CPU").in_detail();
    let states: Vec<State> =
        view.rows.iter().flat_map(|row| states(row, view.trials(row))).collect();
    let last = states.iter().flat_map(|state| &state.shares).map(|(cpu, _)| *cpu).max();
    let Some(last) = last else { return section };
    let most = if view.medium == Media::PAGE { usize::MAX } else { SIGNS };
    let lines =
        states.iter().flat_map(|state| state.shares.chunks(most).map(|cpus| line(state, cpus)));
    let share = |title| Column::number("share of the window", title, 0);
    let columns = [
        Column::path(),
        Column::words("state", 0, None),
        Column::words("by", 2, None),
        Column::words("CPUs", 0, None),
        share("average"),
        share("least"),
        share("most"),
        Column::words("CPU by CPU", 1, None).on(Media::PLAIN),
    ];
    let caption = "A bar for each CPU, by its number: the part of the window that it was in that \
                   state, of the height of the row.";
    let scale = Scale::over([-BAR, f64::from(last) + BAR]);
    let table = Table::rows(columns, lines);
    let figure = Figure::rows(caption, table, (scale, HEIGHT), states.iter().map(bars));
    section
        .with(figure)
        .note_on(
            Media::PLAIN,
            "A sign for each CPU, from '_' for never in that state to '@' for all of the window.",
        )
        .note("What the kernel requested and what the hardware did are counted apart.")
}

/// An idle state in the trials of a cell.
struct State<'a> {
    row: &'a Row,
    name: &'a str,
    by: &'static str,
    shares: Vec<Share>,
}

/// Returns all states, in the order in which the meter reports them.
fn states<'a>(row: &'a Row, trials: &[&'a Trial]) -> Vec<State<'a>> {
    let readings = trials.iter().flat_map(|trial| &trial.readings);
    let of_states = readings.filter(|r| r.unit == Unit::Ratio && r.metric.starts_with("cstate."));
    let metrics = distinct(of_states.map(|reading| reading.metric.as_str()));
    let state = |metric: &'a str| {
        let name = metric.trim_start_matches("cstate.");
        let (name, by) = match name.strip_prefix("hw.") {
            Some(name) => (name, "done by the hardware"),
            None => (name, "requested (cpuidle)"),
        };
        State { row, name, by, shares: shares(metric, trials) }
    };
    metrics.into_iter().map(state).filter(|state| !state.shares.is_empty()).collect()
}

/// Returns the row of some CPUs in one state.
fn line(state: &State, cpus: &[Share]) -> Vec<Cell> {
    let all = Summary::of(cpus.iter().map(|(_, share)| *share));
    let figures = [all.map(|all| all.mean), all.map(|all| all.min), all.map(|all| all.max)];
    let signs: String = cpus.iter().map(|(_, share)| shade(*share)).collect();
    let words = [state.name, state.by].map(Cell::from).into_iter().chain([range(cpus).into()]);
    let figures = figures.map(|figure| Cell::from(percent(figure)));
    let cells = [Cell::path(state.row)].into_iter().chain(words).chain(figures);
    cells.chain([signs.into()]).collect()
}

/// Draws all CPUs in one state; the height of a bar is the CPU's share.
fn bars(state: &State) -> Vec<Mark> {
    let bar = |(cpu, share): &Share| {
        let (at, top) = (f64::from(*cpu), HEIGHT * (1.0 - Scale::shares().part(*share)));
        let bar = Mark::bar("free", (at - BAR / 2.0, top), (at + BAR / 2.0, HEIGHT));
        bar.tip(format!("CPU {cpu}, {}: {}", state.name, percent(*share)))
    };
    state.shares.iter().map(bar).collect()
}

/// Returns the share of each CPU in a state, by number.
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

/// Formats `0-31`, or each number if there are gaps.
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
