//! Copy engines: what moves bytes in memory. One trait, independent of
//! sockets and TCP: a copy is submitted, the caller continues, and asks later how
//! many are done.

mod counter;
mod cpu;
pub mod dsa;
pub mod fifo;
mod threaded;
pub mod trial;

pub use bytepath_sys::copying::Memory;
pub use bytepath_sys::idxd::{Memories, Place};

use bytepath_record::{Fault, FaultKind, OptionSpec, Options};
use bytepath_spec::{resolve, split, suggest};
use bytepath_sys::thread;
use counter::Counter;
use std::sync;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// A copy: `len` bytes from one place to another. Places of one copy may overlap; those of
/// copies in flight must not, or their bytes are any of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    pub from: Place,
    pub to: Place,
    /// Bytes, at least one.
    pub len: u32,
}

/// Something that copies. It is used by one thread, and ends what is in flight when dropped.
pub trait Engine: Send {
    /// Takes a copy; false if as many are in flight as it can have: poll, and try again. An
    /// engine may hold copies back until it has a batch, or [`Engine::flush`] is called.
    fn submit(&mut self, copy: &Copy) -> Result<bool, Fault>;

    /// Sends what is held back.
    fn flush(&mut self) -> Result<(), Fault>;

    /// How many of all copies ever submitted are complete: the first that many, in the order in
    /// which they were submitted. An error is final: a copy could not be made.
    fn poll(&mut self) -> Result<u64, Fault>;

    /// What has happened so far besides copies.
    fn events(&self) -> Events;
}

/// What an engine had to do besides copying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Submissions that a queue asked to try again.
    pub retries: u64,
    /// Page faults of the engine, each of which the CPU finished.
    pub faults: u64,
    /// Bytes that the CPU copied in place of the engine.
    pub by_cpu: u64,
    /// Batches, of two copies or more.
    pub batches: u64,
}

/// How an engine is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Copies in flight at a time, at least one.
    pub depth: usize,
    /// Copies that are submitted together, 1 to `depth`.
    pub batch: usize,
}

/// An engine of the catalogue.
pub struct EngineKind {
    /// Name, as the user types it.
    pub name: &'static str,
    /// One line: what copies.
    pub summary: &'static str,
    pub options: &'static [OptionSpec],
    /// Opens it for copies between these memories.
    pub open: fn(&Memories, Shape, &Options) -> Result<Box<dyn Engine>, Fault>,
}

pub static CATALOG: &[&EngineKind] = &[&cpu::KIND, &threaded::KIND, &dsa::KIND];

/// Reads `NAME[:key=value,...]` into an engine and all of its options.
pub fn engine(text: &str) -> Result<(&'static EngineKind, Options), Fault> {
    let all: Vec<&str> = CATALOG.iter().map(|kind| kind.name).collect();
    let (name, given) = split(text)?;
    let kind = CATALOG.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let fault = Fault::new(FaultKind::Usage, format!("there is no copy engine '{name}'"));
        suggest(fault, &name, &all)
    })?;
    Ok((kind, resolve(&format!("engine {name}"), kind.options, &given)?))
}

/// Starts a thread that works for this one: it is named after it, which makes its time the
/// role's (`meter/cpu`), and runs on the CPU given, or else off the CPU that this one is pinned
/// to. An error where that CPU is not available.
pub fn helper(
    what: &str,
    cpu: Option<u32>,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Fault> {
    let current = std::thread::current();
    let name = format!("{} {what}", current.name().unwrap_or("main"));
    let own = thread::allowed().ok().filter(|cpus| cpus.len() == 1);
    let (report, placed) = channel();
    let life = move || {
        let ready = match (cpu, own) {
            (Some(cpu), _) => thread::pin(cpu),
            (None, Some(own)) => thread::leave(own[0]),
            (None, None) => Ok(()),
        };
        let fine = ready.is_ok();
        let _ = report.send(ready);
        if fine {
            work();
        }
    };
    let started = std::thread::Builder::new().name(name).spawn(life);
    let started = started.map_err(|e| Fault::system("cannot start a thread", &e))?;
    let placed = placed.recv().unwrap_or(Ok(()));
    placed.map_err(|e| {
        let cpu = cpu.map_or("a CPU".to_owned(), |cpu| format!("CPU {cpu}"));
        Fault::system(format!("cannot pin the helper to {cpu}"), &e)
    })?;
    Ok(started)
}

/// Rounds of waiting after which others are let run: they may need this core.
const SPINS: u32 = 1000;

/// Rounds after which it sleeps for [`NAP`] each: nothing is wanted, as while another cell of a
/// study has its turn.
const QUIET: u32 = 200_000;
const NAP: Duration = Duration::from_micros(50);

/// One round of waiting for another core, the `round`th in a row.
pub fn pause(round: u32) {
    match round {
        QUIET.. => std::thread::sleep(NAP),
        _ if round.is_multiple_of(SPINS) => std::thread::yield_now(),
        _ => std::hint::spin_loop(),
    }
}

#[cfg(test)]
#[path = "../../tests/support/dsa_model.rs"]
mod dsa_model;
#[cfg(test)]
mod tests;
