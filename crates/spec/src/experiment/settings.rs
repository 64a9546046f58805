//! Which settings of the host an experiment requests: `settings = "quiet"`, or a
//! table of profiles and single settings.

use super::document::Entry;
use crate::wanted_settings;
use bytepath_record::{Fault, WantedSetting};

/// Reads a profile, a list of them, or `{ profile = ..., set = [...] }`. Errors
/// are reported at the wrong text.
pub(super) fn settings(entry: &Entry) -> Result<Vec<WantedSetting>, Fault> {
    if !entry.is_section() {
        return profiles(entry);
    }
    let example = "{ profile = \"quiet\", set = [\"sysctl net.core.rmem_max=67108864\"] }";
    let section = entry.section("settings", example)?;
    section.only(&["profile", "set"])?;
    let mut wanted = section.get("profile").map(|e| profiles(&e)).transpose()?.unwrap_or_default();
    for line in section.get("set").map(|entry| entry.list()).unwrap_or_default() {
        let text = line.one_word()?;
        wanted.extend(wanted_settings(None, Some(text)).map_err(|fault| line.fault(fault))?);
    }
    Ok(wanted)
}

fn profiles(entry: &Entry) -> Result<Vec<WantedSetting>, Fault> {
    let mut wanted = Vec::new();
    for profile in entry.list() {
        let text = profile.one_word()?;
        wanted.extend(wanted_settings(Some(text), None).map_err(|fault| profile.fault(fault))?);
    }
    Ok(wanted)
}
