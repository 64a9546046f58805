//! Keeps the hosts while a study runs: makes settings before the first deployment starts, restores
//! them after the last, and checks for other changes meanwhile.

use super::gpus::UsedGpu;
use super::plan::Laboratory;
use super::queues::Common;
use super::stewards::{Fingerprints, Stewards};
use bytepath_host::{Fingerprint, differences};
use bytepath_record::{
    Facts, Fault, HOST_CHANGE, Reading, Restoration, RestorationRow, Role, Scope, Setting,
    SettingRecord, Trial, TrialStatus, Unit, WantedSetting,
};
use std::time::{Duration, Instant};

/// How long a queue may stay busy after the process that used it ended: the kernel releases rings
/// and bindings in the background.
const RELEASE: Duration = Duration::from_secs(5);

/// Keeps the hosts as the study requires. Dropping it restores everything.
pub(super) struct Guard {
    /// `None` while hosts are lost.
    stewards: Option<Stewards>,
    wanted: Vec<WantedSetting>,
    /// The settings made, with old and new values.
    pub records: Vec<SettingRecord>,
    last: Fingerprints,
    /// The GPUs that are kept awake.
    gpus: Vec<UsedGpu>,
    /// The NIC setup that all cells share.
    pub common: Common,
}

/// Returns all settings in order. A new namespace inherits sysctls, so they come before the devices
/// that are lent to one. Everything else comes after, because a device loses some of its settings
/// when it moves.
fn around_loans(wanted: &[WantedSetting], loans: Vec<WantedSetting>) -> Vec<WantedSetting> {
    let is_sysctl = |want: &WantedSetting| matches!(want.setting, Setting::Sysctl { .. });
    let (sysctls, others): (Vec<_>, Vec<_>) = wanted.iter().cloned().partition(is_sysctl);
    [sysctls, loans, others].concat()
}

/// A host that changed, and the change; the text begins with the role.
pub(super) type Change = (Option<Role>, String);

/// Prefixes a text with the host's role, if each host is a separate machine.
fn of_host(host: Option<Role>, text: &str) -> String {
    host.map_or_else(|| text.to_owned(), |role| format!("{role}: {text}"))
}

impl Guard {
    /// Makes the settings, including those without which the testbed cannot start. The rows report
    /// what a crashed earlier run had left behind. Without settings nothing is touched, neither
    /// journal nor lock.
    pub(super) fn begin(
        laboratory: &Laboratory,
        wanted: &[WantedSetting],
    ) -> Result<(Guard, Vec<RestorationRow>), Fault> {
        let wanted = around_loans(wanted, laboratory.testbed.settings());
        let mut stewards = Stewards::of(laboratory)?;
        let (records, rows) = stewards.apply(&wanted)?;
        let last = stewards.fingerprints()?;
        let (gpus, common) = (Vec::new(), Common::default());
        Ok((Guard { stewards: Some(stewards), wanted, records, last, gpus, common }, rows))
    }

    /// Keeps these GPUs awake for the length of the study.
    pub(super) fn hold_gpus(&mut self, gpus: Vec<UsedGpu>) -> Result<(), Fault> {
        let stewards = self.stewards()?;
        gpus.iter().try_for_each(|gpu| stewards.hold_gpu(gpu))?;
        self.gpus = gpus;
        Ok(())
    }

    /// Returns a guard for a check that sets nothing; `records` are what would be set.
    pub(super) fn idle(
        laboratory: &Laboratory,
        records: Vec<SettingRecord>,
    ) -> Result<Guard, Fault> {
        Ok(Guard {
            stewards: Some(Stewards::of(laboratory)?),
            wanted: Vec::new(),
            records,
            last: Vec::new(),
            gpus: Vec::new(),
            common: Common::default(),
        })
    }

    /// Errors if a setting cannot be made, naming it. Changes nothing.
    pub(super) fn feasible(&mut self, wanted: &[WantedSetting]) -> Result<(), Fault> {
        self.stewards()?.feasible(wanted)
    }

    /// True if every steward still answers.
    pub(super) fn holds(&mut self) -> bool {
        self.stewards().is_ok_and(|stewards| stewards.fingerprints().is_ok())
    }

    /// Sets the hosts up again after some were lost. A steward restores its host when its pipe
    /// closes, so all settings are made once more; changes are still detected against the original
    /// fingerprints. Returns the hosts' current facts, and the settings that a host that went down
    /// had left behind.
    pub(super) fn begin_again(
        &mut self,
        laboratory: &Laboratory,
    ) -> Result<(Option<[Facts; 2]>, Vec<RestorationRow>), Fault> {
        // The steward of a host that was not lost holds its journal, and must end as well.
        self.stewards = None;
        let mut stewards = Stewards::of(laboratory)?;
        self.gpus.iter().try_for_each(|gpu| stewards.hold_gpu(gpu))?;
        let facts = stewards.facts()?;
        let (records, rows) = stewards.apply(&self.wanted)?;
        self.records = records;
        self.stewards = Some(stewards);
        Ok((facts, rows))
    }

    fn stewards(&mut self) -> Result<&mut Stewards, Fault> {
        let lost = || Fault::peer_lost("the stewards of the hosts are lost");
        self.stewards.as_mut().ok_or_else(lost)
    }

    /// Makes the settings that a cell's paths require of their NICs, until
    /// [`Guard::undo_prepared`]. On a fault, only these are restored.
    pub(super) fn prepare(
        &mut self,
        wanted: &[WantedSetting],
    ) -> Result<Vec<SettingRecord>, Fault> {
        let prepared = self.stewards().and_then(|stewards| stewards.prepare(wanted));
        if prepared.is_err() {
            // One host may be prepared although the other one refused.
            self.undo_prepared()?;
        }
        prepared
    }

    /// Restores what was prepared. If an agent that has just ended still holds something, retries
    /// until the kernel has released it. A fault ends the study, because the next cell would run on
    /// a NIC prepared for another one.
    pub(super) fn undo_prepared(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        let deadline = Instant::now() + RELEASE;
        let mut all = Vec::new();
        loop {
            let rows = self.stewards()?.undo_prepared()?;
            let (failed, done): (Vec<_>, Vec<_>) =
                rows.into_iter().partition(|row| row.outcome == Restoration::Failed);
            all.extend(done);
            match failed.first() {
                None => return Ok(all),
                Some(row) if Instant::now() > deadline => {
                    return Err(not_restored(row.to_string()));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Returns the hosts' settings at the last check. If each host is a separate machine, names
    /// begin with the role.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let all = self.last.iter().flat_map(|(host, settings)| {
            settings.iter().map(|(name, value)| (of_host(*host, name), value.clone()))
        });
        all.collect()
    }

    /// Returns the changes since the last check.
    pub(super) fn check_for_changes(&mut self) -> Result<Vec<Change>, Fault> {
        let now = self.stewards()?.fingerprints()?;
        let mut changes = Vec::new();
        for ((host, before), (_, now)) in self.last.iter().zip(&now) {
            let what = differences(before, now).into_iter();
            changes.extend(what.map(|what| (*host, of_host(*host, &what))));
        }
        self.last = now;
        Ok(changes)
    }

    /// Restores everything and reports the outcome of each.
    pub(super) fn end(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        self.stewards()?.undo()
    }
}

/// Returns the fault of a setting that was not restored.
pub(super) fn not_restored(row: String) -> Fault {
    Fault::failed(row).remedy("`bytepath restore` tries again; the study itself is complete")
}

/// Records changes on the hosts in the trials that have just ended: `stats::judge_events` rejects
/// them for it.
pub(super) fn note_changes(trials: &mut [Trial], changes: &[Change]) {
    for trial in trials.iter_mut().filter(|trial| trial.status == TrialStatus::Measured) {
        for host in [None, Some(Role::Sender), Some(Role::Receiver)] {
            let count = changes.iter().filter(|(of, _)| *of == host).count();
            if count == 0 {
                continue;
            }
            let scope = host.map_or(Scope::Machine, Scope::MachineOf);
            trial.readings.push(Reading::sum("host.changes", Unit::Count, count as f64, scope));
        }
        trial.warnings.extend(changes.iter().map(|(_, what)| format!("{HOST_CHANGE}{what}")));
    }
}
