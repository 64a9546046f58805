//! Traffic counted by the monitoring group of a session, window by window.

use super::workers::Worker;
use bytepath_sys::resctrl::{self, MonitoringGroup};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The traffic of a session's threads, or why it is not counted; `None` if there is no session.
pub type SessionTraffic = Arc<Mutex<Option<Result<Traffic, String>>>>;

/// The monitoring group of a session, and its counts over the windows so far.
#[derive(Debug)]
pub struct Traffic {
    pub(super) group: MonitoringGroup,
    /// Kernel threads of the role, which other sessions may share.
    pub(super) shared: Vec<Worker>,
    pub(super) files: Vec<Counter>,
    /// What could not be read in some window; then there is no sum.
    pub(super) lack: Option<String>,
}

/// A file of a group that counts bytes.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) metric: &'static str,
    pub(super) path: PathBuf,
    /// Whether no thread of the role runs at this cache: the cache may then have no data for the
    /// group.
    pub(super) is_idle: bool,
    /// Bytes over the windows so far.
    pub(super) moved: u64,
}

impl Traffic {
    /// Adds a window, given the readings at its edges.
    pub(super) fn add(&mut self, before: Vec<Result<u64, String>>, now: Vec<Result<u64, String>>) {
        for (file, (before, now)) in self.files.iter_mut().zip(before.into_iter().zip(now)) {
            match before.and_then(|before| file.since(before, now?)) {
                Ok(moved) => file.moved += moved,
                Err(lack) => self.lack = Some(lack),
            }
        }
    }

    /// Describes a thread that another group took over in the window that is ending, if there is
    /// one.
    pub(super) fn strayed(&self) -> Option<String> {
        self.shared.iter().find_map(|worker| {
            let now = resctrl::group_of(&worker.dir).filter(|now| *now != self.group.name())?;
            Some(format!("in a window {} went to the monitoring group {now}", worker.name))
        })
    }
}

impl Counter {
    /// Reads the bytes so far. A cache at which no thread of the role ran may have no number.
    pub(super) fn read(&self) -> Result<u64, String> {
        match resctrl::bytes(&self.path) {
            Err(shown) if self.is_idle && shown == "'Unavailable'" => Ok(0),
            Err(shown) => Err(format!("{} shows {shown}", cache_name(&self.path))),
            Ok(bytes) => Ok(bytes),
        }
    }

    fn since(&self, before: u64, now: u64) -> Result<u64, String> {
        let moved = now.checked_sub(before);
        moved.ok_or_else(|| format!("{} went back from {before} to {now}", self.path.display()))
    }
}

/// Returns the name of the cache that a monitoring file belongs to.
pub(super) fn cache_name(file: &Path) -> String {
    file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
}
