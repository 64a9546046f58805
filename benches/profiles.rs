//! How fast, and in how much memory, a perf script is read: ours compared with
//! `stackcollapse-perf.pl` (if it is on PATH) and inferno's collapse.
//!
//! `cargo bench --bench profiles`; BENCH_SIZE is the size of the text in bytes (default 1e9), made
//! up in a temporary folder. Each reader runs in a separate process, so that its peak memory
//! (VmHWM) is its own.

use anyhow::{Context, Result, ensure};
use bytepath::profile::import;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Environment variable that names the reader for a child of this bench.
const READER: &str = "BENCH_READER";

fn main() -> Result<()> {
    if let Ok(reader) = std::env::var(READER) {
        let file = std::env::args().nth(1).context("no file")?;
        return read(&reader, Path::new(&file));
    }
    let size = match std::env::var("BENCH_SIZE") {
        Ok(text) => text.parse::<f64>().context("BENCH_SIZE is not a number")? as u64,
        Err(_) => 1_000_000_000,
    };
    let folder = tempfile::tempdir()?;
    let mut small = 0;
    for size in [size / 8, size] {
        let file = folder.path().join("perf.script");
        let samples = make(&file, size)?;
        let size = fs::metadata(&file)?.len();
        println!("\nperf script of {} MB, {samples} samples", size / 1_000_000);
        println!("{:<24} {:>8} {:>8} {:>10}", "reader", "s", "MB/s", "peak MiB");
        let own = |reader| {
            let program = std::env::current_exe()?;
            Command::new(program).arg(&file).env(READER, reader).stdout(Stdio::null()).spawn()
        };
        let ours = watch(own("bytepath")?)?;
        show("bytepath", size, &ours);
        show("inferno-collapse-perf", size, &watch(own("inferno")?)?);
        let perl = Command::new("stackcollapse-perf.pl").arg(&file).stdout(Stdio::null()).spawn();
        match perl {
            Ok(child) => show("stackcollapse-perf.pl", size, &watch(child)?),
            Err(_) => println!("{:<24} not found on PATH", "stackcollapse-perf.pl"),
        }
        if small == 0 {
            small = ours.peak;
        } else {
            // Eight times the text, and no more additional memory than for its samples' times.
            let flat = ours.peak <= small + (32 << 10);
            println!("peak of bytepath: {} MiB for an eighth of the text", small >> 10);
            ensure!(flat, "memory grows with the text: {} KiB after {small} KiB", ours.peak);
        }
    }
    Ok(())
}

/// Reads a file with one of the readers.
fn read(reader: &str, file: &Path) -> Result<()> {
    let mut input = BufReader::with_capacity(256 << 10, File::open(file)?);
    if reader == "inferno" {
        use inferno::collapse::Collapse;
        use inferno::collapse::perf::{Folder, Options};
        let mut options = Options::default();
        options.nthreads = 1;
        Folder::from(options).collapse(input, std::io::sink())?;
    } else {
        let profile = import::read("bench", &mut input)?;
        println!("{} samples, {} stacks", profile.count(), profile.stacks());
    }
    Ok(())
}

/// The cost of a process.
struct Taken {
    time: Duration,
    /// Peak memory in KiB.
    peak: u64,
}

/// Waits for a process, sampling its peak memory meanwhile.
fn watch(mut child: Child) -> Result<Taken> {
    let start = Instant::now();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let seen = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        peak = peak.max(seen.unwrap_or(0));
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "a reader failed: {status}");
            return Ok(Taken { time: start.elapsed(), peak });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn show(name: &str, size: u64, taken: &Taken) {
    let seconds = taken.time.as_secs_f64();
    let rate = size as f64 / 1e6 / seconds;
    println!("{name:<24} {seconds:>8.2} {rate:>8.0} {:>10}", taken.peak >> 10);
}

/// Pseudo-random numbers that are the same in every run (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Writes a perf script of a given size: stacks of 6 to 25 of 3000 functions, most of them the same
/// few hundred, as in a server under load.
fn make(file: &Path, size: u64) -> Result<u64> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let functions: Vec<(u64, String)> = (0..3000)
        .map(|n| {
            let kernel = n % 2 == 0;
            let name = ["tcp", "skb", "copy", "page", "sched"][n % 5];
            let (base, module) = match kernel {
                true => (0xffff_ffff_8100_0000, "[kernel.kallsyms]"),
                false => (0x5581_0000_0000, "/usr/lib/x86_64-linux-gnu/libserver.so.1"),
            };
            (base + n as u64 * 0x400, format!("{name}_function_{n}\u{0}{module}"))
        })
        .collect();
    let stacks: Vec<Vec<usize>> = (0..2000)
        .map(|_| {
            let depth = 6 + random.below(20);
            let mut stack: Vec<usize> =
                (0..depth).map(|_| random.below(functions.len() as u64) as usize).collect();
            // Kernel functions are the inner ones.
            stack.sort_by_key(|n| n % 2);
            stack
        })
        .collect();
    let mut out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    let (mut written, mut samples) = (0, 0);
    let mut text = Vec::new();
    while written < size {
        text.clear();
        let rare = random.below(10) == 0;
        let pick = random.below(if rare { stacks.len() as u64 } else { 300 });
        let (thread, cpu) = (random.below(16), random.below(8));
        let time = samples * 1001;
        let (seconds, micros) = (time / 1_000_000, time % 1_000_000);
        let tid = 4200 + thread;
        writeln!(
            text,
            "server-{thread} 4200/{tid} [{cpu:03}] {seconds:5}.{micros:06}:    1001001 cpu-clock: "
        )?;
        for n in &stacks[pick as usize] {
            let (base, name) = &functions[*n];
            let offset = random.below(0x3ff);
            let (symbol, module) = name.split_once('\u{0}').unwrap_or((name, ""));
            writeln!(text, "\t{:16x} {symbol}+{offset:#x} ({module})", base + offset)?;
        }
        writeln!(text)?;
        out.write_all(&text)?;
        written += text.len() as u64;
        samples += 1;
    }
    out.flush()?;
    Ok(samples)
}
