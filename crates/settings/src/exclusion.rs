//! Locks so that only one bytepath at a time changes the settings of a network namespace, and one
//! those of the machine, whatever folder its journal is in.
//!
//! The lock is on the namespace itself: a file of `/proc/PID/ns` is the same wherever `/proc` is
//! mounted (namespaces(7)), and has no name that someone could remove. Whoever may change the
//! machine is in its first user namespace; that one stands for the machine.

use bytepath_record::Fault;
use bytepath_sys::procfs;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

/// What one bytepath at a time may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Devices and sysctls of the calling thread's network namespace.
    Namespace,
    /// What belongs to the whole machine: CPUs, memory, interrupts.
    Machine,
}

/// The right to change settings within a reach. It ends with the process, however that ends.
#[derive(Debug)]
pub struct Exclusion {
    file: File,
}

impl Exclusion {
    /// Takes the lock. If another process holds it, the fault names that process.
    pub(super) fn take(reach: Reach) -> Result<Exclusion, Fault> {
        let (path, what) = match reach {
            Reach::Namespace => ("/proc/thread-self/ns/net", "this network namespace"),
            Reach::Machine => ("/proc/thread-self/ns/user", "this machine"),
        };
        let fault = |e: io::Error| Fault::system(format!("cannot lock {path}"), &e);
        let file = File::open(path).map_err(fault)?;
        let inode = file.metadata().map_err(fault)?.ino();
        let attempt = || match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => Err(e),
        };
        match take(attempt, || flock_holder(inode)).map_err(fault)? {
            Taken::Ours => Ok(Exclusion { file }),
            Taken::By(pid) => Err(busy(&format!(
                "another bytepath (process {pid}) is changing settings of {what}"
            ))),
            Taken::ByNoneSeen => Err(busy(&format!(
                "another bytepath, which is not seen from here, is changing settings of {what}"
            ))),
        }
    }
}

impl Drop for Exclusion {
    fn drop(&mut self) {
        // If it fails, closing the file releases the lock.
        let _ = self.file.unlock();
    }
}

/// The fault of one that has to wait.
pub(super) fn busy(text: &str) -> Fault {
    Fault::storage(text).remedy("wait until it has ended; two would distort each other's results")
}

/// Holder of a lock.
pub(super) enum Taken {
    Ours,
    /// A running process.
    By(u32),
    /// A process that has ended or is not visible here.
    ByNoneSeen,
}

/// Takes a lock, given how to try it and how to determine its holder.
///
/// A lock may outlive a process that was killed: a child that it was just starting shares its open
/// files until its execve(2). This waits for that.
pub(super) fn take(
    mut attempt: impl FnMut() -> io::Result<bool>,
    mut holder: impl FnMut() -> Option<u32>,
) -> io::Result<Taken> {
    let deadline = Instant::now() + OUTLIVED;
    while !attempt()? {
        if let Some(pid) = holder().filter(|pid| lives(*pid)) {
            return Ok(Taken::By(pid));
        }
        if Instant::now() > deadline {
            return Ok(Taken::ByNoneSeen);
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(Taken::Ours)
}

/// How long to wait for a child's execve(2).
const OUTLIVED: Duration = Duration::from_secs(10);

/// True if a process has not ended. A zombie has ended; a process of another PID namespace is not
/// visible.
pub(super) fn lives(pid: u32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    procfs::parse_task_stat(&stat).is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Returns the holder of the flock(2) lock on this inode (proc_locks(5)); `None` if it is in a PID
/// namespace that is not visible here.
fn flock_holder(inode: u64) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = words[..] else { return None };
        let of_file = file.rsplit(':').next()?.parse() == Ok(inode);
        pid.parse().ok().filter(|_| of_file)
    })
}
