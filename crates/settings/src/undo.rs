//! Restoring settings: reverses `engine`, in the process that made them or in one that finds their
//! journal.

use super::engine::{Engine, cannot_note};
use super::journal::{Change, Entry, JournalState, JournalStorage};
use super::kinds::access;
use super::machine::Machine;
use bytepath_record::{Fault, Restoration, RestorationRow, Setting, SettingValue};
use std::time::Duration;

/// How often to check that a device has its queues again after their number was restored.
const QUEUE_CHECKS: u32 = 20;
const QUEUE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Where a journal was written, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JournalOrigin {
    /// By this kernel, in this network namespace.
    Here,
    /// By this kernel, in another namespace that still exists.
    OtherNamespace,
    /// By this kernel, in a namespace that is gone.
    LostNamespace,
    /// Before the last boot: nothing in it is still in force.
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

/// The parts of a change that differ from their old values.
#[derive(Default)]
struct Moved {
    /// Set by us, or changed as a consequence: the values to restore.
    ours: SettingValue,
    /// No longer there.
    gone: Vec<String>,
    /// Changed by someone else; a note about each.
    foreign: Vec<String>,
}

impl<M: Machine, J: JournalStorage> Engine<M, J> {
    /// Restores the changes from index `first` on, the last first, and journals that; rows come in
    /// that order. Called again, it retries those that could not be restored.
    pub(crate) fn undo_from(&mut self, first: usize, origin: JournalOrigin) -> Vec<RestorationRow> {
        let pending: Vec<usize> =
            (first..self.changes.len()).rev().filter(|at| !self.changes[*at].undone).collect();
        pending.into_iter().map(|at| self.undo_one(at, origin)).collect()
    }

    /// Removes the journal if nothing is left to restore.
    pub(crate) fn finish(&mut self) -> Result<(), Fault> {
        if !self.changes.iter().all(|change| change.undone) {
            return Ok(());
        }
        let noted = self.note(&Entry::End);
        self.journal.discard().map_err(|e| cannot_note(&e)).or(noted)
    }

    pub(super) fn undo_one(&mut self, at: usize, origin: JournalOrigin) -> RestorationRow {
        let of_namespace = self.changes[at].setting.is_of_namespace();
        let (outcome, note) = match origin {
            JournalOrigin::OtherNamespace if of_namespace => {
                (Restoration::Elsewhere, "it belongs to another network namespace".to_owned())
            }
            JournalOrigin::LostNamespace if of_namespace => {
                (Restoration::Gone, "its network namespace is gone, and the device with it".into())
            }
            JournalOrigin::Rebooted => self.look_after_reboot(at),
            _ => self.put_back(at).unwrap_or_else(|fault| (Restoration::Failed, fault.to_string())),
        };
        if !matches!(outcome, Restoration::Failed | Restoration::Elsewhere) {
            // A full disk must not keep the rest from being restored. A later replay finds this
            // one back already.
            let _ = self.note(&Entry::Undone { number: self.changes[at].number });
            self.changes[at].undone = true;
        }
        let Change { setting, before, set, .. } = self.changes[at].clone();
        RestorationRow { setting, before, set, outcome, note, host: None }
    }

    /// Reports on a change made before the last boot: it is no longer in force, so nothing is
    /// written.
    fn look_after_reboot(&mut self, at: usize) -> (Restoration, String) {
        let change = self.changes[at].clone();
        let said = |more: String| format!("the machine was rebooted since{more}");
        match self.machine.read(&change.setting) {
            Err(fault) => (Restoration::Gone, said(format!("; {fault}"))),
            Ok(None) => (Restoration::Gone, "it no longer exists".into()),
            Ok(Some(now)) => {
                let mut moved = self.compare(&change, &now);
                // The affinity of interrupts differs after each boot.
                let access = access(&change.setting);
                moved.ours.0.retain(|name, _| !(access.goes_along)(name));
                match moved.ours.is_empty() && moved.foreign.is_empty() {
                    true => (Restoration::AlreadyBack, said(String::new())),
                    false => (Restoration::LeftAlone, said(format!(", and it is {now} now"))),
                }
            }
        }
    }

    /// Restores the parts of one change that are still as we set them; the note lists
    /// the others.
    fn put_back(&mut self, at: usize) -> Result<(Restoration, String), Fault> {
        let Change { setting: known, link, verified, .. } = self.changes[at].clone();
        let setting = match link {
            None => known.clone(),
            Some(link) => match self.machine.device_name(&known, link)? {
                Some(device) => known.clone().on_device(&device),
                None => return Ok((Restoration::Gone, self.describe_loss(&known))),
            },
        };
        let Some(mut now) = self.machine.read(&setting)? else {
            return Ok((Restoration::Gone, "it no longer exists".into()));
        };
        if !verified && self.find_out(at, &setting, &now)? {
            now = self.machine.read(&setting)?.ok_or_else(|| access(&setting).absent())?;
        }
        let Moved { mut ours, mut gone, foreign } = self.compare(&self.changes[at], &now);
        if !ours.is_empty() {
            let after = self.write_back(&setting, &ours)?;
            let stays_away = |name: &String, _: &mut String| is_away(&setting, &after, name);
            gone.extend(ours.0.extract_if(.., stays_away).map(|(name, _)| name));
            if !self.holds(&setting, &after, &ours) {
                return Err(Fault::failed(format!("it was restored to {ours}, but reads {after}")));
            }
        }
        let outcome = match (ours.is_empty(), foreign.is_empty()) {
            (_, false) => Restoration::LeftAlone,
            (false, true) => Restoration::Restored,
            (true, true) if gone.is_empty() => Restoration::AlreadyBack,
            (true, true) => Restoration::Gone,
        };
        let mut notes = Vec::new();
        if setting != known {
            notes.push(format!("its device has another name now: {}", setting.subject()));
        }
        if !gone.is_empty() {
            let verb = if gone.len() == 1 { "is" } else { "are" };
            notes.push(format!("{} {verb} no longer there", gone.join(", ")));
        }
        notes.extend(foreign);
        Ok((outcome, notes.join("; ")))
    }

    /// Writes parts of a setting, and returns what it is then. Waits for those that come back with
    /// it: some drivers create their queues in the background (hv_netvsc).
    fn write_back(
        &mut self,
        setting: &Setting,
        ours: &SettingValue,
    ) -> Result<SettingValue, Fault> {
        let mut checks = 0..QUEUE_CHECKS;
        loop {
            self.machine.write(setting, ours)?;
            let after = self.machine.read(setting)?.ok_or_else(|| access(setting).absent())?;
            let is_complete = !ours.0.keys().any(|name| is_away(setting, &after, name));
            if is_complete || checks.next().is_none() {
                return Ok(after);
            }
            std::thread::sleep(QUEUE_CHECK_INTERVAL);
        }
    }

    /// Describes the loss of a device. A device that has its name now is another one.
    fn describe_loss(&mut self, setting: &Setting) -> String {
        match self.machine.read(setting) {
            Ok(Some(now)) => format!(
                "its device no longer exists; another one has the name, with {now}, and is left alone"
            ),
            _ => "it no longer exists".into(),
        }
    }

    fn compare(&self, change: &Change, now: &SettingValue) -> Moved {
        let mut moved = Moved::default();
        let mut taken = SettingValue::default();
        let goes_along = access(&change.setting).goes_along;
        for (name, was) in &change.before.0 {
            let set = change.set.get(name);
            let Some(now) = now.get(name) else {
                match set {
                    Some(_) if !goes_along(name) => moved.gone.push(name.clone()),
                    _ => drop(taken.0.insert(name.clone(), was.clone())),
                }
                continue;
            };
            if self.machine.same(&change.setting, now, was) {
                continue;
            }
            match set {
                Some(set) if self.is_ours(change, name, (was, set, now)) => {
                    moved.ours.0.insert(name.clone(), was.clone());
                }
                // The crash came before it was read what else had moved; or it came with the
                // change, and was not there then.
                None if !change.verified || self.is_ours(change, name, (was, "", now)) => {
                    moved.ours.0.insert(name.clone(), was.clone());
                }
                // Nor had we changed it.
                Some(set) if self.machine.same(&change.setting, set, was) => {}
                set => moved.foreign.push(describe_foreign(change, name, now, set)),
            }
        }
        // Parts that our change removed come back only by undoing it.
        match moved.ours.is_empty() {
            true => moved.gone.extend(taken.0.into_keys()),
            false => moved.ours.0.extend(taken.0),
        }
        moved
    }

    /// True if the current value `now` is what we set, or follows from it.
    pub(crate) fn is_ours(
        &self,
        change: &Change,
        name: &str,
        (was, set, now): (&str, &str, &str),
    ) -> bool {
        self.machine.same(&change.setting, now, set)
            || (access(&change.setting).follows)(change, name, [was, set, now])
    }

    /// Determines whether values that are neither the old nor the requested ones are what the
    /// kernel made of the request: the crash came before they were read back. Requests them again,
    /// as a separate change that is then undone, so that the present values come back even after
    /// another crash. Returns false if no value was unclear.
    fn find_out(
        &mut self,
        at: usize,
        setting: &Setting,
        now: &SettingValue,
    ) -> Result<bool, Fault> {
        let change = &self.changes[at];
        let is_unclear = |(name, goal): &(&String, &String)| {
            let texts = change.before.get(name).zip(now.get(name));
            texts.is_some_and(|(was, now)| {
                !self.machine.same(setting, now, was)
                    && !self.is_ours(change, name, (was, goal, now))
            })
        };
        let unclear = change.set.0.iter().filter(is_unclear);
        let unclear = SettingValue(unclear.map(|(n, goal)| (n.clone(), goal.clone())).collect());
        if unclear.is_empty() {
            return Ok(false);
        }
        let attempt = self.announce(setting, now, &unclear)?;
        let written = self.machine.write(setting, &unclear);
        let made = self.read_back(attempt, setting)?;
        let row = self.undo_one(attempt, JournalOrigin::Here);
        written?;
        if row.is_pending() {
            return Err(Fault::failed(row.to_string()));
        }
        for name in unclear.0.keys() {
            if let (Some(now), Some(made)) = (now.get(name), made.get(name))
                && self.machine.same(setting, now, made)
            {
                self.changes[at].set.0.insert(name.clone(), made.to_owned());
            }
        }
        Ok(true)
    }
}

/// Whether a part that goes with its setting is missing.
fn is_away(setting: &Setting, now: &SettingValue, name: &str) -> bool {
    now.get(name).is_none() && (access(setting).goes_along)(name)
}

fn describe_foreign(change: &Change, name: &str, now: &str, set: Option<&str>) -> String {
    let of = if change.before.is_ambiguous(name) { format!("{name} ") } else { String::new() };
    let now = SettingValue::one(name, now);
    let set = set.map_or("value".to_owned(), |set| SettingValue::one(name, set).to_string());
    format!("left alone: {of}is {now} now, not the {set} that bytepath had set")
}
