//! The workload `rr` against sockperf, qperf, neper's tcp_rr and netperf, in the same namespaces,
//! on the same link, CPUs and congestion control, interleaved in rotating order. Prints medians,
//! and the ratio of ours to each with its interval.
//!
//! `cargo bench --bench rr [-- LINK ...]`; needs nsenter, taskset and root, and at least one of the
//! peers; a missing one is named and left out. Rounds and window by BENCH_PAIRS and BENCH_WINDOW
//! (seconds), another path by BENCH_PATH, requests a second of the open loop by BENCH_RATE.

mod common;
#[path = "common/namespace.rs"]
mod namespace;
#[path = "common/peer.rs"]
mod peer;

use anyhow::{Context, Result};
use bytepath::record::{Cell, Percentile, Schedule};
use bytepath::stats::Effect;
use bytepath::study::OpenTestbed;
use peer::{Peer, Run, neper, netperf, number};
use std::sync::atomic::AtomicBool;

/// Bytes of a request and of a response, for all.
const SIZE: &str = "64";

/// Seconds of our exchanges before the window: sockperf's own warm-up.
const WARM_UP: f64 = 0.4;

const CLOSED: &[Peer] = &[
    Peer {
        name: "sockperf ping-pong",
        server: "sockperf server --tcp -i ADDRESS -p PORT",
        client: "sockperf ping-pong --tcp -i ADDRESS -p PORT -m 64 --full-rtt -t SECONDS",
        read: sockperf,
        ..Peer::PLAIN
    },
    Peer {
        name: "qperf tcp_lat",
        server: "qperf -lp PORT",
        client: "qperf -lp PORT ADDRESS -t SECONDS -m 64 -uu -e 8 tcp_lat",
        read: qperf,
        ..Peer::PLAIN
    },
    Peer {
        name: "neper tcp_rr",
        server: "tcp_rr -C PORT -Q 64 -R 64 -l SECONDS",
        client: "tcp_rr -C PORT -c -H ADDRESS -l SECONDS -Q 64 -R 64",
        read: neper,
        ..Peer::PLAIN
    },
    Peer {
        name: "netperf TCP_RR",
        server: "netserver -D -p PORT",
        client: "netperf -H ADDRESS -p PORT -t TCP_RR -l SECONDS -P 0 -- -r 64,64",
        read: netperf,
        ..Peer::PLAIN
    },
];

const OPEN: &[Peer] = &[Peer {
    name: "sockperf under-load",
    server: "sockperf server --tcp -i ADDRESS -p PORT",
    client: "sockperf under-load --tcp -i ADDRESS -p PORT -m 64 --full-rtt --reply-every 1 --mps RATE \
             -t SECONDS",
    read: sockperf,
    ..Peer::PLAIN
}];

fn main() -> Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let links = if asked.is_empty() { vec!["wire".to_owned()] } else { asked };
    let rounds = common::number("BENCH_PAIRS", 10.0)? as usize;
    let window = common::number("BENCH_WINDOW", 2.0)?.ceil();
    let rate = common::number("BENCH_RATE", 5000.0)? as u64;
    println!("bytepath rr and peers, {SIZE} B each way, {rounds} rounds, {window} s windows");
    println!(
        "{:<8} {:<20} {:>14} {:>8} {:>8}  ratios of bytepath rr to it, 95 % intervals",
        "link", "program", "transactions/s", "p50 us", "p99 us"
    );
    for link in &links {
        let ours = format!("rr:request={SIZE},response={SIZE}");
        compare(link, &ours, CLOSED, rounds, window, rate)?;
        let ours = format!("{ours},outstanding=64,rate={rate}");
        compare(link, &ours, OPEN, rounds, window, rate)?;
    }
    Ok(())
}

fn compare(
    link: &str,
    workload: &str,
    peers: &[Peer],
    rounds: usize,
    window: f64,
    rate: u64,
) -> Result<()> {
    let (missing, peers): (Vec<&Peer>, Vec<&Peer>) = peers.iter().partition(|p| !p.is_there());
    missing.iter().for_each(|peer| println!("{link:<8} {:<20} is not installed", peer.name));
    let stop = AtomicBool::new(false);
    let laboratory = common::laboratory(&stop);
    let path = std::env::var("BENCH_PATH").unwrap_or_else(|_| "socket".into());
    let (cells, _) = common::cells_of(&[&path], workload, "congestion=cubic", link)?;
    let cell = cells.iter().find(|cell| !cell.null).context("no cell")?;
    let mut stand = OpenTestbed::raise(&laboratory, cell)?;
    let schedule = Schedule::trials(1, WARM_UP, window);
    let mut ours = Vec::new();
    let mut theirs = vec![Vec::new(); peers.len()];
    for round in 0..rounds {
        for turn in 0..=peers.len() {
            match ((round + turn) % (peers.len() + 1)).checked_sub(1) {
                None => ours.push(own(&mut stand, cell, &schedule)?),
                Some(n) => {
                    // A new port each time: the last one may still be in TIME_WAIT.
                    let port = 20_000 + round * (peers.len() + 1) + turn;
                    let words = [
                        ("PORT", port.to_string()),
                        ("SECONDS", window.to_string()),
                        ("RATE", rate.to_string()),
                    ];
                    theirs[n].push(peers[n].run(&stand, cell, &words)?);
                }
            }
        }
    }
    println!("{link:<8} {}", line(&format!("bytepath {path}"), &ours));
    for (peer, runs) in peers.iter().zip(&theirs) {
        let ratio = |name: &str, of: fn(&Run) -> Option<f64>| {
            let pairs =
                runs.iter().zip(&ours).filter_map(|(peer, own)| Some((of(peer)?, of(own)?)));
            let effect = Effect::of(&pairs.collect::<Vec<_>>(), 0.95)?;
            let within = effect.interval.as_ref()?;
            let mark = if (within.low..=within.high).contains(&1.0) { "" } else { "*" };
            Some(format!(
                "{name} {:.3}{mark} [{:.3}, {:.3}]",
                effect.ratio, within.low, within.high
            ))
        };
        let ratios =
            [ratio("rate", |r| Some(r.rate)), ratio("p50", |r| r.p50), ratio("p99", |r| r.p99)];
        let ratios: Vec<String> = ratios.into_iter().flatten().collect();
        println!("{link:<8} {}  {}", line(peer.name, runs), ratios.join(", "));
    }
    Ok(())
}

/// Medians of a program's runs.
fn line(name: &str, runs: &[Run]) -> String {
    let middle = |of: fn(&Run) -> Option<f64>| {
        let mut all: Vec<f64> = runs.iter().filter_map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).map_or("-".to_owned(), |value| format!("{value:.1}"))
    };
    let (rate, p50, p99) = (middle(|r| Some(r.rate)), middle(|r| r.p50), middle(|r| r.p99));
    format!("{name:<20} {rate:>14} {p50:>8} {p99:>8}")
}

fn own(stand: &mut OpenTestbed, cell: &Cell, schedule: &Schedule) -> Result<Run> {
    let trial = stand.run(cell, &[], schedule, None)?;
    let latency = trial.latency.as_ref().context("the trial has no latency")?;
    let microseconds = |percentile| latency.percentile(percentile).map(|s| s * 1e6);
    Ok(Run {
        rate: trial.rate().context("the trial has no rate")?,
        p50: microseconds(Percentile::P50),
        p99: microseconds(Percentile::P99),
    })
}

fn sockperf(text: &str) -> Option<Run> {
    let valid = text.lines().find(|line| line.contains("[Valid Duration]"))?;
    let (seconds, received) = (number(valid, "RunTime=")?, number(valid, "ReceivedMessages=")?);
    let percentile = |name: &str| number(text, &format!("percentile {name} ="));
    Some(Run { rate: received / seconds, p50: percentile("50.000"), p99: percentile("99.000") })
}

/// qperf reports half of the mean round trip: `latency = 12345 ns`.
fn qperf(text: &str) -> Option<Run> {
    let nanoseconds = number(&text.replace(',', ""), "latency  =")?;
    Some(Run { rate: 0.5e9 / nanoseconds, ..Run::default() })
}
