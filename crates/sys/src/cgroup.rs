//! The control groups of a process and their limits, for both versions and at every level up to the
//! root of the mount (Documentation/admin-guide/cgroup-v1/, cgroup-v2.rst).

use super::Roots;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Effects of each group's CPU quota, by the folder of the group.
pub type Throttling = BTreeMap<PathBuf, Throttled>;

/// `cpu.stat` of a group with a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throttled {
    /// Periods in which the group was runnable.
    pub periods: u64,
    /// Periods in which it had used up its quota.
    pub throttled: u64,
    /// Seconds that it was kept from running, added up over CPUs.
    pub seconds: f64,
}

/// The tightest limits that a process is under; `None` if there is no such limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// CPU time permitted by the quota, in CPUs.
    pub cpus: Option<f64>,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Number of processes and threads.
    pub pids: Option<u64>,
}

/// Returns how much the groups of a process have been throttled. Empty if none has a quota, or if
/// they are not visible.
pub fn throttling(roots: &Roots, pid: &str) -> Throttling {
    let with_quota =
        folders(roots, pid, "cpu").into_iter().filter(|folder| quota(folder).is_some());
    read_stats(with_quota)
}

/// Reads the same groups again, even if the process has ended. Reads one file per group.
pub fn throttling_again(before: &Throttling) -> Throttling {
    read_stats(before.keys().cloned())
}

fn read_stats(folders: impl Iterator<Item = PathBuf>) -> Throttling {
    let read = |folder: &Path| parse_cpu_stat(&fs::read_to_string(folder.join("cpu.stat")).ok()?);
    folders.filter_map(|folder| read(&folder).map(|stat| (folder, stat))).collect()
}

/// Returns the most that one of the groups was throttled between two readings. Groups that contain
/// each other are throttled at the same time, so their times do not add up.
pub fn most_throttled(before: &Throttling, after: &Throttling) -> Option<Throttled> {
    let between = |(folder, now): (&PathBuf, &Throttled)| {
        let was = before.get(folder).copied().unwrap_or_default();
        Throttled {
            periods: now.periods.saturating_sub(was.periods),
            throttled: now.throttled.saturating_sub(was.throttled),
            seconds: (now.seconds - was.seconds).max(0.0),
        }
    };
    after.iter().map(between).max_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

/// Returns the limits of this process.
pub fn limits(roots: &Roots) -> Limits {
    let least = |controller, names: &[&str]| {
        folders(roots, "self", controller).iter().filter_map(|folder| number(folder, names)).min()
    };
    let quotas = folders(roots, "self", "cpu");
    Limits {
        cpus: quotas.iter().filter_map(|folder| quota(folder)).min_by(f64::total_cmp),
        memory: least("memory", MEMORY_LIMIT),
        pids: least("pids", &["pids.max"]),
    }
}

/// Bytes that the groups of this process may still allocate, where cached files count as free;
/// `None` if there is no limit.
pub fn memory_left(roots: &Roots) -> Option<u64> {
    let left = |folder: &PathBuf| {
        let limit = number(folder, MEMORY_LIMIT)?;
        let used = number(folder, &["memory.current", "memory.usage_in_bytes"])?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let value = |name: &str| {
            let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok();
            stat.lines().find_map(of)
        };
        // Version 1 has both the group's own value and, as `total_`, the one that includes its
        // descendants.
        let files = ["active_file", "inactive_file"].map(|name| {
            value(&format!("total_{name}")).or_else(|| value(name)).unwrap_or_default()
        });
        Some((limit + files.iter().sum::<u64>()).saturating_sub(used).min(limit))
    };
    folders(roots, "self", "memory").iter().filter_map(left).min()
}

/// Names of the same file in both versions.
const MEMORY_LIMIT: &[&str] = &["memory.max", "memory.limit_in_bytes"];

fn number(folder: &Path, names: &[&str]) -> Option<u64> {
    let text = names.iter().find_map(|name| fs::read_to_string(folder.join(name)).ok())?;
    // For "no limit", version 1 has the largest number of pages, version 2 "max".
    text.trim().parse().ok().filter(|limit| *limit < 1 << 62)
}

/// Returns the CPU time that a group may use, in CPUs; `None` if it has no quota.
fn quota(folder: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse().ok()?, period.parse().ok()?)
        }
        None => {
            let number = |name: &str| -> Option<f64> { read(name)?.trim().parse().ok() };
            (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
        }
    };
    // In version 1, -1 means no quota.
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Parses `cpu.stat`, with times in microseconds in version 2 and in nanoseconds in version 1;
/// `None` if it contains no throttling.
pub fn parse_cpu_stat(text: &str) -> Option<Throttled> {
    let value = |name: &str| -> Option<u64> {
        let words = |line: &str| {
            line.split_once(' ').map(|(key, value)| (key == name, value.trim().parse()))
        };
        text.lines().filter_map(words).find_map(|(is_it, value)| value.ok().filter(|_| is_it))
    };
    let seconds = match (value("throttled_usec"), value("throttled_time")) {
        (Some(microseconds), _) => microseconds as f64 * 1e-6,
        (None, nanoseconds) => nanoseconds? as f64 * 1e-9,
    };
    Some(Throttled { periods: value("nr_periods")?, throttled: value("nr_throttled")?, seconds })
}

/// Returns the folders of a process's group for a controller and of its ancestors, its own first.
fn folders(roots: &Roots, pid: &str, controller: &str) -> Vec<PathBuf> {
    let read = |path: &str| fs::read_to_string(roots.proc.join(path)).unwrap_or_default();
    let mounts = parse_mounts(&read("self/mountinfo"));
    let groups = read(&format!("{pid}/cgroup"));
    let mut all = Vec::new();
    for (is_v2, path) in groups_of(&groups, controller) {
        let mount = mounts.iter().find(|mount| match &mount.controllers {
            None => is_v2,
            Some(of) => !is_v2 && of.iter().any(|name| name == controller),
        });
        let Some(mount) = mount else { continue };
        // A container can see only its own part of the hierarchy.
        let Ok(below) = Path::new(path).strip_prefix(&mount.root) else { continue };
        let top = match mount.folder.strip_prefix("/sys") {
            Ok(folder) => roots.sys.join(folder),
            Err(_) => mount.folder.clone(),
        };
        all.extend(
            top.join(below).ancestors().take_while(|f| f.starts_with(&top)).map(Path::to_owned),
        );
    }
    all
}

/// Returns the path of each group that may have the controller, and whether it is of version 2
/// (`/proc/PID/cgroup`, cgroups(7)).
fn groups_of<'t>(text: &'t str, controller: &'t str) -> impl Iterator<Item = (bool, &'t str)> {
    text.lines().filter_map(move |line| {
        let (number, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_v2 = number == "0" && controllers.is_empty();
        (is_v2 || controllers.split(',').any(|name| name == controller)).then_some((is_v2, path))
    })
}

/// A mounted hierarchy.
#[derive(Debug, PartialEq)]
struct Mount {
    folder: PathBuf,
    /// The group mounted there.
    root: PathBuf,
    /// Controllers of version 1; `None` for version 2.
    controllers: Option<Vec<String>>,
}

/// Returns the hierarchies among the mounts (`/proc/PID/mountinfo`, proc_pid_mountinfo(5)).
fn parse_mounts(text: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, folder) = (place.next()?.into(), place.next()?.into());
        let mut kind = kind.split(' ');
        let controllers = match kind.next()? {
            "cgroup2" => None,
            "cgroup" => Some(kind.nth(1)?.split(',').map(str::to_owned).collect()),
            _ => return None,
        };
        Some(Mount { folder, root, controllers })
    };
    text.lines().filter_map(mount).collect()
}

/// Runs every parser of this file on any text.
pub fn decode_anything(text: &str) {
    let _ = (parse_cpu_stat(text), parse_mounts(text), groups_of(text, "cpu").count());
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            files.iter().for_each(|(path, text)| tree.put(path, text));
            tree
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn roots(&self) -> Roots {
            Roots::recorded(self.0.path())
        }
    }

    fn v2() -> Tree {
        Tree::new(&[
            ("proc/self/cgroup", "0::/user.slice/job\n"),
            ("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 9\n"),
            ("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n"),
            (
                "sys/fs/cgroup/user.slice/cpu.stat",
                "usage_usec 7\nnr_periods 100\nnr_throttled 10\nthrottled_usec 500000\n",
            ),
            ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n"),
            (
                "sys/fs/cgroup/user.slice/job/cpu.stat",
                "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
            ),
            ("sys/fs/cgroup/user.slice/job/memory.max", "536870912\n"),
            ("sys/fs/cgroup/user.slice/job/pids.max", "64\n"),
        ])
    }

    #[test]
    fn a_quota_of_any_level_throttles() {
        let tree = v2();
        let before = throttling(&tree.roots(), "self");
        let groups: Vec<_> = before.values().copied().collect();
        assert_eq!(groups, [Throttled { periods: 100, throttled: 10, seconds: 0.5 }]);
        tree.put(
            "sys/fs/cgroup/user.slice/cpu.stat",
            "nr_periods 120\nnr_throttled 25\nthrottled_usec 1250000\n",
        );
        let after = throttling(&tree.roots(), "self");
        let between = most_throttled(&before, &after);
        assert_eq!(between, Some(Throttled { periods: 20, throttled: 15, seconds: 0.75 }));
        assert_eq!(most_throttled(&before, &Throttling::new()), None);
    }

    #[test]
    fn the_tightest_limits_count() {
        let limits = limits(&v2().roots());
        let expected = Limits { cpus: Some(1.5), memory: Some(512 << 20), pids: Some(64) };
        assert_eq!(limits, expected);
    }

    #[test]
    fn memory_is_left_as_far_as_every_level_has_some() {
        let tree = v2();
        assert_eq!(memory_left(&tree.roots()), None);
        let job = "sys/fs/cgroup/user.slice/job";
        tree.put(&format!("{job}/memory.current"), "500000000\n");
        assert_eq!(memory_left(&tree.roots()), Some(36_870_912));
        tree.put(&format!("{job}/memory.stat"), "anon 1\nactive_file 1000\ninactive_file 88\n");
        assert_eq!(memory_left(&tree.roots()), Some(36_872_000));
        tree.put("sys/fs/cgroup/user.slice/memory.max", "510000000\n");
        tree.put("sys/fs/cgroup/user.slice/memory.current", "510000000\n");
        assert_eq!(memory_left(&tree.roots()), Some(0));
    }

    #[test]
    fn version_1_has_a_hierarchy_for_each_controller() {
        let tree = Tree::new(&[
            ("proc/self/cgroup", "4:memory:/m\n1:cpu,cpuacct:/docker/x\n0::/\n"),
            (
                "proc/self/mountinfo",
                "40 3 0:3 /docker/x /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                 41 3 0:4 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "60000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            (
                "sys/fs/cgroup/cpu/cpu.stat",
                "nr_periods 204\nnr_throttled 201\nthrottled_time 13500000000\n",
            ),
            ("sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        let groups: Vec<_> = throttling(&tree.roots(), "self").into_values().collect();
        assert_eq!(groups, [Throttled { periods: 204, throttled: 201, seconds: 13.5 }]);
        assert_eq!(limits(&tree.roots()), Limits { cpus: Some(0.6), ..Limits::default() });
    }

    #[test]
    fn no_groups_are_no_limits() {
        let tree = Tree::new(&[("proc/self/cgroup", "0::/\n")]);
        assert_eq!(limits(&tree.roots()), Limits::default());
        assert!(throttling(&tree.roots(), "self").is_empty());
        limits(&Roots::real());
    }
}
