//! Guests that are killed, hang or run out of memory while a study runs in them.

use crate::lab::{Lab, Started, descendants, strike};
use crate::studies::{Plan, goes_on, is_true};
use anyhow::Result;
use bytepath::record::Support;
use bytepath::spec;
use bytepath::study::testbed_spec;
use bytepath::testbed;
use std::fs;
use std::time::Duration;

/// A guest boots again after each fault, and may be emulated.
const PATIENCE: Duration = Duration::from_secs(300);

/// A guest that is silent for this long is considered hung.
const SILENCE: &str = "silence=5s";

/// Returns why guests cannot run on this machine, or `None` if they can.
pub fn unable() -> Option<String> {
    let choice = spec::parse_testbed("vm", &testbed_spec(testbed::CATALOG)).ok()?;
    let bed = testbed::CATALOG.iter().find(|bed| bed.name() == choice.name)?;
    match bed.probe() {
        Support::Yes => None,
        Support::No { reason, .. } => Some(reason),
    }
}

/// Harms a guest at some moment.
pub fn guest(lab: &mut Lab) -> Result<()> {
    let (kind, blocks) = (lab.below(6), 1 + lab.below(2));
    // Each flow has buffers at both ends, of 8 MiB each.
    let flows = if kind < 2 { 24 + lab.below(100) } else { 1 };
    let panics = ["", " sysctl.vm.panic_on_oom=1"][kind % 2];
    let text = format!(
        "run --path socket --cores unpinned --design trials --warm-up 0 --window 200ms --profile \
         none --meters none --blocks {blocks} --study study --testbed vm:memory=768M,{SILENCE} \
         --stream flows={flows},message-size=8M,read-size=8M --kernel"
    );
    let mut arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    arguments.push(format!("guest=debian:newest{panics}"));
    let plan = Plan { arguments, trials: 2 * blocks, settings: 0, lasts: 4000 };
    let mut run = Started::of(lab.command(&plan.arguments))?;
    if kind >= 2 {
        let mut qemu = None;
        while qemu.is_none() && !run.ends_within(Duration::from_millis(5))? {
            let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm"));
            let is_one = |pid: &u32| name(pid).is_ok_and(|name| name.starts_with("qemu"));
            qemu = descendants(run.child.id()).into_iter().find(is_one);
        }
        let wait = lab.below(plan.lasts);
        run.ends_within(Duration::from_millis(wait as u64))?;
        if let Some(qemu) = qemu {
            lab.lines.push(format!("# after {wait} ms, kind {kind}"));
            match kind {
                2 | 3 => drop(strike(qemu, libc::SIGKILL)),
                4 => drop(strike(qemu, libc::SIGSTOP)),
                _ => {
                    strike(qemu, libc::SIGSTOP);
                    run.ends_within(Duration::from_millis(lab.below(4000) as u64))?;
                    strike(qemu, libc::SIGCONT);
                }
            }
        }
    }
    let ended = run.end_within(PATIENCE)?.sound()?.with_code(&[0, 1, 3, 5])?;
    // Such a study runs out of memory whenever it is resumed.
    if kind < 2 { is_true(lab, &ended, &plan) } else { goes_on(lab, &ended, &plan) }
}
