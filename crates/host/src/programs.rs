//! CPU use by program, so that disturbances of a study can be named.

use bytepath_sys::procfs::{self, parse_task_stat};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// CPU time that each process has used since it began.
#[derive(Clone, Debug)]
pub struct CpuTimes {
    taken: Instant,
    processes: BTreeMap<u32, Process>,
}

#[derive(Clone, Debug)]
struct Process {
    name: String,
    parent: u32,
    /// Distinguishes it from a later process with the same id.
    started: u64,
    seconds: f64,
}

/// CPU use of the processes of one name between two readings.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub name: String,
    /// Its process id, if there is only one process.
    pub pid: Option<u32>,
    /// Average number of CPUs that it kept busy.
    pub cpus: f64,
}

impl CpuTimes {
    /// Reads the times of all processes in `/proc`.
    pub fn read(proc: &Path) -> CpuTimes {
        let read = |pid: u32| {
            let text = fs::read(proc.join(pid.to_string()).join("stat")).ok()?;
            let text = String::from_utf8_lossy(&text).into_owned();
            let stat = parse_task_stat(&text).ok()?;
            let seconds = stat.user.saturating_add(stat.system) as f64 / procfs::user_hz();
            let name = stat.comm.to_owned();
            Some((pid, Process { name, parent: stat.parent, started: stat.started, seconds }))
        };
        let pids = procfs::numbered(proc).unwrap_or_default();
        CpuTimes { taken: Instant::now(), processes: pids.into_iter().filter_map(read).collect() }
    }

    /// Returns the time since it was read.
    pub fn age(&self) -> Duration {
        self.taken.elapsed()
    }

    /// Returns the programs by CPU time used since `earlier`, the busiest first. Leaves out the
    /// process `own` and its descendants, and kernel threads that work for senders and receivers. A
    /// process that began and ended in between is missed.
    pub fn since(&self, earlier: &CpuTimes, own: u32) -> Vec<Program> {
        let elapsed = self.taken.saturating_duration_since(earlier.taken).as_secs_f64();
        let mut programs: BTreeMap<&str, Program> = BTreeMap::new();
        for (pid, process) in &self.processes {
            let for_others = KERNEL_WORKERS.iter().any(|name| process.name.starts_with(name));
            if self.is_within(*pid, own) || for_others || elapsed <= 0.0 {
                continue;
            }
            let before = earlier.processes.get(pid).filter(|then| then.started == process.started);
            let used = process.seconds - before.map_or(0.0, |then| then.seconds);
            if used <= 0.0 {
                continue;
            }
            let cpus = used / elapsed;
            programs
                .entry(&process.name)
                .and_modify(|program| {
                    program.cpus += cpus;
                    program.pid = None;
                })
                .or_insert_with(|| Program { name: process.name.clone(), pid: Some(*pid), cpus });
        }
        let mut programs: Vec<Program> = programs.into_values().collect();
        programs.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
        programs
    }

    /// True for `own` and its descendants.
    fn is_within(&self, pid: u32, own: u32) -> bool {
        let parent = |pid: &u32| Some(self.processes.get(pid)?.parent);
        std::iter::successors(Some(pid), parent).take(DEEPEST).any(|pid| pid == own)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if let Some(pid) = self.pid {
            write!(f, " (pid {pid})")?;
        }
        write!(f, " {:.0}%", self.cpus * 100.0)
    }
}

/// Largest number of generations to follow: lists that are read while processes come and go may
/// contain a cycle.
const DEEPEST: usize = 100;

/// Prefixes of the names of kernel threads whose time may belong to a stream as well as to anything
/// else.
const KERNEL_WORKERS: &[&str] = &["ksoftirqd/", "kworker/", "napi/", "migration/", "rcu_"];

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(processes: &[(u32, &str, u32, u64)]) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        for (pid, name, parent, ticks) in processes {
            let folder = proc.path().join(pid.to_string());
            fs::create_dir(&folder).unwrap();
            let zeros = |n: usize| vec!["0"; n].join(" ");
            // Fields 4 (parent), 14 (user) and 22 (start) of proc_pid_stat(5).
            let line = format!(
                "{pid} ({name}) R {parent} {} {ticks} 0 {} 77 {}",
                zeros(9),
                zeros(6),
                zeros(20)
            );
            fs::write(folder.join("stat"), line).unwrap();
        }
        proc
    }

    #[test]
    fn other_programs_are_named_by_what_they_used() {
        let hz = procfs::user_hz() as u64;
        let before = [(1, "init", 0, 5), (9, "cc1", 1, 0), (20, "own", 1, 0), (21, "agent", 20, 0)];
        let mut before = CpuTimes::read(machine(&before).path());
        let after = [
            (1, "init", 0, 5),
            (9, "cc1", 1, hz),
            (10, "cc1", 1, hz / 2),
            (12, "napi/eth0-3", 2, hz),
            (13, "a) R b", 1, hz / 4),
            (20, "own", 1, hz),
            (21, "agent", 20, hz),
        ];
        let after = CpuTimes::read(machine(&after).path());
        before.taken = after.taken - Duration::from_secs(2);
        let programs = after.since(&before, 20);
        let texts: Vec<String> = programs.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["cc1 75%", "a) R b (pid 13) 12%"]);
    }
}
