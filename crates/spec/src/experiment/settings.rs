//! Settings of the host that an experiment requests: `settings = "quiet"`, or a table of profiles
//! and single settings.

use super::document::Entry;
use crate::wanted_settings;
use bytepath_record::{Fault, WantedSetting};

/// Parses a profile, a list of them, or `{ profile = ..., set = [...] }`. Errors are reported at
/// the invalid text.
pub(super) fn settings(entry: &Entry) -> Result<Vec<WantedSetting>, Fault> {
    if !entry.is_section() {
        return profiles(entry);
    }
    let example = "{ profile = \"quiet\", set = [\"sysctl net.core.rmem_max=67108864\"] }";
    let section = entry.section("settings", example)?;
    section.only(&["profile", "set"])?;
    let mut wanted = section.get("profile").map(|e| profiles(&e)).transpose()?.unwrap_or_default();
    for line in section.get("set").map(|entry| entry.list()).unwrap_or_default() {
        wanted.extend(line.read(|text| wanted_settings(None, Some(text)))?);
    }
    Ok(wanted)
}

fn profiles(entry: &Entry) -> Result<Vec<WantedSetting>, Fault> {
    let profiles = entry.list().into_iter();
    let all = profiles.map(|profile| profile.read(|text| wanted_settings(Some(text), None)));
    Ok(all.collect::<Result<Vec<_>, _>>()?.concat())
}
