//! The journal: what is about to be changed, written down before it is changed,
//! so that it can be restored after a crash.
//!
//! One line per entry: eight hexadecimal digits of a CRC-32 (that of gzip), a space, the entry as
//! JSON. Lines are only appended, and each is on disk before the next step. So a crash can tear
//! only the last line, before the change it announces was started; that line is skipped. Any other
//! line with a wrong checksum is damage: it may contain a setting that is recorded nowhere else.

use bytepath_record::{Fault, Setting, SettingValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the entries. Newer journals are refused.
pub const JOURNAL_SCHEMA: u32 = 2;

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "entry")]
pub enum Entry {
    /// A bytepath begins to set things.
    Begin(Begin),
    /// A setting is about to be changed.
    Intent {
        /// Counted from 0 in the order of the changes.
        number: u32,
        setting: Setting,
        /// The number of its device's link, which stays when the device is renamed; none of a
        /// setting without a device.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        link: Option<u32>,
        /// The texts of its parts.
        before: SettingValue,
        /// The texts that some of them should have.
        goal: SettingValue,
    },
    /// It was changed, and read back.
    Done {
        number: u32,
        /// The texts of its parts now.
        value: SettingValue,
    },
    /// It was restored, or need not be, or someone else's value was left alone.
    Undone {
        number: u32,
    },
    End,
}

/// Who began to set things, and on what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Begin {
    /// Version of the entries that follow.
    pub schema: u32,
    pub bytepath: String,
    pub pid: u32,
    /// Boot id of the kernel.
    pub boot: String,
    /// Its network namespace, `net:[INODE]`.
    pub namespace: String,
    /// When, milliseconds since the Unix epoch.
    pub started_ms: u64,
}

/// A setting that a journal records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Change {
    /// Its number in the journal.
    pub number: u32,
    pub setting: Setting,
    /// The number of its device's link in its network namespace, if it has a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<u32>,
    /// Its parts before.
    pub before: SettingValue,
    /// Its parts after; where the journal ends before they were read back, the goal
    /// of some of them.
    pub set: SettingValue,
    /// True once it was read back.
    pub verified: bool,
    /// True once it needs nothing more.
    pub undone: bool,
    /// True once a later run waited for its restoration in vain and began without it.
    #[serde(skip)]
    pub kept: bool,
}

/// What a journal records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct JournalState {
    /// Who wrote it; `None` if the crash came before its first line was complete.
    pub begin: Option<Begin>,
    /// What was changed, or was about to be, in that order.
    pub changes: Vec<Change>,
    /// True if everything was restored.
    pub ended: bool,
    /// True if the last line was torn by a crash.
    pub torn: bool,
    /// Lines that are damaged.
    pub damaged: Vec<Damage>,
}

/// A line of a journal that is not what was written, or that does not follow from those
/// before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Damage {
    /// Its number, counted from 1.
    pub line: usize,
    /// The beginning of its text now.
    pub text: String,
}

impl JournalState {
    /// True if something is, or may be, left to restore.
    pub fn is_unfinished(&self) -> bool {
        let pending = self.changes.iter().any(|change| !change.undone);
        !self.ended && (pending || !self.damaged.is_empty())
    }
}

/// Where a journal is kept.
pub trait JournalStorage {
    /// Appends `bytes`; they are on disk on return.
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()>;

    /// Removes the journal, when there is nothing left to restore.
    fn discard(&mut self) -> std::io::Result<()>;
}

impl Entry {
    /// The entry as a line.
    pub fn line(&self) -> Result<Vec<u8>, Fault> {
        let json = serde_json::to_string(self);
        let json = json.map_err(|e| Fault::failed(format!("cannot encode: {e}")))?;
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
            // A setting that could not have been requested is damage, too.
            Entry::Intent { setting, .. } => setting.clone().checked().ok().map(|_| entry),
            _ => Some(entry),
        }
    }
}

/// Makes a line of an entry's JSON: adds the checksum before it and a newline after it.
pub fn seal(json: &[u8]) -> Vec<u8> {
    [format!("{:08x} ", checksum(json)).as_bytes(), json, b"\n"].concat()
}

/// Reads a journal, even if it is damaged. Refuses a newer version, since it might be understood
/// only in part.
pub fn read(bytes: &[u8]) -> Result<JournalState, Fault> {
    let (whole, torn) = bytes.split_at(bytes.len() - torn(bytes));
    let mut chronicle = JournalState { torn: !torn.is_empty(), ..JournalState::default() };
    let mut found: BTreeMap<u32, Change> = BTreeMap::new();
    for (number, line) in (1..).zip(whole.split(|byte| *byte == b'\n')) {
        if line.is_empty() {
            continue;
        }
        let entry = Entry::read(line);
        let follows = match &entry {
            None | Some(Entry::Begin(_) | Entry::End) => true,
            _ if chronicle.begin.is_none() => false,
            Some(Entry::Intent { number, .. }) => {
                *number == found.last_key_value().map_or(0, |(last, _)| last.saturating_add(1))
            }
            Some(Entry::Done { number, .. } | Entry::Undone { number }) => {
                found.contains_key(number)
            }
        };
        // The line is whole, but one before it is gone.
        if !follows && chronicle.damaged.is_empty() {
            chronicle.damaged.push(Damage { line: number, text: beginning(line) });
        }
        match entry {
            Some(Entry::Begin(begin)) if begin.schema > JOURNAL_SCHEMA => {
                return Err(Fault::unsupported(format!(
                    "the journal was written by bytepath {}",
                    begin.bytepath
                ))
                .remedy("restore with that version"));
            }
            Some(Entry::Begin(begin)) => {
                chronicle.begin = Some(begin);
                found.values_mut().for_each(|change| change.kept = true);
            }
            Some(Entry::Intent { number, setting, link, before, goal }) => {
                let (set, verified, undone, kept) = (goal, false, false, false);
                let change = Change { number, setting, link, before, set, verified, undone, kept };
                found.insert(number, change);
            }
            Some(Entry::Done { number, value }) => {
                found
                    .entry(number)
                    .and_modify(|change| (change.set, change.verified) = (value, true));
            }
            Some(Entry::Undone { number }) => {
                found.entry(number).and_modify(|change| change.undone = true);
            }
            Some(Entry::End) => chronicle.ended = true,
            None => chronicle.damaged.push(Damage { line: number, text: beginning(line) }),
        }
    }
    chronicle.changes = found.into_values().collect();
    Ok(chronicle)
}

/// Returns the part of a damaged line that is shown.
fn beginning(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).into_owned()
}

/// Bytes of a damaged line that are shown.
const SHOWN: usize = 240;

/// Returns the length in bytes of a torn last line: one that begins like an entry but is cut short.
pub fn torn(bytes: &[u8]) -> usize {
    let last = bytes.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let (sum, json) = last.split_at(last.len().min(8));
    let begins =
        sum.iter().all(u8::is_ascii_hexdigit) && json.iter().zip(b" {").all(|(a, b)| a == b);
    if begins && Entry::read(last).is_none() { last.len() } else { 0 }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::FaultKind;
    use proptest::prelude::*;

    fn example() -> Vec<Entry> {
        let setting: Setting = "sysctl net.core.rmem_max=1".parse().unwrap();
        let before = SettingValue::one("value", "212992\n");
        let goal = SettingValue::one("value", "1");
        vec![
            Entry::Begin(Begin { schema: 1, pid: 7, ..Begin::default() }),
            Entry::Intent { number: 0, setting, link: None, before, goal },
            Entry::Done { number: 0, value: SettingValue::one("value", "1\n") },
            Entry::Undone { number: 0 },
            Entry::End,
        ]
    }

    fn bytes(entries: &[Entry]) -> Vec<u8> {
        entries.iter().flat_map(|entry| entry.line().unwrap()).collect()
    }

    /// Written before settings became a table.
    const OLDER: &[&str] = &[
        r#"{"entry":"begin","schema":1,"bytepath":"0.1.0","pid":7,"boot":"1b4e28ba","namespace":"net:[4026531840]","started_ms":1795000000000}"#,
        r#"{"entry":"intent","number":0,"setting":{"kind":"sysctl","name":"net.core.rmem_max","value":"67108864"},"before":{"value":"212992\n"},"goal":{"value":"67108864"}}"#,
        r#"{"entry":"done","number":0,"value":{"value":"67108864\n"}}"#,
        r#"{"entry":"intent","number":1,"setting":{"kind":"rings","device":"eth0","rx":4096,"tcp-data-split":"on","hds-thresh":0},"before":{"rx":"512","tx":"512","tcp-data-split":"auto","hds-thresh":"128"},"goal":{"rx":"4096","tcp-data-split":"on","hds-thresh":"0"}}"#,
        r#"{"entry":"undone","number":1}"#,
        r#"{"entry":"intent","number":2,"setting":{"kind":"idle-states","cpus":"0-3,8","disable":{"slower-than":10}},"before":{"cpu0.state2":"0\n"},"goal":{"cpu0.state2":"1"}}"#,
    ];

    #[test]
    fn journals_of_older_versions_are_read() {
        let bytes: Vec<u8> = OLDER.iter().flat_map(|line| seal(line.as_bytes())).collect();
        let chronicle = read(&bytes).unwrap();
        assert!(chronicle.damaged.is_empty() && chronicle.is_unfinished(), "{chronicle:?}");
        let settings: Vec<String> =
            chronicle.changes.iter().map(|change| change.setting.to_string()).collect();
        assert_eq!(
            settings,
            [
                "sysctl net.core.rmem_max=67108864",
                "rings eth0 rx=4096 tcp-data-split=on hds-thresh=0",
                "idle 0-3,8 slower-than=10us",
            ]
        );
        // As they are written today, byte for byte.
        for line in OLDER {
            let entry: Entry = serde_json::from_str(line).unwrap();
            if let Entry::Intent { setting, .. } = &entry {
                assert!(line.contains(&serde_json::to_string(setting).unwrap()));
            }
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let chronicle = read(&bytes(&example())).unwrap();
        assert_eq!(chronicle.begin.as_ref().map(|begin| begin.pid), Some(7));
        assert!(chronicle.ended && chronicle.damaged.is_empty());
        assert_eq!(chronicle.changes[0].set.get("value"), Some("1\n"));
        assert!(chronicle.changes[0].undone);
        let chronicle = read(&bytes(&example()[..2])).unwrap();
        assert_eq!(chronicle.changes[0].set.get("value"), Some("1"), "the goal, until it is done");
        assert!(!chronicle.changes[0].kept);
        let chronicle = read(&bytes(&[&example()[..2], &example()[..1]].concat())).unwrap();
        assert!(chronicle.changes[0].kept, "another began without it");
    }

    /// However a crash cuts the journal, the whole lines before the cut tell what
    /// they recorded, nothing of it is damage, and what is appended after the cut is read.
    #[test]
    fn a_torn_line_hides_nothing_but_itself() {
        let whole = bytes(&example());
        for cut in 0..whole.len() {
            let mut kept = whole[..cut].to_vec();
            // A line that lacks nothing but its end is whole.
            let lines = whole[..=cut].iter().filter(|byte| **byte == b'\n').count();
            let entries = &example()[..lines];
            let chronicle = read(&kept).unwrap();
            assert_eq!(chronicle.changes, read(&bytes(entries)).unwrap().changes, "cut at {cut}");
            assert!(chronicle.damaged.is_empty(), "cut at {cut}");
            kept.truncate(cut - torn(&kept));
            if kept.last().is_some_and(|last| *last != b'\n') {
                kept.push(b'\n');
            }
            kept.extend(Entry::End.line().unwrap());
            let chronicle = read(&kept).unwrap();
            assert!(chronicle.ended && chronicle.damaged.is_empty(), "cut at {cut}");
        }
    }

    #[test]
    fn damage_is_noticed_and_a_newer_version_refused() {
        let mut damaged = bytes(&example());
        let second = damaged.iter().position(|byte| *byte == b'\n').unwrap() + 30;
        damaged[second] ^= 1;
        let chronicle = read(&damaged).unwrap();
        assert!(chronicle.changes.is_empty() && !chronicle.torn, "{chronicle:?}");
        let [Damage { line: 2, text }] = &chronicle.damaged[..] else { panic!("{chronicle:?}") };
        assert!(text.contains("net.core.rmem_max"), "{text}");
        // Whole lines are gone.
        let lines: Vec<Vec<u8>> = example().iter().map(|entry| entry.line().unwrap()).collect();
        for (first, second) in [(0, 2), (0, 3), (1, 2)] {
            let chronicle = read(&[&lines[first][..], &lines[second]].concat()).unwrap();
            let noticed = if first == 0 { 2 } else { 1 };
            assert!(
                chronicle.is_unfinished() && chronicle.damaged[0].line == noticed,
                "{chronicle:?}"
            );
        }
        // Neither noise nor a page of zeros is what a crash makes of a line.
        for garbage in [&b"garbage"[..], &[0; 4096], b"12345678 garbage"] {
            let chronicle = read(garbage).unwrap();
            assert!(!chronicle.torn && chronicle.is_unfinished(), "{garbage:?}: {chronicle:?}");
        }
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
            let chronicle = read(&all).unwrap();
            prop_assert!(chronicle.ended);
        }
    }
}
