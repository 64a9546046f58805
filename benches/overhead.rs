//! What watching costs: the same stream with all meters and with none, and with
//! the profile a study takes beside all meters and without, interleaved in one
//! testbed; the same stream, and requests and answers, with the kernel's account of each
//! CPU's time (the meter `cpu`) and without; prints the ratio's median and range. And how
//! long the testbed takes to come up and to go.
//!
//! `cargo bench --bench overhead [-- account]`, the latter for the account alone; pairs and
//! window by BENCH_PAIRS, BENCH_WINDOW.

mod common;
#[path = "common/ratios.rs"]
mod ratios;

use anyhow::{Context, Result, ensure};
use bytepath::meter::{self, Meter};
use bytepath::record::{Cell, Sampling, Schedule};
use bytepath::run::{Laboratory, Stand};
use ratios::Ratios;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

fn main() -> Result<()> {
    let pairs = common::number("BENCH_PAIRS", 25.0)? as usize;
    let window = common::number("BENCH_WINDOW", 0.5)?;
    let stop = AtomicBool::new(false);
    let laboratory = common::laboratory(&stop);
    let schedule = Schedule::trials(1, 0.2, window);
    for workload in ["stream", "rr"] {
        let (cells, _) = common::cells_of(&["socket"], workload, "", "offload")?;
        let [rate, cpu] = account(&laboratory, &cells[0], pairs, &schedule)?;
        println!("{workload}, account / none, {pairs} interleaved pairs of {window} s:");
        println!("  rate {rate}");
        println!("  CPU time of the threads per unit of work {cpu}");
    }
    if std::env::args().any(|argument| argument == "account") {
        return Ok(());
    }

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

    let all: Vec<&'static dyn Meter> = meter::regular().collect();
    let mut stand = Stand::raise(&laboratory, cell)?;
    let mut rate =
        |meters: &[&'static dyn Meter], sampling: Option<&Sampling>| -> Result<[f64; 1]> {
            Ok([stand.run(cell, meters, &schedule, sampling)?.rate().context("no throughput")?])
        };
    let [ratios] = interleaved(pairs, |with| rate(if with { &all } else { &[] }, None))?;
    println!("all meters / none, {pairs} interleaved pairs of {window} s: {ratios}");

    let sampling = Stand::raise(&laboratory, cell)?.usual_sampling(cell)?;
    let profile = *meter::CATALOG
        .iter()
        .find(|meter| meter.name() == meter::PROFILE_NAME)
        .context("no meter of profiles")?;
    let sampled: Vec<&'static dyn Meter> = all.iter().copied().chain([profile]).collect();
    let [ratios] = interleaved(pairs, |with| match with {
        true => rate(&sampled, Some(&sampling)),
        false => rate(&all, None),
    })?;
    let Sampling { event, rate, .. } = &sampling;
    println!(
        "profile ({event}, {rate} Hz) / none, {pairs} interleaved pairs of {window} s: {ratios}"
    );
    Ok(())
}

/// Rate and CPU time per unit of work with the account to those without.
fn account(
    laboratory: &Laboratory,
    cell: &Cell,
    pairs: usize,
    schedule: &Schedule,
) -> Result<[String; 2]> {
    let mut stand = Stand::raise(laboratory, cell)?;
    interleaved(pairs, |with| {
        let wanted = |meter: &&'static dyn Meter| {
            meter.name() == "threads" || (with && meter.name() == "cpu")
        };
        let meters: Vec<_> = meter::regular().filter(wanted).collect();
        // Others may keep a stream from most of its window; then it is no trial.
        let mut attempts = (0..5).map(|_| stand.run(cell, &meters, schedule, None));
        let trial = attempts.find_map(Result::ok).context("not one trial of five")?;
        let exact = trial.readings.iter().any(|reading| reading.metric == "cpu.foreign");
        ensure!(exact == with, "the kernel keeps no account here: {:?}", trial.warnings);
        let run: f64 = trial.roles.iter().flat_map(|role| &role.threads).map(|t| t.run).sum();
        Ok([trial.rate().context("no rate")?, run / trial.count as f64])
    })
}

/// The ratios of runs with something to runs without, one after the other, by each figure
/// of a run. Which comes first alternates, so that drift cancels.
fn interleaved<const N: usize>(
    pairs: usize,
    mut run: impl FnMut(bool) -> Result<[f64; N]>,
) -> Result<[String; N]> {
    let mut ratios = [const { Vec::new() }; N];
    for pair in 0..pairs {
        let first = pair % 2 == 0;
        let (one, other) = (run(first)?, run(!first)?);
        for ((all, one), other) in ratios.iter_mut().zip(one).zip(other) {
            all.push(if first { one / other } else { other / one });
        }
    }
    Ok(ratios.map(|ratios| {
        let ratios = Ratios::new(ratios);
        let [low, median, high] = [0.25, 0.5, 0.75].map(|share| ratios.at(share));
        format!("median {median:.3}, middle half {low:.3} to {high:.3}")
    }))
}
