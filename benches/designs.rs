//! Which layout of a block in time detects the smallest effect? Runs the baseline against itself
//! under each design, interleaved, and prints the spread of the log ratios and the effect that a
//! study of ten minutes could detect.
//!
//! `cargo bench --bench designs`; rounds and window by BENCH_ROUNDS, BENCH_WINDOW.

mod common;

use anyhow::{Context, Result};
use bytepath::record::{Design, Schedule};
use bytepath::study::{Laboratory, Plan, run_study};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const DESIGNS: &[(&str, Design)] = &[
    ("whole trials", Design::Trials),
    ("slices of 0.50 s", Design::Slices { slice: 0.5 }),
    ("slices of 0.25 s", Design::Slices { slice: 0.25 }),
    ("slices of 0.10 s", Design::Slices { slice: 0.1 }),
];

/// Seconds of the study whose smallest effect is printed.
const STUDY: f64 = 600.0;

fn main() -> Result<()> {
    let rounds = common::number("BENCH_ROUNDS", 8.0)? as u64;
    let window = common::number("BENCH_WINDOW", 2.0)?;
    let stop = AtomicBool::new(false);
    let laboratory = common::laboratory(&stop);
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); DESIGNS.len()];
    let mut times = vec![0.0; DESIGNS.len()];
    for round in 0..rounds {
        for (index, (_, design)) in DESIGNS.iter().enumerate() {
            let begin = Instant::now();
            ratios[index].push(log_ratio(&laboratory, *design, window, round)?);
            times[index] += begin.elapsed().as_secs_f64();
        }
    }
    println!("socket against itself, {rounds} blocks a design, {window} s windows, interleaved");
    println!(
        "{:<18} {:>10} {:>8} {:>10} {:>22}",
        "design", "s a block", "bias", "spread", "10 minutes can see"
    );
    for (((name, _), ratios), time) in DESIGNS.iter().zip(&ratios).zip(&times) {
        let each = time / rounds as f64;
        let (mean, deviation) = moments(ratios);
        // Half the width of a 95 % interval over the blocks that fit.
        let blocks = STUDY / each;
        let visible = 1.96 * deviation / blocks.sqrt();
        println!(
            "{name:<18} {each:>10.1} {:>7.1}% {:>9.1}% {:>21.1}%",
            mean * 100.0,
            deviation * 100.0,
            visible * 100.0
        );
    }
    Ok(())
}

/// Runs one block of the baseline against itself; returns the log of the ratio.
fn log_ratio(laboratory: &Laboratory, design: Design, window: f64, seed: u64) -> Result<f64> {
    let (mut cells, baseline) = common::cells(&["socket", "sendfile"], "", "wire")?;
    cells.retain(|cell| cell.null || cell.id == baseline);
    let folder = tempfile::tempdir()?;
    let schedule = Schedule { blocks: 1, seed, design, ..Schedule::trials(1, 0.3, window) };
    let plan = Plan::bare(cells, baseline, schedule, folder.path().join("study"));
    let (study, result) = run_study(laboratory, &plan, &mut common::Silent);
    result?;
    let study = study.context("no study")?;
    let rate = |null: bool| -> Result<f64> {
        let cell = plan.cells.iter().find(|cell| cell.null == null).context("no cell")?;
        let trial = study.trials.iter().find(|trial| trial.cell == cell.id).context("no trial")?;
        trial.rate().with_context(|| format!("{:?}", trial.status))
    };
    Ok((rate(true)? / rate(false)?).ln())
}

fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}
