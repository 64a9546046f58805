//! Runs one trial, from a fresh testbed to its record.

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

/// What the trials of a pass share.
pub(super) struct TrialRunner<'r, 'a> {
    pub laboratory: &'r Laboratory<'a>,
    pub guard: &'r mut Guard,
    pub meters: &'r [Chosen],
    pub schedule: &'r Schedule,
    /// The loads that are given as a fraction of the peak.
    pub loads: &'r [Load],
}

impl<'a> TrialRunner<'_, 'a> {
    /// Runs one cell once, with its NICs prepared. If a flow dies, the trial is failed, with a
    /// reason and without a number; only cancellation is an error.
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

    /// Starts a deployment for a cell, with its link, without preparing NICs.
    pub(super) fn raise(&self, cell: &Cell, trial: &mut Trial) -> Result<Remotes<'a>, Fault> {
        let (remotes, notes) = deploy(self.laboratory, Some(self.guard), cell)?;
        trial.warnings.extend(notes);
        Ok(remotes)
    }

    /// Runs the stream of a cell over a fresh deployment, and returns that while it is still up. A
    /// fault includes what happened to the link: the stream itself notices only that nothing moves.
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

    /// Restores the NICs and returns the outcome of the trial. A lost host restores itself and
    /// costs only this trial; cancellation, and a NIC that cannot be restored, end the study.
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

/// Starts a deployment with the link of a cell, the kernel parameters of its workload in its
/// namespaces, and those of the study if a guard keeps some. Returns optional parts that were not
/// available.
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

/// Marks a trial as failed; its readings do not count as measured. Errors if the user has
/// cancelled, in which case there is no trial.
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

/// Returns changes that others made to a NIC while it was prepared.
fn not_restored(rows: &[RestorationRow]) -> impl Iterator<Item = String> + '_ {
    let odd = |row: &&RestorationRow| {
        !matches!(row.outcome, Restoration::Restored | Restoration::AlreadyBack)
    };
    rows.iter().filter(odd).map(|row| format!("card: {row}"))
}

/// Returns a trial without results.
pub(super) fn empty_trial(cell: &Cell, position: Position) -> Trial {
    Trial {
        started_ms: now_ms(),
        // A cell whose workload is unknown never runs.
        work: workload::of(cell).map_or(Work::Bytes, |workload| workload.work),
        ..Trial::blank(cell.id.clone(), position.block, position.order)
    }
}

/// Returns milliseconds since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Returns why the placement of io_uring workers has no effect, if it has none.
pub(super) fn unplaceable_reason(laboratory: &Laboratory, cell: &Cell) -> Option<String> {
    let cpu = cell.placement.io_wq?;
    let works = |role| {
        let path = path::find(laboratory.paths, &cell.half(role).path);
        path.is_some_and(|path| path.uses_io_uring)
    };
    let none = !Role::ALL.into_iter().any(works);
    none.then(|| format!("io-wq={cpu} has no effect: neither end uses io_uring"))
}
