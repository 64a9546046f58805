//! Is this build as fast as another one? Runs the stream of both over every path that needs no NIC,
//! one trial after the other in alternating order, and prints the ratio of throughputs (this build
//! over the other) with its interval.
//!
//! `BENCH_OTHER=/path/to/another/bytepath cargo bench --bench editions`; rounds and window by
//! BENCH_ROUNDS, BENCH_WINDOW. Disturbed trials count, too: both builds are disturbed alike, and
//! they have different rules for rejecting.
//!
//! Last come streams in a guest whose clock counts instructions, if one can be booted. There, other
//! programs do not change the cost of a byte; the way in which packets and reads coincide still
//! does, by a few percent from boot to boot.

use anyhow::{Context, Result, bail};
use bytepath::math::Moments;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const PATHS: &[&str] = &["socket", "sendfile", "splice", "msg-zerocopy", "uring", "uring-zc"];

/// The links on which the cost of the loop shows most: small packets, and the largest.
const LINKS: [Place; 2] = [
    Place { name: "wire", arguments: &["--link", "wire"] },
    Place { name: "big-tcp", arguments: &["--link", "big-tcp"] },
];

/// Small messages, so that the loop is part of a byte's cost.
const COUNTED: Place = Place {
    name: "counted",
    arguments: &[
        "--testbed",
        "vm:count=instructions",
        "--stream",
        "message-size=16K,read-size=16K",
    ],
};

/// Where a stream runs.
struct Place {
    name: &'static str,
    arguments: &'static [&'static str],
}

fn main() -> Result<()> {
    let Some(other) = std::env::var_os("BENCH_OTHER").map(PathBuf::from) else {
        println!("SKIP: BENCH_OTHER names no other bytepath to compare with");
        return Ok(());
    };
    let other = other.canonicalize().context("BENCH_OTHER names no file")?;
    let own = PathBuf::from(env!("CARGO_BIN_EXE_bytepath"));
    let rounds = number("BENCH_ROUNDS", 10.0)? as u32;
    let window = number("BENCH_WINDOW", 1.0)?;
    println!("this build over {}: {rounds} rounds, windows of {window} s", other.display());
    println!("{:<8} {:<14} {:>6} {:>16} {:>8}", "place", "path", "ratio", "95% interval", "Gbit/s");
    compare(&LINKS, &own, &other, rounds, window)?;
    if rate(&own, PATHS[0], &COUNTED, window).is_err() {
        println!("SKIP: no guest whose clock counts instructions can be booted");
        return Ok(());
    }
    compare(&[COUNTED], &own, &other, rounds.min(3), window)
}

/// Compares all paths in these places, and prints the overall result.
fn compare(places: &[Place], own: &Path, other: &Path, rounds: u32, window: f64) -> Result<()> {
    let mut all = Moments::default();
    for place in places {
        for path in PATHS {
            let (mut logs, mut own_rates) = (Moments::default(), Moments::default());
            for round in 0..rounds {
                // The first run finds the machine in another state, so they alternate.
                let (mine, theirs) = if round % 2 == 0 {
                    let mine = rate(own, path, place, window)?;
                    (mine, rate(other, path, place, window)?)
                } else {
                    let theirs = rate(other, path, place, window)?;
                    (rate(own, path, place, window)?, theirs)
                };
                logs.add((mine / theirs).ln());
                own_rates.add(mine);
            }
            all.add(logs.mean());
            let (low, high) = interval(&logs)?;
            println!(
                "{:<8} {path:<14} {:>6.3} {:>16} {:>8.3}",
                place.name,
                logs.mean().exp(),
                format!("[{low:.3}, {high:.3}]"),
                own_rates.mean() * 8e-9
            );
        }
    }
    let (low, high) = interval(&all)?;
    println!("all of these: {:.3} [{low:.3}, {high:.3}]", all.mean().exp());
    Ok(())
}

fn number(name: &str, default: f64) -> Result<f64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is not a number")),
        Err(_) => Ok(default),
    }
}

fn interval(logs: &Moments) -> Result<(f64, f64)> {
    let half = logs.error().and_then(|error| error.half_width(0.95)).context("too few rounds")?;
    Ok(((logs.mean() - half).exp(), (logs.mean() + half).exp()))
}

/// Bytes a second of one trial of a build, whatever version its records have. The study is in the
/// default folder, which is the same for every version.
fn rate(program: &Path, path: &str, place: &Place, window: f64) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let run = Command::new(program)
        .current_dir(folder.path())
        .args(["run", "--path", path, "--blocks", "1", "--design", "trials"])
        .args(place.arguments)
        .args(["--warm-up", "300ms", "--window", &format!("{}ms", (window * 1000.0) as u64)])
        .args(["--meters", "none", "--profile", "none"])
        .output()
        .with_context(|| format!("{} did not run", program.display()))?;
    let failed = || format!("{}: {}", program.display(), String::from_utf8_lossy(&run.stderr));
    let studies = std::fs::read_dir(folder.path().join("bytepath-studies"));
    let study = studies.with_context(failed)?.next().with_context(failed)??.path();
    let text = std::fs::read_to_string(study.join("trials.jsonl")).with_context(failed)?;
    let trial: Value = serde_json::from_str(text.lines().next().context("no trial")?)?;
    let count = trial.get("count").or(trial.get("window_bytes")).and_then(Value::as_f64);
    match (count, trial["window"].as_f64()) {
        (Some(count), Some(window)) if count > 0.0 && window > 0.0 => Ok(count / window),
        _ => bail!("{path} on {}: {}", place.name, trial["status"]),
    }
}
