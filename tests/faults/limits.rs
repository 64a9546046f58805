//! Too few processes, or too little memory, for a study.

use crate::lab::{Lab, Started};
use crate::studies::Plan;
use anyhow::{Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// A study in a control group with few processes, or with little memory for itself or for a stack.
pub fn limit(lab: &mut Lab) -> Result<()> {
    let plan = Plan::draw(lab, "study");
    let group = Group::new();
    let limit = match (&group, lab.below(3)) {
        (Ok(group), 0) => group.entered_with(1 + lab.below(24))?,
        (_, 1) => format!("ulimit -s {}", 64 << lab.below(6)),
        _ => format!("ulimit -d {}", 2000 << lab.below(7)),
    };
    lab.lines.push(limit.clone());
    let ended = Started::of(lab.limited(&limit, &plan.arguments))?.end()?;
    ensure!(!ended.err.contains(" panicked at "), "{}", ended.err);
    match ended.signal {
        None => drop(ended.with_code(&[0, 1, 3, 5, 6, 8])?),
        // What a process without memory has set is restored as after SIGKILL.
        Some(libc::SIGABRT) => drop(lab.ask(&["restore"])?.with_code(&[0])?),
        other => ensure!(other.is_none(), "ended by signal {other:?}: {}", ended.err),
    }
    lab.host_is_as_before()
}

/// A control group for processes; dropping it removes it.
struct Group(PathBuf);

impl Group {
    fn new() -> Result<Group> {
        let v1 = Path::new("/sys/fs/cgroup/pids");
        let parent = if v1.is_dir() { v1 } else { Path::new("/sys/fs/cgroup") };
        let group = parent.join(format!("faults-{}", std::process::id()));
        fs::create_dir(&group)?;
        Ok(Group(group))
    }

    /// What a shell does to enter it, once it may have so many processes and threads.
    fn entered_with(&self, most: usize) -> Result<String> {
        fs::write(self.0.join("pids.max"), most.to_string())?;
        Ok(format!("echo $$ >{}", self.0.join("cgroup.procs").display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
