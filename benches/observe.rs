//! The cost of observing. First, the memory of `bytepath observe`, and how long its report takes
//! after the end of programs with many threads. Then its overhead for one call: loops of calls
//! under `bytepath observe`, and beside it. Then iperf3 over loopback alone, under `bytepath
//! observe`, `perf record`, `perf trace -s` and `strace -c -f`, one after the other in every round.
//! Prints throughput and its ratio to iperf3 alone: median and range.
//!
//! `cargo bench --bench observe [-- report]`, the latter for memory and report only; needs root,
//! iperf3, and perf and strace for their lines. Rounds and seconds of each run by BENCH_PAIRS and
//! BENCH_WINDOW; options of the client by BENCH_IPERF3 (default: -l 128K -C cubic).

#[path = "common/iperf3.rs"]
mod iperf3;

use anyhow::{Context, Result, ensure};
use bytepath::sys::clock;
use iperf3::Server;
use rustix::net::RecvFlags;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

/// What iperf3 runs under. The first is the reference; it runs twice, to show the noise between two
/// equal runs.
const WATCHERS: &[(&str, &[&str])] = &[
    ("alone", &[]),
    ("alone (again)", &[]),
    ("observe", &[BYTEPATH, "observe", "--sample", "none", "--out", "/dev/null", "--"]),
    ("observe, with a profile", &[BYTEPATH, "observe", "--out", "/dev/null", "--"]),
    // The profile's competitor: all CPUs and call chains, at the same rate.
    (
        "perf record -F 99",
        &["perf", "record", "-q", "-a", "-g", "-F", "99", "-o", "/dev/null", "--"],
    ),
    ("perf trace -s", &["perf", "trace", "-s", "-o", "/dev/null", "--"]),
    ("strace -c -f", &["strace", "-c", "-f", "-o", "/dev/null"]),
];

const BYTEPATH: &str = env!("CARGO_BIN_EXE_bytepath");

/// Environment variable that makes this program the loop of calls.
const LOOP: &str = "BENCH_CALLS";

/// Environment variable that makes this program start that many short threads.
const THREADS: &str = "BENCH_THREADS";

fn main() -> Result<()> {
    if std::env::var_os(LOOP).is_some() {
        return loops();
    }
    if let Ok(number) = std::env::var(THREADS) {
        return threads(number.parse()?);
    }
    report()?;
    if std::env::args().any(|argument| argument == "report") {
        return Ok(());
    }
    a_call()?;
    throughput()
}

/// Starts short threads, one after the other, with a few calls each; then prints the time.
fn threads(number: u32) -> Result<()> {
    let null = File::create("/dev/null")?;
    std::thread::scope(|scope| -> Result<()> {
        for _ in 0..number {
            let calls = || (rustix::process::getppid(), rustix::io::write(&null, b"x"));
            let ended = scope.spawn(calls).join();
            ensure!(ended.is_ok_and(|(_, written)| written == Ok(1)), "a thread failed");
        }
        Ok(())
    })?;
    println!("{}", clock::monotonic());
    Ok(())
}

/// Resident memory of the observer, and the time from the end of the program to its own end: the
/// medians of five runs each.
fn report() -> Result<()> {
    let own = std::env::current_exe()?;
    println!("{:<36}{:>10}{:>14}", "observe, of short threads", "report s", "resident MiB");
    for (number, options) in [
        (1, &[][..]),
        (1, &["--sample", "none"]),
        (10_000, &[]),
        (10_000, &["--sample", "none"]),
        (30_000, &[]),
        (30_000, &["--json"]),
    ] {
        let mut runs = Vec::new();
        for _ in 0..5 {
            let mut command = Command::new(BYTEPATH);
            command.args(["observe", "--out", "/dev/null"]).args(options).arg("--").arg(&own);
            command.env(THREADS, number.to_string()).stdout(Stdio::piped());
            runs.push(timed(command)?);
        }
        let [seconds, memory] =
            [0, 1].map(|at| median(&runs.iter().map(|run| run[at]).collect::<Vec<_>>()));
        let name = format!("{number} {}", options.join(" "));
        println!("{name:<36}{seconds:>10.2}{memory:>14.1}");
    }
    println!();
    Ok(())
}

/// Seconds from the time that the program prints at its end to the observer's end, and its largest
/// resident memory in MiB.
fn timed(mut command: Command) -> Result<[f64; 2]> {
    let mut observer = command.spawn()?;
    let mut text = String::new();
    observer.stdout.take().context("no pipe")?.read_to_string(&mut text)?;
    let (mut status, pid) = (0, observer.id() as libc::pid_t);
    // SAFETY: all zeros are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to variables of the right types. Only this call waits for the
    // child.
    let waited = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
    let now = clock::monotonic();
    ensure!(waited == pid && status == 0, "the observer failed: {status}");
    let ended: u64 = text.trim().parse()?;
    Ok([now.saturating_sub(ended) as f64 * 1e-9, usage.ru_maxrss as f64 / 1024.0])
}

/// Prints the nanoseconds of a call of each kind, and the overhead of each watcher.
fn a_call() -> Result<()> {
    let own = std::env::current_exe()?;
    let run = |watcher: &[&str]| -> Result<[f64; CALLS.len()]> {
        let words: Vec<&std::ffi::OsStr> =
            watcher.iter().map(|word| (*word).as_ref()).chain([own.as_os_str()]).collect();
        let output = Command::new(words[0])
            .args(&words[1..])
            .env(LOOP, "1")
            .stderr(Stdio::piped())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers: Option<Vec<f64>> = text.split_whitespace().map(|n| n.parse().ok()).collect();
        numbers.and_then(|numbers| numbers.try_into().ok()).with_context(|| {
            format!("under {watcher:?}: {}", String::from_utf8_lossy(&output.stderr))
        })
    };
    let alone = run(&[])?;
    let line = |name: &str, numbers: [f64; CALLS.len()]| {
        let numbers: Vec<String> = numbers.iter().map(|ns| format!("{ns:>8.0}")).collect();
        println!("{name:<32}{}", numbers.concat());
    };
    println!("{:<32}{}", "ns a call", CALLS.map(|name| format!("{name:>8}")).concat());
    line("alone", alone);
    let added = |with: [f64; CALLS.len()]| std::array::from_fn(|i| with[i] - alone[i]);
    for (name, watcher) in WATCHERS.iter().filter(|(_, words)| words.first() == Some(&BYTEPATH)) {
        match run(watcher) {
            Ok(with) => line(&format!("added by {name}"), added(with)),
            Err(e) => println!("{name} did not run: {e:#}"),
        }
    }
    // The observed program is another one, and runs once it answers.
    let mut watched = Command::new(BYTEPATH)
        .args(["observe", "--sample", "none", "--out", "/dev/null", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (mut ask, mut answer) =
        (watched.stdin.take().context("no pipe")?, watched.stdout.take().context("no pipe")?);
    ask.write_all(b"!")?;
    answer.read_exact(&mut [0])?;
    line("added, another being observed", added(run(&[])?));
    drop(ask);
    watched.wait()?;
    println!();
    Ok(())
}

/// The calls: one without work, one on a file, one on a socket.
const CALLS: [&str; 3] = ["getppid", "write", "recv"];

/// Makes calls and prints the time of one in the fastest of many short rounds: other load on the
/// machine can only add to it.
fn loops() -> Result<()> {
    let null = File::create("/dev/null")?;
    let (socket, _other) = UnixStream::pair()?;
    let mut byte = [0u8];
    let mut calls: [Box<dyn FnMut()>; CALLS.len()] = [
        Box::new(|| _ = rustix::process::getppid()),
        Box::new(|| _ = rustix::io::write(&null, b"x")),
        Box::new(|| _ = rustix::net::recv(&socket, &mut byte[..], RecvFlags::DONTWAIT)),
    ];
    const ROUND: u32 = 500;
    for call in &mut calls {
        let mut least = f64::INFINITY;
        for _ in 0..2000 {
            let begin = Instant::now();
            (0..ROUND).for_each(|_| call());
            least = least.min(begin.elapsed().as_nanos() as f64 / f64::from(ROUND));
        }
        print!("{least} ");
    }
    println!();
    Ok(())
}

fn throughput() -> Result<()> {
    let rounds = number("BENCH_PAIRS", 7.0)? as usize;
    let window = number("BENCH_WINDOW", 2.0)?;
    let options = std::env::var("BENCH_IPERF3").unwrap_or_else(|_| "-l 128K -C cubic".into());
    println!("iperf3 {options}, loopback, {rounds} rounds of {window} s each");
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); WATCHERS.len()];
    let mut missing = vec![None; WATCHERS.len()];
    for round in 0..rounds {
        // Each round begins with another one, so that none always follows the same.
        for i in (0..WATCHERS.len()).map(|i| (i + round) % WATCHERS.len()) {
            if missing[i].is_some() {
                rates[i].push(f64::NAN);
                continue;
            }
            match run(WATCHERS[i].1, &options, window) {
                Ok(rate) => rates[i].push(rate),
                // Without iperf3 itself there is nothing to compare with.
                Err(e) if i == 0 => return Err(e),
                Err(e) => {
                    missing[i] = Some(format!("{e:#}"));
                    rates[i].push(f64::NAN);
                }
            }
        }
    }
    println!("{:<22} {:>8}  {:>6}  range", "under", "Gbit/s", "ratio");
    for (i, (name, _)) in WATCHERS.iter().enumerate() {
        if let Some(why) = &missing[i] {
            println!("{name:<22} did not run: {why}");
            continue;
        }
        let ratios: Vec<f64> = rates[i].iter().zip(&rates[0]).map(|(a, b)| a / b).collect();
        let (low, high) =
            ratios.iter().fold((f64::MAX, f64::MIN), |(l, h), r| (l.min(*r), h.max(*r)));
        let (rate, ratio) = (median(&rates[i]), median(&ratios));
        println!("{name:<22} {:>8.2}  {ratio:>6.3}  {low:.3} to {high:.3}", rate / 1e9);
    }
    Ok(())
}

/// Runs the client once under a watcher; returns the bit/s at the receiver.
fn run(watcher: &[&str], options: &str, window: f64) -> Result<f64> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let mut server = Command::new("iperf3");
    server.args(["-p", &port]);
    let server = Server::listening(server)?;
    let seconds = format!("{}", window.ceil() as u64);
    let client = ["iperf3", "-c", "127.0.0.1", "-p", &port, "-J", "-t", &seconds];
    let words: Vec<&str> = watcher.iter().copied().chain(client).collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .args(options.split_whitespace())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot run {}", words[0]))?;
    drop(server);
    iperf3::received(&output)
}

/// Returns a number from the environment.
fn number(name: &str, default: f64) -> Result<f64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is not a number")),
        Err(_) => Ok(default),
    }
}

/// The median; NaN if there are no values.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}
