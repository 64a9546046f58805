//! The difference of two profiles of a million samples each, from the text of
//! `perf script` and from folded stacks, against `stackcollapse-perf.pl` and
//! `difffolded.pl` (from PATH or FLAMEGRAPH_DIR; left out where they are missing)
//! and against inferno's library: wall time and peak memory.
//!
//! `cargo bench --bench diff`; samples by BENCH_SAMPLES, repetitions by
//! BENCH_REPEAT. A million samples are about a GiB of text for each profile, in
//! the folder that TMPDIR names.

use anyhow::{Context, Result, ensure};
use bytepath::profile::diff::{Options, diff};
use bytepath::profile::{
    Builder, Frame, FrameId, Header, Owner, Profile, Sample, Thread, Weight, import,
};
use inferno::collapse::Collapse;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a process of this bench does when it is started with this first.
const CHILD: &str = "--child";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == CHILD) {
        return child(&arguments[1..]);
    }
    let samples = number("BENCH_SAMPLES", 1_000_000)?;
    let repeat = number("BENCH_REPEAT", 3)?.max(1);
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let (scripts, folded) = ([at("a.script"), at("b.script")], [at("a.folded"), at("b.folded")]);
    for (i, (script, folded)) in scripts.iter().zip(&folded).enumerate() {
        generate(samples, i as u64, script, folded)?;
    }
    let size = |paths: &[PathBuf; 2]| -> Result<u64> {
        Ok((fs::metadata(&paths[0])?.len() + fs::metadata(&paths[1])?.len()) >> 20)
    };
    println!(
        "{samples} samples each: perf script {} MiB, folded {} MiB in both",
        size(&scripts)?,
        size(&folded)?
    );
    let perl = perl();
    for (what, files) in [("perf script", &scripts), ("folded", &folded)] {
        let ours = if known(&files[0])? { Some("bytepath") } else { None };
        // Without a reader of the format, the bench reads folded stacks itself.
        let ours = ours.or((what == "folded").then_some("bytepath-by-hand"));
        let Some(ours) = ours else {
            println!("{what}: SKIP, bytepath has no reader of it");
            continue;
        };
        let run = |who: &str| measure(repeat, || start_child(who, what, files));
        let own = run(ours)?;
        println!("{what}: {ours} {own}");
        let other = run("inferno")?;
        println!("{what}: inferno {other}, {}", other.over(&own));
        match &perl {
            None => println!("{what}: SKIP the Perl scripts: not in PATH, nor in FLAMEGRAPH_DIR"),
            Some(scripts) => {
                let other = measure(repeat, || scripts.run(what, files, folder.path()))?;
                println!("{what}: Perl {other}, {}", other.over(&own));
            }
        }
    }
    Ok(())
}

/// Wall time and peak memory.
#[derive(Clone, Copy)]
struct Cost {
    seconds: f64,
    kib: u64,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} s, {} MiB", self.seconds, self.kib >> 10)
    }
}

impl Cost {
    fn over(&self, own: &Cost) -> String {
        let memory = self.kib as f64 / own.kib.max(1) as f64;
        format!("{:.1} times as long, {memory:.1} times the memory", self.seconds / own.seconds)
    }
}

/// The fastest of several runs, and the most memory that one took.
fn measure(repeat: u64, run: impl Fn() -> Result<Cost>) -> Result<Cost> {
    let mut best = run()?;
    for _ in 1..repeat {
        let next = run()?;
        best.seconds = best.seconds.min(next.seconds);
        best.kib = best.kib.max(next.kib);
    }
    Ok(best)
}

/// Runs a program to its end. Its peak memory is what /proc told last: it only
/// grows, so looking often is enough.
fn watch(command: &mut Command) -> Result<Cost> {
    let begin = Instant::now();
    let mut child = command.stdin(Stdio::null()).spawn().context("cannot start a contender")?;
    let path = format!("/proc/{}/status", child.id());
    let mut kib = 0;
    loop {
        let status = fs::read_to_string(&path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib = kib.max(now.unwrap_or(0));
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "a contender failed: {status}");
            return Ok(Cost { seconds: begin.elapsed().as_secs_f64(), kib });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn start_child(who: &str, what: &str, files: &[PathBuf; 2]) -> Result<Cost> {
    let program = std::env::current_exe()?;
    let mut command = match who {
        "bytepath" => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
            command.arg("diff").args(files).args(["--per", "none", "--format", "tsv"]);
            command
        }
        who => {
            let mut command = Command::new(program);
            command.arg(CHILD).arg(who).arg(what).args(files);
            command
        }
    };
    watch(command.stdout(Stdio::null()))
}

/// What a child process does: `WHO WHAT A B`.
fn child(arguments: &[String]) -> Result<()> {
    let [who, what, a, b] = arguments else { anyhow::bail!("not for calling by hand") };
    let files = [Path::new(a), Path::new(b)];
    if who == "bytepath-by-hand" {
        let sides = [[read_folded(files[0])?], [read_folded(files[1])?]];
        let found = diff(&sides[0], &sides[1], &Options::default())?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        for row in &found.rows {
            let amount = row.amount;
            writeln!(out, "{}\t{}\t{}", row.function, amount.with, amount.without)?;
        }
        return Ok(());
    }
    let fold = |file: &Path| -> Result<Vec<u8>> {
        let mut text = Vec::new();
        let input = BufReader::with_capacity(128 << 10, File::open(file)?);
        if what == "folded" {
            BufReader::new(input).read_to_end(&mut text)?;
        } else {
            let mut folder = inferno::collapse::perf::Folder::default();
            folder.collapse(input, &mut text)?;
        }
        Ok(text)
    };
    let (a, b) = (fold(files[0])?, fold(files[1])?);
    let out = BufWriter::new(std::io::stdout().lock());
    let options = inferno::differential::Options::default();
    inferno::differential::from_readers(options, &a[..], &b[..], out)?;
    Ok(())
}

/// Whether the beginning of a file is one that can be imported.
fn known(file: &Path) -> Result<bool> {
    let mut head = Vec::new();
    File::open(file)?.take(import::HEAD as u64).read_to_end(&mut head)?;
    Ok(import::CATALOG.iter().any(|importer| importer.recognises(&head)))
}

fn read_folded(file: &Path) -> Result<Profile> {
    let mut builder = Builder::new(Header { weight: Weight::Samples, ..Header::default() });
    let thread = builder.thread(Thread::default());
    let mut known: HashMap<String, FrameId> = HashMap::new();
    let mut ids = Vec::new();
    let mut input = BufReader::with_capacity(1 << 20, File::open(file)?);
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let (stack, count) = line.trim_end().rsplit_once(' ').context("no count")?;
        ids.clear();
        for name in stack.rsplit(';') {
            let id = known.get(name).copied().unwrap_or_else(|| {
                let function = name.to_owned();
                let id = builder.frame(Frame { function, ..Frame::default() });
                known.insert(name.to_owned(), id);
                id
            });
            ids.push(id);
        }
        let (stack, count) = (builder.stack(&ids), count.parse()?);
        builder.add(Sample {
            stack,
            thread,
            owner: Owner::Unknown,
            cpu: None,
            time: None,
            count,
            weight: count as f64,
        });
        line.clear();
    }
    Ok(builder.build())
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
    fn run(&self, what: &str, files: &[PathBuf; 2], folder: &Path) -> Result<Cost> {
        let mut cost = Cost { seconds: 0.0, kib: 0 };
        let mut step = |script: &Path, inputs: &[&Path], out: Stdio| -> Result<()> {
            let mut command = Command::new("perl");
            let next = watch(command.arg(script).args(inputs).stdout(out))?;
            cost.seconds += next.seconds;
            cost.kib = cost.kib.max(next.kib);
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
        Ok(cost)
    }
}

/// Writes a profile in both forms. Stacks are walks through a made-up call graph,
/// as different as those of a busy machine: some thousand of them, a few of which
/// make up most samples.
fn generate(samples: u64, seed: u64, script: &Path, folded: &Path) -> Result<()> {
    let mut random = Random(seed + 1);
    // The functions are those of both profiles, the stacks and their shares are not.
    let stacks: Vec<Vec<u64>> = (0..4000)
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
    let mut out = BufWriter::with_capacity(1 << 20, File::create(script)?);
    for i in 0..samples {
        // The smaller of three: few stacks take most.
        let least = (0..3).map(|_| random.below(stacks.len() as u64)).min().unwrap_or(0);
        counts[least as usize] += 1;
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
    out.flush()?;
    let mut out = BufWriter::new(File::create(folded)?);
    for (stack, count) in stacks.iter().zip(&counts).filter(|(_, count)| **count > 0) {
        write!(out, "worker")?;
        for function in stack {
            write!(out, ";function_of_the_kernel_{function}")?;
        }
        writeln!(out, " {count}")?;
    }
    out.flush()?;
    Ok(())
}

/// Numbers that look random and are the same each time (xorshift64*).
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
        Ok(text) => text.parse().with_context(|| format!("{name} is no number")),
        Err(_) => Ok(default),
    }
}
