//! Threads of a process and of its descendants, and the resources they have used, from `/proc`.

use super::observations::Used;
use bytepath_sys::procfs::{self, Switches};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A live thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub process: u32,
    pub name: String,
    /// Resources that it has used since it began.
    pub used: Option<Used>,
}

/// Returns the threads of a process and of all its descendants, by thread id. Descendants are found
/// if the kernel lists children (`CONFIG_PROC_CHILDREN`).
pub(crate) fn members(proc: &Path, process: u32) -> BTreeMap<u32, Member> {
    let mut members = BTreeMap::new();
    for process in processes(proc, process) {
        let tasks = proc.join(process.to_string()).join("task");
        // A process that has just ended has no threads to follow.
        for tid in procfs::numbered(&tasks).unwrap_or_default() {
            let name = procfs::name(&tasks.join(tid.to_string())).unwrap_or_default();
            members.insert(tid, Member { process, name, used: used(proc, tid) });
        }
    }
    members
}

/// Returns a process and all its descendants, except those whose parent has ended: they belong to
/// another process by now.
pub(crate) fn processes(proc: &Path, process: u32) -> BTreeSet<u32> {
    let (mut found, mut waiting) = (BTreeSet::new(), vec![process]);
    while let Some(process) = waiting.pop() {
        if !found.insert(process) {
            continue;
        }
        let tasks = proc.join(process.to_string()).join("task");
        for tid in procfs::numbered(&tasks).unwrap_or_default() {
            let children = tasks.join(tid.to_string()).join("children");
            let children = fs::read_to_string(children).unwrap_or_default();
            waiting
                .extend(children.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
    }
    found
}

/// Returns the resources that a thread has used since it began; `None` if it has ended.
pub(crate) fn used(proc: &Path, tid: u32) -> Option<Used> {
    let folder = folder(proc, tid);
    let read = |name: &str| fs::read(folder.join(name)).ok();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let stat = text(read("stat")?);
    let stat = procfs::parse_task_stat(&stat).ok()?;
    // Kernels without CONFIG_SCHED_INFO have no such file.
    let sched = read("schedstat").and_then(|b| procfs::parse_schedstat(&text(b)).ok());
    let switches = read("status").and_then(|b| procfs::parse_status_switches(&text(b)).ok());
    let Switches { voluntary, involuntary } = switches.unwrap_or_default();
    let nanoseconds = |ticks: u64| (ticks as f64 * 1e9 / procfs::user_hz()) as u64;
    let (user, system) = (nanoseconds(stat.user), nanoseconds(stat.system));
    let (run, wait) = sched.map_or((user.saturating_add(system), 0), |s| (s.run, s.wait));
    Some(Used { user, system, run, wait, voluntary, involuntary })
}

/// Returns the name of a thread; `None` if it has ended.
pub(crate) fn name(proc: &Path, tid: u32) -> Option<String> {
    procfs::name(&folder(proc, tid))
}

/// Returns the folder of a thread, which can be opened by its id in any process.
fn folder(proc: &Path, tid: u32) -> PathBuf {
    proc.join(tid.to_string()).join("task").join(tid.to_string())
}

impl Used {
    /// Returns the resources used since `before`.
    pub(crate) fn since(&self, before: &Used) -> Used {
        Used {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            run: self.run.saturating_sub(before.run),
            wait: self.wait.saturating_sub(before.wait),
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }

    /// Scales user and system time to add up to the run time, in the proportion of their ticks, as
    /// `/proc` shows them (`cputime_adjust`, kernel/sched/cputime.c). The kernel stores raw ticks
    /// and adjusts them only when they are read.
    pub(crate) fn adjusted(&self) -> Used {
        let (user, system, run) = (self.user as f64, self.system as f64, self.run as f64);
        let user = if self.system == 0 { run } else { run * user / (user + system) };
        Used { user: user as u64, system: self.run.saturating_sub(user as u64), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_with_all_its_threads() {
        let (send, receive) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(bytepath_sys::thread::id()).unwrap();
            let _ = wait.recv();
        });
        let tid = receive.recv().unwrap();
        let me = std::process::id();
        let members = members(Path::new("/proc"), me);
        assert_eq!(members[&tid].process, me);
        assert!(members[&tid].used.is_some());
        drop(done);
        thread.join().unwrap();
    }

    #[test]
    fn no_thread_groups_without_threads() {
        let dir = tempfile::tempdir().unwrap();
        assert!(members(dir.path(), 1).is_empty());
        assert_eq!(used(dir.path(), 1), None);
    }

    #[test]
    fn ticks_are_made_to_add_up() {
        let raw = Used { user: 4_000_000, system: 12_000_000, run: 8_000_000, ..Used::default() };
        let adjusted = raw.adjusted();
        assert_eq!((adjusted.user, adjusted.system), (2_000_000, 6_000_000));
        let unsampled = Used { run: 5, ..Used::default() }.adjusted();
        assert_eq!((unsampled.user, unsampled.system), (5, 0), "the kernel calls it user too");
    }
}
