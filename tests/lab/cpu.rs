//! The kernel's accounting of each CPU's time, over real streams.

use crate::placement::laboratory;
use bytepath::meter::{self, Meter};
use bytepath::record::{Cell, Fault, Role, Schedule, Scope, Trial};
use bytepath::spec::{self, CellRequest};
use bytepath::stats::{judge_events, role_cpu};
use bytepath::study::{OpenTestbed, path_spec};
use bytepath::{path, sys};
use bytepath_testing::{alone, skip};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn the_parts_of_each_cpu_add_up_and_agree_with_the_scheduler() {
    let _alone = alone();
    let cell = cell("two-cores");
    let Some(trial) = run(&cell) else { return };
    let wall = trial.reading("cpu.wall", &Scope::Machine).unwrap();
    for cpu in cpus(&trial) {
        let sum = |metrics: &[&str]| metrics.iter().map(|m| read(&trial, m, cpu)).sum::<f64>();
        let rest = ["cpu.softirq", "cpu.irq", "cpu.iowait", "cpu.idle"];
        let all = sum(&["cpu.user", "cpu.system"]) + sum(&rest);
        assert!((all / wall - 1.0).abs() < 0.01, "CPU {cpu}: {all} of {wall} s by kind");
        let mut parts = sum(&rest) + sum(&["cpu.napi", "cpu.foreign"]);
        for role in Role::ALL {
            let kinds = ["user", "system", "uring"].map(|kind| format!("cpu.{role}.{kind}"));
            parts += sum(&kinds.each_ref().map(String::as_str));
        }
        assert!((parts / wall - 1.0).abs() < 0.01, "CPU {cpu}: {parts} of {wall} s by role");
    }
    for role in Role::ALL {
        let own = cell.placement.cpu(role).unwrap();
        let kind = |kind: &str| read(&trial, &format!("cpu.{role}.{kind}"), own);
        let (user, system) = (kind("user"), kind("system"));
        // Calls are timed in only a part of the window, and a sender may stay in one call
        // throughout.
        assert!(system > 0.0, "{role}: {user} s and {system} s");
        // The scheduler charges interrupts to the thread that they interrupt, and, where a woken
        // thread waits for the running one to leave the kernel (PREEMPT_NONE), the time in between
        // to the woken one (`rq_clock_skip_update`, kernel/sched/core.c). So all threads of the
        // stream on this CPU are summed, and the time of foreign ones may have been charged either
        // way. The two were also read at different moments.
        let run: f64 = trial.role(role).unwrap().threads.iter().map(|t| t.run).sum();
        let looked = trial.reading("threads.wall", &Scope::Role(role)).unwrap();
        let [softirq, irq, napi, foreign, steal] = ["softirq", "irq", "napi", "foreign", "steal"]
            .map(|part| read(&trial, &format!("cpu.{part}"), own));
        // The scheduler subtracts time stolen by the hypervisor; this accounting does not see it.
        let edges = 0.02 + 0.02 * wall + 2.0 * (looked - wall).abs() + foreign + steal;
        let (threads, interrupts) = (user + system + napi, softirq + irq);
        let words =
            format!("{role}: {threads} (+ {interrupts}) of {run} s, edges {edges}, stolen {steal}");
        assert!(threads < run + edges, "{words}");
        assert!(threads + interrupts > run - edges, "{words}");
        let cost = role_cpu(&cell, &trial, role).unwrap();
        assert!(cost.exact && cost.system > 0.0 && cost.total <= 1.01, "{cost:?}");
    }
}

#[test]
fn a_burner_is_foreign_and_spoils_a_trial_on_the_streams_cpu_alone() {
    let _alone = alone();
    let cell = cell("one-core");
    let Some(allowed) = two_cpus() else { return };
    let own = cell.placement.sender.unwrap();
    for burning in allowed {
        let burner = Burner::on(burning);
        let Some(trial) = run(&cell) else { return };
        drop(burner);
        let wall = trial.reading("cpu.wall", &Scope::Machine).unwrap();
        let foreign = read(&trial, "cpu.foreign", burning) / wall;
        // The burner shares the CPU with the stream, and with whatever else runs on this machine.
        assert!(foreign > 0.2, "{foreign} of CPU {burning}");
        let events = judge_events(&trial, &cell, &SCHEDULE, &[]);
        let blamed = |cpu| events.disturbing.iter().any(|e| e.ends_with(&format!("of CPU {cpu}")));
        assert!(burning != own || blamed(own), "{events:?}");
        assert!(burning == own || !blamed(burning), "{events:?}");
    }
}

#[test]
fn waits_of_io_uring_are_iowait_only_where_they_may_be() {
    let _alone = alone();
    if !sys::uring::features().is_ok_and(|features| features.no_iowait) {
        skip!("this kernel counts every wait of io_uring as iowait");
        return;
    }
    let mut shares = Vec::new();
    for iowait in ["on", "off"] {
        let cell = cell_of(&format!("uring:iowait={iowait}"), "rr:rate=500", "two-cores");
        let Some(trial) = run(&cell) else { return };
        let wall = trial.reading("cpu.wall", &Scope::Machine).unwrap();
        let of = |metric| read(&trial, metric, cell.placement.receiver.unwrap());
        let free = of("cpu.iowait") + of("cpu.idle");
        if free < 0.2 * wall {
            skip!("others keep the server's CPU busy while it waits");
            return;
        }
        shares.push(of("cpu.iowait") / free);
    }
    let [on, off] = shares[..] else { panic!("{shares:?}") };
    // Anything else that waits for a disk on that CPU counts as well.
    assert!(on > 0.5 && off < 0.2, "{on} of the free time with waits that count, {off} without");
}

const SCHEDULE: Schedule = Schedule::trials(1, 0.1, 1.0);

/// Runs one trial with the meters of CPU time. Returns `None`, with the reason printed, if the
/// kernel keeps no such accounting.
fn run(cell: &Cell) -> Option<Trial> {
    let trial = trial(cell, &["cpu", "threads"], &SCHEDULE);
    if let Some(refused) = trial.warnings.iter().find(|w| w.contains("come from ticks")) {
        skip!("{refused}");
        return None;
    }
    Some(trial)
}

/// Runs one trial of a cell with these meters. Other programs may keep a stream from running for
/// most of its window; then the trial does not count, but one of five does.
pub fn trial(cell: &Cell, meters: &[&str], schedule: &Schedule) -> Trial {
    let stop = AtomicBool::new(false);
    let laboratory = laboratory(&stop);
    let wanted = |meter: &&'static Meter| meters.contains(&meter.name);
    let meters: Vec<_> = meter::selectable().filter(wanted).collect();
    let once = |_| OpenTestbed::raise(&laboratory, cell)?.run(cell, &meters, schedule, None);
    let faulty = |result: Result<Trial, Fault>| result.map_err(|fault| println!("{fault}")).ok();
    (0..5).map(once).find_map(faulty).expect("one trial of five")
}

fn read(trial: &Trial, metric: &str, cpu: u32) -> f64 {
    trial.reading(metric, &Scope::Cpu(cpu)).unwrap_or_else(|| panic!("no {metric} of CPU {cpu}"))
}

fn cpus(trial: &Trial) -> Vec<u32> {
    let foreign = trial.readings.iter().filter(|r| r.metric == "cpu.foreign");
    let cpus: Vec<u32> = foreign.filter_map(|r| r.scope.cpu()).collect();
    assert!(!cpus.is_empty(), "{:?}", trial.readings);
    cpus
}

/// `socket` over the default link, its ends on these CPUs.
pub fn cell(cores: &str) -> Cell {
    cell_of("socket", "", cores)
}

fn cell_of(path: &str, workload: &str, cores: &str) -> Cell {
    let allowed = sys::thread::allowed().unwrap();
    let cores = if allowed.len() > 1 { cores } else { "one-core" };
    let cores = spec::parse_cores(cores, &allowed).unwrap();
    let ask = CellRequest {
        paths: &[path.to_owned()],
        workload,
        stream: "",
        link: "wire",
        cores: &cores,
        baseline: None,
        kernels: &[],
    };
    let (cells, _) = spec::cells(&ask, &path_spec(path::CATALOG, path::PAIRS)).unwrap();
    cells.into_iter().next().unwrap()
}

fn two_cpus() -> Option<[u32; 2]> {
    let allowed = sys::thread::allowed().unwrap();
    let Some(two) = allowed.first_chunk() else {
        skip!("one CPU only");
        return None;
    };
    Some(*two)
}

/// A thread that uses as much of a CPU as it can, until it is dropped.
pub struct Burner(Arc<AtomicBool>);

impl Burner {
    pub fn on(cpu: u32) -> Burner {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        std::thread::spawn(move || {
            sys::thread::pin(cpu).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Burner(stop)
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
