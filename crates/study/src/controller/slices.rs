//! One block of a sliced study: every cell has a testbed and an open stream of
//! its own, and they take turns in slices of a fraction of a second. Slow
//! changes of the machine then affect all cells equally.

use super::remote::Remotes;
use super::stream::{Stream, WindowResult, listen, start_senders};
use super::trial::{Position, TrialRunner, empty_trial, fail, unplaceable_reason};
use bytepath_record::wire::Pace;
use bytepath_record::{Cell, CellId, Design, Fault, FaultKind, Role, Schedule, Trial, TrialStatus};
use bytepath_spec as spec;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Bytes that flow at the start of each slice before it counts: several
/// hundred round trips of a link on one machine, so that the window is open again.
const RAMP: Duration = Duration::from_millis(40);

/// A cell with its stream.
struct Lane<'a> {
    cell: &'a Cell,
    trial: Trial,
    /// `None` once it has failed.
    flow: Option<(Remotes<'a>, Stream)>,
    windows: Vec<WindowResult>,
    stop: &'a AtomicBool,
}

/// Runs one block and returns one trial per cell, in the cells' order. After each slice
/// `ended` is given its cell and rate. A lane
/// whose flow dies is a failed trial and the others continue; only cancellation is an
/// error, and then the whole block is lost.
pub(super) fn block<'a>(
    runner: &TrialRunner<'_, 'a>,
    cells: &[&'a Cell],
    slice: f64,
    position: Position,
    ended: &mut dyn FnMut(&CellId, f64),
) -> Result<Vec<Trial>, Fault> {
    let schedule = runner.schedule;
    // A cell opens when its first turn comes, and stays open, so that figures come soon.
    let mut lanes: Vec<Option<Lane>> = cells.iter().map(|_| None).collect();
    let rounds = rounds(schedule, slice);
    let seed = schedule.seed.wrapping_add(u64::from(position.block) + 1);
    for (round, turn) in spec::order(lanes.len(), rounds, seed) {
        let ramp = if round == 0 { Duration::from_secs_f64(schedule.warm_up) } else { RAMP };
        let lane = match &mut lanes[turn] {
            Some(lane) => lane,
            closed => {
                let order = position.order + turn as u32;
                closed.insert(Lane::open(runner, cells[turn], Position { order, ..position })?)
            }
        };
        lane.measure(ramp, schedule.window / f64::from(rounds))?;
        if let Some(rate) = lane.windows.last().and_then(WindowResult::rate) {
            ended(&lane.cell.id, rate);
        }
    }
    lanes.into_iter().flatten().map(|lane| lane.close(schedule)).collect()
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
        runner: &TrialRunner<'_, 'a>,
        cell: &'a Cell,
        position: Position,
    ) -> Result<Self, Fault> {
        let trial = empty_trial(cell, position);
        let stop = runner.laboratory.stop;
        let mut lane = Lane { cell, trial, flow: None, windows: Vec::new(), stop };
        let opened = runner.raise(cell, &mut lane.trial).and_then(|mut remotes| {
            let listening = listen(&mut remotes, cell)?;
            let stream = Stream::begin(&mut remotes, cell, listening, runner.meters)?;
            Ok((remotes, stream))
        });
        match opened {
            Ok(flow) => {
                lane.trial.warnings.extend(unplaceable_reason(runner.laboratory, cell));
                lane.flow = Some(flow);
            }
            Err(fault) => lane.fail(fault)?,
        }
        Ok(lane)
    }

    /// Measures one slice, unless the lane has failed.
    fn measure(&mut self, ramp: Duration, length: f64) -> Result<(), Fault> {
        let Some((remotes, stream)) = &mut self.flow else { return Ok(()) };
        let window = start_senders(remotes)
            .and_then(|()| stream.measure(remotes, ramp, length))
            .and_then(|window| {
                remotes.agents.call(Role::Sender, Pace { hold: true })?;
                Ok(window)
            });
        match window {
            Ok(window) => self.windows.push(window),
            Err(fault) => self.fail(fault)?,
        }
        Ok(())
    }

    fn fail(&mut self, fault: Fault) -> Result<(), Fault> {
        if fault.kind == FaultKind::Interrupted {
            return Err(fault);
        }
        self.flow = None;
        fail(&mut self.trial, fault, self.stop)
    }

    fn close(mut self, schedule: &Schedule) -> Result<Trial, Fault> {
        let Some((mut remotes, stream)) = self.flow.take() else { return Ok(self.trial) };
        let merged = WindowResult::merge(std::mem::take(&mut self.windows));
        match stream.end(&mut remotes, self.cell, schedule, &mut self.trial, merged) {
            Ok(()) => self.trial.status = TrialStatus::Measured,
            Err(fault) => self.fail(fault)?,
        }
        Ok(self.trial)
    }
}
