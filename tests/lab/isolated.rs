//! Tests that need their own host: each restarts itself in a new network and mount namespace
//! (unshare(1)), whose devices, mounts and settings are not the machine's.

use bytepath_testing::{HAS_SHARE, beside, skip};
use std::panic::catch_unwind;
use std::process::{Command, Output};

/// The namespaces of such a test, as options of unshare(1).
const NAMESPACES: &[&str] = &["--net", "--mount"];

/// Runs the ignored test `name` of the same module in new namespaces, with a folder of its own for
/// the journal of its settings. Skipped without root, unshare or namespaces.
pub fn isolated(module: &str, name: &str) {
    isolated_by(Command::new("unshare").args(NAMESPACES), NAMESPACES, module, name);
}

/// Like [`isolated`], by a command that makes its own `namespaces` and runs the program that
/// follows it.
pub fn isolated_by(command: &mut Command, namespaces: &[&str], module: &str, name: &str) {
    // Most of these tests wait: for a timeout, or for what they started.
    let _beside = beside();
    if let Some(lack) = lack(namespaces) {
        return skip!("{lack}");
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
    let run = run.unwrap_or_else(|e| panic!("{}: {e}", command.get_program().display()));
    print!("{}", text(&run));
    assert!(run.status.success(), "{}", text(&run));
    assert!(text(&run).contains("1 passed"), "{name} was not run");
}

/// Returns why such namespaces cannot be made here, or `None` if a program that does nothing runs
/// in some.
fn lack(namespaces: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".into());
    }
    match Command::new("unshare").args(namespaces).arg("true").output() {
        Err(e) => Some(format!("no unshare ({e})")),
        Ok(run) if !run.status.success() => Some(format!("no namespaces here: {}", text(&run))),
        Ok(_) => None,
    }
}

/// What a program wrote to both of its outputs.
pub fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn what_fails_in_namespaces_fails() {
    if let Some(lack) = lack(NAMESPACES) {
        return skip!("{lack}");
    }
    let failed = catch_unwind(|| isolated(module_path!(), "inside_what_fails")).unwrap_err();
    let said = failed.downcast_ref::<String>().expect("a message");
    assert!(said.contains("Operation not permitted"), "{said}");
}

#[test]
#[ignore = "started in namespaces by what_fails_in_namespaces_fails"]
fn inside_what_fails() {
    panic!("as where something is refused: Operation not permitted");
}
