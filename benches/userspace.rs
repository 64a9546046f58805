//! The user-space TCP of `userspace` against the kernel's on the same pair of namespaces, and
//! against smoltcp as its own benchmark drives it, in both directions, on the same CPUs,
//! interleaved in rotating order. Prints medians, and the ratio of ours to each with its interval.
//!
//! `cargo bench --bench userspace`; needs root, ip, unshare. Rounds and window by BENCH_PAIRS and
//! BENCH_WINDOW (seconds).

mod common;
#[path = "plain/mod.rs"]
mod plain;

use anyhow::{Context, Result, ensure};
use bytepath::record::{Cell, Role, Schedule};
use bytepath::stats::Effect;
use bytepath::study::OpenTestbed;
use std::process::Command;
use std::sync::atomic::AtomicBool;

const MTU: &str = "9000";
const WARM_UP: f64 = 0.5;

fn main() -> Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    if let Some(played) = plain::played(&asked) {
        return played;
    }
    let rounds = common::number("BENCH_PAIRS", 7.0)? as usize;
    let window = common::number("BENCH_WINDOW", 2.0)?;
    println!("bytepath's user-space TCP and peers, MTU {MTU}, {rounds} rounds, {window} s windows");
    println!("{:<36} {:>7}  ratio of bytepath's to it, 95 % interval", "program", "Gbit/s");
    for (path, direction) in [("userspace+socket", "out"), ("socket+userspace", "in")] {
        compare(path, direction, rounds, window)?;
    }
    Ok(())
}

fn compare(path: &str, direction: &str, rounds: usize, window: f64) -> Result<()> {
    let stop = AtomicBool::new(false);
    let laboratory = common::laboratory(&stop);
    let link = format!("wire:mtu={MTU}");
    let (cells, _) = common::cells(&[path, "socket"], "message-size=256K", &link)?;
    let of = |tx: &str, rx: &str| {
        let is_meant = |cell: &&Cell| !cell.null && cell.tx.path == tx && cell.rx.path == rx;
        cells.iter().find(is_meant).context("no such cell")
    };
    let (tx, rx) = path.split_once('+').context("two halves")?;
    let (ours, kernel) = (of(tx, rx)?, of("socket", "socket")?);
    let mut stand = OpenTestbed::raise(&laboratory, ours)?;
    let mut rates = [const { Vec::new() }; 3];
    for round in 0..rounds {
        for turn in 0..rates.len() {
            let whose = (round + turn) % rates.len();
            rates[whose].push(match whose {
                0 => own(&mut stand, ours, window)?,
                1 => own(&mut stand, kernel, window)?,
                _ => smoltcp(ours, direction, window)?,
            });
        }
    }
    let [ours, theirs @ ..] = &rates;
    println!("{}", line(&format!("bytepath {path}"), ours));
    let names = ["bytepath socket (the kernel's)", "smoltcp's own benchmark"];
    for (name, theirs) in names.into_iter().zip(theirs) {
        let pairs: Vec<_> = theirs.iter().copied().zip(ours.iter().copied()).collect();
        let effect = Effect::of(&pairs, 0.95).context("no ratio")?;
        let within = effect.interval.as_ref().context("too few rounds")?;
        let name = line(&format!("{name}, {direction}"), theirs);
        println!("{name}  {:.2} [{:.2}, {:.2}]", effect.ratio, within.low, within.high);
    }
    Ok(())
}

fn line(name: &str, rates: &[f64]) -> String {
    let mut all = rates.to_vec();
    all.sort_by(f64::total_cmp);
    format!("{name:<36} {:>7.2}", all[all.len() / 2] / 1e9)
}

/// Bit/s of one of our trials.
fn own(stand: &mut OpenTestbed, cell: &Cell, window: f64) -> Result<f64> {
    let trial = stand.run(cell, &[], &Schedule::trials(1, WARM_UP, window), None)?;
    Ok(trial.rate().context("the trial has no throughput")? * 8.0)
}

/// Bit/s of smoltcp's benchmark, on the CPUs of a cell: the stack has the CPU of the end that
/// `userspace` plays.
fn smoltcp(cell: &Cell, direction: &str, window: f64) -> Result<f64> {
    let (stack, client) = match direction {
        "in" => (Role::Receiver, Role::Sender),
        _ => (Role::Sender, Role::Receiver),
    };
    let mut command = Command::new("unshare");
    command.arg("-n").arg(std::env::current_exe()?).args([plain::PLAIN, "smoltcp", direction, MTU]);
    for role in [stack, client] {
        command.arg(cell.placement.cpu(role).context("no CPU")?.to_string());
    }
    command.args([WARM_UP, window].map(|seconds| seconds.to_string()));
    let output = command.output().context("cannot start unshare")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "smoltcp's benchmark failed: {errors}");
    let (bytes, seconds) = said.trim().split_once(' ').context("two numbers")?;
    Ok(bytes.parse::<f64>()? * 8.0 / seconds.parse::<f64>()?)
}
