//! The steward of a host: what reads, writes down, changes, verifies and restores its
//! settings. It acts on the machine that it runs on and on no other; the steward of a host with
//! a machine of its own is part of an agent there, and the controller reaches it by the pipe.

use super::{doctor, facts, fingerprint};
use crate::Fingerprint;
use bytepath_record::{Fault, Finding, RestorationRow, SettingRecord, WantedSetting};
use bytepath_settings::{self as settings, Applied, StateFolder, ThisMachine};
use bytepath_sys::Roots;

/// Keeps one machine as a study requires it. Dropping it restores everything.
pub trait Steward: Send {
    /// Makes settings, after restoring what an earlier run that died has left: the records of
    /// the former, the rows of the latter.
    fn apply(
        &mut self,
        settings: &[WantedSetting],
    ) -> Result<(Vec<SettingRecord>, Vec<RestorationRow>), Fault>;

    /// Makes more settings until [`Steward::undo_prepared`].
    fn prepare(&mut self, settings: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault>;

    /// Restores what was prepared.
    fn undo_prepared(&mut self) -> Result<Vec<RestorationRow>, Fault>;

    /// Restores everything.
    fn undo_all(&mut self) -> Result<Vec<RestorationRow>, Fault>;

    /// Restores what a run that died has left.
    fn restore_left_behind(&mut self) -> Result<Vec<RestorationRow>, Fault>;

    /// Fails if these settings could not be made. Nothing is changed.
    fn check(&mut self, settings: &[WantedSetting]) -> Result<(), Fault>;

    /// What these settings would change. Nothing is changed.
    fn preview(&mut self, settings: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault>;

    /// What the host is set to, by name.
    fn fingerprint(&mut self) -> Result<Fingerprint, Fault>;

    /// What would distort a measurement on the host.
    fn examine(&mut self) -> Result<Vec<Finding>, Fault>;

    /// Keeps the first GPU awake, if there is one, for as long as this steward's process lives.
    fn hold_gpu(&mut self) -> Result<(), Fault>;
}

/// The steward of the machine that this process runs on.
pub struct LocalSteward {
    place: StateFolder,
    roots: Roots,
    applied: Option<Applied>,
}

impl LocalSteward {
    /// With the usual place for the journal.
    pub fn standard() -> LocalSteward {
        LocalSteward::at(StateFolder::standard(), Roots::real())
    }

    /// With another place for the journal, of the machine below these roots.
    pub fn at(place: StateFolder, roots: Roots) -> LocalSteward {
        LocalSteward { place, roots, applied: None }
    }

    fn machine(&self) -> ThisMachine {
        ThisMachine::new(self.roots.clone())
    }
}

impl Steward for LocalSteward {
    fn apply(
        &mut self,
        settings: &[WantedSetting],
    ) -> Result<(Vec<SettingRecord>, Vec<RestorationRow>), Fault> {
        // What was made before goes first: its lock is ours.
        self.applied = None;
        let (applied, rows) = Applied::apply(&self.place, self.machine(), settings)?;
        let records = applied.records().to_vec();
        self.applied = Some(applied);
        Ok((records, rows))
    }

    fn prepare(&mut self, settings: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        if self.applied.is_none() {
            // What an earlier run has left is reported where a study begins.
            self.apply(&[])?;
        }
        self.applied.as_mut().map_or(Ok(Vec::new()), |applied| applied.prepare(settings))
    }

    fn undo_prepared(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        Ok(self.applied.as_mut().map(Applied::unprepare).unwrap_or_default())
    }

    fn undo_all(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        Ok(self.applied.take().map(Applied::undo).unwrap_or_default())
    }

    fn restore_left_behind(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        settings::restore(&self.place, self.machine())
    }

    fn check(&mut self, settings: &[WantedSetting]) -> Result<(), Fault> {
        settings::feasible(self.machine(), settings)
    }

    fn preview(&mut self, settings: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        Ok(settings::preview(self.machine(), settings))
    }

    fn fingerprint(&mut self) -> Result<Fingerprint, Fault> {
        Ok(fingerprint::fingerprint(&self.roots))
    }

    fn examine(&mut self) -> Result<Vec<Finding>, Fault> {
        let facts = facts::survey(&self.roots);
        Ok(doctor::examine(&facts, &doctor::moment(&self.roots)))
    }

    fn hold_gpu(&mut self) -> Result<(), Fault> {
        // The context lives as long as this process. If there can be none, the cells that need
        // a GPU are refused with that reason.
        let _ = bytepath_sys::cuda::driver();
        Ok(())
    }
}
