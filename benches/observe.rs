//! What watching costs: iperf3 over loopback alone, under `bytepath observe` in
//! each of its ways to count, under `perf trace -s`, and under `strace -c -f`,
//! one after the other in every round. Prints throughput and its ratio to
//! iperf3 alone: median and range.
//!
//! `cargo bench --bench observe`; needs iperf3 and root, and perf and strace for
//! their lines. Rounds and seconds of each run by BENCH_PAIRS and BENCH_WINDOW;
//! options of the client by BENCH_IPERF3 (default: -l 128K -C cubic).

#[path = "common/iperf3.rs"]
mod iperf3;

use anyhow::{Context, Result};
use iperf3::{Server, median};
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// What iperf3 runs under. The first is the yardstick; it is there twice, so
/// that the noise between two runs of the same thing can be seen.
const WATCHERS: &[(&str, &[&str])] = &[
    ("alone", &[]),
    ("alone (again)", &[]),
    ("observe", &[BYTEPATH, "observe", "--sample", "none", "--out", "/dev/null", "--"]),
    ("observe, with a profile", &[BYTEPATH, "observe", "--out", "/dev/null", "--"]),
    (
        "observe, hash",
        &[BYTEPATH, "observe", "--sample=none", "--count", "hash", "--out", "/dev/null", "--"],
    ),
    (
        "observe, tracepoints",
        &[BYTEPATH, "observe", "--count", "tracepoints", "--out", "/dev/null", "--"],
    ),
    ("perf trace -s", &["perf", "trace", "-s", "-o", "/dev/null", "--"]),
    ("strace -c -f", &["strace", "-c", "-f", "-o", "/dev/null"]),
];

const BYTEPATH: &str = env!("CARGO_BIN_EXE_bytepath");

fn main() -> Result<()> {
    let rounds = number("BENCH_PAIRS", 7.0)? as usize;
    let window = number("BENCH_WINDOW", 2.0)?;
    let options = std::env::var("BENCH_IPERF3").unwrap_or_else(|_| "-l 128K -C cubic".into());
    println!("iperf3 {options}, loopback, {rounds} rounds of {window} s each");
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); WATCHERS.len()];
    let mut missing = vec![None; WATCHERS.len()];
    for round in 0..rounds {
        // Another one begins each round, so that none is always after the same.
        for i in (0..WATCHERS.len()).map(|i| (i + round) % WATCHERS.len()) {
            if missing[i].is_some() {
                rates[i].push(f64::NAN);
                continue;
            }
            match run(WATCHERS[i].1, &options, window) {
                Ok(rate) => rates[i].push(rate),
                // Without iperf3 itself there is nothing to compare with.
                Err(e) if i == 0 => return Err(e),
                Err(e) => {
                    missing[i] = Some(format!("{e:#}"));
                    rates[i].push(f64::NAN);
                }
            }
        }
    }
    println!("{:<22} {:>8}  {:>6}  range", "under", "Gbit/s", "ratio");
    for (i, (name, _)) in WATCHERS.iter().enumerate() {
        if let Some(why) = &missing[i] {
            println!("{name:<22} did not run: {why}");
            continue;
        }
        let ratios: Vec<f64> = rates[i].iter().zip(&rates[0]).map(|(a, b)| a / b).collect();
        let (low, high) =
            ratios.iter().fold((f64::MAX, f64::MIN), |(l, h), r| (l.min(*r), h.max(*r)));
        let (rate, ratio) = (median(&rates[i]), median(&ratios));
        println!("{name:<22} {:>8.2}  {ratio:>6.3}  {low:.3} to {high:.3}", rate / 1e9);
    }
    Ok(())
}

/// One run of the client under a watcher; bit/s at the receiver.
fn run(watcher: &[&str], options: &str, window: f64) -> Result<f64> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let mut server = Command::new("iperf3");
    server.args(["-p", &port]);
    let server = Server::listening(server)?;
    let seconds = format!("{}", window.ceil() as u64);
    let client = ["iperf3", "-c", "127.0.0.1", "-p", &port, "-J", "-t", &seconds];
    let words: Vec<&str> = watcher.iter().copied().chain(client).collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .args(options.split_whitespace())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot run {}", words[0]))?;
    drop(server);
    iperf3::received(&output)
}

/// A number from the environment.
fn number(name: &str, default: f64) -> Result<f64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is no number")),
        Err(_) => Ok(default),
    }
}
