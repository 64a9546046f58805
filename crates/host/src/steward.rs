//! The steward of a host: what reads, writes down, changes, verifies and restores its
//! settings. It acts on the machine that it runs on and on no other; the steward of a host with
//! a machine of its own is part of an agent there, and the controller reaches it by the pipe.

use super::{doctor, facts};
use bytepath_record::Fault;
use bytepath_record::wire::{
    ApplySettings, Call, CheckSettings, Examine, HoldGpu, PrepareSettings, PreviewSettings,
    ReadFingerprint, RestoreLeftBehind, UndoAll, UndoPrepared,
};
use bytepath_settings::{self as settings, Applied, StateFolder, ThisMachine};
use bytepath_sys::Roots;

/// The steward of the machine that this process runs on. Dropping it restores everything.
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

/// A call that a steward answers, here or by the pipe.
pub trait StewardCall: Call {
    fn answer(self, steward: &mut LocalSteward) -> Result<Self::Reply, Fault>;
}

impl StewardCall for ApplySettings {
    fn answer(self, steward: &mut LocalSteward) -> Result<Self::Reply, Fault> {
        // What was made before goes first: its lock is ours.
        steward.applied = None;
        let (applied, rows) = Applied::apply(&steward.place, steward.machine(), &self.settings)?;
        let records = applied.records().to_vec();
        steward.applied = Some(applied);
        Ok((records, rows))
    }
}

impl StewardCall for PrepareSettings {
    fn answer(self, steward: &mut LocalSteward) -> Result<Self::Reply, Fault> {
        if steward.applied.is_none() {
            // What an earlier run has left is reported where a study begins.
            ApplySettings { settings: Vec::new() }.answer(steward)?;
        }
        steward.applied.as_mut().map_or(Ok(Vec::new()), |applied| applied.prepare(&self.settings))
    }
}

impl StewardCall for UndoPrepared {
    fn answer(self, steward: &mut LocalSteward) -> Result<Self::Reply, Fault> {
        Ok(steward.applied.as_mut().map(Applied::unprepare).unwrap_or_default())
    }
}

impl StewardCall for UndoAll {
    fn answer(self, steward: &mut LocalSteward) -> Result<Self::Reply, Fault> {
        Ok(steward.applied.take().map(Applied::undo).unwrap_or_default())
    }
}

impl StewardCall for RestoreLeftBehind {
    fn answer(self, steward: &mut LocalSteward) -> Result<Self::Reply, Fault> {
        settings::restore(&steward.place, steward.machine())
    }
}

impl StewardCall for CheckSettings {
    fn answer(self, steward: &mut LocalSteward) -> Result<Self::Reply, Fault> {
        settings::feasible(steward.machine(), &self.settings)
    }
}

impl StewardCall for PreviewSettings {
    fn answer(self, steward: &mut LocalSteward) -> Result<Self::Reply, Fault> {
        Ok(settings::preview(steward.machine(), &self.settings))
    }
}

impl StewardCall for ReadFingerprint {
    fn answer(self, steward: &mut LocalSteward) -> Result<Self::Reply, Fault> {
        Ok(facts::fingerprint(&steward.roots))
    }
}

impl StewardCall for Examine {
    fn answer(self, steward: &mut LocalSteward) -> Result<Self::Reply, Fault> {
        let facts = facts::survey(&steward.roots);
        Ok(doctor::examine(&facts, &doctor::moment(&steward.roots)))
    }
}

impl StewardCall for HoldGpu {
    fn answer(self, _: &mut LocalSteward) -> Result<Self::Reply, Fault> {
        // The context lives as long as this process. If there can be none, the cells that need
        // a GPU are refused with that reason.
        let _ = bytepath_sys::cuda::driver();
        Ok(())
    }
}
