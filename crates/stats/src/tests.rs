//! Small cells, trials and studies that the tests of this crate share.

use bytepath_record::*;

/// A cell with the roles on CPU 0 and 1.
pub(crate) fn cell(id: &str) -> Cell {
    let half = || Half::plain("socket");
    Cell { placement: Placement::pinned(0, 1), ..Cell::new(id, half(), half()) }
}

/// A measured trial of a window in seconds that delivered this many bytes.
pub(crate) fn trial(cell: &str, block: u32, window: f64, count: u64) -> Trial {
    let role = |role| RoleRecord { total_bytes: count, count, window, ..RoleRecord::blank(role) };
    Trial {
        status: TrialStatus::Measured,
        window,
        count,
        label: "copied".into(),
        roles: Role::ALL.map(role).to_vec(),
        ..Trial::blank(CellId(cell.to_owned()), block, block)
    }
}

/// A thread with this run time and these ticks.
pub(crate) fn thread(name: &str, run: f64, user: f64, system: f64) -> ThreadTime {
    let name = name.to_owned();
    ThreadTime { name, tid: 1, run, wait: 0.0, user, system, voluntary: 0, involuntary: 0 }
}

/// A study of a, b and c with these rates, block by block.
pub(crate) fn study(within: f64, rows: &[[u64; 3]]) -> Study {
    let header = StudyHeader {
        schema: SCHEMA_VERSION,
        bytepath: String::new(),
        title: String::new(),
        started_ms: 0,
        testbed: String::new(),
        functional: None,
        instructions_per_second: None,
        kernels: Vec::new(),
        cells: ["a", "b", "c"].map(cell).to_vec(),
        baseline: CellId("a".into()),
        schedule: Schedule {
            stopping: Some(Stopping { within, at_least: 3 }),
            ..Schedule::trials(20, 0.0, 1.0)
        },
        judgement: Judgement::default(),
        meters: Vec::new(),
        loads: Vec::new(),
        source: None,
        facts: Vec::new(),
        ceiling: None,
        settings: Vec::new(),
        fingerprint: Default::default(),
        profiling: None,
        power: Default::default(),
    };
    let trials = rows.iter().zip(0..).flat_map(|(row, block)| {
        let each = ["a", "b", "c"].into_iter().zip(row);
        each.map(move |(name, bytes)| trial(name, block, 1.0, *bytes))
    });
    Study { header, trials: trials.collect(), profiles: Vec::new(), remarks: Vec::new() }
}

pub(crate) const SCHEDULE: Schedule =
    Schedule { max_interference: Some(0.10), ..Schedule::trials(1, 1.0, 3.0) };

/// Three seconds in which both CPUs were busy with their role's thread for
/// 2.7 s, 0.3 s of it under softirqs, and for 0.2 s with softirqs alone.
/// Two roles on CPUs of their own, judged by ticks: made up.
pub(crate) fn quiet() -> Trial {
    let mut t = trial("a", 0, 3.0, 1_000_000);
    read(&mut t, "cpu.wall", Scope::Machine, 3.0);
    for (cpu, record) in (0u32..).zip(&mut t.roles) {
        record.threads = vec![thread("engine", 2.7, 0.1, 2.3)];
        for (metric, value) in [
            ("cpu.busy", 2.9),
            ("cpu.user", 0.11),
            ("cpu.system", 2.2),
            ("cpu.softirq", 0.5),
            ("cpu.irq", 0.0),
            ("cpu.steal", 0.0),
        ] {
            let (metric, unit) = (metric.to_owned(), Unit::Seconds);
            t.readings.push(Reading::sum(metric, unit, value, Scope::Cpu(cpu)));
        }
    }
    t
}

pub(crate) fn read(t: &mut Trial, metric: &str, scope: Scope, value: f64) {
    t.readings.retain(|r| !(r.metric == metric && r.scope == scope));
    t.readings.push(Reading::sum(metric, Unit::Seconds, value, scope));
}

pub(crate) fn with_cpu(mut t: Trial, cpu: u32, values: &[(&str, f64)]) -> Trial {
    for (metric, value) in values {
        let metric = (*metric).to_owned();
        t.readings.push(Reading::sum(metric, Unit::Seconds, *value, Scope::Cpu(cpu)));
    }
    t
}

pub(crate) fn wall(mut t: Trial, seconds: f64) -> Trial {
    let metric = "cpu.wall".to_owned();
    t.readings.push(Reading::sum(metric, Unit::Seconds, seconds, Scope::Machine));
    t
}

pub(crate) fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-12
}
