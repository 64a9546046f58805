//! The difference of two profiles of a million samples each, from the text of `perf script` and
//! from folded stacks, against inferno's library, built as its own tools are (several threads), and
//! against `stackcollapse-perf.pl` and `difffolded.pl` (from PATH or FLAMEGRAPH_DIR; left out if
//! missing).
//!
//! `cargo bench --bench diff`; samples by BENCH_SAMPLES, repetitions by BENCH_REPEAT. A million
//! samples are about a GiB of text for each profile, in the folder TMPDIR.
//!
//! Contenders alternate, and the median ratio of neighbours is printed, with the smallest and the
//! largest: other load on the machine affects both. Time is that of the whole process, from start
//! to end; peak memory is measured in a separate run, because watching it costs time.

use anyhow::{Context, Result, ensure};
use inferno::collapse::Collapse;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// First argument of a child process of this bench.
const CHILD: &str = "--child";

/// Number of distinct stacks of a server that does the same things repeatedly, and of a program
/// that recurses through its data.
const STACKS: [(&str, usize); 2] = [("4 thousand stacks", 4_000), ("200 thousand stacks", 200_000)];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == CHILD) {
        return child(&arguments[1..]);
    }
    let samples = number("BENCH_SAMPLES", 1_000_000)?;
    let repeat = number("BENCH_REPEAT", 9)?.max(1);
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let perl = perl();
    if perl.is_none() {
        println!("SKIP the Perl scripts: not in PATH, nor in FLAMEGRAPH_DIR");
    }
    for (kind, stacks) in STACKS {
        let (scripts, folded) =
            ([at("a.script"), at("b.script")], [at("a.folded"), at("b.folded")]);
        // The text of a million samples takes a while to write, and the text of many stacks shows
        // nothing beyond that of few.
        let with_script = stacks == STACKS[0].1;
        for (i, (script, folded)) in scripts.iter().zip(&folded).enumerate() {
            generate(samples, stacks, i as u64, with_script.then_some(script.as_path()), folded)?;
        }
        let inputs = [("perf script", &scripts, repeat.div_ceil(3)), ("folded", &folded, repeat)];
        for (what, files, repeat) in inputs {
            if what == "perf script" && !with_script {
                continue;
            }
            let size = (fs::metadata(&files[0])?.len() + fs::metadata(&files[1])?.len()) >> 20;
            println!("\n{what}, {samples} samples in {kind} each, {size} MiB in both");
            let run = |who: &str| start_child(who, what, files).and_then(finished);
            let [ours, theirs] = turns(repeat, [&|| run("bytepath"), &|| run("inferno")])?;
            let [own, other] =
                ["bytepath", "inferno"].map(|who| peak(start_child(who, what, files)));
            let (own, other) = (own?, other?);
            println!("  bytepath  {}, {} MiB", Spread::of(&ours, "s"), own >> 10);
            println!("  inferno   {}, {} MiB", Spread::of(&theirs, "s"), other >> 10);
            let ratios: Vec<f64> = theirs.iter().zip(&ours).map(|(t, o)| t / o).collect();
            let memory = other as f64 / own.max(1) as f64;
            println!(
                "  inferno takes {}, {memory:.2} times the memory",
                Spread::of(&ratios, "times as long")
            );
            if let Some(scripts) = &perl {
                let (seconds, kib) = scripts.run(what, files, folder.path())?;
                let middle = Spread::of(&ours, "s").middle;
                println!(
                    "  Perl      {seconds:.3} s, {} MiB: {:.1} times as long, {:.1} times the memory",
                    kib >> 10,
                    seconds / middle,
                    kib as f64 / own.max(1) as f64
                );
            }
        }
    }
    Ok(())
}

/// Seconds of two contenders that alternate, starting with the other one each time.
fn turns(repeat: u64, run: [&dyn Fn() -> Result<f64>; 2]) -> Result<[Vec<f64>; 2]> {
    let mut seconds = [Vec::new(), Vec::new()];
    // Once untimed, so that the files are in the page cache.
    run[0]()?;
    for turn in 0..repeat {
        for who in if turn % 2 == 0 { [0, 1] } else { [1, 0] } {
            seconds[who].push(run[who]()?);
        }
    }
    Ok(seconds)
}

/// The median of several values, and their range.
struct Spread {
    middle: f64,
    low: f64,
    high: f64,
    unit: &'static str,
}

impl Spread {
    fn of(values: &[f64], unit: &'static str) -> Spread {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
        let middle = (at((sorted.len().max(1) - 1) / 2) + at(sorted.len() / 2)) / 2.0;
        Spread { middle, low: at(0), high: at(sorted.len().max(1) - 1), unit }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Spread { middle, low, high, unit } = self;
        write!(f, "{middle:.3} {unit} ({low:.3} .. {high:.3})")
    }
}

/// Waits for a contender; returns the seconds that it took.
fn finished((mut child, begin): (Child, Instant)) -> Result<f64> {
    let status = child.wait()?;
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(status.success(), "a contender failed: {status}");
    Ok(seconds)
}

/// Peak memory of a contender in KiB: the last value in /proc, which only grows.
fn peak(started: Result<(Child, Instant)>) -> Result<u64> {
    let (mut child, _) = started?;
    let path = format!("/proc/{}/status", child.id());
    let mut kib = 0;
    loop {
        let status = fs::read_to_string(&path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib = kib.max(now.unwrap_or(0));
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "a contender failed: {status}");
            return Ok(kib);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn start(command: &mut Command) -> Result<(Child, Instant)> {
    let begin = Instant::now();
    let child = command.stdin(Stdio::null()).spawn().context("cannot start a contender")?;
    Ok((child, begin))
}

fn start_child(who: &str, what: &str, files: &[PathBuf; 2]) -> Result<(Child, Instant)> {
    let mut command = if who == "bytepath" {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        command.arg("diff").args(files).args(["--per", "none", "--format", "tsv"]);
        command
    } else {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(CHILD).arg(what).args(files);
        command
    };
    start(command.stdout(Stdio::null()))
}

/// The work of a child process, `WHAT A B`: that of inferno-diff-folded, after that of
/// inferno-collapse-perf if the files are text of perf script.
fn child(arguments: &[String]) -> Result<()> {
    let [what, a, b] = arguments else { anyhow::bail!("not for calling by hand") };
    let out = BufWriter::new(std::io::stdout().lock());
    let options = inferno::differential::Options::default();
    if what == "folded" {
        inferno::differential::from_files(options, a, b, out)?;
        return Ok(());
    }
    let fold = |file: &str| -> Result<Vec<u8>> {
        let mut text = Vec::new();
        let input = BufReader::with_capacity(128 << 10, File::open(file)?);
        inferno::collapse::perf::Folder::default().collapse(input, &mut text)?;
        Ok(text)
    };
    let (a, b) = (fold(a)?, fold(b)?);
    inferno::differential::from_readers(options, &a[..], &b[..], out)?;
    Ok(())
}

/// The two Perl scripts.
struct Perl {
    collapse: PathBuf,
    differ: PathBuf,
}

fn perl() -> Option<Perl> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = std::env::var_os("FLAMEGRAPH_DIR").map(PathBuf::from);
    let mut folders = own.into_iter().chain(std::env::split_paths(&path));
    folders.find_map(|folder| {
        let (collapse, differ) =
            (folder.join("stackcollapse-perf.pl"), folder.join("difffolded.pl"));
        (collapse.is_file() && differ.is_file()).then_some(Perl { collapse, differ })
    })
}

impl Perl {
    /// Runs all steps; returns their seconds and KiB.
    fn run(&self, what: &str, files: &[PathBuf; 2], folder: &Path) -> Result<(f64, u64)> {
        let (mut seconds, mut kib) = (0.0, 0);
        let mut step = |script: &Path, inputs: &[&Path], out: Stdio| -> Result<()> {
            let begin = Instant::now();
            kib = kib.max(peak(start(Command::new("perl").arg(script).args(inputs).stdout(out)))?);
            seconds += begin.elapsed().as_secs_f64();
            Ok(())
        };
        let mut folded = files.clone();
        if what != "folded" {
            for (i, file) in files.iter().enumerate() {
                folded[i] = folder.join(format!("perl-{i}"));
                step(&self.collapse, &[file], File::create(&folded[i])?.into())?;
            }
        }
        step(&self.differ, &[&folded[0], &folded[1]], Stdio::null())?;
        Ok((seconds, kib))
    }
}

/// Writes a profile in both forms, or folded only. Stacks are walks through a made-up call graph, a
/// few of which make up most samples; the folded ones are sorted, as all tools that fold stacks
/// write them.
fn generate(
    samples: u64,
    stacks: usize,
    seed: u64,
    script: Option<&Path>,
    folded: &Path,
) -> Result<()> {
    let mut random = Random(seed + 1);
    // Both profiles have the same functions, but different stacks and shares.
    let stacks: Vec<Vec<u64>> = (0..stacks)
        .map(|_| {
            let depth = 6 + random.below(22);
            let mut at = random.below(12);
            (0..depth)
                .map(|level| {
                    at = (at * 7 + random.below(3) + level) % 3000;
                    at
                })
                .collect()
        })
        .collect();
    let mut counts = vec![0u64; stacks.len()];
    let mut out = match script {
        Some(script) => Some(BufWriter::with_capacity(1 << 20, File::create(script)?)),
        None => None,
    };
    for i in 0..samples {
        // The smallest of three: a few stacks get most samples.
        let least = (0..3).map(|_| random.below(stacks.len() as u64)).min().unwrap_or(0);
        counts[least as usize] += 1;
        let Some(out) = &mut out else { continue };
        let (cpu, time) = (i % 16, i as f64 / 1e4);
        writeln!(
            out,
            "worker  {}/{} [{cpu:03}] {time:12.6}:    1003009 cpu-clock: ",
            900 + cpu,
            900 + cpu
        )?;
        for function in stacks[least as usize].iter().rev() {
            let address = 0xffff_ffff_8100_0000u64 + function * 0x140;
            writeln!(
                out,
                "\t{address:16x} function_of_the_kernel_{function}+0x3a ([kernel.kallsyms])"
            )?;
        }
        writeln!(out)?;
    }
    if let Some(mut out) = out {
        out.flush()?;
    }
    let line = |(stack, count): (&Vec<u64>, &u64)| {
        let names: String = stack.iter().map(|f| format!(";function_of_the_kernel_{f}")).collect();
        format!("worker{names} {count}")
    };
    let seen = stacks.iter().zip(&counts).filter(|(_, count)| **count > 0);
    let mut lines: Vec<String> = seen.map(line).collect();
    lines.sort_unstable();
    let mut out = BufWriter::new(File::create(folded)?);
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(())
}

/// Pseudo-random numbers that are the same in every run (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

fn number(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is not a number")),
        Err(_) => Ok(default),
    }
}
