//! `bytepath plan`: how large buffers, rings and limits have to be.

use super::run::{catch_signals, own_program};
use super::show::{replace, style};
use crate::record::{Fault, FaultKind, PoolRun, unit};
use crate::report::{self, Drawing};
use crate::run::{self, Laboratory};
use crate::stats::{
    CheckedPool, Goal, LARGEST_RING, PoolCourse, PoolModel, Shortage, Sizing, Traffic,
};
use crate::{host, meter, path, stats, sys, testbed};
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct PlanArguments {
    /// Payload to move, bits per second: 200G, 2.5G
    #[arg(long, value_parser = unit::parse_rate)]
    rate: f64,
    /// Round-trip time: 0.1ms, 20us
    #[arg(long, value_parser = unit::parse_duration)]
    rtt: Duration,
    /// MTU in bytes
    #[arg(long, default_value_t = 4148, value_parser = clap::value_parser!(u32).range(68..=65535))]
    mtu: u32,
    /// Bytes the application keeps before it gives them back
    #[arg(long, default_value = "0", value_parser = unit::parse_bytes)]
    hold: u64,
    /// Receive queues that share the rate
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    queues: u32,
    /// Entries of each receive ring [default: the least that will do]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=LARGEST_RING as i64))]
    ring: Option<u32>,
    /// Bytes of a receive buffer
    #[arg(long, default_value = "4096", value_parser = buffer)]
    buffer: u32,
    /// Bytes the application reads at once
    #[arg(long, default_value = "1M", value_parser = unit::parse_bytes)]
    read: u64,
    /// Buffers it gives back at once
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    batch: u64,
    /// Run the pool for real, slowed down, over the testbed's link, and print it beside the model
    #[arg(long)]
    check: bool,
    /// Draw the pool and its neighbours over time
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  bytepath plan --rate 200G --rtt 0.1ms --hold 48MiB --ring 4096
  bytepath plan --rate 200G --rtt 0.1ms --hold 48MiB --svg pool.svg --check
  bytepath plan --rate 40G --rtt 2ms --mtu 9000 --queues 4 --json";

/// What is printed.
#[derive(Serialize)]
struct Document {
    goal: Goal,
    sizing: Sizing,
    traffic: [Traffic; 4],
    shortages: Vec<Shortage>,
    pool: PoolModel,
    course: PoolCourse,
    least_buffers: Option<u64>,
    neighbours: [(PoolModel, PoolCourse); 3],
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<Check>,
}

/// Pools that were run for real.
#[derive(Serialize)]
struct Check {
    /// By what time was stretched.
    slower: f64,
    /// By what counts were divided.
    smaller: f64,
    pools: Vec<CheckedPool>,
}

/// Packets a second of a pool that is run for real: a small part of what a link
/// carries, so that the sender keeps its pace on a machine that does other things too.
const CHECK_RATE: f64 = 40_000.0;

/// Most buffers of the pool in the middle; twice as many take 16 MiB.
const CHECK_BUFFERS: u64 = 32_768;

/// How often what is kept, and the pool, go round in a run for real, and in a drawing.
const ROUNDS: f64 = 2.5;

/// Steps of a drawing.
const DRAWN: usize = 360;

pub(super) fn plan(arguments: &PlanArguments) -> Result<ExitCode, Fault> {
    let mut document = work_out(arguments);
    if arguments.check {
        document.check = Some(check(&document.pool)?);
    }
    if let Some(file) = &arguments.svg {
        draw(&document, file)?;
    }
    let mut text = Vec::new();
    let fault = |e: &std::io::Error| Fault::system("cannot print the plan", e);
    if arguments.json {
        serde_json::to_writer_pretty(&mut text, &document).map_err(|e| fault(&e.into()))?;
        text.push(b'\n');
    } else {
        let plan = report::SizingPlan {
            goal: &document.goal,
            sizing: &document.sizing,
            traffic: &document.traffic,
            shortages: &document.shortages,
            pool: &document.pool,
            course: &document.course,
            least_buffers: document.least_buffers,
            neighbours: &document.neighbours,
            checked: document.check.as_ref().map_or(&[], |check| &check.pools),
            scale: document.check.as_ref().map_or((1.0, 1.0), |c| (c.slower, c.smaller)),
        };
        report::sizing(&plan, &style(false), &mut text).map_err(|e| fault(&e))?;
    }
    match std::io::stdout().lock().write_all(&text) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(fault(&e)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn work_out(arguments: &PlanArguments) -> Document {
    let goal = Goal {
        rate: arguments.rate,
        rtt: arguments.rtt.as_secs_f64(),
        mtu: arguments.mtu,
        hold: arguments.hold,
        queues: arguments.queues,
        ring: arguments.ring,
        buffer: arguments.buffer,
    };
    let sizing = Sizing::of(&goal);
    let buffers = |bytes: u64| (bytes / u64::from(goal.buffer)).max(1);
    let share = goal.rate / 8.0 / f64::from(goal.queues);
    let pool = PoolModel {
        arrivals: share / f64::from(sizing.segment.min(goal.buffer)),
        buffers: buffers(sizing.area),
        ring: u64::from(sizing.ring),
        read: buffers(arguments.read),
        // What it keeps, at this rate, it keeps for so long.
        hold: goal.hold as f64 / f64::from(goal.queues) / share,
        batch: arguments.batch,
    };
    let simulated = pool.rounds(10.0);
    Document {
        traffic: stats::traffic(goal.rate),
        shortages: stats::shortages(&host::survey(&sys::Roots::real()), &sizing),
        course: pool.run(simulated),
        least_buffers: pool.least_buffers(simulated, pool.buffers * 4),
        neighbours: pool.neighbours(simulated, 60),
        check: None,
        pool,
        goal,
        sizing,
    }
}

/// Runs the pool and its neighbours for real.
fn check(pool: &PoolModel) -> Result<Check, Fault> {
    let scaled = pool.scaled(CHECK_RATE, CHECK_BUFFERS);
    let runs: Vec<PoolRun> = scaled
        .sizes()
        .iter()
        .map(|model| PoolRun {
            buffers: model.buffers as u32,
            read: u32::try_from(model.read).unwrap_or(u32::MAX),
            hold: model.hold,
            batch: u32::try_from(model.batch).unwrap_or(u32::MAX),
            seconds: scaled.rounds(ROUNDS),
        })
        .collect();
    let stop = catch_signals()?;
    let laboratory = Laboratory {
        paths: path::CATALOG,
        meters: meter::CATALOG,
        testbed: testbed::CATALOG[0],
        program: own_program()?,
        stop: &stop,
    };
    let seen = run::pool_check(&laboratory, CHECK_RATE, &runs)?;
    let pools = runs.iter().zip(seen).map(|(run, seen)| CheckedPool::of(run, seen)).collect();
    let smaller = pool.buffers as f64 / scaled.buffers as f64;
    Ok(Check { slower: pool.arrivals / smaller / CHECK_RATE, smaller, pools })
}

/// Draws the pools, with what was measured brought to the plan's own scale.
fn draw(document: &Document, file: &Path) -> Result<(), Fault> {
    let pool = &document.pool;
    let drawings: Vec<Drawing> = pool
        .neighbours(pool.rounds(ROUNDS), DRAWN)
        .into_iter()
        .enumerate()
        .map(|(at, (model, course))| {
            let measured = document.check.as_ref().and_then(|check| {
                let seen = &check.pools.get(at)?.seen;
                let step = seen.seconds / seen.course.len().max(1) as f64 / check.slower;
                let points = seen.course.iter().enumerate();
                Some(points.map(move |(n, left)| (n as f64 * step, *left as f64 * check.smaller)))
            });
            Drawing { model, course, measured: measured.into_iter().flatten().collect() }
        })
        .collect();
    let title = format!("Buffers of a queue, {}", report::sizing_title(&document.goal));
    let cannot = |e: &std::io::Error| {
        let text = format!("cannot write {}: {e}", file.display());
        Fault::new(FaultKind::Storage, text).remedy("name a file in a folder that may be written")
    };
    let svg = report::pool_svg(&title, &drawings).map_err(|e| cannot(&e))?;
    replace(file, svg.as_bytes()).map_err(|e| cannot(&e))
}

fn buffer(text: &str) -> Result<u32, String> {
    let bytes = unit::parse_bytes(text)?;
    match u32::try_from(bytes) {
        Ok(bytes) if (64..=1 << 24).contains(&bytes) => Ok(bytes),
        _ => Err(Fault::new(FaultKind::Usage, "a receive buffer has 64 bytes to 16M").to_string()),
    }
}
