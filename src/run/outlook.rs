//! What can run on the hosts at hand: facts, probes, and what is tried for real
//! before the first trial.

use super::Laboratory;
use super::remote::{Remotes, unexpected};
use super::trial::{connect, set_up_link};
use crate::path;
use crate::record::wire::{Reply, Request};
use crate::record::{
    Cell, CopyCeiling, Facts, Fault, FaultKind, LinkSettings, Role, Stream, Support,
};

/// Largest message and read of a rehearsal, bytes: what is tried is the link
/// and the sockets, not the memory.
const REHEARSED_SIZE: u64 = 64 << 10;

/// Looks at both hosts of a testbed, with a link of these settings.
pub fn survey(laboratory: &Laboratory, cell: &Cell) -> Result<Vec<Facts>, Fault> {
    let (facts, _) = look(laboratory, cell, false)?;
    Ok(facts)
}

/// Facts of both hosts and, if asked for, the copy ceiling of the receiver.
pub(super) fn look(
    laboratory: &Laboratory,
    cell: &Cell,
    measure: bool,
) -> Result<(Vec<Facts>, Option<CopyCeiling>), Fault> {
    let mut remotes = Remotes::raise(laboratory.testbed, &laboratory.program, laboratory.stop)?;
    set_up_link(&mut remotes, cell)?;
    let mut facts = Vec::new();
    for role in Role::ALL {
        let device = remotes.raised.device(role);
        match remotes.ask(role, &Request::Survey { device })? {
            Reply::Facts(found) => facts.push(*found),
            other => return Err(unexpected(role, &other)),
        }
    }
    if !measure {
        return Ok((facts, None));
    }
    let size = cell.stream.message_size.max(cell.stream.read_size);
    let request = Request::Ceiling { cpu: cell.placement.receiver, size };
    match remotes.ask(Role::Receiver, &request)? {
        Reply::Ceiling(ceiling) => Ok((facts, Some(ceiling))),
        other => Err(unexpected(Role::Receiver, &other)),
    }
}

/// Why a cell cannot run here.
#[derive(Clone, Debug)]
pub(super) struct Obstacle {
    pub kind: FaultKind,
    pub reason: String,
    pub remedy: String,
}

impl Obstacle {
    /// The fault of asking for such a cell by name.
    pub fn fault(self, cell: &Cell) -> Fault {
        let message = format!("path {} cannot run here: {}", cell.id, self.reason);
        let fault = Fault::new(self.kind, message);
        if self.remedy.is_empty() { fault } else { fault.remedy(self.remedy) }
    }
}

/// Finds out what stands in the way of cells. Links and congestion controls are
/// tried for real, each combination once, with the baseline's path, because the
/// answer depends on devices, modules and privileges in ways that no fact tells.
pub(super) struct Outlook {
    facts: Vec<Facts>,
    baseline: Cell,
    rehearsed: Vec<(LinkSettings, String, Option<Obstacle>)>,
}

impl Outlook {
    /// The outlook of cells on hosts that have been surveyed.
    pub fn of(facts: &[Facts], baseline: &Cell) -> Self {
        Outlook { facts: facts.to_vec(), baseline: baseline.clone(), rehearsed: Vec::new() }
    }

    /// What stands in the way of a cell, if anything does. The error is the
    /// user's wish to stop.
    pub fn obstacle(
        &mut self,
        laboratory: &Laboratory,
        cell: &Cell,
    ) -> Result<Option<Obstacle>, Fault> {
        for role in Role::ALL {
            let support = self.probe(laboratory, cell, role);
            if let Support::No { reason, remedy } = support {
                return Ok(Some(Obstacle { kind: FaultKind::Unsupported, reason, remedy }));
            }
        }
        let (link, congestion) = (&cell.link, &cell.stream.congestion);
        let known = self.rehearsed.iter().find(|(l, c, _)| (l, c) == (link, congestion));
        if let Some((.., obstacle)) = known {
            return Ok(obstacle.clone());
        }
        let obstacle = self.rehearse(laboratory, link, congestion)?;
        self.rehearsed.push((link.clone(), congestion.clone(), obstacle.clone()));
        Ok(obstacle)
    }

    fn probe(&self, laboratory: &Laboratory, cell: &Cell, role: Role) -> Support {
        let path = path::find(laboratory.paths, &cell.half(role).path);
        let (Some(path), Some(facts)) = (path, self.facts.get(role as usize)) else {
            return Support::no("no such path, or no facts of its host", "report this as a bug");
        };
        if let Some(cpu) = cell.placement.cpu(role).filter(|cpu| !facts.cpus.contains(cpu)) {
            let usable: Vec<String> = facts.cpus.iter().map(u32::to_string).collect();
            return Support::no(
                format!("the {role}'s CPU {cpu} does not exist or may not be used"),
                format!("this process may use {}", usable.join(", ")),
            );
        }
        path.probe_with(role, &cell.half(role).options, facts)
    }

    fn rehearse(
        &self,
        lab: &Laboratory,
        link: &LinkSettings,
        congestion: &str,
    ) -> Result<Option<Obstacle>, Fault> {
        let stream = &self.baseline.stream;
        let cell = Cell {
            link: link.clone(),
            stream: Stream {
                flows: 1,
                message_size: stream.message_size.min(REHEARSED_SIZE),
                read_size: stream.read_size.min(REHEARSED_SIZE),
                congestion: congestion.to_owned(),
                ..stream.clone()
            },
            ..self.baseline.clone()
        };
        let attempt =
            Remotes::raise(lab.testbed, &lab.program, lab.stop).and_then(|mut remotes| {
                set_up_link(&mut remotes, &cell)?;
                connect(&mut remotes, &cell)
            });
        match attempt {
            Ok(()) => Ok(None),
            Err(fault) if fault.kind == FaultKind::Interrupted => Err(fault),
            Err(Fault { kind, message, remedy }) => {
                let remedy = remedy.unwrap_or_default();
                Ok(Some(Obstacle { kind, reason: message, remedy }))
            }
        }
    }
}
