//! bytepath against other programs, each where it runs best: the distribution's iperf3, another
//! iperf3 if one is named, and neper, pinned and not, with and without GRO on the receiver's
//! device, with several message sizes.
//!
//! `cargo bench --bench peers [-- LINK ...]`; needs root and nsenter, and at least one of `iperf3`
//! and `tcp_stream` (neper) on the PATH; BENCH_IPERF3 names another iperf3. On each link a first
//! pass tries every way to run each program, ours too, BENCH_SCREEN times; the best way then runs
//! against `socket` in BENCH_BLOCKS blocks of random order. The table is made from these runs only,
//! so that no program profits from luck in the first pass. Windows are of BENCH_WINDOW seconds
//! (whole ones), after one second that does not count.

mod common;
#[path = "common/iperf3.rs"]
mod iperf3;
#[path = "common/namespace.rs"]
mod namespace;

use anyhow::{Context, Result, ensure};
use bytepath::math::{Moments, Random, StandardError, holm};
use bytepath::record::{Cell, Placement, Role, Schedule};
use bytepath::stats::{DEFAULT_MARGIN, Effect};
use bytepath::study::OpenTestbed;
use bytepath::sys::netstat;
use iperf3::Server;
use namespace::inside;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// With offloads, wire-like, and BIG TCP.
const LINKS: &[&str] = &[
    "offload:mtu=1500",
    "offload:mtu=4148",
    "offload:mtu=9000",
    "wire:mtu=1500",
    "wire:mtu=4148",
    "wire:mtu=9000",
    "big-tcp",
];

/// Our paths: `socket`, with which all others are compared, and those that, like the peers' own,
/// need no privileges and no special device.
const PATHS: &[&str] = &["socket", "sendfile", "splice"];

const CONFIDENCE: f64 = 0.95;

const CONGESTION: &str = "cubic";

/// The namespaces' default congestion control. iperf3 and neper set theirs after connecting. If the
/// default paces (bbr), the flow is paced from then on, whatever it is set to (`sk_pacing_status`):
/// its segments then leave from a timer, too, on another CPU, and overtake each other
/// (docs/journal/0010-overtaking.md). reno does not pace, and is permitted in any namespace.
/// BENCH_DEFAULT names another.
const DEFAULT_CONGESTION: &str = "reno";

/// Another program.
struct Peer {
    name: String,
    program: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Iperf3,
    Neper,
}

/// A way to run a program.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    /// On the link as named, or without GRO.
    gro: bool,
    /// On one CPU per end, or where the scheduler puts it.
    pinned: bool,
    options: &'static [&'static str],
}

/// A program and a way to run it.
#[derive(Clone, Copy, PartialEq)]
struct Contestant<'a> {
    runner: Runner<'a>,
    way: Way,
}

#[derive(Clone, Copy)]
enum Runner<'a> {
    /// One of our paths.
    Ours(&'static str),
    Theirs(&'a Peer),
}

/// The result of one run.
struct Run {
    rate: f64,
    retransmitted: f64,
    out_of_order: f64,
}

/// The namespaces of a link, as named and without GRO.
struct Stands<'a>([OpenTestbed<'a>; 2]);

fn main() -> Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let links: Vec<&str> = match asked.as_slice() {
        [] => LINKS.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let screens = common::number("BENCH_SCREEN", 1.0)? as usize;
    let blocks = common::number("BENCH_BLOCKS", 10.0)? as usize;
    let window = common::number("BENCH_WINDOW", 1.0)?.ceil();
    let peers = peers()?;
    println!("{blocks} blocks in random order, windows of {window} s; GRO as the link has it");
    println!("unless said; retransmitted and out-of-order segments per GiB");
    println!(
        "\n{:<49} {:>6} {:>5} {:>7} {:>7}  socket over it",
        "link", "Gbit/s", "sd", "retrans", "o.o.o."
    );
    let (mut effects, mut best) = (Vec::new(), BTreeMap::new());
    for link in links {
        let found = compare(link, &peers, [screens, blocks], window, &mut best);
        effects.extend(found.with_context(|| format!("link {link}"))?);
    }
    conclude(&effects);
    println!("\nOver all links, the mean of the logarithms:");
    for (name, effects) in &best {
        println!("  {name}: {}", together(effects)?);
    }
    Ok(())
}

/// Returns the programs that are installed; prints the names of those that are not.
fn peers() -> Result<Vec<Peer>> {
    let mut peers = Vec::new();
    let on_path = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists())
    };
    let iperf3s = [on_path("iperf3"), std::env::var_os("BENCH_IPERF3").map(PathBuf::from)];
    for program in iperf3s.into_iter().flatten() {
        let said = Command::new(&program).arg("--version").output();
        let said = said.with_context(|| program.display().to_string())?.stdout;
        let version = String::from_utf8_lossy(&said);
        let version = version.split_whitespace().nth(1).unwrap_or("?");
        peers.push(Peer { name: format!("iperf3 {version}"), program, kind: Kind::Iperf3 });
    }
    match on_path("tcp_stream") {
        Some(program) => peers.push(Peer { name: "neper".into(), program, kind: Kind::Neper }),
        None => println!("no tcp_stream (neper) on the PATH: left out"),
    }
    ensure!(!peers.is_empty(), "no iperf3 and no tcp_stream on the PATH");
    Ok(peers)
}

/// Prints a link's rows; returns the effects of `socket` over each contestant, with their names.
fn compare(
    link: &str,
    peers: &[Peer],
    [screens, blocks]: [usize; 2],
    window: f64,
    of_best: &mut BTreeMap<String, Vec<Effect>>,
) -> Result<Vec<(String, Effect)>> {
    let stop = AtomicBool::new(false);
    let laboratory = common::laboratory(&stop);
    let stream = format!("congestion={CONGESTION}");
    let (cells, _) = common::cells(PATHS, &stream, link)?;
    let plain =
        format!("{link}{}gro=off,threaded-napi=off", if link.contains(':') { ',' } else { ':' });
    let (without, _) = common::cells(PATHS, &stream, &plain)?;
    let raised = [
        OpenTestbed::raise(&laboratory, &cells[0])?,
        OpenTestbed::raise(&laboratory, &without[0])?,
    ];
    let mut stands = Stands(raised);
    stands.pace_nothing(&cells[0])?;
    let mut random = Random::new(u64::from(std::process::id()));

    let mut tried: Vec<(Contestant, Moments)> = Vec::new();
    let ours = PATHS.iter().map(|path| Runner::Ours(path));
    for runner in ours.chain(peers.iter().map(Runner::Theirs)) {
        let ways = runner.ways().map(|way| Contestant { runner, way });
        tried.extend(ways.map(|contestant| (contestant, Moments::default())));
    }
    for round in 0..screens {
        eprintln!("{link}: {} ways, pass {} of {screens}", tried.len(), round + 1);
        random.shuffle(&mut tried);
        for (contestant, rates) in &mut tried {
            rates.add(stands.run(contestant, [&cells, &without], 1.0)?.rate);
        }
    }
    let best = |kind: Option<Kind>, anywhere: bool| {
        let of = tried.iter().filter(|(contestant, _)| {
            contestant.runner.kind() == kind && (anywhere || contestant.way.gro)
        });
        of.max_by(|a, b| a.1.mean().total_cmp(&b.1.mean())).map(|(contestant, _)| *contestant)
    };
    let plain = Way { gro: true, pinned: true, options: &[] };
    let mut contestants: Vec<Contestant> =
        PATHS.iter().map(|path| Contestant { runner: Runner::Ours(path), way: plain }).collect();
    for kind in [None, Some(Kind::Iperf3), Some(Kind::Neper)] {
        for contestant in [best(kind, false), best(kind, true)].into_iter().flatten() {
            if !contestants.contains(&contestant) {
                contestants.push(contestant);
            }
        }
    }

    let mut runs: Vec<Vec<Run>> = contestants.iter().map(|_| Vec::new()).collect();
    let mut order: Vec<usize> = (0..contestants.len()).collect();
    for block in 0..blocks {
        eprintln!("{link}: block {} of {blocks}", block + 1);
        random.shuffle(&mut order);
        for at in &order {
            runs[*at].push(stands.run(&contestants[*at], [&cells, &without], window)?);
        }
    }
    println!("{link}");
    let over = |one: usize, other: usize| {
        let pairs: Vec<_> =
            runs[other].iter().zip(&runs[one]).map(|(a, b)| (a.rate, b.rate)).collect();
        Effect::of(&pairs, CONFIDENCE).context("no pairs")
    };
    let names: Vec<String> = contestants.iter().map(Contestant::name).collect();
    let mut effects = Vec::new();
    for (at, (name, runs)) in names.iter().zip(&runs).enumerate() {
        let mean = |of: fn(&Run) -> f64| runs.iter().map(of).collect::<Moments>();
        let rates = mean(|run| run.rate * 8e-9);
        let mut ratio = String::new();
        if at > 0 {
            let effect = over(0, at)?;
            ratio = interval(&effect);
            effects.push((format!("{link}: {} against {name}", names[0]), effect));
        }
        println!(
            "  {name:<47} {:>6.1} {:>4.1}% {:>7.0} {:>7.0}  {ratio}",
            rates.mean(),
            rates.stddev().unwrap_or(0.0) / rates.mean() * 100.0,
            mean(|run| run.retransmitted).mean(),
            mean(|run| run.out_of_order).mean(),
        );
    }
    // The best against the best, according to the first pass.
    let at = |kind| best(kind, true).and_then(|of| contestants.iter().position(|c| *c == of));
    let ours = at(None).unwrap_or(0);
    for (kind, peer) in [(Kind::Iperf3, "iperf3"), (Kind::Neper, "neper")] {
        let Some(theirs) = at(Some(kind)) else { continue };
        for (name, ours) in [("socket, pinned,", 0), ("the best of ours", ours)] {
            let name = format!("{name} over the best of {peer}");
            of_best.entry(name).or_default().push(over(ours, theirs)?);
        }
        if ours > 0 {
            let name = format!("{link}: {} against {}", names[ours], names[theirs]);
            effects.push((name, over(ours, theirs)?));
        }
    }
    Ok(effects)
}

/// Prints the verdicts, under Holm's rule over the whole table.
fn conclude(effects: &[(String, Effect)]) {
    let margin = DEFAULT_MARGIN.ln_1p();
    let of = |p: &dyn Fn(&Effect) -> Option<f64>| {
        let ps: Vec<f64> = effects.iter().map(|(_, e)| p(e).unwrap_or(1.0)).collect();
        holm(&ps, CONFIDENCE)
    };
    let different = of(&|effect| effect.estimate().p_different());
    let equal = of(&|effect| effect.estimate().p_equivalent(margin));
    println!("\nAmong all of these, at {:.0}% confidence together:", CONFIDENCE * 100.0);
    for ((name, effect), (different, equal)) in effects.iter().zip(different.iter().zip(&equal)) {
        let word = match effect.ratio > 1.0 {
            _ if equal.adjusted <= 1.0 - CONFIDENCE => "EQUIVALENT",
            _ if different.adjusted > 1.0 - CONFIDENCE => "INCONCLUSIVE",
            true => "FASTER",
            false => "SLOWER",
        };
        println!("  {name}: {word} {}", interval(effect));
    }
}

/// The mean of effects on several links, whose errors are independent.
fn together(effects: &[Effect]) -> Result<String> {
    let count = effects.len() as f64;
    let (mut mean, mut variance, mut denominator) = (0.0, 0.0, 0.0);
    for effect in effects {
        let spread = effect.log_stddev.context("one block has no spread")?;
        let squared = spread.powi(2) / effect.blocks as f64;
        mean += effect.ratio.ln() / count;
        variance += squared;
        denominator += squared.powi(2) / (effect.blocks as f64 - 1.0);
    }
    // Satterthwaite's degrees of freedom.
    let error =
        StandardError { size: variance.sqrt() / count, freedom: variance.powi(2) / denominator };
    let half = error.half_width(CONFIDENCE).context("no interval")?;
    let [low, high] = [mean - half, mean + half].map(f64::exp);
    Ok(format!("{:.3}x [{low:.3}, {high:.3}]", mean.exp()))
}

fn interval(effect: &Effect) -> String {
    match effect.interval {
        Some(interval) => {
            format!("{:.2}x [{:.2}, {:.2}]", effect.ratio, interval.low, interval.high)
        }
        None => format!("{:.2}x", effect.ratio),
    }
}

impl PartialEq for Runner<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Contestant<'_> {
    fn name(&self) -> String {
        let Way { gro, pinned, options } = self.way;
        let pinned = if pinned { "pinned" } else { "not pinned" };
        let gro = if gro { "" } else { ", GRO off" };
        let options = match (self.runner, options) {
            (Runner::Theirs(_), []) => " default".into(),
            (_, options) => options.iter().map(|option| format!(" {option}")).collect::<String>(),
        };
        format!("{}{options}, {pinned}{gro}", self.runner.name())
    }
}

impl Runner<'_> {
    fn name(&self) -> &str {
        match self {
            Runner::Ours(path) => path,
            Runner::Theirs(peer) => &peer.name,
        }
    }

    /// The kind of program, or `None` for ours.
    fn kind(&self) -> Option<Kind> {
        match self {
            Runner::Ours(_) => None,
            Runner::Theirs(peer) => Some(peer.kind),
        }
    }

    fn ways(&self) -> impl Iterator<Item = Way> + use<> {
        let sizes: &'static [&'static [&'static str]] = match self.kind() {
            None => &[&[]],
            Some(Kind::Iperf3) => &[&[], &["-l", "1M"], &["-Z", "-l", "1M"]],
            Some(Kind::Neper) => &[&[], &["-B", "131072"], &["-B", "1048576"]],
        };
        let places = [(true, true), (true, false), (false, true), (false, false)];
        places.into_iter().flat_map(move |(gro, pinned)| {
            sizes.iter().map(move |options| Way { gro, pinned, options })
        })
    }
}

impl Stands<'_> {
    /// Sets [`DEFAULT_CONGESTION`] in all namespaces, which end with the bench.
    fn pace_nothing(&self, cell: &Cell) -> Result<()> {
        let name = std::env::var("BENCH_DEFAULT").unwrap_or_else(|_| DEFAULT_CONGESTION.into());
        let set = format!("net.ipv4.tcp_congestion_control={name}");
        for stand in &self.0 {
            for role in Role::ALL {
                let status = inside(stand, cell, role).args(["sysctl", "-qw", &set]).status()?;
                ensure!(status.success(), "sysctl {set} failed");
            }
        }
        Ok(())
    }

    /// Runs once; the cells are those of the link as named, and without GRO.
    fn run(&mut self, contestant: &Contestant, cells: [&[Cell]; 2], window: f64) -> Result<Run> {
        let Contestant { runner, way } = contestant;
        let at = usize::from(!way.gro);
        let path = if let Runner::Ours(path) = runner { path } else { PATHS[0] };
        let cell = cells[at].iter().find(|cell| !cell.null && cell.tx.path == path);
        let mut cell = cell.context("no cell")?.clone();
        if !way.pinned {
            cell.placement = Placement::default();
        }
        let stand = &mut self.0[at];
        let before = Tcp::of(stand)?;
        let rate = match runner {
            Runner::Ours(_) => {
                let trial = stand.run(&cell, &[], &Schedule::trials(1, 1.0, window), None)?;
                trial.rate().with_context(|| format!("no rate: {:?}", trial.status))?
            }
            Runner::Theirs(peer) => peer.run(stand, &cell, way.options, window)?,
        };
        before.until(stand, rate, window + 1.0)
    }
}

impl Peer {
    /// Bytes a second received in one run.
    fn run(&self, stand: &OpenTestbed, cell: &Cell, options: &[&str], window: f64) -> Result<f64> {
        let mut server = inside(stand, cell, Role::Receiver);
        server.arg(&self.program);
        let mut client = inside(stand, cell, Role::Sender);
        client.arg(&self.program);
        let address = stand.address(Role::Receiver).to_string();
        let seconds = window.to_string();
        match self.kind {
            Kind::Iperf3 => {
                let _server = Server::listening(server)?;
                client.args(["-c", &address, "-J", "-C", CONGESTION, "-O", "1", "-t", &seconds]);
                let output = client.args(options).output().context("cannot run iperf3 -c")?;
                Ok(iperf3::received(&output)? / 8.0)
            }
            Kind::Neper => {
                // neper counts from its first sample on.
                let length = (window + 1.0).to_string();
                let common = ["-l", &length, "--nolog", "--congestion-control", CONGESTION];
                server.args(common).args(options).stdout(Stdio::null());
                let _server = Server::started(server)?;
                listening(stand)?;
                client.args(["-c", "-H", &address]).args(common).args(options);
                let output = client.output().context("cannot run tcp_stream -c")?;
                throughput(&output.stdout)
            }
        }
    }
}

/// TCP counters in the namespaces of an open testbed.
struct Tcp {
    retransmitted: i64,
    out_of_order: i64,
}

impl Tcp {
    fn of(stand: &OpenTestbed) -> Result<Tcp> {
        let count = |role: Role, file: &str, name: (&str, &str)| -> Result<i64> {
            let path = format!("/proc/{}/net/{file}", stand.pid(role));
            let text = fs::read_to_string(&path).with_context(|| path.clone())?;
            let counters = netstat::parse(&text).ok().context(path)?;
            let found = counters.iter().find(|counter| (counter.0, counter.1) == name);
            Ok(found.map_or(0, |counter| counter.2))
        };
        Ok(Tcp {
            retransmitted: count(Role::Sender, "snmp", ("Tcp", "RetransSegs"))?,
            out_of_order: count(Role::Receiver, "netstat", ("TcpExt", "TCPOFOQueue"))?,
        })
    }

    /// Returns a run of this rate and duration that began at `self` and has ended.
    fn until(&self, stand: &OpenTestbed, rate: f64, seconds: f64) -> Result<Run> {
        let after = Tcp::of(stand)?;
        let gib = rate * seconds / f64::from(1 << 30);
        Ok(Run {
            rate,
            retransmitted: (after.retransmitted - self.retransmitted) as f64 / gib,
            out_of_order: (after.out_of_order - self.out_of_order) as f64 / gib,
        })
    }
}

/// Waits until neper's control port listens in the receiver's namespace.
fn listening(stand: &OpenTestbed) -> Result<()> {
    let begin = Instant::now();
    let files =
        ["tcp", "tcp6"].map(|file| format!("/proc/{}/net/{file}", stand.pid(Role::Receiver)));
    // Port 12866 in state 0A, TCP_LISTEN (include/net/tcp_states.h).
    let listens = |line: &str| line.contains(":3242 ") && line.contains(" 0A ");
    loop {
        for file in &files {
            let text = fs::read_to_string(Path::new(file)).unwrap_or_default();
            if text.lines().any(listens) {
                return Ok(());
            }
        }
        ensure!(begin.elapsed() < Duration::from_secs(5), "tcp_stream does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes a second at the other end, which a neper client prints in bits.
fn throughput(output: &[u8]) -> Result<f64> {
    let text = String::from_utf8_lossy(output);
    let bits = text.lines().find_map(|line| line.strip_prefix("remote_throughput="));
    Ok(bits.context("tcp_stream printed no throughput")?.parse::<f64>()? / 8.0)
}
