//! One block of a sliced study: every cell has a testbed and an open stream of
//! its own, and they take turns in slices of a fraction of a second. Slow
//! changes of the machine then affect all cells equally.

use super::Laboratory;
use super::guard::Guard;
use super::preparation::reach_namespaces;
use super::remote::Remotes;
use super::seen::Seen;
use super::trial::{
    Position, begin, blank, end, fail, let_flow, nothing_to_place, set_up_link, window,
};
use bytepath_meter::Chosen;
use bytepath_record::wire::Request;
use bytepath_record::{Cell, Design, Fault, FaultKind, Role, Schedule, Trial, TrialStatus};
use bytepath_spec as spec;
use std::time::Duration;

/// Bytes that flow at the start of each slice before it counts: several
/// hundred round trips of a link on one machine, so that the window is open again.
const RAMP: Duration = Duration::from_millis(40);

/// A cell with its stream.
struct Lane<'a> {
    cell: &'a Cell,
    trial: Trial,
    remotes: Option<Remotes<'a>>,
    windows: Vec<Seen>,
}

/// Runs one block and gives one trial per cell, in the cells' order. A lane
/// whose flow dies is a failed trial and the others continue; only the user's wish
/// to stop is an error, and then the whole block is lost.
pub(super) fn block<'a>(
    laboratory: &'a Laboratory,
    guard: &Guard,
    cells: &[&'a Cell],
    meters: &[Chosen],
    schedule: &Schedule,
    slice: f64,
    position: Position,
) -> Result<Vec<Trial>, Fault> {
    let mut lanes = Vec::with_capacity(cells.len());
    for (index, cell) in cells.iter().enumerate() {
        let position = Position { order: position.order + index as u32, ..position };
        lanes.push(Lane::open(laboratory, guard, cell, meters, position)?);
    }
    let rounds = rounds(schedule, slice);
    let seed = schedule.seed.wrapping_add(u64::from(position.block) + 1);
    for (round, turn) in spec::order(lanes.len(), rounds, seed) {
        let ramp = if round == 0 { Duration::from_secs_f64(schedule.warm_up) } else { RAMP };
        let length = schedule.window / f64::from(rounds);
        lanes[turn].attempt(|windows, remotes| {
            let_flow(remotes)?;
            windows.push(window(remotes, ramp, length)?);
            remotes.tell(Role::Sender, &Request::Pace { hold: true })
        })?;
    }
    lanes.into_iter().map(|lane| lane.close(schedule)).collect()
}

/// Seconds for which the stream of one cell flows in a block: its warm-up, its window,
/// and the ramp of every slice but the first, which the warm-up precedes.
pub fn time_of_trial(schedule: &Schedule) -> f64 {
    let ramps = match schedule.design {
        Design::Trials => 0,
        Design::Slices { slice } => rounds(schedule, slice) - 1,
    };
    schedule.warm_up + schedule.window + (RAMP * ramps).as_secs_f64()
}

/// Slices of a window. A remainder of less than half a slice is not a slice.
fn rounds(schedule: &Schedule, slice: f64) -> u32 {
    (schedule.window / slice).round().max(1.0) as u32
}

impl<'a> Lane<'a> {
    fn open(
        laboratory: &'a Laboratory,
        guard: &Guard,
        cell: &'a Cell,
        meters: &[Chosen],
        position: Position,
    ) -> Result<Self, Fault> {
        let mut lane =
            Lane { cell, trial: blank(cell, position), remotes: None, windows: Vec::new() };
        let raise = || -> Result<(Remotes<'a>, Vec<String>), Fault> {
            let mut remotes = Remotes::raise(laboratory, cell.kernel.as_ref())?;
            reach_namespaces(&mut remotes, guard, cell)?;
            let mut notes = set_up_link(&mut remotes, cell)?;
            notes.extend(nothing_to_place(laboratory, cell));
            begin(&mut remotes, cell, meters)?;
            Ok((remotes, notes))
        };
        match raise() {
            Ok((remotes, notes)) => {
                lane.trial.warnings.extend(notes);
                lane.remotes = Some(remotes);
            }
            Err(fault) => lane.fail(fault)?,
        }
        Ok(lane)
    }

    /// Does something with a lane that still lives; a failure ends it.
    fn attempt(
        &mut self,
        step: impl FnOnce(&mut Vec<Seen>, &mut Remotes<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Some(remotes) = &mut self.remotes else { return Ok(()) };
        match step(&mut self.windows, remotes) {
            Ok(()) => Ok(()),
            Err(fault) => self.fail(fault),
        }
    }

    fn fail(&mut self, fault: Fault) -> Result<(), Fault> {
        if fault.kind == FaultKind::Interrupted {
            return Err(fault);
        }
        self.remotes = None;
        fail(&mut self.trial, fault);
        Ok(())
    }

    fn close(mut self, schedule: &Schedule) -> Result<Trial, Fault> {
        let Some(mut remotes) = self.remotes.take() else { return Ok(self.trial) };
        let seen = Seen::together(std::mem::take(&mut self.windows));
        match end(&mut remotes, self.cell, schedule, &mut self.trial, seen) {
            Ok(()) => self.trial.status = TrialStatus::Measured,
            Err(fault) => self.fail(fault)?,
        }
        Ok(self.trial)
    }
}
