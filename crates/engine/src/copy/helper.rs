//! Helper threads, and how threads wait for each other.

use bytepath_record::Fault;
use bytepath_sys::thread;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// Starts a thread that works for this one. It is named after it, so that its CPU time counts for
/// the role (`meter/cpu`), and runs on the given CPU, or else on any but the one that this thread
/// is pinned to. Errors if that CPU is not available.
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

/// Rounds of spinning between two yields: others may need this core.
const SPINS: u32 = 1000;

/// Rounds after which each further one sleeps for [`NAP`]: there is nothing to do, for example
/// during slices of other cells.
const QUIET: u32 = 200_000;
const NAP: Duration = Duration::from_micros(50);

/// Waits one round for another core; `round` counts consecutive rounds.
pub fn pause(round: u32) {
    match round {
        QUIET.. => std::thread::sleep(NAP),
        _ if round.is_multiple_of(SPINS) => std::thread::yield_now(),
        _ => std::hint::spin_loop(),
    }
}
