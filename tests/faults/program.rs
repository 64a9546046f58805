//! The fault campaign, `make faults`: the built binary under faults that a seed draws, round after
//! round, and after each a check of what is lost and what is left. See docs/reliability.md.
//!
//! It runs for FAULTS_SECONDS (180). FAULTS_SEED is the seed of the first round, and each further
//! round has the next number, so a round is repeated by its own seed. A seed repeats all choices,
//! but not the instruction at which a signal meets the other process. FAULTS_KIND restricts the
//! rounds to one kind.

mod apart;
mod damage;
mod guests;
#[path = "../lab/host.rs"]
#[allow(dead_code, reason = "the tests of the lab call it")]
mod host;
mod lab;
mod limits;
#[path = "../lab/places.rs"]
#[allow(dead_code, reason = "the tests of the lab call it")]
mod namespaces;
mod pauses;
mod places;
mod queues;
mod renames;
#[path = "../lab/running.rs"]
#[allow(dead_code, reason = "the tests of the lab call it")]
mod running;
mod settings;
mod studies;
#[path = "../lab/whole.rs"]
#[allow(dead_code, reason = "the tests of the lab call it")]
mod whole;
mod words;

use anyhow::{Context, Result, bail, ensure};
use bytepath::math::Random;
use bytepath_testing::ControlGroup;
use lab::Lab;
use rustix::mount::{MountFlags, mount};
use std::collections::BTreeMap;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime};

/// A kind of fault: its name, its weight in the draw, and a function that runs one round of it.
type Kind = (&'static str, usize, fn(&mut Lab) -> Result<()>);

/// Kinds that take longer are drawn less often.
const KINDS: &[Kind] = &[
    ("kill", 6, studies::kill),
    ("child", 6, studies::child),
    ("output", 6, studies::output),
    ("disk", 6, studies::disk),
    ("limit", 6, limits::limit),
    ("memory", 3, pauses::memory),
    ("freeze", 3, pauses::freeze),
    ("quota", 2, pauses::quota),
    ("rename", 3, renames::rename),
    ("damage", 6, damage::damage),
    ("place", 6, places::place),
    ("word", 6, words::word),
    ("link", 6, studies::link),
    ("queue", 6, queues::queue),
    ("host", 3, apart::host),
    ("wire", 3, apart::wire),
    ("guest", 1, guests::guest),
    ("setting", 1, settings::setting),
];

/// Environment variable set once the program runs in its own namespaces.
const INSIDE: &str = "FAULTS_INSIDE";

fn main() -> Result<ExitCode> {
    if let Ok(how) = env::var(apart::BETWEEN) {
        return apart::between(&how, &env::args().skip(1).collect::<Vec<_>>());
    }
    if env::var_os(INSIDE).is_some() {
        return campaign();
    }
    ensure!(rustix::process::geteuid().is_root(), "the campaign needs root");
    let mut inside = Command::new("unshare");
    inside.args(["--net", "--mount"]).arg(env::current_exe()?).env(INSIDE, "1");
    let status = inside.status().context("cannot start unshare(1)")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn campaign() -> Result<ExitCode> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let (time, first) = (number("FAULTS_SECONDS", 180)?, number("FAULTS_SEED", now)?);
    let wanted = env::var("FAULTS_KIND").ok();
    if let Some(kind) = &wanted {
        let names: Vec<&str> = KINDS.iter().map(|(name, ..)| *name).collect();
        ensure!(names.contains(&kind.as_str()), "FAULTS_KIND is one of {}", names.join(", "));
    }
    // Keeps files of other programs out of these folders.
    for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
        mount("tmpfs", folder, "tmpfs", MountFlags::empty(), None)
            .with_context(|| format!("a {folder} of the campaign's own"))?;
    }
    let mut lab = Lab::new()?;
    damage::prepare(&mut lab).context("the campaign's own study")?;
    println!("faults for {time} s, the first by FAULTS_SEED={first}");
    let unable = unable();
    for (name, reason) in &unable {
        println!("none of the kind {name}: {reason}");
    }

    let (mut rounds, mut findings) = ([0; KINDS.len()], [0; KINDS.len()]);
    let begin = Instant::now();
    for seed in first.. {
        let kind = drawn(seed);
        let (name, _, round) = KINDS[kind];
        if wanted.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        if let Some(reason) = unable.get(name) {
            ensure!(wanted.is_none(), "none of the kind {name}: {reason}");
            continue;
        }
        rounds[kind] += 1;
        lab.begin(seed)?;
        let round = catch_unwind(AssertUnwindSafe(|| round(&mut lab)));
        let round = round.unwrap_or_else(|_| bail!("the campaign itself panicked"));
        if let Err(finding) = round.and_then(|()| lab.nothing_is_left()) {
            findings[kind] += 1;
            println!("\nFINDING: {name}, FAULTS_SEED={seed}: {finding:#}");
            lab.lines.iter().for_each(|line| println!("  {line}"));
            lab.clean_up()?;
        }
        if begin.elapsed() >= Duration::from_secs(time) {
            break;
        }
    }

    println!("\n{:<8} {:>6} {:>8}", "kind", "rounds", "findings");
    for ((name, ..), (rounds, findings)) in KINDS.iter().zip(rounds.iter().zip(findings)) {
        println!("{name:<8} {rounds:>6} {findings:>8}");
    }
    let (rounds, findings) = (rounds.iter().sum::<u32>(), findings.iter().sum::<u32>());
    println!("{:<8} {rounds:>6} {findings:>8}", "all");
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Kinds that cannot run here, with the reasons.
fn unable() -> BTreeMap<&'static str, String> {
    let no_group = |controller| Some(ControlGroup::new(controller).err()?.to_string());
    let reasons = [
        ("guest", guests::unable()),
        ("limit", no_group("pids")),
        ("memory", no_group("memory")),
        ("freeze", no_group("freezer")),
        ("quota", no_group("cpu")),
    ];
    reasons.into_iter().filter_map(|(name, reason)| Some((name, reason?))).collect()
}

/// The kind of fault that a seed draws, as an index into the list.
fn drawn(seed: u64) -> usize {
    let all = KINDS.iter().enumerate();
    let tickets: Vec<usize> = all.flat_map(|(at, (_, often, _))| vec![at; *often]).collect();
    tickets[Random::new(!seed).below(tickets.len())]
}

/// Returns a whole number from the environment.
fn number(name: &str, default: u64) -> Result<u64> {
    match env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is no whole number")),
        Err(_) => Ok(default),
    }
}
