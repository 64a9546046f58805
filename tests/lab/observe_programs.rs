//! Widely used servers and clients under `bytepath observe`: their own counts, or those of their
//! peers or of the kernel, equal what was observed (`examples/observe-programs.py`).

use crate::observe::{text, works};
use bytepath_testing::{beside, skip};
use std::process::Command;

/// Runs these programs; if some are not installed, the test is skipped.
fn agree(programs: &[&str]) {
    if !rustix::process::geteuid().is_root() || !works() {
        return skip!("not root, or nothing that counts");
    }
    let _share = beside();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/observe-programs.py");
    let mut command = Command::new("python3");
    command.arg(script).args(programs).env("BYTEPATH", env!("CARGO_BIN_EXE_bytepath"));
    let Ok(output) = command.output() else { return skip!("no python3") };
    let said = text(&[output.stdout, output.stderr].concat());
    match output.status.code() {
        Some(0) => println!("{said}"),
        Some(77) => skip!("{said}"),
        _ => panic!("{said}"),
    }
}

#[test]
fn servers_count_what_was_observed() {
    agree(&["nginx", "redis", "haproxy", "postgresql"]);
}

#[test]
fn languages_count_what_was_observed() {
    agree(&["asyncio", "go", "java", "node"]);
}

#[test]
fn clients_count_what_was_observed() {
    agree(&["curl", "rsync", "ssh"]);
}

#[test]
fn io_uring_is_named_as_not_counted() {
    agree(&["io_uring"]);
}
