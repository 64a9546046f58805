//! Making and restoring settings: read, journal, change, verify; and the
//! same steps backwards.

use super::journal::{Begin, Change, Entry, JOURNAL_SCHEMA, JournalState, JournalStorage};
use super::kinds::access;
use super::machine::Machine;
use bytepath_record::{
    Fault, FaultKind, Restoration, RestorationRow, Setting, SettingRecord, SettingValue,
    WantedSetting,
};
use std::io;

/// What was changed so far, and the journal that records it.
pub(super) struct Engine<M, J> {
    pub machine: M,
    pub journal: J,
    pub changes: Vec<Change>,
    next: u32,
}

impl<M: Machine, J: JournalStorage> Engine<M, J> {
    /// Begins a journal. When this returns, its first line is on disk.
    pub(crate) fn begin(machine: M, journal: J, started_ms: u64) -> Result<Self, Fault> {
        let identity = machine.identity();
        let mut engine = Engine { machine, journal, changes: Vec::new(), next: 0 };
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

    /// Sets everything that is wanted, in this order, after a look at whether it
    /// can be. A mandatory setting that cannot be made is a fault, before anything
    /// was changed where that could be known; one that fails later is a fault
    /// too, and the caller undoes what was done before it.
    pub(crate) fn apply(&mut self, wanted: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        self.all_feasible(wanted)?;
        wanted.iter().map(|want| self.apply_one(want)).collect()
    }

    /// Whether every mandatory setting can be made, as far as can be seen without trying.
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
        match self.change(&want.setting, &record.before, &record.after) {
            Ok(after) => Ok(SettingRecord { after, ..record }),
            Err(fault) if want.optional && fault.kind != FaultKind::Storage => {
                // What a half-made change left behind is restored at once.
                if let Some(last) = self.changes.len().checked_sub(1) {
                    self.undo_one(last, JournalOrigin::Here);
                }
                Ok(skipped(fault.message))
            }
            Err(fault) => Err(cannot_set(&want.setting, fault)),
        }
    }

    /// What a setting is, and what it would become; the fault is why it cannot be made.
    pub(crate) fn preview(&mut self, want: &WantedSetting) -> Result<SettingRecord, Fault> {
        let record = SettingRecord::from(want);
        if record.skipped.is_some() {
            return Ok(record);
        }
        let (before, goal) = self.feasible(&want.setting)?;
        let after = if self.holds(&want.setting, &before, &goal) { before.clone() } else { goal };
        Ok(SettingRecord { before, after, ..record })
    }

    /// The current and required value of a setting, or why it cannot be made.
    fn feasible(&mut self, setting: &Setting) -> Result<(SettingValue, SettingValue), Fault> {
        let before = self.machine.read(setting)?;
        let before = before.ok_or_else(|| access(setting).absent())?;
        let goal = self.machine.goal(setting, &before)?;
        Ok((before, goal))
    }

    /// Whether all parts of a goal have the texts that they should have.
    fn holds(&self, setting: &Setting, now: &SettingValue, goal: &SettingValue) -> bool {
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
        let number = self.next;
        self.next = number.saturating_add(1);
        self.note(&Entry::Intent {
            number,
            setting: setting.clone(),
            before: before.clone(),
            goal: goal.clone(),
        })?;
        self.changes.push(Change {
            number,
            setting: setting.clone(),
            before: before.clone(),
            set: goal.clone(),
            verified: false,
            undone: false,
        });
        self.machine.write(setting, goal)?;
        let after = self.machine.read(setting)?.ok_or_else(|| access(setting).absent())?;
        // Journalled even if it is not what was requested: a driver that rounds has changed it, too.
        self.note(&Entry::Done { number, value: after.clone() })?;
        if let Some(change) = self.changes.last_mut() {
            change.set = after.clone();
            change.verified = true;
        }
        if !self.holds(setting, &after, goal) {
            let text = format!("the kernel accepted it, but it reads {after} now");
            return Err(Fault::unsupported(text).remedy(access(setting).shortfall));
        }
        Ok(after)
    }

    /// Restores everything, the last change first. Rows come in that order. The
    /// journal goes when nothing is left to be restored.
    pub(crate) fn undo(&mut self, origin: JournalOrigin) -> Result<Vec<RestorationRow>, Fault> {
        let rows = self.undo_from(0, origin);
        if self.changes.iter().all(|change| change.undone) {
            let noted = self.note(&Entry::End);
            self.journal.discard().map_err(|e| cannot_note(&e)).or(noted)?;
        }
        Ok(rows)
    }

    /// Restores the changes from this one on, the last first, and continues with the
    /// journal. Asked again, it tries those again that could not be restored.
    pub(crate) fn undo_from(&mut self, first: usize, origin: JournalOrigin) -> Vec<RestorationRow> {
        let pending: Vec<usize> =
            (first..self.changes.len()).rev().filter(|at| !self.changes[*at].undone).collect();
        pending.into_iter().map(|at| self.undo_one(at, origin)).collect()
    }

    fn undo_one(&mut self, at: usize, origin: JournalOrigin) -> RestorationRow {
        let change = self.changes[at].clone();
        let of_namespace = change.setting.is_of_namespace();
        let (outcome, note) = match origin {
            JournalOrigin::OtherNamespace if of_namespace => {
                (Restoration::Elsewhere, "it belongs to another network namespace".to_owned())
            }
            JournalOrigin::LostNamespace if of_namespace => {
                (Restoration::Gone, "its network namespace is gone, and the device with it".into())
            }
            _ => self.put_back(&change, origin).unwrap_or_else(|fault| match origin {
                // Nothing that was set before a boot is in force after it.
                JournalOrigin::Rebooted => {
                    (Restoration::Gone, format!("the machine was rebooted since; {fault}"))
                }
                _ => (Restoration::Failed, fault.to_string()),
            }),
        };
        if !matches!(outcome, Restoration::Failed | Restoration::Elsewhere) {
            // A full disk must not keep the rest from being restored. Whoever
            // reads the journal later finds that this one is back already.
            let _ = self.note(&Entry::Undone { number: change.number });
            self.changes[at].undone = true;
        }
        let Change { setting, before, set, .. } = change;
        RestorationRow { setting, before, set, outcome, note, host: None }
    }

    /// Restores the parts of one change that are still as we set them; the note lists
    /// the others.
    fn put_back(
        &mut self,
        change: &Change,
        origin: JournalOrigin,
    ) -> Result<(Restoration, String), Fault> {
        let setting = &change.setting;
        let Some(now) = self.machine.read(setting)? else {
            return Ok((Restoration::Gone, "it no longer exists".into()));
        };
        let mut ours = SettingValue::default();
        let (mut gone, mut foreign) = (Vec::new(), Vec::new());
        for (name, was) in &change.before.0 {
            let Some(now) = now.get(name) else {
                gone.push(name.as_str());
                continue;
            };
            if self.machine.same(setting, now, was) {
                continue;
            }
            match change.set.get(name) {
                Some(set) if self.is_ours(change, name, (was, set, now)) => {
                    ours.0.insert(name.clone(), was.clone());
                }
                set => foreign.push((name.as_str(), now, set)),
            }
        }
        if origin == JournalOrigin::Rebooted {
            return Ok(match ours.is_empty() && foreign.is_empty() {
                true => (Restoration::AlreadyBack, "the machine was rebooted since".into()),
                false => (
                    Restoration::LeftAlone,
                    format!("the machine was rebooted since, and it is {now} now"),
                ),
            });
        }
        let mut notes = Vec::new();
        if !ours.is_empty() {
            self.machine.write(setting, &ours)?;
            let after = self.machine.read(setting)?.ok_or_else(|| access(setting).absent())?;
            if !self.holds(setting, &after, &ours) {
                return Err(Fault::failed(format!("it was restored to {ours}, but reads {after}")));
            }
        }
        if !gone.is_empty() {
            let verb = if gone.len() == 1 { "is" } else { "are" };
            notes.push(format!("{} {verb} no longer there", gone.join(", ")));
        }
        for (name, now, set) in &foreign {
            let of = if change.before.0.len() > 1 { format!("{name} ") } else { String::new() };
            let set = SettingValue::one(*name, set.unwrap_or("the value"));
            notes.push(format!(
                "left alone: {of}is {} now, not the {set} that bytepath had set",
                SettingValue::one(*name, *now)
            ));
        }
        let outcome = match (ours.is_empty(), foreign.is_empty()) {
            (_, false) => Restoration::LeftAlone,
            (false, true) => Restoration::Restored,
            (true, true) if gone.is_empty() => Restoration::AlreadyBack,
            (true, true) => Restoration::Gone,
        };
        Ok((outcome, notes.join("; ")))
    }

    /// Whether what is there now is what we set, or follows from it.
    pub(crate) fn is_ours(
        &self,
        change: &Change,
        name: &str,
        (was, set, now): (&str, &str, &str),
    ) -> bool {
        self.machine.same(&change.setting, now, set)
            || (access(&change.setting).follows)(change, name, [was, set, now])
    }

    fn note(&mut self, entry: &Entry) -> Result<(), Fault> {
        self.journal.append(&entry.line()?).map_err(|e| cannot_note(&e))
    }
}

/// Where a journal was written, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JournalOrigin {
    /// By this kernel, in this network namespace.
    Here,
    /// By this kernel, in another namespace that still exists.
    OtherNamespace,
    /// By this kernel, in a namespace that is gone.
    LostNamespace,
    /// Before the last boot: nothing that it records has lasted.
    Rebooted,
}

impl JournalOrigin {
    pub(crate) fn of(chronicle: &JournalState, machine: &impl Machine) -> JournalOrigin {
        let Some(begin) = &chronicle.begin else { return JournalOrigin::Here };
        let here = machine.identity();
        if begin.boot != here.boot {
            JournalOrigin::Rebooted
        } else if begin.namespace == here.namespace {
            JournalOrigin::Here
        } else if machine.has_namespace(&begin.namespace) {
            JournalOrigin::OtherNamespace
        } else {
            JournalOrigin::LostNamespace
        }
    }
}

fn cannot_set(setting: &Setting, fault: Fault) -> Fault {
    fault.context(format!("cannot set '{setting}'"))
}

fn cannot_note(error: &io::Error) -> Fault {
    Fault::storage(format!("cannot write the journal of settings: {error}"))
        .remedy("free some space; nothing is set without a journal")
}
