//! Tests that need a host of their own: each starts itself again in a new network and mount
//! namespace (unshare(1)), whose devices, mounts and settings are not the machine's.

use bytepath_testing::{HAS_SHARE, beside, skip};
use std::process::{Command, Output};

/// Runs the ignored test `name` of the same module in new namespaces. The settings that it
/// makes are journalled in a folder of its own. Skipped without root, unshare or namespaces.
pub fn isolated(module: &str, name: &str) {
    isolated_by(Command::new("unshare").args(["--net", "--mount"]), module, name);
}

/// The same by a command that makes its own namespaces and runs what follows it.
pub fn isolated_by(command: &mut Command, module: &str, name: &str) {
    // Most of these wait: for a timeout, or for what they started.
    let _beside = beside();
    if !rustix::process::geteuid().is_root() {
        return skip!("not root");
    }
    // Test names do not begin with the name of the program.
    let name = format!("{}::{name}", module.split_once("::").unwrap().1);
    let test = std::env::current_exe().unwrap();
    let state = tempfile::tempdir().unwrap();
    let run = command
        .env("BYTEPATH_STATE", state.path())
        .env(HAS_SHARE, "")
        .arg(test)
        .args([&name, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .output();
    match run {
        Err(e) => skip!("no {} ({e})", command.get_program().display()),
        Ok(run) if text(&run).contains("Operation not permitted") && !run.status.success() => {
            skip!("no namespaces here: {}", text(&run));
        }
        Ok(run) => {
            print!("{}", text(&run));
            assert!(run.status.success(), "{}", text(&run));
            assert!(text(&run).contains("1 passed"), "{name} was not run");
        }
    }
}

/// What a program wrote to both of its outputs.
pub fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}
