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
use super::stewards::Stewards;
use crate::host;
use crate::path::{self, DataPath, HalfPath, Wire};
use crate::record::wire::Nic;
use crate::record::{Cell, Fault, FaultKind, Role, SettingRecord, WantedSetting};
use crate::testbed::{Site, Testbed};
use crate::workload::{self, Job};
use std::net::IpAddr;
use std::path::Path;

/// The cards of a deployment, and the addresses that flows go between.
#[derive(Clone, Debug)]
pub(super) struct Cards {
    nics: [Option<Nic>; 2],
    addresses: [IpAddr; 2],
}

impl Cards {
    /// Those of a deployment that is up.
    pub fn of(remotes: &mut Remotes) -> Result<Cards, Fault> {
        Ok(Cards {
            nics: [remotes.nic(Role::Sender)?, remotes.nic(Role::Receiver)?],
            addresses: Role::ALL.map(|role| remotes.address(role)),
        })
    }

    /// What has to be set for a cell, in this order. The fault is why its paths can
    /// never run over these cards. The listening port is not known before the ends are
    /// opened; no other flows are on the link that could be taken for ours.
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
            let here = |setting| WantedSetting { host: Some(role), ..WantedSetting::from(setting) };
            for (half, job) in halves(paths, cell, role)? {
                all.extend(half.preparation(&job.options, &wire)?.into_iter().map(here));
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
    let find = |role: Role| path::find(paths, &cell.half(role).path);
    if let (Some(tx), Some(rx)) = (find(Role::Sender), find(Role::Receiver)) {
        path::transport(workload, cell, role, [tx, rx])?;
    }
    let open = workload.halves(role).iter().map(|&direction| {
        let name = &cell.half(direction.role()).path;
        let half = find(direction.role()).and_then(|path| path.half(direction.role()));
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
    program: &Path,
    cell: &Cell,
) -> Result<(), Fault> {
    let Some([sender, receiver]) = testbed.devices() else { return Ok(()) };
    let nics = [host::nic(&sender)?, host::nic(&receiver)?];
    let cards = Cards { nics, addresses: Role::ALL.map(|role| testbed.address(role)) };
    let wanted = cards.wanted(paths, cell)?;
    Stewards::at(testbed, &Site::of(program))?.feasible(&wanted)
}

/// Prepares the cards of a deployment whose link is up. The caller has the guard restore
/// them once it is down: a queue cannot be given back while an agent holds it.
pub(super) fn prepare(
    laboratory: &Laboratory,
    guard: &mut Guard,
    remotes: &mut Remotes,
    cell: &Cell,
) -> Result<Vec<SettingRecord>, Fault> {
    let wanted = Cards::of(remotes)?.wanted(laboratory.paths, cell)?;
    let records = match remotes.properties.cards_are_new {
        true => remotes.prepare(&wanted)?,
        false => guard.prepare(&wanted)?,
    };
    if !records.is_empty() || !remotes.properties.link_is_given {
        remotes.await_carriers()?;
    }
    Ok(records)
}
