//! `bytepath copy`: copy engines alone, compared with the CPU.

use super::help::list;
use super::output_args::{Document, OutputArgs};
use bytepath_engine::copy::trial::{Load, Outcome, memories, on_cpu, run};
use bytepath_engine::copy::{CATALOG, EngineKind, Memories, Shape, dsa, engine};
use bytepath_record::{Fault, FaultKind, Options, unit};
use bytepath_report as report;
use bytepath_spec::usage;
use bytepath_stats::{BreakEven, CopyAt, CopyCell, CopyRow, CopyTrial, offload};
use bytepath_sys::{self as sys, Roots};
use clap::Args;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_long_help = after_help())]
pub(super) struct CopyArgs {
    /// Engine, compared with the first; repeatable [default: all that work]
    ///
    /// With options: NAME[:key=value,...]. The default is cpu, thread, and dsa if it is set up. One
    /// that is typed and not there has a row with the reason, and the exit code is 3.
    #[arg(long = "engine", value_name = "ENGINE")]
    engines: Vec<String>,
    /// Bytes per copy, as in 64,4K
    #[arg(long, value_name = "SIZES", default_value = "64,512,4K,32K,256K,1M", value_delimiter = ',', value_parser = size)]
    size: Vec<u32>,
    /// Copies in flight, comma-separated
    #[arg(long, value_name = "N", default_value = "1,8", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=4096))]
    depth: Vec<u16>,
    /// Copies submitted together, comma-separated
    ///
    /// Batches larger than the depth are left out.
    #[arg(long, value_name = "N", default_value = "1", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    batch: Vec<u16>,
    /// Memory that is copied: hot, cold or both
    ///
    /// hot: the same few buffers; cold: 128 MiB in rotation.
    #[arg(long, hide_possible_values = true, value_name = "WHICH", default_value = "hot,cold", value_delimiter = ',', value_parser = ["hot", "cold"])]
    memory: Vec<String>,
    /// Blocks; each runs every cell once, in random order
    #[arg(short = 'n', long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=1000))]
    blocks: u32,
    /// Duration of each trial
    #[arg(short, long, value_name = "TIME", default_value = "10ms", value_parser = unit::parse_duration)]
    time: Duration,
    /// CPU to pin the caller to
    #[arg(long, value_name = "CPU")]
    cpu: Option<u32>,
    /// Seed of the order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// An engine with its options.
struct Engine {
    text: String,
    kind: &'static EngineKind,
    options: Options,
}

/// The engines to measure if none is typed.
const DEFAULT: [&str; 3] = ["cpu", "thread", "dsa"];

/// An engine that is unavailable on this machine, as typed, with the reason.
type Lacking = (String, Fault);

/// The JSON document.
#[derive(Serialize, JsonSchema)]
pub(super) struct Measured<'a> {
    break_even: &'a [BreakEven],
    cells: &'a [CopyRow],
    /// Engines that cannot run here, with the reason.
    absent: &'a [(String, String)],
    notes: &'a [String],
}

/// Measures copy engines.
pub(super) fn copy(arguments: &CopyArgs) -> Result<(), Fault> {
    arguments.output.format()?;
    let loads = loads(arguments);
    let first = loads.first().ok_or_else(|| {
        usage("every --batch is larger than every --depth").remedy("raise --depth")
    })?;
    let memories = memories(&loads)?;
    let (engines, lacking) = split_available(typed(&arguments.engines)?, &memories, first.shape)?;
    let mut cells: Vec<(CopyCell, Vec<CopyTrial>)> = Vec::new();
    let mut plan: Vec<(usize, Load)> = Vec::new();
    for (number, engine) in engines.iter().enumerate() {
        for load in &loads {
            let Load { size, shape: Shape { depth, batch }, rotate, .. } = *load;
            let at = CopyAt { depth, batch, rotate };
            cells.push((CopyCell::new(&engine.text, size.into(), at), Vec::new()));
            plan.push((number, *load));
        }
    }
    let mut order: Vec<usize> = (0..plan.len()).collect();
    let mut random = StdRng::seed_from_u64(arguments.seed);
    on_cpu(arguments.cpu, || {
        for _ in 0..arguments.blocks {
            order.shuffle(&mut random);
            for at in &order {
                let (number, load) = &plan[*at];
                cells[*at].1.push(trial(&engines[*number], &memories, load)?);
            }
        }
        Ok(())
    })?;
    let (rows, break_even) = offload(&cells);
    let notes = notes(&engines);
    let in_words = |(engine, fault): &Lacking| (engine.clone(), fault.to_string());
    let absent: Vec<(String, String)> = lacking.iter().map(in_words).collect();
    let content =
        Measured { break_even: &break_even, cells: &rows, absent: &absent, notes: &notes };
    arguments.output.print(&Document::new("bytepath-copy", content), |style, out| {
        report::offload(&rows, &break_even, &absent, &notes).write(style, out)
    })?;
    // A requested engine that is unavailable is an error, after everything else was measured.
    let requested = lacking.into_iter().find(|(engine, _)| arguments.engines.contains(engine));
    requested.map_or(Ok(()), |(engine, fault)| Err(fault.context(format!("engine {engine}"))))
}

/// Returns every combination of sizes, depths, batches and memories.
fn loads(arguments: &CopyArgs) -> Vec<Load> {
    let mut all = Vec::new();
    for memory in &arguments.memory {
        for depth in &arguments.depth {
            for batch in arguments.batch.iter().filter(|batch| *batch <= depth) {
                let shape = Shape { depth: (*depth).into(), batch: (*batch).into() };
                let rotate = memory == "cold";
                let load = |size: &u32| Load { size: *size, shape, rotate, time: arguments.time };
                all.extend(arguments.size.iter().map(load));
            }
        }
    }
    all
}

fn trial(engine: &Engine, memories: &Memories, load: &Load) -> Result<CopyTrial, Fault> {
    let outcome = run((engine.kind, &engine.options), memories, load)
        .map_err(|fault| fault.context(format!("{} at {} bytes", engine.text, load.size)))?;
    let Outcome { copies, seconds, submitting, polling, polls, latency, events } = outcome;
    let each = |sum: f64| sum / copies as f64;
    Ok(CopyTrial {
        rate: copies as f64 * f64::from(load.size) / seconds,
        caller: each(submitting + polling),
        submitting: each(submitting),
        latency,
        polls: each(polls as f64),
        hindrances: each((events.faults + events.retries) as f64),
    })
}

/// Parses the engines, or returns the default ones.
fn typed(texts: &[String]) -> Result<Vec<Engine>, Fault> {
    let names = if texts.is_empty() { DEFAULT.map(str::to_owned).to_vec() } else { texts.to_vec() };
    let one = |text: &String| {
        let (kind, options) = engine(text)?;
        Ok(Engine { text: text.clone(), kind, options })
    };
    let typed = names.iter().map(one).collect::<Result<Vec<_>, Fault>>()?;
    let twice =
        typed.iter().enumerate().find(|(n, it)| typed[..*n].iter().any(|e| e.text == it.text));
    match twice {
        Some((_, it)) => Err(usage(format!("engine {} is given twice", it.text))),
        None => Ok(typed),
    }
}

/// Splits the engines into those available on this machine and the others with the reason. Errors
/// with the first reason if none is available.
fn split_available(
    engines: Vec<Engine>,
    memories: &Memories,
    shape: Shape,
) -> Result<(Vec<Engine>, Vec<Lacking>), Fault> {
    let (mut able, mut lacking) = (Vec::new(), Vec::new());
    for engine in engines {
        match (engine.kind.open)(memories, shape, &engine.options) {
            Ok(_) => able.push(engine),
            Err(fault) if fault.kind == FaultKind::Unsupported => {
                lacking.push((engine.text, fault));
            }
            Err(fault) => return Err(fault.context(engine.text)),
        }
    }
    match lacking.first() {
        Some((_, fault)) if able.is_empty() => Err(fault.clone()),
        _ => Ok((able, lacking)),
    }
}

/// Returns notes on what the figures depend on: the clock, and the queues of a DSA.
fn notes(engines: &[Engine]) -> Vec<String> {
    let counter = 1e-9 / sys::clock::tick_seconds();
    let cycles = format!("a nanosecond is {counter:.2} cycles of the time-stamp counter");
    // On other architectures the clock counts nanoseconds.
    let counted = (counter - 1.0).abs() > 1e-6;
    let dsa = engines.iter().find(|engine| engine.kind.name == "dsa");
    let queues = dsa.map(|engine| dsa::chosen(&Roots::real(), engine.options.word("queues")));
    let queues = queues.and_then(Result::ok).unwrap_or_default();
    counted.then_some(cycles).into_iter().chain(queues.iter().map(ToString::to_string)).collect()
}

fn size(text: &str) -> Result<u32, String> {
    match unit::parse_bytes(text)? {
        bytes @ 1..=LARGEST => u32::try_from(bytes).map_err(|e| e.to_string()),
        _ => Err(format!("'{text}' is outside 1 to {}", unit::bytes(LARGEST))),
    }
}

/// Largest copy in bytes.
const LARGEST: u64 = 1 << 30;

fn after_help() -> String {
    let mut text =
        list("Engines (--engine):", CATALOG.iter().map(|kind| (kind.name, kind.summary)));
    for kind in CATALOG.iter().filter(|kind| !kind.options.is_empty()) {
        let options = kind.options.iter();
        let rows = options.map(|o| (format!("{}={}", o.name, o.default), o.help));
        text.push('\n');
        text.push_str(&list(&format!("Options of {}:", kind.name), rows));
    }
    text.push_str(
        "\nExamples:
  bytepath copy                                     the CPU against a helper core
  bytepath copy --engine cpu --engine cpu:method=rep-movsb --engine cpu:method=non-temporal
  bytepath copy --engine cpu --engine dsa --depth 32 --batch 1,8

docs/reference/paths/copy.md describes what is measured, and what has not run on DSA hardware.",
    );
    text
}
