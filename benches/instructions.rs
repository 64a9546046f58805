//! How often is a path called more expensive than itself if guests count instructions, and is a
//! difference of 1 % found? Runs studies of equal cells and of one whose messages are each followed
//! by a loop of known length, on `vm:count=instructions`, and prints the verdicts.
//!
//! `cargo bench --bench instructions [-- rr] [stream]`; sizes by BENCH_STUDIES, BENCH_COMPARISONS
//! (of equal cells, per study), BENCH_BLOCKS (boots of a study), BENCH_WINDOW (seconds of the
//! guest). BENCH_OUT names a folder in which the studies are kept.
//!
//! The guests run this program: the path `socket` is the tool's, with a loop after each send.

mod common;

use anyhow::{Context, Result, bail};
use bytepath::connection::Connection;
use bytepath::host::own_build;
use bytepath::math::Moments;
use bytepath::path::{self, DataPath, HalfPath, OpenTx};
use bytepath::record::{
    Cell, CellId, Fault, Judgement, OptionKind, OptionSpec, Schedule, Study, StudyHeader, Support,
    Trial, TrialStatus,
};
use bytepath::spec::{self, CellRequest};
use bytepath::stats::{Comparison, Metric, Rules, analyse, costs};
use bytepath::study::{Laboratory, OpenTestbed, Plan, agent, path_spec, run_study, testbed_spec};
use bytepath::testbed::{self, Testbed};
use bytepath::workload::{Account, Group, HalfConfig, Recorder, Tx};
use bytepath::{guest, meter};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const TESTBED: &str = "vm:count=instructions";

/// Each has a name, a workload, a number of connections, and the sends per unit of cost.
const WORKLOADS: &[(&str, &str, &str, f64)] =
    &[("rr", "rr", "", 2.0), ("stream", "", "message-size=64K,read-size=64K", 16384.0)];

/// The added cost, as a fraction of that of a unit.
const ADDED: f64 = 0.01;

/// Differences that do not matter to these studies. The default of 2 % would call 1 % EQUIVALENT.
const MARGIN: f64 = 0.005;

/// Guest seconds before a window.
const WARM_UP: f64 = 0.2;

/// Instructions in one iteration of the loop.
const TURN: f64 = 2.0;

fn main() -> Result<ExitCode> {
    if guest::is_guest_init() {
        bail!("the guest cannot be switched off: {}", guest::guest_init(own_build()));
    }
    if std::env::args().nth(1).as_deref() == Some("agent") {
        agent::serve(std::io::stdin(), std::io::stdout(), PATHS, meter::CATALOG)?;
        return Ok(ExitCode::SUCCESS);
    }
    let choice = spec::parse_testbed(TESTBED, &testbed_spec(testbed::CATALOG))?;
    let known = testbed::CATALOG.iter().find(|testbed| testbed.name() == choice.name);
    let testbed = known.context("no such testbed")?.configured(&choice.options)?;
    let testbed = testbed.context("the testbed has no options")?;
    if let Support::No { reason, .. } = testbed.probe() {
        println!("SKIP: {reason}");
        return Ok(ExitCode::SUCCESS);
    }
    let sizes = Sizes::asked()?;
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    for workload in WORKLOADS.iter().filter(|w| asked.is_empty() || asked.contains(&w.0.into())) {
        campaign(testbed.as_ref(), workload, &sizes)?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Sizes {
    studies: u64,
    comparisons: usize,
    blocks: u32,
    window: f64,
}

impl Sizes {
    fn asked() -> Result<Sizes> {
        Ok(Sizes {
            studies: common::number("BENCH_STUDIES", 3.0)? as u64,
            comparisons: common::number("BENCH_COMPARISONS", 10.0)? as usize,
            blocks: common::number("BENCH_BLOCKS", 3.0)? as u32,
            window: common::number("BENCH_WINDOW", 0.8)?,
        })
    }
}

/// Runs all studies of a workload.
fn campaign(
    testbed: &dyn Testbed,
    (name, workload, stream, sends): &(&str, &str, &str, f64),
    sizes: &Sizes,
) -> Result<()> {
    let begin = Instant::now();
    let stop = AtomicBool::new(false);
    let program = std::env::current_exe()?;
    let laboratory = Laboratory { paths: PATHS, testbed, program, ..common::laboratory(&stop) };
    let cell = |turns: u64| -> Result<Cell> {
        let (paths, cores) = ([format!("socket:loop={turns}")], spec::parse_cores("one", [0])?);
        let ask = CellRequest { workload, stream, ..CellRequest::of(&paths, &cores) };
        let (mut cells, _) = spec::cells(&ask, &path_spec(PATHS, path::PAIRS))?;
        Ok(cells.remove(0))
    };
    let equal = cell(0)?;
    let pilot = Schedule::trials(1, WARM_UP, sizes.window);
    let threads: Vec<_> = laboratory.meters.iter().copied().filter(|m| m.name == METER).collect();
    let pilot = OpenTestbed::raise(&laboratory, &equal)?.run(&equal, &threads, &pilot, None)?;
    let per_second = testbed.emulation().and_then(|one| one.instructions_per_second);
    let per_second = per_second.context("the testbed counts no instructions")?;
    let usual = cost(&equal, &pilot, per_second)?;
    let turns = (usual * ADDED / TURN / sends).round() as u64;
    let added = turns as f64 * TURN * sends;
    let unit = pilot.work.terms().unit;
    println!(
        "{name}: {} studies of {} boots, {} pairs of equals in each, windows of {} s, \
         margin {} %; {} instructions after each send, {added} a {unit}",
        sizes.studies,
        sizes.blocks,
        sizes.comparisons,
        sizes.window,
        MARGIN * 100.0,
        turns as f64 * TURN,
    );
    let cells = Cells::of(&equal, &cell(turns)?, sizes.comparisons);
    let (mut boots, mut studies) = (Vec::new(), Vec::new());
    let mut tallies = <[Tally; 2]>::default();
    for number in 0..sizes.studies {
        let study = run(&laboratory, cells.all(), sizes, number)?;
        let mean = cells.gather(&study, per_second, &mut boots)?;
        cells.judge(&study, 1.0 + added / mean, &mut tallies)?;
        studies.push(study);
    }
    spread(&boots, unit);
    show(&tallies);
    let one = joined(studies, sizes.blocks).context("no study")?;
    println!("  all of it as one study of {} boots:", boots.len());
    let mean = boots.iter().map(Moments::mean).collect::<Moments>().mean();
    let mut tallies = <[Tally; 2]>::default();
    cells.judge(&one, 1.0 + added / mean, &mut tallies)?;
    show(&tallies);
    println!("  {:.0} min", begin.elapsed().as_secs_f64() / 60.0);
    Ok(())
}

/// Merges several studies of the same cells into one with the blocks of all.
fn joined(studies: Vec<Study>, blocks: u32) -> Option<Study> {
    let mut all = studies.first()?.clone();
    for (before, study) in (1..).zip(studies.into_iter().skip(1)) {
        let moved = |trial: Trial| Trial { block: trial.block + before * blocks, ..trial };
        all.trials.extend(study.trials.into_iter().map(moved));
    }
    Some(all)
}

fn show([equals, injected]: &[Tally; 2]) {
    println!("  equals:   {equals}");
    println!("  injected: {injected}");
}

/// The meter of the threads' run time.
const METER: &str = "threads";

/// The cells of a study. No two of its comparisons share a trial, except for those of the null
/// cell.
struct Cells {
    /// The cells to compare; the last pair has the one with the loop.
    pairs: Vec<[Cell; 2]>,
    null: Cell,
}

impl Cells {
    /// Makes `equals` pairs of equal cells, and one with the loop.
    fn of(equal: &Cell, dearer: &Cell, equals: usize) -> Cells {
        let named = |cell: &Cell, name: String| Cell {
            id: CellId(format!("{} {name}", cell.id)),
            ..cell.clone()
        };
        let pair = |number: usize| {
            let second = if number == equals { dearer } else { equal };
            [named(equal, format!("{number}a")), named(second, format!("{number}b"))]
        };
        let null = Cell { null: true, ..named(equal, "again".into()) };
        Cells { pairs: (0..=equals).map(pair).collect(), null }
    }

    fn all(&self) -> Vec<Cell> {
        self.pairs.iter().flatten().chain([&self.null]).cloned().collect()
    }

    /// The comparison that a study of one pair and the null cell would report.
    fn judged(&self, study: &Study, pair: &[Cell; 2]) -> Result<Comparison> {
        let cells = vec![pair[0].clone(), self.null.clone(), pair[1].clone()];
        let of_these = |trial: &&Trial| cells.iter().any(|cell| cell.id == trial.cell);
        let trials = study.trials.iter().filter(of_these).cloned().collect();
        let header = StudyHeader { baseline: pair[0].id.clone(), ..study.header.clone() };
        let part = Study { header: StudyHeader { cells, ..header }, trials, ..study.clone() };
        let analysis = analyse(&part, &Rules::of(&part.header));
        let row = analysis.rows.iter().find(|row| row.cell == pair[1].id).context("no row")?;
        let comparison = row.comparison(Metric::Instructions);
        let nothing = || format!("nothing was counted of {}: {:?}", row.cell, row.status);
        Ok(comparison.with_context(nothing)?.clone())
    }

    /// Prints each comparison, and counts it with those of equal cells or with the loop's, whose
    /// ratio is `truth`.
    fn judge(&self, study: &Study, truth: f64, tallies: &mut [Tally; 2]) -> Result<()> {
        for pair in &self.pairs {
            let comparison = self.judged(study, pair)?;
            let (tally, truth) = match pair[0].tx == pair[1].tx {
                true => (&mut tallies[0], 1.0),
                false => (&mut tallies[1], truth),
            };
            println!("  {truth:.4} is found as {}", said(&comparison));
            tally.count(&comparison, truth);
        }
        Ok(())
    }

    /// Adds the cost of equal trials, boot by boot; returns their mean.
    fn gather(&self, study: &Study, per_second: f64, boots: &mut Vec<Moments>) -> Result<f64> {
        let mut blocks: BTreeMap<u32, Moments> = BTreeMap::new();
        let mut all = Moments::default();
        for cell in study.header.cells.iter().filter(|cell| cell.tx == self.null.tx) {
            let of_it = |t: &&Trial| t.cell == cell.id && t.status == TrialStatus::Measured;
            for trial in study.trials.iter().filter(of_it) {
                let cost = cost(cell, trial, per_second)?;
                blocks.entry(trial.block).or_default().add(cost);
                all.add(cost);
            }
        }
        boots.extend(blocks.into_values());
        Ok(all.mean())
    }
}

/// Runs one study, in which all comparisons share their boots.
fn run(laboratory: &Laboratory, cells: Vec<Cell>, sizes: &Sizes, number: u64) -> Result<Study> {
    let folder = tempfile::tempdir()?;
    let kept = std::env::var_os("BENCH_OUT").map(PathBuf::from);
    let parent = kept.as_deref().unwrap_or(folder.path());
    let baseline = cells[0].id.clone();
    let out = parent.join(format!("{baseline} {number}").replace(' ', "-"));
    let schedule = Schedule::trials(sizes.blocks, WARM_UP, sizes.window);
    let plan = Plan {
        judgement: Judgement { margin: MARGIN, ..Judgement::default() },
        meters: vec![METER.into()],
        testbed: TESTBED.into(),
        ..Plan::bare(cells, baseline, Schedule { seed: number, ..schedule }, out)
    };
    let (study, result) = run_study(laboratory, &plan, &mut common::Silent);
    result?;
    let study = study.context("no study")?;
    for trial in study.trials.iter().filter(|trial| trial.status != TrialStatus::Measured) {
        println!("  {}, boot {}: {:?}", trial.cell, trial.block + 1, trial.status);
    }
    Ok(study)
}

/// Instructions per unit of work, both ends.
fn cost(cell: &Cell, trial: &Trial, per_second: f64) -> Result<f64> {
    let [seconds, _] = costs(cell, trial);
    Ok(seconds.with_context(|| format!("no CPU time: {:?}", trial.status))? * per_second)
}

/// Prints the spread within one boot, and that between boots.
fn spread(boots: &[Moments], unit: &str) {
    let means: Moments = boots.iter().map(Moments::mean).collect();
    let squares: Moments = boots.iter().filter_map(|b| Some(b.stddev()?.powi(2))).collect();
    let part = |deviation: f64| deviation / means.mean() * 100.0;
    let (least, most) = range(boots.iter().map(Moments::mean));
    println!(
        "  {:.0} instructions a {unit}; sd of trials of one boot {:.2} %, of the means of {} boots \
         {:.2} % ({least:.0} to {most:.0})",
        means.mean(),
        part(squares.mean().sqrt()),
        boots.len(),
        part(means.stddev().unwrap_or(0.0))
    );
}

/// The smallest and the largest value.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, 0.0), |(least, most), value| (value.min(least), value.max(most)))
}

/// Formats a comparison in one line.
fn said(comparison: &Comparison) -> String {
    let effect = comparison.effect.as_ref();
    let interval = effect.and_then(|effect| Some((effect.ratio, effect.interval.as_ref()?)));
    let interval = interval.map_or("no interval".to_owned(), |(ratio, within)| {
        format!("{ratio:.4} [{:.4}, {:.4}]", within.low, within.high)
    });
    format!("{interval} {}", comparison.verdict.word())
}

/// The number of comparisons by verdict.
#[derive(Default)]
struct Tally {
    words: BTreeMap<&'static str, usize>,
    missed: usize,
    ratios: Vec<f64>,
}

impl Tally {
    fn count(&mut self, comparison: &Comparison, truth: f64) {
        *self.words.entry(comparison.verdict.word()).or_default() += 1;
        let Some(effect) = &comparison.effect else { return };
        self.ratios.push(effect.ratio);
        let within = effect.interval.as_ref();
        let hit = within.is_some_and(|within| (within.low..=within.high).contains(&truth));
        self.missed += usize::from(!hit);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = self.words.iter().map(|(word, count)| format!("{count} {word}"));
        let (low, high) = range(self.ratios.iter().copied());
        write!(
            f,
            "{}; ratios {low:.4} to {high:.4}; {} of {} intervals miss the truth",
            words.collect::<Vec<_>>().join(", "),
            self.missed,
            self.ratios.len()
        )
    }
}

/// `socket` only, with a loop after each send.
static PATHS: &[&DataPath] = &[&DataPath {
    name: "socket",
    summary: "send and recv, and a loop of known length after each send",
    attempt: |_| Vec::new(),
    tx: Some(HalfPath {
        options: &[OptionSpec::new("loop", OptionKind::Count(0, 1 << 40), "0")
            .help("turns after the first, of two instructions each")],
        open,
        ..SEND
    }),
    rx: path::CATALOG[0].rx,
    ..DataPath::EMPTY
}];

static SEND: HalfPath<OpenTx> = match path::CATALOG[0].tx {
    Some(tx) => tx,
    None => panic!("the first path of the catalogue is socket, which sends"),
};

fn open(
    job: &HalfConfig,
    connection: &dyn Connection,
    group: &Group,
) -> Result<Box<dyn Tx>, Fault> {
    let turns = job.options.number("loop").unwrap_or(0) + 1;
    Ok(Box::new(Looped { tx: (SEND.open)(job, connection, group)?, turns }))
}

struct Looped {
    tx: Box<dyn Tx>,
    turns: u64,
}

impl Tx for Looped {
    fn witness(&mut self) -> Result<(), Fault> {
        self.tx.witness()
    }

    fn begin(&mut self) -> Result<(), Fault> {
        self.tx.begin()
    }

    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        self.tx.send(recorder)?;
        // SAFETY: counts its own register down to zero, and touches nothing else.
        unsafe {
            std::arch::asm!("2:", "dec {0}", "jnz 2b", inout(reg) self.turns => _,
                options(nomem, nostack));
        }
        Ok(())
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        self.tx.account(recorder)
    }
}
