//! What a cell's paths ask of the cards that its flows come by: made when the link is
//! up, before the ends are opened, and put back when the agents are gone.
//!
//! Made for each trial anew, and not once for a block: the next cell in the random order
//! may be one that runs unprepared, and a link's settings may contradict a preparation
//! (hardware GRO, which some cards split headers by). The carrier that a card loses over
//! it is waited for.

use super::Laboratory;
use super::guard::Guard;
use super::remote::Remotes;
use crate::host::settings;
use crate::host::{self, Nic, Raised, Testbed};
use crate::path::{self, DataPath, HalfPath, Wire};
use crate::record::{Cell, Fault, FaultKind, Role, SettingRecord, WantedSetting};
use crate::workload::{self, Job};
use std::net::IpAddr;

/// The cards of a testbed, and the addresses that flows go between.
#[derive(Clone, Debug)]
pub(super) struct Wires {
    nics: [Option<Nic>; 2],
    addresses: [IpAddr; 2],
}

impl Wires {
    /// Those of a testbed that is up.
    pub fn of(raised: &dyn Raised) -> Result<Wires, Fault> {
        Ok(Wires {
            nics: [raised.nic(Role::Sender)?, raised.nic(Role::Receiver)?],
            addresses: Role::ALL.map(|role| raised.address(role)),
        })
    }

    /// What has to be set for a cell, in this order. The fault tells why its paths can
    /// never run over these cards. The listening port is not known before the ends are
    /// opened; nobody else is on the link whose flows could be taken for ours.
    pub fn wanted(
        &self,
        paths: &[&'static DataPath],
        cell: &Cell,
    ) -> Result<Vec<WantedSetting>, Fault> {
        let mut all = Vec::new();
        for role in Role::ALL {
            let Some(nic) = &self.nics[role as usize] else { continue };
            let wire = Wire {
                device: &nic.device,
                driver: &nic.driver,
                queues: nic.queues,
                own: self.addresses[role as usize],
                peer: self.addresses[role.peer() as usize],
                port: None,
            };
            for (half, job) in halves(paths, cell, role)? {
                let settings = half.preparation(&job.options, &wire)?;
                all.extend(settings.into_iter().map(WantedSetting::from));
            }
        }
        Ok(all)
    }
}

/// The halves of a cell's paths that the actor of a role opens, each with its job.
pub(super) fn halves(
    paths: &[&'static DataPath],
    cell: &Cell,
    role: Role,
) -> Result<Vec<(&'static dyn HalfPath, Job)>, Fault> {
    let workload = workload::of(cell)?;
    workload.check(cell)?;
    let open = workload.halves(role).iter().map(|&direction| {
        let name = &cell.half(direction.role()).path;
        let half = path::find(paths, name).and_then(|path| path.half(direction.role()));
        let lacks = || {
            let text = format!("path '{name}' has no {} half", direction.role());
            Fault::new(FaultKind::Usage, text).remedy("'bytepath paths' lists the halves")
        };
        Ok((half.ok_or_else(lacks)?, workload.job(cell, role, direction)))
    });
    open.collect()
}

/// Whether the devices of a testbed could be prepared for a cell, as far as a look at them
/// tells where they are. Nothing is changed.
pub fn preparable(
    paths: &[&'static DataPath],
    testbed: &dyn Testbed,
    cell: &Cell,
) -> Result<(), Fault> {
    let Some([sender, receiver]) = testbed.devices() else { return Ok(()) };
    let nics = [Nic::of(&sender)?, Nic::of(&receiver)?];
    let wanted = Wires { nics, addresses: Role::ALL.map(host::address) }.wanted(paths, cell)?;
    settings::feasible(testbed.host().1, &wanted)
}

/// Prepares the cards of a testbed whose link is up. The caller has the guard put it
/// back once the testbed is down: a queue cannot be given back while an agent holds it.
pub(super) fn prepare(
    laboratory: &Laboratory,
    guard: &mut Guard,
    remotes: &mut Remotes,
    cell: &Cell,
) -> Result<Vec<SettingRecord>, Fault> {
    let wanted = Wires::of(&*remotes.raised)?.wanted(laboratory.paths, cell)?;
    let records = guard.prepare(laboratory.testbed, &wanted)?;
    remotes.raised.settle(laboratory.stop)?;
    Ok(records)
}
