//! Servers with many connections: bytepath's event loops at both ends against small programs that
//! make the same calls (`plain/epoll.rs`, `plain/uring_loop.rs`), in the same namespaces, on the
//! same link, CPUs and congestion control, in rotating order; and, if they are on the PATH, against
//! neper (`tcp_rr`, `tcp_crr`, `tcp_stream`), whose threads have epoll loops, over one connection
//! against netperf, and for scale against wrk with nginx, whose messages are larger by HTTP's
//! headers and whose server closes first. Prints medians, and the ratio of each of our loops to
//! each program with its interval.
//!
//! `cargo bench --bench servers [-- CONNECTIONS ...]`; needs nsenter, taskset and root. Rounds and
//! window by BENCH_PAIRS and BENCH_WINDOW (seconds; whole ones for other programs), bytes of a
//! request and of a response by BENCH_SIZE, paths by BENCH_PATH (separated by commas).
//! BENCH_WORKLOAD=crr makes a connection for each request (`plain/crr.rs`, by epoll, whichever the
//! path; neper with its client's connections in TIME-WAIT, as ours); BENCH_WORKLOAD=stream keeps
//! all connections full, without a small program (bytes of a message by BENCH_SIZE, 1 MiB).

mod common;
#[path = "common/end.rs"]
mod end;
#[path = "common/namespace.rs"]
mod namespace;
#[path = "common/peer.rs"]
mod peer;
#[path = "plain/mod.rs"]
mod plain;

use anyhow::{Context, Result};
use bytepath::record::{Cell, Role, Schedule};
use bytepath::stats::Effect;
use bytepath::study::OpenTestbed;
use end::End;
use peer::{Peer, neper, neper_stream, netperf, wrk};
use std::sync::atomic::AtomicBool;

const PATHS: &str = "epoll,uring-loop";

const STREAM: &str = "stream";

const CONGESTION: &str = "cubic";

/// Seconds before a window.
const WARM_UP: f64 = 0.4;

fn main() -> Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    if let Some(played) = plain::played(&asked) {
        return played;
    }
    let all: Vec<u32> = match asked.as_slice() {
        [] => vec![1, 16, 256, 4096],
        some => some.iter().map(|text| text.parse()).collect::<Result<_, _>>()?,
    };
    let rounds = common::number("BENCH_PAIRS", 8.0)? as usize;
    let window = common::number("BENCH_WINDOW", 1.0)?;
    let streams = workload() == STREAM;
    let usual = if streams { f64::from(1 << 20) } else { 64.0 };
    let size = common::number("BENCH_SIZE", usual)? as usize;
    let paths = std::env::var("BENCH_PATH").unwrap_or_else(|_| PATHS.into());
    let load = if streams { "B a message, bytes" } else { "B each way, transactions" };
    println!("{size} {load} a second, {rounds} rounds, {window} s windows");
    println!(
        "{:>11}  {:<12} {:>12}  {:<10} {:>12}  ratio, 95 % interval",
        "connections", "loop", "bytepath/s", "against", "theirs/s"
    );
    for connections in all {
        let paths: Vec<&str> = paths.split(',').collect();
        compare(&paths, connections, size, rounds, window)
            .with_context(|| format!("{connections} connections"))?;
    }
    Ok(())
}

fn compare(
    paths: &[&str],
    connections: u32,
    size: usize,
    rounds: usize,
    window: f64,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    let laboratory = common::laboratory(&stop);
    let names: Vec<String> = paths.iter().map(|path| format!("{path}+{path}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let kind = workload();
    let streams = kind == STREAM;
    let (workload, sizes) = match streams {
        true => (kind.clone(), format!(",message-size={size},read-size={size}")),
        false => (format!("{kind}:request={size},response={size}"), String::new()),
    };
    let stream = format!("congestion={CONGESTION},flows={connections}{sizes}");
    let (cells, _) = common::cells_of(&names, &workload, &stream, "wire")?;
    let cells: Vec<&Cell> = cells.iter().filter(|cell| !cell.null).collect();
    let schedule = Schedule::trials(1, WARM_UP, window);
    let mut stand = OpenTestbed::raise(&laboratory, cells.first().context("no cell")?)?;
    let suits = |rival: &&Rival| {
        rival.workloads.contains(&kind.as_str())
            && connections <= rival.most
            && rival.peer.is_there()
    };
    let peers = RIVALS.iter().filter(suits).map(|rival| Turn::Peer(&rival.peer));
    let mut turns: Vec<Turn> = (0..cells.len()).map(Turn::Ours).collect();
    if !streams {
        turns.extend((0..cells.len()).map(Turn::Program));
    }
    turns.extend(peers);
    let mut rates = vec![Vec::new(); turns.len()];
    for round in 0..rounds {
        for turn in 0..turns.len() {
            let which = (round + turn) % turns.len();
            let rate = match turns[which] {
                Turn::Ours(at) => {
                    let trial = stand.run(cells[at], &[], &schedule, None)?;
                    trial.rate().context("the trial has no rate")?
                }
                Turn::Program(at) => {
                    let load = [size, connections as usize];
                    program(&stand, cells[at], (&kind, paths[at]), load, window)?
                }
                Turn::Peer(peer) => {
                    let port = 20_000 + round * turns.len() + turn;
                    let words = [
                        ("PORT", port.to_string()),
                        ("SECONDS", window.ceil().to_string()),
                        ("FLOWS", connections.to_string()),
                        ("SIZE", size.to_string()),
                        ("BODY", "x".repeat(size)),
                        ("IDLE", if kind == "crr" { "0" } else { "75s" }.into()),
                    ];
                    peer.run(&stand, cells[0], &words)?.rate
                }
            };
            rates[which].push(rate);
        }
    }
    for (turn, ours) in turns.iter().zip(&rates) {
        let Turn::Ours(at) = turn else { continue };
        for (other, theirs) in turns.iter().zip(&rates) {
            let against = match other {
                Turn::Program(program) if program == at => "program",
                Turn::Peer(peer) => peer.name,
                _ => continue,
            };
            let pairs: Vec<(f64, f64)> =
                theirs.iter().zip(ours).map(|(theirs, ours)| (*theirs, *ours)).collect();
            let effect = Effect::of(&pairs, 0.95).context("too few rounds")?;
            let within = effect.interval.as_ref().context("too few rounds")?;
            println!(
                "{connections:>11}  {:<12} {:>12.0}  {against:<10} {:>12.0}  {:.3} [{:.3}, {:.3}]",
                paths[*at],
                median(ours),
                median(theirs),
                effect.ratio,
                within.low,
                within.high
            );
        }
    }
    Ok(())
}

/// Whose turn it is: one of our cells, its small program, or another program.
enum Turn {
    Ours(usize),
    Program(usize),
    Peer(&'static Peer),
}

/// Another program for some workloads, and the most connections that it supports.
struct Rival {
    workloads: &'static [&'static str],
    most: u32,
    peer: Peer,
}

static RIVALS: [Rival; 6] = [
    Rival {
        workloads: &["rr"],
        most: u32::MAX,
        peer: Peer {
            name: "neper",
            server: "tcp_rr -C PORT -T 1 -Q SIZE -R SIZE -l SECONDS",
            client: "tcp_rr -C PORT -c -H ADDRESS -F FLOWS -T 1 -Q SIZE -R SIZE -l SECONDS",
            read: neper,
            ..Peer::PLAIN
        },
    },
    Rival {
        workloads: &["crr"],
        most: u32::MAX,
        peer: Peer {
            name: "neper",
            server: "tcp_crr -C PORT -T 1 -Q SIZE -R SIZE -l SECONDS --time-wait",
            client: "tcp_crr -C PORT -c -H ADDRESS -F FLOWS -T 1 -Q SIZE -R SIZE -l SECONDS --time-wait",
            read: neper,
            ..Peer::PLAIN
        },
    },
    Rival {
        workloads: &["rr"],
        most: 1,
        peer: Peer {
            name: "netperf",
            server: "netserver -D -p PORT",
            client: "netperf -H ADDRESS -p PORT -t TCP_RR -l SECONDS -P 0 -- -r SIZE,SIZE",
            read: netperf,
            ..Peer::PLAIN
        },
    },
    Rival {
        workloads: &["stream"],
        most: u32::MAX,
        peer: Peer {
            name: "neper",
            server: "tcp_stream -C PORT -T 1 -B SIZE -l SECONDS",
            client: "tcp_stream -C PORT -c -H ADDRESS -F FLOWS -T 1 -B SIZE -l SECONDS",
            read: neper_stream,
            ..Peer::PLAIN
        },
    },
    Rival {
        workloads: &["rr", "crr"],
        most: u32::MAX,
        peer: Peer {
            name: "nginx, wrk",
            server: NGINX,
            client: "wrk -t1 -cFLOWS -dSECONDSs http://ADDRESS:PORT/",
            read: wrk,
            config: NGINX_CONFIG,
        },
    },
    Rival {
        workloads: &["crr"],
        most: 1,
        peer: Peer {
            name: "netperf",
            server: "netserver -D -p PORT",
            client: "netperf -H ADDRESS -p PORT -t TCP_CRR -l SECONDS -P 0 -- -r SIZE,SIZE",
            read: netperf,
            ..Peer::PLAIN
        },
    },
];

const NGINX: &str = "nginx -p ./ -c config -e stderr";

/// A server with one process, without logs, whose responses are in memory.
const NGINX_CONFIG: &str = r#"
daemon off;
master_process off;
pid pid;
error_log stderr crit;
worker_rlimit_nofile 70000;
events { worker_connections 65536; use epoll; multi_accept on; }
http {
    access_log off;
    keepalive_requests 2000000000;
    keepalive_timeout IDLE;
    server {
        listen PORT backlog=16384;
        default_type text/plain;
        location / { return 200 "BODY"; }
    }
}
"#;

/// `rr`, `crr` or `stream`.
fn workload() -> String {
    std::env::var("BENCH_WORKLOAD").unwrap_or_else(|_| "rr".into())
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Transactions a second of the small program's client.
fn program(
    stand: &OpenTestbed,
    cell: &Cell,
    (kind, path): (&str, &str),
    [size, connections]: [usize; 2],
    window: f64,
) -> Result<f64> {
    let address = stand.address(Role::Receiver);
    let load = [size.to_string(), size.to_string(), connections.to_string()];
    let each = kind == "crr";
    let (serve, request): (&[&str], &[&str]) = match each {
        true => (&["serve-each", CONGESTION], &["request-each", CONGESTION]),
        false => (&["serve", path, CONGESTION], &["request", path, CONGESTION]),
    };
    let mut server = End::command(stand, cell, Role::Receiver)?;
    server.args(serve).arg(format!("{address}:0")).args(&load);
    let mut server = End::start(&mut server).context("cannot start the server")?;
    let port = server.line().context("the server's port")?;
    let mut client = End::command(stand, cell, Role::Sender)?;
    client.args(request).arg(format!("{address}:{port}")).args(&load);
    client.args([WARM_UP, window].map(|seconds| seconds.to_string()));
    let mut client = End::start(&mut client).context("cannot start the client")?;
    let result = client.line().context("the client's result")?;
    let (count, seconds) = result.split_once(' ').context("two numbers")?;
    client.ends_well().context("the client")?;
    server.ends_well().context("the server")?;
    Ok(count.parse::<f64>()? / seconds.parse::<f64>()?)
}
