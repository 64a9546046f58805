//! The stewards of a testbed's hosts, from the controller's side: one in this process
//! if the hosts share this machine, else an agent on each host.

use super::agents::Agents;
use super::laboratory::Laboratory;
use bytepath_host::testbed::{Site, Stewardship, Testbed};
use bytepath_host::{Fingerprint, Host, Steward};
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

/// What hosts are set to, each marked with its role; one without a mark
/// if they share a machine.
pub(crate) type Fingerprints = Vec<(Option<Role>, Fingerprint)>;

/// What would distort a measurement on hosts, likewise.
pub(crate) type Examination = Vec<(Option<Role>, Vec<Finding>)>;

/// All stewards of a study.
pub struct Stewards {
    shared: Option<Box<dyn Steward>>,
    /// The sender's first.
    apart: Vec<RemoteSteward>,
}

impl Stewards {
    /// Those of a testbed.
    pub fn of(laboratory: &Laboratory) -> Result<Stewards, Fault> {
        let Laboratory { testbed, program, stop, .. } = laboratory;
        Stewards::at(*testbed, &Site { program, kernel: None, stop })
    }

    /// Those of a testbed at a site.
    pub fn at(testbed: &dyn Testbed, site: &Site) -> Result<Stewards, Fault> {
        match testbed.stewardship(site)? {
            Stewardship::Shared(steward) => {
                Ok(Stewards { shared: Some(steward), apart: Vec::new() })
            }
            Stewardship::Apart(hosts) => {
                let hosts = Role::ALL.into_iter().zip(hosts);
                let apart = hosts.map(|(role, host)| RemoteSteward::greet(role, host, site));
                Ok(Stewards { shared: None, apart: apart.collect::<Result<_, _>>()? })
            }
        }
    }

    /// Each with the role of its host; `None` if the hosts share a machine.
    fn each(&mut self) -> impl DoubleEndedIterator<Item = (Option<Role>, &mut dyn Steward)> {
        let shared = self.shared.iter_mut().map(|one| (None, one.as_mut() as &mut dyn Steward));
        let apart = self.apart.iter_mut();
        shared.chain(apart.map(|one| (Some(one.role), one as &mut dyn Steward)))
    }

    /// Makes settings, each on its host.
    pub fn apply(
        &mut self,
        wanted: &[WantedSetting],
    ) -> Result<(Vec<SettingRecord>, Vec<RestorationRow>), Fault> {
        let (mut all, mut left) = (Vec::new(), Vec::new());
        for (host, steward) in self.each() {
            let settings = settings_of(host, wanted);
            if settings.is_empty() {
                continue;
            }
            let (records, rows) = steward.apply(&settings)?;
            all.extend(records.into_iter().map(|record| SettingRecord { host, ..record }));
            left.extend(rows.into_iter().map(|row| RestorationRow { host, ..row }));
        }
        Ok((all, left))
    }

    /// Makes more until [`Stewards::undo_prepared`].
    pub fn prepare(&mut self, wanted: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        self.records(wanted, |steward, settings| steward.prepare(settings))
    }

    /// What would be changed, from what to what.
    pub fn preview(&mut self, wanted: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        self.records(wanted, |steward, settings| steward.preview(settings))
    }

    fn records(
        &mut self,
        wanted: &[WantedSetting],
        call: impl Fn(&mut dyn Steward, &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault>,
    ) -> Result<Vec<SettingRecord>, Fault> {
        let mut all = Vec::new();
        for (host, steward) in self.each() {
            let settings = settings_of(host, wanted);
            if !settings.is_empty() {
                let records = call(steward, &settings)?.into_iter();
                all.extend(records.map(|record| SettingRecord { host, ..record }));
            }
        }
        Ok(all)
    }

    /// Keeps the GPU of a role's host awake: one that is not held goes to sleep between trials,
    /// and wakes in the first of the next.
    pub fn hold_gpu(&mut self, role: Role) -> Result<(), Fault> {
        let mut of_role = self.each().filter(|(host, _)| host.is_none_or(|host| host == role));
        of_role.try_for_each(|(_, steward)| steward.hold_gpu())
    }

    /// Whether these can be made; the fault names the one that cannot.
    pub fn feasible(&mut self, wanted: &[WantedSetting]) -> Result<(), Fault> {
        self.each().try_for_each(|(host, steward)| steward.check(&settings_of(host, wanted)))
    }

    /// Restores what was prepared, the last host first.
    pub fn undo_prepared(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        self.rows(|steward| steward.undo_prepared())
    }

    /// Restores everything, the last host first.
    pub fn undo(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        self.rows(|steward| steward.undo_all())
    }

    /// Restores what runs that died have left.
    pub fn restore(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        self.rows(|steward| steward.restore_left_behind())
    }

    /// Every host restores, also if one has failed.
    fn rows(
        &mut self,
        call: impl Fn(&mut dyn Steward) -> Result<Vec<RestorationRow>, Fault>,
    ) -> Result<Vec<RestorationRow>, Fault> {
        let (mut all, mut failed) = (Vec::new(), None);
        for (host, steward) in self.each().rev() {
            match call(steward) {
                Ok(rows) => all.extend(rows.into_iter().map(|row| RestorationRow { host, ..row })),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        failed.map_or(Ok(all), Err)
    }

    /// What the hosts are set to.
    pub fn fingerprints(&mut self) -> Result<Fingerprints, Fault> {
        self.each().map(|(host, steward)| Ok((host, steward.fingerprint()?))).collect()
    }

    /// What would distort a measurement on each host.
    pub fn examine(&mut self) -> Result<Examination, Fault> {
        self.each().map(|(host, steward)| Ok((host, steward.examine()?))).collect()
    }

    /// Facts of a role's host, with what paths and meters need; `None` if it is this machine.
    pub fn survey(&mut self, role: Role) -> Result<Option<Facts>, Fault> {
        let survey = Survey { device: None, meters: true };
        let facts = self.apart.get_mut(role as usize).map(|steward| steward.call(survey));
        Ok(facts.transpose()?.map(|facts| *facts))
    }

    /// Facts of both hosts, but nothing is tried, so that it takes no time.
    pub fn facts(&mut self) -> Result<Option<[Facts; 2]>, Fault> {
        let [sender, receiver] = self.apart.as_mut_slice() else { return Ok(None) };
        Ok(Some([*sender.call(ReadFacts {})?, *receiver.call(ReadFacts {})?]))
    }
}

/// The settings for one host. If the hosts share a machine, all are.
fn settings_of(host: Option<Role>, wanted: &[WantedSetting]) -> Vec<WantedSetting> {
    let is_here = |one: &&WantedSetting| host.is_none() || one.host.is_none() || one.host == host;
    wanted.iter().filter(is_here).cloned().collect()
}

/// An agent on a host, for nothing but its settings.
struct RemoteSteward {
    role: Role,
    agents: Agents<'static, Box<dyn Host>>,
    /// Why it is not called any more.
    lost: Option<Fault>,
}

impl RemoteSteward {
    fn greet(role: Role, host: Box<dyn Host>, site: &Site) -> Result<RemoteSteward, Fault> {
        // A study that was cancelled has its settings restored, too.
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

impl Steward for RemoteSteward {
    fn apply(
        &mut self,
        settings: &[WantedSetting],
    ) -> Result<(Vec<SettingRecord>, Vec<RestorationRow>), Fault> {
        self.call(ApplySettings { settings: settings.to_vec() })
    }

    fn prepare(&mut self, settings: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        self.call(PrepareSettings { settings: settings.to_vec() })
    }

    fn undo_prepared(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        self.call(UndoPrepared {})
    }

    fn undo_all(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        self.call(UndoAll {})
    }

    fn restore_left_behind(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        self.call(RestoreLeftBehind {})
    }

    fn check(&mut self, settings: &[WantedSetting]) -> Result<(), Fault> {
        self.call(CheckSettings { settings: settings.to_vec() })
    }

    fn preview(&mut self, settings: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        self.call(PreviewSettings { settings: settings.to_vec() })
    }

    fn fingerprint(&mut self) -> Result<Fingerprint, Fault> {
        self.call(ReadFingerprint {})
    }

    fn examine(&mut self) -> Result<Vec<Finding>, Fault> {
        self.call(Examine {})
    }

    fn hold_gpu(&mut self) -> Result<(), Fault> {
        self.call(HoldGpu {})
    }
}
