//! Pilots: short trials in a closed loop, before the first block, that find the peak of each cell
//! whose load is a fraction of it. They do not count as trials.
//!
//! Cells that differ only in their paths get the same rate, a fraction of the lowest peak among
//! them, so that each can carry it. Rates are stored before the first trial, so that a resumed
//! study uses the same.

use super::progress::CompletedTrials;
use super::run::{Run, judged, lost_peer};
use super::trial::empty_trial;
use bytepath_record::{
    Cell, CellId, Design, Fault, Half, Load, Peak, Schedule, Study, Trial, TrialStatus, grouped,
};
use bytepath_spec as spec;
use std::time::Duration;

/// Pilots of a cell, whose median is its peak.
const PILOTS: u32 = 3;

/// The most pilots that are run of a cell, if some are rejected or fail.
const MOST_PILOTS: u32 = 2 * PILOTS;

/// Longest window of a pilot, seconds.
const WINDOW: f64 = 1.0;

/// The pilots of a study, not counting those that replace rejected ones.
pub(crate) struct PilotTrials {
    pub(crate) trials: usize,
    pub(crate) seconds_each: f64,
}

impl PilotTrials {
    pub(crate) fn of<'c>(
        schedule: &Schedule,
        cells: impl IntoIterator<Item = &'c Cell>,
    ) -> PilotTrials {
        let schedule = of_pilots(schedule);
        let seconds_each = schedule.warm_up + schedule.window;
        PilotTrials { trials: tried(cells).len() * PILOTS as usize, seconds_each }
    }

    /// Returns the pilots that a study still lacks.
    pub(super) fn missing(study: &Study) -> PilotTrials {
        let cells = study.header.cells.iter();
        let is_known = !study.header.loads.is_empty();
        PilotTrials::of(&study.header.schedule, cells.filter(|_| !is_known))
    }

    /// Returns how long the streams of all pilots flow, seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.trials as f64 * self.seconds_each
    }
}

fn of_pilots(schedule: &Schedule) -> Schedule {
    Schedule {
        blocks: PILOTS,
        window: schedule.window.min(WINDOW),
        design: Design::Trials,
        stopping: None,
        budget: None,
        until_sure: false,
        ..schedule.clone()
    }
}

/// Returns the closed-loop versions of the cells whose peaks are needed, each once, whatever
/// fraction is requested.
fn tried<'c>(cells: impl IntoIterator<Item = &'c Cell>) -> Vec<Cell> {
    let cells = cells.into_iter().filter(|cell| cell.part_of_peak().is_some());
    let groups = grouped(cells.map(|cell| (nameless(cell.at_peak()), cell)));
    groups.iter().map(|(_, same)| same[0].at_peak()).collect()
}

/// Returns the cell without its names, to compare it with others.
fn nameless(cell: Cell) -> Cell {
    Cell { id: CellId::default(), levels: Default::default(), null: false, ..cell }
}

/// Returns what cells that share a load have in common: everything but names and paths.
fn without_paths(cell: &Cell) -> Cell {
    Cell { tx: Half::default(), rx: Half::default(), ..nameless(cell.clone()) }
}

/// Returns the cell as agents get it, with its rate as a number.
pub(super) fn at_load(cell: &Cell, loads: &[Load]) -> Result<Cell, Fault> {
    if cell.part_of_peak().is_none() {
        return Ok(cell.clone());
    }
    let load = loads.iter().find(|load| load.cells.contains(&cell.id));
    let text = || format!("the rate of '{}' is a part of a peak that is not known", cell.id);
    let load = load.ok_or_else(|| Fault::failed(text()).remedy("report this as a bug"))?;
    Ok(cell.at_rate(load.rate))
}

/// Returns the pilots' results for a cell.
fn of<'f>(cell: &Cell, found: &'f [Found]) -> Option<&'f Found> {
    let wanted = nameless(cell.at_peak());
    found.iter().find(|one| one.cell == wanted)
}

/// Computes the loads from the pilots' results. A cell without a peak gets none.
fn loads(cells: &[Cell], found: &[Found]) -> Vec<Load> {
    let with_peak = |cell: &Cell| {
        let found = of(cell, found).filter(|found| !found.rates.is_empty())?;
        let peak = Peak { cell: cell.id.clone(), pilots: found.rates.clone() };
        Some((without_paths(cell), (cell.part_of_peak()?, cell.clone(), peak)))
    };
    let load = |(_, same): (Cell, Vec<(u64, Cell, Peak)>)| {
        let ids = same.iter().map(|(_, cell, _)| cell.id.clone()).collect();
        let peaks = same.iter().filter(|(_, cell, _)| !cell.null).map(|(_, _, peak)| peak.clone());
        Load::new(same.first()?.0, ids, peaks.collect())
    };
    grouped(cells.iter().filter_map(with_peak)).into_iter().filter_map(load).collect()
}

impl Run<'_, '_> {
    /// Finds and stores the rates that are fractions of a peak, unless the study has them.
    pub(super) fn find_loads(&mut self) -> Result<(), Fault> {
        let header = self.study.header.clone();
        let unable = CompletedTrials::of(&self.study).unable;
        let able = |cell: &&Cell| !unable.contains(&cell.id);
        let cells: Vec<Cell> = header.cells.iter().filter(able).cloned().collect();
        let tried = tried(&cells);
        if tried.is_empty() || !header.loads.is_empty() {
            return Ok(());
        }
        let schedule = of_pilots(&header.schedule);
        let each = Duration::from_secs_f64(schedule.warm_up + schedule.window);
        self.observer.pilots_begin(tried.len() * PILOTS as usize, each);
        let found = self.pilots(&tried, &schedule)?;
        let loads = loads(&cells, &found);
        for cell in cells.iter().filter(|cell| cell.part_of_peak().is_some()) {
            if !loads.iter().any(|load| load.cells.contains(&cell.id)) {
                let why = of(cell, &found).and_then(|found| found.why.clone());
                self.note_without_peak(cell, &why.unwrap_or_default())?;
            }
        }
        self.writer.loads(&loads)?;
        let remarks: Vec<String> = loads.iter().map(ToString::to_string).collect();
        self.study.header.loads = loads;
        remarks.into_iter().try_for_each(|remark| self.announce(remark))
    }

    /// Runs the pilots of these cells: as in blocks, every cell once in random order, then every
    /// cell again.
    fn pilots(&mut self, cells: &[Cell], schedule: &Schedule) -> Result<Vec<Found>, Fault> {
        let meters = self.meters_that_count();
        let mut all: Vec<Found> = cells.iter().map(Found::of).collect();
        let (mut done, mut total) = (0, cells.len() * PILOTS as usize);
        for (turn, at) in spec::order(cells.len(), MOST_PILOTS, schedule.seed) {
            if all[at].rates.len() as u32 == PILOTS {
                continue;
            }
            let cell = &cells[at];
            done += 1;
            total = total.max(done);
            self.observer.pilot_begins(done, total, &cell.id);
            let position = self.position(turn);
            let mut trial = self.runner(&meters, schedule).run(cell, position)?;
            self.wait_for_host(lost_peer(&trial))?;
            self.wait_for_link(&trial)?;
            self.watch_host(std::slice::from_mut(&mut trial))?;
            let functional = self.study.header.functional.is_some();
            let trial = judged(trial, cell, schedule, functional, &[]);
            self.observer.pilot_ends(done, total, &trial);
            all[at].enter(&trial);
        }
        Ok(all)
    }

    /// Records that a cell without a peak cannot run.
    fn note_without_peak(&mut self, cell: &Cell, why: &str) -> Result<(), Fault> {
        let reason = format!("its peak was not found in {MOST_PILOTS} pilots: {why}");
        let remedy = "choose a rate as a number".to_owned();
        if cell.id == self.study.header.baseline {
            return Err(Fault::failed(format!("path {}: {reason}", cell.id)).remedy(remedy));
        }
        let status = TrialStatus::Unavailable { reason, remedy };
        let row = Trial { status, ..empty_trial(cell, self.position(0)) };
        self.store(vec![row])
    }
}

/// Results of the pilots of a cell.
struct Found {
    cell: Cell,
    /// Exchanges per second of each valid pilot.
    rates: Vec<f64>,
    /// Why the last invalid pilot is invalid.
    why: Option<String>,
}

impl Found {
    fn of(cell: &Cell) -> Found {
        Found { cell: nameless(cell.clone()), rates: Vec::new(), why: None }
    }

    fn enter(&mut self, pilot: &Trial) {
        match (&pilot.status, pilot.rate()) {
            (TrialStatus::Measured, Some(rate)) if rate > 0.0 => self.rates.push(rate),
            (TrialStatus::Rejected { events }, _) => self.why = events.first().cloned(),
            (TrialStatus::Failed { fault }, _) => self.why = Some(fault.to_string()),
            _ => self.why = Some("it exchanged nothing".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::OptionValue;

    fn cell(rx: &str, rate: &str, flows: u32) -> Cell {
        let mut cell = Cell::new(
            format!("epoll+{rx} rr:rate={rate} flows={flows}"),
            Half::plain("epoll"),
            Half::plain(rx),
        );
        cell.workload.name = "rr".into();
        cell.workload.options.0.insert("rate".into(), OptionValue::Word(rate.into()));
        cell.stream.flows = flows;
        cell
    }

    #[test]
    fn cells_that_differ_in_nothing_but_their_paths_have_the_same_load() {
        let mut again = cell("epoll", "70%", 16);
        (again.id, again.null) = (CellId("again".into()), true);
        let cells = [
            cell("epoll", "70%", 16),
            again,
            cell("uring-loop", "70%", 16),
            cell("epoll", "50%", 16),
            cell("epoll", "70%", 256),
            cell("epoll", "auto", 16),
            cell("poll", "70%", 16),
        ];
        let tried = tried(&cells);
        assert_eq!(tried.len(), 4, "another part of the same peak needs no other pilot: {tried:?}");
        assert!(tried.iter().all(|cell| cell.workload.options.word("rate") == "auto"));
        // `poll` has no peak.
        let rates = [1000.0, 2000.0, 500.0].map(|rate| vec![rate]).into_iter().chain([Vec::new()]);
        let found = tried.iter().zip(rates).map(|(cell, rates)| Found { rates, ..Found::of(cell) });
        let loads = loads(&cells, &found.collect::<Vec<_>>());
        let found: Vec<_> =
            loads.iter().map(|load| (load.rate, load.cells.len(), load.peaks.len())).collect();
        assert_eq!(found, [(700, 3, 2), (500, 1, 1), (350, 1, 1)]);
        let rate =
            |at: usize| at_load(&cells[at], &loads).map(|c| c.workload.options.number("rate"));
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|at| rate(at).unwrap()),
            [Some(700), Some(700), Some(700), Some(500), Some(350), None]
        );
        assert!(rate(6).unwrap_err().message.contains("epoll+poll"));
    }
}
