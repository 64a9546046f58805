//! The trials that count: block by block, each in random order.

use super::progress::{Block, CompletedTrials, stopped_early};
use super::run::{Countdown, Run, lost_peer};
use super::slices;
use super::trial::empty_trial;
use bytepath_meter::Chosen;
use bytepath_record::{Cell, Design, Fault, Study, Trial, TrialStatus, unit};
use bytepath_stats as stats;
use std::time::{Duration, Instant};

impl Run<'_, '_> {
    /// Runs what is missing of the blocks of one pass.
    pub(super) fn run_blocks(&mut self, pass: fn(&Study) -> Vec<Block>) -> Result<(), Fault> {
        let header = self.study.header.clone();
        let schedule = &header.schedule;
        let blocks = self.missing_blocks(pass);
        let total = blocks.iter().map(|(_, cells)| cells.len()).sum();
        let Some((first, _)) = blocks.first() else { return Ok(()) };
        if schedule.first_pass().is_some_and(|first_pass| *first >= first_pass) {
            self.note_second_pass()?;
        }
        self.observer.begins(&header, total);
        let mut clock = Countdown { begin: Instant::now(), done: 0, total };
        for (block, cells) in &blocks {
            let cells: Vec<&Cell> = cells.iter().collect();
            if self.shared.as_ref().is_some_and(|blocks| !blocks.take()) {
                break;
            }
            self.laboratory.testbed.begin_block();
            match schedule.design {
                Design::Trials => self.trials(&cells, *block, &mut clock)?,
                Design::Slices { slice } => self.slices(&cells, slice, *block, &mut clock)?,
            }
            self.observer.block_ends(&self.study);
            if block + 1 < schedule.blocks && self.stop_early(&clock)? {
                break;
            }
        }
        Ok(())
    }

    fn missing_blocks(&self, pass: fn(&Study) -> Vec<Block>) -> Vec<(u32, Vec<Cell>)> {
        let study = &self.study;
        let completed = CompletedTrials::of(study);
        let missing = pass(study).into_iter().map(|(block, cells)| {
            let cells = cells.into_iter().filter(|cell| completed.is_missing(cell, block));
            (block, cells.cloned().collect())
        });
        missing.filter(|(_, cells): &(u32, Vec<Cell>)| !cells.is_empty()).collect()
    }

    /// Notes which cells the first pass chose, unless a study that is resumed has that remark.
    fn note_second_pass(&mut self) -> Result<(), Fault> {
        let study = &self.study;
        let first = study.header.schedule.first_pass();
        let Some((first, pass)) = first.zip(stats::second_pass(study)) else { return Ok(()) };
        let chosen: Vec<&str> = pass.chosen.iter().map(|cell| cell.0.as_str()).collect();
        let remark = format!(
            "within its budget: {first} blocks of all cells, then {} more of the leaders \
             and of cells still undecided; judged by the later ones alone: {}. Each comparison \
             is made at half of the declared error, since the first blocks chose which ones judge it",
            pass.blocks,
            chosen.join(", ")
        );
        if self.study.remarks.contains(&remark) {
            return Ok(());
        }
        self.observer.remark(&remark);
        self.remark(remark)
    }

    /// Writes down which cells cannot run, and why.
    pub(super) fn note_unavailable(&mut self) -> Result<(), Fault> {
        let header = self.study.header.clone();
        let completed = CompletedTrials::of(&self.study);
        for cell in header.cells.iter().filter(|cell| !completed.unable.contains(&cell.id)) {
            let (laboratory, guard) = (self.laboratory, &mut self.guard);
            if let Some(obstacle) = self.feasibility.obstacle(laboratory, guard, cell)? {
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
        let trials = slices::block(&self.runner(&meters, &schedule), cells, slice, position)?;
        self.store(trials)?;
        self.notify(clock, cells.len());
        Ok(())
    }

    /// The meters of a trial that counts.
    fn meters_that_count(&self) -> Vec<Chosen> {
        self.meters().into_iter().filter(|chosen| !chosen.meter.apart).collect()
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
        let Some(why) = stopped_early(&self.study) else {
            return Ok(false);
        };
        let saved = unit::seconds(Duration::from_secs(clock.left().as_secs()));
        let remark = format!("stopped early: {why}; about {saved} saved");
        self.observer.remark(&remark);
        self.remark(remark)?;
        Ok(true)
    }
}
