//! The default study of a command: the newest of those that `bytepath run` named itself, in the
//! working directory.

use super::output::say;
use bytepath_record::Fault;
use bytepath_spec::usage;
use bytepath_study::is_begun;
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of studies for which the user named no folder.
pub(super) const STUDIES: &str = "bytepath-studies";

/// Returns the named study, or the newest one, which is then reported on standard error.
pub(super) fn named_or_newest(named: Option<&Path>) -> Result<PathBuf, Fault> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let newest = newest(Path::new(STUDIES)).ok_or_else(|| {
        usage(format!("there is no study in {STUDIES}")).remedy("name the folder of one")
    })?;
    say(format!("study: {}", newest.display()));
    Ok(newest)
}

/// Finds the newest study by name, which is its start time: `20260102-030405`, or with `-2` and so
/// on if several started within a second.
fn newest(studies: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(studies).ok()?.flatten().map(|entry| entry.path());
    let started = |folder: &PathBuf| {
        let name = folder.file_name()?.to_str()?;
        let (time, number) = (name.get(..15)?, name.get(15..)?);
        let number = if number.is_empty() { 1 } else { number.strip_prefix('-')?.parse().ok()? };
        Some((time.to_owned(), number))
    };
    let begun = folders.filter(|folder| is_begun(folder));
    let named =
        begun.filter_map(|folder| started(&folder).map(|time: (String, u32)| (time, folder)));
    named.max().map(|(_, folder)| folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_study_is_the_last_that_was_begun() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(newest(dir.path()), None);
        let begun = |name: &str| {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("trials.jsonl"), "").unwrap();
        };
        ["20260102-030405", "20260102-030405-2", "20260102-030405-10", "zzz"]
            .into_iter()
            .for_each(begun);
        fs::create_dir(dir.path().join("20270101-000000")).unwrap();
        assert_eq!(newest(dir.path()), Some(dir.path().join("20260102-030405-10")));
    }
}
