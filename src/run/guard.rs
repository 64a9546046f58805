//! The host while a study runs: settings that are made before the first testbed is
//! raised and put back after the last, and an eye on what somebody else changes
//! meanwhile.

use crate::host::settings::Applied;
use crate::host::{Fingerprint, Testbed, differences, fingerprint};
use crate::record::{
    Fault, FaultKind, Reading, Restoration, RestorationRow, Scope, SettingRecord, Trial,
    TrialStatus, Unit, WantedSetting,
};
use crate::sys::Roots;
use std::time::{Duration, Instant};

/// How long a queue may be held after the process that had it ended: the kernel takes
/// rings and bindings apart in the background.
const RELEASE: Duration = Duration::from_secs(5);

/// Keeps the host as the study wants it. Dropping it puts everything back.
pub(super) struct Guard {
    applied: Option<Applied>,
    last: Fingerprint,
}

impl Guard {
    /// Makes the settings, and those without which the testbed cannot be raised; the rows
    /// tell what an earlier run that died had left behind. Without settings nothing is
    /// touched, no journal and no lock.
    pub fn begin(
        testbed: &dyn Testbed,
        wanted: &[WantedSetting],
    ) -> Result<(Guard, Vec<RestorationRow>), Fault> {
        let wanted = [wanted, &testbed.settings()].concat();
        let (applied, rows) = if wanted.is_empty() {
            (None, Vec::new())
        } else {
            let (place, host) = testbed.host();
            let (applied, rows) = Applied::apply(&place, host, &wanted)?;
            (Some(applied), rows)
        };
        Ok((Guard { applied, last: fingerprint(&Roots::real()) }, rows))
    }

    /// What was set, from what to what.
    pub fn records(&self) -> &[SettingRecord] {
        self.applied.as_ref().map_or(&[], Applied::records)
    }

    /// Sets what a cell's paths ask of their cards, until [`Guard::unprepare`]. On a fault
    /// these alone are put back.
    pub fn prepare(
        &mut self,
        testbed: &dyn Testbed,
        wanted: &[WantedSetting],
    ) -> Result<Vec<SettingRecord>, Fault> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        if self.applied.is_none() {
            let (place, host) = testbed.host();
            // Rows of an earlier run that died are told of where a study begins.
            self.applied = Some(Applied::apply(&place, host, &[])?.0);
        }
        self.applied.as_mut().map_or(Ok(Vec::new()), |applied| applied.prepare(wanted))
    }

    /// Puts back what was prepared. What an agent that has just ended holds still is
    /// asked for until the kernel has let it go. A fault ends the study, because the
    /// next cell would run on a card that another one had prepared.
    pub fn unprepare(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        let Some(applied) = &mut self.applied else { return Ok(Vec::new()) };
        let deadline = Instant::now() + RELEASE;
        let mut all = Vec::new();
        loop {
            let rows = applied.unprepare();
            let (failed, done): (Vec<_>, Vec<_>) =
                rows.into_iter().partition(|row| row.outcome == Restoration::Failed);
            all.extend(done);
            match failed.first() {
                None => return Ok(all),
                Some(row) if Instant::now() > deadline => {
                    return Err(Fault::new(FaultKind::System, row.to_string())
                        .remedy("`bytepath restore` tries again; the study itself is whole"));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// What the host was set to at the last look.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.last
    }

    /// Looks again, and tells what somebody has changed since the last look.
    pub fn look(&mut self) -> Vec<String> {
        let now = fingerprint(&Roots::real());
        let changes = differences(&self.last, &now);
        self.last = now;
        changes
    }

    /// Puts everything back and tells what became of each.
    pub fn end(&mut self) -> Vec<RestorationRow> {
        self.applied.take().map(Applied::undo).unwrap_or_default()
    }
}

/// Notes in trials that have just ended what was changed on the host meanwhile:
/// the rules of `stats::judge_events` reject them by it.
pub(super) fn note_changes(trials: &mut [Trial], changes: &[String]) {
    if changes.is_empty() {
        return;
    }
    for trial in trials.iter_mut().filter(|trial| trial.status == TrialStatus::Measured) {
        let count = changes.len() as f64;
        trial.readings.push(Reading::sum("host.changes", Unit::Count, count, Scope::Machine));
        trial.warnings.extend(changes.iter().map(|change| format!("host: {change}")));
    }
}
