//! The controller's handles on the stewards of a testbed's hosts: one in this process if the hosts
//! share this machine, else an agent on each host.

use super::agents::Agents;
use super::gpus::UsedGpu;
use super::plan::Laboratory;
use bytepath_host::testbed::{Site, Stewardship, Testbed};
use bytepath_host::{Fingerprint, Host, LocalSteward, StewardCall};
use bytepath_record::wire::{
    ApplySettings, Call, CheckSettings, Examine, HoldGpu, PrepareSettings, PreviewSettings,
    ReadFacts, ReadFingerprint, RestoreLeftBehind, Survey, UndoAll, UndoPrepared,
};
use bytepath_record::{
    Facts, Fault, FaultKind, Finding, RestorationRow, Role, SettingRecord, WantedSetting,
};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a steward on another machine may take. Settings of some NICs take seconds
/// each.
const TIMEOUT: Duration = Duration::from_secs(120);

/// One item per host, with its role; a single item without a role if they share a machine.
type OfHosts<T> = Vec<(Option<Role>, T)>;

/// The hosts' settings.
pub(crate) type Fingerprints = OfHosts<Fingerprint>;

/// All stewards of a study, the sender's first.
pub struct Stewards(OfHosts<Steward>);

enum Steward {
    Local(Box<LocalSteward>),
    Remote(RemoteSteward),
}

impl Steward {
    fn call<C: StewardCall>(&mut self, call: C) -> Result<C::Reply, Fault> {
        match self {
            Steward::Local(steward) => C::ANSWER(call, steward),
            Steward::Remote(steward) => steward.call(call),
        }
    }
}

impl Stewards {
    /// Starts the stewards of a testbed.
    pub fn of(laboratory: &Laboratory) -> Result<Stewards, Fault> {
        Stewards::at(laboratory.testbed, &laboratory.site(None))
    }

    /// Starts the stewards of a testbed at a site.
    pub fn at(testbed: &dyn Testbed, site: &Site) -> Result<Stewards, Fault> {
        let hosts = match testbed.stewardship(site)? {
            Stewardship::Shared(steward) => {
                return Ok(Stewards(vec![(None, Steward::Local(steward))]));
            }
            Stewardship::Apart(hosts) => Role::ALL.into_iter().zip(hosts),
        };
        let apart = hosts.map(|(role, host)| {
            Ok((Some(role), Steward::Remote(RemoteSteward::greet(role, host, site)?)))
        });
        Ok(Stewards(apart.collect::<Result<_, Fault>>()?))
    }

    /// Makes settings, each on its host.
    pub fn apply(
        &mut self,
        wanted: &[WantedSetting],
    ) -> Result<(Vec<SettingRecord>, Vec<RestorationRow>), Fault> {
        let mut rows = Vec::new();
        let records = self.change(wanted, |steward, host, settings| {
            let (records, left) = steward.call(ApplySettings { settings })?;
            rows.extend(left.into_iter().map(|row| RestorationRow { host, ..row }));
            Ok(records)
        })?;
        Ok((records, rows))
    }

    /// Makes further settings until [`Stewards::undo_prepared`].
    pub fn prepare(&mut self, wanted: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        self.change(wanted, |steward, _, settings| steward.call(PrepareSettings { settings }))
    }

    /// Returns the changes that the settings would make, with old and new values.
    pub fn preview(&mut self, wanted: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        self.change(wanted, |steward, _, settings| steward.call(PreviewSettings { settings }))
    }

    fn change(
        &mut self,
        wanted: &[WantedSetting],
        mut call: impl FnMut(
            &mut Steward,
            Option<Role>,
            Vec<WantedSetting>,
        ) -> Result<Vec<SettingRecord>, Fault>,
    ) -> Result<Vec<SettingRecord>, Fault> {
        let mut all = Vec::new();
        for (host, steward) in &mut self.0 {
            let (host, settings) = (*host, settings_of(*host, wanted));
            if !settings.is_empty() {
                let records = call(steward, host, settings)?.into_iter();
                all.extend(records.map(|record| SettingRecord { host, ..record }));
            }
        }
        Ok(all)
    }

    /// Keeps a GPU awake. Otherwise it would sleep between trials and wake up during the next one.
    pub(super) fn hold_gpu(&mut self, UsedGpu { role, gpu, .. }: &UsedGpu) -> Result<(), Fault> {
        let mut of_role = self.0.iter_mut().filter(|(host, _)| host.is_none_or(|of| of == *role));
        of_role.try_for_each(|(_, steward)| steward.call(HoldGpu { gpu: gpu.clone() }))
    }

    /// Errors if a setting cannot be made, naming it.
    pub fn feasible(&mut self, wanted: &[WantedSetting]) -> Result<(), Fault> {
        self.0.iter_mut().try_for_each(|(host, steward)| {
            steward.call(CheckSettings { settings: settings_of(*host, wanted) })
        })
    }

    /// Restores what was prepared, the last host first.
    pub fn undo_prepared(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        self.restore_by(|| UndoPrepared {})
    }

    /// Restores everything, the last host first.
    pub fn undo(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        self.restore_by(|| UndoAll {})
    }

    /// Restores what crashed runs have left behind.
    pub fn restore(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        self.restore_by(|| RestoreLeftBehind {})
    }

    /// Restores every host, even if another one failed.
    fn restore_by<C: StewardCall<Reply = Vec<RestorationRow>>>(
        &mut self,
        call: fn() -> C,
    ) -> Result<Vec<RestorationRow>, Fault> {
        let (mut all, mut failed) = (Vec::new(), None);
        for (host, steward) in self.0.iter_mut().rev() {
            let host = *host;
            match steward.call(call()) {
                Ok(rows) => all.extend(rows.into_iter().map(|row| RestorationRow { host, ..row })),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        failed.map_or(Ok(all), Err)
    }

    /// Returns the hosts' settings.
    pub fn fingerprints(&mut self) -> Result<Fingerprints, Fault> {
        self.call_each(|| ReadFingerprint {})
    }

    /// Returns what would distort a measurement on each host.
    pub fn examine(&mut self) -> Result<OfHosts<Vec<Finding>>, Fault> {
        self.call_each(|| Examine {})
    }

    fn call_each<C: StewardCall>(&mut self, call: fn() -> C) -> Result<OfHosts<C::Reply>, Fault> {
        self.0.iter_mut().map(|(host, steward)| Ok((*host, steward.call(call())?))).collect()
    }

    /// Returns the facts of a role's host, with the attempts of paths and meters; `None` if it is
    /// this machine.
    pub fn survey(&mut self, role: Role) -> Result<Option<Facts>, Fault> {
        let survey = Survey { device: None, meters: true };
        match self.0.get_mut(role as usize) {
            Some((_, Steward::Remote(steward))) => Ok(Some(*steward.call(survey)?)),
            _ => Ok(None),
        }
    }

    /// Returns the facts of both hosts, without attempts, so that it takes no time.
    pub fn facts(&mut self) -> Result<Option<[Facts; 2]>, Fault> {
        match self.0.as_mut_slice() {
            [(_, Steward::Remote(sender)), (_, Steward::Remote(receiver))] => {
                Ok(Some([*sender.call(ReadFacts {})?, *receiver.call(ReadFacts {})?]))
            }
            _ => Ok(None),
        }
    }
}

/// Returns the settings for one host. If the hosts share a machine, these are all.
fn settings_of(host: Option<Role>, wanted: &[WantedSetting]) -> Vec<WantedSetting> {
    let is_here = |one: &&WantedSetting| host.is_none() || one.host.is_none() || one.host == host;
    wanted.iter().filter(is_here).cloned().collect()
}

/// An agent that only makes the settings of its host.
struct RemoteSteward {
    role: Role,
    agents: Agents<'static, Box<dyn Host>>,
    /// Why the agent is no longer called.
    lost: Option<Fault>,
}

impl RemoteSteward {
    fn greet(role: Role, host: Box<dyn Host>, site: &Site) -> Result<RemoteSteward, Fault> {
        // Settings are restored even if the study was cancelled.
        static NEVER: AtomicBool = AtomicBool::new(false);
        let mut agents = Agents::open(host, &[role], true, &NEVER)?;
        agents.greet(role, site.program)?;
        Ok(RemoteSteward { role, agents, lost: None })
    }

    fn call<C: Call>(&mut self, call: C) -> Result<C::Reply, Fault> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let reply = self.agents.call_within(self.role, call, TIMEOUT);
        let fault = reply.as_ref().err();
        self.lost = fault.filter(|fault| fault.kind == FaultKind::PeerLost).cloned();
        reply
    }
}
