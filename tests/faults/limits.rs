//! Too few processes, or too little memory, for a study.

use crate::lab::{Lab, Started};
use crate::studies::Plan;
use anyhow::{Result, ensure};
use bytepath_testing::ControlGroup;

/// Runs a study in a control group with few processes, or with little memory for itself or for a
/// stack.
pub fn limit(lab: &mut Lab) -> Result<()> {
    let plan = Plan::draw(lab, "study");
    let group = ControlGroup::new("pids")?;
    let limit = match lab.below(3) {
        0 => entered_with(&group, 1 + lab.below(24))?,
        1 => format!("ulimit -s {}", 64 << lab.below(6)),
        _ => format!("ulimit -d {}", 2000 << lab.below(7)),
    };
    lab.lines.push(limit.clone());
    let ended = Started::of(lab.limited(&limit, &plan.arguments))?.end()?;
    ensure!(!ended.err.contains(" panicked at "), "{}", ended.err);
    match ended.signal {
        None => drop(ended.with_code(&[0, 1, 3, 5, 6, 8])?),
        // A process that aborts for lack of memory leaves settings that are restored as after
        // SIGKILL.
        Some(libc::SIGABRT) => drop(lab.ask(&["restore"])?.with_code(&[0])?),
        other => ensure!(other.is_none(), "ended by signal {other:?}: {}", ended.err),
    }
    lab.host_is_as_before()
}

/// Returns the shell line that enters a group limited to this many processes and threads.
fn entered_with(group: &ControlGroup, most: usize) -> Result<String> {
    group.set("pids.max", most)?;
    Ok(entered(group))
}

/// Returns the shell line that enters a group.
pub fn entered(group: &ControlGroup) -> String {
    format!("echo $$ >{}", group.procs().display())
}
