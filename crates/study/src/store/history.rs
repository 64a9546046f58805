//! Every study of a folder as points of a history. The folder is the only store: each study is
//! read anew (docs/journal/0015-history.md has what that costs).

use crate::{load, storage};
use bytepath_record::Fault;
use bytepath_stats::{StudyPoints, points};
use std::fs;
use std::path::Path;

/// Studies by the names of their folders.
#[derive(Debug, Default)]
pub struct Studies {
    pub points: Vec<(String, StudyPoints)>,
    /// Those that cannot be read, and why.
    pub unreadable: Vec<(String, Fault)>,
}

/// Reads the studies of a folder, in the order of their names.
pub fn read_studies(folder: &Path) -> Result<Studies, Fault> {
    let unreadable = |e: std::io::Error| storage("read", folder, &e);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.join("experiment.toml").is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    let mut studies = Studies::default();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match load(&path) {
            Ok(study) => studies.points.push((name, points(&study))),
            Err(fault) => studies.unreadable.push((name, fault)),
        }
    }
    Ok(studies)
}
