//! What the tests of all crates share: the one way to skip a test, the machine to
//! oneself, and the double, a program for tests to start.
#![forbid(unsafe_code)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Says that this test cannot do its work here, and why: `skip!("no {program}")`. The test
/// then returns. `tools/unit` finds the line, counts the test as skipped and not as
/// passed, and prints the reason.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {
        $crate::skipped(&format!($($reason)+))
    };
}

/// What [`skip!`] does: one line, whatever the reason looks like.
#[expect(clippy::print_stdout, reason = "tools/unit reads it")]
pub fn skipped(reason: &str) {
    println!("SKIP: {}", reason.split_whitespace().collect::<Vec<_>>().join(" "));
}

static MACHINE: RwLock<()> = RwLock::new(());

/// The machine to oneself: streams that run side by side would starve each other.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    // A test that failed holding the lock has spoiled nothing.
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// The machine with others that time nothing either.
pub fn shared() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Where a copy of the double is, if not where Cargo puts it.
pub const DOUBLE: &str = "BYTEPATH_TEST_DOUBLE";

/// The program in `tests/double`, which plays the parts that tests give it. It is built
/// if need be: Cargo does not do that for the tests of one file.
pub fn double() -> PathBuf {
    static BUILT: Mutex<bool> = Mutex::new(false);
    if let Some(copy) = env::var_os(DOUBLE) {
        return copy.into();
    }
    let test = env::current_exe().expect("a test program has a file");
    let target = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if !*built {
        let profile = match target.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--workspace", "--example", "double", "--profile", profile])
            .current_dir(root)
            .status();
        assert!(status.is_ok_and(|status| status.success()), "the double was not built");
        *built = true;
    }
    target.join("examples/double")
}
