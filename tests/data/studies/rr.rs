//! A made-up study of request/response.

use super::made_up::{self, PATHS, cell, header};
use bytepath::record::{Latency, Ledger, Manner, SizeDistribution, Study, Trial, Work};
use std::time::Duration;

/// Bytes of a request and its response.
const MESSAGE: u64 = 128;

/// One made-up cell.
struct Made {
    name: &'static str,
    /// Typical latency in microseconds, block by block.
    typical: [f64; 5],
    /// Length of the tail.
    tail: f64,
    /// One exchange in 500 takes this many times as long.
    stalls: f64,
    /// CPUs kept busy at the client and at the server.
    busy: [f64; 2],
}

const MADE: [Made; 4] = [
    SOCKET,
    Made { name: "socket (again)", typical: [50.1, 50.6, 50.0, 49.8, 50.4], ..SOCKET },
    Made {
        name: "socket busy-poll=50",
        typical: [31.2, 31.6, 30.9, 31.4, 31.1],
        tail: 0.15,
        stalls: 20.0,
        busy: [0.99, 0.98],
    },
    Made { name: "uring", typical: [49.0, 53.0, 47.5, 52.0, 50.5], ..SOCKET },
];

const SOCKET: Made = Made {
    name: "socket",
    typical: [50.0, 50.7, 49.8, 50.1, 50.5],
    tail: 0.25,
    stalls: 6.0,
    busy: [0.41, 0.38],
};

/// Four cells in five blocks; the second is the null cell.
pub fn study() -> Study {
    let mut head = header(MADE.iter().map(|made| cell(made.name, "socket", "socket")).collect());
    (head.cells[3].tx.path, head.cells[3].rx.path) = ("uring".into(), "uring".into());
    head.ceiling = None;
    let all = (0..5).flat_map(|block| MADE.iter().map(move |made| (block, made)));
    let trials = all.zip(0..).map(|((block, made), order)| trial(made, block, order));
    Study { header: head, trials: trials.collect(), profiles: Vec::new(), remarks: Vec::new() }
}

fn trial(made: &Made, block: u32, order: u32) -> Trial {
    let mut trial = made_up::trial(&PATHS[0], block, order);
    let latency = latency(made, block);
    // A closed loop with one request at a time: as many requests as fit into the window.
    trial.count = (trial.window / latency.mean().unwrap()) as u64;
    trial.work = Work::Exchanges;
    trial.cell.0 = made.name.into();
    trial.latency = Some(latency);
    trial.series.clear();
    for role in &mut trial.roles {
        role.count = trial.count;
        role.total_bytes = trial.count * MESSAGE;
        role.ledger = Ledger::default();
        role.ledger.enter(Manner::Copied, role.total_bytes, trial.count, "send and recv copy");
        role.sizes = SizeDistribution::default();
        for call in &mut role.calls {
            (call.calls, call.bytes) = (2 * trial.count, role.total_bytes);
        }
    }
    for (cpu, busy) in (0..).zip(made.busy) {
        let of_cpu = |r: &&mut bytepath::record::Reading| {
            r.scope == bytepath::record::Scope::Cpu(cpu) && r.metric.starts_with("cpu.")
        };
        for reading in trial.readings.iter_mut().filter(of_cpu) {
            let part = match reading.metric.as_str() {
                "cpu.busy" => busy,
                "cpu.user" => busy * 0.2,
                "cpu.system" => busy * 0.6,
                "cpu.softirq" => busy * 0.2,
                "cpu.idle" => 1.0 - busy,
                _ => 0.0,
            };
            reading.value = part * trial.window;
        }
    }
    trial
}

/// Sixty thousand exchanges with an even spread of latencies.
fn latency(made: &Made, block: u32) -> Latency {
    const EXCHANGES: u32 = 60_000;
    let typical = made.typical[block as usize];
    let mut latency = Latency::default();
    for i in 0..EXCHANGES {
        let luck = (f64::from(i) + 0.5) / f64::from(EXCHANGES);
        let stalled = if i % 500 == 7 { made.stalls } else { 1.0 };
        let us = typical * (1.0 + made.tail * (-(1.0 - luck).ln() - 0.7)) * stalled;
        latency.record(Duration::from_secs_f64(us * 1e-6));
    }
    latency
}
