//! Placement in practice: receive work runs on the requested CPUs, and a placement that is
//! impossible is refused with a reason.

use crate::running::said;
use bytepath::meter::Context;
use bytepath::record::{Cell, RX_PACKETS, Reading, Role, Schedule, Scope, Support, Trial};
use bytepath::spec::{self, CellRequest};
use bytepath::stats::ReceiveWork;
use bytepath::study::{Laboratory, OpenTestbed, path_spec};
use bytepath::sys::Roots;
use bytepath::{meter, path, sys, testbed};
use bytepath_testing::{Share, alone, skip};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

#[test]
fn polling_thread_runs_on_the_requested_cpu() {
    let Some(_alone) = able("pins kernel threads") else { return };
    for cpu in cpus() {
        let cell = cell("socket", "wire", &format!("two-cores,softirq={cpu}"));
        let trial = run(&cell);
        let napi = of_cpus(&trial, "softirqs.napi");
        assert!(!napi.is_empty(), "the polling thread was seen: {:?}", trial.warnings);
        for (at, seconds) in &napi {
            assert_eq!(*at, cpu, "{seconds} s of the polling thread on CPU {at}");
        }
        assert!(napi.iter().map(|(_, seconds)| seconds).sum::<f64>() > 0.0);
        // The meter `threads` measures the same run time for this thread, except at the edges.
        let threads = trial.roles.iter().flat_map(|role| &role.threads);
        let run: f64 = threads.filter(|t| t.name.starts_with("napi/byte1-")).map(|t| t.run).sum();
        let seen: f64 = napi.iter().map(|(_, seconds)| seconds).sum();
        assert!((run - seen).abs() < 0.1 * run + 0.02, "{run} s and {seen} s");
        let work = ReceiveWork::of(&cell, &[&trial], Role::Receiver).unwrap();
        assert_eq!(work.asked, [cpu]);
        let all: f64 = work.cpus.iter().map(|share| share.part).sum();
        assert!((all - 1.0).abs() < 1e-9, "{work:?}");
    }
}

#[test]
fn softirqs_are_counted_and_a_polling_thread_is_followed_from_cpu_to_cpu() {
    let dir = tempfile::tempdir().unwrap();
    let second = 1_000_000_000;
    lay_softirqs(dir.path(), [(1, u32::MAX - 9), (0, 100)], 0, second);
    let mut context =
        Context { devices: vec!["wire".into()], ..Context::idle(Roots::recorded(dir.path())) };
    let meter = meter::CATALOG.iter().find(|meter| meter.name == "softirqs").unwrap();
    let mut running = (meter.start)(&context).unwrap();
    lay_softirqs(dir.path(), [(1, u32::MAX), (0, 100)], 0, 3 * second / 2);
    running.tick();
    lay_softirqs(dir.path(), [(3, 10), (0, 142)], 3, 2 * second);
    let output = running.stop().unwrap();
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    for (metric, first, other) in [
        ("softirqs.net_rx", 20.0, 42.0),
        ("softirqs.net_tx", 2.0, 0.0),
        ("softirqs.napi", 0.5, 0.5),
    ] {
        let of_cpu = |cpu| {
            let here = |r: &&Reading| r.metric == metric && r.scope == Scope::Cpu(cpu);
            output.readings.iter().find(here).expect(metric).value
        };
        let found = [0, 3].map(of_cpu);
        assert!(near(found[0], first) && near(found[1], other), "{metric}: {found:?}");
    }
    assert_eq!(output.warnings, [""; 0]);
    // Without a device there is no thread to look for.
    context.devices.clear();
    let output = (meter.start)(&context).unwrap().stop().unwrap();
    assert!(output.readings.iter().all(|reading| reading.metric != "softirqs.napi"));
}

/// Flow i crosses adapter i modulo their number, which is served by the next CPU of the list in
/// turn.
#[test]
fn adapters_carry_their_flows_on_the_cpus_of_their_turns() {
    let Some(_alone) = able("pins kernel threads") else { return };
    let [first, second] = cpus();
    for adapters in [2, 4] {
        let turns = format!("{second}+{first}");
        let cores = format!("sender={first}+{second},receiver={turns},softirq={turns}");
        let cell = requested(
            "socket",
            "flows=4,touch=verify",
            &format!("wire:adapters={adapters}"),
            &cores,
        );
        let trial = run(&cell);
        let device = |at: u32| if at == 0 { "byte1".into() } else { format!("byte1_{at}") };
        let received = |at| {
            let scope = Scope::Link(Role::Receiver, device(at));
            trial.reading("link.rx_bytes", &scope).expect("a device of each adapter")
        };
        let of_flow = |at| {
            let scope = Scope::Flow(Role::Receiver, at);
            trial.reading("tcp.bytes_received", &scope).expect("bytes of each flow")
        };
        for adapter in 0..adapters {
            let (bytes, device) = (received(adapter), device(adapter));
            let flows = (0..4).filter(|flow| flow % adapters == adapter);
            let carried: f64 = flows.map(of_flow).sum();
            // Headers are added, and the two meters do not read at the same moment.
            assert!(
                carried > 0.0 && bytes > 0.8 * carried && bytes < 1.4 * carried,
                "{device}: {bytes} {carried}"
            );
            let lead = format!("napi/{device}-");
            let mut threads = trial.roles.iter().flat_map(|role| &role.threads);
            let ran =
                threads.find(|thread| thread.name.starts_with(&lead)).map(|thread| thread.run);
            assert!(ran.is_some_and(|ran| ran > 0.0), "{lead}: {ran:?}");
        }
        let packets = (0..adapters)
            .filter_map(|at| trial.reading(RX_PACKETS, &Scope::Link(Role::Receiver, device(at))));
        assert_eq!(trial.packets(), Some(packets.sum()), "of all devices");
        let napi = of_cpus(&trial, "softirqs.napi");
        assert!(cpus().iter().all(|cpu| napi.iter().any(|(at, _)| at == cpu)), "{napi:?}");
        let work = ReceiveWork::of(&cell, &[&trial], Role::Receiver).unwrap();
        assert_eq!(work.asked, [second, first]);
        let [sender, receiver] = trial.roles.as_slice() else { panic!("two roles") };
        assert_eq!(sender.total_bytes, receiver.total_bytes);
    }
}

#[test]
fn without_a_polling_thread_rps_moves_packets_to_the_cpu() {
    let Some(_alone) = able("sets RPS") else { return };
    let [_, receiver] = cpus();
    let cell = cell("socket", "offload", "two-cores,softirq=receiver");
    assert_eq!((cell.softirq_cpu(Role::Receiver), cell.link.rps), (Some(receiver), None));
    let trial = run(&cell);
    let taken_over = trial.reading("softnet.received_rps", &Scope::Cpu(receiver)).unwrap();
    assert!(taken_over > 100.0, "{taken_over} packets were taken over");
    assert!(of_cpus(&trial, "softirqs.napi").is_empty(), "no thread polls on this link");
    assert!(trial.reading("softirqs.net_rx", &Scope::Cpu(receiver)).unwrap() > 100.0);
}

#[test]
fn the_softirqs_of_the_senders_device_are_placed_as_well() {
    let Some(_alone) = able("places softirqs of both ends") else { return };
    let [sender, receiver] = cpus();
    // By RPS, since no thread polls for this link.
    let trial = run(&cell("socket", "offload", "together"));
    for (cpu, whose) in [(receiver, "the receiver's"), (sender, "the sender's")] {
        let taken_over = trial.reading("softnet.received_rps", &Scope::Cpu(cpu)).unwrap();
        assert!(taken_over > 10.0, "{taken_over} packets of {whose} were taken over");
    }
    // By the polling thread of each end.
    let crossed = format!("two-cores,sender-softirq={receiver},softirq={sender}");
    let trial = run(&cell("socket", "wire", &crossed));
    let polled = of_cpus(&trial, "softirqs.napi");
    assert!(polled.iter().any(|(cpu, _)| *cpu == sender), "{polled:?}");
}

#[test]
fn places_io_uring_workers_or_reports_that_there_are_none() {
    let Some(_alone) = able("runs io_uring") else { return };
    // Pinning itself is tested next to its code; here the stream still has to run.
    let trial = run(&cell("uring", "wire", "two-cores,io-wq=receiver"));
    assert!(trial.rate().unwrap() > 0.0);
    let (code, text, _) = bytepath(&[
        &["run", "--path", "socket", "--cores", "one-core,io-wq=sender", "--study", &out("io-wq")]
            [..],
        SHORT,
    ]);
    assert_eq!(code, 0, "{text}");
    // Lines are wrapped to the width of the page.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("has no effect: neither end uses io_uring"), "{text}");
    let first = cpus()[0];
    assert!(text.contains(&format!("sender and receiver share CPU {first}")), "{text}");
    assert!(text.contains(&format!("sender and io-wq share CPU {first}")), "{text}");
    assert!(text.contains(&format!("receiver CPU {first}, io-wq CPU {first}")), "{text}");
}

#[test]
fn refuses_impossible_placements_with_the_reason() {
    for (cores, link, reason) in [
        ("two-cores,softirq=4000", "wire", "CPU 4000 does not exist or may not be used (softirq)"),
        ("two-cores,vhost=0", "wire", "no path of this cell has a vhost thread to place"),
        ("two-cores,softirq=receiver", "offload:rps=0", "contradict each other"),
        ("two-cores,softirc=0", "wire", "did you mean 'softirq'?"),
        ("unpinned,softirq=sender", "wire", "cannot go with the sender, which has no CPU"),
        ("two-cores,softirq=0+0", "wire", "is CPU 0 each time"),
        (
            "two-cores,softirq=0+1",
            "wire",
            "2 CPUs are named for softirqs of the receiver's adapters",
        ),
        ("two-cores", "wire:adapters=2", "2 adapters need at least as many flows, and there are 1"),
        ("two-cores", "tap:adapters=2", "several adapters are for links between devices, not tap"),
    ] {
        if reason.contains("vhost") && able("raises the testbed").is_none() {
            continue;
        }
        let (code, text, error) = bytepath(&[
            &["run", "--path", "socket", "--cores", cores, "--link", link, "--study", &out("no")][..],
            SHORT,
        ]);
        assert_ne!(code, 0, "{cores}: {text}");
        assert!(error.contains(reason), "{cores}: {error}");
    }
}

#[test]
fn experiments_accept_placements_as_tables() {
    let file = std::env::temp_dir().join(format!("bytepath-placement-{}.toml", std::process::id()));
    let write = |cores: &str| std::fs::write(&file, format!("[factors]\npath='socket'\n{cores}\n"));
    let plan = |cores: &str| {
        write(cores).unwrap();
        bytepath(&[&["run", file.to_str().unwrap(), "--dry-run"]])
    };
    let table = "cores = ['two-cores', { sender = 0, receiver = 'free', softirq = 'sender' }]";
    let (code, text, error) = plan(table);
    assert_eq!(code, 0, "{error}");
    assert!(text.contains("  socket cores=none/sender=0/softirq=0\n"), "{text}");
    for (cores, wrong) in [
        ("cores = { sender = 0, softirc = 1 }", ":3:23: a placement has no key 'softirc'"),
        ("cores = [{}]", "names no part of the work"),
        ("cores = [{ sender = 0 }, 'sender=0']", "is the same level as"),
        ("mtu = { sender = 0 }", "'mtu' takes one value here"),
    ] {
        let (code, _, error) = plan(cores);
        assert_ne!(code, 0, "{cores}");
        assert!(error.contains(wrong), "{cores}: {error}");
    }
    std::fs::remove_file(&file).unwrap();
}

/// Writes as much of `/proc` as the meter `softirqs` reads: counts by CPU, and a NAPI thread of the
/// device "wire" that ran for `run` ns, last on `cpu`.
fn lay_softirqs(dir: &Path, counts: [(u32, u32); 2], cpu: u32, run: u64) {
    let [(tx0, rx0), (tx3, rx3)] = counts;
    let softirqs = format!(
        "       CPU0 CPU3\n  TIMER: 1 1\n NET_TX: {tx0} {tx3}\n NET_RX: {rx0} {rx3}\n  BLOCK: 0 0\n"
    );
    let stat = format!(
        "77 (napi/wire-5) S 2 0 0 0 -1 0 0 0 0 0 0 9 0 0 20 0 1 0 50 0 0 {} {cpu} 0\n",
        "0 ".repeat(14).trim_end()
    );
    for (file, text) in [
        ("2/comm", "kthreadd\n".to_owned()),
        ("2/task/2/children", "3 77 78 ".to_owned()),
        ("3/comm", "rcu_gp\n".to_owned()),
        ("77/comm", "napi/wire-5\n".to_owned()),
        ("78/comm", "napi/other-6\n".to_owned()),
        ("77/stat", stat),
        ("77/schedstat", format!("{run} 5 6\n")),
        ("softirqs", softirqs),
    ] {
        let path = dir.join("proc").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

const SHORT: &[&str] = &[
    "--blocks",
    "1",
    "--warm-up",
    "100ms",
    "--window",
    "300ms",
    "--design",
    "trials",
    "--profile",
    "none",
];

/// Reserves the machine for the test, or returns `None` if this host lacks what it needs: polling
/// threads are recognised by the name of their device, which is the same in every test.
fn able(what: &str) -> Option<Share> {
    let support = testbed::CATALOG[0].probe();
    if let Support::No { reason, .. } = support {
        skip!("it {what}: {reason}");
        return None;
    }
    if !sys::namespace::privileged() {
        skip!("it {what}: not as root");
        return None;
    }
    if cpus_here().len() < 2 {
        skip!("it {what}: one CPU");
        return None;
    }
    Some(alone())
}

fn cpus_here() -> Vec<u32> {
    sys::thread::allowed().unwrap()
}

/// The CPUs chosen by `two-cores`.
fn cpus() -> [u32; 2] {
    let cpus = cpus_here();
    [cpus[0], cpus[1]]
}

/// All paths and meters, in network namespaces.
pub fn laboratory(stop: &AtomicBool) -> Laboratory<'_> {
    Laboratory {
        paths: path::CATALOG,
        meters: meter::CATALOG,
        testbed: testbed::CATALOG[0],
        program: env!("CARGO_BIN_EXE_bytepath").into(),
        stop,
    }
}

fn cell(path: &str, link: &str, cores: &str) -> Cell {
    requested(path, "", link, cores)
}

fn requested(path: &str, stream: &str, link: &str, cores: &str) -> Cell {
    let cores = spec::parse_cores(cores, cpus_here()).unwrap();
    let paths = [path.to_owned()];
    let ask = CellRequest { stream, link, ..CellRequest::of(&paths, &cores) };
    let (cells, _) = spec::cells(&ask, &path_spec(path::CATALOG, path::PAIRS)).unwrap();
    cells.into_iter().next().unwrap()
}

/// Runs one trial with all meters, even on a busy machine.
fn run(cell: &Cell) -> Trial {
    let schedule = Schedule::trials(1, 0.1, 0.5);
    let stop = AtomicBool::new(false);
    let mut stand = OpenTestbed::raise(&laboratory(&stop), cell).unwrap();
    let meters: Vec<_> = meter::regular().collect();
    // Other programs may keep a stream from running for most of its window; then the attempt fails,
    // and another one may succeed.
    let mut attempts = (0..5).map(|_| stand.run(cell, &meters, &schedule, None));
    let trial = attempts.find_map(Result::ok).expect("one trial of five");
    assert_eq!(trial.roles.iter().map(|role| role.role).collect::<Vec<_>>(), Role::ALL);
    trial
}

/// Returns the non-zero readings of a metric by CPU.
fn of_cpus(trial: &Trial, metric: &str) -> Vec<(u32, f64)> {
    let of_cpu = |reading: &Reading| match reading.scope {
        Scope::Cpu(cpu) if reading.metric == metric && reading.value > 0.0 => {
            Some((cpu, reading.value))
        }
        _ => None,
    };
    trial.readings.iter().filter_map(of_cpu).collect()
}

fn out(name: &str) -> String {
    let folder = format!("placement-{name}-{}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let _ = std::fs::remove_dir_all(&folder);
    folder.to_str().unwrap().to_owned()
}

fn bytepath(arguments: &[&[&str]]) -> (i32, String, String) {
    said(Command::new(env!("CARGO_BIN_EXE_bytepath")).args(arguments.concat()))
}
