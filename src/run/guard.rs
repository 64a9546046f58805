//! The host while a study runs: settings that are made before the first testbed is
//! raised and put back after the last, and an eye on what somebody else changes
//! meanwhile.

use crate::host::settings::{Applied, Host, Place};
use crate::host::{Fingerprint, differences, fingerprint};
use crate::record::{
    Fault, Reading, RestorationRow, Scope, SettingRecord, Trial, TrialStatus, Unit, WantedSetting,
};
use crate::sys::Roots;

/// Keeps the host as the study wants it. Dropping it puts everything back.
pub(super) struct Guard {
    applied: Option<Applied>,
    last: Fingerprint,
}

impl Guard {
    /// Makes the settings; the rows tell what an earlier run that died had left
    /// behind. Without settings nothing is touched, no journal and no lock.
    pub fn begin(wanted: &[WantedSetting]) -> Result<(Guard, Vec<RestorationRow>), Fault> {
        let (applied, rows) = if wanted.is_empty() {
            (None, Vec::new())
        } else {
            let host = Host::new(Roots::real());
            let (applied, rows) = Applied::apply(&Place::standard(), host, wanted)?;
            (Some(applied), rows)
        };
        Ok((Guard { applied, last: fingerprint(&Roots::real()) }, rows))
    }

    /// What was set, from what to what.
    pub fn records(&self) -> &[SettingRecord] {
        self.applied.as_ref().map_or(&[], Applied::records)
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
        trial.readings.push(Reading {
            metric: "host.changes".to_owned(),
            unit: Unit::Count,
            value: changes.len() as f64,
            scope: Scope::Machine,
        });
        trial.warnings.extend(changes.iter().map(|change| format!("host: {change}")));
    }
}
