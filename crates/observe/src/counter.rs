//! Starts counting system calls, and chooses the threads with which it begins.

use super::absent::missing;
use super::family;
use super::kernel::{CountFrom, Counting};
use bytepath_record::{Absent, Fault};
use bytepath_sys::Roots;
use std::collections::HashSet;
use std::io;

/// How to count system calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// By BPF at typed tracepoints if possible; otherwise not at all, with the reason.
    #[default]
    Auto,
    /// By BPF at typed tracepoints, or fails.
    TaskStorage,
    None,
}

/// Which threads to follow, and from when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// A child, from its execve on.
    Exec(u32),
    /// A process with all its threads and descendants, from now on.
    Now(u32),
}

/// Most rounds of looking for threads that were created in the meantime.
const ROUNDS: u32 = 100;

/// Name of the absent figure if nothing counts.
pub(crate) const WHAT: &str = "system calls and sockets";

/// Starts counting, or returns why that is impossible.
pub(crate) fn start(
    method: Method,
    roots: &Roots,
    start: &Start,
) -> Result<(Option<Counting>, Vec<Absent>), Fault> {
    let absent = match method {
        Method::None => missing(WHAT, Fault::usage("it was not requested")),
        _ => match begin(roots, start) {
            Err(fault) if method == Method::Auto => missing(WHAT, fault),
            begun => return Ok((Some(begun?), Vec::new())),
        },
    };
    Ok((None, vec![absent]))
}

fn begin(roots: &Roots, start: &Start) -> Result<Counting, Fault> {
    let counting = Counting::new(roots)?;
    match *start {
        Start::Exec(pid) => follow(&counting, pid, CountFrom::Exec)?,
        Start::Now(pid) => follow_all(&counting, pid, roots)?,
    }
    Ok(counting)
}

fn follow(counting: &Counting, tid: u32, from: CountFrom) -> Result<(), Fault> {
    match counting.follow(tid, from) {
        // It has ended, so there is nothing to follow.
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|e| Fault::system(format!("cannot follow thread {tid}"), &e)),
    }
}

/// Follows all existing threads. Those created by a followed thread are followed automatically;
/// those that a thread created before it was followed are found in the next round.
fn follow_all(counting: &Counting, process: u32, roots: &Roots) -> Result<(), Fault> {
    let mut followed = HashSet::new();
    for _ in 0..ROUNDS {
        let members = family::members(&roots.proc, process);
        let fresh: Vec<u32> = members.into_keys().filter(|tid| !followed.contains(tid)).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        for tid in fresh {
            follow(counting, tid, CountFrom::Now)?;
            followed.insert(tid);
        }
    }
    Err(Fault::failed(format!(
        "process {process} creates threads faster than they can be followed"
    )))
}
