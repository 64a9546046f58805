//! The trials that count: block by block, each in random order.

use super::progress::{self, CompletedTrials, cells_to_run, stopped_early};
use super::run::{Countdown, Run, lost_peer};
use super::slices;
use super::trial::{TrialRunner, empty_trial};
use bytepath_meter::Chosen;
use bytepath_record::{Cell, CellId, Design, Fault, Trial, TrialStatus, unit};
use std::time::{Duration, Instant};

impl Run<'_, '_> {
    /// Runs what is missing of the blocks.
    pub(super) fn run_blocks(&mut self) -> Result<(), Fault> {
        let header = self.study.header.clone();
        let schedule = &header.schedule;
        let completed = CompletedTrials::of(&self.study);
        let total = completed.missing(&self.study);
        if total == 0 {
            return Ok(());
        }
        self.observer.begins(&header, total);
        self.observer.progressed(&self.study);
        let mut clock = Countdown { begin: Instant::now(), done: 0, total };
        let mut longest = Duration::ZERO;
        for (block, cells) in progress::blocks(&header) {
            let run = cells_to_run(&self.study);
            let missing =
                |cell: &&Cell| run.contains(&cell.id) && completed.is_missing(cell, block);
            let cells: Vec<&Cell> = cells.into_iter().filter(missing).collect();
            if cells.is_empty() {
                continue;
            }
            if self.shared.as_ref().is_some_and(|blocks| !blocks.take()) {
                break;
            }
            self.laboratory.testbed.begin_block();
            let begin = Instant::now();
            match schedule.design {
                Design::Trials => self.trials(&cells, block, &mut clock)?,
                Design::Slices { slice } => self.slices(&cells, slice, block, &mut clock)?,
            }
            longest = longest.max(begin.elapsed());
            self.observer.progressed(&self.study);
            if block + 1 == schedule.blocks || self.stop_early(&clock)? {
                break;
            }
            clock.total = clock.done + CompletedTrials::of(&self.study).missing(&self.study);
            let begin = Instant::now();
            self.profiles_between_blocks(clock.left())?;
            clock.begin += begin.elapsed();
            if let Some(time) = schedule.time_of_blocks()
                && (clock.begin.elapsed() + longest).as_secs_f64() > time
            {
                let whole = |seconds: f64| unit::seconds(Duration::from_secs(seconds as u64));
                let rest = match schedule.budget.map_or(0.0, |budget| budget.profiles) {
                    0.0 => String::new(),
                    kept => {
                        let pilots = if header.loads.is_empty() { "" } else { "pilots and " };
                        format!(" without the {} of {pilots}profiles", whole(kept))
                    }
                };
                return self.announce(format!(
                    "its time of {}{rest} was over after {} of {} blocks",
                    whole(time),
                    block + 1,
                    schedule.blocks
                ));
            }
        }
        Ok(())
    }

    /// Writes down which cells cannot run, and why.
    pub(super) fn note_unavailable(&mut self) -> Result<(), Fault> {
        let header = self.study.header.clone();
        let completed = CompletedTrials::of(&self.study);
        for cell in header.cells.iter().filter(|cell| !completed.unable.contains(&cell.id)) {
            if let Some(obstacle) = self.feasibility.obstacle(&mut self.guard, cell)? {
                let (reason, remedy) = (obstacle.message, obstacle.remedy.unwrap_or_default());
                let status = TrialStatus::Unavailable { reason, remedy };
                let row = Trial { status, ..empty_trial(cell, self.position(0)) };
                self.store(vec![row])?;
            }
        }
        Ok(())
    }

    /// One block of whole trials, one after the other.
    fn trials(&mut self, cells: &[&Cell], block: u32, clock: &mut Countdown) -> Result<(), Fault> {
        let meters = self.meters_that_count();
        let schedule = self.study.header.schedule.clone();
        for cell in cells {
            self.observer.trial_begins(clock.done + 1, &cell.id, block + 1);
            let position = self.position(block);
            let trial = self.runner(&meters, &schedule).run(cell, position)?;
            // Before it is stored: a study that ends here, because its host is not
            // back or is taken from it, repeats the trial when it is resumed.
            self.wait_for_host(lost_peer(&trial))?;
            self.wait_for_link(&trial)?;
            self.store(vec![trial])?;
            self.notify(clock, 1);
            self.wait_for_host(self.study.trials.last().and_then(lost_peer))?;
        }
        Ok(())
    }

    /// One block whose cells take turns. It is stored as a whole, because
    /// a part of it could not be completed by slices of another hour.
    fn slices(
        &mut self,
        cells: &[&Cell],
        slice: f64,
        block: u32,
        clock: &mut Countdown,
    ) -> Result<(), Fault> {
        let meters = self.meters_that_count();
        let schedule = self.study.header.schedule.clone();
        self.observer.trial_begins(clock.done + 1, &cells[0].id, block + 1);
        let position = self.position(block);
        let (laboratory, guard, schedule) = (self.laboratory, &mut self.guard, &schedule);
        let loads = &self.study.header.loads;
        let runner = TrialRunner { laboratory, guard, meters: &meters, schedule, loads };
        let observer = &mut *self.observer;
        let mut ended = |cell: &CellId, rate: f64| observer.slice_ends(cell, rate);
        let trials = slices::block(&runner, cells, slice, position, &mut ended)?;
        self.store(trials)?;
        self.notify(clock, cells.len());
        Ok(())
    }

    /// The meters of a trial that counts.
    pub(super) fn meters_that_count(&self) -> Vec<Chosen> {
        self.meters().into_iter().filter(|chosen| !chosen.meter.separate_trials).collect()
    }

    /// Notifies the observer of the last trials, which are on disk by now.
    fn notify(&mut self, clock: &mut Countdown, count: usize) {
        let trials = &self.study.trials;
        let first = clock.done + 1;
        clock.done += count;
        let ended = &trials[trials.len().saturating_sub(count)..];
        for (number, trial) in (first..).zip(ended) {
            self.observer.trial_ends(number, trial, clock.left());
        }
    }

    /// Applies the stopping rule, and notes what it saves.
    fn stop_early(&mut self, clock: &Countdown) -> Result<bool, Fault> {
        let Some(why) = stopped_early(&self.study) else { return Ok(false) };
        let saved = unit::seconds(Duration::from_secs(clock.left().as_secs()));
        self.announce(format!("stopped early: {why}; about {saved} saved"))?;
        Ok(true)
    }
}
