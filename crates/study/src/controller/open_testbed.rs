//! A testbed that stays up over several streams, for callers that interleave them with something
//! else: benchmarks against other tools.

use super::metering::profile;
use super::plan::Laboratory;
use super::remote::Remotes;
use super::stream;
use super::trial::{Position, deploy, empty_trial};
use crate::sampling_rate::{SHARE, affordable_rate};
use bytepath_meter::{self as meter, Meter};
use bytepath_record::wire::PriceSample;
use bytepath_record::{Cell, Fault, Role, Sampling, Schedule, Trial, TrialStatus};
use std::net::IpAddr;

/// A testbed with its link up.
pub struct OpenTestbed<'a> {
    remotes: Remotes<'a>,
    order: u32,
}

impl<'a> OpenTestbed<'a> {
    /// Raises the testbed with the link of this cell.
    pub fn raise(laboratory: &Laboratory<'a>, cell: &Cell) -> Result<Self, Fault> {
        let (remotes, _) = deploy(laboratory, None, cell)?;
        Ok(OpenTestbed { remotes, order: 0 })
    }

    /// Runs one stream of a cell. The link stays as it was set up; the cell's own link settings are
    /// ignored. With `sampling`, samples are taken, too, and discarded.
    pub fn run(
        &mut self,
        cell: &Cell,
        meters: &[&'static Meter],
        schedule: &Schedule,
        sampling: Option<&Sampling>,
    ) -> Result<Trial, Fault> {
        let mut trial = empty_trial(cell, Position { block: self.order, order: self.order });
        self.order += 1;
        let requests: Vec<_> = meters.iter().map(|meter| meter.name.into()).collect();
        let mut meters = meter::chosen(meters, &requests);
        meters.extend(sampling.and_then(|s| profile(meter::CATALOG, Role::Receiver, s)));
        let listening = stream::listen(&mut self.remotes, cell)?;
        stream::run(&mut self.remotes, cell, listening, &meters, schedule, &mut trial)?;
        trial.status = TrialStatus::Measured;
        Ok(trial)
    }

    /// Returns the sampling that a study uses for a pinned cell by default.
    pub fn usual_sampling(&mut self, cell: &Cell) -> Result<Sampling, Fault> {
        let call = PriceSample { event: None, cpu: cell.placement.receiver };
        let price = self.remotes.agents.call(Role::Receiver, call)?;
        let cpus = Role::ALL.into_iter().flat_map(|role| cell.placement.cpus(role)).collect();
        Ok(Sampling { event: price.event, rate: affordable_rate(price.seconds, SHARE), cpus })
    }

    /// Returns the ID of a process in the network namespace of a role.
    pub fn pid(&self, role: Role) -> u32 {
        self.remotes.pids[role as usize]
    }

    /// Returns the address of a role on the link.
    pub fn address(&self, role: Role) -> IpAddr {
        self.remotes.address(role)
    }
}
