//! bytepath against iperf3, interleaved in the same namespaces, on the same
//! link, cores and congestion control. Prints the ratio's median and range.
//!
//! `cargo bench --bench against_iperf3 [-- LINK ...]`; needs iperf3 and nsenter,
//! and root. Pairs and window by BENCH_PAIRS and BENCH_WINDOW (seconds), another
//! path than `socket` by BENCH_PATH.

mod common;
#[path = "common/iperf3.rs"]
mod iperf3;
#[path = "common/namespace.rs"]
mod namespace;

use anyhow::{Context, Result};
use bytepath::meter;
use bytepath::record::{Cell, Role, Schedule, Trial};
use bytepath::run::Stand;
use iperf3::{Server, median};
use namespace::inside;
use std::sync::atomic::AtomicBool;

/// The links compared by default: with offloads, wire-like, and BIG TCP.
const LINKS: &[&str] = &[
    "offload:mtu=1500",
    "offload:mtu=4148",
    "offload:mtu=9000",
    "wire:mtu=1500",
    "wire:mtu=4148",
    "wire:mtu=9000",
    "big-tcp",
];

/// What iperf3's own options reach: its default, large calls, sendfile.
const RIVALS: &[(&str, &[&str])] =
    &[("default", &[]), ("-l 1M", &["-l", "1M"]), ("-Z -l 1M", &["-Z", "-l", "1M"])];

const CONGESTION: &str = "cubic";

fn main() -> Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let links: Vec<&str> = match asked.as_slice() {
        [] => LINKS.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let pairs = common::number("BENCH_PAIRS", 7.0)? as usize;
    let window = common::number("BENCH_WINDOW", 2.0)?;
    println!("bytepath socket / best of iperf3, {pairs} interleaved pairs, {window} s windows");
    println!(
        "{:<20} {:>10} {:>10} {:<10} {:>8}  range",
        "link", "bytepath", "iperf3", "(best)", "ratio"
    );
    for link in links {
        compare(link, pairs, window).with_context(|| format!("link {link}"))?;
    }
    Ok(())
}

fn compare(link: &str, pairs: usize, window: f64) -> Result<()> {
    let stop = AtomicBool::new(false);
    let laboratory = common::laboratory(&stop);
    let path = std::env::var("BENCH_PATH").unwrap_or_else(|_| "socket".into());
    let stream = format!("congestion={CONGESTION}");
    let (cells, _) = common::cells(&[&path], &stream, link)?;
    let cell = &cells[0];
    // The warm-up is as long as what iperf3 is told to omit.
    let schedule = Schedule::trials(1, 1.0, window);
    let mut stand = Stand::raise(&laboratory, cell)?;
    let mut ours = Vec::new();
    let mut theirs: Vec<Vec<f64>> = vec![Vec::new(); RIVALS.len()];
    for _ in 0..pairs {
        ours.push(gbits(&stand.run(
            cell,
            &meter::regular().collect::<Vec<_>>(),
            &schedule,
            None,
        )?)?);
        for (results, (_, options)) in theirs.iter_mut().zip(RIVALS) {
            results.push(rival(&stand, cell, options, window)?);
        }
    }
    // The best of iperf3 is the option set with the highest median.
    let best = (0..RIVALS.len())
        .max_by(|a, b| median(&theirs[*a]).total_cmp(&median(&theirs[*b])))
        .context("no rivals")?;
    let ratios: Vec<f64> = ours.iter().zip(&theirs[best]).map(|(a, b)| a / b).collect();
    let (low, high) = ratios.iter().fold((f64::MAX, f64::MIN), |(l, h), r| (l.min(*r), h.max(*r)));
    println!(
        "{link:<20} {:>10.1} {:>10.1} {:<10} {:>8.2}  {low:.2} to {high:.2}",
        median(&ours),
        median(&theirs[best]),
        RIVALS[best].0,
        median(&ratios)
    );
    Ok(())
}

fn gbits(trial: &Trial) -> Result<f64> {
    Ok(trial.rate().context("the trial has no throughput")? * 8e-9)
}

/// One run of iperf3 in the stand's namespaces; Gbit/s at its receiver.
fn rival(stand: &Stand, cell: &Cell, options: &[&str], window: f64) -> Result<f64> {
    let mut server = inside(stand, cell, Role::Receiver)?;
    server.arg("iperf3");
    let server = Server::listening(server)?;
    let address = stand.address(Role::Receiver).to_string();
    let seconds = format!("{}", window.ceil() as u64);
    let output = inside(stand, cell, Role::Sender)?
        .args(["iperf3", "-c", &address, "-J", "-C", CONGESTION])
        .args(["-O", "1", "-t", &seconds])
        .args(options)
        .output()
        .context("cannot run iperf3 -c")?;
    drop(server);
    Ok(iperf3::received(&output)? / 1e9)
}
