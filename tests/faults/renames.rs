//! A device whose settings a study has changed is renamed, and its name may be given to another
//! device.

use crate::host::LINES;
use crate::lab::{Lab, Started};
use crate::studies::Plan;
use anyhow::{Result, ensure};
use std::process::Command;
use std::time::Duration;

/// Checks that the renamed device gets its settings back, and that the one with its old name is
/// left alone.
pub fn rename(lab: &mut Lab) -> Result<()> {
    let mut plan = Plan::draw(lab, "study");
    if plan.settings < 2 {
        let of_device = LINES[1 + lab.below(LINES.len() - 1)];
        plan.arguments.extend(["--set", of_device].map(Into::into));
    }
    let mut run = Started::of(lab.command(&plan.arguments))?;
    let wait = lab.below(plan.lasts);
    run.ends_within(Duration::from_millis(wait as u64))?;
    let replaced = lab.one_in(2);
    ip("link set set0 name was0")?;
    if replaced {
        ip("link add set0 mtu 1400 type veth peer name other0")?;
    }
    lab.lines.push(format!("# after {wait} ms renamed, replaced: {replaced}"));
    let ended = run.end()?.sound()?.with_code(&[0, 1, 3, 4, 5, 6, 8])?;
    lab.ask(&["restore"])?.with_code(&[0])?;
    let untouched = !replaced || std::fs::read_to_string("/sys/class/net/set0/mtu")? == "1400\n";
    if replaced {
        ip("link del set0")?;
    }
    ip("link set was0 name set0")?;
    ensure!(untouched, "another device of the name was changed: {}", ended.err);
    lab.host_is_as_before()
}

fn ip(words: &str) -> Result<()> {
    let ended = Command::new("ip").args(words.split(' ')).output()?;
    ensure!(ended.status.success(), "ip {words}: {}", String::from_utf8_lossy(&ended.stderr));
    Ok(())
}
