//! Control groups for processes that a test starts.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A control group of one controller: of version 1 if that is mounted, else of version 2. Dropping
/// it removes the group.
pub struct ControlGroup {
    folder: PathBuf,
    pub is_v1: bool,
}

impl ControlGroup {
    /// Makes a group. Errors if there is no hierarchy in which that is possible.
    pub fn new(controller: &str) -> io::Result<ControlGroup> {
        let v1 = Path::new("/sys/fs/cgroup").join(controller);
        let is_v1 = v1.is_dir();
        let parent = if is_v1 { &v1 } else { Path::new("/sys/fs/cgroup") };
        let folder = parent.join(format!("bytepath-{controller}-{}", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(ControlGroup { folder, is_v1 })
    }

    /// Like [`ControlGroup::new`], with one of the group's files set.
    pub fn limited(controller: &str, file: &str, limit: impl Display) -> io::Result<ControlGroup> {
        let group = ControlGroup::new(controller)?;
        group.set(file, limit)?;
        Ok(group)
    }

    /// Writes a file of the group. Errors if the controller is not enabled.
    pub fn set(&self, file: &str, value: impl Display) -> io::Result<()> {
        fs::write(self.folder.join(file), value.to_string())
    }

    /// The file by which a process enters the group: it writes its process id there.
    pub fn procs(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}
