//! What watching costs: the same stream with all meters and with none, and with
//! the profile a study takes beside all meters and without, interleaved in one
//! testbed; prints the ratio's median and range. And how long the testbed takes
//! to come up and to go.
//!
//! `cargo bench --bench overhead`; pairs and window by BENCH_PAIRS, BENCH_WINDOW.

mod common;
#[path = "common/ratios.rs"]
mod ratios;

use anyhow::{Context, Result};
use bytepath::meter::{self, Meter};
use bytepath::record::{Sampling, Schedule};
use bytepath::run::Stand;
use ratios::Ratios;
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

    let schedule = Schedule::trials(1, 0.2, window);
    let all: Vec<&'static dyn Meter> = meter::regular().collect();
    let mut stand = Stand::raise(&laboratory, cell)?;
    let mut rate = |meters: &[&'static dyn Meter], sampling: Option<&Sampling>| -> Result<f64> {
        stand.run(cell, meters, &schedule, sampling)?.rate().context("no throughput")
    };
    let ratios = interleaved(pairs, |with| rate(if with { &all } else { &[] }, None))?;
    println!("all meters / none, {pairs} interleaved pairs of {window} s: {ratios}");

    let sampling = Stand::raise(&laboratory, cell)?.usual_sampling(cell)?;
    let profile = *meter::CATALOG
        .iter()
        .find(|meter| meter.name() == meter::PROFILE_NAME)
        .context("no meter of profiles")?;
    let sampled: Vec<&'static dyn Meter> = all.iter().copied().chain([profile]).collect();
    let ratios = interleaved(pairs, |with| match with {
        true => rate(&sampled, Some(&sampling)),
        false => rate(&all, None),
    })?;
    let Sampling { event, rate, .. } = &sampling;
    println!(
        "profile ({event}, {rate} Hz) / none, {pairs} interleaved pairs of {window} s: {ratios}"
    );
    Ok(())
}

/// The ratios of runs with something to runs without, one after the other. Which
/// comes first alternates, so that drift cancels.
fn interleaved(pairs: usize, mut run: impl FnMut(bool) -> Result<f64>) -> Result<String> {
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        let first = pair % 2 == 0;
        let (one, other) = (run(first)?, run(!first)?);
        ratios.push(if first { one / other } else { other / one });
    }
    let ratios = Ratios::new(ratios);
    let [low, median, high] = [0.25, 0.5, 0.75].map(|share| ratios.at(share));
    Ok(format!("median {median:.3}, middle half {low:.3} to {high:.3}"))
}
