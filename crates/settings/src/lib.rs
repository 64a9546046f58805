//! Settings of the host that are always restored: read, written down, changed,
//! verified; and undone in reverse order at the end, on an error, on Ctrl-C, on a
//! panic, and after SIGKILL by the next process that reads the journal. `docs/settings.md`
//! describes how each setting is read, changed and undone, and what survives what.

#![forbid(unsafe_code)]

mod device;
mod engine;
mod files;
pub mod journal;
mod loan;
mod machine;
pub mod offloads;
mod place;

pub use loan::{namespace_of, tune, tuning};
pub use machine::{Identity, Machine, ThisMachine};
pub use place::{JournalFile, Lock, Place, STATE_VARIABLE};

use bytepath_record::{
    Fault, FaultKind, RestorationRow, Setting, SettingRecord, SettingValue, WantedSetting,
};
use engine::{Engine, Home};
use journal::{Chronicle, Damage, Medium};
use std::io::Write;

/// Settings that are in force. Dropping it restores them; [`Applied::undo`]
/// does so too and returns the outcome of each.
pub struct Applied {
    engine: Engine<ThisMachine, JournalFile>,
    records: Vec<SettingRecord>,
    /// Changes from this one on are those of a preparation.
    lasting: usize,
    undone: bool,
    _lock: Lock,
}

impl Applied {
    /// Sets everything that is wanted, in this order. The journal of an earlier run
    /// that died is replayed first; its rows are returned too.
    ///
    /// Nothing is changed where another bytepath sets things on this host, where
    /// the earlier run's settings cannot be restored, or where a mandatory setting
    /// cannot be made. If one fails when it is its turn, those before it are
    /// restored.
    pub fn apply(
        place: &Place,
        host: ThisMachine,
        wanted: &[WantedSetting],
    ) -> Result<(Applied, Vec<RestorationRow>), Fault> {
        let lock = place.lock()?;
        let (host, rows) = work_off(place, &lock, host)?;
        if let Some(row) = rows.iter().find(|row| row.is_pending()) {
            let text = format!("settings of an earlier run are still in force: {row}");
            return Err(Fault::new(FaultKind::System, text).remedy(format!(
                "`bytepath restore --show` has details; removing {} forgets them",
                place.journal().display()
            )));
        }
        let journal = place.create(&lock)?;
        let engine = Engine::begin(host, journal, now_ms())?;
        let (records, undone) = (Vec::new(), false);
        let mut applied = Applied { engine, records, lasting: 0, undone, _lock: lock };
        applied.add(wanted)?;
        Ok((applied, rows))
    }

    /// Sets more. On a fault everything is restored, what was set before too.
    pub fn add(&mut self, wanted: &[WantedSetting]) -> Result<(), Fault> {
        match self.engine.apply(wanted) {
            Ok(records) => {
                self.records.extend(records);
                self.lasting = self.engine.changes.len();
                Ok(())
            }
            Err(mut fault) => {
                for row in self.put_back().iter().filter(|row| row.is_pending()) {
                    fault.message.push_str(&format!("; {row}"));
                }
                Err(fault)
            }
        }
    }

    /// Sets more for a while, until [`Applied::unprepare`]. On a fault these alone are
    /// restored, and what was set before stays.
    pub fn prepare(&mut self, wanted: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        self.engine.apply(wanted).map_err(|mut fault| {
            for row in self.unprepare().iter().filter(|row| row.is_pending()) {
                fault.message.push_str(&format!("; {row}"));
            }
            fault
        })
    }

    /// Restores what was prepared, the last first. What cannot be restored yet is tried
    /// again when this is called again.
    pub fn unprepare(&mut self) -> Vec<RestorationRow> {
        self.engine.undo_from(self.lasting, Home::Here)
    }

    /// What was set, from what to what, and what was skipped and why.
    pub fn records(&self) -> &[SettingRecord] {
        &self.records
    }

    /// Restores everything, the last first; returns the outcome of each.
    pub fn undo(mut self) -> Vec<RestorationRow> {
        self.put_back()
    }

    fn put_back(&mut self) -> Vec<RestorationRow> {
        self.undone = true;
        // A journal that cannot be removed lists what is restored already.
        self.engine.undo(Home::Here).unwrap_or_default()
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        if self.undone {
            return;
        }
        for row in self.put_back().iter().filter(|row| row.is_pending()) {
            // A standard error that is gone must not keep the rest of it from being restored.
            let _ = writeln!(std::io::stderr(), "bytepath: {row}");
        }
    }
}

/// Restores what a run that has died left behind. The rows come in the order in
/// which it was done; none are there if nothing was to be done.
pub fn restore(place: &Place, host: ThisMachine) -> Result<Vec<RestorationRow>, Fault> {
    // Without a journal there is nothing to lock, and no folder to make.
    if place.read()?.is_none() && !place.is_locked() && !place.has_journal() {
        return Ok(Vec::new());
    }
    let lock = place.lock()?;
    Ok(work_off(place, &lock, host)?.1)
}

fn work_off(
    place: &Place,
    lock: &Lock,
    host: ThisMachine,
) -> Result<(ThisMachine, Vec<RestorationRow>), Fault> {
    let Some(chronicle) = place.read()? else {
        // There may be a journal with nothing to restore: of a run that was killed before its
        // first change, or after it undid its last.
        place.discard(lock)?;
        return Ok((host, Vec::new()));
    };
    let home = Home::of(&chronicle, &host);
    let mut engine = Engine::inherit(host, place.reopen(lock)?, chronicle.changes);
    if chronicle.damaged.is_empty() {
        let rows = engine.undo(home)?;
        return Ok((engine.machine, rows));
    }
    // Where its first line is lost, it may be of another boot or another namespace.
    let rows = if chronicle.begin.is_some() { engine.undo_from(0, home) } else { Vec::new() };
    let mut text = format!("the journal {} is damaged", place.journal().display());
    for Damage { line, text: says } in &chronicle.damaged {
        text.push_str(&format!("; line {line} reads '{says}'"));
    }
    rows.iter().for_each(|row| text.push_str(&format!("; {row}")));
    let remedy = "what the damaged lines had set is unknown: compare the host \
                  with their text, then remove the journal";
    Err(Fault::new(FaultKind::Storage, text).remedy(remedy))
}

/// What a run that has died left behind, if any did; none while one is at work.
pub fn left_behind(place: &Place) -> Option<Chronicle> {
    // One that cannot be read is reported by the next attempt to set something.
    place.read().ok().flatten().filter(|_| !place.is_locked())
}

/// Whether these settings can be made, the mandatory ones; the fault shows which one
/// cannot, and why. Nothing is changed, nothing written.
pub fn feasible(host: ThisMachine, wanted: &[WantedSetting]) -> Result<(), Fault> {
    Engine::inherit(host, Nowhere, Vec::new()).all_feasible(wanted)
}

/// What would be set, from what to what. Nothing is changed, nothing written.
pub fn preview(host: ThisMachine, wanted: &[WantedSetting]) -> Vec<SettingRecord> {
    let mut engine = Engine::inherit(host, Nowhere, Vec::new());
    let mut look = |want: &WantedSetting| {
        let record = SettingRecord {
            setting: want.setting.clone(),
            profile: want.profile.clone(),
            before: SettingValue::default(),
            after: SettingValue::default(),
            skipped: want.obstacle.clone(),
            host: None,
        };
        if record.skipped.is_some() {
            return record;
        }
        match engine.feasible(&want.setting) {
            Err(fault) => SettingRecord { skipped: Some(fault.message), ..record },
            Ok((before, goal)) if engine.holds(&want.setting, &before, &goal) => {
                SettingRecord { after: before.clone(), before, ..record }
            }
            Ok((before, goal)) => SettingRecord { before, after: goal, ..record },
        }
    };
    wanted.iter().map(&mut look).collect()
}

/// A preview writes no journal.
struct Nowhere;

impl Medium for Nowhere {
    fn append(&mut self, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn discard(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What a setting is about is not there.
fn missing(setting: &Setting) -> Fault {
    let (what, remedy) = match setting {
        Setting::Sysctl { name, .. } => (format!("this kernel has no sysctl {name}"), ""),
        Setting::Governor { .. } => (
            "no CPU's clock can be set (there is no cpufreq)".into(),
            "a hypervisor withholds it; set it on the host",
        ),
        Setting::IdleStates { .. } => ("no CPU has such an idle state".into(), ""),
        Setting::IrqAffinity { irq, .. } => (format!("there is no interrupt {irq}"), ""),
        Setting::HugePages { .. } => (format!("there are no {}", setting.subject()), ""),
        Setting::Dsa { .. } => {
            (format!("there is no {}", setting.subject()), "bytepath doctor lists what is missing")
        }
        Setting::Rps { device, .. } | Setting::Xps { device, .. } => {
            (format!("there is no device {device} with such a queue"), "")
        }
        other => match other.device() {
            Some(device) => (format!("there is no device {device}"), ""),
            None => ("it does not exist".into(), ""),
        },
    };
    let fault = Fault::new(FaultKind::Unsupported, what);
    if remedy.is_empty() { fault } else { fault.remedy(remedy) }
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}

#[cfg(test)]
mod tests;
