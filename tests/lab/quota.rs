//! A study in a control group with a CPU quota, as containers have one. If no hierarchy permits
//! such a group, it is skipped and reported.

use crate::isolated::text;
use bytepath::record::TrialStatus;
use bytepath::study::load;
use bytepath_testing::{ControlGroup, shared, skip};
use std::io;
use std::process::Command;

/// A group limited to a fifth of a CPU, which a study uses up even on a busy machine.
struct Group(ControlGroup);

impl Group {
    fn new() -> io::Result<Group> {
        let group = ControlGroup::new("cpu")?;
        match group.is_v1 {
            true => group.set("cpu.cfs_quota_us", 20_000)?,
            false => group.set("cpu.max", "20000 100000")?,
        }
        Ok(Group(group))
    }

    /// Runs bytepath by a shell that enters the group first; returns its output.
    fn run(&self, words: &[&str]) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.procs());
        command.arg(env!("CARGO_BIN_EXE_bytepath")).args(words);
        text(&command.output().unwrap())
    }
}

#[test]
fn a_cpu_quota_is_found_and_rejects_the_trials_that_it_throttled() {
    let _share = shared();
    let group = match Group::new() {
        Ok(group) => group,
        Err(e) => return skip!("no control group can be made: {e}"),
    };
    let doctor = group.run(&["doctor"]);
    assert!(doctor.contains("the control group has a CPU quota: 0.20 CPUs"), "{doctor}");
    let busy = group.run(&[
        "observe",
        "--sample",
        "none",
        "--",
        "sh",
        "-c",
        "while :; do n=$((n+1)); \
                          [ $n -lt 300000 ] || exit 0; done",
    ]);
    assert!(flat(&busy).contains("the CPU quota of its control group was used up in"), "{busy}");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let printed = group.run(&[
        "run",
        "--path",
        "socket",
        "--blocks",
        "1",
        "--window",
        "500ms",
        "--warm-up",
        "100ms",
        "--profile",
        "none",
        "--study",
        out.to_str().unwrap(),
    ]);
    let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {printed}"));
    assert!(!study.trials.is_empty(), "{printed}");
    for trial in &study.trials {
        let TrialStatus::Rejected { events } = &trial.status else {
            panic!("{:?}: {printed}", trial.status)
        };
        let quota = events.iter().any(|event| event.starts_with("the control group's CPU quota"));
        assert!(quota, "{events:?}: {printed}");
    }
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
