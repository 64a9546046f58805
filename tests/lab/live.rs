//! What a terminal shows while a study runs, tested on a terminal of script(1).

use bytepath::study::load;
use bytepath_testing::{shared, skip};
use std::path::Path;
use std::process::Command;

const STUDY: &[&str] = &[
    "--path",
    "socket",
    "--path",
    "uring",
    "--blocks",
    "3",
    "--warm-up",
    "50ms",
    "--window",
    "200ms",
    "--profile",
    "none",
];

#[test]
fn a_terminal_shows_what_was_measured_so_far() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let Some(shown) = on_a_terminal(folder.path(), "usual", &[]) else { return };
    for part in ["block 1 of 3", "block 3 of 3", " left  ", "6/9", "now", "Ctrl-C keeps"] {
        assert!(shown.contains(part), "no '{part}':\n{shown}");
    }
    // A busy machine may leave nothing to estimate; the output then has the reason.
    let (table, nothing) = ("CPU-s per GiB", "No trial was measured");
    assert!(shown.contains(table) || shown.contains(nothing), "{shown}");
    assert!(!shown.contains("[  1/9]"), "a line of each trial is for -v:\n{shown}");
    // The report stays; the bar and its table are removed before it.
    let study = load(&folder.path().join("usual")).unwrap();
    assert_eq!(study.trials.len(), 9);
    let screen = shown.rfind("A/A check").or_else(|| shown.rfind(nothing));
    let screen = &shown[screen.unwrap_or_else(|| panic!("{shown}"))..];
    assert!(screen.contains("all tables  bytepath show usual --details"), "{screen}");
    assert!(screen.lines().count() < 24 && !screen.contains("schedule "), "{screen}");

    let shown = on_a_terminal(folder.path(), "verbose", &["-v"]).unwrap();
    assert!(shown.contains("[  9/9]") && shown.contains("block 2 of 3"), "{shown}");
    let shown = on_a_terminal(folder.path(), "quiet", &["-q"]).unwrap();
    assert!(!shown.contains("block 1 of") && !shown.contains("Ctrl-C keeps"), "{shown}");
    assert!(shown.contains("bytepath show quiet --details"), "the report:\n{shown}");
    let shown = on_a_terminal(folder.path(), "detailed", &["-q", "--details"]).unwrap();
    assert!(shown.contains("schedule "), "the report:\n{shown}");
}

/// Returns all that a study in this folder wrote to a terminal of 100 columns and 30 lines, or
/// `None` without script(1).
fn on_a_terminal(folder: &Path, name: &str, options: &[&str]) -> Option<String> {
    let run = [env!("CARGO_BIN_EXE_bytepath"), "run", "--study", name];
    let words = run.iter().chain(STUDY).chain(options).copied();
    let line = format!("stty cols 100 rows 30; {}", shlex::try_join(words).unwrap());
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(folder).env("SHELL", "/bin/sh");
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    match command.output() {
        Ok(output) => {
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            // On a busy machine a trial may move nothing in its window.
            assert!(matches!(output.status.code(), Some(0 | 5)), "{shown}");
            Some(shown)
        }
        Err(e) => {
            skip!("no script(1): {e}");
            None
        }
    }
}
