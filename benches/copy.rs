//! The speed of the copy engines that need no device: the CPU engine compared with the best of its
//! methods at each size, and the cost to its caller of a submission by the DSA driver, against the
//! model.
//!
//! `cargo bench --bench copy`; rounds and seconds of a trial by BENCH_ROUNDS, BENCH_WINDOW. Fails
//! if `cpu:method=best` is more than 3 % slower than the best method at any size, or if a
//! submission takes 100 ns or more.

mod common;
#[path = "../crates/engine/tests/support/dsa_model.rs"]
mod dsa_model;
#[path = "common/ratios.rs"]
mod ratios;

use anyhow::{Context, Result, ensure};
use bytepath::copy::trial::{Load, Outcome, memories, on_cpu, run};
use bytepath::copy::{Memories, Shape, engine};
use bytepath::record::{OptionValue, Options};
use bytepath::sys::thread;
use ratios::Ratios;
use std::time::Duration;

const WAYS: [&str; 3] = ["cpu:method=memmove", "cpu:method=rep-movsb", "cpu:method=non-temporal"];

/// Least fraction of the best method's rate that the engine must reach.
const NEAR: f64 = 0.97;

/// Largest time of a submission in nanoseconds.
const SUBMISSION: f64 = 100.0;

fn main() -> Result<()> {
    let first = *thread::allowed()?.first().context("no CPU")?;
    let measured = on_cpu(Some(first), || Ok(measure()));
    measured.map_err(|fault| anyhow::anyhow!("{fault}"))?
}

fn measure() -> Result<()> {
    let rounds = common::number("BENCH_ROUNDS", 9.0)? as usize;
    let time = Duration::from_secs_f64(common::number("BENCH_WINDOW", 0.1)?);
    let loads: Vec<Load> = [false, true]
        .into_iter()
        .flat_map(|rotate| {
            (6..=20).step_by(2).map(move |power| {
                let shape = Shape { depth: 1, batch: 1 };
                Load { size: 1 << power, shape, rotate, time }
            })
        })
        .collect();
    let memories = memories(&loads)?;
    let mut slow = Vec::new();
    println!(
        "{:>8} {:<6} {:>8} {:>8} {:>8} {:>8}",
        "bytes", "memory", "memmove", "rep", "nt", "best"
    );
    for load in &loads {
        let ratio = ways(&memories, load, rounds)?;
        if ratio < NEAR {
            slow.push(format!("{} bytes, {}: {ratio:.3}", load.size, memory(load)));
        }
    }
    let mut dear = Vec::new();
    let number = OptionValue::Number;
    let fast = [
        ("latency", number(0)),
        ("bandwidth", number(1 << 40)),
        ("size", number(128)),
        ("queues", number(1)),
    ];
    let fast = Options(fast.map(|(name, value)| (name.to_owned(), value)).into());
    println!("\nmodel of a DSA: ns of the caller for a submission");
    for (depth, batch) in [(8, 1), (32, 1), (32, 8)] {
        let load = Load { size: 64, shape: Shape { depth, batch }, rotate: false, time };
        let each = (0..rounds).map(|_| {
            let Outcome { copies, submitting, .. } =
                run((&dsa_model::KIND, &fast), &memories, &load)
                    .map_err(|fault| anyhow::anyhow!("{fault}"))?;
            Ok(submitting / copies as f64 * 1e9)
        });
        let each = Ratios::new(each.collect::<Result<_>>()?);
        println!(
            "depth {depth:>2}, batch {batch}: {:.1} ({:.1} .. {:.1})",
            each.at(0.5),
            each.at(0.0),
            each.at(1.0)
        );
        if each.at(0.5) >= SUBMISSION {
            dear.push(format!("depth {depth}, batch {batch}: {:.1} ns", each.at(0.5)));
        }
    }
    ensure!(slow.is_empty(), "below {NEAR} of the best way: {}", slow.join("; "));
    ensure!(dear.is_empty(), "submissions of {SUBMISSION} ns and more: {}", dear.join("; "));
    Ok(())
}

fn memory(load: &Load) -> &'static str {
    if load.rotate { "cold" } else { "hot" }
}

/// Measures all methods and the engine that chooses, alternately; returns the median ratio of its
/// rate to the best method's.
fn ways(memories: &Memories, load: &Load, rounds: usize) -> Result<f64> {
    let all = WAYS.into_iter().chain(["cpu:method=best"]);
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); WAYS.len() + 1];
    for _ in 0..rounds {
        for (text, rates) in all.clone().zip(&mut rates) {
            let Outcome { copies, seconds, .. } = one(text, memories, load)?;
            rates.push(copies as f64 * f64::from(load.size) / seconds);
        }
    }
    let middle = |rates: &Vec<f64>| Ratios::new(rates.clone()).at(0.5);
    let middles: Vec<f64> = rates.iter().map(middle).collect();
    let best =
        (0..WAYS.len()).max_by(|a, b| middles[*a].total_cmp(&middles[*b])).context("none")?;
    let pairs = rates[WAYS.len()].iter().zip(&rates[best]).map(|(ours, best)| ours / best);
    let ratio = Ratios::new(pairs.collect()).at(0.5);
    let shown: Vec<String> = middles.iter().map(|rate| format!("{:>8.2}", rate / 1e9)).collect();
    println!(
        "{:>8} {:<6} {} GB/s, {ratio:.3} of {}",
        load.size,
        memory(load),
        shown.join(" "),
        WAYS[best]
    );
    Ok(ratio)
}

fn one(text: &str, memories: &Memories, load: &Load) -> Result<Outcome> {
    let (kind, options) = engine(text).map_err(|fault| anyhow::anyhow!("{fault}"))?;
    run((kind, &options), memories, load).map_err(|fault| anyhow::anyhow!("{fault}"))
}
