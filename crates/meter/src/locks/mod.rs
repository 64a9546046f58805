//! Waits for the kernel's locks: how long, how often, where. Measured by programs at the
//! tracepoints `contention_begin` and `contention_end` (include/trace/events/lock.h, Linux 5.19),
//! which only contended acquisitions reach.
//!
//! A wait that spins takes CPU time from the stream; one that sleeps (mutexes, read-write
//! semaphores) leaves the CPU to others, and costs only time. A mutex first spins if its owner is
//! running, and then sleeps: each part counts as a separate wait.
//!
//! Determining the function takes longer than most spins, and the lock may become free meanwhile.
//! So one in [`UNWIND_ONE_IN`] spins is unwound, and figures by function are multiplied
//! accordingly.

mod programs;

use super::shared_source::SharedSource;
use super::tallies::{Entry, Maps, Names, Tallies, Tally, Task, UNWIND_ONE_IN, ranked};
use super::{Meter, Output, at_stop, attempted, bpf};
use bytepath_profile::subsystem::Subsystem;
use bytepath_record::{Fault, Scope, Unit};
use bytepath_sys::bpf::{Map, MapKind};
use bytepath_sys::{Roots, clock};
use programs::{Programs, flag, wait};
use std::sync::Arc;

/// Waits for locks, machine-wide.
pub(crate) static METER: Meter = Meter {
    name: "locks",
    summary: "waits for the kernel's locks, by function; on request (BPF at contention)",
    usual: false,
    needed: true,
    attempt: |roots| {
        let loaded = Names::readable(roots).and_then(|names| Waits::load(roots, names));
        attempted(ATTEMPT, loaded.map(|_| String::new()))
    },
    probe: |facts| bpf::supported(facts, ATTEMPT, "5.19"),
    // Faults are reported at the start of the window.
    prepare: |context| {
        let _ = waits(&context.roots);
        Ok(None)
    },
    start: |context| {
        let waits = waits(&context.roots)?;
        let links = waits.tallies.attach()?;
        at_stop(move || {
            drop(links);
            waits.readings()
        })
    },
    ..Meter::BASE
};

const ATTEMPT: &str = "bpf.locks";

/// Loads the programs, once per process: with the names of functions it takes some ten
/// milliseconds.
fn waits(roots: &Roots) -> Result<Arc<Waits>, Fault> {
    static WAITS: SharedSource<Result<Arc<Waits>, Fault>> = SharedSource::new();
    WAITS.get(&roots.proc, |_| Waits::load(roots, Names::read(roots)?).map(Arc::new))
}

/// The programs, and the waits in progress.
struct Waits {
    tallies: Tallies,
    under_way: Map,
}

impl Waits {
    /// Most threads waiting at once, including waits whose end was missed.
    const UNDER_WAY: u32 = 4096;

    fn load(roots: &Roots, names: Names) -> Result<Waits, Fault> {
        bpf::refuse_emulated(roots)?;
        let btf = bpf::types(roots)?;
        let (maps, task) = (Maps::new()?, Task::of(&btf)?);
        let (kind, key_size, entries) = (MapKind::ReservedHash, wait::KEY_SIZE, Self::UNDER_WAY);
        let under_way = bpf::map(kind, "waits", key_size, wait::SIZE, entries)?;
        let programs =
            Programs { task, maps: &maps, waits: &under_way, named: names.symbols.objects() };
        let programs =
            vec![("contention_begin", programs.begin()), ("contention_end", programs.end())];
        Ok(Waits { tallies: Tallies::load(&btf, names, maps, programs)?, under_way })
    }

    /// Takes the waits since the last call, including those of threads that still sleep. A spin
    /// takes microseconds: if one seems to last, its end was missed.
    fn take(&self, now: u64) -> Result<Vec<Tally>, Fault> {
        let fault = |e| Fault::system("cannot read the waits under way", &e);
        let waits = bpf::take(&self.under_way).map_err(fault)?;
        let waits = waits.iter().map(|(_, value)| until(now, value));
        let sleeping = waits.filter(|wait| wait.what & flag::SPIN == 0).collect();
        self.tallies.take(&[Subsystem::Locks], sleeping)
    }

    fn readings(&self) -> Result<Output, Fault> {
        let names = &self.tallies.names;
        let lock = |place: u64| names.symbols.object(place).map(str::to_owned);
        let mut output = readings(self.take(clock::monotonic())?, lock);
        self.tallies.enter_lost(&mut output, "locks", "waits")?;
        Ok(output)
    }
}

/// Makes the entry of a wait that has lasted until now.
fn until(now: u64, value: &[u8]) -> Entry {
    let key = value.get(wait::KEY as usize..).unwrap_or_default();
    let since = bpf::number(value, wait::SINCE as usize, 8);
    Entry { sum: now.saturating_sub(since), count: 1, ..Entry::decode(key, &[]) }
}

/// Returns totals, and the functions and locks with the longest waits.
fn readings(waits: Vec<Tally>, lock: impl Fn(u64) -> Option<String>) -> Output {
    let mut output = Output::default();
    let (foreign, own): (Vec<_>, Vec<_>) =
        waits.into_iter().partition(|wait| wait.what & flag::FOREIGN != 0);
    enter(&mut output, "locks.foreign", &Scope::Machine, &foreign);
    let (spinning, sleeping): (Vec<_>, Vec<_>) =
        own.into_iter().partition(|wait| wait.what & flag::SPIN != 0);
    for (metric, waits, asked) in
        [("locks.spin", spinning, UNWIND_ONE_IN), ("locks.sleep", sleeping, 1)]
    {
        enter(&mut output, metric, &Scope::Machine, &waits);
        for mut wait in ranked(waits) {
            (wait.sum, wait.count) = (wait.sum * asked, wait.count * asked);
            let function = match lock(wait.place).filter(|_| wait.place != 0) {
                Some(lock) => format!("{} ({lock})", wait.function),
                None => wait.function.clone(),
            };
            let metric = format!("{metric}.{}", kind(wait.what));
            enter(&mut output, &metric, &Scope::Function(function), &[wait]);
        }
    }
    output
}

fn enter(output: &mut Output, metric: &str, scope: &Scope, waits: &[Tally]) {
    let sum = |of: fn(&Tally) -> u64| waits.iter().map(of).sum::<u64>() as f64;
    output.add(metric, Unit::Seconds, sum(|wait| wait.sum) * 1e-9, scope);
    output.add(&format!("{metric}.waits"), Unit::Count, sum(|wait| wait.count), scope);
}

/// Returns the kind of a lock, given the kernel's flags.
fn kind(flags: u32) -> &'static str {
    let is = |flag: u32| flags & flag != 0;
    match flags {
        _ if is(flag::MUTEX) => "mutex",
        _ if is(flag::RT) => "rt",
        _ if is(flag::PERCPU) && is(flag::WRITE) => "percpu-write",
        _ if is(flag::PERCPU) => "percpu-read",
        _ if is(flag::WRITE) => "write",
        _ if is(flag::READ) => "read",
        _ => "lock",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(what: u32, function: &str, place: u64, sum: u64, count: u64) -> Tally {
        Tally { what, function: function.into(), place, sum, count }
    }

    #[test]
    fn reports_waits_by_kind_and_function() {
        let waits = vec![
            wait(flag::SPIN, "tcp_v4_rcv", 0, 100_000, 1),
            wait(flag::SPIN, "", 0, 1_900_000, 4),
            wait(flag::SPIN | flag::MUTEX, "pipe_write", 0, 1_000_000, 3),
            wait(flag::MUTEX, "pipe_write", 0, 40_000_000, 1),
            wait(flag::WRITE, "dev_ioctl", 0x99, 7_000_000, 1),
            wait(flag::SPIN | flag::FOREIGN, "pipe_read", 0, 9_000_000, 2),
        ];
        let output = readings(waits, |place| (place == 0x99).then(|| "net_rwsem".into()));
        let read = |metric: &str, scope: &Scope| {
            let reading = output.readings.iter().find(|r| r.metric == metric && r.scope == *scope);
            reading.unwrap_or_else(|| panic!("{metric} of {scope:?}")).value
        };
        let of = |name: &str| Scope::Function(name.to_owned());
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        near(read("locks.spin", &Scope::Machine), 0.003);
        near(read("locks.spin.waits", &Scope::Machine), 8.0);
        near(read("locks.sleep", &Scope::Machine), 0.047);
        near(read("locks.foreign", &Scope::Machine), 0.009);
        near(read("locks.spin.lock", &of("tcp_v4_rcv")), 0.0016);
        near(read("locks.spin.mutex", &of("pipe_write")), 0.016);
        near(read("locks.sleep.mutex", &of("pipe_write")), 0.04);
        near(read("locks.sleep.write.waits", &of("dev_ioctl (net_rwsem)")), 1.0);
        assert!(!output.readings.iter().any(|r| r.scope == of("pipe_read")), "another program's");
    }

    #[test]
    fn measures_waits_under_way_until_now() {
        let mut value = 1_000u64.to_ne_bytes().to_vec();
        value.extend(flag::MUTEX.to_ne_bytes());
        value.extend(7i32.to_ne_bytes());
        value.extend(3u64.to_ne_bytes());
        let expected = Entry { what: flag::MUTEX, stack: 7, place: 3, sum: 500, count: 1 };
        assert_eq!(until(1_500, &value), expected);
        assert_eq!(until(900, &value).sum, 0);
    }
}
