//! A control group for what a test starts.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A group of a controller: of version 1 if that is mounted, else of version 2. Dropping it removes
/// it.
pub struct ControlGroup {
    folder: PathBuf,
    pub is_v1: bool,
}

impl ControlGroup {
    /// Fails where there is no hierarchy in which a group can be made.
    pub fn new(controller: &str) -> io::Result<ControlGroup> {
        let v1 = Path::new("/sys/fs/cgroup").join(controller);
        let is_v1 = v1.is_dir();
        let parent = if is_v1 { &v1 } else { Path::new("/sys/fs/cgroup") };
        let folder = parent.join(format!("bytepath-{controller}-{}", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(ControlGroup { folder, is_v1 })
    }

    /// The same, with one of its files set.
    pub fn limited(controller: &str, file: &str, limit: impl Display) -> io::Result<ControlGroup> {
        let group = ControlGroup::new(controller)?;
        group.set(file, limit)?;
        Ok(group)
    }

    /// Writes a file of it; fails where the controller is not enabled.
    pub fn set(&self, file: &str, value: impl Display) -> io::Result<()> {
        fs::write(self.folder.join(file), value.to_string())
    }

    /// The file to which a process writes its id to enter.
    pub fn procs(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}
