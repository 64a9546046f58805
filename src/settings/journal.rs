//! The journal: what was about to be changed, written down before it is changed,
//! so that whoever comes after a crash can put it back.
//!
//! One line an entry: eight hexadecimal digits of a CRC-32 (that of gzip), a
//! blank, the entry as JSON. A line whose sum is wrong is passed over and counted:
//! it is either the last one, torn by a crash before what it announces was begun,
//! or damage. Lines are only appended, and each is on disk before the next step.

use crate::record::{Fault, FaultKind, Setting, SettingValue};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the entries. A newer one is not read but refused.
pub const JOURNAL_SCHEMA: u32 = 2;

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "entry")]
pub enum Entry {
    /// A bytepath begins to set things.
    Begin(Begin),
    /// A setting is about to be changed.
    Intent {
        /// Counted from 0 in the order of the changes.
        number: u32,
        /// The setting.
        setting: Setting,
        /// What its parts say.
        before: SettingValue,
        /// What some of them are to say.
        goal: SettingValue,
    },
    /// It was changed, and says this when it is read back.
    Done {
        /// Which one.
        number: u32,
        /// What its parts say now.
        value: SettingValue,
    },
    /// It was put back, or need not be, or somebody else's value was left alone.
    Undone {
        /// Which one.
        number: u32,
    },
    /// Everything was put back.
    End,
}

/// Who began to set things, and on what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// Version of the entries that follow.
    pub schema: u32,
    /// Version of bytepath.
    pub bytepath: String,
    /// Its process id.
    pub pid: u32,
    /// Boot id of the kernel.
    pub boot: String,
    /// Its network namespace, `net:[INODE]`.
    pub namespace: String,
    /// When, milliseconds since the Unix epoch.
    pub started_ms: u64,
}

/// A setting that a journal tells of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Its number in the journal.
    pub number: u32,
    /// The setting.
    pub setting: Setting,
    /// What its parts said before.
    pub before: SettingValue,
    /// What they said after; where the journal ends before it was read back, what
    /// some of them were to say.
    pub set: SettingValue,
    /// True once it was read back.
    pub verified: bool,
    /// True once it needs nothing more.
    pub undone: bool,
}

/// What a journal tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Chronicle {
    /// Who wrote it; none if the crash came before its first line was whole.
    pub begin: Option<Begin>,
    /// What was changed, or was about to be, in that order.
    pub changes: Vec<Change>,
    /// True if everything was put back.
    pub ended: bool,
    /// Lines that are damaged or torn, counted from 1.
    pub damaged: Vec<usize>,
}

/// Where a journal is kept.
pub trait Medium {
    /// Appends; when this returns, it is on disk.
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()>;

    /// Takes the journal away: there is nothing to put back any more.
    fn discard(&mut self) -> std::io::Result<()>;
}

impl Entry {
    /// The entry as a line.
    pub fn line(&self) -> Result<Vec<u8>, Fault> {
        let json = serde_json::to_string(self);
        let json =
            json.map_err(|e| Fault::new(FaultKind::System, format!("cannot encode: {e}")))?;
        Ok(seal(json.as_bytes()))
    }

    fn read(line: &[u8]) -> Option<Entry> {
        let (sum, json) = line.split_at_checked(8)?;
        let json = json.strip_prefix(b" ")?;
        let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
        if sum != checksum(json) {
            return None;
        }
        let entry = serde_json::from_slice(json).ok()?;
        match &entry {
            // A setting that nobody could have asked for is damage, too.
            Entry::Intent { setting, .. } => setting.clone().checked().ok().map(|_| entry),
            _ => Some(entry),
        }
    }
}

/// Puts the sum in front of an entry's JSON, and the end of the line behind it.
pub fn seal(json: &[u8]) -> Vec<u8> {
    [format!("{:08x} ", checksum(json)).as_bytes(), json, b"\n"].concat()
}

/// Reads a journal, however it is damaged. A newer version is refused, because
/// half of what it says might be understood.
pub fn read(bytes: &[u8]) -> Result<Chronicle, Fault> {
    let mut told = Chronicle::default();
    let mut found: BTreeMap<u32, Change> = BTreeMap::new();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        if line.is_empty() {
            continue;
        }
        match Entry::read(line) {
            Some(Entry::Begin(begin)) if begin.schema > JOURNAL_SCHEMA => {
                return Err(Fault::new(
                    FaultKind::Unsupported,
                    format!("the journal was written by bytepath {}", begin.bytepath),
                )
                .remedy("restore with that version"));
            }
            Some(Entry::Begin(begin)) => told.begin = Some(begin),
            Some(Entry::Intent { number, setting, before, goal }) => {
                let change =
                    Change { number, setting, before, set: goal, verified: false, undone: false };
                found.insert(number, change);
            }
            Some(Entry::Done { number, value }) => {
                if let Some(change) = found.get_mut(&number) {
                    change.set = value;
                    change.verified = true;
                }
            }
            Some(Entry::Undone { number }) => {
                if let Some(change) = found.get_mut(&number) {
                    change.undone = true;
                }
            }
            Some(Entry::End) => told.ended = true,
            None => told.damaged.push(number),
        }
    }
    told.changes = found.into_values().collect();
    Ok(told)
}

/// Whether more can be appended as it is, or a torn line must be ended first.
pub fn is_torn(bytes: &[u8]) -> bool {
    bytes.last().is_some_and(|last| *last != b'\n')
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example() -> Vec<Entry> {
        let setting: Setting = "sysctl net.core.rmem_max=1".parse().unwrap();
        let before = SettingValue::one("value", "212992\n");
        let goal = SettingValue::one("value", "1");
        vec![
            Entry::Begin(Begin { schema: 1, pid: 7, ..Begin::default() }),
            Entry::Intent { number: 0, setting, before, goal },
            Entry::Done { number: 0, value: SettingValue::one("value", "1\n") },
            Entry::Undone { number: 0 },
            Entry::End,
        ]
    }

    fn bytes(entries: &[Entry]) -> Vec<u8> {
        entries.iter().flat_map(|entry| entry.line().unwrap()).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let told = read(&bytes(&example())).unwrap();
        assert_eq!(told.begin.as_ref().map(|begin| begin.pid), Some(7));
        assert!(told.ended && told.damaged.is_empty());
        assert_eq!(told.changes[0].set.get("value"), Some("1\n"));
        assert!(told.changes[0].undone);
        let told = read(&bytes(&example()[..2])).unwrap();
        assert_eq!(told.changes[0].set.get("value"), Some("1"), "the goal, until it is done");
    }

    /// However a crash cuts the journal, the whole lines before the cut tell what
    /// they told, and what is appended behind the cut is read.
    #[test]
    fn a_torn_line_hides_nothing_but_itself() {
        let whole = bytes(&example());
        for cut in 0..whole.len() {
            let mut torn = whole[..cut].to_vec();
            // A line that lacks nothing but its end is whole.
            let lines = whole[..=cut].iter().filter(|byte| **byte == b'\n').count();
            let entries = &example()[..lines];
            let told = read(&torn).unwrap();
            assert_eq!(told.changes, read(&bytes(entries)).unwrap().changes, "cut at {cut}");
            if is_torn(&torn) {
                torn.push(b'\n');
            }
            torn.extend(Entry::End.line().unwrap());
            assert!(read(&torn).unwrap().ended, "cut at {cut}");
        }
    }

    #[test]
    fn damage_is_noticed_and_a_newer_version_refused() {
        let mut damaged = bytes(&example());
        let second = damaged.iter().position(|byte| *byte == b'\n').unwrap() + 30;
        damaged[second] ^= 1;
        let told = read(&damaged).unwrap();
        assert!(told.damaged == [2] && told.changes.is_empty(), "{told:?}");
        let newer = Entry::Begin(Begin { schema: JOURNAL_SCHEMA + 1, ..Begin::default() });
        assert_eq!(read(&newer.line().unwrap()).unwrap_err().kind, FaultKind::Unsupported);
    }

    proptest! {
        #[test]
        fn nothing_makes_the_reader_panic(noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut all = noise.clone();
            all.push(b'\n');
            all.extend(bytes(&example()));
            all.extend(noise);
            let told = read(&all).unwrap();
            prop_assert!(told.ended);
        }
    }
}
