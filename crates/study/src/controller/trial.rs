//! One trial, from a fresh testbed to its record.

use super::agents::{check_stop, unless_stopped};
use super::guard::Guard;
use super::pilots::at_load;
use super::plan::Laboratory;
use super::preparation::{prepare, set_sysctls};
use super::remote::Remotes;
use super::stream;
use bytepath_engine::{path, workload};
use bytepath_meter::Chosen;
use bytepath_record::{
    Cell, Fault, FaultKind, Load, ProfileRecord, Restoration, RestorationRow, Role, Schedule,
    Trial, TrialStatus, Work,
};
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

/// Position of a trial in its study.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub block: u32,
    pub order: u32,
}

/// What the trials of a pass have in common.
pub(super) struct TrialRunner<'r, 'a> {
    pub laboratory: &'r Laboratory<'a>,
    pub guard: &'r mut Guard,
    pub meters: &'r [Chosen],
    pub schedule: &'r Schedule,
    /// What a load is that is a part of the peak.
    pub loads: &'r [Load],
}

impl<'a> TrialRunner<'_, 'a> {
    /// Runs one cell once, its NICs prepared for it. A flow that dies is a failed trial, with
    /// the reason and without a number; only cancellation is an error.
    pub(super) fn run(&mut self, cell: &Cell, position: Position) -> Result<Trial, Fault> {
        let mut trial = empty_trial(cell, position);
        trial.warnings.extend(unplaceable_reason(self.laboratory, cell));
        let measured = self.measure(cell, &mut trial).map(drop);
        match self.restore(measured)? {
            Ok(((), rows)) => {
                trial.status = TrialStatus::Measured;
                trial.warnings.extend(not_restored(&rows));
            }
            Err(fault) => fail(&mut trial, fault, self.laboratory.stop)?,
        }
        Ok(trial)
    }

    /// Raises a deployment for a cell, with its link, but without preparing NICs.
    pub(super) fn raise(&self, cell: &Cell, trial: &mut Trial) -> Result<Remotes<'a>, Fault> {
        let (remotes, notes) = deploy(self.laboratory, Some(self.guard), cell)?;
        trial.warnings.extend(notes);
        Ok(remotes)
    }

    /// Runs the stream of a cell over a fresh deployment, which is still up. A fault names what
    /// became of the link, too: all that a stream sees of it is that nothing moves.
    pub(super) fn measure(&mut self, cell: &Cell, trial: &mut Trial) -> Result<Remotes<'a>, Fault> {
        let cell = &at_load(cell, self.loads)?;
        trial.offered = cell.offered();
        let measured = self.raise(cell, trial).and_then(|mut remotes| {
            let (prepared, listening) = prepare(self.laboratory, self.guard, &mut remotes, cell)?;
            trial.prepared = prepared;
            let made = trial.prepared.iter().map(|record| &record.setting);
            trial.warnings.extend(path::warn_of_first_queue(made));
            stream::run(&mut remotes, cell, listening, self.meters, self.schedule, trial)?;
            Ok(remotes)
        });
        measured.map_err(|mut fault| {
            if let Some(trouble) = self.laboratory.testbed.link_trouble() {
                fault.message.push_str(&format!("; {trouble}"));
            }
            fault
        })
    }

    /// The outcome of a trial once its NICs are as they were before it. A host that was lost
    /// restores itself and costs this trial; cancellation, and a NIC that cannot be
    /// restored, end the study.
    pub(super) fn restore<T>(
        &mut self,
        measured: Result<T, Fault>,
    ) -> Result<Result<(T, Vec<RestorationRow>), Fault>, Fault> {
        match (measured, self.guard.undo_prepared()) {
            (Err(fault), _) if fault.kind == FaultKind::Interrupted => Err(fault),
            (_, Err(fault)) if fault.kind != FaultKind::PeerLost => Err(fault),
            (Err(fault), _) | (Ok(_), Err(fault)) => Ok(Err(fault)),
            (Ok(measured), Ok(rows)) => Ok(Ok((measured, rows))),
        }
    }
}

/// Raises a deployment with the link of a cell, and with the kernel parameters of its workload in
/// its namespaces, and those of the study if a guard keeps some. Returns what was optional and not available.
pub(super) fn deploy<'a>(
    laboratory: &Laboratory<'a>,
    guard: Option<&Guard>,
    cell: &Cell,
) -> Result<(Remotes<'a>, Vec<String>), Fault> {
    let mut remotes = Remotes::raise(laboratory, Some(cell))?;
    let mut notes = set_sysctls(&mut remotes, guard, cell)?;
    notes.extend(remotes.set_up_link(cell)?);
    Ok((remotes, notes))
}

/// Marks a trial as failed. What was read during it does not count as measured. Once the user has
/// asked to stop, that is the error, and the trial is not there.
pub(super) fn fail(trial: &mut Trial, fault: Fault, stop: &AtomicBool) -> Result<(), Fault> {
    let fault = unless_stopped(stop, fault);
    check_stop(stop)?;
    let profile = trial.profile.take();
    *trial = Trial {
        started_ms: trial.started_ms,
        work: trial.work,
        profile: profile.map(|p| ProfileRecord { file: String::new(), samples: 0, lost: 0, ..p }),
        status: TrialStatus::Failed { fault },
        ..Trial::blank(trial.cell.clone(), trial.block, trial.order)
    };
    Ok(())
}

/// Foreign changes to a NIC while it was prepared.
fn not_restored(rows: &[RestorationRow]) -> impl Iterator<Item = String> + '_ {
    let odd = |row: &&RestorationRow| {
        !matches!(row.outcome, Restoration::Restored | Restoration::AlreadyBack)
    };
    rows.iter().filter(odd).map(|row| format!("card: {row}"))
}

/// A trial without results.
pub(super) fn empty_trial(cell: &Cell, position: Position) -> Trial {
    Trial {
        started_ms: now_ms(),
        // A cell whose workload is not known never runs.
        work: workload::of(cell).map_or(Work::Bytes, |workload| workload.work),
        ..Trial::blank(cell.id.clone(), position.block, position.order)
    }
}

/// Milliseconds since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Why the placement of workers has no effect, if it has none.
pub(super) fn unplaceable_reason(laboratory: &Laboratory, cell: &Cell) -> Option<String> {
    let cpu = cell.placement.io_wq?;
    let works = |role| {
        let path = path::find(laboratory.paths, &cell.half(role).path);
        path.is_some_and(|path| path.uses_io_uring)
    };
    let none = !Role::ALL.into_iter().any(works);
    none.then(|| format!("io-wq={cpu} has no effect: neither end uses io_uring"))
}
