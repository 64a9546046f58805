//! The value of a setting before and after, and its final outcome: the rows of `hosts.json`, of the
//! journal and of `bytepath restore`.

use super::Setting;
use crate::{Role, grouped, joined};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A requested setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WantedSetting {
    /// The setting.
    pub setting: Setting,
    /// The profile that requests it, as typed; `None` if it was requested directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// True if failing to make it is only reported in a row with its reason, and is not an error.
    #[serde(default)]
    pub optional: bool,
    /// Why it is not even tried, for example because no device was named for a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// The role on whose host it is made; `None` means every host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Role>,
}

impl From<Setting> for WantedSetting {
    /// Requested explicitly: failing to make it is an error.
    fn from(setting: Setting) -> Self {
        WantedSetting { setting, profile: None, optional: false, obstacle: None, host: None }
    }
}

/// The present or a former value of a setting, by name. The names depend on the kind: `rx` and `tx`
/// for rings, one name per CPU for governors. A name that contains a blank (`mtu br0`) is another
/// value that the kernel may change along with it. Texts are as the kernel prints them, so that
/// exactly the former value can be restored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SettingValue(pub BTreeMap<String, String>);

/// The outcome of a setting: a row of the report's setup and of `hosts.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingRecord {
    /// The setting.
    pub setting: Setting,
    /// The profile that requested it, as typed; `None` if it was requested directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The former value; empty if it could not be read.
    #[serde(default)]
    pub before: SettingValue,
    /// The new value; equal to `before` if nothing had to change, empty if it was not set.
    #[serde(default)]
    pub after: SettingValue,
    /// Why it was not set; only an optional setting may have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// The role on whose host it was made; `None` if the hosts share a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Role>,
}

impl From<&WantedSetting> for SettingRecord {
    /// A record before anything was read or set.
    fn from(wanted: &WantedSetting) -> Self {
        SettingRecord {
            setting: wanted.setting.clone(),
            profile: wanted.profile.clone(),
            before: SettingValue::default(),
            after: SettingValue::default(),
            skipped: wanted.obstacle.clone(),
            host: None,
        }
    }
}

/// The outcome of restoring a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Restoration {
    /// It was restored to its former value.
    Restored,
    /// It already had its former value.
    AlreadyBack,
    /// Another program has changed it since; that value is kept.
    LeftAlone,
    /// The device or file no longer exists.
    Gone,
    /// It belongs to another network namespace than this one.
    Elsewhere,
    /// The kernel refused.
    Failed,
}

/// A setting that was to be restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestorationRow {
    /// The setting.
    pub setting: Setting,
    /// Its former value.
    pub before: SettingValue,
    /// The value that had been set.
    pub set: SettingValue,
    /// Its outcome.
    pub outcome: Restoration,
    /// Details in words; may be empty.
    pub note: String,
    /// The role on whose host it is; `None` if the hosts share a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Role>,
}

/// One line for people: `net.core.rmem_max: 212992 -> 67108864`.
impl std::fmt::Display for SettingRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SettingRecord { setting, before, after, skipped, host, .. } = self;
        of_host(*host, f)?;
        match skipped {
            Some(why) => write!(f, "{setting}: {why}"),
            None if before == after => {
                write!(f, "{}: {} already", setting.subject(), before.itself())
            }
            None => {
                let (part, before, after) = setting.differing(before, after);
                write!(f, "{}{part}: {before} -> {after}", setting.subject())
            }
        }
    }
}

fn of_host(host: Option<Role>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    host.map_or(Ok(()), |role| write!(f, "{role}: "))
}

impl RestorationRow {
    /// True if something remains to be done.
    pub fn is_pending(&self) -> bool {
        matches!(self.outcome, Restoration::Elsewhere | Restoration::Failed)
    }
}

/// One line for people, without a line feed.
impl std::fmt::Display for RestorationRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RestorationRow { setting, before, set, outcome, note, host } = self;
        of_host(*host, f)?;
        let (part, before, set) = setting.differing(before, set);
        let what = match outcome {
            Restoration::Restored => format!("restored: {before} (was set to {set})"),
            Restoration::AlreadyBack => format!("already restored: {before}"),
            // The note contains everything.
            Restoration::LeftAlone => String::new(),
            Restoration::Gone => "gone".into(),
            Restoration::Elsewhere => "still set".into(),
            Restoration::Failed => format!("NOT restored to {before}"),
        };
        let colon = if what.is_empty() || note.is_empty() { "" } else { ": " };
        write!(f, "{}{part}: {what}{colon}{note}", setting.subject())
    }
}

impl SettingValue {
    /// A value with a single name.
    pub fn one(name: impl Into<String>, text: impl Into<String>) -> Self {
        SettingValue(BTreeMap::from([(name.into(), text.into())]))
    }

    /// Returns the text of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the parts that differ from those of another value.
    fn parts_that(
        &self,
        other: &SettingValue,
        differ: fn(Option<&String>, &String) -> bool,
    ) -> SettingValue {
        let parts = self.0.iter().filter(|(name, text)| differ(other.0.get(*name), text));
        SettingValue(parts.map(|(name, text)| (name.clone(), text.clone())).collect())
    }

    /// Returns the parts of this and a later value that differ, preceded by the name of the part
    /// (after a blank) if only one of several differs.
    pub(super) fn compared_with(
        &self,
        later: &SettingValue,
    ) -> (String, SettingValue, SettingValue) {
        // Parts that are new are shown, parts that are gone are not.
        let before = self.parts_that(later, |there, text| there.is_some_and(|there| there != text));
        let after = later.parts_that(self, |there, text| there != Some(text));
        let part = match after.0.keys().next() {
            Some(name) if after.0.len() == 1 && self.is_ambiguous(name) => format!(" {name}"),
            _ => String::new(),
        };
        // If nothing differs, both are shown as they are.
        if before.is_empty() {
            (part, self.itself(), later.itself())
        } else {
            (part, before, after)
        }
    }

    /// True if a part has to be named when it is shown alone.
    pub fn is_ambiguous(&self, name: &str) -> bool {
        let asked = self.0.keys().filter(|name| !name.contains(' ')).count();
        asked > 1 || name.contains(' ')
    }

    /// Returns the parts of the setting proper, without those that the kernel changes along with
    /// it.
    fn itself(&self) -> SettingValue {
        let parts = self.0.iter().filter(|(name, _)| !name.contains(' '));
        SettingValue(parts.map(|(name, text)| (name.clone(), text.clone())).collect())
    }

    /// True if nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Largest number of characters of a text shown to users: the table by which flows are spread has
/// hundreds of numbers.
const LONGEST: usize = 72;

/// For users: a single text alone, otherwise every name with its text; names with equal texts (such
/// as CPUs) are grouped.
impl std::fmt::Display for SettingValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Options of a qdisc are in the kernel's binary encoding.
        let readable = |word: &&str| !word.starts_with("options=");
        let squeeze = |text: &str| {
            let words = joined(text.split_whitespace().filter(readable), " ");
            let text = words.replace(char::is_control, "?");
            match text.char_indices().nth(LONGEST) {
                Some((cut, _)) => format!("{}...", &text[..cut]),
                None => text,
            }
        };
        let texts = grouped(self.0.iter().map(|(name, text)| (squeeze(text), name.as_str())));
        match texts.as_slice() {
            [] => f.write_str("nothing"),
            [(text, _)] => f.write_str(if text.is_empty() { "empty" } else { text }),
            several => {
                let part = |(text, names): &(String, Vec<&str>)| match names.as_slice() {
                    [first, rest @ ..] if rest.len() > 1 => {
                        format!("{first} and {} others {text}", rest.len())
                    }
                    names => format!("{} {text}", names.join(" and ")),
                };
                f.write_str(&joined(several.iter().map(part), ", "))
            }
        }
    }
}
