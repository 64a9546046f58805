//! Meters on the recorded files of machines (`linux-6.18-2cpu` is real, the others are made up),
//! for which every number is known, and on this machine, where the work of a thread is known.

use crate::machines::{Machine, meter, value};
use bytepath::meter::{CATALOG, Context, Output, Reach, ThreadTag, regular, selectable};
use bytepath::record::{Role, Scope, ThreadTime, Unit};
use bytepath::sys::{Roots, thread};
use bytepath_testing::skip;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

fn context(roots: Roots) -> Context {
    Context::idle(roots)
}

fn tag(tid: u32, name: &str) -> ThreadTag {
    ThreadTag { tid, name: name.into(), cpu: None }
}

fn assert_times(found: &ThreadTime, expected: &ThreadTime) {
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let same = found.name == expected.name
        && found.tid == expected.tid
        && near(found.run, expected.run)
        && near(found.wait, expected.wait)
        && near(found.user, expected.user)
        && near(found.system, expected.system)
        && found.voluntary == expected.voluntary
        && found.involuntary == expected.involuntary;
    assert!(same, "{found:?}\nis not\n{expected:?}");
}

#[test]
fn threads_of_a_recorded_window() {
    let machine = Machine::at_start("linux-6.18-2cpu");
    let mut context = context(machine.roots());
    context.threads = vec![tag(22261, "spin"), tag(22263, "rx-0")];
    let output = machine.measure("threads", &context);
    assert_eq!(output.threads.len(), 2);
    let spin = ThreadTime {
        name: "spin".into(),
        tid: 22261,
        run: 1.530_567_090,
        wait: 0.003_541_437,
        user: 1.52,
        system: 0.0,
        voluntary: 484,
        involuntary: 12,
    };
    let rx = ThreadTime {
        name: "rx-0".into(),
        tid: 22263,
        run: 0.046_799_978,
        wait: 0.047_966_928,
        user: 0.0,
        system: 0.04,
        voluntary: 585,
        involuntary: 74,
    };
    assert_times(&output.threads[0], &spin);
    assert_times(&output.threads[1], &rx);
    assert_eq!(output.warnings, [""; 0]);
}

#[test]
fn threads_of_the_kernel_that_work_for_us() {
    let machine = Machine::at_start("server-64cpu-irqtime");
    let mut context = context(machine.roots());
    context.threads = vec![tag(901, "rx-0")];
    context.devices = vec!["enp65s0f0np0".into()];
    let output = machine.measure("threads", &context);
    let names: Vec<_> = output.threads.iter().map(|t| (t.tid, t.name.as_str())).collect();
    // Neither 7002, the NAPI thread of enp65s0f0np01, nor the main thread.
    let expected = [
        (901, "rx-0"),
        (902, "iou-wrk-901"),
        (7001, "napi/enp65s0f0np0-8193"),
        (903, "iou-wrk-901"),
    ];
    assert_eq!(names, expected);
    let rx = ThreadTime {
        name: "rx-0".into(),
        tid: 901,
        run: 2.5,
        wait: 0.02,
        user: 1.0,
        system: 1.5,
        voluntary: 4000,
        involuntary: 10,
    };
    assert_times(&output.threads[0], &rx);
    assert!((output.threads[1].run - 0.3).abs() < 1e-9);
    assert!((output.threads[2].run - 2.25).abs() < 1e-9);
    // Created within the window: all of its time counts.
    assert!((output.threads[3].run - 0.05).abs() < 1e-9);
    assert_eq!((output.threads[3].voluntary, output.threads[3].involuntary), (3, 2));
    assert_eq!(output.warnings, [""; 0]);
}

#[test]
fn threads_without_schedstat_go_by_ticks_and_say_so() {
    for (name, tid, run) in [("linux-3.10-4cpu", 500, 1.6), ("arm-8cpu", 77, 0.75)] {
        let machine = Machine::at_start(name);
        let mut context = context(machine.roots());
        context.threads = vec![tag(tid, "rx-0")];
        let output = machine.measure("threads", &context);
        assert!((output.threads[0].run - run).abs() < 1e-9, "{name}: {:?}", output.threads);
        assert_eq!(output.warnings.len(), 1, "{name}: {:?}", output.warnings);
        assert!(output.warnings[0].contains("CONFIG_SCHED_INFO"));
    }
}

#[test]
fn threads_say_where_scheduler_and_ticks_disagree() {
    let machine = Machine::at_start("linux-6.18-2cpu");
    let mut context = context(machine.roots());
    context.threads = vec![tag(22261, "spin")];
    let running = (meter("threads").start)(&context).unwrap();
    machine.lay("stop");
    let schedstat = machine.dir.path().join("proc/self/task/22261/schedstat");
    fs::write(schedstat, "2944081413 7876425 611\n").unwrap();
    let output = running.stop().unwrap();
    let expected = "threads: spin ran 2.53 s by the scheduler and 1.52 s by ticks (user + system)";
    assert_eq!(output.warnings, [expected]);
}

#[test]
fn ksoftirqd_by_its_own_run_time() {
    let machine = Machine::at_start("linux-6.18-2cpu");
    let output = machine.measure("cpu", &context(machine.roots()));
    assert!((value(&output, "cpu.ksoftirqd", &Scope::Cpu(0)) - 0.000_180_655).abs() < 1e-12);
    assert!((value(&output, "cpu.ksoftirqd", &Scope::Cpu(1)) - 0.000_624_928).abs() < 1e-12);
    let machine = Machine::at_start("server-64cpu-irqtime");
    let output = machine.measure("cpu", &context(machine.roots()));
    assert!((value(&output, "cpu.ksoftirqd", &Scope::Cpu(0)) - 1.25).abs() < 1e-9);
    assert_eq!(value(&output, "cpu.ksoftirqd", &Scope::Cpu(1)), 0.0);
    assert_eq!(output.readings.iter().filter(|r| r.metric == "cpu.ksoftirqd").count(), 2);
}

#[test]
fn softnet_of_a_recorded_machine_and_of_made_up_ones() {
    let expect = |name: &'static str, cpu: u32, counts: [f64; 4]| {
        let machine = Machine::at_start(name);
        let output = machine.measure("softnet", &context(machine.roots()));
        for (metric, count) in
            ["processed", "dropped", "squeezed", "received_rps"].iter().zip(counts)
        {
            let found = value(&output, &format!("softnet.{metric}"), &Scope::Cpu(cpu));
            assert_eq!(found, count, "{name}, CPU {cpu}: {metric}");
        }
        output
    };
    expect("linux-6.18-2cpu", 0, [f64::from(0x510e5 - 0x50636), 0.0, 0.0, 0.0]);
    let output = expect("linux-6.18-2cpu", 1, [f64::from(0x6391d - 0x635fb), 0.0, 0.0, 0.0]);
    assert_eq!(output.warnings, [""; 0]);
    // A 32-bit counter that wrapped; a CPU that is offline between others.
    expect("server-64cpu-irqtime", 0, [32.0, 0.0, 1.0, 0.0]);
    expect("server-64cpu-irqtime", 2, [2.0, 0.0, 0.0, 500.0]);
    expect("server-64cpu-irqtime", 63, [63.0, 0.0, 0.0, 0.0]);
    let output = expect("server-64cpu-irqtime", 1, [1.0, 3.0, 0.0, 0.0]);
    assert_eq!(output.readings.len(), 63 * 4);
    assert_eq!(output.warnings.len(), 1, "{:?}", output.warnings);
    assert!(output.warnings[0].starts_with("softnet: CPU 1 dropped 3 packets"));
    // Rows that do not name their CPU: CPUs 0, 1 and 3 are online.
    expect("linux-3.10-4cpu", 0, [4096.0, 0.0, 0.0, 0.0]);
    expect("linux-3.10-4cpu", 1, [0.0, 3.0, 0.0, 32.0]);
    expect("linux-3.10-4cpu", 3, [255.0, 0.0, 7.0, 0.0]);
}

#[test]
fn softnet_refuses_to_guess_whose_row_it_is() {
    let machine = Machine::at_start("arm-8cpu");
    let running = (meter("softnet").start)(&context(machine.roots())).unwrap();
    machine.lay("stop");
    assert!(running.stop().unwrap_err().message.contains("came or went"));
}

#[test]
fn link_of_a_recorded_machine_and_of_a_made_up_one() {
    let machine = Machine::at_start("linux-6.18-2cpu");
    let mut context = context(machine.roots());
    context.devices = vec!["lo".into()];
    let output = machine.measure("link", &context);
    let scope = Scope::Link(Role::Receiver, "lo".into());
    for metric in ["link.rx_bytes", "link.tx_bytes"] {
        assert_eq!(value(&output, metric, &scope), 201_706_677.0);
    }
    for metric in ["link.rx_packets", "link.tx_packets"] {
        assert_eq!(value(&output, metric, &scope), 3466.0);
    }
    assert_eq!(output.warnings, [""; 0]);

    let machine = Machine::at_start("server-64cpu-irqtime");
    let mut context = Context::idle(machine.roots());
    context.devices = vec!["enp65s0f0np0".into()];
    let output = machine.measure("link", &context);
    let scope = Scope::Link(Role::Receiver, "enp65s0f0np0".into());
    for (metric, expected) in [
        ("link.rx_bytes", 75e9),
        ("link.rx_packets", 8_100_000.0),
        ("link.rx_errors", 0.0),
        ("link.rx_dropped", 12.0),
        ("link.tx_bytes", 1000.0),
        ("link.tx_packets", 10.0),
        ("link.tx_errors", 0.0),
        ("link.tx_dropped", 0.0),
    ] {
        assert_eq!(value(&output, metric, &scope), expected, "{metric}");
    }
    assert_eq!(output.warnings, ["link: enp65s0f0np0 has 12 rx_dropped in the window"]);
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let machine = Machine::at_start("linux-6.18-2cpu");
    let mut context = context(machine.roots());
    context.devices = vec!["veth9".into()];
    let fault = (meter("link").start)(&context).err().unwrap();
    assert!(fault.message.contains("veth9"), "{fault}");
}

#[test]
fn a_device_that_was_replaced_has_no_numbers() {
    let machine = Machine::at_start("linux-6.18-2cpu");
    machine.lay("stop");
    let mut context = context(machine.roots());
    context.devices = vec!["lo".into()];
    let running = (meter("link").start)(&context).unwrap();
    machine.lay("start");
    let output = running.stop().unwrap();
    assert!(output.readings.is_empty() && output.warnings[0].contains("went backwards"));
}

#[test]
fn files_of_nonsense_are_errors_that_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["stat", "softirqs", "interrupts", "net/softnet_stat", "self/net/dev"] {
        let path = dir.path().join("proc").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"\xff\0nonsense\n:\n:\ncpu\n").unwrap();
    }
    let mut context = context(Roots::recorded(dir.path()));
    context.devices = vec!["lo".into()];
    for (name, file) in [
        ("cpu", "/proc/stat"),
        ("softirqs", "/proc/softirqs"),
        ("ipis", "/proc/interrupts"),
        ("softnet", "softnet_stat"),
        ("link", "net/dev"),
    ] {
        let fault = (meter(name).start)(&context).err().unwrap();
        assert!(fault.message.contains(file), "{fault}");
    }
}

#[test]
fn every_meter_says_what_it_is() {
    let names: Vec<_> = CATALOG.iter().map(|m| m.name).collect();
    let always = [
        "throughput",
        "cpu",
        "threads",
        "syscalls",
        "sizes",
        "tcp-info",
        "tcp-stack",
        "softnet",
        "softirqs",
        "ipis",
        "link",
        "nic",
        "steady",
        "cstates",
        "frequency",
        "power",
    ];
    assert_eq!(
        names,
        [
            &always[..],
            &["nvml", "idxd", "memory", "memory-roles", "counters", "locks", "handoffs", "profile"]
        ]
        .concat()
    );
    assert_eq!(regular().map(|m| m.name).collect::<Vec<_>>(), always);
    assert!(!selectable().any(|m| m.name == "profile"));
    let apart: Vec<_> = CATALOG.iter().filter(|m| m.separate_trials).map(|m| m.name).collect();
    assert_eq!(apart, ["handoffs", "profile"]);
    assert!(CATALOG.iter().all(|m| m.summary.len() > 20 && m.summary.len() < 100));
    assert_eq!(meter("cpu").reach, Reach::Machine);
    assert_eq!(meter("softnet").reach, Reach::Machine);
    assert_eq!(meter("threads").reach, Reach::Agent);
}

/// A thread that works once on demand, and then stays until it is released.
struct Worker {
    tid: u32,
    go: mpsc::Sender<()>,
    done: mpsc::Receiver<Duration>,
}

fn worker(work: impl FnOnce() -> Duration + Send + 'static) -> Worker {
    let (go, begin) = mpsc::channel();
    let (report, done) = mpsc::channel();
    let (announce, tid) = mpsc::channel();
    std::thread::spawn(move || {
        announce.send(thread::id()).unwrap();
        if begin.recv().is_ok() {
            report.send(work()).unwrap();
        }
        // Stays until the worker is dropped.
        let _ = begin.recv();
    });
    Worker { tid: tid.recv().unwrap(), go, done }
}

/// Uses 300 ms of CPU time, however busy the machine is; returns the time used.
fn spin() -> Duration {
    let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let nanos = |t: rustix::time::Timespec| Duration::new(t.tv_sec as u64, t.tv_nsec as u32);
    let start = nanos(cpu());
    loop {
        let used = nanos(cpu()) - start;
        if used >= Duration::from_millis(300) {
            return used;
        }
    }
}

#[test]
fn a_thread_that_spins_is_charged_for_it() {
    let busy = worker(|| {
        let used = spin();
        // One voluntary context switch, to be counted.
        std::thread::sleep(Duration::from_millis(1));
        used
    });
    let idle = worker(|| Duration::ZERO);
    let mut context = context(Roots::real());
    context.threads = vec![tag(busy.tid, "busy"), tag(idle.tid, "idle")];
    let running = (meter("threads").start)(&context).unwrap();
    busy.go.send(()).unwrap();
    let used = busy.done.recv().unwrap().as_secs_f64();
    let output = running.stop().unwrap();
    let [busy, idle] = &output.threads[..] else { panic!("{:?}", output.threads) };
    assert!((busy.run / used - 1.0).abs() < 0.1, "{busy:?} for {used} s");
    assert!((busy.user + busy.system - used).abs() < 0.05, "{busy:?} for {used} s");
    assert!(idle.run < 0.01, "{idle:?}");
    assert!(busy.voluntary >= 1, "{busy:?}");
}

#[test]
fn a_thread_that_ended_is_said_to_have() {
    let short = worker(|| Duration::ZERO);
    let mut context = context(Roots::real());
    context.threads = vec![tag(short.tid, "short")];
    let running = (meter("threads").start)(&context).unwrap();
    drop(short);
    let task = PathBuf::from(format!("/proc/self/task/{}", context.threads[0].tid));
    let begin = Instant::now();
    while task.exists() {
        assert!(begin.elapsed() < Duration::from_secs(10));
        std::thread::yield_now();
    }
    let output = running.stop().unwrap();
    assert!(output.threads.is_empty());
    assert!(output.warnings[0].contains("short ended"), "{:?}", output.warnings);
}

#[test]
fn the_cpus_of_this_machine_are_accounted_for() {
    let running = (meter("cpu").start)(&context(Roots::real())).unwrap();
    let used = spin().as_secs_f64();
    let output = running.stop().unwrap();
    let wall = value(&output, "cpu.wall", &Scope::Machine);
    let busy: Vec<_> = output.readings.iter().filter(|r| r.metric == "cpu.busy").collect();
    let sum: f64 = busy.iter().map(|r| r.value).sum();
    // Each CPU's idle time is rounded down to 10 ms at both edges, and the machine may also do
    // other work.
    let slack = 0.02 * busy.len() as f64;
    assert!(wall >= used, "{wall} s");
    assert!(sum + slack > used, "{used} s of work in {sum} s of busy time");
    assert!(busy.iter().all(|r| (0.0..=wall).contains(&r.value)));
    assert!(output.readings.iter().all(|r| r.unit == Unit::Seconds && r.value.is_finite()));
}

#[test]
fn steady_tells_of_throttling_and_of_another_clock_once() {
    let dir = tempfile::tempdir().unwrap();
    let lay = |path: &str, text: &str| {
        let path = dir.path().join("sys/devices/system").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let clock = "clocksource/clocksource0/current_clocksource";
    lay(clock, "tsc\n");
    lay("cpu/cpu1/thermal_throttle/core_throttle_count", "7\n");
    lay("cpu/cpu1/thermal_throttle/package_throttle_count", "1\n");
    fs::create_dir_all(dir.path().join("sys/devices/system/cpu/cpu0")).unwrap();
    let context = context(Roots::recorded(dir.path()));
    let window = |during: &dyn Fn()| {
        let running = (meter("steady").start)(&context).unwrap();
        during();
        running.stop().unwrap()
    };
    let seen = |output: &Output| {
        let clock = value(output, "steady.clock_changes", &Scope::Machine);
        (clock, value(output, "steady.throttled", &Scope::Cpu(1)))
    };
    assert_eq!(seen(&window(&|| ())), (0.0, 0.0));
    // A change between two windows, and one within a window.
    lay("cpu/cpu1/thermal_throttle/core_throttle_count", "9\n");
    let second = window(&|| lay(clock, "hpet\n"));
    assert_eq!(seen(&second), (1.0, 2.0));
    assert_eq!(second.warnings, ["steady: the clock source was tsc and is hpet"]);
    assert_eq!(seen(&window(&|| ())), (0.0, 0.0), "reported once");
}

/// Tests that need a quiet machine: `make timing`.
mod timing {
    use super::*;

    #[test]
    #[ignore = "timing"]
    fn one_flow_over_loopback_from_all_sides() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut tx = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut rx, _) = listener.accept().unwrap();
        let moved = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let counted = Arc::clone(&moved);
        let mut context = context(Roots::real());
        context.flows = Arc::new(vec![rx.try_clone().unwrap().into()]);
        context.moved = Arc::new(move |_| counted.load(Ordering::Relaxed));
        context.devices = vec!["lo".into()];

        let mut running: Vec<_> = ["throughput", "tcp-info", "softnet", "link"]
            .map(|name| (meter(name).start)(&context).unwrap())
            .into();
        let begin = Instant::now();
        let sender = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                while !stop.load(Ordering::Relaxed) {
                    tx.write_all(&[7; 65536]).unwrap();
                }
            }
        });
        let mut buffer = vec![0; 65536];
        let mut ticked = begin;
        while begin.elapsed() < Duration::from_millis(480) {
            moved.fetch_add(rx.read(&mut buffer).unwrap() as u64, Ordering::Relaxed);
            if ticked.elapsed() > Duration::from_millis(100) {
                ticked = Instant::now();
                running.iter_mut().for_each(|meter| meter.tick());
            }
        }
        let total = moved.load(Ordering::Relaxed) as f64;
        let outputs: Vec<_> = running.into_iter().map(|meter| meter.stop().unwrap()).collect();
        let elapsed = begin.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        // The sender may wait for room, so make some.
        while rx.read(&mut buffer).unwrap() > 0 {}
        sender.join().unwrap();

        let flow = Scope::Flow(Role::Receiver, 0);
        let [throughput, tcp, softnet, link] = &outputs[..] else { unreachable!() };
        let rate = value(throughput, "throughput.flow", &flow);
        assert!((rate * elapsed / total - 1.0).abs() < 0.1, "{rate} B/s, {total} B in {elapsed} s");
        let series = &throughput.series[0];
        assert_eq!((series.step, &series.scope), (0.1, &flow));
        assert!(
            (series.values.len() as f64 - elapsed / 0.1).abs() < 1.0,
            "{elapsed} s: {series:?}"
        );
        let sum = series.values.iter().sum::<f64>() * 0.1;
        assert!((sum / total - 1.0).abs() < 0.35, "{sum} of {total}");
        // The kernel has received at least what the application has read.
        assert!(value(tcp, "tcp.bytes_received", &flow) >= total);
        assert!(value(tcp, "tcp.rcv_mss", &flow) > 500.0);
        let device = Scope::Link(Role::Receiver, "lo".into());
        assert!(value(link, "link.rx_bytes", &device) >= total);
        let packets: f64 = softnet
            .readings
            .iter()
            .filter(|r| r.metric == "softnet.processed")
            .map(|r| r.value)
            .sum();
        assert!(packets > 0.0);
    }

    #[test]
    #[ignore = "timing"]
    fn the_edges_of_the_window_are_quick() {
        let threads: Vec<_> = (0..4).map(|_| worker(|| Duration::ZERO)).collect();
        let mut context = context(Roots::real());
        context.threads = threads.iter().map(|t| tag(t.tid, "t")).collect();
        context.devices = vec!["lo".into()];
        // Meters that run in trials of their own have more to do (see `sampling`).
        for meter in CATALOG.iter().filter(|meter| !meter.separate_trials) {
            // The best of several: delays by other programs are not the meter's.
            let fastest = (0..20)
                .map(|_| {
                    let begin = Instant::now();
                    let running = (meter.start)(&context).unwrap();
                    let start = begin.elapsed();
                    let begin = Instant::now();
                    running.stop().unwrap();
                    (start, begin.elapsed())
                })
                .reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)))
                .unwrap();
            println!("{}: start {:?}, stop {:?}", meter.name, fastest.0, fastest.1);
            let most = Duration::from_millis(if cfg!(debug_assertions) { 5 } else { 2 });
            assert!(fastest.0 < most && fastest.1 < most, "{}: {fastest:?}", meter.name);
        }
    }
}

/// A made-up DSA unit, with the scheduler's events: the time of a CPU, and page faults.
#[test]
fn what_engines_moved_is_counted_by_the_device_in_units_of_32_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("sys/bus/event_source/devices/dsa0");
    fs::create_dir_all(unit.join("format")).unwrap();
    for (file, text) in [
        ("type", "1\n"),
        ("cpumask", "0\n"),
        ("format/event", "config:0-7\n"),
        ("format/event_category", "config1:0-3\n"),
    ] {
        fs::write(unit.join(file), text).unwrap();
    }
    let roots = Roots::recorded(folder.path());
    let facts = bytepath::host::survey(&roots);
    assert_eq!(facts.settings["perf.dsa"], "dsa0");
    assert!((meter("idxd").probe)(&facts).is_yes());
    let context = context(roots);
    let ready = match (meter("idxd").prepare)(&context) {
        Ok(ready) => ready.expect("there is a unit"),
        Err(fault) => {
            assert!(fault.message.contains("perf refuses dsa0/event=0x1"), "{fault}");
            return skip!("{fault}");
        }
    };
    std::thread::sleep(Duration::from_millis(50));
    let begin = Instant::now();
    let running = ready().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let output = running.stop().unwrap();
    let most = begin.elapsed().as_nanos() as f64;
    // Of the window only, and in bytes.
    let moved = value(&output, "idxd.dsa0.event-1", &Scope::Machine) / 32.0;
    assert!(moved >= 1e8 && moved <= most, "{moved} of {most}");
    assert!(output.readings.iter().any(|r| r.metric == "idxd.dsa0.event-2"), "{output:?}");

    let none = context_without_units();
    assert!((meter("idxd").prepare)(&none).unwrap().is_none());
    assert_eq!((meter("idxd").start)(&none).unwrap().stop().unwrap(), Output::default());
    assert!(!(meter("idxd").probe)(&bytepath::host::survey(&none.roots)).is_yes());
}

/// Made-up memory controllers, whose event is the time of a CPU, and a made-up resctrl.
#[test]
fn traffic_of_memory_is_counted_by_its_controllers_and_by_resctrl() {
    let folder = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = folder.path().join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let units = "bus/event_source/devices";
    let unit = |name: &str, event: &str| {
        put(&format!("{units}/{name}/type"), "1\n");
        put(&format!("{units}/{name}/cpumask"), "0\n");
        put(&format!("{units}/{name}/format/event"), "config:0-7\n");
        put(&format!("{units}/{name}/events/{event}"), "event=0x1\n");
        put(&format!("{units}/{name}/events/{event}.scale"), "6.103515625e-5\n");
        put(&format!("{units}/{name}/events/{event}.unit"), "MiB\n");
    };
    unit("uncore_imc_0", "cas_count_read");
    unit("uncore_imc_1", "cas_count_read");
    // Servers have these as well; they count the same traffic a second time.
    unit("uncore_imc_free_running_0", "data_read");
    put("fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "1000\n");
    put("fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes", "500\n");
    put("fs/resctrl/mon_data/mon_L3_00/mbm_local_bytes", "Unavailable\n");
    let roots = Roots::recorded(folder.path());
    let meter = meter("memory");
    let mut facts = bytepath::host::survey(&roots);
    facts.attempts.extend((meter.attempt)(&roots));
    let context = context(roots);
    let ready = match (meter.prepare)(&context) {
        Ok(ready) => ready.expect("there are counters"),
        Err(fault) => {
            assert!(fault.message.contains("perf refuses uncore_imc_0/cas_count_read/"), "{fault}");
            assert!(!(meter.probe)(&facts).is_yes());
            return skip!("{fault}");
        }
    };
    assert!((meter.probe)(&facts).is_yes());
    let begin = Instant::now();
    let running = ready().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    put("fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "5000\n");
    put("fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes", "600\n");
    let output = running.stop().unwrap();
    let most = begin.elapsed().as_nanos() as f64;
    // The event counts ns on each of two units, and each count stands for a cache line of 64 bytes.
    let read = value(&output, "memory.controller.read", &Scope::Machine) / 64.0 / 2.0;
    assert!(read >= 1e8 && read <= most, "{read} of {most}");
    assert_eq!(value(&output, "memory.monitored.total", &Scope::Machine), 4100.0);
    assert_eq!(output.readings.len(), 2, "what is not counted is no figure: {output:?}");
}

#[test]
fn memory_that_went_back_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "5000\n").unwrap();
    let context = context(Roots::recorded(folder.path()));
    let running = (meter("memory").prepare)(&context).unwrap().unwrap()().unwrap();
    fs::write(&file, "4000\n").unwrap();
    let fault = running.stop().unwrap_err();
    assert!(fault.message.contains("mbm_total_bytes went back from 5000 to 4000"), "{fault}");
    assert!(fault.remedy.unwrap().contains("monitoring group"));
}

#[test]
fn why_memory_is_not_counted_is_said() {
    let none = context_without_units();
    let meter = meter("memory");
    assert!((meter.prepare)(&none).unwrap().is_none());
    let mut facts = bytepath::host::survey(&none.roots);
    facts.attempts.extend((meter.attempt)(&none.roots));
    let refusal = (meter.probe)(&facts).refusal().unwrap();
    assert!(refusal.message.contains("no uncore_imc unit"), "{refusal}");
    assert!(refusal.remedy.unwrap().contains("mount -t resctrl"));

    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("sys/bus/event_source/devices/uncore_imc_0");
    fs::create_dir_all(unit.join("events")).unwrap();
    for (file, text) in [
        ("type", "1\n"),
        ("events/cas_count_read", "event=0x1\n"),
        ("events/cas_count_read.unit", "lines\n"),
    ] {
        fs::write(unit.join(file), text).unwrap();
    }
    let fault = (meter.prepare)(&context(Roots::recorded(folder.path()))).err().unwrap();
    assert!(fault.message.contains("counts 'lines', not MiB"), "{fault}");
}

fn context_without_units() -> Context {
    context(Roots::recorded(std::path::Path::new("/nonexistent")))
}

/// Writes a made-up resctrl with the receiver's group: the kernel fills a group when it is made.
fn resctrl(put: impl Fn(&str, &str)) {
    put("sys/fs/resctrl/info/L3_MON/num_rmids", "144\n");
    put("sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "9000\n");
    let group = "sys/fs/resctrl/mon_groups/bytepath-receiver-0";
    for (cache, total, local) in [("mon_L3_00", "1000", "700"), ("mon_L3_01", "50", "20")] {
        put(&format!("{group}/mon_data/{cache}/mbm_total_bytes"), total);
        put(&format!("{group}/mon_data/{cache}/mbm_local_bytes"), local);
    }
}

/// A file of the group, and its new content.
type Change<'a> = (&'a str, &'a str);

/// Runs the meter for a session after the changes in `before`, with a window for each list of
/// changes; returns its output and the folder. The threads are pinned to CPU 0, whose cache is the
/// first.
fn traffic_of_role(before: &[Change], windows: &[&[Change]]) -> (Output, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let group = "sys/fs/resctrl/mon_groups/bytepath-receiver-0";
    let change = |(file, text): &Change| put(&format!("{group}/{file}"), text);
    resctrl(put);
    put("sys/devices/system/cpu/cpu0/cache/index3/id", "0\n");
    put("proc/self/task/41/cpu_resctrl_groups", "res:/\nmon:\n");
    before.iter().for_each(change);
    let roots = Roots::recorded(folder.path());
    let meter = meter("memory-roles");
    let mut facts = bytepath::host::survey(&roots);
    facts.attempts.extend((meter.attempt)(&roots));
    assert!((meter.probe)(&facts).is_yes(), "{:?}", facts.attempts.last());
    let pinned = |tid, name| ThreadTag { cpu: Some(0), ..tag(tid, name) };
    let threads = vec![pinned(41, "receiver/0"), pinned(42, "receiver/1")];
    let context = Context { threads, ..context(roots) };
    assert!((meter.prepare)(&context).unwrap().is_none());
    for changes in windows {
        let running = (meter.start)(&context).unwrap();
        changes.iter().for_each(change);
        assert_eq!(running.stop().unwrap(), Output::default(), "all windows have one figure");
        assert!(folder.path().join(group).is_dir(), "the group stays until the session ends");
    }
    ((meter.finish)(&context), folder)
}

const TASKS: Change = ("tasks", "");

const TOTALS: [&str; 2] =
    ["mon_data/mon_L3_00/mbm_total_bytes", "mon_data/mon_L3_01/mbm_total_bytes"];

#[test]
fn traffic_of_memory_is_that_of_the_threads_of_a_role() {
    let local = "mon_data/mon_L3_00/mbm_local_bytes";
    let first = [(TOTALS[0], "5000\n"), (TOTALS[1], "60\n"), (local, "1700\n")];
    let (output, folder) = traffic_of_role(&[TASKS], &[&first, &[(TOTALS[0], "5005\n")]]);
    let groups = folder.path().join("sys/fs/resctrl/mon_groups");
    assert_eq!(fs::read_dir(&groups).unwrap().count(), 1, "one for all windows");
    let tasks = fs::read_to_string(groups.join("bytepath-receiver-0/tasks")).unwrap();
    assert_eq!(tasks, "41\n42\n", "each thread is added once");
    let scope = Scope::Role(Role::Receiver);
    assert_eq!(value(&output, "memory.role.total", &scope), 4015.0);
    assert_eq!(value(&output, "memory.role.local", &scope), 1000.0);
    // A folder with ordinary files in it cannot be removed as a kernel's group can.
    assert_eq!(output.warnings.len(), 1, "{:?}", output.warnings);
    assert!(output.warnings[0].contains("its group stays until the next study"));
}

#[test]
fn a_cache_without_a_thread_of_the_role_may_not_know_its_group() {
    let unknown = [TASKS, (TOTALS[1], "Unavailable\n")];
    let total = |windows: &[&[Change]]| {
        let (output, _) = traffic_of_role(&unknown, windows);
        value(&output, "memory.role.total", &Scope::Role(Role::Receiver))
    };
    assert_eq!(total(&[&[(TOTALS[0], "1500\n")]]), 500.0);
    assert_eq!(total(&[&[(TOTALS[1], "30\n")], &[(TOTALS[1], "31\n")]]), 31.0);
}

#[test]
fn traffic_of_a_role_that_is_not_counted_whole_is_no_figure() {
    for (change, why) in [
        ((TOTALS[0], "Unavailable\n"), "mon_L3_00 shows 'Unavailable'"),
        ((TOTALS[0], "Error\n"), "mon_L3_00 shows 'Error'"),
        ((TOTALS[0], "999\n"), "mbm_total_bytes went back from 1000 to 999"),
        ((TOTALS[1], "Unavailable\n"), "mbm_total_bytes went back from 50 to 0"),
    ] {
        let (output, _) = traffic_of_role(&[TASKS], &[&[change], &[(change.0, "7000\n")], &[]]);
        assert_eq!(output.readings, [], "{why}: one window lacked it");
        let warning = output.warnings.last().unwrap();
        assert!(warning.starts_with("memory-roles: no figure: "), "{warning}");
        assert!(warning.contains(why), "{warning}");
    }
}

#[test]
fn a_thread_that_is_not_in_the_group_leaves_no_figure() {
    let web = "../../../../../proc/self/task/42/cpu_resctrl_groups";
    let (output, folder) = traffic_of_role(&[TASKS, (web, "res:/\nmon:web\n")], &[&[]]);
    assert_eq!(output.readings, []);
    let expected = "memory-roles: no figure: receiver/1 is in the monitoring group web";
    assert_eq!(output.warnings, [expected]);
    let group = folder.path().join("sys/fs/resctrl/mon_groups/bytepath-receiver-0");
    assert_eq!(fs::read_to_string(group.join("tasks")).unwrap(), "41\n", "it was left there");
    // The kernel may refuse a thread for another reason than that it is gone.
    let (output, _) = traffic_of_role(&[], &[&[]]);
    assert_eq!(output.readings, []);
    let warning = &output.warnings[0];
    let expected = "memory-roles: no figure: receiver/0 cannot be monitored: ";
    assert!(warning.starts_with(expected), "{warning}");
}

/// Two cells of a block alternate over one NIC. The made-up kernel moves the NIC's polling thread
/// to the group that requested it last.
#[test]
fn a_polling_thread_that_cells_share_counts_for_the_one_whose_turn_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let groups = [0, 1].map(|number| format!("bytepath-receiver-{number}"));
    let of =
        |number: usize, file: &str| format!("sys/fs/resctrl/mon_groups/{}/{file}", groups[number]);
    put("proc/2/comm", "kthreadd\n");
    put("proc/2/task/2/children", "70 ");
    put("proc/70/comm", "napi/rest0-8193\n");
    for number in [0, 1] {
        put(&of(number, "tasks"), "");
        put(&of(number, TOTALS[0]), "1000\n");
    }
    let moves_to = |number: usize| {
        put("proc/70/cpu_resctrl_groups", &format!("res:/\nmon:{}\n", groups[number]));
    };
    let asked = |number: usize| {
        let tasks = fs::read_to_string(folder.path().join(of(number, "tasks"))).unwrap();
        put(&of(number, "tasks"), "");
        if tasks.lines().any(|tid| tid == "70") {
            moves_to(number);
        }
        tasks
    };
    let meter = meter("memory-roles");
    let cells = [41, 42].map(|tid| Context {
        threads: vec![tag(tid, "receiver/0")],
        devices: vec!["rest0".into()],
        ..context(Roots::recorded(folder.path()))
    });
    for (number, cell) in cells.iter().enumerate() {
        assert!((meter.prepare)(cell).unwrap().is_none());
        assert_eq!(asked(number), format!("{}\n70\n", 41 + number), "it asks for its threads");
    }
    for (number, asks, bytes) in [(0, "70\n", 1300), (1, "70\n", 1020), (1, "", 1050)] {
        let running = (meter.start)(&cells[number]).unwrap();
        assert_eq!(asked(number), asks, "at the start of each turn");
        put(&of(number, TOTALS[0]), &format!("{bytes}\n"));
        running.stop().unwrap();
        put(&of(number, TOTALS[0]), "1000\n");
    }
    let scope = Scope::Role(Role::Receiver);
    let moved = cells.each_ref().map(|cell| (meter.finish)(cell));
    assert_eq!(moved.map(|output| value(&output, "memory.role.total", &scope)), [300.0, 70.0]);
    assert!((meter.prepare)(&cells[0]).unwrap().is_none());
    assert_eq!(asked(0), "41\n70\n");
    let running = (meter.start)(&cells[0]).unwrap();
    moves_to(1);
    running.stop().unwrap();
    let first = (meter.finish)(&cells[0]);
    let lost = "in a window napi/rest0-8193 went to the monitoring group bytepath-receiver-1";
    assert!(first.warnings.iter().any(|warning| warning.contains(lost)), "{:?}", first.warnings);
    assert_eq!(first.readings, []);
}

#[test]
fn why_memory_is_not_counted_by_role_is_said() {
    let meter = meter("memory-roles");
    let refusal = |roots: &Roots| {
        let mut facts = bytepath::host::survey(roots);
        facts.attempts.extend((meter.attempt)(roots));
        (meter.probe)(&facts).refusal().unwrap()
    };
    let none = context_without_units();
    assert!((meter.prepare)(&none).unwrap().is_none());
    let missing = refusal(&none.roots);
    assert!(missing.message.contains("resctrl is not mounted"), "{missing}");
    assert!(missing.remedy.unwrap().contains("mount -t resctrl"));

    let folder = tempfile::tempdir().unwrap();
    let sys = folder.path().join("sys/fs/resctrl");
    fs::create_dir_all(sys.join("mon_groups/taken")).unwrap();
    fs::create_dir_all(sys.join("info/L3_MON")).unwrap();
    fs::create_dir_all(sys.join("mon_data/mon_L3_00")).unwrap();
    fs::write(sys.join("info/L3_MON/num_rmids"), "2\n").unwrap();
    let roots = Roots::recorded(folder.path());
    assert!(refusal(&roots).message.contains("mon_data has no mbm_total_bytes"));
    fs::write(sys.join("mon_data/mon_L3_00/mbm_total_bytes"), "0\n").unwrap();
    let taken = refusal(&roots);
    assert!(taken.message.contains("all 2 monitoring ids (RMIDs) are taken"), "{taken}");

    // If the kernel refuses while a study runs, that is a warning, and bytes keep flowing.
    fs::remove_dir_all(sys.join("mon_groups")).unwrap();
    fs::write(sys.join("mon_groups"), "").unwrap();
    fs::write(sys.join("info/last_cmd_status"), "out of RMIDs\n").unwrap();
    let context = context(roots);
    assert!((meter.prepare)(&context).unwrap().is_none());
    let nothing = (meter.start)(&context).unwrap().stop().unwrap();
    assert_eq!(nothing, Output::default());
    let output = (meter.finish)(&context);
    assert!(output.readings.is_empty());
    let warning = &output.warnings[0];
    let expected = "memory-roles: no figure: cannot make a monitoring group";
    assert!(warning.starts_with(expected), "{warning}");
    assert!(warning.ends_with("(out of RMIDs)"), "{warning}");
}
