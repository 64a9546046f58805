//! The steward of a host: what reads, writes down, changes, verifies and restores its
//! settings. It acts on the machine that it runs on and on no other; for a host that
//! has a machine of its own it is a part of an agent there.

use super::{doctor, facts, fingerprint};
use bytepath_record::Fault;
use bytepath_record::wire::{StewardReply, StewardRequest};
use bytepath_settings::{self as settings, Applied, Place, ThisMachine};
use bytepath_sys::Roots;

/// Keeps one machine as a study wants it. Dropping it restores everything.
pub struct Steward {
    place: Place,
    roots: Roots,
    applied: Option<Applied>,
}

impl Steward {
    /// Of the machine that this process runs on.
    pub fn standard() -> Steward {
        Steward::at(Place::standard(), Roots::real())
    }

    /// With another place for the journal, of the machine below these roots.
    pub fn at(place: Place, roots: Roots) -> Steward {
        Steward { place, roots, applied: None }
    }

    /// Does what is asked.
    pub fn answer(&mut self, request: StewardRequest) -> Result<StewardReply, Fault> {
        match request {
            StewardRequest::Apply { wanted } => {
                // What was made before goes first: its lock is ours.
                self.applied = None;
                let (applied, rows) = Applied::apply(&self.place, self.machine(), &wanted)?;
                let records = applied.records().to_vec();
                self.applied = Some(applied);
                Ok(StewardReply::Applied { records, rows })
            }
            StewardRequest::Prepare { wanted } => {
                let applied = match &mut self.applied {
                    Some(applied) => applied,
                    // What an earlier run has left is reported where a study begins.
                    none => none.insert(
                        Applied::apply(&self.place, ThisMachine::new(self.roots.clone()), &[])?.0,
                    ),
                };
                Ok(StewardReply::Records { records: applied.prepare(&wanted)? })
            }
            StewardRequest::Unprepare => {
                let rows = self.applied.as_mut().map(Applied::unprepare).unwrap_or_default();
                Ok(StewardReply::Rows { rows })
            }
            StewardRequest::Undo => {
                let rows = self.applied.take().map(Applied::undo).unwrap_or_default();
                Ok(StewardReply::Rows { rows })
            }
            StewardRequest::Feasible { wanted } => {
                settings::feasible(self.machine(), &wanted).map(|()| StewardReply::Done)
            }
            StewardRequest::Preview { wanted } => {
                let records = settings::preview(self.machine(), &wanted);
                Ok(StewardReply::Records { records })
            }
            StewardRequest::Fingerprint => {
                let settings = fingerprint::fingerprint(&self.roots);
                Ok(StewardReply::Fingerprint { settings })
            }
            StewardRequest::Examine => {
                let facts = facts::survey(&self.roots);
                let findings = doctor::examine(&facts, &doctor::moment(&self.roots));
                Ok(StewardReply::Findings { findings })
            }
            StewardRequest::HoldGpu => {
                // It keeps a context for as long as this process lives. Where it cannot, the cells
                // that want a GPU are refused with that reason.
                let _ = bytepath_sys::cuda::driver();
                Ok(StewardReply::Done)
            }
            StewardRequest::Restore => {
                let rows = settings::restore(&self.place, self.machine())?;
                Ok(StewardReply::Rows { rows })
            }
        }
    }

    fn machine(&self) -> ThisMachine {
        ThisMachine::new(self.roots.clone())
    }
}
