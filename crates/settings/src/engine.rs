//! Making settings: read, journal, change, verify. `undo` reverses these steps.

use super::journal::{Begin, Change, Entry, JOURNAL_SCHEMA, JournalStorage};
use super::kinds::access;
use super::machine::Machine;
use super::undo::JournalOrigin;
use bytepath_record::{
    Fault, FaultKind, Restoration, RestorationRow, Setting, SettingRecord, SettingValue,
    WantedSetting,
};
use std::collections::BTreeMap;
use std::io;

/// The changes made, and the journal that records them.
pub(super) struct Engine<M, J> {
    pub machine: M,
    pub journal: J,
    pub changes: Vec<Change>,
    next: u32,
}

/// Values that earlier settings would leave, by subject.
pub(super) type Made = BTreeMap<String, SettingValue>;

impl<M: Machine, J: JournalStorage> Engine<M, J> {
    /// Begins a journal, or continues one that already contains `changes`. On return, its `Begin`
    /// line is on disk.
    pub(crate) fn begin(
        machine: M,
        journal: J,
        changes: Vec<Change>,
        started_ms: u64,
    ) -> Result<Self, Fault> {
        let identity = machine.identity();
        let mut engine = Engine::inherit(machine, journal, changes);
        engine.note(&Entry::Begin(Begin {
            schema: JOURNAL_SCHEMA,
            bytepath: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            boot: identity.boot,
            namespace: identity.namespace,
            started_ms,
        }))?;
        Ok(engine)
    }

    /// Takes over the journal of a run that has died.
    pub(crate) fn inherit(machine: M, journal: J, changes: Vec<Change>) -> Self {
        let next = changes.iter().map(|change| change.number).max();
        Engine { machine, journal, changes, next: next.map_or(0, |last| last.saturating_add(1)) }
    }

    /// Makes all `wanted` settings, in this order. Errors before anything is changed if a mandatory
    /// setting is known to be impossible. Errors too if one fails later; the caller then undoes the
    /// changes made before it.
    pub(crate) fn apply(&mut self, wanted: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        self.all_feasible(wanted)?;
        wanted.iter().map(|want| self.apply_one(want)).collect()
    }

    /// Errors if a mandatory setting cannot be made, as far as can be checked without trying.
    pub(crate) fn all_feasible(&mut self, wanted: &[WantedSetting]) -> Result<(), Fault> {
        for want in wanted.iter().filter(|want| !want.optional && want.obstacle.is_none()) {
            self.feasible(&want.setting).map_err(|fault| cannot_set(&want.setting, fault))?;
        }
        Ok(())
    }

    fn apply_one(&mut self, want: &WantedSetting) -> Result<SettingRecord, Fault> {
        let skipped = |fault| SettingRecord { skipped: Some(fault), ..SettingRecord::from(want) };
        let record = match self.preview(want) {
            Ok(record) if record.before == record.after => return Ok(record),
            Ok(record) => record,
            Err(fault) if want.optional => return Ok(skipped(fault.message)),
            Err(fault) => return Err(cannot_set(&want.setting, fault)),
        };
        let at = self.changes.len();
        match self.change(&record.setting, &record.before, &record.after) {
            Ok(after) => Ok(SettingRecord { after, ..record }),
            Err(fault) if want.optional && fault.kind != FaultKind::Storage => {
                // What a half-made change left behind is restored at once.
                let mut rows = self.undo_from(at, JournalOrigin::Here);
                rows.retain(|row| row.outcome != Restoration::AlreadyBack);
                Ok(skipped(with_rows(fault, &rows).message))
            }
            Err(fault) => Err(cannot_set(&want.setting, fault)),
        }
    }

    /// Returns a setting's current and future value. Errors if it cannot be made.
    pub(crate) fn preview(&mut self, want: &WantedSetting) -> Result<SettingRecord, Fault> {
        self.preview_after(&Made::new(), want)
    }

    /// Like [`Self::preview`], as if the settings in `made` were already in force.
    pub(crate) fn preview_after(
        &mut self,
        made: &Made,
        want: &WantedSetting,
    ) -> Result<SettingRecord, Fault> {
        let record = SettingRecord::from(want);
        if record.skipped.is_some() {
            return Ok(record);
        }
        let (setting, mut before, goal) = self.feasible(&want.setting)?;
        let made = made.get(&setting.subject());
        for (name, text) in &mut before.0 {
            made.and_then(|made| made.get(name)).into_iter().for_each(|now| now.clone_into(text));
        }
        let after = if self.holds(&setting, &before, &goal) { before.clone() } else { goal };
        Ok(SettingRecord { setting, before, after, ..record })
    }

    /// Returns the setting as resolved on this machine, with its current and required value. Errors
    /// if it cannot be made.
    fn feasible(
        &mut self,
        setting: &Setting,
    ) -> Result<(Setting, SettingValue, SettingValue), Fault> {
        let setting = self.machine.resolve(setting)?;
        let before = self.machine.read(&setting)?;
        let before = before.ok_or_else(|| access(&setting).absent())?;
        let goal = self.machine.goal(&setting, &before)?;
        Ok((setting, before, goal))
    }

    /// True if every part of `goal` has its required value in `now`.
    pub(super) fn holds(&self, setting: &Setting, now: &SettingValue, goal: &SettingValue) -> bool {
        let as_wanted = |(name, text): (&String, &String)| {
            now.get(name).is_some_and(|now| self.machine.same(setting, now, text))
        };
        goal.0.iter().all(as_wanted)
    }

    /// Journal, change, verify, journal.
    fn change(
        &mut self,
        setting: &Setting,
        before: &SettingValue,
        goal: &SettingValue,
    ) -> Result<SettingValue, Fault> {
        let at = self.announce(setting, before, goal)?;
        let written = self.machine.write(setting, goal);
        // A failed write may have changed some parts.
        let after = self.read_back(at, setting);
        written?;
        let after = after?;
        if !self.holds(setting, &after, goal) {
            let made =
                goal.0.keys().filter_map(|name| Some((name.clone(), after.0.get(name)?.clone())));
            let made = SettingValue(made.collect());
            let text = format!("asked for {goal}, the kernel accepted it, but it reads {made} now");
            return Err(Fault::unsupported(text).remedy(access(setting).shortfall));
        }
        Ok(after)
    }

    /// Journals a change before it is made; returns its index in `changes`.
    pub(super) fn announce(
        &mut self,
        setting: &Setting,
        before: &SettingValue,
        goal: &SettingValue,
    ) -> Result<usize, Fault> {
        let number = self.next;
        let link = self.machine.link(setting)?;
        let (setting, before, set) = (setting.clone(), before.clone(), goal.clone());
        let (verified, undone, kept) = (false, false, false);
        let change = Change { number, setting, link, before, set, verified, undone, kept };
        let Change { setting, before, set: goal, .. } = change.clone();
        self.note(&Entry::Intent { number, setting, link, before, goal })?;
        self.next = number.saturating_add(1);
        self.changes.push(change);
        Ok(self.changes.len() - 1)
    }

    /// Reads the value that a change led to and journals it: whatever it is, it is ours.
    pub(super) fn read_back(
        &mut self,
        at: usize,
        setting: &Setting,
    ) -> Result<SettingValue, Fault> {
        let after = self.machine.read(setting)?.ok_or_else(|| access(setting).absent())?;
        self.settle(at, after.clone())?;
        Ok(after)
    }

    /// Journals the value that a change led to.
    pub(super) fn settle(&mut self, at: usize, value: SettingValue) -> Result<(), Fault> {
        let change = &mut self.changes[at];
        (change.set, change.verified) = (value.clone(), true);
        let number = change.number;
        self.note(&Entry::Done { number, value })
    }

    pub(super) fn note(&mut self, entry: &Entry) -> Result<(), Fault> {
        self.journal.append(&entry.line()?).map_err(|e| cannot_note(&e))
    }
}

fn cannot_set(setting: &Setting, fault: Fault) -> Fault {
    fault.context(format!("cannot set '{setting}'"))
}

/// Appends the outcome of each restoration to the fault's message.
pub(super) fn with_rows(mut fault: Fault, rows: &[RestorationRow]) -> Fault {
    rows.iter().for_each(|row| fault.message.push_str(&format!("; {row}")));
    fault
}

pub(super) fn cannot_note(error: &io::Error) -> Fault {
    Fault::storage(format!("cannot write the journal of settings: {error}"))
        .remedy("free some space; nothing is set without a journal")
}
