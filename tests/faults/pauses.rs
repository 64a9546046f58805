//! A study whose control group is frozen, or gets less CPU time or memory than it needs.

use crate::lab::{Lab, Started};
use crate::limits::entered;
use crate::studies::{Plan, goes_on};
use anyhow::{Context, Result};
use bytepath_testing::ControlGroup;
use std::io;
use std::time::Duration;

/// Freezes the study's group for a while, several times; a freezer stops all of it at once.
pub fn freeze(lab: &mut Lab) -> Result<()> {
    let group = ControlGroup::new("freezer").context("the freezer")?;
    let state = |frozen: bool| match (group.is_v1, frozen) {
        (true, true) => group.set("freezer.state", "FROZEN"),
        (true, false) => group.set("freezer.state", "THAWED"),
        (false, frozen) => group.set("cgroup.freeze", u8::from(frozen)),
    };
    let plan = Plan::draw(lab, "study");
    let mut run = Started::of(lab.limited(&entered(&group), &plan.arguments))?;
    for _ in 0..1 + lab.below(3) {
        let wait = lab.below(plan.lasts);
        run.ends_within(Duration::from_millis(wait as u64))?;
        state(true)?;
        let frozen = 1 + lab.below(2500);
        lab.lines.push(format!("# after {wait} ms frozen for {frozen} ms"));
        std::thread::sleep(Duration::from_millis(frozen as u64));
        state(false)?;
    }
    goes_on(lab, &run.end()?.sound()?.with_code(&[0, 5, 8])?, &plan)
}

/// Limits the study's group to 5 to 100 % of one CPU.
pub fn quota(lab: &mut Lab) -> Result<()> {
    let group = ControlGroup::new("cpu").context("the controller cpu")?;
    let period = lab.pick(&[10_000, 100_000]);
    // The kernel accepts no less than a millisecond.
    let quota = (period / 100 * (5 + lab.below(96))).max(1000);
    limited_to(&group, quota, period)?;
    let plan = Plan::draw(lab, "study");
    lab.lines.push(format!("# {quota} of each {period} us"));
    let run = Started::of(lab.limited(&entered(&group), &plan.arguments))?;
    goes_on(lab, &run.end()?.sound()?.with_code(&[0, 5, 8])?, &plan)
}

fn limited_to(group: &ControlGroup, quota: usize, period: usize) -> io::Result<()> {
    if group.is_v1 {
        group.set("cpu.cfs_period_us", period)?;
        return group.set("cpu.cfs_quota_us", quota);
    }
    group.set("cpu.max", format_args!("{quota} {period}"))
}

/// Limits the study's group to 24 to 512 MiB of memory; the kernel kills what takes more.
pub fn memory(lab: &mut Lab) -> Result<()> {
    let group = ControlGroup::new("memory").context("the controller memory")?;
    let bytes = (24 + lab.below(489)) << 20;
    group.set(if group.is_v1 { "memory.limit_in_bytes" } else { "memory.max" }, bytes)?;
    let plan = Plan::draw(lab, "study");
    lab.lines.push(format!("# {} MiB", bytes >> 20));
    let ended = Started::of(lab.limited(&entered(&group), &plan.arguments))?.end()?.tame()?;
    match ended.signal {
        // If a role's process is killed, its trial has failed; too little memory is an error.
        None => drop(ended.with_code(&[0, 1, 3, 5, 6, 8])?),
        Some(libc::SIGKILL) => drop(lab.ask(&["restore"])?.with_code(&[0])?),
        Some(other) => anyhow::bail!("ended by signal {other}: {}", ended.err),
    }
    lab.host_is_as_before()
}
