//! The cost of measuring: the same stream with all meters and with none, and with the profile that
//! a study takes with all meters and without, interleaved in one testbed; the same stream, and
//! requests and responses, with the accounting of each CPU's time in the kernel (the meter `cpu`)
//! and without. Prints the ratio's median and range, and the share of the CPUs' time that the
//! accounting's BPF programs take by the kernel's own count. Also how long the testbed takes to
//! come up and to go.
//!
//! `cargo bench --bench overhead [-- account]`, the latter for the accounting only; pairs and
//! window by BENCH_PAIRS, BENCH_WINDOW.

mod common;
#[path = "common/ratios.rs"]
mod ratios;

use anyhow::{Context, Result, anyhow, ensure};
use bytepath::meter::{self, Meter};
use bytepath::record::{Cell, Role, Sampling, Schedule};
use bytepath::study::{Laboratory, OpenTestbed};
use bytepath::sys;
use bytepath::sys::bpf::asm::{Assembler, Reg};
use bytepath::sys::bpf::{self, Hook, Program};
use ratios::Ratios;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

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
        println!("  {}", programs(&laboratory, &cells[0])?);
    }
    if std::env::args().any(|argument| argument == "account") {
        return Ok(());
    }

    let (cells, _) = common::cells(&["socket"], "", "offload")?;
    let cell = &cells[0];
    let mut cycles: Vec<f64> = Vec::new();
    for _ in 0..10 {
        let begin = Instant::now();
        drop(OpenTestbed::raise(&laboratory, cell)?);
        cycles.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    cycles.sort_by(f64::total_cmp);
    println!("testbed up and down: median {:.0} ms, worst {:.0} ms", cycles[5], cycles[9]);

    let all: Vec<&'static Meter> = meter::regular().collect();
    let mut stand = OpenTestbed::raise(&laboratory, cell)?;
    let mut rate = |meters: &[&'static Meter], sampling: Option<&Sampling>| -> Result<[f64; 1]> {
        Ok([stand.run(cell, meters, &schedule, sampling)?.rate().context("no throughput")?])
    };
    let [ratios] = interleaved(pairs, |with| rate(if with { &all } else { &[] }, None))?;
    println!("all meters / none, {pairs} interleaved pairs of {window} s: {ratios}");

    let sampling = OpenTestbed::raise(&laboratory, cell)?.usual_sampling(cell)?;
    let [ratios] = interleaved(pairs, |with| rate(&all, with.then_some(&sampling)))?;
    let Sampling { event, rate, .. } = &sampling;
    println!(
        "profile ({event}, {rate} Hz) / none, {pairs} interleaved pairs of {window} s: {ratios}"
    );
    Ok(())
}

/// Rate and CPU time per unit of work with the accounting, relative to those without.
fn account(
    laboratory: &Laboratory,
    cell: &Cell,
    pairs: usize,
    schedule: &Schedule,
) -> Result<[String; 2]> {
    let mut stand = OpenTestbed::raise(laboratory, cell)?;
    interleaved(pairs, |with| {
        let wanted =
            |meter: &&'static Meter| meter.name == "threads" || (with && meter.name == "cpu");
        let meters: Vec<_> = meter::regular().filter(wanted).collect();
        // Other programs may keep a stream from running for most of its window; then the attempt
        // fails.
        let mut attempts = (0..5).map(|_| stand.run(cell, &meters, schedule, None));
        let trial = attempts.find_map(Result::ok).context("not one trial of five")?;
        let exact = trial.readings.iter().any(|reading| reading.metric == "cpu.foreign");
        ensure!(exact == with, "the kernel keeps no account here: {:?}", trial.warnings);
        let run: f64 = trial.roles.iter().flat_map(|role| &role.threads).map(|t| t.run).sum();
        Ok([trial.rate().context("no rate")?, run / trial.count as f64])
    })
}

/// How long the accounting's programs run, as counted by the kernel, and how much of that is the
/// counting itself.
fn programs(laboratory: &Laboratory, cell: &Cell) -> Result<String> {
    let mut stand = OpenTestbed::raise(laboratory, cell)?;
    let agents = Role::ALL.map(|role| stand.pid(role));
    let _counted = bpf::time_programs().context("the kernel does not time programs")?;
    let ended = AtomicBool::new(false);
    let (trial, looks) = std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut looks = Vec::new();
            while !ended.load(Relaxed) {
                looks.push((Instant::now(), Programs::of(&agents)));
                std::thread::sleep(Duration::from_millis(50));
            }
            looks
        });
        let meters: Vec<_> = meter::regular().filter(|meter| meter.name == "cpu").collect();
        let trial = stand.run(cell, &meters, &Schedule::trials(1, 0.2, 4.0), None);
        ended.store(true, Relaxed);
        (trial, looks.join())
    });
    trial?;
    let looks = looks.map_err(|_| anyhow!("no one observed the programs"))?;
    // Only the runs while they are attached.
    let most = looks.iter().map(|(_, programs)| programs.runs).max().unwrap_or(0);
    let mut while_they_run = looks.iter().skip_while(|(_, programs)| programs.runs == 0);
    let (begin, first) = while_they_run.next().context("no program ran")?;
    let last = while_they_run.find(|(_, programs)| programs.runs == most);
    let (end, last) = last.context("programs were seen only once")?;
    let seconds = (*end - *begin).as_secs_f64();
    let cpus = sys::thread::allowed()?.len() as f64;
    let (time, runs) = ((last.time - first.time) as f64, (last.runs - first.runs) as f64);
    let (each, counting) = (time / runs, time_of_nothing()?);
    let share = |each: f64| each * runs * 1e-7 / seconds / cpus;
    Ok(format!(
        "{} programs run {:.0} times a second, {each:.0} ns each, of which counting them takes \
         {counting:.0}: {:.2}% of {cpus} CPUs (at most {:.2}%)",
        last.number,
        runs / seconds,
        share(each - counting),
        share(each),
    ))
}

/// The time that the kernel counts for a program that does nothing, in nanoseconds.
fn time_of_nothing() -> Result<f64> {
    let mut code = Assembler::new();
    code.mov(Reg::R0, 0).exit();
    let program = Program::load(Hook::OnDemand, "nothing", &code.finish()?);
    let program = program.map_err(|refused| refused.error)?;
    for _ in 0..100_000 {
        program.run_here()?;
    }
    let own = Programs::of(&[std::process::id()]);
    Ok(own.time as f64 / own.runs as f64)
}

/// BPF programs held by processes.
#[derive(Default)]
struct Programs {
    number: usize,
    /// Run time in nanoseconds.
    time: u64,
    runs: u64,
}

impl Programs {
    fn of(processes: &[u32]) -> Programs {
        let mut all = Programs::default();
        for process in processes {
            let Ok(files) = fs::read_dir(format!("/proc/{process}/fdinfo")) else { continue };
            for file in files.flatten() {
                let text = fs::read_to_string(file.path()).unwrap_or_default();
                let of = |name: &str| {
                    let value = text.lines().find_map(|line| line.strip_prefix(name));
                    value.and_then(|value| value.trim().parse::<u64>().ok())
                };
                let (Some(time), Some(runs)) = (of("run_time_ns:"), of("run_cnt:")) else {
                    continue;
                };
                all.number += 1;
                all.time += time;
                all.runs += runs;
            }
        }
        all
    }
}

/// The ratios of runs with something to runs without it, one after the other, for each figure of a
/// run. Which comes first alternates, so that drift cancels.
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
