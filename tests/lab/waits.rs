//! Times that one CPU waits because of another: locks, over work whose waits are known and over
//! real streams.

use crate::cpu::{cell, trial};
use bytepath::meter::{self, Context, Meter, Output};
use bytepath::record::{Cell, FaultKind, Reading, Role, Schedule, Scope, Trial};
use bytepath::sys::{self, Roots};
use bytepath_testing::{alone, shared, skip};
use rustix::pipe::{PipeFlags, pipe_with};
use std::time::{Duration, Instant};

#[test]
fn two_threads_at_one_pipe_wait_for_its_mutex_and_others_do_not_count() {
    let _alone = alone();
    if sys::thread::allowed().unwrap().len() < 2 {
        return skip!("one CPU only");
    }
    let waits_at_pipe = |output: &Output| {
        let mutex = |r: &&Reading| ["locks.spin.mutex", "locks.sleep.mutex"].contains(&&*r.metric);
        let at_pipe = |r: &Reading| function(r).is_some_and(|name| name.contains("pipe_"));
        output.readings.iter().filter(mutex).any(|r| at_pipe(r) && r.value > 0.0)
    };
    // If other programs use one of the CPUs, the two threads alternate and neither waits.
    let mut own = None;
    for _ in 0..20 {
        let Some(seen) = measure("locks", || hammer(["sender/0", "receiver/0"])) else { return };
        let is_found = waits_at_pipe(&seen);
        own = Some(seen);
        if is_found {
            break;
        }
    }
    let own = own.unwrap();
    assert!(waits_at_pipe(&own), "{:?}", own.readings);
    let total = |output: &Output, metric: &str| value(&output.readings, metric);
    let spun = total(&own, "locks.spin");
    // Two threads cannot spin for longer than they ran.
    assert!(spun > 0.0 && spun < 2.0 * LONG.as_secs_f64(), "{spun} s");
    assert_eq!(total(&own, "locks.lost"), 0.0);
    // All functions of sleeps are recorded; those of spins are a sample that is scaled up.
    let parts = |kind: &str, counts: bool| {
        let parts = own.readings.iter().filter(|r| r.scope != Scope::Machine);
        let parts = parts.filter(|r| r.metric.starts_with(&format!("{kind}.")));
        parts.filter(|r| r.metric.ends_with("waits") == counts).map(|r| r.value).sum::<f64>()
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a} is not {b}");
    near(parts("locks.sleep", false), total(&own, "locks.sleep"));
    near(parts("locks.sleep", true), total(&own, "locks.sleep.waits"));
    let spins = total(&own, "locks.spin.waits");
    let scaled = parts("locks.spin", true) / spins;
    assert!(spins < 500.0 || (0.4..2.0).contains(&scaled), "{scaled} of {spins} spins");
    let foreign = measure("locks", || hammer(["writer", "reader"])).unwrap();
    let (seen, ours) = (total(&foreign, "locks.foreign"), total(&foreign, "locks.spin"));
    assert!(seen > 0.0 && ours < spun, "{seen} s of others, {ours} s of ours");
}

#[test]
fn waits_of_a_stream_fit_into_its_window() {
    let _shared = shared();
    let Some(trial) = run("locks", &cell("two-cores")) else { return };
    let wall = trial.reading("cpu.wall", &Scope::Machine).unwrap();
    let spun = value(&trial.readings, "locks.spin");
    let cpus = sys::thread::allowed().unwrap().len() as f64;
    assert!((0.0..cpus * wall).contains(&spun), "{spun} s of {wall} s on {cpus} CPUs");
    assert_eq!(value(&trial.readings, "locks.lost"), 0.0);
}

fn function(reading: &Reading) -> Option<&str> {
    match &reading.scope {
        Scope::Function(name) => Some(name),
        _ => None,
    }
}

#[test]
fn a_stream_of_two_cpus_wakes_and_frees_across_them_and_one_of_one_cpu_hardly_does() {
    let _alone = alone();
    if sys::thread::allowed().unwrap().len() < 2 {
        return skip!("one CPU only");
    }
    let Some(two) = run("handoffs", &cell("two-cores")) else { return };
    let one = run("handoffs", &cell("one-core")).unwrap();
    let per_gib = |trial: &Trial, metric: &str| {
        value(&trial.readings, metric) / trial.count as f64 * f64::from(1 << 30)
    };
    let [woken, freed] = ["handoffs.wakeups", "handoffs.frees"];
    assert!(per_gib(&two, woken) > 10.0, "{:?}", two.readings);
    assert!(per_gib(&two, freed) > 64.0, "{:?}", two.readings);
    // The rest comes from the kernel's own threads.
    for metric in [woken, freed] {
        let (of_two, of_one) = (per_gib(&two, metric), per_gib(&one, metric));
        assert!(of_one < 0.2 * of_two, "{metric}: {of_one} and {of_two} per GiB");
    }
    let by_function = two.readings.iter().filter(|r| r.metric == woken && function(r).is_some());
    let scaled = by_function.map(|r| r.value).sum::<f64>() / value(&two.readings, woken);
    assert!((0.3..3.0).contains(&scaled), "{scaled} of the wake-ups by function");
    assert_eq!(value(&two.readings, "handoffs.lost"), 0.0);
}

#[test]
fn who_wakes_a_thread_of_an_end_is_known_with_both_cpus() {
    // Threads of other tests may have the same names.
    let _alone = alone();
    const TIMES: usize = 200;
    let Some(output) = measure("handoffs", || wake("sender/0", "receiver/0", TIMES)) else {
        return;
    };
    let by = |role: Role, who: &str| {
        let start = format!("handoffs.woken.{who}.");
        let scope = Scope::Threads(role, "flows".into());
        let all = output.readings.iter().filter(move |r| r.scope == scope);
        let all = all.filter_map(|r| Some((r.metric.strip_prefix(start.as_str())?, r.value)));
        all.collect::<Vec<_>>()
    };
    let times = |woken: &[(&str, f64)]| woken.iter().map(|(_, times)| times).sum::<f64>();
    let woken = by(Role::Receiver, "sender");
    // On a busy machine it may be written to again before it sleeps again. It is also woken by the
    // end of the pipe, and by the end of an mprotect with which the other's heap begins, if it
    // waits for the lock of their address space.
    assert!((1.0..TIMES as f64 + 5.0).contains(&times(&woken)), "{:?}", output.readings);
    // Each sleep of the other ends by a timer, which interrupts whatever runs there.
    let timer = ["sender", "receiver", "other"].map(|who| times(&by(Role::Sender, who)));
    let timer = timer.iter().sum::<f64>();
    assert!((TIMES as f64..TIMES as f64 + 5.0).contains(&timer), "{:?}", output.readings);
    let cpus = sys::thread::allowed().unwrap();
    for (place, _) in woken {
        let (from, to) = place.split_once('-').unwrap();
        assert!([from, to].iter().all(|cpu| cpus.contains(&cpu.parse().unwrap())), "{place}");
    }
}

/// Has a thread wake another `times` times, through a pipe, letting it sleep in between.
fn wake(waker: &str, sleeper: &str, times: usize) {
    let (reader, writer) = pipe_with(PipeFlags::empty()).unwrap();
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let wake = move || {
        for _ in 0..times {
            std::thread::sleep(Duration::from_micros(500));
            rustix::io::write(&writer, &[7]).unwrap();
        }
    };
    let sleep = move || while rustix::io::read(&reader, &mut [0; 1]).unwrap() > 0 {};
    let threads = [thread(waker).spawn(wake).unwrap(), thread(sleeper).spawn(sleep).unwrap()];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// How long [`hammer`] runs.
const LONG: Duration = Duration::from_millis(300);

/// Two threads of these names write to and read from one pipe, which copies under its mutex.
fn hammer(names: [&str; 2]) {
    let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
    let begin = Instant::now();
    let write = move || {
        while begin.elapsed() < LONG {
            let _ = rustix::io::write(&writer, &[7; 65536]);
        }
    };
    let read = move || {
        let mut bytes = [0; 65536];
        while begin.elapsed() < LONG {
            let _ = rustix::io::read(&reader, &mut bytes);
        }
    };
    let [first, second] = names.map(|name| std::thread::Builder::new().name(name.into()));
    let threads = [first.spawn(write).unwrap(), second.spawn(read).unwrap()];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Runs a meter over some work. Returns `None`, with the reason printed, if the kernel permits no
/// BPF program.
fn measure(name: &str, work: impl FnOnce()) -> Option<Output> {
    let meter = named(name);
    let context = Context::idle(Roots::real());
    (meter.prepare)(&context).unwrap();
    let running = match (meter.start)(&context) {
        Err(fault) if matches!(fault.kind, FaultKind::Permission | FaultKind::Unsupported) => {
            skip!("{fault}");
            return None;
        }
        other => other.unwrap(),
    };
    work();
    Some(running.stop().unwrap())
}

fn named(name: &str) -> &'static Meter {
    meter::selectable().find(|meter| meter.name == name).unwrap()
}

fn value(readings: &[Reading], metric: &str) -> f64 {
    let found = readings.iter().find(|r| r.metric == metric && r.scope == Scope::Machine);
    found.unwrap_or_else(|| panic!("no {metric} in {readings:?}")).value
}

/// Runs one trial with a meter. Returns `None`, with the reason printed, if the kernel permits no
/// BPF program.
fn run(name: &str, cell: &Cell) -> Option<Trial> {
    measure(name, || ())?;
    Some(trial(cell, &["cpu", "link", name], &SCHEDULE))
}

const SCHEDULE: Schedule = Schedule::trials(1, 0.1, 0.5);
