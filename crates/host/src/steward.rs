//! The steward of a host: reads, journals, changes, verifies and restores its settings. It acts
//! only on the machine that it runs on. If a host has its own machine, its steward is part of an
//! agent there, and the controller reaches it over the pipe.

use super::{doctor, facts};
use bytepath_record::Fault;
use bytepath_record::wire::{
    ApplySettings, Call, CheckSettings, Examine, HoldGpu, PrepareSettings, PreviewSettings,
    ReadFingerprint, RestoreLeftBehind, UndoAll, UndoPrepared,
};
use bytepath_settings::{self as settings, Applied, StateFolder, ThisMachine};
use bytepath_sys::Roots;
use bytepath_sys::cuda::Gpu;

/// The steward of the machine that this process runs on. Dropping it restores everything.
pub struct LocalSteward {
    place: StateFolder,
    roots: Roots,
    applied: Option<Applied>,
}

impl LocalSteward {
    /// Uses the default folder for the journal.
    pub fn standard() -> LocalSteward {
        LocalSteward::at(StateFolder::standard(), Roots::real())
    }

    /// Uses another folder for the journal, and the machine below these roots.
    pub fn at(place: StateFolder, roots: Roots) -> LocalSteward {
        LocalSteward { place, roots, applied: None }
    }

    fn machine(&self) -> ThisMachine {
        ThisMachine::new(self.roots.clone())
    }
}

/// A call that a steward answers, here or over the pipe.
pub trait StewardCall: Call {
    const ANSWER: Answer<Self>;
}

type Answer<C> = fn(C, &mut LocalSteward) -> Result<<C as Call>::Reply, Fault>;

impl StewardCall for ApplySettings {
    const ANSWER: Answer<Self> = |call, steward| {
        // What was applied before is dropped first, because it holds the lock.
        steward.applied = None;
        let (applied, rows) = Applied::apply(&steward.place, steward.machine(), &call.settings)?;
        let records = applied.records().to_vec();
        steward.applied = Some(applied);
        Ok((records, rows))
    };
}

impl StewardCall for PrepareSettings {
    const ANSWER: Answer<Self> = |call, steward| {
        if steward.applied.is_none() {
            // What an earlier run has left is reported when a study begins.
            ApplySettings::ANSWER(ApplySettings { settings: Vec::new() }, steward)?;
        }
        steward.applied.as_mut().map_or(Ok(Vec::new()), |applied| applied.prepare(&call.settings))
    };
}

impl StewardCall for UndoPrepared {
    const ANSWER: Answer<Self> =
        |_, steward| Ok(steward.applied.as_mut().map(Applied::unprepare).unwrap_or_default());
}

impl StewardCall for UndoAll {
    const ANSWER: Answer<Self> =
        |_, steward| Ok(steward.applied.take().map(Applied::undo).unwrap_or_default());
}

impl StewardCall for RestoreLeftBehind {
    const ANSWER: Answer<Self> = |_, steward| settings::restore(&steward.place, steward.machine());
}

impl StewardCall for CheckSettings {
    const ANSWER: Answer<Self> =
        |call, steward| settings::feasible(steward.machine(), &call.settings);
}

impl StewardCall for PreviewSettings {
    const ANSWER: Answer<Self> =
        |call, steward| Ok(settings::preview(steward.machine(), &call.settings));
}

impl StewardCall for ReadFingerprint {
    const ANSWER: Answer<Self> = |_, steward| Ok(facts::fingerprint(&steward.roots));
}

impl StewardCall for Examine {
    const ANSWER: Answer<Self> = |_, LocalSteward { roots, .. }| {
        Ok(doctor::examine(&facts::survey(roots), &doctor::moment(roots)))
    };
}

impl StewardCall for HoldGpu {
    const ANSWER: Answer<Self> = |call, _| {
        let mut all = bytepath_sys::cuda::gpus().into_iter().flatten();
        let gpu = all.find(|gpu| gpu.address.to_string() == call.gpu);
        // The context lives as long as this process. If it cannot be created, cells that need a GPU
        // are refused with that reason.
        let _ = gpu.map(Gpu::hold);
        Ok(())
    };
}
