//! A study like one of a default run, with plausible numbers and every kind of row: measured,
//! failed once, unavailable.

use bytepath::record::{
    CallRow, Cell, CellId, CopyCeiling, Facts, Fault, FaultKind, Half, Judgement, Ledger, Manner,
    Placement, Privileges, ProvenWitness, Reading, Role, RoleRecord, SCHEMA_VERSION, Schedule,
    Scope, Series, SizeDistribution, Study, StudyHeader, ThreadTime, Trial, TrialStatus, Unit,
};

const WINDOW: f64 = 3.0;

/// One path of the made-up study.
pub struct Path {
    name: &'static str,
    tx: &'static str,
    rx: &'static str,
    /// Gbit/s, block by block.
    gbit: [f64; 5],
    /// CPU time of the sender and of the receiver: user, system, softirq, iowait, as fractions of
    /// the window.
    cpu: [[f64; 4]; 2],
    /// The part of it that the engine's threads ran.
    threads: [f64; 2],
    /// Calls per trial.
    calls: [(&'static str, u64); 2],
    /// Fraction of the bytes that the receiver mapped.
    mapped: f64,
    /// The manner and the source in the sender's ledger.
    sent: (Manner, &'static str),
    witness: ProvenWitness,
    label: &'static str,
}

const COPIED_BY_SEND: (Manner, &str) = (Manner::Copied, "send copies by definition");

const SOCKET: Path = Path {
    name: "socket",
    tx: "socket",
    rx: "socket",
    gbit: [28.1, 27.6, 28.4, 27.9, 28.2],
    cpu: [[0.010, 0.70, 0.20, 0.0], [0.011, 0.83, 0.05, 0.0]],
    threads: [0.90, 0.85],
    calls: [("send", 10_050), ("recv", 10_120)],
    mapped: 0.0,
    sent: COPIED_BY_SEND,
    witness: ProvenWitness::Copied,
    label: "copied",
};

/// The measured paths, the null cell second.
pub const PATHS: [Path; 7] = [
    SOCKET,
    Path { name: "socket (again)", gbit: [28.0, 27.9, 28.1, 27.8, 28.5], ..SOCKET },
    Path {
        name: "sendfile",
        tx: "sendfile",
        rx: "socket",
        gbit: [28.2, 27.7, 28.3, 28.0, 28.4],
        cpu: [[0.004, 0.51, 0.22, 0.0], [0.012, 0.84, 0.05, 0.0]],
        threads: [0.70, 0.86],
        calls: [("sendfile", 10_700), ("recv", 10_700)],
        mapped: 0.0,
        sent: (Manner::NotCopied, "sendfile page references"),
        witness: ProvenWitness::Shared,
        label: "zero-copy send, receive copied",
    },
    Path {
        name: "splice",
        tx: "splice",
        rx: "tcp-zerocopy-receive",
        gbit: [33.9, 33.1, 34.4, 33.6, 34.0],
        cpu: [[0.006, 0.43, 0.24, 0.0], [0.031, 0.80, 0.06, 0.0]],
        threads: [0.67, 0.80],
        calls: [("splice", 24_000), ("getsockopt", 13_000)],
        mapped: 0.973,
        sent: (Manner::NotCopied, "tee + splice of pipe pages"),
        witness: ProvenWitness::Shared,
        label: "zero-copy",
    },
    Path {
        name: "msg-zerocopy",
        tx: "msg-zerocopy",
        rx: "tcp-zerocopy-receive",
        gbit: [21.8, 24.6, 22.3, 20.9, 23.7],
        cpu: [[0.03, 0.38, 0.41, 0.0], [0.02, 0.61, 0.14, 0.0]],
        threads: [0.80, 0.60],
        calls: [("sendmsg", 8_000), ("getsockopt", 9_100)],
        mapped: 1.0,
        sent: (Manner::Copied, "MSG_ZEROCOPY completion with COPIED"),
        witness: ProvenWitness::Copied,
        label: "zero-copy receive, send copied by the kernel",
    },
    Path {
        name: "uring",
        tx: "uring",
        rx: "uring",
        gbit: [29.3, 27.0, 28.9, 27.3, 30.1],
        cpu: [[0.012, 0.71, 0.19, 0.02], [0.010, 0.79, 0.05, 0.11]],
        threads: [0.90, 0.84],
        calls: [("io_uring_enter", 2_900), ("io_uring_enter", 3_800)],
        mapped: 0.0,
        sent: (Manner::Copied, "SEND copies by definition"),
        witness: ProvenWitness::Copied,
        label: "copied",
    },
    Path {
        name: "uring-zc",
        tx: "uring-zc",
        rx: "uring",
        gbit: [20.1, 20.4, 19.9, 20.3, 20.2],
        cpu: [[0.014, 0.37, 0.44, 0.0], [0.010, 0.55, 0.09, 0.0]],
        threads: [0.80, 0.60],
        calls: [("io_uring_enter", 2_100), ("io_uring_enter", 2_700)],
        mapped: 0.0,
        sent: (Manner::Copied, "SEND_ZC notification with COPIED"),
        witness: ProvenWitness::Copied,
        label: "copied",
    },
];

/// The study: [`PATHS`] in five blocks; zcrx and devmem are unavailable, and one trial of uring-zc
/// failed.
pub fn study() -> Study {
    let mut cells: Vec<Cell> = PATHS.iter().map(|p| cell(p.name, p.tx, p.rx)).collect();
    cells.push(cell("zcrx", "uring-zc", "zcrx"));
    cells.push(cell("devmem", "devmem", "devmem"));
    let mut trials: Vec<Trial> = Vec::new();
    for block in 0..5 {
        for path in &PATHS {
            let order = trials.len() as u32;
            trials.push(trial(path, block, order));
        }
    }
    let lost = trials.iter_mut().find(|t| t.cell.0 == "uring-zc" && t.block == 3).unwrap();
    let fault = Fault::new(FaultKind::PeerLost, "receiver: killed by signal 9 (SIGKILL)")
        .remedy("look for the out-of-memory killer in the kernel log");
    *lost = bare(lost.clone(), TrialStatus::Failed { fault });
    for (name, reason, remedy) in [
        (
            "zcrx",
            "io_uring.zcrx: Operation not supported",
            "needs a device whose driver supports memory providers (mlx5, gve, bnxt, fbnic)",
        ),
        ("devmem", "/dev/udmabuf is missing", "needs a kernel with CONFIG_UDMABUF"),
    ] {
        let (reason, remedy) = (reason.into(), remedy.into());
        let mut t = bare(trials[0].clone(), TrialStatus::Unavailable { reason, remedy });
        t.cell = CellId(name.into());
        trials.push(t);
    }
    Study { header: header(cells), trials, profiles: Vec::new(), remarks: Vec::new() }
}

/// A cell with the roles on CPUs 0 and 1; the null cell is recognised by its name.
pub fn cell(name: &str, tx: &str, rx: &str) -> Cell {
    Cell {
        placement: Placement::pinned(0, 1),
        null: name.contains("again"),
        ..Cell::new(name, Half::plain(tx), Half::plain(rx))
    }
}

/// A measured trial of a path.
pub fn trial(path: &Path, block: u32, order: u32) -> Trial {
    let window_bytes = (path.gbit[block as usize] * 1e9 / 8.0 * WINDOW) as u64;
    let warnings = match (path.name, block) {
        ("splice", 1) => vec!["CPU 1: steal 1.3 % of the window".into()],
        ("uring", 4) => vec!["CPU 0: steal 2.1 % of the window".into()],
        _ => Vec::new(),
    };
    Trial {
        started_ms: 1_795_000_000_000 + u64::from(order) * 5_000,
        status: TrialStatus::Measured,
        window: WINDOW,
        count: window_bytes,
        label: path.label.into(),
        roles: Role::ALL.map(|role| record(path, role, window_bytes)).to_vec(),
        readings: readings(path),
        series: vec![series(path, block, window_bytes)],
        warnings,
        ..Trial::blank(CellId(path.name.into()), block, order)
    }
}

fn readings(path: &Path) -> Vec<Reading> {
    let mut readings = vec![
        Reading::sum("cpu.wall", Unit::Seconds, WINDOW, Scope::Machine),
        Reading::sum("tcp.retransmits", Unit::Count, 0.0, Scope::Flow(Role::Sender, 0)),
    ];
    for (cpu, [user, system, softirq, iowait]) in path.cpu.into_iter().enumerate() {
        let busy = user + system + softirq;
        let parts = [
            ("cpu.user", user),
            ("cpu.system", system),
            ("cpu.softirq", softirq),
            ("cpu.irq", 0.0),
            ("cpu.iowait", iowait),
            ("cpu.idle", 1.0 - busy - iowait),
            ("cpu.steal", 0.0),
            ("cpu.busy", busy),
        ];
        readings.extend(parts.map(|(metric, part)| {
            Reading::sum(metric, Unit::Seconds, part * WINDOW, Scope::Cpu(cpu as u32))
        }));
    }
    readings
}

/// Throughput of the flow over time; in the third block of uring it stalls for 0.2 s.
fn series(path: &Path, block: u32, window_bytes: u64) -> Series {
    let stalls = path.name == "uring" && block == 2;
    let mean = window_bytes as f64 / WINDOW;
    let step = |i: u32| match i {
        11 | 12 if stalls => 0.0,
        i => mean * (0.97 + 0.02 * f64::from(i % 4)),
    };
    Series {
        metric: "throughput".into(),
        unit: Unit::BytesPerSecond,
        scope: Scope::Flow(Role::Receiver, 0),
        step: 0.1,
        values: (0..30).map(step).collect(),
    }
}

fn record(path: &Path, role: Role, window_bytes: u64) -> RoleRecord {
    let at = role as usize;
    let total_bytes = window_bytes + window_bytes / 3;
    let mut ledger = Ledger::default();
    match role {
        Role::Sender => ledger.enter(path.sent.0, total_bytes, total_bytes >> 20, path.sent.1),
        Role::Receiver => {
            let mapped = (total_bytes as f64 * path.mapped) as u64;
            let source = "TCP_ZEROCOPY_RECEIVE mapped length";
            ledger.enter(Manner::NotCopied, mapped, mapped >> 19, source);
            let rest = total_bytes - mapped;
            ledger.enter(Manner::Copied, rest, rest >> 20, "recv copies by definition");
        }
    }
    let (name, calls) = path.calls[at];
    let inside = path.threads[at] * WINDOW * 0.97;
    let call = CallRow {
        name: name.into(),
        calls,
        errors: u64::from(role == Role::Receiver) * 3,
        bytes: window_bytes,
        total: inside,
        min: 0.000_004,
        avg: inside / calls as f64,
        max: 0.0041,
        stddev_percent: 0.31,
    };
    let thread = ThreadTime {
        name: format!("{role}-0"),
        tid: 100 + at as u32,
        run: path.threads[at] * WINDOW,
        wait: 0.01,
        user: path.cpu[at][0] * WINDOW,
        system: path.cpu[at][1] * WINDOW,
        voluntary: 900,
        involuntary: 12,
    };
    let pieces = (window_bytes >> 20) + 700;
    let ran_out = path.name == "uring" && role == Role::Receiver;
    RoleRecord {
        role,
        total_bytes,
        count: window_bytes,
        window: WINDOW,
        ledger,
        calls: vec![call],
        calls_by_thread: Vec::new(),
        sizes: SizeDistribution {
            count: pieces,
            min: 4096,
            mean: window_bytes as f64 / pieces as f64,
            max: 1 << 20,
            percentiles: vec![(50.0, 1 << 20)],
        },
        fragments: None,
        latency: None,
        hops: None,
        threads: vec![thread],
        witness: (role == Role::Sender).then_some(path.witness),
        notes: if ran_out { vec!["205 times out of buffers".into()] } else { Vec::new() },
    }
}

/// A trial with nothing but its status.
pub fn bare(trial: Trial, status: TrialStatus) -> Trial {
    let blank = Trial::blank(trial.cell, trial.block, trial.order);
    Trial { status, started_ms: trial.started_ms, ..blank }
}

/// Six trials of a cell that moves `gbit` Gbit/s with hardly any scatter, using `busy` of a CPU at
/// each end. They have no readings; `first` is the order of the first one.
#[allow(dead_code, reason = "of those who share this file, one needs it")]
pub fn steady_trials(cell: &Cell, [gbit, busy]: [f64; 2], first: usize) -> Vec<Trial> {
    let blank = trial(&PATHS[0], 0, 0);
    let made = |block: u32| {
        let noise = 1.0 + f64::from(block) * 1e-3;
        let mut roles = blank.roles.clone();
        for role in &mut roles {
            role.threads = vec![ThreadTime {
                name: format!("{}/0", role.role),
                tid: 1,
                run: busy * blank.window,
                wait: 0.0,
                user: busy,
                system: 0.0,
                voluntary: 0,
                involuntary: 0,
            }];
        }
        Trial {
            cell: CellId(cell.id.0.clone()),
            block,
            order: first as u32 + block,
            count: (gbit * noise * 1e9 / 8.0 * blank.window) as u64,
            roles,
            readings: Vec::new(),
            series: Vec::new(),
            warnings: Vec::new(),
            ..blank.clone()
        }
    };
    (0..6).map(made).collect()
}

/// The head of a study with these cells.
pub fn header(cells: Vec<Cell>) -> StudyHeader {
    let facts = Facts {
        machine: "a".into(),
        kernel_release: "6.18.0".into(),
        architecture: "x86_64".into(),
        cpu_model: "AMD EPYC 9B14".into(),
        cpus: vec![0, 1],
        memory: 24 << 30,
        page_size: 4096,
        privileges: Privileges { euid: 0, user_namespace: false, capabilities: Vec::new() },
        ..Facts::default()
    };
    StudyHeader {
        schema: SCHEMA_VERSION,
        bytepath: "0.1.0".into(),
        started_ms: 1_795_000_000_000,
        title: String::new(),
        testbed: "netns".into(),
        functional: None,
        instructions_per_second: None,
        kernels: Vec::new(),
        cells,
        baseline: CellId("socket".into()),
        schedule: Schedule { seed: 42, ..Schedule::trials(5, 1.0, WINDOW) },
        judgement: Judgement::default(),
        meters: vec!["throughput".into(), "cpu".into()],
        loads: Vec::new(),
        source: None,
        profiling: None,
        power: Default::default(),
        facts: vec![facts.clone(), facts],
        ceiling: Some(CopyCeiling {
            workload: 11.9e9,
            workload_size: 1 << 20,
            memory: 10.2e9,
            memory_size: 256 << 20,
        }),
        settings: Vec::new(),
        fingerprint: Default::default(),
    }
}

/// A large study: this many cells in this many blocks, each trial with the readings and the series
/// of a ten-second window.
#[allow(dead_code, reason = "not every test that includes this file wants a large one")]
pub fn large(cells: usize, blocks: u32) -> Study {
    let names: Vec<String> = (0..cells)
        .map(|i| match i {
            0 => "socket".into(),
            i => format!("{} read-size={}K", PATHS[2 + i % 5].name, 64 * i),
        })
        .collect();
    let path = |i: usize| &PATHS[if i == 0 { 0 } else { 2 + i % 5 }];
    let head = names.iter().enumerate().map(|(i, name)| cell(name, path(i).tx, path(i).rx));
    let mut study = Study {
        header: header(head.collect()),
        trials: Vec::new(),
        profiles: vec![],
        remarks: vec![],
    };
    study.header.schedule.blocks = blocks;
    for block in 0..blocks {
        for (i, name) in names.iter().enumerate() {
            let order = study.trials.len() as u32;
            let mut trial = trial(path(i), block % 5, order);
            trial.cell = CellId(name.clone());
            trial.block = block;
            trial.count += u64::from(order % 17) * 10_000_000;
            let steps = trial.series[0].values.clone();
            trial.series[0].values = steps.iter().cycle().take(100).copied().collect();
            for flow in 0..16 {
                let scope = Scope::Flow(Role::ALL[flow as usize / 8], 0);
                let (metric, value) =
                    (format!("tcp.made-up-{}", flow % 8), f64::from(flow * order));
                trial.readings.push(Reading::sum(metric, Unit::Count, value, scope));
            }
            study.trials.push(trial);
        }
    }
    study
}
