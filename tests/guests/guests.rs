//! What tests that boot guests share: turns at the machine, running a study as a user would, and
//! checks that nothing of it is left.

use bytepath::record::Support;
use bytepath::testbed::{self, Testbed};
use bytepath_testing::{GUESTS, Share, skip};
use rustix::process::Pid;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A turn at the machine; `None` if it cannot boot guests.
pub fn able() -> Option<Share> {
    turns(1)
}

/// All turns, for a test whose guests are children of this process or become orphans, so that they
/// are not mistaken for another test's.
pub fn able_alone() -> Option<Share> {
    turns(GUESTS)
}

fn turns(count: usize) -> Option<Share> {
    if let Support::No { reason, .. } = testbed().probe() {
        skip!("{reason}");
        return None;
    }
    Some(bytepath_testing::guests(count))
}

/// The testbed of guests, with every option at its default.
pub fn testbed() -> &'static dyn Testbed {
    *testbed::CATALOG.iter().find(|testbed| testbed.name() == "vm").unwrap()
}

/// Runs the program to its end.
pub fn bytepath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bytepath")).args(arguments).output().unwrap()
}

/// Both outputs of a run.
pub fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// CPU time of a process so far, in seconds.
pub fn cpu_time(pid: Pid) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let rest = stat.rsplit(')').next().unwrap();
    // utime and stime are the 14th and 15th of proc_pid_stat(5), in ticks.
    let ticks: f64 =
        rest.split_whitespace().skip(11).take(2).map(|n| n.parse::<f64>().unwrap()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// Guest processes that a process has started.
pub fn guests_of(parent: u32) -> Vec<Pid> {
    let parent = parent.to_string();
    processes("qemu-system", &|stat: &str| {
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)) == Some(&parent)
    })
}

/// Guests that still run although the process that started them has ended: an orphan's parent is
/// the first process.
pub fn leftovers() -> Vec<Pid> {
    guests_of(1)
}

/// Processes whose name begins with `name` and whose `/proc/PID/stat` satisfies `is_meant`.
fn processes(name: &str, is_meant: &dyn Fn(&str) -> bool) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbered = entries.filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path())));
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    numbered
        .filter(|(_, folder)| {
            read(folder.join("comm")).starts_with(name) && is_meant(&read(folder.join("stat")))
        })
        .filter_map(|(pid, _)| Pid::from_raw(pid))
        .collect()
}
