//! What watching costs: the same stream with all meters and with none,
//! interleaved in one testbed; prints the ratio's median and range. And how
//! long the testbed takes to come up and to go.
//!
//! `cargo bench --bench overhead`; pairs and window by BENCH_PAIRS, BENCH_WINDOW.

mod common;

use anyhow::{Context, Result};
use bytepath::meter::{self, Meter};
use bytepath::record::{Design, Schedule};
use bytepath::run::Stand;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

fn main() -> Result<()> {
    let pairs = common::number("BENCH_PAIRS", 25.0)? as usize;
    let window = common::number("BENCH_WINDOW", 0.5)?;
    let stop = AtomicBool::new(false);
    let laboratory = common::laboratory(&stop);
    let (cells, _) = common::cells(&["socket"], "", "offload")?;
    let cell = &cells[0];

    let mut cycles: Vec<f64> = Vec::new();
    for _ in 0..10 {
        let begin = Instant::now();
        drop(Stand::raise(&laboratory, cell)?);
        cycles.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    cycles.sort_by(f64::total_cmp);
    println!("testbed up and down: median {:.0} ms, worst {:.0} ms", cycles[5], cycles[9]);

    let schedule = Schedule {
        blocks: 1,
        warm_up: 0.2,
        window,
        seed: 0,
        design: Design::Trials,
        stopping: None,
    };
    let all: Vec<&'static dyn Meter> = meter::regular().collect();
    let mut stand = Stand::raise(&laboratory, cell)?;
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        let mut rate = |meters: &[&'static dyn Meter]| -> Result<f64> {
            stand.run(cell, meters, &schedule)?.throughput().context("no throughput")
        };
        // Which comes first alternates, so that drift cancels.
        let (with, without) = if pair % 2 == 0 {
            let with = rate(&all)?;
            (with, rate(&[])?)
        } else {
            let without = rate(&[])?;
            (rate(&all)?, without)
        };
        ratios.push(with / without);
    }
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share).round() as usize];
    println!(
        "all meters / none, {pairs} interleaved pairs of {window} s: median {:.3}, middle half {:.3} to {:.3}",
        at(0.5),
        at(0.25),
        at(0.75)
    );
    Ok(())
}
