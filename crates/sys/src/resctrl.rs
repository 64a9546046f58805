//! Groups of tasks whose memory traffic is monitored: `mon_groups` of resctrl
//! (Documentation/filesystems/resctrl.rst).
//!
//! A group outlives its process. Its maker therefore holds a flock(2) lock on its folder, which
//! ends with the process, however that ends: a group without a lock was left behind.

use super::attribute;
use rustix::fs::{Access, AtFlags, CWD, FlockOperation, accessat, flock};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

/// Mount point of resctrl, below `/sys`.
pub const MOUNT: &str = "fs/resctrl";

/// Folder of its monitoring groups.
const GROUPS: &str = "mon_groups";

/// Returns how many monitoring ids (RMIDs) there are, and how many of them are used by groups.
/// NotFound: resctrl is not mounted, or the processor does not monitor; PermissionDenied: not
/// allowed for this user.
pub fn ids(resctrl: &Path) -> io::Result<[u32; 2]> {
    let groups = resctrl.join(GROUPS);
    accessat(CWD, &groups, Access::WRITE_OK, AtFlags::EACCESS)?;
    let all = attribute::text(&resctrl.join("info/L3_MON/num_rmids"));
    let all = all.and_then(|text| text.parse().ok()).unwrap_or(0);
    let of = |folder: &Path| 1 + attribute::names(&folder.join(GROUPS)).len() as u32;
    let others = attribute::names(resctrl).into_iter().map(|name| resctrl.join(name));
    let others = others.filter(|folder| folder.join(GROUPS).is_dir());
    Ok([all, of(resctrl) + others.map(|folder| of(&folder)).sum::<u32>()])
}

/// Returns why the kernel refused the last request, if it gave a reason.
pub fn last_refusal(resctrl: &Path) -> Option<String> {
    attribute::text(&resctrl.join("info/last_cmd_status")).filter(|text| text != "ok")
}

/// Returns the monitoring group that a thread is in; `None` if it is in its control group only.
/// `task` is its folder below `/proc`.
pub fn group_of(task: &Path) -> Option<String> {
    let text = attribute::text(&task.join("cpu_resctrl_groups"))?;
    let name = text.lines().find_map(|line| line.strip_prefix("mon:"))?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// A group, removed on drop.
#[derive(Debug)]
pub struct MonitoringGroup {
    folder: PathBuf,
    _lock: File,
    is_removed: bool,
}

impl MonitoringGroup {
    /// Makes a group, with a number appended to its name, or takes over one with that name that was
    /// left behind. ENOSPC: all monitoring ids are in use; EBUSY: the free ones wait until no cache
    /// line is tagged with them.
    pub fn make(resctrl: &Path, name: &str) -> io::Result<MonitoringGroup> {
        let mut number = 0;
        loop {
            let folder = resctrl.join(GROUPS).join(format!("{name}-{number}"));
            match fs::create_dir(&folder) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                made => made?,
            }
            match locked(&folder, MAKE) {
                Ok(Some(lock)) => {
                    return Ok(MonitoringGroup { folder, _lock: lock, is_removed: false });
                }
                // Another process is checking whether the group was left behind, and holds a lock
                // for that moment.
                Ok(None) if locked(&folder, LOOK).is_ok_and(|lock| lock.is_some()) => {
                    thread::yield_now();
                }
                Ok(None) => number += 1,
                // Another process took it for left behind and removed it before we could lock it.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Its name, including the number.
    pub fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Adds a thread, and those that it starts from now on. ESRCH: it has ended; EINVAL: it belongs
    /// to another control group.
    pub fn add(&self, tid: u32) -> io::Result<()> {
        let mut tasks = File::options().append(true).open(self.folder.join("tasks"))?;
        tasks.write_all(format!("{tid}\n").as_bytes())
    }

    /// Returns the counter files of its threads: `mon_L3_00/mbm_total_bytes` and the like, by
    /// cache.
    pub fn counters(&self, file: &str) -> Vec<PathBuf> {
        let data = self.folder.join("mon_data");
        let caches = attribute::names(&data).into_iter().filter(|name| name.starts_with("mon_L3_"));
        caches.map(|cache| data.join(cache).join(file)).filter(|path| path.exists()).collect()
    }

    /// Removes it; its threads are then in their control group only.
    pub fn remove(mut self) -> io::Result<()> {
        self.is_removed = true;
        fs::remove_dir(&self.folder)
    }
}

impl Drop for MonitoringGroup {
    fn drop(&mut self) {
        if !self.is_removed {
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// Returns the folders of groups that [`MonitoringGroup::make`] made with this name and that were
/// left behind.
pub fn left(resctrl: &Path, name: &str) -> Vec<PathBuf> {
    left_and_locked(resctrl, name, LOOK).map(|(folder, _)| folder).collect()
}

/// Removes groups that [`MonitoringGroup::make`] made with this name and that were left behind, and
/// returns the folders of those removed.
pub fn remove_left(resctrl: &Path, name: &str) -> Vec<PathBuf> {
    let removed =
        left_and_locked(resctrl, name, MAKE).filter(|(folder, _)| fs::remove_dir(folder).is_ok());
    removed.map(|(folder, _)| folder).collect()
}

/// Returns the folders of the groups with this name that were left behind, each with a lock of this
/// kind.
fn left_and_locked(
    resctrl: &Path,
    name: &str,
    kind: FlockOperation,
) -> impl Iterator<Item = (PathBuf, File)> {
    let groups = resctrl.join(GROUPS);
    let named = attribute::names(&groups).into_iter().filter(move |group| is_named(group, name));
    named.filter_map(move |group| {
        let folder = groups.join(group);
        let lock = locked(&folder, kind).ok()??;
        Some((folder, lock))
    })
}

/// Whether `group` is a name that [`MonitoringGroup::make`] makes from `name`.
pub fn is_named(group: &str, name: &str) -> bool {
    let number = group.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Lock for making or removing a group.
const MAKE: FlockOperation = FlockOperation::NonBlockingLockExclusive;

/// Lock for checking whether a group was left behind: several processes may hold it.
const LOOK: FlockOperation = FlockOperation::NonBlockingLockShared;

/// Locks a group's existing folder; `None` if another process's lock prevents that.
fn locked(folder: &Path, kind: FlockOperation) -> io::Result<Option<File>> {
    lock(File::open(folder)?, folder, kind)
}

/// Locks an open folder. NotFound: it was removed, whether or not there is another of its name.
fn lock(file: File, folder: &Path, kind: FlockOperation) -> io::Result<Option<File>> {
    match flock(&file, kind) {
        Ok(()) => {
            let [opened, there] = [file.metadata()?, fs::symlink_metadata(folder)?];
            let is_there = (opened.dev(), opened.ino()) == (there.dev(), there.ino());
            if is_there { Ok(Some(file)) } else { Err(ErrorKind::NotFound.into()) }
        }
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Returns the bytes that a monitoring file shows, or what it shows instead: "Unavailable",
/// "Error".
pub fn bytes(path: &Path) -> Result<u64, String> {
    let text = attribute::text(path).ok_or("nothing that can be read")?;
    text.parse().map_err(|_| format!("'{text}'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(GROUPS)).unwrap();
        folder
    }

    fn groups(resctrl: &Path) -> Vec<String> {
        attribute::names(&resctrl.join(GROUPS))
    }

    #[test]
    fn a_group_is_there_until_it_is_removed_or_dropped() {
        let folder = tree();
        let first = MonitoringGroup::make(folder.path(), "one").unwrap();
        let second = MonitoringGroup::make(folder.path(), "one").unwrap();
        assert_eq!(groups(folder.path()), ["one-0", "one-1"]);
        first.remove().unwrap();
        assert_eq!(groups(folder.path()), ["one-1"]);
        drop(second);
        assert!(groups(folder.path()).is_empty());
    }

    #[test]
    fn only_groups_that_nobody_holds_were_left_behind() {
        let folder = tree();
        let held = MonitoringGroup::make(folder.path(), "one").unwrap();
        for left in ["one-7", "two-0", "one-web", "one-7-web"] {
            fs::create_dir(folder.path().join(GROUPS).join(left)).unwrap();
        }
        let was_left = [folder.path().join(GROUPS).join("one-7")];
        assert_eq!(left(folder.path(), "one"), was_left);
        assert_eq!(remove_left(folder.path(), "one"), was_left, "it was still there");
        assert!(left(folder.path(), "one").is_empty());
        let others = ["one-7-web", "one-web"];
        assert_eq!(groups(folder.path()), ["one-0", others[0], others[1], "two-0"]);
        let taken_over = MonitoringGroup::make(folder.path(), "two").unwrap();
        assert_eq!(groups(folder.path()), ["one-0", others[0], others[1], "two-0"]);
        drop((held, taken_over));
        assert_eq!(groups(folder.path()), others, "another program's");
    }

    #[test]
    fn a_lock_is_of_the_folder_that_is_there() {
        let folder = tree();
        let group = folder.path().join(GROUPS).join("one-0");
        fs::create_dir(&group).unwrap();
        let opened = File::open(&group).unwrap();
        fs::remove_dir(&group).unwrap();
        fs::create_dir(&group).unwrap();
        assert_eq!(lock(opened, &group, MAKE).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(locked(&group, MAKE).unwrap().is_some());
    }

    #[test]
    fn who_looks_hides_a_group_from_nobody() {
        let folder = tree();
        let group = folder.path().join(GROUPS).join("one-0");
        fs::create_dir(&group).unwrap();
        let looking = locked(&group, LOOK).unwrap().unwrap();
        assert_eq!(left(folder.path(), "one"), [group]);
        let resctrl = folder.path();
        thread::scope(|scope| {
            let (names, made) = mpsc::channel();
            scope.spawn(move || {
                let group = MonitoringGroup::make(resctrl, "one").unwrap();
                names.send(group.name()).unwrap();
            });
            let early = made.recv_timeout(Duration::from_millis(50));
            assert!(early.is_err(), "{early:?} while that of this number is looked at");
            drop(looking);
            assert_eq!(made.recv().unwrap(), "one-0");
        });
    }

    #[test]
    fn a_thread_is_in_a_monitoring_group_or_in_none() {
        let task = tempfile::tempdir().unwrap();
        assert_eq!(group_of(task.path()), None);
        for (text, expected) in [
            ("res:\nmon:\n", None),
            ("res:/\nmon:\n", None),
            ("res:latency\nmon:web\n", Some("web".to_owned())),
        ] {
            fs::write(task.path().join("cpu_resctrl_groups"), text).unwrap();
            assert_eq!(group_of(task.path()), expected, "{text}");
        }
    }

    #[test]
    fn ids_are_of_all_groups() {
        let folder = tree();
        let put = |file: &str, text: &str| {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("info/L3_MON/num_rmids", "144\n");
        put("info/last_cmd_status", "ok\n");
        let _made = MonitoringGroup::make(folder.path(), "one").unwrap();
        // Another control group, with its own monitoring group.
        fs::create_dir_all(folder.path().join("latency/mon_groups/web")).unwrap();
        assert_eq!(ids(folder.path()).unwrap(), [144, 4]);
        assert_eq!(last_refusal(folder.path()), None);
        put("info/last_cmd_status", "out of RMIDs\n");
        assert_eq!(last_refusal(folder.path()).as_deref(), Some("out of RMIDs"));
        let none = ids(Path::new("/nonexistent")).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::NotFound);
    }
}
