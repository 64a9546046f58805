//! Are the results of a study true? Streams whose truth is known, measured and judged as in any
//! study: equal cells, and senders that pause for a known part of their time.
//!
//! `cargo bench --bench truth`; runs for BENCH_MINUTES (60), in studies of BENCH_BLOCKS (10) blocks
//! and windows of BENCH_WINDOW (1) seconds, of all designs in turn, or of the one whose name begins
//! with BENCH_DESIGN. The last design ends once it is sure, after at most that many blocks, with
//! the windows of `bytepath run`. BENCH_STREAM has options of the stream:
//! message-size=256K,read-size=256K.
//! Meanwhile other processes use BENCH_LOAD (0) percent of each of BENCH_LOAD_CPUS (1) CPUs, in
//! bursts of BENCH_BURST (0.02) seconds.
//!
//! A study has the baseline, its null cell, ten more equal cells, and two senders that pause for 3
//! and 5 % of their time. A pause drains what is in flight, so that the receiver loses slightly
//! less than the sender pauses. For effects that are known exactly, the equal cells are used a
//! second time: a cell from whose bytes 3 % are subtracted is 3 % slower.

mod common;

use anyhow::{Context, Result, bail, ensure};
use bytepath::connection::Connection;
use bytepath::math::{Moments, StandardError};
use bytepath::path::{self, DataPath, HalfPath, OpenTx};
use bytepath::record::{Budget, Cell, CellId, Design, Fault, Schedule, Study};
use bytepath::spec::Layout;
use bytepath::stats::{Comparison, Metric, Rules, analyse};
use bytepath::study::{self, Laboratory, Plan, run_study};
use bytepath::workload::{Account, Group, HalfConfig, Recorder, Tx};
use bytepath::{meter, sys};
use std::process::{Child, Command};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Equal cells besides the baseline and its null cell.
const EQUALS: usize = 10;

/// By how much equal cells are made slower and faster by arithmetic.
const SHIFTS: &[f64] = &[-0.05, -0.03, 0.03, 0.05];

const CONFIDENCE: f64 = 0.95;

/// Share of studies in which the smallest printed effect is found.
const POWER: f64 = 0.8;

/// The name, the design, and whether a study ends once it is sure.
const DESIGNS: &[(&str, Design, bool)] = &[
    ("slices of 0.1 s", Design::Slices { slice: 0.1 }, false),
    ("whole trials", Design::Trials, false),
    ("until sure", Design::Slices { slice: 0.1 }, true),
];

/// The paths of this bench: `socket`, and variants of it whose senders pause.
static PATHS: &[&DataPath] = &[
    path::CATALOG[0],
    &pausing("pausing-3", |job, connection, group| open(0.03, job, connection, group)),
    &pausing("pausing-5", |job, connection, group| open(0.05, job, connection, group)),
];

fn main() -> Result<()> {
    // This program is also the agent of the studies.
    if std::env::args().nth(1).as_deref() == Some("agent") {
        sys::process::ignore_interrupts();
        sys::process::die_with_parent(true)?;
        sys::process::allow_many_files();
        let (input, output) = (std::io::stdin(), std::io::stdout());
        return Ok(study::agent::serve(input, output, PATHS, meter::CATALOG)?);
    }
    if std::env::args().nth(1).as_deref() == Some("use-cpu") {
        let numbers = std::env::args().skip(2).map(|text| text.parse::<f64>());
        let [cpu, share, burst] = numbers.collect::<Result<Vec<f64>, _>>()?[..] else {
            bail!("use-cpu takes three numbers")
        };
        return use_cpu(cpu as u32, share, burst);
    }
    let minutes = common::number("BENCH_MINUTES", 60.0)?;
    let blocks = common::number("BENCH_BLOCKS", 10.0)? as u32;
    let window = common::number("BENCH_WINDOW", 1.0)?;
    let sure = Layout::until_sure(None, Design::Slices { slice: 0.1 }, 1);
    let stop = AtomicBool::new(false);
    let program = std::env::current_exe().context("no program")?;
    let load = common::number("BENCH_LOAD", 0.0)? / 100.0;
    let burst = common::number("BENCH_BURST", 0.02)?;
    let cpus = common::number("BENCH_LOAD_CPUS", 1.0)? as u32;
    let _load: Vec<Load> = (0..cpus)
        .filter(|_| load > 0.0)
        .map(|cpu| {
            let numbers = [f64::from(cpu), load, burst].map(|number| number.to_string());
            let child = Command::new(&program).arg("use-cpu").args(numbers).spawn();
            Ok(Load(child.context("no load")?))
        })
        .collect::<Result<_>>()?;
    let laboratory = Laboratory { paths: PATHS, program, ..common::laboratory(&stop) };
    let cells = cells()?;
    let designs = designs()?;
    let mut found: Vec<Found> = designs.iter().map(|_| Found::default()).collect();
    let begin = Instant::now();
    let mut longest = Duration::ZERO;
    for number in 0.. {
        let left = Duration::from_secs_f64(minutes * 60.0).saturating_sub(begin.elapsed());
        if number >= designs.len() && left < longest {
            break;
        }
        eprintln!("study {}, {} s left", number + 1, left.as_secs());
        let at = number % designs.len();
        let (_, design, until_sure) = designs[at];
        let seed = number as u64;
        let schedule = match until_sure {
            false => Schedule::trials(blocks, 0.3, window),
            true => Schedule {
                until_sure,
                budget: Some(Budget { seconds: 1e6, profiles: 0.0, first: blocks }),
                ..Schedule::trials(blocks, sure.warm_up.as_secs_f64(), sure.window.as_secs_f64())
            },
        };
        let started = Instant::now();
        let study = measure(&laboratory, &cells, Schedule { seed, design, ..schedule })?;
        longest = longest.max(started.elapsed());
        let run = study.trials.iter().map(|trial| trial.block + 1).max().unwrap_or(1);
        found[at].add(&study, started.elapsed().as_secs_f64() / f64::from(run))?;
    }
    println!("{:.0}% of {cpus} CPUs used by others, in bursts of {burst} s", load * 100.0);
    print(&designs, &found, blocks, [window, sure.window.as_secs_f64()]);
    Ok(())
}

/// The designs to run.
fn designs() -> Result<Vec<(&'static str, Design, bool)>> {
    let wanted = std::env::var("BENCH_DESIGN").unwrap_or_default();
    let designs: Vec<_> =
        DESIGNS.iter().filter(|(name, ..)| name.starts_with(&wanted)).copied().collect();
    ensure!(!designs.is_empty(), "BENCH_DESIGN: no design's name begins with '{wanted}'");
    Ok(designs)
}

/// A process that uses a CPU while this value lives.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Uses a share of a CPU in bursts of `burst` seconds, for as long as its parent lives.
fn use_cpu(cpu: u32, share: f64, burst: f64) -> Result<()> {
    sys::process::die_with_parent(true)?;
    sys::thread::pin(cpu)?;
    loop {
        let begin = Instant::now();
        while begin.elapsed().as_secs_f64() < burst {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_secs_f64(burst * (1.0 / share - 1.0).max(0.0)));
    }
}

fn cells() -> Result<Vec<Cell>> {
    let stream = std::env::var("BENCH_STREAM").unwrap_or_default();
    let (mut cells, baseline) = common::cells(&["socket"], &stream, "wire")?;
    let first = cells.iter().find(|cell| cell.id == baseline).context("no baseline")?.clone();
    ensure!(cells.iter().any(|cell| cell.null), "no null cell");
    let named = |id: String| Cell { id: CellId(id), ..first.clone() };
    cells.extend((0..EQUALS).map(|number| named(format!("equal-{number}"))));
    for path in &PATHS[1..] {
        let mut cell = named(path.name.to_owned());
        cell.tx.path = path.name.to_owned();
        cells.push(cell);
    }
    Ok(cells)
}

fn measure(laboratory: &Laboratory, cells: &[Cell], schedule: Schedule) -> Result<Study> {
    let folder = tempfile::tempdir()?;
    let baseline = cells[0].id.clone();
    let mut plan = Plan::bare(cells.to_vec(), baseline, schedule, folder.path().join("study"));
    plan.meters = meter::regular().map(|meter| meter.name.into()).collect();
    let (study, result) = run_study(laboratory, &plan, &mut common::Silent);
    result?;
    study.context("no study")
}

/// The findings of the studies of one design.
#[derive(Default)]
struct Found {
    studies: usize,
    /// Seconds of a block.
    blocks: Moments,
    questions: [Truth; 2],
    /// In the order of the paths.
    pausing: Vec<Seen>,
    rejected: usize,
}

/// Equal cells, judged by one metric.
#[derive(Default)]
struct Truth {
    comparisons: usize,
    /// Comparisons whose own interval excludes 1.
    called: usize,
    /// Studies with a wrong verdict under Holm's rule.
    wrong_studies: usize,
    /// Variances of the log ratios of a block.
    variances: Moments,
    shifted: Vec<Seen>,
}

/// One effect whose size is known.
#[derive(Clone, Copy, Default)]
struct Seen {
    times: usize,
    /// How often the interval excludes 1 on the right side.
    found: usize,
    /// How often the interval contains the truth.
    covered: usize,
    logs: f64,
}

const QUESTIONS: [Metric; 2] = [Metric::Rate, Metric::Cpu];

impl Found {
    fn add(&mut self, study: &Study, block: f64) -> Result<()> {
        let analysis = analyse(study, &Rules::of(&study.header));
        self.studies += 1;
        self.blocks.add(block);
        let rows = || analysis.rows.iter().chain(&analysis.null);
        self.rejected += rows().map(|row| row.status.rejected.len()).sum::<usize>();
        for (question, truth) in QUESTIONS.into_iter().zip(&mut self.questions) {
            let equals = rows().filter(|row| !row.baseline && row.tx == PATHS[0].name);
            let comparisons = equals.filter_map(|row| row.comparison(question));
            let wrong = comparisons.filter(|comparison| truth.add(comparison)).count();
            truth.wrong_studies += usize::from(wrong > 0);
        }
        self.pausing.resize(PATHS.len() - 1, Seen::default());
        for (path, seen) in PATHS[1..].iter().zip(&mut self.pausing) {
            let row = rows().find(|row| row.tx == path.name).context("no such row")?;
            let comparison = row.comparison(Metric::Rate).context("no comparison")?;
            seen.add(comparison, 0.0, (1.0 - share(path)).ln());
        }
        Ok(())
    }
}

impl Truth {
    /// Counts a comparison; true if its verdict is wrong.
    fn add(&mut self, comparison: &Comparison) -> bool {
        let Some(effect) = &comparison.effect else { return false };
        let Some(p) = effect.estimate().p_different() else { return false };
        self.comparisons += 1;
        self.called += usize::from(p <= 1.0 - CONFIDENCE);
        self.variances.add(effect.log_stddev.unwrap_or(0.0).powi(2));
        self.shifted.resize(SHIFTS.len(), Seen::default());
        for (shift, seen) in SHIFTS.iter().zip(&mut self.shifted) {
            seen.add(comparison, shift.ln_1p(), shift.ln_1p());
        }
        comparison.verdict.better().is_some()
    }
}

impl Seen {
    /// Counts a comparison after moving its log ratio by `moved`; `truth` is the true log ratio
    /// then.
    fn add(&mut self, comparison: &Comparison, moved: f64, truth: f64) {
        let Some(effect) = &comparison.effect else { return };
        let mut estimate = effect.estimate();
        estimate.log_mean += moved;
        let Some(interval) = estimate.interval(CONFIDENCE) else { return };
        let half = interval.log_half_width;
        self.times += 1;
        self.found += usize::from(estimate.log_mean * truth.signum() > half);
        self.covered += usize::from((estimate.log_mean - truth).abs() <= half);
        self.logs += estimate.log_mean;
    }
}

fn print(designs: &[(&str, Design, bool)], found: &[Found], blocks: u32, [window, sure]: [f64; 2]) {
    println!(
        "socket against itself over {blocks} blocks, windows of {window} s (until sure {sure} s); \
         {} cells a study",
        EQUALS + 1 + PATHS.len()
    );
    println!(
        "\n{:<16} {:<5} {:>7} {:>11} {:>12} {:>12} {:>9} {:>10} {:>10}",
        "design",
        "of",
        "studies",
        "comparisons",
        "called at 5%",
        "false words",
        "sd block",
        "80% power",
        "in 10 min"
    );
    for ((name, ..), found) in designs.iter().zip(found) {
        for (question, truth) in QUESTIONS.iter().zip(&found.questions) {
            let spread = truth.variances.mean().sqrt();
            // For a study of two cells in ten minutes.
            let cells = (EQUALS + 1 + PATHS.len()) as f64;
            let fit = 600.0 / (found.blocks.mean() / cells * 2.0);
            println!(
                "{name:<16} {:<5} {:>7} {:>11} {:>6} {:>4.1}% {:>2} in {:>3} st. {:>8.1}% {:>9.1}% \
                 {:>9.1}%",
                question.name(),
                found.studies,
                truth.comparisons,
                truth.called,
                truth.called as f64 / truth.comparisons as f64 * 100.0,
                truth.wrong_studies,
                found.studies,
                spread * 100.0,
                smallest(spread, f64::from(blocks)) * 100.0,
                smallest(spread, fit) * 100.0,
            );
        }
    }
    println!(
        "\n{:<16} {:<5} {:<28} {:>6} {:>10} {:>13} {:>7}",
        "design", "of", "effect", "times", "found", "in interval", "mean"
    );
    for ((name, ..), found) in designs.iter().zip(found) {
        for (path, seen) in PATHS[1..].iter().zip(&found.pausing) {
            let what = format!("sender pauses {:.0}% of the time", share(path) * 100.0);
            seen.print(name, Metric::Rate, &what);
        }
        for (question, truth) in QUESTIONS.iter().zip(&found.questions) {
            for (shift, seen) in SHIFTS.iter().zip(&truth.shifted) {
                seen.print(name, *question, &format!("{:+.0}% by arithmetic", shift * 100.0));
            }
        }
    }
    let rejected: usize = found.iter().map(|found| found.rejected).sum();
    println!("\n{rejected} trials were rejected for what else ran on the machine.");
}

impl Seen {
    fn print(&self, design: &str, question: Metric, what: &str) {
        let share = |part: usize| part as f64 / self.times as f64 * 100.0;
        println!(
            "{design:<16} {:<5} {what:<28} {:>6} {:>9.0}% {:>12.0}% {:>6.1}%",
            question.name(),
            self.times,
            share(self.found),
            share(self.covered),
            (self.logs / self.times as f64).exp_m1() * 100.0,
        );
    }
}

/// The smallest effect that is found with [`POWER`] over n blocks with this spread.
fn smallest(spread: f64, n: f64) -> f64 {
    let error = StandardError { size: spread / n.sqrt(), freedom: n - 1.0 };
    let half = |confidence| error.half_width(confidence).unwrap_or(f64::NAN);
    (half(CONFIDENCE) + half(2.0 * POWER - 1.0)).exp_m1()
}

/// `socket`, whose sender pauses for a part of its time.
const fn pausing(name: &'static str, open: OpenTx) -> DataPath {
    let attempt = |_: Option<&str>| Vec::new();
    let summary = "socket, with pauses of the sender";
    let tx = Some(HalfPath { open, ..SEND });
    DataPath { name, summary, attempt, tx, ..DataPath::EMPTY }
}

/// The part of its time for which a path of [`PATHS`] pauses.
fn share(path: &DataPath) -> f64 {
    let percent = path.name.rsplit('-').next().and_then(|text| text.parse::<f64>().ok());
    percent.unwrap_or(0.0) / 100.0
}

static SEND: HalfPath<OpenTx> = match path::CATALOG[0].tx {
    Some(tx) => tx,
    None => panic!("the first path of the catalogue is socket, which sends"),
};

fn open(
    share: f64,
    job: &HalfConfig,
    connection: &dyn Connection,
    group: &Group,
) -> Result<Box<dyn Tx>, Fault> {
    let inner = (SEND.open)(job, connection, group)?;
    Ok(Box::new(Sender { inner, ratio: share / (1.0 - share), owed: 0.0 }))
}

struct Sender {
    inner: Box<dyn Tx>,
    /// Ratio of pauses to time in calls.
    ratio: f64,
    /// Seconds of pauses still to be made.
    owed: f64,
}

/// Seconds of a pause: many times what empties the buffers, and a small part of a slice.
const PAUSE: f64 = 0.005;

impl Tx for Sender {
    fn witness(&mut self) -> Result<(), Fault> {
        self.inner.witness()
    }

    fn begin(&mut self) -> Result<(), Fault> {
        self.inner.begin()
    }

    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let begin = Instant::now();
        self.inner.send(recorder)?;
        self.owed += begin.elapsed().as_secs_f64() * self.ratio;
        if self.owed >= PAUSE {
            let begin = Instant::now();
            std::thread::sleep(Duration::from_secs_f64(self.owed));
            self.owed -= begin.elapsed().as_secs_f64();
        }
        Ok(())
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        self.inner.account(recorder)
    }
}
