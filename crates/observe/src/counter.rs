//! Whether system calls are counted, and which thread that begins with.

use super::absent::missing;
use super::family;
use super::kernel::{Counting, From};
use bytepath_record::{Absent, Fault};
use bytepath_sys::Roots;
use std::collections::HashSet;
use std::io;

/// How to count system calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// By BPF at typed tracepoints where that works; otherwise not, with the reason.
    #[default]
    Auto,
    /// By BPF at typed tracepoints, which has to work.
    TaskStorage,
    None,
}

/// Which threads to follow, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// A child, from its execve on.
    Exec(u32),
    /// A process with all its threads and descendants, from now on.
    Now(u32),
}

/// Rounds in which threads are looked for that were made meanwhile.
const ROUNDS: u32 = 100;

/// What is absent where nothing counts.
pub(crate) const WHAT: &str = "system calls and sockets";

/// Starts counting, or returns the reason why not.
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
        Start::Exec(pid) => follow(&counting, pid, From::Exec)?,
        Start::Now(pid) => follow_all(&counting, pid, roots)?,
    }
    Ok(counting)
}

fn follow(counting: &Counting, tid: u32, from: From) -> Result<(), Fault> {
    match counting.follow(tid, from) {
        // It has ended, so there is nothing to follow.
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|e| Fault::system(format!("cannot follow thread {tid}"), &e)),
    }
}

/// Follows every thread there is. Those that a followed one makes are
/// followed by themselves; those that one not yet followed has made
/// meanwhile are there in the next round.
fn follow_all(counting: &Counting, process: u32, roots: &Roots) -> Result<(), Fault> {
    let mut followed = HashSet::new();
    for _ in 0..ROUNDS {
        let members = family::members(&roots.proc, process);
        let fresh: Vec<u32> = members.into_keys().filter(|tid| !followed.contains(tid)).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        for tid in fresh {
            follow(counting, tid, From::Now)?;
            followed.insert(tid);
        }
    }
    Err(Fault::failed(format!(
        "process {process} creates threads faster than they can be followed"
    )))
}
