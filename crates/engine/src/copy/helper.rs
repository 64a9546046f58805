//! Threads that work for another one, and how they wait.

use bytepath_record::Fault;
use bytepath_sys::thread;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

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
