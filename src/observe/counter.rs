//! How system calls are counted: by programs in the kernel where it takes them,
//! by records of tracepoints elsewhere, or not at all.

use super::kernel::{self, From};
use super::rings::Rings;
use super::seen::Seen;
use super::{family, missing};
use crate::record::{Absent, Counter, Fault, FaultKind};
use crate::sys::Roots;
use std::collections::HashSet;
use std::io;
use std::time::Duration;

/// How system calls are to be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// The first of the others that works here.
    #[default]
    Auto,
    /// BPF at typed tracepoints.
    TaskStorage,
    /// BPF at raw tracepoints.
    Hash,
    /// Records of tracepoints.
    Tracepoints,
    /// Not at all.
    None,
}

/// Whom to follow, and from when on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A child, from its execve on.
    Exec(u32),
    /// A process with all its threads and descendants, from now on.
    Now(u32),
}

/// What counts.
pub enum Counting {
    /// Programs in the kernel.
    Kernel(Counter, Box<kernel::Counting>),
    /// Records.
    Rings(Box<Rings>),
}

/// Rounds in which threads are looked for that were made meanwhile.
const ROUNDS: u32 = 100;

/// Starts counting. What was asked for by name has to work; otherwise the best
/// that does, or none with the reasons.
pub fn start(
    method: Method,
    roots: &Roots,
    start: &Start,
) -> Result<(Option<Counting>, Vec<Absent>), Fault> {
    let only = |counter| Ok((Some(begin(counter, roots, start)?), Vec::new()));
    match method {
        Method::None => {
            let reason = "it was not asked for".to_owned();
            let absent = Absent { what: WHAT.to_owned(), reason, remedy: None };
            Ok((None, vec![absent]))
        }
        Method::TaskStorage => only(Counter::TaskStorage),
        Method::Hash => only(Counter::Hash),
        Method::Tracepoints => only(Counter::Tracepoints),
        Method::Auto => {
            let mut absent = Vec::new();
            for counter in [Counter::TaskStorage, Counter::Hash, Counter::Tracepoints] {
                match begin(counter, roots, start) {
                    Ok(counting) => return Ok((Some(counting), Vec::new())),
                    Err(fault) => {
                        absent.push(missing(&format!("{WHAT} ({})", words(counter)), fault))
                    }
                }
            }
            Ok((None, absent))
        }
    }
}

/// What is absent where nothing counts.
pub const WHAT: &str = "system calls and sockets";

/// A counter in a word or two.
fn words(counter: Counter) -> &'static str {
    match counter {
        Counter::TaskStorage => "BPF, typed tracepoints",
        Counter::Hash => "BPF, raw tracepoints",
        Counter::Tracepoints => "perf's rings",
    }
}

fn begin(counter: Counter, roots: &Roots, start: &Start) -> Result<Counting, Fault> {
    let mut counting = match counter {
        Counter::TaskStorage => {
            Counting::Kernel(counter, Box::new(kernel::Counting::typed(roots)?))
        }
        Counter::Hash => Counting::Kernel(counter, Box::new(kernel::Counting::plain(roots)?)),
        Counter::Tracepoints => Counting::Rings(Box::new(Rings::new(roots)?)),
    };
    match *start {
        Start::Exec(pid) => counting.follow(pid, From::Exec)?,
        Start::Now(pid) => counting.follow_all(pid, roots)?,
    }
    Ok(counting)
}

impl Counting {
    /// What it is, for the record.
    pub fn kind(&self) -> Counter {
        match self {
            Counting::Kernel(counter, _) => *counter,
            Counting::Rings(_) => Counter::Tracepoints,
        }
    }

    /// How long it may be left alone.
    pub fn patience(&self) -> Duration {
        match self {
            Counting::Kernel(..) => Duration::MAX,
            Counting::Rings(_) => super::rings::PATIENCE,
        }
    }

    /// Takes what has come in.
    pub fn tick(&mut self) {
        match self {
            Counting::Kernel(..) => {}
            Counting::Rings(rings) => rings.tick(),
        }
    }

    /// What was counted until now.
    pub fn seen(&mut self) -> Result<Seen, Fault> {
        match self {
            Counting::Kernel(_, counting) => counting.seen(),
            Counting::Rings(rings) => Ok(rings.seen()),
        }
    }

    /// What the reader of the figures should know.
    pub fn remarks(&self) -> Vec<String> {
        match self {
            Counting::Kernel(_, counting) => counting.remarks.clone(),
            Counting::Rings(_) => super::rings::remarks(),
        }
    }

    /// Why there is no count of copies.
    pub fn no_copies(&self) -> Option<Fault> {
        match self {
            Counting::Kernel(_, counting) => counting.no_copies.clone(),
            Counting::Rings(_) => {
                Some(Fault::new(FaultKind::Unsupported, "tracepoints do not tell of copies"))
            }
        }
    }

    fn follow(&mut self, tid: u32, from: From) -> Result<(), Fault> {
        let followed = match self {
            Counting::Kernel(_, counting) => counting.follow(tid, from),
            Counting::Rings(rings) => rings.follow(tid, from),
        };
        match followed {
            // It has ended, so there is nothing to follow.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|e| Fault::system(format!("cannot follow thread {tid}"), &e)),
        }
    }

    /// Follows every thread there is. Those that a followed one makes are
    /// followed by themselves; those that one not yet followed has made
    /// meanwhile are there at the next look.
    fn follow_all(&mut self, process: u32, roots: &Roots) -> Result<(), Fault> {
        let mut followed = HashSet::new();
        for _ in 0..ROUNDS {
            let members = family::members(&roots.proc, process);
            let fresh: Vec<u32> =
                members.into_keys().filter(|tid| !followed.contains(tid)).collect();
            if fresh.is_empty() {
                return Ok(());
            }
            for tid in fresh {
                self.follow(tid, From::Now)?;
                followed.insert(tid);
            }
        }
        Err(Fault::new(
            FaultKind::System,
            format!("process {process} makes threads faster than they can be followed"),
        ))
    }
}
