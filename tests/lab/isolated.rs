//! Tests that need a machine of their own: each starts itself again in a network and a
//! mount namespace (unshare(1)) that has no devices, mounts or settings but its own.

use bytepath_testing::skip;
use std::process::{Command, Output};

/// Runs the ignored test `name` of the same module in new namespaces. Settings that it
/// makes are journalled in a folder of its own. Skipped, with the reason, without root,
/// unshare or namespaces.
pub fn isolated(module: &str, name: &str) {
    isolated_by(Command::new("unshare").args(["--net", "--mount"]), module, name);
}

/// The same by a command that makes its own namespaces and runs what follows it.
pub fn isolated_by(command: &mut Command, module: &str, name: &str) {
    if !rustix::process::geteuid().is_root() {
        return skip!("not root");
    }
    // Test names do not begin with the name of the program.
    let name = format!("{}::{name}", module.split_once("::").unwrap().1);
    let test = std::env::current_exe().unwrap();
    let state = tempfile::tempdir().unwrap();
    let run = command
        .env("BYTEPATH_STATE", state.path())
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

/// All that a program wrote.
pub fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}
