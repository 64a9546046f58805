//! What a setting was, what it became, and its final outcome: the rows
//! of `hosts.json`, of the journal and of `bytepath restore`.

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
    /// The profile that requests it, as typed; none if it is requested by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// True: where it cannot be made it is a row with its reason, and no error.
    #[serde(default)]
    pub optional: bool,
    /// Why it is not even tried: because a profile's device was not named, for example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// The role on whose host it is made; none means every host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Role>,
}

impl From<Setting> for WantedSetting {
    /// Requested explicitly: where it cannot be made, that is an error.
    fn from(setting: Setting) -> Self {
        WantedSetting { setting, profile: None, optional: false, obstacle: None, host: None }
    }
}

/// What a setting is or was, by name. Which names there are depends on the kind:
/// `rx` and `tx` of rings, one name a CPU for governors. A name with a blank in it
/// (`mtu br0`) is something else that the kernel may move along. Texts are as the kernel
/// prints them, so that what is restored is what was there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SettingValue(pub BTreeMap<String, String>);

/// The outcome of a setting: a row of the report's setup and of `hosts.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingRecord {
    /// The setting.
    pub setting: Setting,
    /// The profile that requested it, as typed; none if it was requested by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// What it was; empty where that could not be read.
    #[serde(default)]
    pub before: SettingValue,
    /// What it was changed to; equal to `before` where nothing had to change.
    /// Empty where it was not set.
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
    /// Nothing was read or set yet.
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

/// The outcome of a setting when it was to be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Restoration {
    /// It was restored to what it was.
    Restored,
    /// It had that value already.
    AlreadyBack,
    /// Someone else has changed it since; their value is kept.
    LeftAlone,
    /// What it was set on no longer exists.
    Gone,
    /// It belongs to a network namespace that is not this one.
    Elsewhere,
    /// The kernel refused.
    Failed,
}

/// A setting that was to be restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestorationRow {
    /// The setting.
    pub setting: Setting,
    /// What it was before.
    pub before: SettingValue,
    /// What it had been set to.
    pub set: SettingValue,
    /// Its outcome.
    pub outcome: Restoration,
    /// More of it, in words; may be empty.
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
    /// True where something is left to do.
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
            // The note has everything.
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
    /// One name and its text.
    pub fn one(name: impl Into<String>, text: impl Into<String>) -> Self {
        SettingValue(BTreeMap::from([(name.into(), text.into())]))
    }

    /// The text of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Those parts that differ from those of another value.
    fn parts_that(
        &self,
        other: &SettingValue,
        differ: fn(Option<&String>, &String) -> bool,
    ) -> SettingValue {
        let parts = self.0.iter().filter(|(name, text)| differ(other.0.get(*name), text));
        SettingValue(parts.map(|(name, text)| (name.clone(), text.clone())).collect())
    }

    /// Those parts of this and a later value that differ, and where of several
    /// parts only one does, its name after a blank.
    pub(super) fn compared_with(
        &self,
        later: &SettingValue,
    ) -> (String, SettingValue, SettingValue) {
        // A part that was not there before is shown, one that is gone is not.
        let before = self.parts_that(later, |there, text| there.is_some_and(|there| there != text));
        let after = later.parts_that(self, |there, text| there != Some(text));
        let part = match after.0.keys().next() {
            Some(name) if after.0.len() == 1 && self.is_ambiguous(name) => format!(" {name}"),
            _ => String::new(),
        };
        // Where nothing differs, both are shown as they are.
        if before.is_empty() {
            (part, self.itself(), later.itself())
        } else {
            (part, before, after)
        }
    }

    /// Whether a part has to be named when it is shown alone.
    pub fn is_ambiguous(&self, name: &str) -> bool {
        let asked = self.0.keys().filter(|name| !name.contains(' ')).count();
        asked > 1 || name.contains(' ')
    }

    /// The parts that a setting is about, without what the kernel moves along.
    fn itself(&self) -> SettingValue {
        let parts = self.0.iter().filter(|(name, _)| !name.contains(' '));
        SettingValue(parts.map(|(name, text)| (name.clone(), text.clone())).collect())
    }

    /// True where nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Characters of a text that are shown to people: a table by which flows are spread
/// has hundreds of numbers.
const LONGEST: usize = 72;

/// For people: the text alone where there is one, else every name with its text;
/// names with one text (such as CPUs) are put together.
impl std::fmt::Display for SettingValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The options of a queueing discipline are in the kernel's own encoding.
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
