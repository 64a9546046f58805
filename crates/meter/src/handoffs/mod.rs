//! Work handed from one CPU to another: threads woken there (`sched_waking`, `sched_wakeup`),
//! interrupts sent there (`ipi_send_cpu`, `ipi_send_cpumask`, Linux 6.4), memory freed on a CPU
//! other than the allocating one (`kmalloc`, `kmem_cache_alloc`, `mm_page_alloc` and the functions
//! that free), by the function that did it.
//!
//! For memory, one address in [`SAMPLED`] is followed, always the same ones, and its figures are
//! multiplied accordingly. One in [`UNWIND_ONE_IN`] wakeups is unwound to find its function.

mod programs;

use super::bpf::{self, Named};
use super::shared_source::SharedSource;
use super::tallies::{Maps, Names, THREAD_OWNERS, Tallies, Tally, Task, UNWIND_ONE_IN, ranked};
use super::{Meter, Output, at_stop, attempted};
use bytepath_profile::subsystem::Subsystem;
use bytepath_record::{Fault, Role, Scope, Unit};
use bytepath_sys::Roots;
use bytepath_sys::bpf::asm::{AsmError, Insn};
use bytepath_sys::bpf::{Map, MapKind};
use programs::{Programs, SAMPLED, task_cpu, waking, what};
use std::sync::Arc;

/// Work handed over, machine-wide. Only in separate trials: the watched events occur some ten times
/// per packet.
pub(crate) static METER: Meter = Meter {
    name: "handoffs",
    summary: "wake-ups, interrupts, frees across CPUs, by function; in profile trials, on request (BPF)",
    usual: false,
    separate_trials: true,
    needed: true,
    attempt: |roots| {
        let loaded = Names::readable(roots).and_then(|names| Handoffs::load(roots, names));
        attempted(ATTEMPT, loaded.map(|handoffs| handoffs.absent.unwrap_or_default()))
    },
    probe: |facts| bpf::supported(facts, ATTEMPT, "5.12"),
    // Faults are reported at the start of the window.
    prepare: |context| {
        let _ = handoffs(&context.roots);
        Ok(None)
    },
    start: |context| {
        let handoffs = handoffs(&context.roots)?;
        let links = handoffs.tallies.attach()?;
        at_stop(move || {
            drop(links);
            handoffs.readings()
        })
    },
    ..Meter::BASE
};

const ATTEMPT: &str = "bpf.handoffs";

/// Loads the programs, once per process: with the names of functions it takes some ten
/// milliseconds.
fn handoffs(roots: &Roots) -> Result<Arc<Handoffs>, Fault> {
    static HANDOFFS: SharedSource<Result<Arc<Handoffs>, Fault>> = SharedSource::new();
    HANDOFFS.get(&roots.proc, |_| Handoffs::load(roots, Names::read(roots)?).map(Arc::new))
}

/// The programs, and the handoffs in flight.
struct Handoffs {
    tallies: Tallies,
    wakings: Map,
    memory: Map,
    /// Which events this kernel does not report; `None` if it reports all.
    absent: Option<String>,
}

impl Handoffs {
    /// Most threads being woken at once.
    const WAKINGS: u32 = 4096;
    /// Most addresses to follow; the least recently used one is dropped.
    const MEMORY: u32 = 16384;

    fn load(roots: &Roots, names: Names) -> Result<Handoffs, Fault> {
        bpf::refuse_emulated(roots)?;
        let btf = bpf::types(roots)?;
        let wakings = bpf::map(MapKind::LruHash, "wakings", 8, waking::SIZE, Self::WAKINGS)?;
        let memory = bpf::map(MapKind::LruHash, "memory", 8, 8, Self::MEMORY)?;
        let (maps, task) = (Maps::new()?, Task::of(&btf)?);
        let task_cpu = task_cpu(&btf)?;
        let programs = Programs { task, task_cpu, maps: &maps, wakings: &wakings, memory: &memory };
        let mut all = assemble(&programs);
        let missing = |name: &str| name.starts_with("ipi_") && !bpf::has_typed(&btf, name);
        let absent: Vec<_> = all.iter().map(|(name, _)| *name).filter(|n| missing(n)).collect();
        let absent = (!absent.is_empty()).then(|| {
            format!("interrupts to other CPUs are not counted by {} (Linux 6.4)", absent.join(", "))
        });
        all.retain(|(name, _)| !missing(name));
        Ok(Handoffs { tallies: Tallies::load(&btf, names, maps, all)?, wakings, memory, absent })
    }

    fn take(&self) -> Result<Vec<Tally>, Fault> {
        let fault = |e| Fault::system("cannot empty BPF maps", &e);
        // Memory allocated in this window may be freed, unseen, before the next.
        bpf::take(&self.wakings).map_err(fault)?;
        bpf::take(&self.memory).map_err(fault)?;
        let below = [Subsystem::Scheduler, Subsystem::Locks, Subsystem::PageAllocation];
        self.tallies.take(&below, Vec::new())
    }

    fn readings(&self) -> Result<Output, Fault> {
        let mut output = readings(self.take()?);
        self.tallies.enter_lost(&mut output, "handoffs", "events")?;
        output.warnings.extend(self.absent.iter().map(|text| format!("handoffs: {text}")));
        Ok(output)
    }
}

/// The programs with their tracepoints; those that end an event come before those that begin it.
fn assemble(programs: &Programs) -> Vec<Named<Result<Vec<Insn>, AsmError>>> {
    const FIRST: i16 = 0;
    const SECOND: i16 = 8;
    vec![
        ("sched_wakeup", programs.woken()),
        ("sched_waking", programs.waking()),
        ("ipi_send_cpu", programs.interrupt()),
        ("ipi_send_cpumask", programs.interrupt()),
        ("kfree", programs.free(SECOND)),
        ("kmem_cache_free", programs.free(SECOND)),
        ("mm_page_free", programs.free(FIRST)),
        ("kmalloc", programs.take(SECOND)),
        ("kmem_cache_alloc", programs.take(SECOND)),
        ("mm_page_alloc", programs.take(FIRST)),
    ]
}

/// Returns totals, and the functions with the most of each kind.
fn readings(all: Vec<Tally>) -> Output {
    let mut output = Output::default();
    for (metric, kind, scale, asked) in [
        ("handoffs.wakeups", what::WAKE_UP, 1, UNWIND_ONE_IN),
        ("handoffs.interrupts", what::INTERRUPT, 1, 1),
        ("handoffs.frees", what::FREE, SAMPLED, 1),
        ("handoffs.frees.same-cpu", what::FREE_HERE, SAMPLED, 1),
    ] {
        let of = |kind: u32| all.iter().filter(move |row| row.what == kind).cloned();
        let mut enter = |metric: &str, scope: &Scope, rows: &[Tally]| {
            let count = rows.iter().map(|row| row.count).sum::<u64>() * scale;
            output.add(metric, Unit::Count, count as f64, scope);
        };
        let ours: Vec<Tally> = of(kind).collect();
        enter(metric, &Scope::Machine, &ours);
        if kind == what::FREE_HERE {
            continue;
        }
        let foreign: Vec<Tally> = of(kind | what::FOREIGN).collect();
        enter(&format!("{metric}.foreign"), &Scope::Machine, &foreign);
        for mut row in ranked(ours) {
            row.count *= asked;
            enter(metric, &Scope::Function(row.function.clone()), &[row]);
        }
    }
    for row in &all {
        if let Some((metric, scope)) = woken(row) {
            output.add(&metric, Unit::Count, row.count as f64, &scope);
        }
    }
    output
}

/// Returns metric and scope for woken threads of a role: woken by whom, from which CPU, on which
/// CPU.
fn woken(row: &Tally) -> Option<(String, Scope)> {
    let whose = |at: u32| THREAD_OWNERS.get((row.what >> at & 0xf) as usize);
    let (who, by) = (whose(what::WOKEN_AT)?, whose(what::BY_AT)?);
    let (role, group) = match *who {
        "sender" => (Role::Sender, "flows"),
        "receiver" => (Role::Receiver, "flows"),
        "vhost" => (Role::Receiver, "vhost"),
        _ => (Role::Sender, "pktgen"),
    };
    let (from, to) = (row.place >> 32, row.place & 0xffff_ffff);
    let metric = format!("handoffs.woken.{by}.{from}-{to}");
    (row.what & 0xff == what::WOKEN).then(|| (metric, Scope::Threads(role, group.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_handoffs_by_kind_and_function_and_scales_samples_up() {
        let row = |what, function: &str, count| Tally {
            what,
            function: function.into(),
            place: 0,
            sum: count,
            count,
        };
        let output = readings(vec![
            row(what::WAKE_UP, "sock_def_readable", 3),
            row(what::WAKE_UP, "", 27),
            row(what::WAKE_UP, "ep_poll_callback", 2),
            row(what::WAKE_UP | what::FOREIGN, "pipe_write", 9),
            row(what::FREE, "skb_release_data", 3),
            row(what::FREE_HERE, "[unknown]", 5),
        ]);
        let read = |metric: &str, function: &str| {
            let scope = match function {
                "" => Scope::Machine,
                name => Scope::Function(name.to_owned()),
            };
            output.readings.iter().find(|r| r.metric == metric && r.scope == scope).map(|r| r.value)
        };
        assert_eq!(read("handoffs.wakeups", ""), Some(32.0));
        assert_eq!(read("handoffs.wakeups", "sock_def_readable"), Some(48.0));
        assert_eq!(read("handoffs.wakeups", "pipe_write"), None);
        assert_eq!(read("handoffs.wakeups.foreign", ""), Some(9.0));
        assert_eq!(read("handoffs.interrupts", ""), Some(0.0));
        assert_eq!(read("handoffs.frees", ""), Some(192.0));
        assert_eq!(read("handoffs.frees", "skb_release_data"), Some(192.0));
        assert_eq!(read("handoffs.frees.same-cpu", ""), Some(320.0));
    }

    #[test]
    fn reports_threads_of_an_end_with_their_wakers() {
        let row = |woken: u32, by: u32, place, count| Tally {
            what: what::WOKEN | woken << what::WOKEN_AT | by << what::BY_AT,
            function: String::new(),
            place,
            sum: count,
            count,
        };
        let output = readings(vec![row(2, 1, 1 << 32, 7), row(3, 0, 5 << 32 | 3, 9)]);
        let read = |metric: &str, role, group: &str| {
            let scope = Scope::Threads(role, group.to_owned());
            output.readings.iter().find(|r| r.metric == metric && r.scope == scope).map(|r| r.value)
        };
        let (sender, receiver) = (Role::Sender, Role::Receiver);
        assert_eq!(read("handoffs.woken.sender.1-0", receiver, "flows"), Some(7.0));
        assert_eq!(read("handoffs.woken.other.5-3", receiver, "vhost"), Some(9.0));
        assert_eq!(read("handoffs.woken.sender.1-0", sender, "flows"), None);
        assert_eq!(output.readings.iter().filter(|r| r.metric == "handoffs.wakeups").count(), 1);
    }
}
