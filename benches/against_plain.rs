//! bytepath's paths against small programs that do the same: `plain/` has one for every half of a
//! path, without meters, ledger and options. Both run as separate processes, interleaved in the
//! same namespaces, on the same link, cores and congestion control, with the same message and read
//! size. Prints the ratio's median, middle half and range.
//!
//! `cargo bench --bench against_plain [-- LINK ...]`; needs nsenter, taskset and root. Pairs and
//! window by BENCH_PAIRS and BENCH_WINDOW (seconds), another choice of paths by BENCH_PATH (names,
//! or TX+RX, separated by commas).

mod common;
#[path = "common/end.rs"]
mod end;
#[path = "common/namespace.rs"]
mod namespace;
#[path = "plain/mod.rs"]
mod plain;
#[path = "common/ratios.rs"]
mod ratios;

use anyhow::{Context, Result, ensure};
use bytepath::meter;
use bytepath::record::{Cell, Role, Schedule};
use bytepath::study::OpenTestbed;
use end::End;
use ratios::Ratios;
use std::sync::atomic::AtomicBool;

/// The links compared by default: one with whole pages and one MSS per packet, as in a study, and
/// one with offloads.
const LINKS: &[&str] = &["wire", "offload:mtu=9000"];

/// Every path of a default study that moves bytes on any host.
const PATHS: &str = "socket,sendfile,splice,msg-zerocopy,uring,uring-zc";

const CONGESTION: &str = "cubic";

/// Seconds of a stream before its window.
const WARM_UP: f64 = 0.5;

fn main() -> Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    if let Some(played) = plain::played(&asked) {
        return played;
    }
    let links: Vec<&str> = match asked.as_slice() {
        [] => LINKS.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let paths = std::env::var("BENCH_PATH").unwrap_or_else(|_| PATHS.into());
    let pairs = common::number("BENCH_PAIRS", 7.0)? as usize;
    let window = common::number("BENCH_WINDOW", 1.0)?;
    println!(
        "bytepath / a small program for the same path, {pairs} interleaved pairs, {window} s windows"
    );
    println!(
        "{:<18} {:<13} {:>9} {:>9} {:>6}  {:<12}  range",
        "link", "path", "bytepath", "program", "ratio", "middle half"
    );
    for link in links {
        for path in paths.split(',') {
            let duel = fight(path, link, pairs, window);
            let duel = duel.with_context(|| format!("path {path} on link {link}"))?;
            println!("{link:<18} {path:<13} {duel}");
        }
    }
    Ok(())
}

/// The results of the pairs of one path: bit/s of each run, in order.
struct Duel {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

fn fight(path: &str, link: &str, pairs: usize, window: f64) -> Result<Duel> {
    let stop = AtomicBool::new(false);
    let laboratory = common::laboratory(&stop);
    let (cells, _) = common::cells(&[path], &format!("congestion={CONGESTION}"), link)?;
    // The baseline may be added to the requested cells.
    let halves = |cell: &Cell| match path.split_once('+') {
        Some((tx, rx)) => cell.tx.path == tx && cell.rx.path == rx,
        None => cell.tx.path == path,
    };
    let cell = cells.iter().find(|cell| halves(cell)).context("no such cell")?;
    let schedule = Schedule::trials(1, WARM_UP, window);
    let meters: Vec<_> = meter::regular().collect();
    let mut stand = OpenTestbed::raise(&laboratory, cell)?;
    let mut duel = Duel { ours: Vec::new(), theirs: Vec::new() };
    for pair in 0..pairs {
        // Which comes first alternates, so that drift cancels.
        for turn in 0..2 {
            if (pair + turn) % 2 == 0 {
                let trial = stand.run(cell, &meters, &schedule, None)?;
                duel.ours.push(trial.rate().context("the trial has no throughput")? * 8.0);
            } else {
                duel.theirs.push(program(&stand, cell, window)?);
            }
        }
    }
    Ok(duel)
}

impl std::fmt::Display for Duel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gbits = |rates: &[f64]| Ratios::new(rates.to_vec()).at(0.5) / 1e9;
        let ratios = self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs);
        let ratios = Ratios::new(ratios.collect());
        let [lowest, low, median, high, highest] =
            [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| ratios.at(share));
        let (ours, theirs) = (gbits(&self.ours), gbits(&self.theirs));
        write!(
            f,
            "{ours:>9.1} {theirs:>9.1} {median:>6.2}  {low:.2} to {high:.2}  \
             {lowest:.2} to {highest:.2}"
        )
    }
}

/// Runs one stream of the small programs for both halves of a cell; returns the bit/s at the
/// receiver.
fn program(stand: &OpenTestbed, cell: &Cell, window: f64) -> Result<f64> {
    let address = stand.address(Role::Receiver);
    let stream = &cell.stream;
    let alike = [stream.message_size, stream.read_size] == [plain::MESSAGE as u64; 2];
    ensure!(alike, "the small programs have messages and reads of {} bytes", plain::MESSAGE);

    let mut receiver = End::command(stand, cell, Role::Receiver)?;
    receiver.args(["receive", &cell.rx.path, CONGESTION, &format!("{address}:0")]);
    receiver.args([WARM_UP, window].map(|seconds| seconds.to_string()));
    let mut receiver = End::start(&mut receiver).context("cannot start the receiver")?;
    let port = receiver.line().context("the receiver's port")?;

    let mut sender = End::command(stand, cell, Role::Sender)?;
    sender.args(["send", &cell.tx.path, CONGESTION, &format!("{address}:{port}")]);
    let sender = End::start(&mut sender).context("cannot start the sender")?;
    let result = receiver.line().context("the receiver's result")?;
    let (bytes, seconds) = result.split_once(' ').context("two numbers")?;
    sender.ends_well().context("the sender")?;
    receiver.ends_well().context("the receiver")?;
    Ok(bytes.parse::<f64>()? * 8.0 / seconds.parse::<f64>()?)
}
