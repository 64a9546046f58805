//! Settings of a Linux machine that are always restored: sysctls, offloads, rings and queues
//! of NICs, CPU clocks, huge pages and others ([`bytepath_record::Setting`]).
//!
//! Each is read, written to a journal, changed and read back; and undone in reverse order at
//! the end, on an error, on Ctrl-C, on a panic, and after SIGKILL by the next process that
//! reads the journal. This crate does not decide what is set. It runs in the process that is on
//! the machine concerned: an agent's, or the controller's for its own host.
//!
//! The path of a setting: [`Applied::apply`] takes the lock of a folder ([`StateFolder`]), replays
//! the journal of a run that died, and hands each setting to the engine, which reads and writes a
//! [`Machine`]. [`ThisMachine`] is the real host; `kinds` is its table of how each kind is read and
//! changed. `docs/reference/settings.md` describes what survives what.
//!
//! A machine can be anything that has settings:
//!
//! ```
//! use bytepath_record::{Fault, Setting, SettingValue, WantedSetting};
//! use bytepath_settings::{Applied, Identity, Machine, StateFolder};
//! use std::{cell::RefCell, rc::Rc};
//!
//! /// A machine whose only setting is the MTU of its only device.
//! #[derive(Clone)]
//! struct OneMtu(Rc<RefCell<String>>);
//!
//! impl Machine for OneMtu {
//!     fn read(&mut self, _: &Setting) -> Result<Option<SettingValue>, Fault> {
//!         Ok(Some(SettingValue::one("mtu", self.0.borrow().as_str())))
//!     }
//!     fn goal(&mut self, setting: &Setting, _: &SettingValue) -> Result<SettingValue, Fault> {
//!         let Setting::Mtu { bytes, .. } = setting else { panic!("it has nothing else") };
//!         Ok(SettingValue::one("mtu", bytes.to_string()))
//!     }
//!     fn write(&mut self, _: &Setting, to: &SettingValue) -> Result<(), Fault> {
//!         *self.0.borrow_mut() = to.get("mtu").unwrap_or_default().to_owned();
//!         Ok(())
//!     }
//!     fn same(&self, _: &Setting, a: &str, b: &str) -> bool {
//!         a == b
//!     }
//!     fn identity(&self) -> Identity {
//!         Identity::default()
//!     }
//!     fn has_namespace(&self, _: &str) -> bool {
//!         true
//!     }
//! }
//!
//! # let state = tempfile::tempdir().unwrap();
//! let mtu = Rc::new(RefCell::new("1500".to_owned()));
//! let setting: Setting = "mtu eth0 4148".parse()?;
//! let place = StateFolder::at(state.path());
//! let wanted = [WantedSetting::from(setting)];
//! let (applied, _) = Applied::apply(&place, OneMtu(mtu.clone()), &wanted)?;
//! assert_eq!(*mtu.borrow(), "4148");
//! assert_eq!(applied.records()[0].to_string(), "mtu eth0: 1500 -> 4148");
//! // The journal has what to restore, should this process die now.
//! assert!(place.read()?.is_some());
//! drop(applied);
//! assert_eq!(*mtu.borrow(), "1500");
//! # Ok::<(), Fault>(())
//! ```

#![forbid(unsafe_code)]

mod access;
mod device;
mod engine;
mod exclusion;
mod files;
pub mod journal;
mod kinds;
mod loan;
mod machine;
pub mod offloads;
mod place;
mod qdisc;
mod queues;
mod side_effects;
mod undo;

pub use exclusion::{Exclusion, Reach};
pub use loan::{namespace_of, tune, tuning};
pub use machine::{Identity, Machine, ThisMachine};
pub use place::{JournalFile, Lock, STATE_VARIABLE, StateFolder};

use bytepath_record::{Fault, Restoration, RestorationRow, Setting, SettingRecord, WantedSetting};
use engine::{Engine, Made, with_rows};
use journal::{Change, Damage, JournalState, JournalStorage};
use std::io::Write;
use std::time::{Duration, Instant};
use undo::JournalOrigin;

/// Settings that are in force. Dropping it restores them; [`Applied::undo`]
/// does so too and returns the outcome of each.
pub struct Applied<M: Machine = ThisMachine> {
    engine: Engine<M, JournalFile>,
    records: Vec<SettingRecord>,
    /// Index of the first change made by this run; those before it are from a run that died.
    own: usize,
    /// Index of the first change made by [`Applied::prepare`].
    lasting: usize,
    undone: bool,
    turn: Turn,
    place: StateFolder,
}

impl<M: Machine> Applied<M> {
    /// Makes all `wanted` settings, in this order. The journal of an earlier run that died is
    /// replayed first; the rows of that replay are returned too.
    ///
    /// Errors, and makes no setting, if another bytepath is changing settings on this host, if a
    /// mandatory setting is known not to be possible, or if the earlier run's settings cannot be
    /// restored: any of them if they belong to another network namespace, otherwise only those that
    /// this run wants to change too. What the kernel refuses to restore stays in the journal. If a
    /// setting fails later, those made before it are restored.
    ///
    /// Retries what the kernel refuses to restore, as [`restore`] does. This blocks for up to 2 s,
    /// or 10 s if memory of a process is attached to a queue, and cannot be cut short. Only the
    /// first run after the one that died waits.
    pub fn apply(
        place: &StateFolder,
        machine: M,
        wanted: &[WantedSetting],
    ) -> Result<(Applied<M>, Vec<RestorationRow>), Fault> {
        let mut turn = Turn::take(place, &machine)?;
        let given_up = given_up(place)?;
        let (machine, rows) = replay_until_released(place, &mut turn, machine, &given_up)?;
        let changes = kept_changes(place, &machine, &rows)?;
        let journal = match changes.is_empty() {
            true => place.create(&turn.lock)?,
            false => place.reopen(&turn.lock)?,
        };
        let engine = Engine::begin(machine, journal, changes, now_ms())?;
        let (records, own) = (Vec::new(), engine.changes.len());
        let (undone, place) = (false, place.clone());
        let mut applied = Applied { engine, records, own, lasting: own, undone, turn, place };
        applied.add(wanted)?;
        Ok((applied, rows))
    }

    /// Makes more settings. On a fault, restores everything, including earlier settings.
    pub fn add(&mut self, wanted: &[WantedSetting]) -> Result<(), Fault> {
        match self.change(wanted) {
            Ok(records) => {
                self.records.extend(records);
                self.lasting = self.engine.changes.len();
                Ok(())
            }
            Err(fault) => Err(with_rows(fault, &self.put_back())),
        }
    }

    fn change(&mut self, wanted: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        let machine = &mut self.engine.machine;
        let mut subject = |want: &WantedSetting| {
            machine.resolve(&want.setting).as_ref().unwrap_or(&want.setting).subject()
        };
        let subjects: Vec<String> = wanted.iter().map(&mut subject).collect();
        let is_wanted =
            |change: &&Change| !change.undone && subjects.contains(&change.setting.subject());
        if let Some(change) = self.engine.changes[..self.own].iter().find(is_wanted) {
            let (part, before, set) = change.setting.differing(&change.before, &change.set);
            let text = format!("{}{part}: {before} -> {set}", change.setting.subject());
            return Err(still_in_force(&self.place, &text));
        }
        // Two hosts of a study may be one machine: the second finds the first one's settings made.
        let mut changes_machine = |want: &WantedSetting| {
            let would_change = |record: SettingRecord| record.before != record.after;
            !want.setting.is_of_namespace() && self.engine.preview(want).is_ok_and(would_change)
        };
        if wanted.iter().any(&mut changes_machine) {
            self.turn.reach_machine(&self.engine.machine)?;
        }
        self.engine.apply(wanted)
    }

    /// Makes more settings until [`Applied::unprepare`]. On a fault, restores only what was
    /// prepared; earlier settings stay.
    pub fn prepare(&mut self, wanted: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        self.change(wanted).map_err(|fault| with_rows(fault, &self.unprepare()))
    }

    /// Restores what was prepared, the last first. Call it again to retry what could not be
    /// restored yet.
    pub fn unprepare(&mut self) -> Vec<RestorationRow> {
        self.engine.undo_from(self.lasting, JournalOrigin::Here)
    }

    /// Each setting with its old and new value, or why it was skipped.
    pub fn records(&self) -> &[SettingRecord] {
        &self.records
    }

    /// Restores everything, the last first; returns the outcome of each.
    pub fn undo(mut self) -> Vec<RestorationRow> {
        self.put_back()
    }

    fn put_back(&mut self) -> Vec<RestorationRow> {
        self.undone = true;
        let rows = self.engine.undo_from(self.own, JournalOrigin::Here);
        // If the journal cannot be removed: its entries are marked as restored already.
        let _ = self.engine.finish();
        rows
    }
}

impl<M: Machine> Drop for Applied<M> {
    fn drop(&mut self) {
        if self.undone {
            return;
        }
        self.put_back().iter().filter(|row| row.is_pending()).for_each(warn);
    }
}

fn warn(what: impl std::fmt::Display) {
    // A closed stderr must not keep the rest from being restored.
    let _ = writeln!(std::io::stderr(), "bytepath: {what}");
}

/// Restores what a run that died left behind. Returns rows in the order of restoration; no rows if
/// there was nothing to restore. Retries what the kernel refuses for up to 2 s, or 10 s if memory
/// of a process is attached to a queue; a warning on stderr names it before the wait.
pub fn restore(place: &StateFolder, machine: impl Machine) -> Result<Vec<RestorationRow>, Fault> {
    // Without a journal there is nothing to lock and no folder to create.
    let is_empty = !place.has_journal() && place.all_lent().is_empty();
    if is_empty && place.read()?.is_none() && !place.is_locked() {
        return Ok(Vec::new());
    }
    let mut turn = Turn::take(place, &machine)?;
    replay_until_released(place, &mut turn, machine, &[]).map(|(_, rows)| rows)
}

/// Returns the settings that an earlier run gave up restoring.
fn given_up(place: &StateFolder) -> Result<Vec<Setting>, Fault> {
    let changes = place.read()?.unwrap_or_default().changes;
    Ok(changes
        .into_iter()
        .filter(|change| change.kept && !change.undone)
        .map(|change| change.setting)
        .collect())
}

/// Replays the journal, and again while the kernel may still release what it refuses. Does not wait
/// for settings in `given_up`.
fn replay_until_released<M: Machine>(
    place: &StateFolder,
    turn: &mut Turn,
    machine: M,
    given_up: &[Setting],
) -> Result<(M, Vec<RestorationRow>), Fault> {
    let is_awaited = |row: &RestorationRow| {
        row.outcome == Restoration::Failed && !given_up.contains(&row.setting)
    };
    let begun = Instant::now();
    let (mut machine, mut rows) = replay_journal(place, turn, machine)?;
    for row in rows.iter().filter(|row| is_awaited(row)) {
        let (seconds, subject) = (patience(row).as_secs(), row.setting.subject());
        warn(format!("waiting up to {seconds} s to restore {subject}: {}", row.note));
    }
    let longest = |rows: &[RestorationRow]| {
        rows.iter().filter(|row| is_awaited(row)).map(patience).max().unwrap_or_default()
    };
    while begun.elapsed() < longest(&rows) {
        std::thread::sleep(AGAIN);
        rows.retain(|row| !row.is_pending());
        let again;
        (machine, again) = replay_journal(place, turn, machine)?;
        rows.extend(again);
    }
    for row in rows.iter_mut().filter(|row| is_awaited(row) && waits_for_provider(row)) {
        let seconds = PROVIDER_RELEASE.as_secs();
        row.note.push_str(&format!(
            "; that was waited for {seconds} s: end what still receives by devmem or zcrx"
        ));
    }
    Ok((machine, rows))
}

/// How long to retry restoring a setting: the kernel may release the resources of a run that was
/// just killed with a delay.
fn patience(row: &RestorationRow) -> Duration {
    if waits_for_provider(row) { PROVIDER_RELEASE } else { RELEASE }
}

/// True if a memory provider (devmem, zcrx: the device receives into memory of a process) keeps a
/// setting from being restored. The kernel's error texts for it contain these words (net/ethtool).
fn waits_for_provider(row: &RestorationRow) -> bool {
    row.note.contains("memory provider")
}

const RELEASE: Duration = Duration::from_secs(2);
/// A memory provider is detached when its last descriptor is closed; that of an io_uring, later, by
/// a kernel worker.
const PROVIDER_RELEASE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(50);

/// The right to change settings: the locks on the journal and on what is changed.
struct Turn {
    lock: Lock,
    /// Held for as long as the turn lasts.
    _namespace: Option<Exclusion>,
    machine: Option<Exclusion>,
}

impl Turn {
    fn take(place: &StateFolder, machine: &impl Machine) -> Result<Turn, Fault> {
        let lock = place.lock()?;
        Ok(Turn { lock, _namespace: machine.exclude(Reach::Namespace)?, machine: None })
    }

    /// Locks the whole machine too.
    fn reach_machine(&mut self, machine: &impl Machine) -> Result<(), Fault> {
        if self.machine.is_none() {
            self.machine = machine.exclude(Reach::Machine)?;
        }
        Ok(())
    }
}

/// Returns the changes that replaying the journal could not restore. Errors if there are any and
/// they were not made in this network namespace.
fn kept_changes(
    place: &StateFolder,
    machine: &impl Machine,
    rows: &[RestorationRow],
) -> Result<Vec<Change>, Fault> {
    let Some(row) = rows.iter().find(|row| row.is_pending()) else { return Ok(Vec::new()) };
    let chronicle = place.read()?.unwrap_or_default();
    match JournalOrigin::of(&chronicle, machine) {
        JournalOrigin::Here => Ok(chronicle.changes),
        _ => Err(still_in_force(place, row)),
    }
}

fn still_in_force(place: &StateFolder, what: impl std::fmt::Display) -> Fault {
    let text = format!("settings of an earlier run are still in force: {what}");
    Fault::failed(text).remedy(format!(
        "`bytepath restore --show` has details; removing {} forgets them",
        place.journal().display()
    ))
}

fn replay_journal<M: Machine>(
    place: &StateFolder,
    turn: &mut Turn,
    mut machine: M,
) -> Result<(M, Vec<RestorationRow>), Fault> {
    let chronicle = place.read()?;
    let changes = chronicle.as_ref().map_or(&[][..], |chronicle| &chronicle.changes);
    if changes.iter().any(|change| !change.undone && !change.setting.is_of_namespace()) {
        turn.reach_machine(&machine)?;
    }
    let mut rows = return_strays(place, &mut machine, changes);
    let Some(chronicle) = chronicle else {
        // A run killed before its first change, or after undoing its last, leaves a journal with
        // nothing to restore.
        place.discard(&turn.lock)?;
        return Ok((machine, rows));
    };
    let origin = JournalOrigin::of(&chronicle, &machine);
    let mut engine = Engine::inherit(machine, place.reopen(&turn.lock)?, chronicle.changes);
    if chronicle.damaged.is_empty() {
        rows.extend(engine.undo_from(0, origin));
        engine.finish().map_err(|fault| with_rows(fault, &rows))?;
        return Ok((engine.machine, rows));
    }
    // Without its first line, the journal may be from another boot or namespace.
    if chronicle.begin.is_some() {
        rows.extend(engine.undo_from(0, origin));
    }
    let mut text = format!("the journal {} is damaged", place.journal().display());
    for Damage { line, text: content } in &chronicle.damaged {
        text.push_str(&format!("; line {line} reads '{content}'"));
    }
    rows.iter().for_each(|row| text.push_str(&format!("; {row}")));
    let remedy = "what the damaged lines had set is unknown: compare the host \
                  with their text, then remove the journal";
    Err(Fault::storage(text).remedy(remedy))
}

/// Takes back devices that are lent although the journal does not record it: the journal, or that
/// line of it, is gone.
fn return_strays(
    place: &StateFolder,
    machine: &mut impl Machine,
    changes: &[Change],
) -> Vec<RestorationRow> {
    let loans = place.all_lent().into_iter().map(|device| Setting::Loan { device, beside: None });
    let is_known = |loan: &Setting| {
        let is_lent = |c: &Change| c.setting.is_of_testbed() && c.setting.device() == loan.device();
        changes.iter().any(|c| !c.undone && is_lent(c))
    };
    let mut rows = Vec::new();
    for setting in loans.filter(|loan| !is_known(loan)) {
        // `None`: the namespace had no device in it, and is released.
        let Some(set) = machine.read(&setting).transpose() else { continue };
        let before = loan::returned();
        let done = set.and_then(|set| machine.write(&setting, &before).map(|()| set));
        let (outcome, set, note) = match done {
            Ok(set) => {
                let note = "no journal has what else it was: compare its settings".to_owned();
                (Restoration::Restored, set, note)
            }
            Err(fault) => (Restoration::Failed, before.clone(), fault.to_string()),
        };
        rows.push(RestorationRow { setting, before, set, outcome, note, host: None });
    }
    rows
}

/// Returns what a run that died left behind; `None` if nothing, or while a run is active.
pub fn left_behind(place: &StateFolder) -> Option<JournalState> {
    // An unreadable journal is reported by the next attempt to change a setting.
    place.read().ok().flatten().filter(|_| !place.is_locked())
}

/// Checks that all mandatory settings can be made; the fault names the first that cannot, and why.
/// Changes and writes nothing.
pub fn feasible(machine: impl Machine, wanted: &[WantedSetting]) -> Result<(), Fault> {
    Engine::inherit(machine, Nowhere, Vec::new()).all_feasible(wanted)
}

/// Returns the old and new value that each setting would have. If several change the same subject,
/// a later one's old value is what the earlier ones would leave. Changes and writes nothing.
pub fn preview(machine: impl Machine, wanted: &[WantedSetting]) -> Vec<SettingRecord> {
    let mut engine = Engine::inherit(machine, Nowhere, Vec::new());
    let mut made = Made::new();
    let mut look = |want: &WantedSetting| {
        let skipped =
            |fault: Fault| SettingRecord { skipped: Some(fault.to_string()), ..want.into() };
        let record = engine.preview_after(&made, want).unwrap_or_else(skipped);
        let parts = made.entry(record.setting.subject()).or_default();
        parts.0.extend(record.after.0.clone());
        record
    };
    wanted.iter().map(&mut look).collect()
}

/// A preview writes no journal.
struct Nowhere;

impl JournalStorage for Nowhere {
    fn append(&mut self, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn discard(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}

#[cfg(test)]
mod tests;
