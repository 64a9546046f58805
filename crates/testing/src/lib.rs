//! What the tests of all crates share: skipping a test, sharing the machine, and finding the
//! double, a program that tests start.
//!
//! Tests run in parallel, in one program and in several (`tools/unit`), so they share the machine
//! by locks on files, which the kernel releases however a test ends:
//!
//! - [`alone`]: for a test that measures time, rates or another CPU's work. Nothing else runs.
//! - [`shared`]: for a test that keeps CPUs busy and checks bytes, ledgers or messages.
//!   As many run at a time as there are CPUs.
//! - [`beside`]: for a test that mostly waits. Any number of them may run.
//! - [`guests`]: for a test that boots guests. At most [`GUESTS`] at a time.
#![forbid(unsafe_code)]

mod control_group;

pub use control_group::ControlGroup;

use std::env;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Skips a test, which then returns: `skip!("no {program}")`. `tools/unit` counts it as skipped
/// and not as passed, and prints the reason.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {
        $crate::skipped(&format!($($reason)+))
    };
}

/// Implements [`skip!`]: prints one line, even if the reason has several.
#[expect(clippy::print_stdout, reason = "tools/unit reads it")]
pub fn skipped(reason: &str) {
    println!("SKIP: {}", reason.split_whitespace().collect::<Vec<_>>().join(" "));
}

/// A share of the machine, released on drop.
#[must_use]
pub struct Share(#[expect(dead_code, reason = "the locks of open files")] Vec<File>);

/// Number of tests that may boot guests at the same time. An emulated guest keeps one CPU busy.
pub const GUESTS: usize = 2;

/// Environment variable set for tests that another test starts and that run under its share.
pub const HAS_SHARE: &str = "BYTEPATH_TEST_HAS_SHARE";

/// Takes the whole machine. Tests that share it have priority: those that need it alone wait until
/// the others have ended, so that the others do not wait for them one by one.
pub fn alone() -> Share {
    share(|| {
        let machine = lock_file("machine");
        machine.lock().expect("a lock");
        vec![machine]
    })
}

/// Takes a part of the machine, beside other tests that measure nothing either.
pub fn shared() -> Share {
    share(|| {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let mut locks = slots("busy", cpus.max(2), 1);
        locks.push(shared_machine());
        locks
    })
}

/// Takes a part of the machine for a test that mostly waits.
pub fn beside() -> Share {
    share(|| vec![shared_machine()])
}

/// Takes `count` of the [`GUESTS`] turns to boot guests. A test that must not mistake another
/// test's guests for its own takes all of them.
pub fn guests(count: usize) -> Share {
    share(|| {
        let mut locks = slots("guests", GUESTS, count);
        locks.push(shared_machine());
        locks
    })
}

fn share(lock: impl FnOnce() -> Vec<File>) -> Share {
    Share(if env::var_os(HAS_SHARE).is_some() { Vec::new() } else { lock() })
}

fn shared_machine() -> File {
    let machine = lock_file("machine");
    machine.lock_shared().expect("a lock");
    machine
}

/// Locks `count` of `all` files. Only one test at a time tries to, so that two tests that need
/// several never block each other.
fn slots(name: &str, all: usize, count: usize) -> Vec<File> {
    let queue = lock_file(&format!("{name}-queue"));
    queue.lock().expect("a lock");
    let mut locked = Vec::new();
    let mut free: Vec<File> = (0..all).map(|slot| lock_file(&format!("{name}-{slot}"))).collect();
    while locked.len() < count {
        let is_free = |file: &mut File| match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(e)) => panic!("a lock: {e}"),
        };
        match free.iter_mut().position(is_free) {
            Some(at) => locked.push(free.swap_remove(at)),
            None => thread::sleep(Duration::from_millis(10)),
        }
    }
    locked
}

/// Opens a lock file of this user, in a folder whose name `tools/unit` also uses.
fn lock_file(name: &str) -> File {
    let user = fs::metadata("/proc/self").map_or(0, |process| process.uid());
    let folder = env::temp_dir().join(format!("bytepath-tests-{user}"));
    fs::create_dir_all(&folder).expect("a folder for locks");
    File::create(folder.join(format!("{name}.lock"))).expect("a file to lock")
}

/// Environment variable with the path of a copy of the double, if it is not where Cargo puts it.
pub const DOUBLE: &str = "BYTEPATH_TEST_DOUBLE";

/// Path of the program in `tests/double`, which does what tests need. It is built if necessary,
/// because Cargo does not do that for the tests of one file.
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

/// Runs a program that was just written. If another thread of this test is starting a child at that
/// moment, the child inherits the file, open for writing, until it executes its own program. Until
/// then execve(2) fails with ETXTBSY, so it is retried.
pub fn run_copied(command: &mut Command) -> io::Result<Output> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match command.output() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => {
                if Instant::now() > deadline {
                    return Err(e);
                }
                thread::sleep(Duration::from_millis(1));
            }
            ended => return ended,
        }
    }
}
